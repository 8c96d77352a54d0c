"""The files for operators are what they say, and the recipes run as printed."""

import json
import os
import re
import shutil
import subprocess
import urllib.request
from datetime import UTC, datetime
from pathlib import Path

import pytest

from dpadmm import load_model
from dpadmm.cli.output import TRY_LATER
from dpadmm.federation.local import free_ports
from dpadmm.ledger.sqlite import SQLiteLedger
from tests.helpers.printed_commands import run_page

DOCS = Path(__file__).parents[1] / "docs"
FOLDER = DOCS / "operations"
UNIT = FOLDER / "dpadmm-node@.service"
# Of plan-to-proof: what comes before its nodes are checked and started, but for the plan.
COMMANDS_BEFORE_NODES = 7


def test_the_recipes_run_as_printed(fork_server, tmp_path):
    pytest.importorskip("zenoh", reason="the extra 'federation' is not installed")
    ports = dict(zip((7447, 7448, 7449), free_ports(3), strict=True))
    most = COMMANDS_BEFORE_NODES
    first = DOCS / "plan-to-proof.md"
    place = fork_server.commands()
    assert run_page(first, tmp_path, place, most=most, ports=ports, without="dpadmm plan") == most
    assert run_page(FOLDER / "index.md", tmp_path, place, ports=ports) >= 25
    models = [load_model(tmp_path / f"{name}.model") for name in ("north-2", "south-2", "west")]
    for model in models[1:]:
        assert abs(model.classifier.coef - models[0].classifier.coef).max() < 1e-12
    with SQLiteLedger(tmp_path / "north.ledger", read_only=True) as ledger:
        rows = json.dumps(list(ledger.export()))
    assert "readmission-1" in rows
    assert "readmission-2" in rows


# -- the service ----------------------------------------------------------------------------------


