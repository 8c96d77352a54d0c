"""A service that stays: its queue, its policy, and what is left when it is killed."""

import contextlib
import json
import os
import re
import signal
import time
import urllib.error
import urllib.request
from importlib.resources import files
from pathlib import Path

import jsonschema
import pytest
from typer.testing import CliRunner

pytest.importorskip("zenoh", reason="the extra 'federation' is not installed")

from tests.helpers.federation_net import Federation

from dpadmm.cli import app
from dpadmm.data.schema import load_schema
from dpadmm.errors import ParameterError
from dpadmm.federation.config import NodePolicy
from dpadmm.federation.queue import (
    QueuedRun,
    RunState,
    ServicePolicy,
    find_run,
    load_service_config,
    locked,
    read_runs,
    submit,
)
from dpadmm.federation.service import Service, next_run
from dpadmm.federation.watcher import Watcher
from dpadmm.ledger.sqlite import SQLiteLedger
from dpadmm.run.model import load_model

NAMES = ("north", "south")


@contextlib.contextmanager
def services(folder, fork_server, **run):
    """Two organisations, each with a node.toml and a service of its own."""
    federation = Federation(
        folder, fork_server, NAMES, run={"topology": [["north", "south"]], **run}
    )
    for name in NAMES:
        federation.make_ledger(name, epsilon=5.0)
        federation.write(name)
        write_service(federation, name)
    try:
        yield federation
    finally:
        federation.close()


def write_service(federation, name, policy="", **more):
    told = {"again_after": 1, "wait_for": 600, **more}
    lines = [f'node = "{name}.toml"', f'folder = "{name}-service"']
    lines += [f"{key} = {value}" for key, value in told.items()]
    path = federation.folder / f"{name}.service.toml"
    path.write_text("\n".join([*lines, "[policy]", policy]) + "\n")
    return path


def config_of(federation, name):
    return load_service_config(federation.folder / f"{name}.service.toml")


def agreed_file(federation, run_id, **changes):
    path = federation.folder / f"{run_id}.toml"
    path.write_text(federation.agreed_text(run_id=run_id, **changes))
    return path


def serve(federation, name, *more):
    words = ["serve", federation.folder / f"{name}.service.toml", *more]
    server = federation._server
    federation.processes[name] = server.start(words, federation.folder / f"{name}.serve.out")


def said(federation, name):
    return (federation.folder / f"{name}.serve.out").read_text()


