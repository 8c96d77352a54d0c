"""Real outputs of the commands against the JSON schema the package carries."""

import json
from importlib.resources import files

import jsonschema
import pytest

SCHEMA = json.loads(files("dpadmm.cli").joinpath("output.schema.json").read_text())
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)


def checked(result, definition=None):
    """The result of an output that fits, with no field that the schema does not describe."""
    output = json.loads(result.stdout)
    VALIDATOR.validate(output)
    if definition:
        assert set(output["result"]) <= set(SCHEMA["$defs"][definition]["properties"])
    return output.get("result", output.get("error"))


def test_the_schema_is_one():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("algorithm", ["admm", "pr-admm"])
def test_train_and_predict(hospitals, dpadmm, algorithm):
    text = (hospitals / "run.toml").read_text()
    settings = f'"{algorithm}"\ndelta = 1e-3\nsimulation_key = 1'
    (hospitals / "run.toml").write_text(text.replace('"admm"', settings))
    result = checked(dpadmm("train", hospitals / "run.toml", "--json"), "train")
    assert set(result["privacy"]) <= set(SCHEMA["$defs"]["privacy"]["properties"])
    for guarantee in result["privacy"]["parties"].values():
        assert set(guarantee) <= set(SCHEMA["$defs"]["guarantee"]["properties"])
    assert (result["privacy"]["epsilon"] == "infinite") == (algorithm == "admm")
    arguments = (hospitals / "m.model", hospitals / "west.csv", "-o", hospitals / "out.csv")
    result = checked(dpadmm("predict", *arguments, "--json"), "predict")
    assert result["rows"] == 20
    page = ("report", hospitals / "record.json", "-o", hospitals / "page.html", "--json")
    assert checked(dpadmm(*page), "report")["runs"] == 1


def test_a_run_with_shared_noise(hospitals, dpadmm):
    text = (hospitals / "run.toml").read_text()
    settings = '"dp-gd"\ndelta = 1e-3\nsimulation_key = 1\nalgorithm_options = {noise = "shared"}'
    (hospitals / "run.toml").write_text(text.replace('"admm"', settings))
    privacy = checked(dpadmm("train", hospitals / "run.toml", "--json"), "train")["privacy"]
    assert set(privacy) <= set(SCHEMA["$defs"]["privacy"]["properties"])
    assert set(privacy["alone"]) == set(privacy["parties"])
    for name, guarantee in privacy["alone"].items():
        assert set(guarantee) <= set(SCHEMA["$defs"]["guarantee"]["properties"])
        assert guarantee["epsilon"] > privacy["parties"][name]["epsilon"]
    page = ("report", hospitals / "record.json", "-o", hospitals / "page.html", "--json")
    assert checked(dpadmm(*page), "report")["runs"] == 1
    shown = (hospitals / "page.html").read_text()
    for words in ("at most 1 of the 3 parties together", "If all others collude", "Masks"):
        assert words in shown


def test_a_run_that_is_evaluated(hospitals, dpadmm):
    text = (hospitals / "run.toml").read_text()
    settings = '"dp-gd"\nepsilon = 9.0\ndelta = 1e-3\nsimulation_key = 1\nholdout = 0.25'
    (hospitals / "run.toml").write_text(text.replace('"admm"', settings + "\nevaluate = true"))
    told = checked(dpadmm("train", hospitals / "run.toml", "--json"), "train")
    assert set(told["evaluation"]) <= set(SCHEMA["$defs"]["figures"]["properties"])
    shown = checked(dpadmm("evaluate", hospitals / "run.toml", "--json"), "evaluate")
    assert shown["evaluation"]["accuracy"] == told["evaluation"]["accuracy"]
    public = ("evaluate", hospitals / "m.model", "--public", hospitals / "west.csv", "--json")
    assert checked(dpadmm(*public), "evaluate")["about"] == "public"


