"""``dpadmm evaluate``: charged once, free when asked again, exact on public rows."""

import csv
import json

import numpy as np
import pytest

from dpadmm.data.schema import load_schema
from dpadmm.ledger.base import ChargedData
from dpadmm.ledger.filters import Policy
from dpadmm.ledger.sqlite import SQLiteLedger
from dpadmm.privacy.figures import AtMost
from dpadmm.run.config import load_config, run_hash
from dpadmm.run.model import load_model, save_model

ROWS = {"north": 60, "south": 40, "west": 20}
HELD_OUT = 'algorithm = "dp-gd"\nepsilon = 20.0\ndelta = 1e-3\nholdout = 0.25\nrun_id = "first"'


def remove_results(folder):
    """Make room for another run."""
    for name in ("m.model", "record.json", "m.html"):
        (folder / name).unlink(missing_ok=True)


def write(folder, run, *, ledgers=None):
    text = (folder / "run.toml").read_text().replace('algorithm = "admm"', run, 1)
    if ledgers is not None:
        ledgers = ledgers if isinstance(ledgers, dict) else {"epsilon": ledgers}
        text += "[ledgers]\n"
        for name, rows in ROWS.items():
            data = ChargedData("rows", name, rows)
            policy = Policy(delta=1e-3, **ledgers)
            SQLiteLedger.create(folder / f"{name}.ledger", data, policy).close()
            text += f'{name} = "{name}.ledger"\n'
    (folder / "run.toml").write_text(text)
    return folder / "run.toml"


def spent(folder, name="north"):
    with SQLiteLedger(folder / f"{name}.ledger") as ledger:
        return ledger.verify().spent_epsilon


def result(done):
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)["result"]


def test_a_run_evaluates_itself_and_is_asked_again_for_nothing(hospitals, dpadmm):
    run = write(hospitals, HELD_OUT + "\nevaluate = true\nprobabilities = true", ledgers=20.0)
    done = dpadmm("train", run)
    assert done.exit_code == 0, done.output
    assert "Evaluated on 30 held-out rows, (20, 0.001)-differential" in done.stdout
    assert max(map(len, done.stdout.split("How good it is\n")[1].splitlines())) <= 100
    before = {name: spent(hospitals, name) for name in ROWS}
    assert max(before.values()) <= 20.0
    told = result(dpadmm("evaluate", run, "--json"))
    assert told["about"] == "held out"
    assert told["rows"] == {"north": 15, "south": 10, "west": 5}
    # A threshold is an edge, is written, and changes predictions.
    assert not told["written"]
    told = result(dpadmm("evaluate", run, "--sensitivity", "0.5", "--write", "--json"))
    assert told["written"]
    assert dpadmm("evaluate", run, "--epsilon", "20").exit_code == 0
    assert {name: spent(hospitals, name) for name in ROWS} == before
    model = load_model(hospitals / "m.model")
    # It is the evaluation of the run itself.
    assert model.privacy.caveats == ()
    quality = model.classifier.quality
    assert quality.threshold == told["threshold"] in quality.histogram.grid.edges
    record = json.loads((hospitals / "record.json").read_text())
    assert record["quality"]["about"] == "held out"
    page = (hospitals / "m.html").read_text()
    assert "How good it is" in page
    assert "ROC curve" in page
    predicted = dpadmm("predict", hospitals / "m.model", hospitals / "north.csv", "--probabilities")
    rows = list(csv.DictReader(predicted.stdout.splitlines()))
    scores = np.array([float(row["score"]) for row in rows])
    assert [row["label"] for row in rows] == [
        "yes" if score > quality.threshold else "no" for score in scores
    ]
    chances = np.array([float(row["probability"]) for row in rows])
    (link,) = quality.links
    np.testing.assert_allclose(
        chances, 1 / (1 + np.exp(-(link.slope * scores + link.offset))), rtol=1e-9
    )
    assert "To evaluate: dpadmm evaluate" in predicted.stderr
    assert "accuracy" not in predicted.output


