"""Descriptive statistics: exact without noise, bounded rows whatever they hold, refusals first."""

import json

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

import dpadmm
from dpadmm.data.schema import Schema
from dpadmm.data.study_rows import StudyColumns, read_study_rows
from dpadmm.errors import DataError, LedgerError, ParameterError
from dpadmm.ledger.base import ChargedData
from dpadmm.ledger.filters import Policy
from dpadmm.ledger.sqlite import SQLiteLedger
from dpadmm.run.charges import EvaluationTerms
from dpadmm.studies.describe import Axis, Describe, Moments, Products, Tally, described
from dpadmm.studies.describe_figures import NOT_ENOUGH, ReadOff
from dpadmm.studies.describe_files import Describing, relative_width

SCHEMA = Schema.from_dict(
    {
        "version": 2,
        "party": "site",
        "label": {"column": "died", "classes": ["no", "yes"]},
        "columns": [
            {"name": "age", "kind": "numeric", "lower": 0.0, "upper": 100.0, "missing": False},
            {"name": "crp", "kind": "numeric", "lower": 0.0, "upper": 400.0},
            {"name": "bmi", "kind": "numeric", "lower": 10.0, "upper": 60.0, "missing": False},
            {"name": "ward", "kind": "categorical", "levels": ["a", "b", "c"]},
        ],
    }
)
NO_NOISE = {"epsilon": 1e12, "delta": 1e-6, "random_state": 1}


@pytest.fixture(scope="module")
def frame():
    random = np.random.default_rng(8)
    count = 4000
    age = np.clip(random.normal(60, 12, count), 0, 100)
    crp = np.clip(random.lognormal(2, 1, count), 0, 400)
    crp[random.random(count) < 0.15] = np.nan
    return pd.DataFrame(
        {
            "site": random.choice(["north", "south", "west"], count),
            "age": age,
            "crp": crp,
            "bmi": np.clip(0.1 * age + random.normal(20, 4, count), 10, 60),
            "ward": random.choice(["a", "b", "c"], count, p=[0.6, 0.3, 0.1]),
            "died": random.choice(["no", "yes"], count, p=[0.8, 0.2]),
        }
    )


def by_name(found):
    return {(each.kind, each.column, each.group, each.item): each for each in found.figures}


@pytest.mark.parametrize("noise", ["own", "shared"])
def test_without_noise_figures_are_those_of_pandas(frame, noise):
    wishes = [
        {"kind": "proportion", "columns": ["ward", "died"]},
        {"kind": "count", "columns": ["died"], "by": "ward"},
        {"kind": "mean", "columns": ["age", "crp"]},
        {"kind": "sd", "columns": ["age", "crp"]},
        {"kind": "mean", "columns": ["crp"], "by": "ward"},
        {"kind": "sd", "columns": ["age"], "by": "died"},
        {"kind": "histogram", "columns": ["age"], "bins": 10},
        {"kind": "table", "columns": ["ward", "died"]},
        {"kind": "correlation", "columns": ["age", "bmi"]},
        {"kind": "correlation", "columns": ["age", "bmi", "crp"]},
    ]
    given = NO_NOISE | ({"epsilon": 1e5} if noise == "shared" else {})
    found = by_name(dpadmm.describe(frame, wishes, schema=SCHEMA, noise=noise, **given))
    near = {"rtol": 5e-3, "atol": 5e-3} if noise == "shared" else {"rtol": 1e-6, "atol": 1e-6}

    def same(key, expected):
        assert_allclose(found[key].value, expected, **near)
        assert found[key].low <= found[key].value <= found[key].high

    for level, share in frame["ward"].value_counts(normalize=True).items():
        same(("proportion", "ward", None, level), share)
    for (ward, died), count in frame.groupby(["ward", "died"]).size().items():
        same(("count", "died", f"ward={ward}", died), count)
        same(("table", "ward x died", None, f"{ward}, {died}"), count / len(frame))
    for name in ("age", "crp"):
        same(("mean", name, None, None), frame[name].mean())
        same(("sd", name, None, None), frame[name].std(ddof=0))
    for ward, mean in frame.groupby("ward")["crp"].mean().items():
        same(("mean", "crp", f"ward={ward}", None), mean)
    for died, spread in frame.groupby("died")["age"].std(ddof=0).items():
        same(("sd", "age", f"died={died}", None), spread)
    counts, edges = np.histogram(frame["age"], bins=10, range=(0, 100))
    for count, low, high in zip(counts, edges, edges[1:], strict=False):
        same(("histogram", "age", None, f"{low:g} to {high:g}"), count / len(frame))
    # Of two wishes for the same pair the later one has rows with all three.
    complete = frame.dropna()[["age", "bmi", "crp"]].corr()
    same(("correlation", "age x bmi", None, None), complete.loc["age", "bmi"])
    same(("correlation", "bmi x crp", None, None), complete.loc["bmi", "crp"])


