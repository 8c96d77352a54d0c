"""What a node tells: nothing that is not on the list, read back by those who read it."""

import io
import json
import os
import pty
import re
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from dpadmm.errors import (
    BudgetError,
    ConvergenceError,
    DataError,
    ExchangeError,
    ParameterError,
)
from dpadmm.federation.status import FIELDS, MOST_EVENTS, public_facts, read_status
from dpadmm.federation.transport.session import serving_address
from dpadmm.federation.transport.wire import MOST_WAITED_FOR
from dpadmm.federation.watcher import Watcher
from dpadmm.plain import LONGEST_TEXT


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def scrape(watcher):
    """Every sample of the endpoint, by name and labels, as Prometheus' own parser reads them."""
    with urllib.request.urlopen(f"http://{watcher.metrics_address}/metrics", timeout=60) as reply:
        text = reply.read().decode()
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if not sample.name.endswith("_created")
    }


class TestLog:
    def test_a_line(self, tmp_path):
        with Watcher("north", log=tmp_path / "log") as watcher:
            watcher.event("started", round=0, neighbours=("south", "east"), epsilon=1)
            watcher.join("abc")
            watcher.event("neighbour-lost", level="warning", neighbour="south", seconds=9.0)
        first, second = lines(tmp_path / "log")
        assert set(first) == {"time", "level", "event", "node", "run", "facts"}
        assert first["facts"] == {"round": 0, "neighbours": ["south", "east"], "epsilon": 1.0}
        assert (first["run"], second["run"]) == ("", "abc")
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", first["time"])
        assert (second["level"], second["event"]) == ("warning", "neighbour-lost")

    def test_it_is_added_to(self, tmp_path):
        for _ in range(2):
            with Watcher("north", log=tmp_path / "log") as watcher:
                watcher.event("started")
        assert len(lines(tmp_path / "log")) == 2

    def test_standard_error_where_nobody_watches(self, capsys):
        with Watcher("north") as watcher:
            watcher.event("started")
        assert json.loads(capsys.readouterr().err)["event"] == "started"

    def test_lines_of_many_threads_stay_whole(self, tmp_path):
        def tell(number):
            for count in range(100):
                watcher.event("told", party=number, count=count)

        with Watcher("north", log=tmp_path / "log") as watcher:
            threads = [threading.Thread(target=tell, args=(number,)) for number in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        told = [
            (line["facts"]["party"], line["facts"]["count"]) for line in lines(tmp_path / "log")
        ]
        assert sorted(told) == [(party, count) for party in range(8) for count in range(100)]

    def test_a_flood_of_bad_messages_does_not_fill_the_disk(self, tmp_path):
        status = tmp_path / "north.status.json"
        with Watcher("north", log=tmp_path / "log", status=status) as watcher:
            for _ in range(5000):
                watcher.dropped("south", "not-finite", round=3)
            for number in range(3000):
                watcher.dropped(f"stranger {number}", "not-a-neighbour")
        counts = [
            line["facts"]["count"]
            for line in lines(tmp_path / "log")
            if line["facts"]["neighbour"] == "south"
        ]
        assert counts == [2**power for power in range(13)]
        assert len(lines(tmp_path / "log")) < 1100
        dropped = json.loads(status.read_text())["dropped"]
        assert dropped == {"not-finite": 5000, "not-a-neighbour": 3000}

    def test_a_flood_of_one_kind_hides_no_other(self, tmp_path):
        with Watcher("north", log=tmp_path / "log") as watcher:
            for reason in ("damaged", "wrong-size", "two-messages"):
                for _ in range(5000):
                    watcher.dropped("south", reason)
        told = {line["facts"]["reason"] for line in lines(tmp_path / "log")}
        assert told == {"damaged", "wrong-size", "two-messages"}

    def test_who_comes_and_goes_all_the_time_does_not_fill_the_disk(self, tmp_path):
        with Watcher("north", log=tmp_path / "log") as watcher:
            for _ in range(5000):
                watcher.event("neighbour-here", neighbour="south")
                watcher.event("neighbour-gone", level="warning", neighbour="south")
            watcher.event("neighbour-gone", level="warning", neighbour="west")
        told = lines(tmp_path / "log")
        assert 40 < len(told) < 100
        assert told[-1]["facts"]["neighbour"] == "west"

    def test_rounds_have_a_line_a_second(self, tmp_path):
        with Watcher("north", log=tmp_path / "log") as watcher:
            for done in range(1, 501):
                watcher.round(done, 500)
        told = [line["facts"]["round"] for line in lines(tmp_path / "log")]
        assert told[0] == 1
        assert told[-1] == 500
        assert len(told) < 10

    def test_a_full_disk_stops_no_node(self, capsys):
        with Watcher("north", log=Path("/dev/full")) as watcher:
            for _ in range(3):
                watcher.event("started")
        assert capsys.readouterr().err.count("No space left") == 1


anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.binary()
    | st.complex_numbers()
    | st.sampled_from(
        [
            np.arange(3.0),
            np.array(7),
            np.array(0.25),
            np.float64(0.1),
            np.int64(3),
            np.array(["a"]),
            np.datetime64("2020-01-01"),
            Path("/x"),
            object(),
            ValueError("row 17"),
            ConvergenceError("row 17"),
            memoryview(b"row"),
            bytearray(b"row"),
            io.StringIO("row"),
            {"a"},
            range(3),
        ]
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)


class TestAllowList:
    @settings(max_examples=60)
    @given(st.dictionaries(st.sampled_from(sorted(FIELDS)) | st.text(max_size=8), anything))
    def test_nothing_but_short_plain_facts_gets_in(self, facts):
        try:
            told = public_facts(facts)
        except ParameterError:
            return
        assert set(told) <= set(FIELDS)
        line = json.dumps(told, allow_nan=False)
        assert "\n" not in line
        assert "row 17" not in line
        for value in told.values():
            texts = value if isinstance(value, list) else [value] if isinstance(value, str) else []
            assert type(value) in (str, int, float, bool, list)
            assert all(type(text) is str for text in texts)
            assert all(len(text) <= LONGEST_TEXT and text.isprintable() for text in texts)

    @given(st.sampled_from(sorted(FIELDS)), st.integers(0, 3))
    def test_no_field_takes_an_array(self, field, dimensions):
        for kind in (float, int, bool):
            with pytest.raises(ParameterError, match=f"the fact '{field}' must be"):
                public_facts({field: np.zeros((1,) * dimensions, dtype=kind)})

    @pytest.mark.parametrize(
        "field",
        ["loss", "accuracy", "residual", "iterations", "gradient", "weights", "key"],
    )
    def test_fields_that_speak_of_rows_or_secrets_are_unknown(self, field):
        with pytest.raises(ParameterError, match="must be on the list"):
            public_facts({field: 1})

    @given(st.text(min_size=12))
    def test_a_refusal_does_not_show_the_value(self, secret):
        secret = f"§{secret}"  # in no name of a field, of which a refusal lists all
        for facts in ({"loss": secret}, {"round": secret}, {"error": secret}):
            with pytest.raises(ParameterError) as refusal:
                public_facts(facts)
            assert secret not in str(refusal.value)

    def test_errors_speak_only_if_they_are_about_messages_and_budgets(self):
        for kind in (ParameterError, ExchangeError, BudgetError):
            assert public_facts({"error": kind("why")}) == {"error": f"{kind.__name__}: why"}
        for error in (ConvergenceError("row 17"), DataError("row 17"), ZeroDivisionError("row 17")):
            assert public_facts({"error": error}) == {"error": type(error).__name__}

    def test_texts_of_others_are_cut_and_cleaned(self):
        told = public_facts({"theirs": "\x1b[2Jred\n" + "x" * 1000, "ours": "né"})
        assert told["theirs"].startswith("\\x1b[2Jred\\n")
        assert len(told["theirs"]) == LONGEST_TEXT
        assert told["ours"] == "né"

    def test_words_for_what_json_has_none(self):
        assert public_facts({"epsilon": np.inf})["epsilon"] == "infinite"
        with pytest.raises(ParameterError):
            public_facts({"epsilon": np.nan})

    def test_every_method_refuses_arrays(self, tmp_path):
        array = np.ones(1)
        with Watcher("north", log=tmp_path / "log") as watcher:
            for call in (
                lambda: watcher.event("told", rows=array),
                lambda: watcher.event("Not A Word"),
                lambda: watcher.event("told", level="loud"),
                lambda: watcher.round(array, 5),
                lambda: watcher.waiting("south", array),
                lambda: watcher.bytes(array, 0),
                lambda: watcher.budget(array, 1.0),
                lambda: watcher.dropped("south", "a reason with spaces"),
            ):
                with pytest.raises(ParameterError):
                    call()
        assert (tmp_path / "log").read_text() == ""


class TestMetrics:
    def test_the_real_endpoint(self):
        with Watcher("north", "run-1", metrics="127.0.0.1:0", log=Path(os.devnull)) as watcher:
            watcher.round(7, 50)
            watcher.bytes(900, 1800)
            watcher.bytes(100, 200)
            watcher.budget(0.25, 0.75)
            for seconds in (1.0, 2.5, 0.0, 0.5):
                watcher.waiting("south", seconds)
            watcher.dropped("south", "not-finite")
            watcher.dropped("south", "not-finite")
            watcher.event("key-left", level="error")
            watcher.event("serving")
            states = ("starting", "writing", "serving", "stopped", "finished")
            assert scrape(watcher) == {
                ("dpadmm_node_state", "running"): 1,
                **{("dpadmm_node_state", state): 0 for state in states},
                ("dpadmm_errors_total", "key-left"): 1,
                ("dpadmm_node_info", "north", "run-1"): 1,
                ("dpadmm_round",): 7,
                ("dpadmm_rounds",): 50,
                ("dpadmm_sent_bytes_total",): 1000,
                ("dpadmm_received_bytes_total",): 2000,
                ("dpadmm_epsilon_spent",): 0.25,
                ("dpadmm_epsilon_left",): 0.75,
                ("dpadmm_waiting_seconds", "south"): 0.5,
                ("dpadmm_waited_seconds_total", "south"): 3.0,
                ("dpadmm_dropped_messages_total", "not-finite"): 2,
            }
            with watcher.writing():
                assert scrape(watcher)["dpadmm_node_state", "writing"] == 1
            assert scrape(watcher)["dpadmm_node_state", "running"] == 1
            watcher.serving(1.0)
            assert scrape(watcher)["dpadmm_node_state", "serving"] == 1
            address = watcher.metrics_address
        with pytest.raises(OSError):
            urllib.request.urlopen(f"http://{address}/metrics", timeout=1)

    @pytest.mark.parametrize(
        "address", ["0.0.0.0:9464", "[::]:1", "10.0.0.1:9464", "example.org:1"]
    )
    def test_only_this_machine_unless_allowed(self, address):
        with pytest.raises(ParameterError, match="loopback"):
            Watcher("north", metrics=address)
        consent = {"anywhere": True, "consent": "it is"}
        assert serving_address("metrics", address, **consent)[1] in (1, 9464)

    @pytest.mark.parametrize(
        "address", ["", "9464", ":9464", "127.0.0.1:", "127.0.0.1:x", "a:99999", "::1:9464"]
    )
    def test_addresses_that_are_none(self, address):
        with pytest.raises(ParameterError, match="must be an address and a port"):
            serving_address("metrics", address, anywhere=False, consent="it is")

    @pytest.mark.parametrize("anywhere", [False, True])
    def test_a_name_that_leads_here_is_refused_unless_others_may_read(self, anywhere):
        given = {"metrics": "127.0.0.1:0", "metrics_anywhere": anywhere, "log": Path(os.devnull)}
        with Watcher("north", **given) as watcher:
            asked = urllib.request.Request(
                f"http://{watcher.metrics_address}/metrics", headers={"Host": "evil.example"}
            )
            if anywhere:
                with urllib.request.urlopen(asked, timeout=60) as reply:
                    kind = reply.headers["Content-Type"]
                    assert kind == "text/plain; version=0.0.4; charset=utf-8"
            else:
                with pytest.raises(urllib.error.HTTPError, match="421"):
                    urllib.request.urlopen(asked, timeout=60)

    def test_a_run_is_named_once_it_is_known(self):
        with Watcher("north", metrics="127.0.0.1:0", log=Path(os.devnull)) as watcher:
            assert not any("run" in name or "info" in name for name, *_ in scrape(watcher))
            watcher.join("run-2")
            assert scrape(watcher)[("dpadmm_node_info", "north", "run-2")] == 1

    def test_a_port_that_is_taken(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            with pytest.raises(ParameterError, match="Choose another port"):
                Watcher("north", metrics=f"127.0.0.1:{taken.getsockname()[1]}")


class TestStatusFile:
    def test_it_is_written_anew_and_whole(self, tmp_path):
        file = tmp_path / "north.status.json"
        with Watcher("north", log=tmp_path / "log", status=file) as watcher:
            first = json.loads(file.read_text())
            assert (first["state"], first["process"]) == ("starting", os.getpid())
            watcher.round(3, 50)
            watcher.waiting("south", 4.0)
            watcher.budget(0.25, float("inf"))
            deadline = time.monotonic() + 60
            while (now := json.loads(file.read_text()))["round"] != 3:
                assert time.monotonic() < deadline
                time.sleep(0.02)
            assert (now["state"], now["waiting"]) == ("running", {"south": 4.0})
            assert (now["epsilon_spent"], now["epsilon_left"]) == (0.25, "infinite")
            assert now["last_event"]["event"] == "round"
            assert now["updated"] > first["updated"]
        assert json.loads(file.read_text())["state"] == "stopped"
        assert sorted(path.name for path in tmp_path.iterdir()) == ["log", "north.status.json"]

    def test_work_after_the_last_round_is_a_state_of_its_own(self, tmp_path):
        file = tmp_path / "north.status.json"
        with Watcher("north", log=tmp_path / "log", status=file) as watcher:
            watcher.round(50, 50)
            with watcher.writing():
                watcher._write_status()
                now = json.loads(file.read_text())
                # Neighbours hear a word that every version knows.
                assert watcher.standing() == ("running", 50, [])
            watcher._write_status()
            after = json.loads(file.read_text())
        assert (now["state"], now["last_event"]["event"]) == ("writing", "writing-results")
        assert now["last_event"]["facts"] == {"round": 50, "rounds": 50}
        assert after["state"] == "running"

    def test_how_it_ended(self, tmp_path):
        file = tmp_path / "north.status.json"
        with Watcher("north", log=tmp_path / "log", status=file) as watcher:
            watcher.round(50, 50)
            watcher.serving(60.0)
            watcher.finished()
            watcher.close()
        assert json.loads(file.read_text())["state"] == "finished"

    @pytest.mark.parametrize("last", ["rounds", "serving", "early"])
    def test_it_has_not_finished_before_it_says_so(self, tmp_path, last):
        file = tmp_path / "north.status.json"
        with Watcher("north", log=tmp_path / "log", status=file) as watcher:
            watcher.round(7 if last == "early" else 50, 50)
            if last != "rounds":
                watcher.serving(60.0)
            if last == "early":
                watcher.finished()
        assert json.loads(file.read_text())["state"] == "stopped"

    def test_a_log_that_was_moved_away_is_made_anew(self, tmp_path):
        log = tmp_path / "log"
        with Watcher("north", log=log) as watcher:
            watcher.event("first")
            log.rename(tmp_path / "log.1")
            watcher.event("second")
            log.unlink()
            watcher.event("third")
            # Cut short in place, as copytruncate does it: the next line is at its beginning.
            os.truncate(log, 0)
            watcher.event("fourth")
        assert "first" in (tmp_path / "log.1").read_text()
        assert "second" not in (tmp_path / "log.1").read_text()
        (line,) = log.read_text().splitlines()
        assert json.loads(line)["event"] == "fourth"

    def test_a_log_that_cannot_be_made_anew_is_complained_of_once(self, tmp_path, capsys):
        folder = tmp_path / "logs"
        folder.mkdir()
        with Watcher("north", log=folder / "log", terminal=False) as watcher:
            watcher.event("first")
            folder.rename(tmp_path / "gone")
            watcher.event("second")
            watcher.event("third")
            (tmp_path / "gone").rename(folder)
            watcher.event("fourth")
        assert capsys.readouterr().err.count("the log cannot be made anew") == 1
        assert len((folder / "log").read_text().splitlines()) == 4

    def test_why_a_neighbour_is_missing_is_told_once_for_each_cause(self, tmp_path):
        file = tmp_path / "north.status.json"
        with Watcher("north", log=tmp_path / "log", status=file) as watcher:
            for reason in ("refused", "refused", "no-answer"):
                watcher.unreachable("south", "127.0.0.1:1", reason, "start it")
            watcher._write_status()
            found = json.loads(file.read_text())["unreachable"]["south"]
            assert (found["reason"], found["advice"]) == ("no-answer", "start it")
            watcher.reachable("south")
            watcher.reachable("south")
            watcher._write_status()
            assert json.loads(file.read_text())["unreachable"] == {}
            watcher.unreachable("south", "127.0.0.1:1", "refused", "start it")
        lines = [json.loads(line)["facts"] for line in (tmp_path / "log").read_text().splitlines()]
        assert [facts["reason"] for facts in lines] == ["refused", "no-answer", "refused"]

    def test_whatever_everybody_says_the_file_can_be_read(self, tmp_path):
        file = tmp_path / "north.status.json"
        with Watcher("north", log=tmp_path / "log", status=file) as watcher:
            for number in range(2000):
                watcher.gossip(f"{number:063}", "running", 2**32, ["x" * 63] * MOST_WAITED_FOR)
            for _ in range(100):
                watcher.event("told", error=ExchangeError("x" * 1000), advice="y" * 1000)
        content = read_status(file).content
        assert len(content["others"]) == 300
        assert len(content["events"]) == MOST_EVENTS

    def test_a_place_that_cannot_be_written(self, tmp_path):
        with pytest.raises(DataError, match="status must be in a folder that exists"):
            Watcher("north", status=tmp_path / "nowhere" / "a.status.json")
        with pytest.raises(DataError, match="log must be"):
            Watcher("north", log=tmp_path)


def test_the_terminal_shows_progress_and_warnings():
    script = (
        "from dpadmm.federation.watcher import Watcher\n"
        "with Watcher('north') as watcher:\n"
        "    watcher.round(3, 7)\n"
        "    watcher.waiting('south', 12.0)\n"
        "    watcher.event('started', round=0)\n"
        "    watcher.event('neighbour-lost', level='warning', neighbour='s\\x1b[1mouth')\n"
        "    watcher.event('failed', level='error', error=ValueError('said at the end'))\n"
        "    import time; time.sleep(0.3)\n"
    )
    reader, writer = pty.openpty()
    environment = os.environ | {
        "PYTHONPATH": str(Path(__file__).parents[2] / "src"),
        "TERM": "xterm",
        "COLUMNS": "120",
    }
    with subprocess.Popen(
        [sys.executable, "-c", script], stderr=writer, env=environment
    ) as process:
        assert process.wait(60) == 0
    os.close(writer)
    shown = os.read(reader, 100_000).decode()
    os.close(reader)
    assert "3/7" in shown
    assert "waiting for south 12 s" in shown
    assert "neighbour-lost" in shown
    assert "started" not in shown
    assert "said at the end" not in shown
    assert "s\x1b[1mouth" not in shown
