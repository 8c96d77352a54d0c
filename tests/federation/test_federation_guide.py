"""The guide for two organisations runs as printed, with both nodes on this machine."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("zenoh", reason="the extra 'federation' is not installed")

from tests.helpers.federation_net import free_ports

from dpadmm.run.model import load_model

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "federation.md"
BLOCK = re.compile(
    r"^```\{code-block\} (?P<kind>\w+)\n:caption: (?P<caption>.+?)\n\n(?P<body>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
NAMES = ("north", "south")


def test_the_guide_runs_as_printed(fork_server, tmp_path):
    places = {name: tmp_path / name for name in NAMES}
    ports = dict(zip(NAMES, free_ports(2), strict=True))
    for place in places.values():
        place.mkdir()

    def here(text, place=""):
        """The same with both machines on this one."""
        for name, port in ports.items():
            text = text.replace(f"{name}.example.org:7447", f"127.0.0.1:{port}")
            text = text.replace(f"{name}.example.org", "127.0.0.1")
        return text.replace("0.0.0.0:7447", f"127.0.0.1:{ports.get(place, 0)}")

    running, commands, checks = {}, 0, set()
    for block in BLOCK.finditer(PAGE.read_text(encoding="utf-8")):
        caption, body = block["caption"], block["body"]
        if block["kind"] != "console":
            owner, _, file = caption.rpartition("/")
            for name in [owner] if owner else NAMES:
                (places[name] / file).write_text(here(body, name), encoding="utf-8")
            continue
        where = caption.removeprefix("at ")
        for line in body.splitlines():
            command = here(line.removeprefix("$ "))
            commands += 1
            output = tmp_path / f"{commands}.out"
            if not command.startswith("dpadmm "):
                words = [sys.executable, *shlex.split(command)[1:]]
                subprocess.run(words, cwd=places[where], check=True)
                continue
            number = fork_server.start(shlex.split(command)[1:], output, places[where])
            if command.removesuffix(" --rehearse") == "dpadmm node --config node.toml":
                running[number] = output
                if len(running) < 2:
                    continue
            for each, told in (running or {number: output}).items():
                assert fork_server.wait(each) == 0, told.read_text()
            running = {}
            if command.endswith("--check"):
                checks.add(re.search(r"ready for run (\w+)", output.read_text())[1])
            if where == "north" and command.startswith("dpadmm cert node trial south"):
                # South is given its three files.
                (places["south"] / "trial").mkdir()
                for file in ("ca.pem", "south.pem", "south.key"):
                    shutil.copy2(places["north"] / "trial" / file, places["south"] / "trial")
    assert commands >= 14
    assert len(checks) == 1
    models = [load_model(places[name] / f"{name}.model") for name in NAMES]
    # Of two parties each hears both: they have one model, and each states its own guarantee.
    assert models[0].fingerprint == models[1].fingerprint
    assert [list(model.privacy.parties) for model in models] == [["north"], ["south"]]
    assert "differential privacy" in (places["south"] / "south.txt").read_text()
    assert len((places["north"] / "predictions.csv").read_text().splitlines()) == 3001
