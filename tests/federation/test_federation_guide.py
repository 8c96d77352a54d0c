"""The guides for organisations run as printed, with all nodes on this machine."""

import os
import pty
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("zenoh", reason="the extra 'federation' is not installed")

from tests.helpers.federation_net import free_ports

from dpadmm.run.model import load_model

ROOT = Path(__file__).parents[2]
SHORT, BY_HAND = (ROOT / "docs" / f"{name}.md" for name in ("federation", "federation-by-hand"))
BLOCK = re.compile(
    r"^```\{code-block\} (?P<kind>\w+)\n:caption: (?P<caption>.+?)\n\n(?P<body>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
NAMES = ("north", "south")
MEMBERS = ("north", "south", "east", "west", "harbour")
MOST_COMMANDS = 4
ROWS = {"north": 3000, "south": 2000, "east": 1500, "west": 1000, "harbour": 800}


def test_the_guide_by_hand_runs_as_printed(fork_server, tmp_path):
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
    for block in BLOCK.finditer(BY_HAND.read_text(encoding="utf-8")):
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


class Terminal:
    """A command at a terminal, whose reader may answer."""

    def __init__(self, words, folder, environment):
        self._screen, inside = pty.openpty()
        self._command = subprocess.Popen(
            words, cwd=folder, env=environment, stdin=inside, stdout=inside, stderr=inside
        )
        os.close(inside)
        self.text = ""

    def read(self, until=None):
        """What is shown until these words, or to the end."""
        while until is None or until not in self.text:
            try:
                data = os.read(self._screen, 1 << 16)
            except OSError:  # the other end is closed
                data = b""
            if not data:
                break
            self.text += data.decode()
        assert until is None or until in self.text, self.text
        return self.text

    def answer(self, words):
        os.write(self._screen, f"{words}\n".encode())
        self.read()
        os.close(self._screen)
        assert self._command.wait(60) == 0, self.text


class Operators:
    """Five people at five machines, and one with the public file: folders of this one."""

    def __init__(self, folder, commands):
        self.folder = folder
        self.ports = dict(zip(MEMBERS, free_ports(len(MEMBERS)), strict=True))
        self.environment = os.environ | {
            "PATH": f"{commands}:{os.environ['PATH']}",
            "PYTHONWARNINGS": "error",
            "COLUMNS": "80",
        }
        for name in ("coordinator", *MEMBERS):
            self.place(name).mkdir()

    def place(self, name):
        return self.folder / name

    def here(self, text):
        for name, port in self.ports.items():
            text = text.replace(f"{name}.example.org:7447", f"127.0.0.1:{port}")
        return text

    def start(self, command, name):
        words = shlex.split(command)
        with open(self.place(name) / "output.txt", "ab") as output:
            return subprocess.Popen(
                words,
                cwd=self.place(name),
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )

    def run(self, command, names):
        running = {name: self.start(command.replace("NAME", name), name) for name in names}
        for name, process in running.items():
            assert process.wait(120) == 0, (self.place(name) / "output.txt").read_text()

    def telephone(self, command):
        """All read their words on one call, and each answers that they are the same."""
        terminals = [
            Terminal(shlex.split(command), self.place(name), self.environment) for name in MEMBERS
        ]
        read = {
            re.search(r"on one call:\s*(.*?)Did", each.read("[y/N]"), re.DOTALL)[1]
            for each in terminals
        }
        assert len(read) == 1
        assert len(re.findall(r"[a-z]+", read.pop())) == 20
        for each in terminals:
            each.answer("y")

    def carry(self, command):
        """What is sent by e-mail after a command: requests, and kits."""
        if command.startswith("dpadmm cert request"):
            for name in MEMBERS:
                shutil.copy2(self.place(name) / f"{name}.csr", self.place("coordinator"))
        if command.startswith("dpadmm federation init"):
            for name in MEMBERS:
                kit = self.place("coordinator") / "kits-1" / f"{name}.zip"
                assert b"PRIVATE KEY" not in kit.read_bytes()
                shutil.copy2(kit, self.place(name))


def test_five_organisations_set_up_from_the_guide(fork_server, tmp_path):
    """As new operators would: at most four commands each, and no generated file is edited."""
    started = time.monotonic()
    operators = Operators(tmp_path, fork_server.commands())
    counted = dict.fromkeys(("at every organisation", "at the coordinator", "at north"), 0)
    for block in BLOCK.finditer(SHORT.read_text(encoding="utf-8")):
        caption, body = block["caption"], block["body"]
        if block["kind"] == "python":
            for name, rows in ROWS.items():
                words = [sys.executable, "-c", body, name, str(rows)]
                subprocess.run(words, cwd=operators.place(name), check=True)
            continue
        if block["kind"] == "toml":
            if caption.startswith("coordinator/"):
                (tmp_path / caption).write_text(operators.here(body))
            if caption.endswith("federation.toml"):
                for name in MEMBERS:
                    shutil.copy2(tmp_path / caption, operators.place(name))
            continue
        for line in body.splitlines():
            command = line.removeprefix("$ ")
            counted[caption] += 1
            if command == "dpadmm federation pins":
                operators.telephone(command)
            elif caption == "at every organisation":
                operators.run(command, MEMBERS)
            else:
                operators.run(command, [caption.rpartition(" ")[2]])
            operators.carry(command)
    assert counted["at every organisation"] == MOST_COMMANDS
    assert counted["at the coordinator"] == 3
    # What the coordinator has is public, but for its authority's own key.
    keys = [file.name for file in operators.place("coordinator").rglob("*.key")]
    assert keys == ["ca.key"]
    models = [load_model(operators.place(name) / "readmission-1.model") for name in MEMBERS]
    for model in models[1:]:
        assert (model.classifier.coef == models[0].classifier.coef).all()
    for name, model in zip(MEMBERS, models, strict=True):
        place = operators.place(name)
        assert list(model.privacy.parties) == [name]
        assert "Agreed by all" in (place / "readmission-1.txt").read_text()
        # Nothing of a kit was changed: neither by the operator nor by a command.
        assert (place / "node.toml").read_bytes() == (place / "kit-1" / "node.toml").read_bytes()
        assert (place / f"{name}.key").stat().st_mode & 0o777 == 0o600
    assert len((operators.place("north") / "predictions.csv").read_text().splitlines()) == 3001
    assert time.monotonic() - started < 15 * 60
