"""What reports say, read from the pages of real runs."""

import base64
import html
import json
import math
import re

import pytest
from tests.helpers.small_experiments import SmallExperiment
from typer.testing import CliRunner

from dpadmm.cli import app
from dpadmm.errors import ParameterError
from dpadmm.experiments.jobs import Store
from dpadmm.privacy.figures import AtMost
from dpadmm.privacy.statement import ADVERSARY, NOT_COVERED
from dpadmm.report.document import cell_text, read_report
from dpadmm.report.html import render
from dpadmm.report.run import run_report, runs_report
from dpadmm.report.sections import riskiest
from dpadmm.run.result import RecordedRun
from dpadmm.version import __version__
from dpadmm_papers.pages import reproduce


def words(page):
    """The text of a page, without markup and downloads."""
    body = re.sub(r"<style>.*?</style>", " ", page, flags=re.DOTALL)
    return html.unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", body)))


def banners(page):
    found = re.findall(r'class="banner (\w+)"><strong>(.*?)</strong>', page)
    return [(tone, html.unescape(heading)) for tone, heading in found]


def test_the_answers_are_all_there(record, page):
    text = words(page(record()))
    for phrase in (
        "3 parties, on a ring: north (60 rows), south (50 rows), west (40 rows).",
        "predicts readmitted (no or yes) from the column age, encoded as 3 features",
        "(1, 0.0001)-differential privacy, in total over the whole run",
        "more than 2.72 times as likely, plus 0.0001",
        "Not a simulation.",
        "Gaussian releases compose exactly (Dong, Roth, Su 2022)",
        ADVERSARY[1:],
        *NOT_COVERED[1:],
        "dpadmm train run.toml",
        'name = "south"',
        # The page, too, says which version made it: it may be made again by a later one.
        f"dpadmm {__version__} made this page.",
    ):
        assert phrase in text


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("private", "It cost a row of one party (1, 0.0001)-differential privacy at most"),
        ("simulated", "With secret noise it would have cost a row of one party (1, 0.0001)"),
        ("uneven", "(2, 0.0001)-differential privacy at most; whoever has rows at several"),
        ("without", "The run has no privacy guarantee."),
    ],
)
def test_the_headline_says_what_it_cost_and_what_that_does_not_cover(record, page, kind, said):
    text = words(page(record(kind)))
    assert text.index("Nobody has evaluated the model.") < text.index(said) < text.index("Who took")


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("private", [("info", "Not counted.")]),
        ("simulated", [("danger", "SIMULATION.")]),
        ("without", [("danger", "NO PRIVACY GUARANTEE.")]),
    ],
)
def test_banners(record, page, kind, expected):
    assert banners(page(record(kind))) == expected


def test_a_published_calibration_shows_the_claim_and_what_is_proven(record, page):
    content = record("published")
    made = page(content)
    assert ("caution", "PUBLISHED CALIBRATION.") in banners(made)
    text = words(made)
    assert content["privacy"]["claim"].rstrip(".") in text
    proven = AtMost(content["privacy"]["epsilon"])
    assert f"What is proven for this run: epsilon = {proven} at delta = 0.0001." in text


def test_a_run_over_budget_says_so(record, page):
    content = record()
    content["config"]["run"]["epsilon"] = 0.25
    made = page(content)
    assert banners(made)[0] == ("danger", "OVER BUDGET.")
    assert "north spent epsilon = 1 of 0.25" in words(made)


def test_a_run_within_its_budget_does_not(record, page):
    assert "OVER BUDGET" not in page(record("uneven"))


def account(**changes):
    return {
        "dataset": {"name": "patients", "owner": "north", "rows": 60},
        "policy": {"epsilon": 2.0, "delta": 1e-4},
        "limit": 4.0,
        "left": 1.0,
        "spent_epsilon": 1.5,
        "runs": [{"run": "a"}, {"run": "b"}],
        "head": "7:abc",
    } | changes


def test_ledgers_and_their_checks(record, page):
    content = record()
    content["ledger_checks"] = {
        "north": {"account": account(), "error": None},
        "south": {
            "account": None,
            "error": "ledger s: row 3 was changed: its hash does not match.",
        },
        "west": {"account": account(spent_epsilon=2.5), "error": None},
    }
    made = page(content)
    text = words(made)
    assert banners(made) == [
        ("danger", "OVER BUDGET."),
        ("danger", "LEDGER CHECK FAILED."),
    ]
    assert "south: ledger s: row 3 was changed" in text
    assert "the ledger of west has epsilon = 2.5 of 2" in text
    assert "patients 2 1.5 2 0.0001 25 % consistent, at the end of the run" in text
    assert "head of the ledger of north 7:abc" in text
    assert "Not counted." not in text


