"""What commands say about privacy: the same everywhere, and never less than what was spent."""

import dataclasses
import html
import json
import math
import re
import sys
from pathlib import Path

import pytest

from dpadmm.audit.verdict import Attack, AuditSetting, EpsilonClaim, GaussianClaim, Verdict
from dpadmm.cli import node as node_command
from dpadmm.cli.status import status_table
from dpadmm.experiments.comparison_pages import epsilon_words
from dpadmm.experiments.meaning import Shown, bound_of, meaning_of
from dpadmm.federation.status import NodeStatus
from dpadmm.privacy.accountant import Guarantee, Odds
from dpadmm.privacy.figures import AtMost
from dpadmm.privacy.statement import PrivacyStatement
from dpadmm.report.document import Table, cell_text
from dpadmm.report.html import render
from dpadmm.report.run import run_report
from dpadmm.run.config import load_config
from dpadmm.run.files import train_run, write_results
from dpadmm.run.model import load_model, model_bytes, pack, unpack
from dpadmm.run.result import RecordedRun

#: Between two numbers of the digits that are shown, above the nearer one.
SHARP = [0.99996, 1.00004, 1e-6 * (1 + 1e-9), 0.1234561, 12.345600001, math.nextafter(1, 2)]
PAIR = re.compile(r"\(([0-9.e+-]+), ([0-9.e+-]+)\)-differential")


def stated(epsilon, delta, **changes):
    return PrivacyStatement(
        algorithm="pr-admm",
        epsilon=epsilon,
        delta=delta,
        parties={"north": Guarantee(epsilon, delta, "exact-gaussian", "a theorem")},
        rows_per_person=1,
        noise="some source",
        simulated=False,
        **changes,
    )


def least(pattern, text):
    """The smallest number that a pattern finds."""
    found = [float(each) for each in re.findall(pattern, text)]
    assert found, text
    return min(found)


@pytest.mark.parametrize("value", SHARP)
def test_nothing_that_renders_a_bound_shows_less(value):
    delta = min(value, 0.1234561)
    ((epsilon_shown, delta_shown),) = PAIR.findall(str(stated(value, delta)))
    assert float(epsilon_shown) >= value
    assert float(delta_shown) >= delta
    ((epsilon_shown, delta_shown),) = PAIR.findall(EpsilonClaim(value, delta).words())
    assert float(epsilon_shown) >= value
    assert float(delta_shown) >= delta
    assert least(r"^([0-9.e+-]+)-GDP", GaussianClaim(value).words()) >= value
    assert least(r"mu = ([0-9.e+-]+) ", Odds(1.0, 1e-5, value).theorem) >= value
    assert float(cell_text(AtMost(value))) >= value
    privacy = stated(value, delta).to_dict()
    table = Table.of(("run", "epsilon"), [("a", bound_of(privacy))])
    assert least(r"\| a \| ([0-9.e+-]+) \|", table.markdown()) >= value
    assert float(table.plain()["rows"][0][1]) >= value
    assert table.csv().splitlines()[1] == f"a,{value!r}"
    meaning = meaning_of([Shown("a", privacy)])
    (row,) = meaning.tables["Guarantees"].rows
    assert float(row[2]) >= value
    assert float(row[3]) >= delta
    line = {"epsilon": 1.0, "refused": None, "calibration": "published", "mark": "[1]"}
    line |= {"provable_epsilon": value, "claimed_epsilon": 1.0}
    assert least(r"proven ([0-9.e+-]+) ", epsilon_words(line)) >= value
    verdict = Verdict(
        EpsilonClaim(value),
        lower_bound=value,
        estimate=value,
        confidence=0.99,
        samples=10,
        attack=Attack(0.0, "accuracy"),
        setting=AuditSetting("it", "the worst", "a score"),
    )
    # What an audit has refuted is a lower bound, and is not shown as more.
    assert least(r"at least ([0-9.e+-]+);", verdict.words()) <= value
    assert least(r"claimed is ([0-9.e+-]+)\.", verdict.words()) >= value


