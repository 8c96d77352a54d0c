"""Break modules in small ways that nobody chose, and list the breaks that no test notices.

Usage: ``python tools/mutate.py src/dpadmm/privacy/curves.py ...`` after ``pip install cosmic-ray``,
which makes the mutants. They run in a copy of the clone, one forked process each, against the tests
that reach the mutated lines. ``--minutes`` ends a run in time, and the same command goes on where
it ended; what was found is kept in the folder ``--state``, as lines of JSON. ``--again survived``
runs survivors anew and nothing else, after tests were added. Exit code 75 says that some are left.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final

from mutations import ROOT, Mutant, known_mutants
from workshop import Workshop

#: Tests that may kill a mutant, unless others are named.
TESTS: Final = ("tests/privacy", "tests/ledger")
MORE_TO_DO: Final = 75


def read_results(results: Path) -> dict[str, dict[str, Any]]:
    """The last outcome of every mutant that was run."""
    if not results.exists():
        return {}
    records = map(json.loads, results.read_text(encoding="utf-8").splitlines())
    return {record["identity"]: record for record in records}


def table(made: dict[str, int], drawn: list[Mutant], known: dict[str, dict[str, Any]]) -> str:
    """Counts by module, as Markdown: made, drawn by ``--sample``, run, and what became of them."""
    heads = ("made", "drawn", "run", "killed", "timeout", "survived", "unreached")
    lines = ["| module | " + " | ".join(heads) + " |", "| --- " * (len(heads) + 1) + "|"]
    for module, number in made.items():
        mine = [mutant for mutant in drawn if mutant.module == module]
        counts = Counter(known[m.identity]["outcome"] for m in mine if m.identity in known)
        numbers = [number, len(mine), counts.total(), *(counts[head] for head in heads[3:])]
        name = module.removeprefix("src/dpadmm/")
        lines.append(f"| `{name}` | " + " | ".join(map(str, numbers)) + " |")
    return "\n".join(lines)


def main() -> int:
    """Run what is asked for and print a table and the survivors."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("modules", nargs="+")
    parser.add_argument("--tests", nargs="+", default=TESTS)
    parser.add_argument("--state", type=Path, default=ROOT / ".mutants")
    parser.add_argument("--minutes", type=float, default=1e6)
    parser.add_argument("--cap", type=float, default=3.0, help="seconds of tests per mutant")
    parser.add_argument("--sample", type=int, help="so many of each module, drawn by --seed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--again", nargs="+", default=[], help="only these: outcomes or identities")
    parser.add_argument("--only-report", action="store_true")
    asked = parser.parse_args()
    until = time.monotonic() + 60 * asked.minutes
    asked.state.mkdir(exist_ok=True)
    results = asked.state / "results.jsonl"
    mutants: list[Mutant] = []
    number: dict[str, int] = {}
    for module in asked.modules:
        made = known_mutants(module, asked.state)
        number[module] = len(made)
        if asked.sample is not None and asked.sample < len(made):
            # A larger sample of the same seed holds the smaller one.
            random.Random(asked.seed).shuffle(made)
            made = made[: asked.sample]
        mutants += made
    known = read_results(results)
    again = set(asked.again)
    todo = [mutant for mutant in mutants if mutant.identity not in known]
    if again:
        known_outcomes = {identity: record["outcome"] for identity, record in known.items()}
        todo = [m for m in mutants if {m.identity, known_outcomes.get(m.identity)} & again]
    if todo and not asked.only_report:
        shop = Workshop(asked.state, asked.tests, asked.cap)
        shop.prepare()
        shop.learn()
        shop.run(todo, results, until)
        known = read_results(results)
    print(table(number, mutants, known))
    for mutant in mutants:
        record = known.get(mutant.identity, {})
        if record.get("outcome") in ("survived", "unreached"):
            place = f"{mutant.module.removeprefix('src/dpadmm/')}:{mutant.line}"
            print(f"\n{mutant.identity} {place} {mutant.operator} {record['outcome']}")
            print(f"  - {mutant.before}\n  + {mutant.after}")
    return MORE_TO_DO if any(mutant.identity not in known for mutant in mutants) else 0


if __name__ == "__main__":
    sys.exit(main())