def test_an_evaluation_afterwards_is_charged_once(hospitals, dpadmm):
    run = write(hospitals, HELD_OUT, ledgers=25.0)
    assert dpadmm("train", run).exit_code == 0
    with SQLiteLedger(hospitals / "north.ledger") as ledger:
        assert len(ledger.account.runs) == 1
        assert [tuple(piece.rows) for piece in ledger.account.parts] == [(0, 45), (45, 60)]
    first = result(dpadmm("evaluate", run, "--json"))
    after = spent(hospitals)
    assert after <= 20.0
    assert load_model(hospitals / "m.model").classifier.quality is not None
    # The same once more is the same run: its message is in the ledger.
    again = result(dpadmm("evaluate", run, "--epsilon", "20", "--json"))
    assert again["evaluation"] == first["evaluation"]
    assert spent(hospitals) == after
    (caveat,) = load_model(hospitals / "m.model").privacy.caveats
    assert caveat.startswith("Evaluated after the run, on the rows kept out of training, for (20, ")
    # Another one adds up on the rows kept out, and is refused where it does not fit.
    refused = dpadmm("evaluate", run, "--epsilon", "24")
    assert refused.exit_code == 2
    assert "is left for rows 46 to 60" in refused.stderr
    assert spent(hospitals) == after


def test_rows_in_another_order_cannot_be_told_and_are_said_not_to_be_covered(hospitals, dpadmm):
    run = write(hospitals, HELD_OUT, ledgers=20.0)
    assert dpadmm("train", run).exit_code == 0
    header, *lines = (hospitals / "north.csv").read_text().splitlines()
    (hospitals / "north.csv").write_text("\n".join([header, *reversed(lines)]) + "\n")
    assert dpadmm("evaluate", run).exit_code == 0
    model = load_model(hospitals / "m.model")
    for statement in (model.privacy, model.classifier.quality.privacy):
        assert any("or that changes between runs" in each for each in statement.not_covered)


def test_a_refusal_comes_before_a_row_is_read(hospitals, dpadmm):
    run = write(hospitals, HELD_OUT, ledgers=20.0)
    assert dpadmm("train", run).exit_code == 0
    header = (hospitals / "north.csv").read_text().splitlines()[0]
    # A file that no reader takes for 60 rows.
    (hospitals / "north.csv").write_text(header + "\n")
    refused = dpadmm("evaluate", run, "--epsilon", "30")
    assert "is left for rows 46 to 60" in refused.stderr
    assert "must have at least one row" in dpadmm("evaluate", run).stderr


def test_rows_that_were_trained_on_have_a_price_that_is_said(hospitals, dpadmm):
    run = write(hospitals, 'algorithm = "dp-gd"\nepsilon = 1.0\ndelta = 1e-3', ledgers=9.0)
    assert dpadmm("train", run).exit_code == 0
    assert "epsilon must be given where no rows were kept out" in dpadmm("evaluate", run).stderr
    before = spent(hospitals)
    told = result(dpadmm("evaluate", run, "--epsilon", "5", "--json"))
    assert told["about"] == "trained on"
    assert "optimistic" in told["words"]
    assert spent(hospitals) > max(before, 5.0)
    # What the statement of the training does not count it tells, wherever it is shown.
    caveat = (
        "Evaluated after the run, on the rows that were trained on, for (5, 0.001)-differential "
        "privacy: that is not part of what this statement guarantees, and adds to it."
    )
    assert load_model(hospitals / "m.model").privacy.caveats == (caveat,)
    record = json.loads((hospitals / "record.json").read_text())
    assert record["privacy"]["caveats"] == [caveat]
    assert f"MORE WAS SPENT.</strong> {caveat}" in (hospitals / "m.html").read_text()
    # Asked again it is answered from the ledgers, and cost nothing more; another one did.
    dpadmm("evaluate", run, "--epsilon", "5")
    assert load_model(hospitals / "m.model").privacy.caveats == (caveat,)
    assert dpadmm("evaluate", run, "--epsilon", "3").exit_code == 0
    dpadmm("evaluate", run, "--epsilon", "3")
    told = load_model(hospitals / "m.model").privacy.caveats
    assert told[:2] == (caveat, caveat.replace("(5, ", "(3, "))
    # And what both and the training come to is the ledgers' own figure.
    (in_all,) = told[2:]
    assert in_all.startswith("In all, the training and all 2 evaluations that the ledgers have")
    assert f"({AtMost(spent(hospitals))}, 0.001)-differentially private" in in_all