@pytest.mark.parametrize("value", SHARP)
def test_a_status_shows_no_less_spent_and_no_more_left(value):
    content = {"node": "n", "state": "running", "round": 1, "rounds": 2, "waiting": {}}
    content |= {"epsilon_spent": value, "epsilon_left": value, "last_event": None}
    content |= {"process_space": "elsewhere", "process": 1}
    columns = status_table([NodeStatus(Path("s"), content, 0.0)]).columns
    spent, left = (str(next(iter(columns[place].cells))) for place in (4, 5))
    assert float(left) <= value <= float(spent)


# -- runs ------------------------------------------------------------------------------------------


@pytest.fixture
def awkward(hospitals):
    """A run whose budget has more digits than are shown, on rows that are declared."""
    text = (hospitals / "run.toml").read_text()
    numbers = '"pr-admm"\nepsilon = 0.8123456123\ndelta = 0.001234561'
    text = text.replace('"admm"', numbers)
    for name, rows in (("north", 60), ("south", 40), ("west", 20)):
        text = text.replace(f'file = "{name}.csv"', f'file = "{name}.csv"\nrows = {rows}')
    (hospitals / "run.toml").write_text(text)
    return hospitals


def _rows_of(table, names):
    cells = [re.split(r"\s*[│┃]\s*", line)[1:-1] for line in table.splitlines()]
    return {row[0]: row for row in cells if row and row[0] in names}


def test_train_account_and_report_show_no_less_than_was_spent(awkward, dpadmm):
    shown = dpadmm("train", awkward / "run.toml").stdout
    record = json.loads((awkward / "record.json").read_text())
    epsilon, delta = record["privacy"]["epsilon"], record["privacy"]["delta"]
    assert delta == 0.001234561
    planned = dpadmm("account", awkward / "run.toml").stdout
    page = html.unescape((awkward / "m.html").read_text())
    for text in (shown, planned, page):
        found = PAIR.findall(text)
        assert found
        for shown_epsilon, shown_delta in found:
            assert float(shown_epsilon) >= epsilon
            assert float(shown_delta) >= delta
    parties = ("north", "south", "west")
    rows = _rows_of(shown, parties)
    assert set(rows) == set(parties)
    for name, row in rows.items():
        assert float(row[2]) >= record["privacy"]["parties"][name]["epsilon"]
        assert float(row[3]) >= delta
    # Where a table is too wide, a figure is folded, not cut off.
    assert "…" not in planned
    assert float(_rows_of(planned, parties)["north"][5]) >= epsilon


def test_a_statement_is_one_line_unless_more_is_asked_for(awkward, dpadmm):
    told = (awkward / "run.toml").read_text()
    (awkward / "run.toml").write_text(told.replace("simulation_key", "# simulation_key"))
    short = dpadmm("train", awkward / "run.toml").stdout.split("\nSpent")[0].splitlines()
    (line,) = short
    for word in ("-differential privacy of each party", "one row of one party is replaced"):
        assert word in line
    assert "may control all other parties; theorem: " in line
    whole = dpadmm("train", awkward / "run.toml", "--verbose").stdout
    for heading in ("Adjacency", "Adversary", "Theorem", "Accountant", "Noise", "Not covered"):
        assert f"\n{heading}: " in whole


def test_what_weakens_a_guarantee_is_never_left_out(awkward):
    stated = train_run(load_config(awkward / "run.toml")).privacy
    weak = dataclasses.replace(
        stated, simulated=True, claim="less", reviewed=False, caveats=("One party left.",)
    )
    headings = [heading for heading, _ in weak.brief()]
    assert headings[:2] == ["SIMULATION", "Guarantee"]
    assert {"Caveat", "As published, not proven", "Theorem's status"} <= set(headings)


