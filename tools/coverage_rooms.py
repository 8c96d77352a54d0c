"""Print the lines and branches that the tests reached, a row for each room.

Usage: ``python tools/coverage_rooms.py .coverage.json``, the file that ``coverage json`` writes.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

PACKAGES = ("dpadmm", "dpadmm_papers")
COUNTED = ("covered_lines", "num_statements", "covered_branches", "num_branches")


def room_of(path: str) -> str:
    """Name the room of a file: the folder under its package, or the package itself."""
    parts = Path(path).parts
    package = next(place for place, part in enumerate(parts) if part in PACKAGES)
    inside = parts[package:]
    return "/".join(inside[:2]) if inside[0] == "dpadmm" and len(inside) > 2 else inside[0]


def table(files: Mapping[str, Mapping[str, Mapping[str, int]]]) -> str:
    """Return a Markdown table of the share of lines and branches reached, by room."""
    rooms: dict[str, Counter[str]] = {}
    for path, found in files.items():
        counts = Counter({name: found["summary"][name] for name in COUNTED})
        for room in (room_of(path), "all"):
            rooms.setdefault(room, Counter()).update(counts)
    rows = ["| room | lines | of | branches | of |", "|---|---|---|---|---|"]
    for room in [*sorted(set(rooms) - {"all"}), "all"]:
        count = rooms[room]
        lines = _share(count["covered_lines"], count["num_statements"])
        branches = _share(count["covered_branches"], count["num_branches"])
        rows.append(
            f"| {room} | {lines} | {count['num_statements']} | {branches} "
            f"| {count['num_branches']} |"
        )
    return "\n".join(rows)


def _share(reached: int, of: int) -> str:
    # Rounded down: 100% means all of them.
    return f"{reached * 1000 // of / 10:.1f}%" if of else "none"


if __name__ == "__main__":
    print(table(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))["files"]))