def test_public_rows_are_exact_and_said_to_be_public(hospitals, dpadmm):
    run = write(hospitals, 'algorithm = "dp-gd"\nepsilon = 5.0\ndelta = 1e-3\nsimulation_key = 1')
    assert dpadmm("train", run).exit_code == 0
    model, public = hospitals / "m.model", hospitals / "north.csv"
    simulated = dpadmm("evaluate", run, "--epsilon", "5").stdout
    assert "SIMULATION, which protects nobody; with secret noise (5, 0.001)-diff" in simulated
    told = result(dpadmm("evaluate", model, "--public", public, "--json"))
    rows = list(csv.DictReader(dpadmm("predict", model, public).stdout.splitlines()))
    truth = [row["y"] for row in csv.DictReader(public.read_text().splitlines())]
    right = np.mean([row["label"] == label for row, label in zip(rows, truth, strict=True)])
    assert told["evaluation"]["accuracy"]["estimate"] == pytest.approx(right)
    assert told["evaluation"]["noise_variance"] == 0.0
    assert "public rows" in told["words"]
    shown = dpadmm("evaluate", model, "--public", public)
    assert "public rows: exact counts, nothing was charged" in shown.stdout
    # What was released before stays: public rows do not take its place.
    assert load_model(model).classifier.quality.about == "trained on"


def test_odd_wishes_are_refused_in_a_sentence(hospitals, dpadmm):
    run = write(hospitals, 'algorithm = "dp-gd"\nepsilon = 5.0\ndelta = 1e-3\nsimulation_key = 1')
    assert dpadmm("train", run).exit_code == 0
    model = hospitals / "m.model"
    assert "rows must be given" in dpadmm("evaluate", model).stderr
    public = ("evaluate", model, "--public", hospitals / "north.csv")
    assert "must be left out with --public" in dpadmm(*public, "--epsilon", "1").stderr
    both = ("--sensitivity", "0.9", "--specificity", "0.9")
    assert "must be given, not several" in dpadmm(*public, *both).stderr
    no_probabilities = dpadmm("predict", model, hospitals / "north.csv", "--probabilities")
    assert no_probabilities.exit_code == 2
    assert "probabilities = true" in no_probabilities.stderr


@pytest.mark.parametrize(
    ("run", "sentence"),
    [
        ('algorithm = "dp-gd"\nevaluate = true', "evaluate must have rows that were kept out"),
        ('algorithm = "admm"\nholdout = 0.2\nevaluate = true', "which is not private"),
        ('algorithm = "dp-gd"\nholdout = 1.5', "holdout"),
    ],
)
def test_a_run_that_cannot_be_evaluated_is_refused(hospitals, dpadmm, run, sentence):
    done = dpadmm("train", write(hospitals, run))
    assert done.exit_code == 2
    assert sentence in done.stderr


@pytest.mark.parametrize("ledgers", [None, 25.0])
def test_rows_are_not_called_kept_out_of_a_training_that_read_them(hospitals, dpadmm, ledgers):
    whole = 'algorithm = "dp-gd"\nepsilon = 1.0\ndelta = 1e-3\nrun_id = "first"'
    run = write(hospitals, whole, ledgers=ledgers)
    assert dpadmm("train", run).exit_code == 0
    # The same run by name, with a holdout that its training did not have.
    run.write_text(run.read_text().replace('run_id = "first"', 'run_id = "first"\nholdout = 0.25'))
    refused = dpadmm("evaluate", run)
    assert refused.exit_code == 2
    assert "which has no holdout, here holdout = 0.25" in refused.stderr
    assert load_model(hospitals / "m.model").classifier.quality is None


def test_a_ledger_knows_which_rows_a_run_was_trained_on(hospitals, dpadmm):
    run = write(hospitals, HELD_OUT.replace("20.0", "1.0"), ledgers=25.0)
    assert dpadmm("train", run).exit_code == 0
    text = run.read_text()
    # Another model takes the place of the first: trained on all rows, and said to be otherwise.
    run.write_text(text.replace("holdout = 0.25", "").replace('"first"', '"second"'))
    remove_results(hospitals)
    assert dpadmm("train", run).exit_code == 0
    model = load_model(hospitals / "m.model")
    run.write_text(text.replace('"first"', '"second"'))
    told = load_config(run)
    schema = load_schema(hospitals / "schema.toml")
    model.provenance["run_sha256"] = run_hash(told, schema.sha256, ROWS)
    save_model(hospitals / "m.model", model)
    (hospitals / "record.json").unlink()
    refused = dpadmm("evaluate", run)
    assert refused.exit_code == 2
    assert "holdout must be what run 'second' was trained with" in refused.stderr