def test_a_node_shows_no_less_than_was_spent(awkward, capsys):
    run = train_run(load_config(awkward / "run.toml"))
    federation = {"rounds_complete": 12, "rows": run.rows}
    come_from = run.model.provenance | {"federation": federation}
    model = dataclasses.replace(run.model, provenance=come_from)
    node_command._show(dataclasses.replace(run, model=model), verbose=False)
    text = capsys.readouterr().out
    ((epsilon, delta),) = PAIR.findall(text)
    assert float(epsilon) >= run.privacy.epsilon
    assert float(delta) >= run.privacy.delta
    assert float(_rows_of(text, ("north",))["north"][2]) >= run.privacy.epsilon


def test_a_ledger_shows_no_less_spent_and_no_more_left(awkward, dpadmm):
    ledgers = ["[ledgers]"]
    for name, rows in (("north", 60), ("south", 40), ("west", 20)):
        place = awkward / f"{name}.ledger"
        options = ["--epsilon", "1.91234561", "--delta", "0.001234561"]
        about = ["--dataset", "w", "--owner", name, "--rows", rows]
        assert dpadmm("ledger", "init", place, *about, *options).exit_code == 0
        ledgers.append(f'{name} = "{name}.ledger"')
    with (awkward / "run.toml").open("a") as file:
        file.write("\n".join(["", *ledgers, ""]))
    assert dpadmm("train", awkward / "run.toml").exit_code == 0
    account = json.loads(dpadmm("ledger", "show", awkward / "north.ledger", "--json").stdout)
    account = account["result"]
    spent, fitting = account["spent_epsilon"], account["fitting_epsilon"]
    words = dpadmm("ledger", "show", awkward / "north.ledger").stdout
    assert least(r"Spent: epsilon = ([0-9.e+-]+) ", words) >= spent
    assert least(r"epsilon up to ([0-9.e+-]+) ", words) <= fitting
    share = 100 * account["spent"] / account["limit"]
    assert least(r"([0-9.e+-]+)% spent", words) >= share
    assert least(r"([0-9.e+-]+)% left", words) <= 100 * account["left"] / account["limit"]
    # What the owner typed is shown as typed.
    assert "(1.91234561, 0.001234561)-differential privacy" in words
    verified = dpadmm("ledger", "verify", awkward / "north.ledger").stdout
    assert least(r"epsilon = ([0-9.e+-]+) of", verified.replace("\n", " ")) >= spent
    # The page rounds the same way, and a record does not tell how long a run took.
    record = json.loads((awkward / "record.json").read_text())
    assert all("opened" not in run for run in record["ledger_checks"]["north"]["account"]["runs"])
    left = 100 * account["left"] / account["limit"]
    page = html.unescape((awkward / "m.html").read_text())
    assert least(r"([0-9.]+) %", page) <= left


# -- one maker of statements -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "run",
    [
        '"pr-admm"',
        '"pdml"',
        '"dvp"\ncalibration = "published"',
        '"ps-admm"',
        '"pr-admm"\nsimulation_key = 3',
    ],
)
def test_account_states_what_the_run_states(awkward, dpadmm, run):
    text = (awkward / "run.toml").read_text().replace('"pr-admm"', run)
    (awkward / "run.toml").write_text(text)
    planned = json.loads(dpadmm("account", awkward / "run.toml", "--json").stdout)["result"]
    done = json.loads(dpadmm("train", awkward / "run.toml", "--json").stdout)["result"]
    said, found = planned["statement"], done["privacy"]
    assert found.pop("noise") in said.pop("noise")
    assert said == found


OUTSIDE = """
from dpadmm.algorithms.pr_admm import PRADMM

class Outside(PRADMM):
    name = "outside"
"""


def test_account_says_that_an_outside_theorem_was_not_reviewed(tmp_path, monkeypatch, dpadmm):
    (tmp_path / "stranger_package.py").write_text(OUTSIDE)
    info = tmp_path / "stranger_package-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: stranger-package\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[dpadmm.algorithms]\noutside = stranger_package:Outside\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        words = ("account", "--algorithm", "outside", "--rounds", "3")
        assert "not reviewed" in " ".join(dpadmm(*words).stdout.split())
        result = json.loads(dpadmm(*words, "--json").stdout)["result"]
        assert result["statement"]["reviewed"] is False
    finally:
        sys.modules.pop("stranger_package", None)


