"""Which modules of dpadmm one command imports and enters, in order of first entry.

``python tools/doors.py train run.toml`` runs the command in this process and then prints the
list; ``--json`` before the command prints it for machines. Without a command it prints how many
modules and lines the package has.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

SOURCE = Path(__file__).parents[1] / "src" / "dpadmm"


class Doors:
    """A profile function that notes the first call into each module, import time left out."""

    def __init__(self) -> None:
        self.entered: dict[str, None] = {}
        self._importing = threading.local()

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        """Note a call, as :func:`sys.setprofile` hands it over."""
        code = frame.f_code
        if not code.co_filename.startswith(str(SOURCE)):
            return
        depth = getattr(self._importing, "depth", 0)
        if code.co_name == "<module>":
            # What a module calls while it is imported is not the way of a command.
            self._importing.depth = depth + {"call": 1, "return": -1}.get(event, 0)
        elif event == "call" and depth == 0:
            self.entered.setdefault(str(Path(code.co_filename).relative_to(SOURCE)))


def run_watched(words: list[str]) -> dict[str, Any]:
    """Run a command; the modules it entered in order, and how many it imported."""
    # Python compares the way a file was found, not the file: the source of this clone comes first.
    sys.path.insert(0, str(SOURCE.parent))
    from dpadmm.__main__ import main

    doors = Doors()
    sys.argv = ["dpadmm", *words]
    threading.setprofile(doors)
    sys.setprofile(doors)
    try:
        with contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO())):
            main()
        code = 0
    except SystemExit as end:
        code = int(end.code or 0)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    imported = [name for name in sys.modules if name == "dpadmm" or name.startswith("dpadmm.")]
    return {
        "command": words,
        "exit": code,
        "imported": sorted(imported),
        "entered": list(doors.entered),
    }


def about(file: str) -> str:
    """The first line of a module's docstring, cut."""
    text = (ast.get_docstring(ast.parse((SOURCE / file).read_text())) or "").split("\n")[0]
    return text if len(text) <= 72 else text[:71].rsplit(" ", 1)[0] + " ..."


def size() -> dict[str, int]:
    """How many modules and lines the package has."""
    files = list(SOURCE.rglob("*.py"))
    return {
        "modules": len(files),
        "lines": sum(len(file.read_text().splitlines()) for file in files),
    }


def main() -> None:
    """Print what was asked for."""
    words = sys.argv[1:]
    as_json = words[:1] == ["--json"]
    words = words[as_json:]
    if not words:
        print(
            json.dumps(size()) if as_json else "{modules} modules, {lines} lines".format(**size())
        )
        return
    seen = run_watched(words)
    if as_json:
        print(json.dumps(seen))
        return
    for number, file in enumerate(seen["entered"], 1):
        print(f"{number:3} {file:26} {about(file)}")
    print(
        f"dpadmm {' '.join(words)}: exit {seen['exit']}, enters {len(seen['entered'])} modules, "
        f"imports {len(seen['imported'])}"
    )


if __name__ == "__main__":
    main()