def analyze(*words):
    """What systemd says of the unit, with a program that is there in the place of dpadmm."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    return subprocess.run(["systemd-analyze", *words], capture_output=True, text=True, check=False)


@pytest.fixture
def unit(tmp_path):
    place = tmp_path / UNIT.name
    place.write_text(UNIT.read_text().replace("/opt/dpadmm/bin/dpadmm", shutil.which("true")))
    return place


def test_systemd_takes_the_unit_without_a_word(unit):
    done = analyze("verify", str(unit))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_systemd_would_say_what_is_wrong(unit):
    unit.write_text(unit.read_text().replace("ProtectHome=", "ProtectHme="))
    assert "ProtectHme" in analyze("verify", str(unit)).stderr


def test_the_unit_is_hardened(unit):
    done = analyze("security", "--offline=true", "--threshold=20", str(unit))
    if "unrecognized option" in done.stderr:
        pytest.skip("this systemd-analyze cannot judge a file")
    assert done.returncode == 0, done.stdout
    # The threshold is in tenths: without the protection of files it is exceeded.
    words = unit.read_text().replace("CapabilityBoundingSet=\n", "").replace("User=dpadmm\n", "")
    unit.write_text(words)
    assert analyze("security", "--offline=true", "--threshold=20", str(unit)).returncode != 0


def test_a_refusal_is_not_repeated_and_a_stop_is_no_failure():
    text = UNIT.read_text()
    assert re.search(r"^RestartPreventExitStatus=2 4 5$", text, re.MULTILINE)
    # Where what is in the way goes away by itself, it is.
    assert re.search(rf"^RestartForceExitStatus={TRY_LATER}$", text, re.MULTILINE)
    assert re.search(r"^SuccessExitStatus=130 143$", text, re.MULTILINE)


def calls_of(group):
    """The system calls of a group, and of the groups in it."""
    lines = analyze("syscall-filter", group).stdout.splitlines()[1:]
    names = [line.partition("#")[0].strip() for line in lines]
    return {
        call
        for name in names
        if name
        for call in (calls_of(name) if name.startswith("@") else {name})
    }


@pytest.mark.slow
def test_a_node_stays_within_what_the_unit_allows(tmp_path):
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    ports = dict(zip((7447, 7448), free_ports(2), strict=True))
    most, page = COMMANDS_BEFORE_NODES, DOCS / "plan-to-proof.md"
    run_page(page, tmp_path, most=most, ports=ports, without="dpadmm plan")
    traced = tmp_path / "traced.md"
    traced.write_text(
        "```console\n$ dpadmm node --config south.toml & PYTHONDONTWRITEBYTECODE=1 "
        "strace -f -qq -o trace dpadmm node --config north.toml; wait\n```\n"
    )
    assert run_page(traced, tmp_path) == 1
    assert (tmp_path / "north.model").exists()
    trace = (tmp_path / "trace").read_text(errors="replace")
    unit = UNIT.read_text()
    allowed = set()
    for words in re.findall(r"^SystemCallFilter=(.+)$", unit, re.MULTILINE):
        calls = {call for group in words.lstrip("~").split() for call in calls_of(group) or {group}}
        allowed = allowed - calls if words.startswith("~") else allowed | calls
    made = set(re.findall(r"^\d+ +(?:<\.\.\. )?(\w+)[( ]", trace, re.MULTILINE))
    # SQLite gives files to their owner where it runs as root, which the unit's node does not.
    assert made - allowed - calls_of("@default") <= {"fchown"}
    families = set(re.findall(r"socket\((AF_\w+)", trace))
    assert families <= set(
        re.search(r"^RestrictAddressFamilies=(.+)$", unit, re.MULTILINE)[1].split()
    )
    opened = re.findall(
        r'openat\(AT_FDCWD, "([^"]+)", [^)]*O_(?:WRONLY|RDWR|CREAT)[^)]*\) = \d', trace
    )
    elsewhere = [place for place in opened if not (tmp_path / place).is_relative_to(tmp_path)]
    assert set(elsewhere) <= {"/dev/null", "/dev/tty"}


# -- the container --------------------------------------------------------------------------------


def test_the_container_runs_a_node_as_an_ordinary_user():
    lines = (FOLDER / "Containerfile").read_text().splitlines()
    last_stage = lines[max(n for n, line in enumerate(lines) if line.startswith("FROM ")) :]
    users = [line.split()[1] for line in last_stage if line.startswith("USER ")]
    assert users == ["10001:10001"]
    # What comes after the user is set is done by that user.
    after = last_stage[last_stage.index("USER 10001:10001") + 1 :]
    assert not [line for line in after if line.startswith(("RUN ", "COPY ", "ADD "))]
    assert 'CMD ["node", "--config", "node.toml"]' in after
    # The node's folder aside, everything that is written goes to /tmp.
    told = re.findall(r"(HOME|NUMBA_CACHE_DIR)=(\S+)", "\n".join(last_stage))
    assert {name for name, _ in told} == {"HOME", "NUMBA_CACHE_DIR"}
    assert all(place.startswith("/tmp") for _, place in told)
    assert "--read-only --tmpfs /tmp --cap-drop all" in "\n".join(lines)


def test_the_clean_container_removes_no_home_that_it_did_not_make(tmp_path):
    """Such as that of the whole machine, where CLEAN is /."""
    kept = tmp_path / "home" / "somebody"
    kept.mkdir(parents=True)
    ended = subprocess.run(
        [DOCS.parent / "tools" / "clean_container.sh", "true"],
        env=os.environ | {"CLEAN": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 2
    assert "CLEAN must be a new folder" in ended.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["home"]
    assert kept.is_dir()


# Codes of their own for what cannot be set up, and for a file system that is not read-only.
IN_A_CONTAINER = """
mount --bind . . && mount -o remount,bind,ro / && mount -o remount,bind,rw "$PWD" || exit 77
cd "$PWD"
touch "$SOURCE/written" 2> /dev/null && exit 78
exec setpriv --bounding-set=-all --inh-caps=-all --no-new-privs dpadmm node --config north.toml
"""


@pytest.mark.slow
def test_a_node_needs_neither_capabilities_nor_files_outside_its_folder(tmp_path):
    words = ["unshare", "--mount", "--propagation", "private", "true"]
    if not shutil.which("setpriv") or subprocess.run(words, check=False).returncode:
        pytest.skip("this user cannot make a file system read-only for one process")
    ports = dict(zip((7447, 7448), free_ports(2), strict=True))
    most, page = COMMANDS_BEFORE_NODES, DOCS / "plan-to-proof.md"
    run_page(page, tmp_path, most=most, ports=ports, without="dpadmm plan")
    (tmp_path / "contained.sh").write_text(IN_A_CONTAINER)
    contained = tmp_path / "contained.md"
    contained.write_text(
        "```console\n$ dpadmm node --config south.toml & "
        f"SOURCE={DOCS.parent} HOME=$PWD TMPDIR=$PWD PYTHONDONTWRITEBYTECODE=1 "
        "unshare --mount --propagation private sh contained.sh; ended=$?; wait; exit $ended\n"
        "```\n"
    )
    assert run_page(contained, tmp_path) == 1
    assert (tmp_path / "north.model").exists()


@pytest.mark.slow
def test_the_image_runs_a_node_as_printed(tmp_path):
    image = os.environ.get("DPADMM_NODE_IMAGE")
    if not image or not shutil.which("podman"):
        pytest.skip("podman is not installed, or DPADMM_NODE_IMAGE names no image that was built")
    ports = dict(zip((7447, 7448), free_ports(2), strict=True))
    most, page = COMMANDS_BEFORE_NODES, DOCS / "plan-to-proof.md"
    run_page(page, tmp_path, most=most, ports=ports, without="dpadmm plan")
    shutil.copytree(tmp_path, tmp_path / "north")
    (tmp_path / "north" / "north.toml").rename(tmp_path / "north" / "node.toml")
    lines = (FOLDER / "Containerfile").read_text().replace("#", "")
    printed = re.search(r"podman run .*?dpadmm-node\n", lines.replace("\\\n", ""), re.DOTALL)[0]
    printed = printed.replace("7447:7447", f"{ports[7447]}:{ports[7447]}")
    printed = printed.replace("dpadmm-node", image)
    if os.geteuid() == 0:
        # Root has every user at hand: the folder is given to the node's.
        printed = re.sub(r"--userns \S+", "", printed)
        for place in [tmp_path / "north", *(tmp_path / "north").rglob("*")]:
            os.chown(place, 10001, 10001)
    contained = tmp_path / "contained.md"
    contained.write_text(
        "```console\n"
        f"$ {printed.split('run', 1)[0]} run --rm --entrypoint sh {image} -c 'id -u'\n10001\n"
        "$ dpadmm node --config south.toml & "
        f"{' '.join(printed.split())}; ended=$?; wait; exit $ended\n```\n"
    )
    assert run_page(contained, tmp_path) == 2
    made = tmp_path / "north" / "north.model"
    assert (
        load_model(made).classifier.coef == load_model(tmp_path / "south.model").classifier.coef
    ).all()
    if os.geteuid() == 0:
        assert made.stat().st_uid == 10001


# -- alerts ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def rules():
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    groups = yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


@pytest.fixture(scope="module")
def endpoint():
    """A series of each metric of a node and a service, as Prometheus keeps it, with its labels."""
    pytest.importorskip("prometheus_client", reason="the extra 'federation' is not installed")
    from dpadmm.federation.page_server import Metrics, ServiceMetrics

    text = ""
    node, service = Metrics("127.0.0.1:0", "north", "spring"), ServiceMetrics("127.0.0.1:0")
    with node, service:
        for metric in (node.waiting, node.waited, node.unreachable):
            metric.labels("south")
        node.dropped.labels("another-name")
        node.errors.labels("failed")
        node.certificate("north", datetime.now(UTC))
        service.tell({"running": 1, "queued": 1}, "spring", "failed", "LedgerError")
        for served in (node, service):
            with urllib.request.urlopen(f"http://{served.address}/metrics", timeout=10) as answer:
                text += answer.read().decode()
    return {"up": {}} | {
        name: dict(re.findall(r'(\w+)="(.*?)"', labels))
        for name, labels in re.findall(r"^(dpadmm_\w+)(?:\{(.*?)\})? ", text, re.MULTILINE)
    }


def test_every_alert_is_about_a_metric_that_a_node_has(rules, endpoint):
    assert len({rule["alert"] for rule in rules}) == len(rules) >= 5
    for rule in rules:
        named = set(re.findall(r"\bdpadmm_\w+", rule["expr"]))
        assert named <= set(endpoint)
        assert named or "up{" in rule["expr"]
        known = set().union(*(endpoint[name] for name in named))
        shown = " ".join(rule["annotations"].values())
        assert set(re.findall(r"\$labels\.(\w+)", shown)) <= known
        assert {"summary", "action"} <= set(rule["annotations"])


def promtool(*words):
    """What Prometheus' own tool says."""
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not installed: the rules were only parsed")
    return subprocess.run(
        ["promtool", *map(str, words)], capture_output=True, text=True, check=False
    )


