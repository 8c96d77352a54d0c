"""``dpadmm status`` on the files of real processes: alive, frozen, killed, ended."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from importlib.resources import files
from pathlib import Path

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpadmm.cli import output
from dpadmm.errors import ParameterError
from dpadmm.federation.status import read_status
from dpadmm.federation.watcher import Watcher

VALIDATOR = jsonschema.Draft202012Validator(
    json.loads(files("dpadmm.cli").joinpath("output.schema.json").read_text())
)
NODE = """
import signal, sys, time
from pathlib import Path
from dpadmm.federation.watcher import Watcher
# Who is started from a job in the background ignores interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)
with Watcher("south", "run-1", log=Path("/dev/null"), status=Path(sys.argv[1])) as watcher:
    watcher.round(3, 50)
    watcher.waiting("north", 12.0)
    watcher.budget(0.25, 0.75)
    watcher.event("neighbour-lost", level="warning", neighbour="north")
    time.sleep(60)
"""


@pytest.fixture
def node(tmp_path):
    """A process that watches itself, ready."""
    file = tmp_path / "south.status.json"
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    process = subprocess.Popen([sys.executable, "-c", NODE, str(file)], env=environment)
    deadline = time.monotonic() + 120
    while not file.exists() or json.loads(file.read_text())["round"] != 3:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    yield process
    process.kill()
    process.wait()


def aged(file, seconds):
    """What the file would say had it not been written since."""
    content = json.loads(file.read_text())
    then = time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(time.time() - seconds))
    file.write_text(json.dumps(content | {"updated": then}))


def life(dpadmm, folder):
    result = dpadmm("status", folder, "--json")
    return json.loads(result.stdout)["result"]["nodes"][0]["life"], result.exit_code


def test_alive_frozen_and_killed(dpadmm, tmp_path, node, monkeypatch):
    monkeypatch.setattr(output.console, "width", 160)
    shown = dpadmm("status", tmp_path)
    assert shown.exit_code == 0
    for words in ("south", "alive", "3/50", "north 12 s", "0.25", "0.75", "neighbour-lost (north)"):
        assert words in shown.output
    node.send_signal(signal.SIGSTOP)
    time.sleep(0.1)
    aged(tmp_path / "south.status.json", 60)
    assert life(dpadmm, tmp_path) == ("silent", 3)
    node.kill()
    node.wait()
    assert life(dpadmm, tmp_path) == ("dead", 3)


def test_of_another_machine_only_the_age_counts(dpadmm, tmp_path):
    file = tmp_path / "north.status.json"
    Watcher("north", log=tmp_path / "log", status=file).close()
    content = json.loads(file.read_text()) | {"state": "running", "process": 2**22 + 1}
    file.write_text(json.dumps(content))
    assert life(dpadmm, tmp_path)[0] == "dead"
    file.write_text(json.dumps(content | {"process_space": "elsewhere"}))
    assert life(dpadmm, tmp_path) == ("alive", 0)
    aged(file, 11)
    assert life(dpadmm, tmp_path) == ("silent", 3)


def test_no_figure_or_word_is_cut_at_80_columns(dpadmm, tmp_path, monkeypatch):
    """0.000312 and a 6 on the next line look as if less were left."""
    monkeypatch.setattr(output.console, "width", 80)
    file = tmp_path / "south.status.json"
    with Watcher("south", log=tmp_path / "log", status=file) as watcher:
        watcher.round(100, 100)
        watcher.serving(60.0)
        watcher.finished()
    content = json.loads(file.read_text()) | {"epsilon_spent": 1.0, "epsilon_left": 0.0003126}
    for node in ("south", "a-node-with-a-name-that-is-quite-long"):
        file.write_text(json.dumps(content | {"node": node}))
        shown = dpadmm("status", file).stdout
        assert max(map(len, shown.splitlines())) <= 80
        for word in (node, "0.0003126", "finished", "100/100"):
            assert word in shown


def test_several_nodes_that_ended(dpadmm, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    for name, done in (("south", 50), ("north", 7)):
        file = tmp_path / f"{name}.status.json"
        with Watcher(name, log=tmp_path / "log", status=file) as watcher:
            watcher.round(done, 50)
            watcher.serving(60.0)
            watcher.finished()
    shown = dpadmm("status", tmp_path, tmp_path / "north.status.json", "--watch")
    assert shown.exit_code == 0
    rows = [line for line in shown.output.splitlines() if "/50" in line]
    assert ["north" in rows[-2], "stopped" in rows[-2]] == [True, True]
    assert ["south" in rows[-1], "finished" in rows[-1]] == [True, True]


def test_a_node_that_failed_says_why(dpadmm, tmp_path, monkeypatch):
    monkeypatch.setattr(output.console, "width", 160)
    file = tmp_path / "south.status.json"
    with Watcher("south", log=tmp_path / "log", status=file) as watcher:
        watcher.event("failed", level="error", error=ParameterError("epsilon must be less."))
    shown = dpadmm("status", tmp_path)
    assert shown.exit_code == 3
    assert "south failed: ParameterError: epsilon must be less." in shown.stdout
    assert life(dpadmm, tmp_path) == ("failed", 3)
    # Who was told to stop is no trouble, whatever happened before.
    with Watcher("south", log=tmp_path / "log", status=file) as watcher:
        watcher.event("stopped", level="warning", reason="sigterm")
    assert life(dpadmm, tmp_path) == ("stopped", 0)


def test_who_has_not_begun_hides_nobody(dpadmm, tmp_path):
    folders = [tmp_path / name for name in ("north", "south", "west")]
    for folder in folders:
        folder.mkdir()
    file = folders[0] / "north.status.json"
    Watcher("north", log=tmp_path / "log", status=file).close()
    shown = dpadmm("status", *folders, "--json")
    assert shown.exit_code == 0
    result = json.loads(shown.stdout)
    VALIDATOR.validate(result)
    assert [node["node"] for node in result["result"]["nodes"]] == ["north"]
    assert list(result["result"]["absent"]) == [str(folder) for folder in folders[1:]]
    shown = dpadmm("status", *folders)
    assert "north" in shown.stdout
    assert "has no status file" in shown.stderr
    # What is there and cannot be read is trouble.
    (folders[1] / "south.status.json").write_text("{}")
    shown = dpadmm("status", *folders)
    assert (shown.exit_code, "north" in shown.stdout) == (3, True)


def test_writing_of_results_is_seen(dpadmm, tmp_path, monkeypatch):
    monkeypatch.setattr(output.console, "width", 160)
    file = tmp_path / "south.status.json"
    with Watcher("south", log=tmp_path / "log", status=file) as watcher:
        watcher.round(50, 50)
        with watcher.writing():
            watcher._write_status()
            assert "50/50 writing" in dpadmm("status", tmp_path).stdout


def test_watching_ends_with_the_node(dpadmm, tmp_path, node):
    import threading

    timer = threading.Timer(0.5, lambda: node.send_signal(signal.SIGINT))
    timer.start()
    shown = dpadmm("status", tmp_path, "--watch", "--every", "0.1")
    timer.join()
    assert shown.exit_code == 0
    assert "stopped" in shown.output


def test_refusals(dpadmm, tmp_path):
    for arguments, words in (
        ((tmp_path,), "has none"),
        ((tmp_path / "nowhere",), "No such file"),
        ((tmp_path, "--watch", "--json"), "--json prints once"),
        ((tmp_path, "--serve", "127.0.0.1:0", "--json"), "--serve shows a page; got --json too"),
        ((tmp_path, "--serve", "127.0.0.1:0", "--watch"), "--serve shows a page; got --watch too"),
        ((tmp_path, "--serve", "0.0.0.0:8765"), "unless --anywhere is given"),
        ((tmp_path, "--serve", "8765"), "--serve must be an address and a port"),
        ((tmp_path, "--anywhere"), "--anywhere must come with --serve"),
        ((tmp_path, "--token-file", "token"), "--token-file must come with --serve"),
        (
            (tmp_path, "--serve", "127.0.0.1:0", "--token-file", tmp_path / "token"),
            "token_file must be a file with a token",
        ),
    ):
        result = dpadmm("status", *arguments)
        assert result.exit_code == 2
        assert words in result.output.replace("\n", " ")


@settings(max_examples=40)
@given(
    st.binary(max_size=200)
    | st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: st.dictionaries(
            st.sampled_from(["version", "node", "run", "waiting", "last_event", "updated", "x"]),
            inner,
        ),
    ).map(lambda content: json.dumps(content).encode())
)
def test_what_no_node_wrote_is_refused(tmp_path_factory, content):
    file = tmp_path_factory.mktemp("status") / "x.status.json"
    file.write_bytes(content)
    with pytest.raises(ParameterError, match="a status file must"):
        read_status(file)


def test_an_escape_sequence_reaches_no_terminal(dpadmm, tmp_path):
    file = tmp_path / "north.status.json"
    Watcher("north", log=tmp_path / "log", status=file).close()
    file.write_text(json.dumps(json.loads(file.read_text()) | {"node": "no\x1b[31mrth"}))
    assert "\x1b[31m" not in dpadmm("status", tmp_path).output


COMMAND = [sys.executable, "-m", "dpadmm"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_page_is_served_until_a_signal(tmp_path, number):
    more = ["--anywhere"] if number == signal.SIGTERM else []
    process = subprocess.Popen(
        [*COMMAND, "status", str(tmp_path / "n.status.json"), "--serve", "127.0.0.1:0", *more],
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2] / "src"), "COLUMNS": "300"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        address = process.stdout.readline().split()[0]
        with urllib.request.urlopen(f"{address}status.json", timeout=60) as reply:
            before = json.load(reply)
        Watcher("north", log=tmp_path / "log", status=tmp_path / "n.status.json").close()
        with urllib.request.urlopen(f"{address}status.json", timeout=60) as reply:
            after = json.load(reply)
        with urllib.request.urlopen(address, timeout=60) as reply:
            assert "north: stopped" in reply.read().decode()
        with pytest.raises(urllib.error.HTTPError, match="405"):
            urllib.request.urlopen(address, data=b"", timeout=60)
        process.send_signal(number)
        assert process.wait(60) == 0
        assert ("whoever reaches" in process.stderr.read()) == bool(more)
    finally:
        process.kill()
        process.communicate()
    (words,) = before["result"]["absent"].values()
    assert words.endswith("n.status.json is not there yet.")
    for found in (before, after):
        VALIDATOR.validate(found)
    assert [node["node"] for node in after["result"]["nodes"]] == ["north"]


def test_a_port_that_is_taken(dpadmm, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        result = dpadmm("status", tmp_path, "--serve", address)
    assert result.exit_code == 75
    assert "must be an address of this machine that is free" in result.output.replace("\n", " ")
