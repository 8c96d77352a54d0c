"""Print pip constraints that hold every direct dependency at the lowest version it names.

``numpy>=2.0`` becomes ``numpy==2.0``. Dependencies of dependencies stay free: the bounds that this
project states are what is tried. ``make lowest`` installs by these constraints and runs tests.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

REQUIREMENT = re.compile(
    r"(?P<name>[A-Za-z0-9._-]+)(\[[^]]*\])?\s*(>=|~=|==)\s*(?P<version>[0-9.]+)"
)


def lowest(requirements: Iterable[str]) -> Iterator[str]:
    """Yield ``name==version`` for each requirement, with the lowest version that it allows.

    An extra of this project that another one names, as ``dpadmm[federation]``, is passed by.

    Raises
    ------
    ValueError
        If a requirement names no lower bound: nobody could know what was tested.
    """
    for requirement in requirements:
        if requirement.startswith("dpadmm["):
            continue
        bound = REQUIREMENT.match(requirement)
        if bound is None:
            raise ValueError(
                f"requirement must name a lower bound, got {requirement!r}: write name>=version"
            )
        yield f"{bound['name']}=={bound['version']}"


def main(project: Path) -> None:
    """Print the constraints of the ``pyproject.toml`` at ``project``."""
    table = tomllib.loads(project.read_text(encoding="utf-8"))["project"]
    wanted = [*table["dependencies"]]
    for requirements in table["optional-dependencies"].values():
        wanted += requirements
    sys.stdout.write("".join(f"{line}\n" for line in sorted(set(lowest(wanted)))))


if __name__ == "__main__":
    main(Path(__file__).parent.parent / "pyproject.toml")