def wait_until(ready, seconds=90.0):
    deadline = time.monotonic() + seconds
    while not (found := ready()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


def state(federation, name, word):
    return find_run(config_of(federation, name), word).state


def charged(federation, name):
    with SQLiteLedger(federation.folder / f"{name}.ledger", read_only=True) as ledger:
        runs = ledger.account.runs.items()
        return {run_id: len(run.events) for run_id, run in runs if run.events}


# The queue --------------------------------------------------------------------------------------


@pytest.fixture
def north(fork_server, tmp_path):
    with services(tmp_path / "f", fork_server) as federation:
        yield federation


def test_a_submitted_run_waits_whole_in_a_private_folder(north):
    config = config_of(north, "north")
    run = submit(config, agreed_file(north, "spring"))
    assert run.name == "0001-spring"
    assert config.folder.stat().st_mode & 0o777 == 0o700
    assert [each.state.run_id for each in read_runs(config)] == ["spring"]
    assert sorted(path.name for path in run.folder.iterdir()) == ["agreed.toml", "run.json"]
    # A copy: what is changed later does not count.
    agreed_file(north, "spring", rounds=11)
    assert "rounds = 10" in (run.folder / "agreed.toml").read_text()
    with pytest.raises(ParameterError, match="must be in the queue once; spring is there as 0001"):
        submit(config, run.folder / "agreed.toml")
    assert submit(config, run.folder / "agreed.toml", rehearsal=True).name == "0002-spring"


def test_a_folder_that_is_no_run_is_passed_over_and_a_run_without_its_record_is_refused(north):
    config = config_of(north, "north")
    run = submit(config, agreed_file(north, "spring"))
    for name in (".Trash-1000", "lost+found", "copy of 0001-spring"):
        (config.runs / name).mkdir()
    (config.runs / "notes.txt").write_text("none")
    assert [each.name for each in read_runs(config)] == [run.name]
    assert find_run(config, "1").name == run.name
    assert submit(config, agreed_file(north, "autumn")).name == "0002-autumn"
    (run.folder / "run.json").unlink()
    with pytest.raises(ParameterError, match="0001-spring has none: move the folder away"):
        read_runs(config)


@pytest.mark.parametrize(
    ("policy", "changes", "words"),
    [
        ("epsilon = 0.5", {}, "epsilon must be at most what .policy. allows, 0.5; the agreed run"),
        ("delta = 1e-9", {}, "delta must be at most what .policy. allows, 1e-9"),
        ('algorithms = ["dp-gd"]', {}, "the algorithm of a run must be .* dp-gd; spring has"),
        ('noise = ["shared"]', {}, "the noise of a run must be .* shared; spring has 'own'"),
        ("least_parties = 3", {}, "the parties of a run must be .* at least 3; spring has 2"),
        ('parties = ["west"]', {}, "the parties of a run must be .* west; spring has south"),
        ("parties = []", {}, "the parties of a run must be .* none; spring has south"),
        ("noise = []", {}, "the noise of a run must be .* none; spring has"),
        ("algorithms = []", {}, "the algorithm of a run must be"),
        # The node's own policy comes first, whatever the service's says.
        ("epsilon = 4.0", {"epsilon": 2.0}, "epsilon must be at most what .policy. allows"),
    ],
)
def test_a_run_that_a_policy_forbids_leaves_nothing(north, policy, changes, words):
    write_service(north, "north", policy)
    config = config_of(north, "north")
    with pytest.raises(ParameterError, match=words):
        submit(config, agreed_file(north, "spring", **changes))
    assert read_runs(config) == []
    assert {path.name for path in config.folder.iterdir()} <= {"runs"}
    assert charged(north, "north") == {}


def test_a_service_narrows_what_its_node_allows_and_never_widens_it():
    """The node then checks by it what a run asks for, and what is proven of it."""
    node = NodePolicy(epsilon=1.0, delta=1e-5)
    narrowed = ServicePolicy(epsilon=0.5).narrowed(node)
    assert (narrowed.epsilon, narrowed.delta) == (0.5, 1e-5)
    assert ServicePolicy(epsilon=2.0, delta=1e-3).narrowed(node) == node
    # Where the node's owner allows no budget, a service allows none.
    assert ServicePolicy(epsilon=2.0).narrowed(NodePolicy()).epsilon is None


def test_a_schema_must_be_allowed(north):
    other = north.folder / "other.toml"
    other.write_text(
        (north.folder / "schema.toml").read_text().replace("upper = 100", "upper = 99")
    )
    agreed = agreed_file(north, "spring")
    agreed.write_text(agreed.read_text().partition("\n")[2])
    with pytest.raises(ParameterError, match="the schema of a run must be"):
        submit(config_of(north, "north"), agreed, other)
    write_service(north, "north", f'schemas = ["{load_schema(other).sha256}"]')
    run = submit(config_of(north, "north"), agreed, other)
    assert (run.folder / "schema.toml").read_text() == other.read_text()


def test_a_folder_that_others_may_enter_is_refused(north):
    config = config_of(north, "north")
    config.folder.mkdir(mode=0o755)
    with pytest.raises(ParameterError, match="nobody else may enter it"):
        submit(config, agreed_file(north, "spring"))
    with pytest.raises(ParameterError, match="nobody else may enter it"):
        Service(config, lambda run: None)


def test_a_folder_has_one_service(north):
    config = config_of(north, "north")
    with Service(config, lambda run: None), pytest.raises(ParameterError, match="one service"):
        Service(config, lambda run: None)


def test_a_missing_token_is_refused_at_the_start(north):
    write_service(north, "north")
    path = north.folder / "north.service.toml"
    path.write_text(path.read_text() + '[watch]\nmetrics = "127.0.0.1:0"\ntoken_file = "token"\n')
    serve(north, "north", "--json")
    assert north.wait("north") == 2
    assert "token_file must be a file with a token that can be read" in said(north, "north")
    assert not (north.folder / "north-service").exists()


def test_a_node_without_its_token_ends_before_it_looks_at_rows(north):
    path = north.folder / "north.toml"
    path.write_text(path.read_text().replace("[watch]", '[watch]\ntoken_file = "token"'))
    for more in ([], ["--check"], ["--rehearse"]):
        north.start("north", *more)
        assert north.wait("north") == 2
    assert north.output("north").count("token_file must be a file with a token") == 3
    for kind in ("log", "messages", "preflight"):
        assert not (north.folder / f"north.{kind}").exists()
    assert charged(north, "north") == {}


def test_the_metrics_of_a_service_tell_its_queue_to_who_has_the_token(north):
    path = write_service(north, "north", "epsilon = 0.5")
    path.write_text(path.read_text() + '[watch]\nmetrics = "127.0.0.1:0"\ntoken_file = "token"\n')
    token = north.folder / "token"
    token.write_text("0123456789abcdef\n")
    token.chmod(0o600)
    config = config_of(north, "north")
    loose = config.model_copy(update={"policy": ServicePolicy()})
    submit(loose, agreed_file(north, "spring"))

    def asked(service, **headers):
        place = f"http://{service.metrics_address}/metrics"
        with urllib.request.urlopen(urllib.request.Request(place, headers=headers)) as answer:
            return answer.read().decode()

    shown = {"Authorization": "Bearer 0123456789abcdef"}
    with Service(config, lambda run: None) as service:
        service._look()
        with pytest.raises(urllib.error.HTTPError, match="401"):
            asked(service)
        text = asked(service, **shown)
        assert 'dpadmm_service_runs{state="queued"} 1.0' in text
        assert 'dpadmm_service_runs{state="refused"} 0.0' in text
        for name in ("north", "ca"):
            days = re.search(rf'days_left{{certificate="{name}"}} (\S+)', text)[1]
            assert 300 < float(days) < 1200
        service.run(drain=True)
        service._look()
        text = asked(service, **shown)
    assert 'dpadmm_service_runs{state="queued"} 0.0' in text
    last = 'dpadmm_service_last_run_info{cause="ParameterError",run="spring",state="refused"} 1.0'
    assert last in text


def test_which_run_is_next():
    def run(name, **more):
        told = {"run_id": name[5:], "run_sha256": "0" * 64, "submitted": "2026-01-01"}
        return QueuedRun(Path(name), RunState(**told | more))

    def chosen(*waiting, by_name=True):
        return next_run(waiting, "2026-02-01", by_name)

    first, second = run("0001-b"), run("0002-a")
    assert chosen(first, second) is first
    assert chosen(run("0001-b", tries=1), second) is second
    # All were tried: a coin decides between the name, which is the same everywhere, and turns.
    tried = [run("0001-b", tries=1), run("0002-a", tries=2)]
    assert chosen(*tried) is tried[1]
    assert chosen(*tried, by_name=False) is tried[0]
    # Otherwise two services that take turns could miss each other for ever.
    assert chosen(tried[0], run("0002-a", tries=1, not_before="2026-02-02")) is None
    begun = run("0003-c", state="running", tries=5)
    assert chosen(first, begun) is begun
    # Nothing goes before it while it is put back.
    assert chosen(first, run("0003-c", state="running", not_before="2026-02-02")) is None
    assert chosen() is None


def test_the_commands_of_the_queue(north):
    schema = json.loads(files("dpadmm.cli").joinpath("output.schema.json").read_text())
    validator = jsonschema.Draft202012Validator(schema)
    config = ("--config", north.folder / "north.service.toml")

    def call(*words, code=0):
        result = CliRunner().invoke(app, ["run", *map(str, words)])
        assert result.exit_code == code, result.output
        if "--json" not in words:
            return " ".join(result.output.split())
        told = json.loads(result.stdout)
        validator.validate(told)
        if code:
            return told["error"]
        properties = schema["$defs"]["queue" if words[0] == "list" else "queued_run"]["properties"]
        assert set(told["result"]) <= set(properties)
        return told["result"]

    assert call("list", *config, "--json") == {"serving": False, "runs": []}
    spring, autumn = agreed_file(north, "spring"), agreed_file(north, "autumn", epsilon=7.0)
    told = call("submit", spring, *config, "--json")
    assert (told["name"], told["state"], told["serving"]) == ("0001-spring", "queued", False)
    assert "epsilon must be at most what [policy] allows" in call(
        "submit", autumn, *config, "--json", code=2
    )
    assert "is in the queue" in call("submit", spring, *config, "--rehearse")
    assert "0002-spring (rehearsal)" in call("list", *config)
    shown = call("show", "0002-spring", *config, "--json")
    assert shown["rehearsal"]
    assert shown["nodes"] == []
    assert "run must be one of this service; got 'spring'" in call(
        "show", "spring", *config, code=2
    )
    assert call("cancel", "2", *config, "--json")["state"] == "cancelled"
    assert "run_id: spring" in call("show", "1", *config)
    # Whether it is cancelled already or about to be, the service has the last word.
    assert [run["state"] for run in call("list", *config, "--json")["runs"]] == [
        "queued",
        "cancelled",
    ]


# Services as processes --------------------------------------------------------------------------


def test_two_services_train_what_both_submitted_in_any_order(fork_server, tmp_path):
    with services(tmp_path / "f", fork_server) as federation:
        order = {"north": ("spring", "autumn"), "south": ("autumn", "spring")}
        for name, run_ids in order.items():
            for run_id in run_ids:
                submit(config_of(federation, name), agreed_file(federation, run_id))
            serve(federation, name, "--drain", "--json")
        for name in NAMES:
            assert federation.wait(name) == 0, said(federation, name)
        for name in NAMES:
            assert charged(federation, name) == {"spring": 10, "autumn": 10}
        fingerprints = {}
        for run_id in ("spring", "autumn"):
            for name in NAMES:
                run = find_run(config_of(federation, name), run_id)
                assert run.state.state == "finished"
                model = load_model(run.folder / f"{name}.model")
                fingerprints.setdefault(run_id, set()).add(model.fingerprint)
                assert (run.folder / f"{name}.statement.txt").exists()
        assert [len(found) for found in fingerprints.values()] == [1, 1]
        assert len(set.union(*fingerprints.values())) == 2
        text = said(federation, "north")
        told = json.loads(text[text.index("{\n") :])
        assert [run["state"] for run in told["result"]["runs"]] == ["finished"] * 2


@pytest.mark.parametrize("node_too", [False, True])
def test_a_service_that_is_killed_goes_on_and_nothing_is_spent_twice(
    fork_server, tmp_path, node_too
):
    with services(tmp_path / "f", fork_server, rounds=400) as federation:
        for name in NAMES:
            submit(config_of(federation, name), agreed_file(federation, "spring"))
            serve(federation, name, "--drain")
        config = config_of(federation, "north")
        log = config.runs / "0001-spring" / "north.log"
        wait_until(lambda: log.exists() and '"event": "round"' in log.read_text())
        federation.kill("north")
        process = state(federation, "north", "spring").process
        assert state(federation, "north", "spring").state == "running"
        if node_too:
            os.kill(process, signal.SIGKILL)
        else:
            # Its node holds the lock of the run, and works on.
            with pytest.raises(BlockingIOError), locked(log.with_name("lock"), wait=False):
                pass
        serve(federation, "north", "--drain")
        for name in NAMES:
            assert federation.wait(name) == 0, said(federation, name)
        assert state(federation, "north", "spring").state == "finished"
        assert state(federation, "north", "spring").tries == 1 + node_too
        assert charged(federation, "north") == {"spring": 400} == charged(federation, "south")


def test_a_policy_that_was_tightened_is_asked_again_at_the_start(north):
    config = config_of(north, "north")
    submit(config, agreed_file(north, "spring"))
    write_service(north, "north", "epsilon = 0.5")
    serve(north, "north", "--drain", "--json")
    assert north.wait("north") == 3
    found = state(north, "north", "spring")
    assert (found.state, found.tries, found.cause) == ("refused", 0, "ParameterError")
    assert "epsilon must be at most what [policy] allows, 0.5" in found.reason
    assert charged(north, "north") == {}
    assert not (north.folder / "north.messages").exists()


def test_a_run_is_cancelled_and_a_service_stopped_in_order(north):
    config = config_of(north, "north")
    for run_id in ("spring", "autumn", "winter"):
        submit(config, agreed_file(north, run_id))
    serve(north, "north")
    log = config.runs / "0001-spring" / "north.log"
    wait_until(lambda: log.exists() and "agreeing" in log.read_text())
    command = ["run", "cancel", "--config", north.folder / "north.service.toml"]
    for word in ("2", "spring"):
        number = north._server.start([*command, word], north.folder / "cancel.out")
        assert north._server.wait(number) == 0, (north.folder / "cancel.out").read_text()
    wait_until(lambda: state(north, "north", "spring").state == "cancelled")
    wait_until(lambda: state(north, "north", "autumn").state == "cancelled")
    wait_until(lambda: state(north, "north", "winter").process)
    os.kill(north.processes["north"], signal.SIGTERM)
    assert north.wait("north") == 143
    left = state(north, "north", "winter")
    assert left.state == "running"
    # Its node has ended, and with it the lock that it had.
    with locked(config.runs / "0003-winter" / "lock", wait=False):
        pass
    assert charged(north, "north") == {}


def test_a_run_that_waits_for_others_makes_room_for_further_ones(fork_server, tmp_path):
    with services(tmp_path / "f", fork_server) as federation:
        # The other one waits for as long as it takes: what the two draw decides nothing here.
        write_service(federation, "north", wait_for=5)
        submit(config_of(federation, "north"), agreed_file(federation, "alone"))
        for name in NAMES:
            submit(config_of(federation, name), agreed_file(federation, "spring"))
        serve(federation, "north")
        serve(federation, "south", "--drain")
        assert federation.wait("south") == 0, said(federation, "south")
        wait_until(lambda: state(federation, "north", "spring").state == "finished", 300.0)
        assert state(federation, "north", "alone").tries >= 1
        assert charged(federation, "north") == {"spring": 10}


def test_a_run_whose_node_crashes_is_tried_again(fork_server, tmp_path):
    with services(tmp_path / "f", fork_server, rounds=400) as federation:
        for name in NAMES:
            submit(config_of(federation, name), agreed_file(federation, "spring"))
            serve(federation, name, "--drain")
        config = config_of(federation, "north")
        run = wait_until(
            lambda: state(federation, "north", "spring").process and find_run(config, "1")
        )
        log = run.folder / "north.log"
        wait_until(lambda: log.exists() and '"event": "round"' in log.read_text())
        wait_until(lambda: charged(federation, "north").get("spring"))
        os.kill(state(federation, "north", "spring").process, signal.SIGKILL)
        wait_until(lambda: state(federation, "north", "spring").crashes == 1)
        put_back = state(federation, "north", "spring")
        assert (put_back.state, put_back.process, put_back.exit_code) == ("running", None, -9)
        for name in NAMES:
            assert federation.wait(name) == 0, said(federation, name)
            assert charged(federation, name) == {"spring": 400}
        assert state(federation, "north", "spring").tries == 2


def test_what_a_node_left_is_counted_once(north):
    """Whether it ended is asked of a node that a killed service had started, and of no other."""
    config = config_of(north, "north")
    run = submit(config, agreed_file(north, "spring"))
    left = run.folder / "north.status.json"
    with Watcher("north", status=left) as watcher:
        watcher.event("failed", level="error", error=ParameterError("of an earlier try"))
    with Service(config, lambda run: None) as service:
        assert service._left_an_end(run)
        assert find_run(config, "1").state.state == "failed"
        assert find_run(config, "1").state.reason == "of an earlier try"
    # Put back, and its status is that of the try before.
    run = run.changed(state="running", process=None)
    serve(north, "north")
    wait_until(lambda: state(north, "north", "spring").process)
    assert state(north, "north", "spring").state == "running"


def test_a_rehearsal_goes_through_the_queue(fork_server, tmp_path):
    with services(tmp_path / "f", fork_server) as federation:
        for name in NAMES:
            submit(config_of(federation, name), agreed_file(federation, "spring"), rehearsal=True)
            serve(federation, name, "--drain")
        for name in NAMES:
            assert federation.wait(name) == 0, said(federation, name)
            run = find_run(config_of(federation, name), "spring")
            assert run.state.state == "finished"
            assert not list(run.folder.glob("*.model"))
            assert charged(federation, name) == {}