def test_prometheus_takes_the_rules():
    done = promtool("check", "rules", FOLDER / "alerts.yml")
    assert done.returncode == 0, done.stderr


# An alert; what its metrics are, minute after minute ("_" is: no such series), as promtool writes
# it; and the minutes at which it is on, of those that are looked at.
COURSES = [
    ("DpadmmNodeDown", {"up": "1x4 0x20"}, {4: False, 6: False, 8: True}),
    ("DpadmmNodeDown", {"up": "1x4 0 1x20"}, {5: False, 8: False}),
    ("DpadmmNeighbourUnreachable", {"dpadmm_unreachable": "0x4 1x20"}, {5: False, 8: True}),
    ("DpadmmNeighbourUnreachable", {"dpadmm_unreachable": "1x4 0x20"}, {4: True, 5: False}),
    ("DpadmmWaitsLong", {"dpadmm_waiting_seconds": "0+60x9 0x9"}, {5: False, 6: True, 11: False}),
    # The first message of a kind, with which its series begins; then none for ten minutes.
    (
        "DpadmmMessagesRefused",
        {"dpadmm_dropped_messages_total": "_x5 1x40"},
        {4: False, 5: True, 12: True, 16: False},
    ),
    # A later one; and one after the node was started again, when its counters begin anew.
    ("DpadmmMessagesRefused", {"dpadmm_dropped_messages_total": "5x15 6x5"}, {15: False, 17: True}),
    ("DpadmmMessagesRefused", {"dpadmm_dropped_messages_total": "5x15 1x5"}, {15: False, 17: True}),
    (
        "DpadmmBudgetNearlySpent",
        {"dpadmm_epsilon_spent": "0+1x10", "dpadmm_epsilon_left": "10-1x10"},
        {0: False, 9: False, 10: True},
    ),
    # A server without rows has no ledger, and an owner may set no limit.
    (
        "DpadmmBudgetNearlySpent",
        {"dpadmm_epsilon_spent": "0x5", "dpadmm_epsilon_left": "0x5"},
        {3: False},
    ),
    (
        "DpadmmBudgetNearlySpent",
        {"dpadmm_epsilon_spent": "1x5", "dpadmm_epsilon_left": "Inf Inf Inf Inf"},
        {3: False},
    ),
    ("DpadmmCertificateEnds", {"dpadmm_certificate_days_left": "20-1x10"}, {6: False, 7: True}),
    # An error that nobody saw before, one that comes again, and one after a restart.
    ("DpadmmNodeError", {"dpadmm_errors_total": "_x5 1x40"}, {4: False, 5: True, 16: False}),
    ("DpadmmNodeError", {"dpadmm_errors_total": "5x15 6x5"}, {15: False, 17: True}),
    ("DpadmmRunFailed", {"dpadmm_service_last_run_info": "_x3 1x5"}, {2: False, 4: True}),
    (
        "DpadmmQueueStands",
        {
            'dpadmm_service_runs{state="queued"}': "1x90",
            'dpadmm_service_runs{state="running"}': "0x90",
        },
        {30: False, 61: True},
    ),
    (
        "DpadmmQueueStands",
        {
            'dpadmm_service_runs{state="queued"}': "1x90",
            'dpadmm_service_runs{state="running"}': "1x90",
        },
        {61: False},
    ),
]