def test_rows_are_evaluated_as_they_were_trained_on(hospitals, dpadmm, monkeypatch):
    """Of other spellings the ledgers would hand out the histogram that was paid for before."""
    run = write(hospitals, HELD_OUT, ledgers=20.0)
    assert dpadmm("train", run).exit_code == 0
    before = spent(hospitals)
    run.write_text(run.read_text().replace("[data]", "[data]\nignore_case = true"))

    def never(*args):
        raise AssertionError("rows were read")

    monkeypatch.setattr("dpadmm.run.evaluate_files.look_first", never)
    monkeypatch.setattr("dpadmm.run.evaluate_files.read_parties", never)
    done = dpadmm("evaluate", run)
    assert done.exit_code == 2
    assert "must say how files are read as they did" in " ".join(done.output.split())
    assert spent(hospitals) == before


def test_the_same_evaluation_is_known_in_whatever_order_ledgers_are_named(hospitals, dpadmm):
    run = write(hospitals, HELD_OUT.replace('run_id = "first"', "evaluate = true"), ledgers=20.0)
    parties, ledgers = run.read_text().split("[ledgers]\n")
    run.write_text(parties + "[ledgers]\n" + "\n".join(reversed(ledgers.splitlines())) + "\n")
    assert dpadmm("train", run).exit_code == 0
    first = result(dpadmm("evaluate", run, "--json"))
    # All of the budget is spent: only what is known already can be said again.
    again = result(dpadmm("evaluate", run, "--epsilon", "20", "--json"))
    assert again["evaluation"] == first["evaluation"]


def test_an_evaluation_that_no_ledger_counts_says_that_it_adds_up(hospitals, dpadmm):
    run = write(hospitals, HELD_OUT)
    assert dpadmm("train", run).exit_code == 0
    first = dpadmm("evaluate", run)
    assert first.exit_code == 0, first.output
    assert "spends its epsilon anew" not in first.stderr
    assert "spends its epsilon anew" in dpadmm("evaluate", run, "--epsilon", "1").stderr
    dpadmm("evaluate", run, "--epsilon", "1")
    caveats = load_model(hospitals / "m.model").privacy.caveats
    assert ["(20, " in each for each in caveats] == [True, False, False]


@pytest.mark.parametrize(
    "wish",
    [
        ("--sensitivity", "5"),
        ("--specificity", "nan"),
        ("--threshold", "nan"),
        ("--confidence", "7"),
    ],
)
def test_what_no_histogram_could_answer_is_refused_before_one_is_paid_for(hospitals, dpadmm, wish):
    run = write(hospitals, HELD_OUT, ledgers=20.0)
    assert dpadmm("train", run).exit_code == 0
    with SQLiteLedger(hospitals / "north.ledger") as ledger:
        before = ledger.head
    refused = dpadmm("evaluate", run, *wish)
    assert refused.exit_code == 2
    assert "must be a" in refused.stderr
    with SQLiteLedger(hospitals / "north.ledger") as ledger:
        assert ledger.head == before


def test_what_was_paid_for_is_kept_though_a_threshold_is_out_of_reach(hospitals, dpadmm):
    run = write(hospitals, HELD_OUT)
    assert dpadmm("train", run).exit_code == 0
    refused = dpadmm("evaluate", run, "--epsilon", "0.01", "--sensitivity", "0.999", "--sure")
    assert refused.exit_code == 2
    model = load_model(hospitals / "m.model")
    assert model.classifier.quality is not None
    assert "(0.01, 0.001)" in model.privacy.caveats[-1]


def test_places_that_could_not_keep_an_evaluation_are_refused_before_it_is_paid_for(
    hospitals, dpadmm
):
    run = write(hospitals, HELD_OUT, ledgers=20.0)
    assert dpadmm("train", run).exit_code == 0
    with SQLiteLedger(hospitals / "north.ledger") as ledger:
        before = ledger.head
    record = (hospitals / "record.json").read_text()
    (hospitals / "record.json").write_text("no record")
    refused = dpadmm("evaluate", run)
    assert refused.exit_code == 2
    assert "must be a readable JSON file" in refused.stderr
    (hospitals / "record.json").write_text(record)
    (hospitals / "m.html").unlink()
    (hospitals / "m.html").mkdir()
    refused = dpadmm("evaluate", run)
    assert refused.exit_code == 2
    assert "report must be a file" in refused.stderr
    with SQLiteLedger(hospitals / "north.ledger") as ledger:
        assert ledger.head == before