def test_account_speaks_of_all_parties(awkward, dpadmm):
    """At a delta of their own, the largest epsilon at another delta may be anybody's."""
    text = (awkward / "run.toml").read_text()
    text = text.replace("epsilon = 0.8123456123", "epsilon = {north = 1, south = 0.9, west = 0.5}")
    text = text.replace("delta = 0.001234561", "delta = {north = 1e-6, south = 1e-3, west = 1e-3}")
    (awkward / "run.toml").write_text(text)
    result = json.loads(dpadmm("account", awkward / "run.toml", "--json").stdout)["result"]
    curve = {point["delta"]: point["epsilon"] for point in result["curve"]}
    # South spends 0.9 at 1e-3, and more than north at 1e-6.
    assert curve[1e-6] > 1.4
    assert curve[1e-3] >= 0.9 * (1 - 1e-6)
    assert (result["statement"]["epsilon"], result["statement"]["delta"]) == (
        pytest.approx(1.0, rel=1e-5),
        1e-3,
    )


# -- caveats ---------------------------------------------------------------------------------------

CAVEAT = "Rely on the agreed budget, (1, 0.001)."


@pytest.fixture
def ended_early(awkward):
    run = train_run(load_config(awkward / "run.toml"))
    privacy = dataclasses.replace(run.privacy, caveats=(CAVEAT,))
    classifier = dataclasses.replace(run.classifier, privacy=privacy)
    return dataclasses.replace(run, model=dataclasses.replace(run.model, classifier=classifier))


def test_a_caveat_stands_wherever_the_figures_do(ended_early, awkward):
    record = write_results(ended_early)
    assert record.plain()["privacy"]["caveats"] == [CAVEAT]
    assert ended_early.summary()["privacy"]["caveats"] == [CAVEAT]
    loaded = load_model(awkward / "m.model").privacy
    assert loaded.caveats == (CAVEAT,)
    assert ("Caveat", CAVEAT) in loaded.lines()
    assert CAVEAT in str(ended_early.estimator.privacy_)
    page = html.unescape(render(run_report(record)))
    assert CAVEAT in page


def test_a_model_of_an_older_version_is_read(ended_early, tmp_path):
    document, arrays = unpack(model_bytes(ended_early.model), "model")
    del document["privacy"]["caveats"]
    (tmp_path / "old.model").write_bytes(pack(document, arrays))
    assert load_model(tmp_path / "old.model").privacy.caveats == ()


# -- time ------------------------------------------------------------------------------------------


def _keys(value):
    if isinstance(value, dict):
        yield from value
        for item in value.values():
            yield from _keys(item)
    elif isinstance(value, list):
        for item in value:
            yield from _keys(item)


def test_how_long_a_private_run_took_is_told_nowhere(awkward, dpadmm):
    result = json.loads(dpadmm("train", awkward / "run.toml", "--json").stdout)["result"]
    record = json.loads((awkward / "record.json").read_text())
    for content in (result, record):
        assert not {key for key in _keys(content) if "second" in key or "time" in key}
    assert "seconds" not in (awkward / "m.html").read_text()
    assert not re.search(r"[0-9] s\.", dpadmm("train", awkward / "run.toml").stdout)


def test_an_older_record_of_a_private_run_is_shown_without_its_time(awkward, dpadmm):
    dpadmm("train", awkward / "run.toml")
    record = json.loads((awkward / "record.json").read_text()) | {"seconds": 12.345}
    assert "12.345" not in render(run_report(RecordedRun.from_dict(record)))


def test_a_run_without_privacy_says_how_long_it_took(hospitals, dpadmm):
    result = json.loads(dpadmm("train", hospitals / "run.toml", "--json").stdout)["result"]
    assert result["seconds"] > 0
    assert re.search(r"[0-9] s\.", dpadmm("train", hospitals / "run.toml").stdout)
