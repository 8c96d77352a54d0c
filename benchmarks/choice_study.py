r"""Is it worth choosing a setting within the budget? One budget, split over settings, or not split.

Run by hand with ``DPADMM_DATA=folder python -m benchmarks.choice_study``; it takes minutes.

The settings are what matters most, maps: columns as they are, products of two columns, and random
Fourier features; or, with ``--of rounds``, how many rounds there are. With k of them each is
trained with :math:`\mu/\sqrt k`, so that all of them together cost :math:`\mu` (Gaussian
composition); a fifth of the rows is held out of all trainings, and one released histogram for each
model, at the same :math:`\mu/\sqrt k`, says how good it is. Held-out rows have an account of their
own, so that a person's cost is the larger of the two. The model with the largest released accuracy
is taken: that looks at releases alone, and costs nothing.

``default``: the first setting, all rows, the whole budget. ``chosen``: as above. ``best``: the
whole budget on the setting that is best on the rows to judge by, picked after the fact.
"""

from __future__ import annotations

import argparse
import math
import sys
import warnings
from typing import Any, Final

import numpy as np

from benchmarks.utility import DELTA, table_of
from dpadmm import FederatedClassifier
from dpadmm.privacy.gaussian import gaussian_epsilon, gaussian_mu

SETS: Final = ("banana", "ringnorm", "twonorm", "image", "waveform", "pima", "titanic", "german")
SETTINGS: Final[dict[str, tuple[dict[str, Any], ...]]] = {
    "maps": ({}, {"polynomial": {"degree": 2, "most_columns": 40}}, {"fourier": 150}),
    "rounds": ({"rounds": 100}, {"rounds": 50}, {"rounds": 200}),
}
PARTIES, HELD_OUT, SPLITS, SEEDS = 20, 0.2, 3, 4


def accuracies(
    name: str,
    rows: int,
    epsilon: float,
    split: int,
    seed: int,
    settings: tuple[dict[str, Any], ...],
) -> dict[str, float]:
    """Accuracy in percent of each way, on rows that nothing was chosen by."""
    table = table_of(name)
    order = np.random.default_rng([split, 17]).permutation(len(table.codes))
    judged = order[: len(order) // 5]
    trained = order[len(order) // 5 :][:rows]
    X, y, classes = table.columns, table.codes, np.unique(table.codes)
    norm = math.sqrt(X.shape[1])

    def fitted(budget: float, told: dict[str, Any], **more: Any) -> FederatedClassifier:
        model = FederatedClassifier(
            epsilon=budget,
            delta=DELTA,
            data_norm=norm if told.keys() <= {"rounds"} else 1.0,
            n_parties=PARTIES,
            noise="shared",
            random_state=seed,
            **told,
            **more,
        )
        return model.fit(X[trained], y[trained], classes=classes)

    def score(model: FederatedClassifier) -> float:
        return 100 * float(model.score(X[judged], y[judged]))

    whole = [score(fitted(epsilon, told)) for told in settings]
    part = gaussian_epsilon(gaussian_mu(epsilon, DELTA) / math.sqrt(len(settings)), DELTA)
    tried = [fitted(part, told, holdout=HELD_OUT) for told in settings]
    released = [model.quality_.evaluation().accuracy.value or 0.0 for model in tried]
    return {
        "default": whole[0],
        "chosen": score(tried[int(np.argmax(released))]),
        "best": max(whole),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--epsilon", type=float, nargs="+", default=[1.0, 3.0])
    parser.add_argument("--of", choices=SETTINGS, default="maps")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    print(f"{PARTIES} parties, shared noise, delta {DELTA:g}: accuracy in %, standard error of")
    print(f"the difference between chosen and default over {SPLITS} splits, {SEEDS} seeds each")
    print(f"{'':10}{'rows':>6}{'epsilon':>9}{'default':>9}{'chosen':>8}{'best':>7}{'gain':>8}")
    for name in asked.only:
        most = 4 * len(table_of(name).codes) // 5
        for rows in [1000, most] if most > 2000 else [most]:
            for epsilon in asked.epsilon:
                found = [
                    accuracies(name, rows, epsilon, split, seed, SETTINGS[asked.of])
                    for split in range(SPLITS)
                    for seed in range(SEEDS)
                ]
                mean = {key: np.mean([each[key] for each in found]) for key in found[0]}
                gains = np.array([each["chosen"] - each["default"] for each in found])
                error = gains.std(ddof=1) / math.sqrt(len(gains))
                print(
                    f"{name:10}{rows:6}{epsilon:9g}{mean['default']:9.1f}{mean['chosen']:8.1f}"
                    f"{mean['best']:7.1f}{gains.mean():+8.1f} +- {error:.1f}",
                    flush=True,
                )
    return 0


if __name__ == "__main__":
    sys.exit(main())