def test_how_much_to_spend_must_be_said_where_a_person_may_have_rows_in_both_parts(
    hospitals, dpadmm
):
    told = 'algorithm = "dvp"\nepsilon = 20.0\ndelta = 1e-3\nholdout = 0.25\nsimulation_key = 1'
    run = write(hospitals, told + "\nrows_per_person = 2")
    done = dpadmm("train", run)
    assert done.exit_code == 0, done.output
    refused = dpadmm("evaluate", run)
    assert refused.exit_code == 2
    assert "epsilon must be given where a person may have several rows" in refused.stderr
    done = dpadmm("evaluate", run, "--epsilon", "3")
    assert done.exit_code == 0, done.output
    (caveat,) = load_model(hospitals / "m.model").privacy.caveats
    assert "adds to it, since a person may have rows among both" in caveat


def test_what_is_said_of_an_evaluation_says_what_it_rests_on(hospitals, dpadmm):
    run = write(hospitals, HELD_OUT.replace('run_id = "first"', "simulation_key = 1"))
    assert dpadmm("train", run).exit_code == 0
    for _ in range(2):
        done = dpadmm("evaluate", run, "--verbose")
        assert done.exit_code == 0, done.output
        for heading in ("Guarantee", "Rows", "Adjacency", "Adversary", "Theorem", "Not covered"):
            assert f"\n{heading}: " in done.stdout


def test_a_run_that_is_repeated_from_its_ledgers_counts_later_evaluations(hospitals, dpadmm):
    run = write(hospitals, HELD_OUT.replace("20.0", "1.0"), ledgers=25.0)
    assert dpadmm("train", run).exit_code == 0
    assert dpadmm("evaluate", run, "--epsilon", "3").exit_code == 0
    assert load_model(hospitals / "m.model").privacy.epsilon <= 1.0
    assert dpadmm("train", run).exit_code == 0
    stated = load_model(hospitals / "m.model").privacy
    assert stated.epsilon == pytest.approx(3.0, rel=1e-5)
    (caveat,) = stated.caveats
    assert "the ledgers have 1 other evaluation under this run, counted here" in caveat
    assert "this statement is about the others" not in str(stated)
    assert json.loads((hospitals / "record.json").read_text())["privacy"]["caveats"] == [caveat]
    assert "OVER BUDGET." in (hospitals / "m.html").read_text()
    # Another run has another model, of which nothing is known yet.
    run.write_text(run.read_text().replace('"first"', '"second"'))
    remove_results(hospitals)
    assert dpadmm("train", run).exit_code == 0
    assert load_model(hospitals / "m.model").privacy.caveats == ()


def test_a_sharper_evaluation_leaves_predictions_as_they_were(hospitals, dpadmm):
    run = write(hospitals, HELD_OUT.replace('run_id = "first"', "simulation_key = 1"))
    assert dpadmm("train", run).exit_code == 0
    chosen = ("--threshold", "0.1", "--probabilities", "--write")
    assert dpadmm("evaluate", run, *chosen).exit_code == 0
    before = load_model(hospitals / "m.model").classifier.quality
    assert dpadmm("evaluate", run, "--epsilon", "100").exit_code == 0
    after = load_model(hospitals / "m.model").classifier.quality
    assert after.histogram.noise_variance < before.histogram.noise_variance
    assert (after.threshold, after.links) == (before.threshold, before.links)
    assert after.links


def test_a_file_that_has_shrunk_has_other_last_rows(hospitals, dpadmm):
    simulated = HELD_OUT.replace('run_id = "first"', "simulation_key = 1")
    run = write(hospitals, simulated)
    assert dpadmm("train", run).exit_code == 0
    lines = (hospitals / "north.csv").read_text().splitlines()
    (hospitals / "north.csv").write_text("\n".join(lines[:31]) + "\n")
    refused = dpadmm("evaluate", run)
    assert refused.exit_code == 2
    assert "rows of party north must be as many as the model was trained with, 60" in refused.stderr


def test_labels_that_are_protected_apart_are_not_counted(hospitals, dpadmm):
    run = write(hospitals, 'algorithm = "pdml"\nepsilon = 5.0\ndelta = 1e-3\nsimulation_key = 1')
    done = dpadmm("train", run)
    assert done.exit_code == 0, done.output
    refused = dpadmm("evaluate", run, "--epsilon", "5")
    assert refused.exit_code == 2
    assert "a histogram counts true labels" in refused.stderr