@pytest.mark.parametrize("smooth", [False, True])
def test_quantiles_are_within_a_bin(frame, smooth):
    wish = {"kind": "quantiles", "columns": ["age", "crp"], "levels": [0.1, 0.5, 0.9]}
    found = by_name(dpadmm.describe(frame, [wish | {"smooth": smooth}], schema=SCHEMA, **NO_NOISE))
    for name, width in (("age", 100 / 32), ("crp", 400 / 32)):
        for level in (0.1, 0.5, 0.9):
            figure = found["quantiles", name, None, f"{100 * level:g}%"]
            exact = frame[name].quantile(level)
            assert abs(figure.value - exact) < width
            assert figure.low <= figure.value <= figure.high
            if not smooth:
                assert figure.low <= exact <= figure.high


def strange_rows():
    """Rows at every corner, and beyond what any schema gives."""
    random = np.random.default_rng(0)
    corners = np.array(np.meshgrid(*[[-1.0, 0.0, 0.3, 1.0]] * 3)).reshape(3, -1).T
    flags = random.integers(0, 2, (len(corners), 1)).astype(float)
    codes = random.integers(0, 5, (len(corners), 1)).astype(float)
    rows = np.hstack([corners, flags, codes])
    beyond = random.choice([-1e9, -3.0, -1.0, 0.5, 1.0, 7.0, 1e300], (64, 5))
    return np.vstack([rows, beyond])


GROUP = Axis(place=4, levels=5)
PARTS = [
    Tally(axes=(GROUP,)),
    Tally(axes=(GROUP, Axis(place=0, edges=(-0.5, 0.0, 0.5), levels=4, flags=(3,)))),
    Tally(axes=(Axis(levels=1, flags=(3,)),)),
    Moments(place=0),
    Moments(place=1, flags=(3,)),
    Moments(place=0, flags=(3,), group=GROUP),
    Products(places=(0, 1), norm=1.0),
    Products(places=(0, 1, 2), flags=(3,), norm=np.sqrt(3)),
    Products(places=(0, 1, 2), norm=0.7),
]


@pytest.mark.parametrize("part", PARTS, ids=lambda part: type(part).__name__)
def test_no_row_moves_a_part_by_more_than_its_sensitivity(part):
    block = part.block("it")
    vectors = np.array([part.add_up(row[None]) for row in strange_rows()])
    assert vectors.shape[1] == block.size
    assert np.isfinite(vectors).all()
    assert np.linalg.norm(vectors, axis=1).max() <= block.largest * (1 + 1e-12)
    apart = np.linalg.norm(vectors[:, None] - vectors[None], axis=-1).max()
    assert apart <= block.sensitivity * (1 + 1e-12)
    # The bound is the theorem's: nearly reached, so that noise is not wasted either.
    assert apart >= 0.95 * block.sensitivity


def test_sums_are_those_of_row_by_row():
    rows = strange_rows()
    for part in PARTS:
        each = sum(part.add_up(row[None]) for row in rows)
        assert_allclose(part.add_up(rows), each, atol=1e-9)