def watched(tmp_path, rules, endpoint, alert, courses, minutes):
    """Let Prometheus judge the rules on series that are named as an endpoint names them."""
    rule = next(rule for rule in rules if rule["alert"] == alert)
    scraped = {"job": "dpadmm", "instance": "127.0.0.1:9464"}
    series, labels = [], {}
    # The series that an alert shows comes first; each may say which labels it has.
    for given, values in reversed(courses.items()):
        name, _, said = given.partition("{")
        labels = endpoint[name] | dict(re.findall(r'(\w+)="(.*?)"', said)) | scraped
        words = ",".join(f'{label}="{value}"' for label, value in labels.items())
        series.append({"series": f"{name}{{{words}}}", "values": values})
    told = {
        name: re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda found: labels[found[1]], words)
        for name, words in rule["annotations"].items()
    }
    on = [{"exp_labels": labels | rule["labels"], "exp_annotations": told}]
    looks = [
        {"eval_time": f"{minute}m", "alertname": alert, "exp_alerts": on if fires else []}
        for minute, fires in minutes.items()
    ]
    test = {"interval": "1m", "input_series": series, "alert_rule_test": looks}
    place = tmp_path / "courses.json"
    place.write_text(
        json.dumps(
            {
                "rule_files": [str(FOLDER / "alerts.yml")],
                "evaluation_interval": "1m",
                "tests": [test],
            }
        )
    )
    return promtool("test", "rules", place)