def test_the_weakest_party_is_named(record, page):
    content = record("uneven")
    text = words(page(content))
    assert "The weakest guarantee is that of south: epsilon = 2." in text
    assert "from 0.5 (north) to 2 (south)" in text


# True of own noise only: with shared noise a party that hears all others sees far more.
OWN_NOISE_ONLY = (
    "the other parties or anybody else sees",
    "whoever runs it",
    "own noise alone",
    "never added",
    "every message of the run",
    "all messages, at most",
    "all messages of the run",
)


def shared_noise(record):
    """The record of shared noise, as if it had been secret: exact draws need an extra."""
    content = record("shared")
    content["privacy"]["simulated"] = False
    return content


def test_shared_noise_promises_nothing_beyond_its_adversary(record, page):
    own = words(page(record()))
    text = words(page(shared_noise(record)))
    for phrase in OWN_NOISE_ONLY[:-1]:
        assert phrase in own
    for phrase in OWN_NOISE_ONLY:
        assert phrase not in text
    for phrase in (
        "against those whom the line Against whom names: (1, 0.0001)-differential privacy",
        "nothing that they see of the run would have become more than 2.72 times as likely",
        "The guarantees hold against the server or any listener, who sees the sum of all messages "
        "of every round, and at most 1 of the 3 parties together with it",
        "a person with rows at several costs the sum of their mu",
        "holds for every test of those whom the line Against whom names",
        "An attacker of those whom the line Against whom names knows every other row",
        "sees the sums of messages, at most",
        "If all others collude",
    ):
        assert phrase in text
    simulated = words(page(record("shared")))
    assert "To nobody, since the noise can be drawn again." in simulated
    for phrase in OWN_NOISE_ONLY:
        assert phrase not in simulated


def test_a_total_with_shared_noise_says_against_whom(record):
    private, shared = (RecordedRun.from_dict(each) for each in (record(), shared_noise(record)))
    limited = "against those only against whom each of these runs holds"
    text = words(render(runs_report([("first", private), ("second", shared)])))
    assert "by basic composition" in text
    assert limited in text
    assert "at most 1 of the 3 parties together with it" in text
    text = words(render(runs_report([("first", private), ("second", private)])))
    assert limited not in text


def test_ledgers_say_what_was_spent_if_all_others_collude(record, page):
    content = record("shared")
    content["ledger_checks"] = {
        "north": {"account": account(spent_epsilon_alone=1.75), "error": None},
        "south": {"account": account(), "error": None},
        "west": {"account": None, "error": "ledger w: broken."},
    }
    text = words(page(content))
    assert "budget left epsilon spent if all others collude check" in text
    assert "patients 2 1.5 2 0.0001 25 % 1.75 consistent" in text
    del content["ledger_checks"]["north"]
    assert "epsilon spent if all others collude" not in words(page(content))


def test_every_figure_has_its_data_and_its_files(record, page):
    made = page(record("uneven"))
    figures = re.findall(r"<figure.*?</figure>", made, flags=re.DOTALL)
    assert len(figures) == 8
    for figure in figures:
        assert figure.count("<svg") == 1
        assert "<table>" in figure
        files = dict(re.findall(r'href="data:([^;]+);charset=utf-8;base64,([^"]+)"', figure))
        assert set(files) == {"image/svg+xml", "text/csv"}
        assert base64.b64decode(files["image/svg+xml"]).startswith(b"<svg")
        assert len(base64.b64decode(files["text/csv"]).splitlines()) >= 3


def test_the_data_are_those_of_the_record(record, page):
    content = record("uneven")
    made = page(content)
    files = [
        base64.b64decode(data) for data in re.findall(r"csv;charset=utf-8;base64,([^\"]+)", made)
    ]
    tables = [[line.split(",") for line in file.decode().splitlines()] for file in files]
    spent = next(t for t in tables if t[0] == ["round", "south", "west", "north"])
    assert [float(row[1]) for row in spent[1:]] == content["epsilon_after_rounds"]["south"]
    change = next(t for t in tables if t[0] == ["round", "distance since the round before"])
    assert [float(row[1]) for row in change[1:]] == content["history"]["change"]


