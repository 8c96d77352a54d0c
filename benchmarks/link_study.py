"""What bins and noise take from areas and probabilities: a table of ``docs/evaluation.md``.

Run with ``DPADMM_DATA=folder python -m benchmarks.link_study``; it takes a minute. Five parties
train with huber-hinge at epsilon 1 on two thirds of a public set; the rest is evaluated. Columns:

``area``, ``in bins``
    Area under the ROC curve of the scores, and of their bins. With several classes: of margins,
    the mean over classes, as everything here.
``exact``
    Expected calibration error of the link that is fitted to the scores themselves: the mean
    distance of its probabilities and the shares observed, in ten groups of equal size.
``noise 0``, ``noise 5``, ``noise 15``
    The same for the link that is fitted to a histogram with noise of that standard deviation,
    the mean over 20 draws. At epsilon 1 and delta 1e-5 the noise of one party is 5.3.
"""

from __future__ import annotations

import sys
import warnings
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from benchmarks.utility import table_of
from dpadmm import FederatedClassifier
from dpadmm.evaluation.histogram import NoisyHistogram, ScoreGrid, class_margins, fit_links
from dpadmm.plain import Array
from dpadmm.problem.rows import clip_rows

SETS: Final = ("adult", "german", "splice", "twonorm", "image", "pima", "satimage", "texture")
NOISES: Final = (0.0, 5.0, 15.0)
DRAWS: Final = 20
MOST_ROWS: Final = 12_000


def calibration_error(chances: Array, labels: NDArray[np.bool_]) -> float:
    """Mean distance of probability and share, over ten groups of equal size."""
    groups = np.array_split(np.argsort(chances, kind="stable"), 10)
    gaps = [abs(chances[rows].mean() - labels[rows].mean()) * len(rows) for rows in groups]
    return float(np.sum(gaps) / len(labels))


def _scores(name: str) -> tuple[Array, NDArray[np.int64], ScoreGrid]:
    table = table_of(name)
    order = np.random.default_rng(1).permutation(len(table.codes))[:MOST_ROWS]
    rows, codes = table.columns[order], table.codes[order]
    cut, classes = 2 * len(order) // 3, int(table.codes.max()) + 1
    # Norm 1 at most with the constant, so that a score is the margin that training saw.
    rows = clip_rows(np.column_stack([rows, np.ones(len(rows))]))
    model = FederatedClassifier(
        epsilon=1.0,
        delta=1e-5,
        loss="huber-hinge",
        n_parties=5,
        random_state=0,
        fit_intercept=False,
    ).fit(rows[:cut], codes[:cut])
    scores = model.decision_function(rows[cut:])
    return scores, codes[cut:], ScoreGrid.of_model(model.coef_, classes)


def line_of(name: str) -> list[float]:
    """The figures of one set."""
    scores, codes, grid = _scores(name)
    if grid.classes == 2:
        tables, members = scores[:, None], [codes == 1]
    else:
        tables, members = class_margins(scores), [codes == code for code in range(grid.classes)]
    columns = list(zip(tables.T, members, strict=True))
    areas = [roc_auc_score(labels, column) for column, labels in columns]
    binned = [roc_auc_score(labels, np.searchsorted(grid.edges, col)) for col, labels in columns]
    exact = []
    for column, labels in columns:
        fit = LogisticRegression(C=1e6).fit(column[:, None], labels)
        exact.append(calibration_error(fit.predict_proba(column[:, None])[:, 1], labels))
    found = [np.mean(areas), np.mean(binned), np.mean(exact)]
    counts, random = grid.counts(scores, codes), np.random.default_rng(2)
    for noise in NOISES:
        errors = []
        for _ in range(DRAWS if noise else 1):
            noisy = counts + noise * random.normal(size=counts.size)
            links = fit_links(NoisyHistogram(grid, noisy, noise**2, len(codes)))
            for link, (column, labels) in zip(links, columns, strict=True):
                chances = expit(link.slope * column + link.offset)
                errors.append(calibration_error(chances, labels))
        found.append(np.mean(errors))
    return [len(codes), *map(float, found)]


def main() -> int:
    """Print the table."""
    warnings.simplefilter("ignore")
    print("| set | rows | area | in bins | exact | noise 0 | noise 5 | noise 15 |")
    print("|---|---|---|---|---|---|---|---|")
    for name in SETS:
        rows, *figures = line_of(name)
        print(f"| {name} | {rows:,} | {' | '.join(f'{one:.3f}' for one in figures)} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