@pytest.mark.parametrize(("alert", "courses", "minutes"), COURSES)
def test_an_alert_is_on_when_it_should_be(tmp_path, rules, endpoint, alert, courses, minutes):
    done = watched(tmp_path, rules, endpoint, alert, courses, minutes)
    assert done.returncode == 0, done.stdout + done.stderr
    wrong = {minute: not fires for minute, fires in minutes.items()}
    assert watched(tmp_path, rules, endpoint, alert, courses, wrong).returncode != 0


def test_every_alert_has_a_course(rules):
    assert {rule["alert"] for rule in rules} == {alert for alert, _, _ in COURSES}


# -- the dashboard --------------------------------------------------------------------------------


def test_every_panel_shows_a_metric_that_a_node_or_a_service_has(endpoint):
    board = json.loads((FOLDER / "dashboard.json").read_text())
    assert board["title"] == "dpadmm"
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"]) >= 10
    shown, places = set(), set()
    for panel in board["panels"]:
        assert {"title", "description", "type", "datasource", "targets"} <= set(panel)
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not cells & places
        assert max(x for x, _ in cells) < 24
        places |= cells
        for target in panel["targets"]:
            named = set(re.findall(r"\bdpadmm_\w+", target["expr"]))
            assert named
            assert named <= set(endpoint)
            labels = set().union(*(endpoint[name] for name in named))
            assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= labels
            inside = re.findall(r"\{(.*?)\}", target["expr"])
            assert set(re.findall(r"(\w+)[=!]", " ".join(inside))) <= labels
            shown |= named
    # Nothing that a node or a service measures is left out.
    assert {name for name in endpoint if name.startswith("dpadmm_")} - shown == {
        name for name in endpoint if name.endswith("_created")
    }
    queries = [each["query"] for each in board["templating"]["list"] if each["type"] == "query"]
    for query in queries:
        metric, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", query["query"]).groups()
        assert label in endpoint[metric]


# -- a service that stays -------------------------------------------------------------------------


def test_systemd_takes_the_service_that_stays(unit):
    folder = unit.with_name(f"{unit.name}.d")
    folder.mkdir()
    words = (FOLDER / "serve.conf").read_text()
    (folder / "serve.conf").write_text(
        words.replace("/opt/dpadmm/bin/dpadmm", shutil.which("true"))
    )
    done = analyze("verify", str(unit))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    # The first line takes the node's command away: a unit of this kind has one.
    assert re.findall(r"^ExecStart=(.*)$", words, re.MULTILINE) == [
        "",
        "/opt/dpadmm/bin/dpadmm serve service.toml",
    ]


def yaml_documents(text):
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    return [each for each in yaml.safe_load_all(text) if each is not None]


