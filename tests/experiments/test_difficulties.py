"""Drawn rows have the shape of encoded ones, and are as hard to tell apart as they say."""

import numpy as np
import pytest
from scipy.special import ndtr
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from dpadmm.data.named import adult_schema
from dpadmm.data.schema import Schema
from dpadmm.errors import ParameterError
from dpadmm.experiments.problems import dense
from dpadmm.experiments.question import (
    DIFFICULTIES,
    GeneratedProblem,
    RowShape,
    encoded_rows,
)

MIXED = RowShape(((-1.0, 1.0), (0.0, 1.0)), levels=(3, 5), empty=2, constant=0.5, classes=3)


def drawn(shape, difficulty=DIFFICULTIES[1], rows=400, seed=0):
    stream = np.random.default_rng(seed)
    codes = stream.integers(shape.classes, size=rows)
    return encoded_rows(shape, difficulty, codes, stream), codes


@pytest.mark.parametrize("difficulty", DIFFICULTIES, ids=lambda each: each.name)
@pytest.mark.parametrize("shape", [MIXED, RowShape.of_features(21), RowShape(levels=(2,))])
def test_a_row_has_its_columns_and_norm_one_at_most(shape, difficulty):
    rows, _ = drawn(shape, difficulty)
    assert rows.shape == (400, shape.features)
    assert np.linalg.norm(rows, axis=1).max() <= 1 + 1e-9


def test_numbers_stay_in_their_ranges_and_categories_have_one_level():
    rows, _ = drawn(MIXED)
    # A row was scaled down as a whole: its constant tells by how much.
    plain = rows * (0.5 / rows[:, -1:])
    assert np.abs(plain[:, 0]).max() <= 1 + 1e-9
    assert plain[:, 1].min() >= -1e-9
    assert plain[:, 1].max() <= 1 + 1e-9
    for group in (plain[:, 2:5], plain[:, 5:10]):
        assert np.allclose(np.sort(group, axis=1)[:, -1], 1)
        assert np.allclose(group.sum(axis=1), 1)
    assert not plain[:, 10:12].any()


def test_rows_behind_a_map_have_norm_one():
    rows, _ = drawn(RowShape(((-1.0, 1.0),) * 6, constant=0.0, whole=True))
    assert np.allclose(np.linalg.norm(rows, axis=1), 1)


@pytest.mark.parametrize("difficulty", DIFFICULTIES, ids=lambda each: each.name)
@pytest.mark.parametrize("classes", [2, 5])
def test_the_best_rule_is_wrong_as_often_as_it_is_said(difficulty, classes):
    shares = []
    for seed in range(3):
        rows, codes = drawn(RowShape.of_features(21, classes), difficulty, 6000, seed)
        # The constant was divided out with the norm: an oracle that knows nothing of norms.
        plain = rows[:, :-1] / rows[:, -1:]
        rule = LinearDiscriminantAnalysis().fit(plain[:3000], codes[:3000])
        shares.append(1 - rule.score(plain[3000:], codes[3000:]))
    wrong = float(ndtr(-difficulty.separation))
    # Of more classes some lie nearer than the mean of them: a few more rows are wrong.
    assert np.mean(shares) <= (1.25 if classes == 2 else 2.2) * wrong + 0.01
    assert np.mean(shares) >= 0.4 * wrong


def test_a_shape_counts_what_a_schema_encodes():
    schema = Schema.from_dict(
        {
            "version": 2,
            "constant": 0.25,
            "label": {"column": "y", "classes": ["a", "b", "c"]},
            "columns": [
                {"name": "n", "kind": "numeric", "lower": 0, "upper": 9},
                {"name": "z", "kind": "numeric", "lower": 0, "upper": 1, "range": [0, 1]},
                {"name": "c", "kind": "categorical", "levels": ["u", "v"], "other": False},
            ],
        }
    )
    for each in (schema, adult_schema()):
        assert RowShape.of_schema(each).features == len(each.feature_names)
    shape = RowShape.of_schema(schema)
    assert shape == RowShape(((-1.0, 1.0), (0.0, 1.0)), (2,), 3, 0.25, 3)
    assert shape.outputs == 3
    # A map leaves nothing of the columns but how many features there are, and norm 1.
    plain = schema.model_dump() | {"constant": False, "fourier": {"features": 4}}
    mapped = RowShape.of_schema(Schema.from_dict(plain))
    assert (mapped.features, mapped.constant, mapped.whole) == (8, 0.0, True)
    # As many features as there are columns, with a map and without.
    assert shape.features == mapped.features


def test_rows_do_not_depend_on_who_has_them():
    alone = GeneratedProblem(MIXED, DIFFICULTIES[0], (30,), 10).load()
    shared = GeneratedProblem(MIXED, DIFFICULTIES[0], (10, 20), 10).load()
    together = np.concatenate([dense(rows) for rows, _ in shared.members])
    assert np.array_equal(together, dense(alone.members[0][0]))
    again = GeneratedProblem(MIXED, DIFFICULTIES[0], (30,), 10).dealt_again(1).load()
    assert not np.array_equal(dense(again.members[0][0]), dense(alone.members[0][0]))


@pytest.mark.parametrize(("features", "classes"), [(1, 2), (0, 2), (10**6, 2), (5, 1)])
def test_what_cannot_be_drawn_is_refused(features, classes):
    with pytest.raises(ParameterError, match=r"features must|classes must"):
        RowShape.of_features(features, classes)


def test_the_typical_norm_is_that_of_drawn_rows():
    # Rows without a constant so short that nothing is scaled down.
    shape = RowShape(((-1.0, 1.0),) * 4, constant=0.0)
    lengths = [np.square(drawn(shape, seed=seed)[0]).sum(axis=1).mean() for seed in range(30)]
    assert shape.typical_norm == pytest.approx(np.sqrt(np.mean(lengths)), rel=0.2)