def test_describe(hospitals, dpadmm):
    text = (hospitals / "run.toml").read_text()
    parties = text[text.index("[data]") : text.index("[result]")]
    wish = '[[wish]]\nkind = "proportion"\ncolumns = ["y"]\n'
    study = "[study]\nepsilon = 9.0\ndelta = 1e-3\nsimulation_key = 1\n"
    result = '[result]\nrecord = "found.json"\n'
    rows = {"north": 60, "south": 40, "west": 20}
    for name, count in rows.items():
        parties = parties.replace(f'name = "{name}"', f'name = "{name}"\nrows = {count}')
    (hospitals / "describe.toml").write_text(study + parties + result + wish)
    told = checked(dpadmm("describe", hospitals / "describe.toml", "--json"), "describe")
    assert set(told) <= set(SCHEMA["$defs"]["describe"]["properties"])
    assert {key for each in told["found"] for key in each} <= set(
        SCHEMA["$defs"]["study_figure"]["properties"]
    )
    plan = ("describe", hospitals / "describe.toml", "--plan", "--width", "0.5", "--json")
    told = checked(dpadmm(*plan), "describe")
    assert set(told) <= set(SCHEMA["$defs"]["describe"]["properties"])


def test_schema_draft_and_check(hospitals, dpadmm):
    draft = ("schema", "draft", hospitals / "west.csv", "--label", "y", "-o", hospitals / "s.toml")
    assert checked(dpadmm(*draft, "--json"), "schema_draft")["classes"] == ["no", "yes"]
    check = ("schema", "check", hospitals / "s.toml", hospitals / "north.csv")
    assert checked(dpadmm(*check, "--json"), "schema_check")["rows"] == 60