def test_a_ledger_says_against_whom_it_holds_where_earlier_runs_shared_their_noise(
    hospitals, dpadmm
):
    shared = 'algorithm = "dp-gd"\nepsilon = 1.0\ndelta = 1e-3\nrun_id = "shared"\n'
    shared += 'algorithm_options = { noise = "shared" }'
    run = write(hospitals, shared, ledgers={"epsilon": 20.0, "colluders": 1})
    weaker = "Adversary: the server or any listener"
    done = dpadmm("train", run, "--verbose")
    assert done.exit_code == 0, done.output
    # What the statement of the run says is not said again with each ledger; its theorem is another.
    assert done.stdout.count(weaker) == 1
    assert done.stdout.count("Filter: gaussian") == len(ROWS)
    own = run.read_text().replace('noise = "shared"', "")
    run.write_text(own.replace('run_id = "shared"', 'run_id = "own"'))
    remove_results(hospitals)
    done = dpadmm("train", run, "--verbose")
    assert done.exit_code == 0, done.output
    assert done.stdout.count("Adversary: sees every message") == 1
    assert done.stdout.count(weaker) == len(ROWS)


SMALL = HELD_OUT.replace("20.0", "1.0")


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@pytest.mark.parametrize("ledgers", [None, 25.0])
@pytest.mark.parametrize(
    "asked", [(), ("--epsilon", "2"), ("--threshold", "0.1", "--write"), ("--public", "north.csv")]
)
def test_what_is_written_of_a_run_is_not_about_the_model_of_another(
    hospitals, dpadmm, ledgers, asked
):
    """The statement of the one would stand beside the weights of the other, at half its epsilon."""
    run = write(hospitals, SMALL + "\nevaluate = true", ledgers=ledgers)
    assert dpadmm("train", run).exit_code == 0
    text = run.read_text().replace("epsilon = 1.0", "epsilon = 0.5").replace('"first"', '"second"')
    other = hospitals / "other.toml"
    other.write_text(text.replace('"m.model"', '"v2.model"').replace('"record.json"', '"v2.json"'))
    assert dpadmm("train", other).exit_code == 0
    # Now the second run's configuration names the model of the first.
    other.write_text(text.replace('"record.json"', '"v2.json"'))
    before = files(hospitals)
    asked = [hospitals / each if each == "north.csv" else each for each in asked]
    refused = dpadmm("evaluate", other, *asked)
    assert refused.exit_code == 2
    assert "model must be of the run of this configuration; this one is of run" in refused.stderr
    assert "epsilon = 1.0, here epsilon = 0.5" in refused.stderr
    assert "run_id = 'first', here run_id = 'second'" in refused.stderr
    assert files(hospitals) == before
    assert dpadmm("evaluate", run).exit_code == 0


def test_a_run_of_other_parties_is_another(hospitals, dpadmm):
    run = write(hospitals, HELD_OUT)
    assert dpadmm("train", run).exit_code == 0
    run.write_text(run.read_text().replace('name = "north"', 'name = "east"'))
    refused = dpadmm("evaluate", run)
    assert refused.exit_code == 2
    assert "of other parties" in refused.stderr
    assert load_model(hospitals / "m.model").classifier.quality is None


def test_a_record_of_another_training_is_left_alone(hospitals, dpadmm):
    run = write(hospitals, HELD_OUT)
    assert dpadmm("train", run).exit_code == 0
    record = (hospitals / "record.json").read_bytes()
    # Without ledgers the same run has other noise: it is another training of the same hash.
    assert dpadmm("train", run).exit_code == 0
    (hospitals / "record.json").write_bytes(record)
    before = files(hospitals)
    refused = dpadmm("evaluate", run)
    assert refused.exit_code == 2
    assert "record must be that of the model" in refused.stderr
    assert files(hospitals) == before