def test_the_compose_file_runs_a_service_as_the_container_says():
    (told,) = yaml_documents((FOLDER / "compose.yaml").read_text())
    assert set(told) == {"name", "services", "configs", "secrets", "networks", "volumes"}
    service, prometheus = told["services"]["service"], told["services"]["prometheus"]
    container = (FOLDER / "Containerfile").read_text()
    assert f"USER {service['user']}" in container
    assert f"ENTRYPOINT {json.dumps(['dpadmm'])}" in container
    assert service["command"] == ["serve", "service.toml"]
    for each in (service, prometheus):
        assert each["read_only"] is True
        assert each["cap_drop"] == ["ALL"]
        assert each["security_opt"] == ["no-new-privileges:true"]
        assert set(each["networks"]) <= set(told["networks"])
        # Everything that a service names is declared.
        for kind in ("configs", "secrets"):
            names = [
                item["source"] if isinstance(item, dict) else item for item in each.get(kind, [])
            ]
            assert set(names) <= set(told[kind])
    # Metrics have no way out of the machine.
    assert told["networks"]["watching"]["internal"] is True
    assert service["ports"] == ["7447:7447"]
    for each in told["configs"].values():
        assert (FOLDER / each["file"]).exists()
    (scraping,) = yaml_documents((FOLDER / "prometheus.yml").read_text())
    (job,) = scraping["scrape_configs"]
    assert job["job_name"] == "dpadmm"  # as the alerts call it
    assert job["authorization"]["credentials_file"] == "/run/secrets/token"
    assert job["static_configs"] == [{"targets": ["service:9465"]}]
    text = (FOLDER / "compose.yaml").read_text()
    assert "metrics_anywhere = true" in text
    assert 'metrics = "0.0.0.0:9465"' in text


def test_docker_compose_takes_the_file(tmp_path):
    words = ["docker", "compose", "--file", str(FOLDER / "compose.yaml"), "config", "--quiet"]
    if (
        not shutil.which("docker")
        or subprocess.run(
            ["docker", "compose", "version"], capture_output=True, check=False
        ).returncode
    ):
        pytest.skip("docker compose is not installed: the file was only parsed")
    (tmp_path / "token").write_text("x" * 20)
    environment = os.environ | {"NORTH": str(tmp_path), "DPADMM_TOKEN": str(tmp_path / "token")}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


CHART = FOLDER / "helm" / "dpadmm"
FILLED = {"nodeToml": 'run = "x"\n', "serviceToml": 'node = "y"\n', "schemaToml": "version = 2\n"}


def rendered(values):
    """What Helm makes of the templates, which use little of its language: anything else fails."""

    def fill(found):
        words = found[1].strip()
        words, _, piped = words.partition(" | ")
        assert piped in ("", "quote"), words
        if refusal := re.fullmatch(r'required "(.*)" (\.\S+)', words):
            words = refusal[2]
        assert re.fullmatch(r"\.Release\.Name|\.Values\.\w+", words), words
        value = "north" if words == ".Release.Name" else values[words.removeprefix(".Values.")]
        if refusal and not value:
            raise LookupError(refusal[1])
        return json.dumps(str(value)) if piped else str(value)

    return {
        path.name: re.sub(r"\{\{(.*?)\}\}", fill, path.read_text())
        for path in sorted((CHART / "templates").iterdir())
    }


@pytest.fixture
def chart():
    (values,) = yaml_documents((CHART / "values.yaml").read_text())
    texts = rendered(values | FILLED)
    return {
        (each["kind"], each["metadata"]["name"]): each
        for text in texts.values()
        for each in yaml_documents(text)
    }