def test_a_course_that_is_longer_than_the_run_says_what_its_last_figure_is(record, page):
    content = record("uneven")
    words = "The last is with the histogram"
    assert words not in page(content)
    for spent in content["epsilon_after_rounds"].values():
        spent.append(2 * spent[-1])
    assert words in page(content)


def test_a_page_is_small_whatever_the_run(record, page):
    content = record("uneven")
    rounds, parties = 20_000, 2_000
    names = [f"party {number}" for number in range(parties)]
    guarantee = content["privacy"]["parties"]["north"]
    content["parties"] = [{"name": name, "rows": 7} for name in names]
    content["privacy"]["parties"] = {
        name: guarantee | {"epsilon": 0.5 + place % 20} for place, name in enumerate(names)
    }
    content["topology"]["edges"] = [[place, place + 1] for place in range(parties - 1)]
    content["history"] = {"change": [0.5] * rounds, "disagreement": [0.25] * rounds}
    content["epsilon_after_rounds"] = {
        name: [0.1 * (place + 1)] * rounds for place, name in enumerate(names[:50])
    }
    content["rounds"] = rounds
    made = page(content)
    assert len(made.encode()) < 1_000_000
    assert "too many to draw" in made
    assert "the record has all 2000" in made


def test_nothing_in_the_page_can_be_fetched_or_run(record, page):
    made = page(record())
    assert "<script" not in made
    assert "default-src 'none'; style-src 'sha256-" in html.unescape(made)
    targets = set(re.findall(r'(?:href|src|action)="([^"]*)"', made))
    assert all(target.startswith(("#", "data:")) for target in targets)
    outside = set(re.findall(r"https?://[^\"'\s<]*", words(made)))
    assert outside == set()


def test_an_old_record_has_a_report_too(record, page):
    content = record()
    for field in ("topology", "learnt", "ledger_checks"):
        del content[field]
    text = words(page(content))
    assert "on a graph that was not recorded" in text
    assert "A run of pr-admm" in text


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"version": 2}, "version"),
        ({"parties": []}, "parties"),
        ({"parties": [{"name": "nobody", "rows": 1}]}, "'nobody'"),
        ({"history": {"change": [math.nan]}}, "history.change.0"),
        ({"topology": {"name": "ring", "edges": [[0, 9]]}}, "link parties of the run"),
    ],
)
def test_a_bad_record_is_refused_in_one_sentence(record, change, said):
    with pytest.raises(ParameterError, match=re.escape(said)):
        RecordedRun.from_dict(record() | change, "r.json")


def test_a_server_is_drawn(record, page):
    content = record()
    content["topology"] = {"name": "server", "server": True, "edges": []}
    made = page(content)
    assert "3 parties, around a server that holds no rows" in words(made)
    assert made.count('class="link"') == 3
    assert made.count('class="server"') == 1


def test_a_party_with_a_larger_delta_can_be_the_one_at_risk(record):
    content = record()
    risky = content["privacy"]["parties"]["west"]
    risky |= {"epsilon": 0.5, "delta": 0.5, "accountant": "renyi"}
    run = RecordedRun.from_dict(content)
    expected = max(guarantee.odds.right for guarantee in run.privacy.parties.values())
    assert riskiest(run).right == expected == run.privacy.parties["west"].odds.right


def test_runs_side_by_side(records):
    named = [(kind, RecordedRun.from_dict(records[kind])) for kind in ("private", "uneven")]
    text = words(render(runs_report(named)))
    assert "2 runs side by side" in text
    # Basic composition of (1, 1e-4) and (2, 1e-4).
    assert "(3, 0.0002)-differential privacy by basic composition" in text
    # What another run adds below the last bit counts.
    few = []
    for kind, figures in (("private", (1.0, 1e-4)), ("uneven", (1e-17, 1e-22))):
        privacy = records[kind]["privacy"] | dict(zip(("epsilon", "delta"), figures, strict=True))
        few.append((kind, RecordedRun.from_dict(records[kind] | {"privacy": privacy})))
    assert "(1.00001, 0.000100001)-differential privacy by" in words(render(runs_report(few)))
    named.append(("try", RecordedRun.from_dict(records["simulated"])))
    made = render(runs_report(named))
    assert "No total is guaranteed" in words(made)
    assert banners(made)[0] == ("danger", "SIMULATION.")
    assert "basic composition" not in words(made)