def test_a_cell_that_is_counted_twice_would_be_seen():
    """What the sensitivity test above is worth: a mutant of a table fails it."""

    class Twice(Tally):
        def add_up(self, rows):
            return 2 * super().add_up(rows)

    part = Twice(axes=(GROUP,))
    vectors = np.array([part.add_up(row[None]) for row in strange_rows()])
    apart = np.linalg.norm(vectors[:, None] - vectors[None], axis=-1).max()
    assert apart > 1.9 * part.block("it").sensitivity


@pytest.mark.parametrize(
    ("wish", "words"),
    [
        ({"kind": "mean", "columns": ["ward"]}, "numeric column with public bounds"),
        ({"kind": "proportion", "columns": ["age"]}, "categorical column with public levels"),
        ({"kind": "mean", "columns": ["height"]}, "numeric column with public bounds"),
        ({"kind": "mean", "columns": ["age"], "by": "bmi"}, "categorical column with public"),
        ({"kind": "median", "columns": ["age"]}, "wish 1, kind"),
        ({"kind": "quantiles", "columns": ["age"], "bins": 8}, "at least 16"),
        ({"kind": "correlation", "columns": ["age"]}, "two or more"),
        ({"kind": "table", "columns": ["ward", "age"]}, "bins must be given"),
        ({"kind": "table", "columns": ["ward", "age", "bmi"], "bins": 100}, "at most 4096 cells"),
        ({"kind": "correlation", "columns": ["age", "bmi"], "by": "ward"}, "by must be left out"),
    ],
)
def test_what_cannot_be_described_is_refused_before_rows_are_read(wish, words, monkeypatch):
    def never(*args, **kwargs):
        raise AssertionError("rows were read")

    monkeypatch.setattr("dpadmm.studies.describe_files.study_rows_by_party", never)
    with pytest.raises((ParameterError, DataError), match=words):
        dpadmm.describe("nowhere.csv", [wish], schema=SCHEMA)


def test_a_group_with_too_many_levels_is_refused():
    levels = [str(number) for number in range(80)]
    content = SCHEMA.model_dump(mode="python")
    columns = [*SCHEMA.columns[:3], {"name": "ward", "kind": "categorical", "levels": levels}]
    schema = Schema.from_dict(content | {"columns": columns})
    with pytest.raises(ParameterError, match="at most 60 levels"):
        described(schema, [{"kind": "mean", "columns": ("age",), "by": "ward"}])


def test_a_budget_that_is_too_small_says_so(frame):
    wishes = [{"kind": "mean", "columns": ["age"], "by": "ward"}]
    found = dpadmm.describe(
        frame[:300], wishes, schema=SCHEMA, epsilon=0.05, delta=1e-6, random_state=2
    )
    assert {figure.reason for figure in found.figures} == {NOT_ENOUGH}
    assert all(figure.value is None for figure in found.figures)


def test_nothing_is_shown_that_was_not_asked_for(frame):
    wishes = [{"kind": "mean", "columns": ["crp"], "by": "ward"}]
    found = dpadmm.describe(frame, wishes, schema=SCHEMA, **NO_NOISE)
    # Groups and missing values had to be counted.
    assert len(found.about.options.tables) == 1
    assert {each["kind"] for each in found.record()["found"]} == {"mean"}
    assert set(found.record()) >= {"asked", "found", "privacy", "split", "rows", "parties"}
    assert "sums" not in json.dumps(found.record())


def test_what_two_wishes_need_is_released_once():
    one = described(SCHEMA, [{"kind": "mean", "columns": ("age",)}])
    both = described(
        SCHEMA, [{"kind": "mean", "columns": ("age",)}, {"kind": "sd", "columns": ("age",)}]
    )
    assert len(one.options.parts) == len(both.options.parts) == 1
    assert both.options.moments[0].weight == 2 * one.options.moments[0].weight