def test_the_chart_runs_one_contained_service(chart):
    assert set(chart) == {
        ("ConfigMap", "north-configuration"),
        ("Service", "north"),
        ("Service", "north-metrics"),
        ("StatefulSet", "north"),
    }
    stateful = chart["StatefulSet", "north"]["spec"]
    pod = stateful["template"]["spec"]
    assert stateful["replicas"] == 1
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert f"USER {pod['securityContext']['runAsUser']}:" in (FOLDER / "Containerfile").read_text()
    claims = {each["metadata"]["name"] for each in stateful["volumeClaimTemplates"]}
    volumes = claims | {each["name"] for each in pod["volumes"]}
    for each in (*pod["initContainers"], *pod["containers"]):
        assert each["securityContext"]["readOnlyRootFilesystem"] is True
        assert each["securityContext"]["allowPrivilegeEscalation"] is False
        assert each["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert {mount["name"] for mount in each["volumeMounts"]} <= volumes
    (main,) = pod["containers"]
    assert main["args"] == ["serve", "/state/own/service.toml"]
    ports = {port["name"]: port["containerPort"] for port in main["ports"]}
    labels = stateful["template"]["metadata"]["labels"]
    for name in ("north", "north-metrics"):
        spec = chart["Service", name]["spec"]
        assert spec["selector"] == stateful["selector"]["matchLabels"] == labels
        assert all(ports[port["targetPort"]] == port["port"] for port in spec["ports"])
    # Whoever comes from outside reaches the node, and not its metrics.
    assert chart["Service", "north-metrics"]["spec"]["type"] == "ClusterIP"
    told = chart["ConfigMap", "north-configuration"]["data"]
    assert set(told.values()) == set(FILLED.values())
    given = {each["name"]: each for each in pod["volumes"]}
    assert given["given"]["configMap"]["name"] == "north-configuration"


def test_the_chart_refuses_to_begin_without_its_files():
    (values,) = yaml_documents((CHART / "values.yaml").read_text())
    with pytest.raises(LookupError, match="nodeToml must be given"):
        rendered(values)
    # Every value is used, and only those there are.
    used = "".join(path.read_text() for path in (CHART / "templates").iterdir())
    assert set(re.findall(r"\.Values\.(\w+)", used)) == set(values)


def kept(ours, theirs, place=""):
    """Where something that was written is not there any more: Kubernetes does not know it."""
    if isinstance(ours, dict):
        for key, value in ours.items():
            if not isinstance(theirs, dict) or key not in theirs:
                yield f"{place}.{key}"
            else:
                yield from kept(value, theirs[key], f"{place}.{key}")
    elif isinstance(ours, list):
        if not isinstance(theirs, list) or len(ours) != len(theirs):
            yield place
            return
        for number, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            yield from kept(one, other, f"{place}.{number}")
    elif ours != theirs:
        yield place


def test_kubernetes_knows_every_field_of_the_chart(chart):
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed: the chart was only rendered and parsed")
    # Each reads its document into the types of Kubernetes, without a cluster, and writes it again.
    commands = {
        "StatefulSet": ["set", "env", "--containers=service", "A=b"],
        "Service": ["set", "selector", "a=b"],
    }
    for (kind, _), document in chart.items():
        if kind not in commands:
            continue
        first, second, *more = commands[kind]
        words = ["kubectl", first, second, "--local", "--filename=-", "--output=json"]
        for wrong in (False, True):
            told = json.loads(json.dumps(document))
            if wrong:
                told["spec"]["misspelt"] = 1
            done = subprocess.run(
                [*words, *more], input=json.dumps(told), capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stderr
            lost = [each for each in kept(told, json.loads(done.stdout)) if "selector" not in each]
            assert lost == ([".spec.misspelt"] if wrong else [])


# -- the threat model -----------------------------------------------------------------------------


def test_every_test_that_the_threat_model_names_exists():
    text = (DOCS / "threat-model.md").read_text()
    rows = [line for line in text.splitlines() if line.startswith("| ") and "---" not in line]
    head, *threats = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    assert head == ["who", "sees", "can do", "what stops it", "shown by"]
    assert len(threats) >= 12
    tests = re.findall(r"^(\d+)\. `(tests/\S+\.py)::(\w+)`$", text, re.MULTILINE)
    for _, file, test in tests:
        code = (DOCS.parent / file).read_text()
        assert re.search(rf"^\s*def {test}\(", code, re.MULTILINE), f"{file}::{test}"
    shown = [re.findall(r"\[(\d+)\]", cells[-1]) for cells in threats]
    # Where no test can show it, the table says so.
    for numbers, cells in zip(shown, threats, strict=True):
        assert numbers or cells[-1].startswith("not shown:")
    assert {number for numbers in shown for number in numbers} == {number for number, *_ in tests}