def test_a_comparison(compared):
    made = render(read_report(compared / "report.json"))
    text = words(made)
    assert banners(made)[:2] == [("danger", "SIMULATION."), ("caution", "PUBLISHED CALIBRATION.")]
    manifest = json.loads((compared / "manifest.json").read_text())
    for phrase in ("waveform", "pr-admm (published)", "pooled", "dpadmm compare small", "exp-norm"):
        assert phrase in text
    # The verdict, the ranking by the first measure, then a figure for every measure.
    assert text.index(manifest["headline"]) < text.index("Who is ahead: test accuracy")
    assert text.index(manifest["headline"]) < text.index("Privacy-utility curves")
    assert made.count("<figure") == 1 + len(manifest["comparison"]["measured"])
    means = [bar.value for bar in read_report(compared / "report.json").picture.bars]
    found = [line["figures"].get("test accuracy") for line in manifest["lines"]]
    assert means == sorted((each["mean"] for each in found if each), reverse=True)
    for line in manifest["lines"]:
        for figure in line["figures"].values():
            assert cell_text(figure["mean"]) in text


def dpadmm(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_a_comparison_from_its_folder(tmp_path):
    small = ("--rows-per-party", "50", "--test-rows", "50", "--rounds", "2", "--runs", "2")
    budget = ("--epsilon", "1", "--delta", "1e-3", "--algorithm", "pr-admm", "--jobs", "1")
    made = dpadmm("compare", "waveform", *small, *budget, "--output", tmp_path / "out")
    assert made.exit_code == 0, made.output
    page = (tmp_path / "out" / "report.html").read_text()
    assert banners(page) == [("danger", "SIMULATION."), ("caution", "STAND-IN DATA.")]
    for phrase in ("waveform", "central AMP", "pr-admm", "protects nobody", "One row of one party"):
        assert phrase in words(page)
    assert dpadmm("report", tmp_path / "out", "-o", tmp_path / "again.html").exit_code == 0
    assert (tmp_path / "again.html").read_text() == page


def test_an_experiment_from_its_folder(tmp_path):
    folder = tmp_path / "small"
    reproduce(SmallExperiment(), folder, Store(tmp_path / "cells"))
    page = (folder / "report.html").read_text()
    for phrase in (
        "Fig. 1: Accuracy over rounds",
        "A. Nobody, A paper",
        "The interval of accuracy is above 0.5.",
        "enough for a test",
        "A remark.",
        "dpadmm reproduce small-figure-1",
    ):
        assert phrase in words(page)
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["findings"][0]["number"] in words(page)


def test_what_is_saved_is_the_same_report(compared, rerun):
    for folder in (compared, rerun):
        saved = read_report(folder / "report.json")
        assert render(saved) == (folder / "report.html").read_text()


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"version": 2, "report": {}}',
        '{"version": 1, "report": {"kind": "Words", "text": "a"}}',
        '{"version": 1, "report": {"kind": "Report", "title": "a"}}',
        '{"version": 1, "report": {"kind": "Report", "title": "a", "subtitle": 3}}',
        '{"version": 1, "report": {"kind": "Report", "title": "a", "subtitle": "", "more": 1}}',
        '{"version": 1, "report": {"kind": "open", "file": "a"}}',
        '{"version": 1, "report": ' + "[" * 100_000,
    ],
)
def test_what_is_no_report_is_refused(tmp_path, text):
    (tmp_path / "report.json").write_text(text)
    with pytest.raises(ParameterError, match=r"report (must be readable JSON|that dpadmm saved)"):
        read_report(tmp_path / "report.json")


def test_a_node_that_lost_others_says_so(record):
    content = json.loads(json.dumps(record()))
    content["federation"] = {"rounds_complete": 3, "lost": "west", "went_on_without": ["south"]}
    made = render(run_report(RecordedRun.from_dict(content)))
    found = [heading for _, heading in banners(made)]
    assert "ENDED EARLY." in found
    assert "WENT ON WITHOUT A NODE." in found
    assert "the model of round 3 of" in words(made)


