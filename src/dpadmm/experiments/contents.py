"""The index of rerun experiments: what stands, at a glance, and what it cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from dpadmm.experiments.experiment import Finding, Summary, summaries
from dpadmm.experiments.meaning import HEADING, THEOREMS
from dpadmm.experiments.statistics import LOOK_LEVEL
from dpadmm.experiments.verdicts import VERDICTS
from dpadmm.report.tables import Table

__all__ = ["contents_page"]

_CALIBRATIONS: Final = {"published": "as published", "proven": "proven"}
_OTHERWISE: Final = "otherwise"
_DEPENDS: Final = "depends on a choice of ours"


@dataclass(frozen=True)
class _Verdict:
    """A summary, where it stands, and the claim that it is about."""

    manifest: dict[str, Any]
    claim: str
    summary: Summary

    @property
    def column(self) -> str:
        return _CALIBRATIONS.get(self.summary.calibration, _OTHERWISE)

    @property
    def outcome(self) -> str:
        return _DEPENDS if self.summary.depends_on else self.summary.verdict

    @property
    def noise(self) -> str:
        """What tells it from others of the same claim."""
        return _CALIBRATIONS.get(self.summary.calibration, self.summary.calibration)

    @property
    def link(self) -> str:
        return f"[{self.manifest['part']}]({self.manifest['experiment']}/page.md)"

    @property
    def full_link(self) -> str:
        """For tables that do not stand under the name of a paper."""
        name = self.manifest["experiment"]
        return f"[{name}]({name}/page.md)"


def contents_page(manifests: Sequence[dict[str, Any]]) -> str:
    """The list of all rerun experiments with their verdicts, for the documentation."""
    verdicts = [verdict for manifest in manifests for verdict in _verdicts(manifest)]
    parts = [
        "# The papers' figures and tables, rerun\n",
        "How many of the papers' conclusions came to what when they were run again:\n",
        _counts(verdicts).markdown(),
        "Each experiment was rerun with noise as its paper sets it (as published) and with noise "
        "that provably meets the same budget (proven). A conclusion *stands* or *does not stand* "
        "when a criterion that was fixed before running decides; the number that decides is on the "
        "experiment's page, with every setting and who chose it. Each is looked at twice at most, "
        f"with {LOOK_LEVEL:.1%} intervals: after 10 runs, and after 60 where 10 do not decide; "
        "what 60 leave open is *not decided*. All of it is one command:\n",
        "```console\n$ DPADMM_DATA=/folder/with/data dpadmm reproduce --all --output FOLDER\n```\n",
        *_open_questions(verdicts),
        *_shared_meaning(manifests),
    ]
    for citation in dict.fromkeys(manifest["citation"] for manifest in manifests):
        of_paper = [each for each in verdicts if each.manifest["citation"] == citation]
        parts += [f"## {citation}\n", _verdict_table(of_paper).markdown()]
    pages = "\n".join(f"{manifest['experiment']}/page" for manifest in manifests)
    parts += [*_costs(manifests), f"```{{toctree}}\n:hidden:\n\n{pages}\n```\n"]
    return "\n".join(parts)


def _verdicts(manifest: dict[str, Any]) -> Iterator[_Verdict]:
    """Every conclusion of an experiment, in its order, with each noise."""
    found = summaries(_finding(each) for each in manifest["findings"])
    for conclusion in manifest["conclusions"]:
        for summary in found:
            if summary.conclusion == conclusion["name"]:
                yield _Verdict(manifest, conclusion["claim"], summary)


def _finding(told: dict[str, Any]) -> Finding:
    return Finding(**{**told, "rests_on": tuple(told.get("rests_on", ()))})


def _open_questions(verdicts: Sequence[_Verdict]) -> list[str]:
    """Each conclusion that depends on a choice, and each that is not decided."""
    parts = []
    dependent = [
        (
            each.full_link,
            each.claim,
            each.noise,
            choice,
            _variants(each.summary, choice, "stands"),
            _variants(each.summary, choice, "does not stand"),
        )
        for each in verdicts
        for choice in each.summary.depends_on
    ]
    if dependent:
        heads = ("experiment", "conclusion", "noise", "depends on", "stands", "does not stand")
        parts.append(Table.of(heads, dependent).markdown())
    open_ones = [each for each in verdicts if each.outcome == "not decided"]
    if open_ones:
        rows = [(each.full_link, each.claim, each.noise) for each in open_ones]
        parts.append(Table.of(("not decided", "conclusion", "noise"), rows).markdown())
    return parts


def _counts(verdicts: Sequence[_Verdict]) -> Table:
    """How many conclusions came to what, of all papers and of each, by the noise."""
    outcomes = (*VERDICTS, _DEPENDS)
    papers = dict.fromkeys(each.manifest["citation"] for each in verdicts)
    groups = [("all", list(verdicts))] + [
        (paper, [each for each in verdicts if each.manifest["citation"] == paper])
        for paper in papers
    ]
    rows: list[tuple[str | int, ...]] = []
    for name, group in groups:
        shown = name
        for column in (*_CALIBRATIONS.values(), _OTHERWISE):
            found = Counter(each.outcome for each in group if each.column == column)
            if found:
                rows.append((shown, column, *(found[outcome] for outcome in outcomes)))
                shown = ""
    return Table.of(("paper", "noise", *outcomes), rows)


def _variants(summary: Summary, choice: str, verdict: str) -> str:
    """The variants of a choice that came to a verdict."""
    return ", ".join(
        each.variant or "our settings"
        for each in summary.findings
        if each.choice in ("", choice) and each.verdict == verdict
    )


def _verdict_table(verdicts: Sequence[_Verdict]) -> Table:
    """A line for each conclusion of a paper."""
    lines: dict[tuple[str, str], dict[str, list[str]]] = {}
    for each in verdicts:
        line = lines.setdefault((each.link, each.claim), {})
        line.setdefault(each.column, []).append(each.summary.word)
    columns = (*_CALIBRATIONS.values(), _OTHERWISE)
    return Table.of(
        ("experiment", "conclusion", *columns),
        [
            (*what, *(", ".join(dict.fromkeys(line.get(column, ()))) for column in columns))
            for what, line in lines.items()
        ],
    )


def _costs(manifests: Sequence[dict[str, Any]]) -> list[str]:
    seconds = sum(manifest["cell_seconds"] for manifest in manifests)
    share = 1.0 / seconds if seconds else 0.0
    rows = [
        (
            manifest["experiment"],
            len(manifest["cells"]),
            len(manifest["more_runs"]["cells"]),
            f"{manifest['cell_seconds']:.0f}",
            f"{share * manifest['cell_seconds']:.0%}",
        )
        for manifest in sorted(manifests, key=lambda each: -each["cell_seconds"])
    ]
    heads = ("experiment", "cells", "run again with more runs", "seconds of computing", "share")
    return [
        "## What it costs\n",
        f"The cells' own clocks add up to {seconds / 60:.0f} minutes, those that two experiments "
        "share counted twice; they ran side by side, and beside whatever else the machine did.\n",
        Table.of(heads, rows).markdown(),
    ]


def _shared_meaning(manifests: Sequence[dict[str, Any]]) -> list[str]:
    """What the epsilons of all experiments mean; each page says it of its own runs."""
    found: dict[str, dict[str, None]] = {"Adjacency": {}, "Adversary": {}, "Theorem": {}}
    for manifest in manifests:
        meaning = manifest["meaning"]
        for heading, words in meaning["facts"]:
            found.get(heading.partition(" (")[0], {})[words] = None
        for _, theorem, releases in meaning["tables"].get(THEOREMS, {"rows": []})["rows"]:
            found["Theorem"][f"{theorem}; of {releases}"] = None
    return [
        f"**{HEADING}.** As published, an epsilon is the paper's claim, not a guarantee; proven, "
        "it is the total of one party over the whole run. Every page lists, for its own runs, the "
        "claims with what is proven of the same noise, delta and the theorem of every number. "
        "They all rest on these:\n",
        "".join(f"* {name}: {each}.\n" for name, words in found.items() for each in words),
    ]