def test_the_split_favours_what_weighs_more():
    wishes = [
        {"kind": "mean", "columns": ("age",), "weight": 4.0},
        {"kind": "proportion", "columns": ("ward",)},
    ]
    planned = Describing(described(SCHEMA, wishes)).plan({"x": 5000}, EvaluationTerms(1.0, 1e-6))
    table, moments = planned.algorithm.courses[0]
    # In proportion to sensitivity and the root of the weight: sqrt(2) to 2 * 2.
    assert moments.share / table.share == pytest.approx(4 / np.sqrt(2))
    assert moments.share + table.share == pytest.approx(1)


def test_bounds_are_proposed_and_the_schema_says_where_from(frame):
    wide = SCHEMA.model_dump()
    wide["columns"] = [
        *({"name": n, "kind": "numeric", "lower": -1e6, "upper": 1e9} for n in ("age", "crp")),
        *SCHEMA.columns[2:],
    ]
    wide = Schema.from_dict(wide)
    wishes = [{"kind": "bounds", "columns": ["age", "crp"]}]
    found = dpadmm.describe(frame, wishes, schema=wide, epsilon=1.0, delta=1e-6, random_state=0)
    proposed = {each.column: each for each in found.proposed}
    assert proposed["age"].lower in (0.0, 16.0, 32.0)
    assert proposed["age"].upper == 128.0
    assert 32 <= proposed["crp"].upper <= 512
    schema = found.schema()
    (cost,) = schema.measured
    assert cost.columns == ("age", "crp")
    assert cost.epsilon == pytest.approx(1.0)
    again = Schema.from_toml(schema.to_toml())
    assert again == schema
    # Where bounds come from is no part of what rows become.
    assert Schema.from_dict(schema.model_dump() | {"measured": ()}).sha256 == schema.sha256
    assert "measured" not in SCHEMA.to_toml()


def test_expected_widths_are_those_that_come(frame):
    wishes = [
        {"kind": "proportion", "columns": ("died",)},
        {"kind": "mean", "columns": ("age",)},
        {"kind": "quantiles", "columns": ("age",)},
    ]
    about = described(SCHEMA, wishes)
    question = Describing(about)
    rows = {str(name): int(count) for name, count in frame["site"].value_counts().items()}
    terms = EvaluationTerms(0.3, 1e-6)
    expected = question.figures(question.plan(rows, terms))
    told = dpadmm.describe(frame, wishes, schema=SCHEMA, epsilon=0.3, delta=1e-6, random_state=0)
    for before, after in zip(expected, told.figures, strict=True):
        assert 0.3 < relative_width(about, before) / relative_width(about, after) < 3.5


def test_the_smallest_epsilon_reaches_the_width_and_less_does_not():
    question = Describing(described(SCHEMA, [{"kind": "mean", "columns": ("age",)}]))
    rows, terms = {"x": 3000, "y": 3000}, EvaluationTerms(1.0, 1e-6)
    epsilon = question.epsilon_for(rows, terms, 0.05)

    def width(epsilon):
        return question.width(question.plan(rows, EvaluationTerms(epsilon, 1e-6)))

    assert width(epsilon) <= 0.05 < width(epsilon / 1.05)


def test_options_are_plain_and_come_back_as_they_were():
    wishes = [
        {"kind": "mean", "columns": ("crp",), "by": "ward"},
        {"kind": "histogram", "columns": ("age",)},
        {"kind": "correlation", "columns": ("age", "bmi")},
    ]
    about = described(SCHEMA, wishes)
    plain = json.loads(json.dumps(about.plain))
    back = Describe.parse_options(plain | {"rows": 1})
    assert back == about.options


def test_rows_of_a_study_are_the_cells_of_the_file(tmp_path, frame):
    path = tmp_path / "rows.csv"
    odd = frame[:4].drop(columns="site").astype(object)
    odd.loc[0, "age"], odd.loc[1, "age"], odd.loc[1, "ward"] = 500, "?", "z"
    odd.loc[2, "crp"], odd.loc[3, "ward"], odd.loc[3, "died"] = "n/a", "", "unknown"
    odd.to_csv(path, index=False)
    columns = StudyColumns(SCHEMA.without_party())
    rows = read_study_rows(path, columns.schema)
    assert rows.shape == (4, columns.width)
    assert rows[0, columns.places["age"]] == 1.0
    assert rows[1, columns.places["age"]] == 0.0
    assert columns.missing_place("age") is None
    assert rows[2, columns.missing_place("crp")] == 1.0
    assert rows[:, columns.places["ward"]].tolist()[1] == 4
    assert rows[:, columns.places["ward"]].tolist()[3] == 3
    assert rows[3, columns.places["died"]] == 0