@pytest.mark.parametrize(
    ("kind", "ledgers", "node", "command", "said"),
    [
        ("private", False, False, "dpadmm train run.toml", "Noise is drawn anew"),
        ("private", True, False, "dpadmm train run.toml", "nothing is spent. Under another run_id"),
        ("private", True, True, "dpadmm node --config node.toml", "At every node"),
        ("simulated", False, False, "dpadmm train run.toml", "the same numbers come out"),
        ("without", False, False, "dpadmm train run.toml", "without folders). run.toml"),
    ],
)
def test_how_to_run_it_again(record, page, kind, ledgers, node, command, said):
    """As this run was, and what that spends."""
    content = record(kind) | {"ledgers": {"north": "spent"} if ledgers else {}}
    if node:
        content["federation"] = {"rounds_complete": 3}
    text = words(page(content)).rpartition("Run it again")[2]
    assert text.strip().startswith(command)
    assert said in text
    assert "pip install" not in text
    assert ("budget of the rows is spent once more" in text) == (kind == "private" and not ledgers)


def test_models_that_are_the_same_are_not_drawn_apart(record, page):
    """Differences of 1e-16 say nothing, and a line of zeros none on a scale of logarithms."""
    content = record()
    assert plots_of(run_report(RecordedRun.from_dict(content)), "Agreement of the parties")
    for apart in (0.0, 1e-16):
        content["history"]["disagreement"] = [apart for _ in content["history"]["change"]]
        report = run_report(RecordedRun.from_dict(content))
        assert not plots_of(report, "Agreement of the parties")
        assert "All parties have the same model in every round." in words(render(report))


def test_hostile_names_stay_names(record):
    content = json.loads(json.dumps(record()).replace("north", "<script>alert(1)</script>"))
    made = render(run_report(RecordedRun.from_dict(content)))
    assert "<script" not in made
    assert "<script>alert(1)</script> (60 rows)" in words(made)


def test_weights_are_told_in_units_with_the_error_of_the_noise(record, page):
    content = record()
    learnt = content["learnt"]
    (age,) = (each for each in learnt["weights"] if each["feature"] == "age")
    assert age["unit"] == 0.01
    text = words(page(content))
    assert f"a standard error of about {learnt['noise_error']:.3g}, by public facts" in text
    unit, error = (cell_text(0.01 * each) for each in (age["weight"], learnt["noise_error"]))
    assert re.search(rf"age {re.escape(unit)} one unit {re.escape(error)} (yes|no)", text)
    assert f"intercept {cell_text(learnt['intercepts']['yes'])}" in text


def test_weights_within_two_errors_of_zero_are_grey(record):
    content = record()
    content["learnt"]["noise_error"] = 1.0
    for place, weight in enumerate(content["learnt"]["weights"]):
        weight["weight"] = 2.0 if place else -2.5
    first, *others = (weight["feature"] for weight in content["learnt"]["weights"])
    (plot,) = plots_of(run_report(RecordedRun.from_dict(content)), "Largest weights")
    assert plot.faint == set(others)
    assert (plot.bars[0].name, plot.bars[0].low, plot.bars[0].high) == (first, -4.5, -0.5)
    assert render(run_report(RecordedRun.from_dict(content))).count('class="block faint"') == 2


def plots_of(report, title):
    blocks = [block for section in report.sections for block in section.blocks]
    return [block for block in blocks if getattr(block, "title", "").startswith(title)]


def test_records_of_older_versions_have_no_error_and_no_units(record):
    content = record()
    for name in ("noise_error", "intercepts"):
        del content["learnt"][name]
    report = run_report(RecordedRun.from_dict(content))
    assert not plots_of(report, "Weights in the units")
    assert not plots_of(report, "Largest weights")[0].faint


def test_where_the_error_is_not_known_the_page_says_so(record, page):
    content = record()
    del content["learnt"]["noise_error"]
    assert "How far noise alone moves them is not known" in words(page(content))
    assert "How far noise alone" not in words(page(record("without")))


def test_with_several_classes_each_weight_says_for_which_it_speaks(record):
    content = record()
    weights = content["learnt"]["weights"]
    weights += [weight | {"towards": "no"} for weight in weights]
    content["learnt"]["intercepts"]["no"] = 0.5
    (table,) = plots_of(run_report(RecordedRun.from_dict(content)), "Weights in the units")
    assert table.columns[-1] == "towards"
    assert {(row[0], row[-1]) for row in table.rows} == {
        (name, towards)
        for name in ("age", "age is missing", "intercept")
        for towards in ("no", "yes")
    }