@pytest.mark.parametrize(
    "command",
    [
        ("train", "nowhere"),
        ("node", "--config", "nowhere"),
        ("predict", "nowhere", "nowhere", "-o", "nowhere.csv"),
        ("report", "nowhere"),
        ("serve", "nowhere"),
        ("model", "fingerprint", "nowhere"),
        ("model", "card", "nowhere"),
        ("model", "export", "nowhere", "there.onnx"),
        ("ledger", "head", "nowhere"),
        ("ledger", "backup", "nowhere", "there"),
        ("run", "submit", "agreed.toml", "--config", "nowhere"),
        ("run", "list", "--config", "nowhere"),
        ("run", "show", "1", "--config", "nowhere"),
        ("run", "cancel", "1", "--config", "nowhere"),
        ("schema", "draft", "nowhere.csv", "--label", "y"),
        ("schema", "check", "nowhere", "nowhere"),
    ],
)
def test_refusals(dpadmm, command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = dpadmm(*command, "--json")
    assert result.exit_code == 2
    assert "nowhere" in checked(result)
    groups = ("schema", "model", "ledger", "run")
    name = " ".join(command[:2]) if command[0] in groups else command[0]
    assert json.loads(result.stdout)["command"] == name


@pytest.mark.parametrize(
    "output",
    [
        {"version": 1, "command": "x"},
        {"version": 2, "command": "x", "result": {}},
        {"version": 1, "command": "x", "result": {}, "error": "both"},
        {"version": 1, "command": "x", "result": {}, "more": 1},
        {"version": 1, "command": "predict", "result": {"rows": -1, "output": "", "columns": []}},
        {"version": 1, "command": "train", "result": {}},
    ],
)
def test_what_does_not_fit_is_refused(output):
    assert not VALIDATOR.is_valid(output)


@pytest.mark.parametrize(
    "command",
    [
        ("account", "--rounds", "4", "--rows", "100,200"),
        ("account", "--release", "pure", "--release-epsilon", "0.1", "--rounds", "3"),
        ("audit", "--mechanism", "gaussian", "--samples", "1000"),
        ("audit", "--algorithm", "pdml", "--samples", "500", "--noise-scale", "0.5"),
    ],
)
def test_account_and_audit(dpadmm, command):
    assert checked(dpadmm(*command, "--json"))


def test_ledger_show(dpadmm, tmp_path):
    place = tmp_path / "a.ledger"
    facts = ("--dataset", "d", "--owner", "o", "--rows", "9", "--epsilon", "1", "--delta", "1e-5")
    dpadmm("ledger", "init", place, *facts)
    assert checked(dpadmm("ledger", "show", place, "--json"))["spent_epsilon"] == 0


def test_ledger_head_backup_and_a_fingerprint(hospitals, dpadmm, tmp_path):
    place = tmp_path / "a.ledger"
    facts = ("--dataset", "d", "--owner", "o", "--rows", "9", "--epsilon", "1", "--delta", "1e-5")
    dpadmm("ledger", "init", place, *facts)
    head = checked(dpadmm("ledger", "head", place, "--json"), "ledger_head")
    copied = checked(dpadmm("ledger", "backup", place, tmp_path / "b", "--json"), "ledger_head")
    assert head["head"] == copied["head"] == f"{head['number']}:{head['sha256']}"
    dpadmm("train", hospitals / "run.toml")
    model = ("model", "fingerprint", hospitals / "m.model")
    found = checked(dpadmm(*model, "--json"), "fingerprint")["fingerprint"]
    assert dpadmm(*model).output.strip() == found


def test_a_card_and_a_graph_of_a_model(hospitals, dpadmm, tmp_path):
    pytest.importorskip("onnx")
    dpadmm("train", hospitals / "run.toml")
    card = ("model", "card", hospitals / "m.model")
    found = checked(dpadmm(*card, "--json"), "card")
    assert dpadmm(*card).output == found["card"]
    assert "## Privacy" in found["card"]
    dpadmm(*card, "-o", tmp_path / "m.md")
    assert (tmp_path / "m.md").read_text() == found["card"]
    export = ("model", "export", hospitals / "m.model", tmp_path / "m.onnx")
    assert checked(dpadmm(*export, "--json"), "graph")["output"] == str(tmp_path / "m.onnx")
    assert (tmp_path / "m.onnx").stat().st_size > 1000
    wrong = dpadmm("model", "export", hospitals / "m.model", tmp_path / "m.pb")
    assert wrong.exit_code == 2
    assert "output must end in .onnx; got 'm.pb'" in " ".join(wrong.output.split())


def test_compare_and_reproduce(dpadmm, tmp_path):
    small = ("--rows-per-party", "50", "--test-rows", "50", "--rounds", "2", "--runs", "2")
    budget = ("--epsilon", "1", "--delta", "1e-3", "--algorithm", "pr-admm", "--jobs", "1")
    arguments = ("compare", "waveform", *small, *budget, "--output", tmp_path / "out", "--json")
    result = checked(dpadmm(*arguments), "compare")
    assert {line["who"] for line in result["lines"]} > {"pr-admm", "central AMP"}
    assert checked(dpadmm("reproduce", "--json"), "reproduce")
    assert "experiment must be" in checked(dpadmm("reproduce", "nothing", "--json"))


def test_choose_alpha(dpadmm, tmp_path):
    place = tmp_path / "trials.csv"
    place.write_text("alpha,loss\n0.02,0.52\n0.05,0.46\n0.1,0.42\n0.5,0.4\n")
    found = checked(dpadmm("choose-alpha", place, "--json"), "choose_alpha")
    assert found["inside"]
    assert "lacks alpha" in checked(dpadmm("choose-alpha", __file__, "--json"))


def test_cert(dpadmm, tmp_path):
    made = checked(dpadmm("cert", "authority", tmp_path / "c", "--json"), "cert")
    assert made["authority"]
    made = checked(dpadmm("cert", "node", tmp_path / "c", "north", "--json"), "cert")
    shown = checked(dpadmm("cert", "show", tmp_path / "c" / "north.pem", "--json"), "cert")
    assert shown["fingerprint"] == made["fingerprint"]


def test_status(dpadmm, tmp_path):
    from dpadmm.federation.watcher import Watcher

    with Watcher("north", log=tmp_path / "log", status=tmp_path / "north.status.json") as watcher:
        watcher.round(3, 50)
        watcher.budget(0.5, float("inf"))
        watcher.graph(["north", "south"], [("north", "south")], None)
        watcher.gossip("south", "running", 2, ["north"])
        watcher.event("neighbour-gone", level="warning", neighbour="south")
    result = checked(dpadmm("status", tmp_path, "--json"), "status")
    described = SCHEMA["$defs"]["status"]["properties"]["nodes"]["items"]["properties"]
    assert set(result["nodes"][0]) - {"version", "process_space"} == set(described)