def test_an_interval_is_within_what_is_possible(frame):
    about = described(SCHEMA, [{"kind": "sd", "columns": ("age",)}])
    figures = ReadOff(about, lambda name: (np.array([0.0, 0.0]), 0.0), 100).figures()
    assert figures[0].value == figures[0].low == 0.0


def test_a_row_without_an_owner_is_refused(frame):
    odd = frame[:20].astype(object)
    odd.loc[3, "site"] = None
    wishes = [{"kind": "mean", "columns": ["age"]}]
    with pytest.raises(DataError, match="must name its party"):
        dpadmm.describe(odd, wishes, schema=SCHEMA, **NO_NOISE)


def test_several_rows_of_a_person_take_more_noise():
    question = Describing(described(SCHEMA, [{"kind": "mean", "columns": ("age",)}]))
    rows = {"x": 3000, "y": 3000}
    one, three = (
        question.plan(rows, EvaluationTerms(1.0, 1e-6, people)).algorithm for people in (1, 3)
    )
    assert_allclose(three.sigma, 3 * one.sigma)


@pytest.mark.parametrize(
    "axis",
    [
        {"place": 0, "edges": [0.0], "levels": 1},
        {"place": 0, "edges": [0.5, 0.0], "levels": 3},
        {"edges": [0.0], "levels": 2},
        {"place": 0, "levels": 5000},
    ],
)
def test_options_with_which_a_row_could_miss_its_cell_are_refused(axis):
    with pytest.raises(ParameterError, match=r"edges must rise|at most 4096 cells"):
        Describe.parse_options({"rows": 10, "tables": [{"axes": [axis]}]})


def test_one_name_is_one_question_and_its_rows(tmp_path):
    """A ledger that names no schema would take sums of other bounds for these."""
    random = np.random.default_rng(0)
    frame = pd.DataFrame({"a": random.uniform(-1, 1, 4000), "y": random.choice(["0", "1"], 4000)})
    place = tmp_path / "p.ledger"
    SQLiteLedger.create(place, ChargedData("rows", "p", 4000), Policy(9.0, 1e-3)).close()

    def ask(upper, rows=frame, name="p", run_id="one", resume=True):
        label = {"column": "y", "classes": ["0", "1"]}
        column = {"name": "a", "kind": "numeric", "lower": -upper, "upper": upper}
        schema = Schema.from_dict({"label": label, "columns": [column]})
        wishes = [{"kind": "sd", "columns": ["a"]}]
        told = {
            "schema": schema,
            "epsilon": 1.0,
            "ledgers": {"p": place},
            "run_id": run_id,
            "resume": resume,
        }
        return dpadmm.describe({name: rows}, wishes, **told).figures

    first = ask(1.0)
    with pytest.raises(LedgerError, match="they differ"):
        ask(2.0)
    assert ask(1.0) == first
    # Another frame with as many rows would silently get the figures of the first.
    other = frame.assign(a=0.0)
    with pytest.raises(ParameterError, match="run_id must be one of a new run; got 'one'"):
        ask(1.0, other, resume=False)
    with pytest.raises(ParameterError, match="run_id must be given in a study charged to ledgers"):
        ask(1.0, other, run_id=None)
    with SQLiteLedger(place) as ledger:
        once = ledger.verify().spent_epsilon
    with pytest.raises(DataError, match="declares, 4000"):
        ask(1.0, run_id="other", rows=frame[:10])
    with pytest.raises(ParameterError, match="every party's ledger; 'q' has none"):
        ask(1.0, run_id="other", name="q")
    with SQLiteLedger(place) as ledger:
        assert ledger.verify().spent_epsilon == once
