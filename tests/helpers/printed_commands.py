"""Run the commands of a page exactly as printed, in a folder with the files that it prints."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(?P<head>.*?)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
CAPTION = re.compile(r":caption: (\S+)\n\n(.*)", re.DOTALL)


def run_page(page, folder, commands_from=None, *, most=None, ports=None, without="nothing"):
    """Write the files that a page prints, run its commands or the first; how many there were.

    ``commands_from`` is a folder of commands that go before those of this environment; ``ports``
    are those of this machine that stand for the page's; commands that begin with ``without`` are
    left out.
    """
    # On the sources beside these tests.
    places = [commands_from, str(Path(sys.executable).parent), os.environ["PATH"]]
    environment = os.environ | {
        "PATH": ":".join(filter(None, places)),
        "PYTHONPATH": str(ROOT / "src"),
        "PYTHONWARNINGS": "error",
        "OPENBLAS_NUM_THREADS": "1",
    }
    commands = 0
    text = page.read_text(encoding="utf-8")
    for printed, port in (ports or {}).items():
        text = text.replace(f":{printed}", f":{port}")
    for block in BLOCK.finditer(text):
        if caption := CAPTION.match(block["body"]):
            (folder / caption[1]).write_text(caption[2], encoding="utf-8")
        if block["head"] != "console":
            continue
        steps = re.split(r"^\$ ", block["body"], flags=re.MULTILINE)[1:]
        for step in steps:
            if commands == most:
                return commands
            command, *expected = step.splitlines()
            if command.startswith(without):
                continue
            done = subprocess.run(
                command,
                shell=True,
                cwd=folder,
                env=environment,
                capture_output=True,
                text=True,
                timeout=120,
            )
            assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
            assert [line for line in expected if line not in done.stdout.splitlines()] == []
            commands += 1
    return commands