@pytest.mark.parametrize(
    "wish",
    ["holdout = 0.25\nevaluate = true", "probabilities = true"],
)
def test_what_the_ledgers_have_of_a_run_is_in_every_statement_of_it(hospitals, dpadmm, wish):
    """Other ways to sum up the same messages make other models, and each evaluation is charged."""
    run = write(hospitals, SMALL.replace("holdout = 0.25", wish), ledgers=5.0)
    text, counted = run.read_text(), []
    for number, output in enumerate(("last", "mean", "tail")):
        run.write_text(text.replace("[run]", f'[run]\noutput = "{output}"'))
        remove_results(hospitals)
        done = dpadmm("train", run)
        assert done.exit_code == 0, done.output
        told = result(dpadmm("train", run, "--json"))["privacy"]
        stated = load_model(hospitals / "m.model").privacy
        recorded = json.loads((hospitals / "record.json").read_text())["privacy"]
        assert stated.epsilon == pytest.approx(spent(hospitals), rel=1e-5)
        assert stated.epsilon == told["epsilon"] == recorded["epsilon"]
        assert f"Guarantee: ({AtMost(stated.epsilon)}, 0.001)-differential privacy" in done.stdout
        named = [f"the ledgers have {number} other evaluation" in each for each in stated.caveats]
        assert named == [True] * bool(number)
        assert list(stated.caveats) == told["caveats"] == recorded["caveats"]
        assert all(f"Caveat: {each}" in done.stdout for each in stated.caveats)
        counted.append(stated.epsilon)
    assert counted[0] <= 1.0 < counted[0] + 0.05 < counted[1] < counted[2]
    # Asked once more of the first model, for nothing, the evaluation says what there is in all.
    run.write_text(text.replace("[run]", '[run]\noutput = "last"'))
    remove_results(hospitals)
    assert dpadmm("train", run).exit_code == 0
    assert load_model(hospitals / "m.model").privacy.epsilon == pytest.approx(counted[2])
    before = spent(hospitals)
    done = dpadmm("evaluate", run, "--epsilon", "0.2")
    assert done.exit_code == 0, done.output
    assert spent(hospitals) > before
    in_all = f"are ({AtMost(spent(hospitals))}, 0.001)-differentially private"
    assert in_all in done.stdout
    assert in_all in load_model(hospitals / "m.model").privacy.caveats[-1]
    assert in_all in json.loads((hospitals / "record.json").read_text())["privacy"]["caveats"][-1]


def test_a_training_whose_evaluation_does_not_fit_beside_another_reads_no_row(hospitals, dpadmm):
    run = write(hospitals, HELD_OUT)
    assert dpadmm("train", run).exit_code == 0
    # The model of a training that no ledger knows is evaluated: nothing is left for another.
    text = write(hospitals, HELD_OUT, ledgers=20.0).read_text()
    assert dpadmm("evaluate", run).exit_code == 0
    run.write_text(
        text.replace('"first"', '"first"\nevaluate = true').replace("m.model", "n.model")
    )
    remove_results(hospitals)
    header = (hospitals / "north.csv").read_text().splitlines()[0]
    (hospitals / "north.csv").write_text(header + "\n")
    heads = [spent(hospitals, name) for name in ROWS]
    refused = dpadmm("train", run)
    assert refused.exit_code == 2
    assert "is left for rows 46 to 60" in refused.stderr
    assert "it was not charged to the ledger of north" in refused.stderr
    assert "nothing was charged" not in refused.stderr
    assert [spent(hospitals, name) for name in ROWS] == heads
    for name in ROWS:
        with SQLiteLedger(hospitals / f"{name}.ledger") as ledger:
            assert "first" not in ledger.account.runs
    assert "no ledger was charged more than before" in (hospitals / "n.refused.html").read_text()


def test_a_training_that_was_paid_for_leaves_its_model_where_another_was_evaluated(
    hospitals, dpadmm
):
    run = write(hospitals, HELD_OUT + "\nevaluate = true\nprobabilities = true", ledgers=20.0)
    assert dpadmm("train", run).exit_code == 0
    before = {name: spent(hospitals, name) for name in ROWS}
    # Another model of the same messages: they are paid for, its evaluation does not fit.
    run.write_text(run.read_text().replace("[run]", '[run]\noutput = "last"'))
    remove_results(hospitals)
    done = dpadmm("train", run, "--json")
    assert done.exit_code == 0, done.output
    (warning,) = result(done)["warnings"]
    assert "the model was trained and not evaluated" in warning
    assert "it was not charged to the ledger of north" in warning
    assert {name: spent(hospitals, name) for name in ROWS} == before
    model = load_model(hospitals / "m.model")
    assert model.classifier.quality is None
    assert "1 other evaluation under this run" in model.privacy.caveats[0]
    refused = dpadmm("predict", hospitals / "m.model", hospitals / "north.csv", "--probabilities")
    assert refused.exit_code == 2
