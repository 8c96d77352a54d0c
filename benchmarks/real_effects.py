"""Effects on real rows, beside the same without privacy.

``DPADMM_DATA=folder python -m benchmarks.real_effects`` fits logistic regressions of income on UCI
Adult and of bad credit on German, rows split at random among ten parties who share their noise, at
epsilon 1 and 3 and delta 1e-5: simulations, in which the budget is that of one replaced row.
``exact`` is maximum likelihood; ``weighted`` the private rounds with next to no noise, in which
rows far from most others weigh less. ``found`` and the interval are those of one draw of the noise;
of 100 draws, ``sign`` is the part in which a coefficient has the sign of ``exact``, ``given`` the
part whose intervals are given, and ``holds`` the part of those that contain ``exact``. Bounds are
guesses of what is possible, not looked up in the rows.
"""

from __future__ import annotations

import argparse
import math
import warnings
from typing import Any

import numpy as np
import pandas as pd

from dpadmm import FederatedGLM
from dpadmm.data.dataset import find_file, read_unpacked
from dpadmm.data.named import adult_table
from dpadmm.studies.effects import InferenceWarning

EPSILONS = (1.0, 3.0)
NO_NOISE = 1e4


def adult() -> tuple[pd.DataFrame, np.ndarray, dict[str, Any]]:
    """Income above 50,000 dollars."""
    frame = adult_table().to_pandas()
    told = {
        "bounds": {"age": (15, 95), "education-num": (1, 16), "hours-per-week": (0, 100)},
        "levels": {"sex": ["Female", "Male"], "married": ["no", "yes"]},
    }
    married = frame["marital-status"].str.startswith("Married").map({True: "yes", False: "no"})
    columns = frame.assign(married=married)[[*told["bounds"], *told["levels"]]]
    columns = columns.astype(dict.fromkeys(told["bounds"], float))
    return columns, frame["income"].str.startswith(">50K").to_numpy(float), told


def german() -> tuple[pd.DataFrame, np.ndarray, dict[str, Any]]:
    """Bad credit."""
    text = read_unpacked(find_file("german.dat", None)).decode()
    cells = [line.split(", ") for line in text.splitlines() if not line.startswith("@")]
    frame = pd.DataFrame(cells)
    told = {"bounds": {"months": (0, 72)}, "levels": {"account": ["none", "some"]}}
    account = np.where(frame[0] == "A14", "none", "some")
    columns = pd.DataFrame({"months": frame[1].astype(float), "account": account})
    return columns, (frame[20] == "2").to_numpy(float), told


def fitted(epsilon: float, seed: int | None, rows: Any, told: dict[str, Any]) -> FederatedGLM:
    """One fit; with a finite epsilon noise is shared, and drawn from the seed."""
    noise = {} if math.isinf(epsilon) else {"noise": "shared", "random_state": seed}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InferenceWarning)
        return FederatedGLM(epsilon=epsilon, delta=1e-5, **noise, **told).fit(*rows)


def table(name: str, draws: int) -> list[str]:
    """Lines of a table."""
    columns, response, told = {"adult": adult, "german": german}[name]()
    rows = columns, response, np.random.default_rng(0).permutation(len(columns)) % 10
    exact, weighted = fitted(math.inf, None, rows, told), fitted(NO_NOISE, 0, rows, told)
    lines = [f"{f'{name}, {len(columns)} rows':25}   exact {'interval':20} weighted"]
    for place, effect in enumerate(exact.effect_names_):
        shown = _shown(exact.coef_[place], exact.conf_int()[place])
        lines.append(f"{effect:24}{shown}{weighted.coef_[place]:9.4f}")
    for epsilon in EPSILONS:
        models = [fitted(epsilon, seed, rows, told) for seed in range(draws)]
        found = np.array([model.coef_ for model in models])
        low, high = np.moveaxis(np.array([model.conf_int() for model in models]), -1, 0)
        given = np.isfinite(low).sum(axis=0)
        held = ((low < exact.coef_) & (exact.coef_ < high)).sum(axis=0) / np.maximum(given, 1)
        shares = np.array(
            [(np.sign(found) == np.sign(exact.coef_)).mean(axis=0), given / draws, held]
        )
        about = f"epsilon {epsilon:g}, q {models[0].effects_.strength:.0f}"
        lines.append(f"{about:25}   found {'interval':20}   sign given holds")
        for place, effect in enumerate(exact.effect_names_):
            parts = "".join(f"{100 * share:5.0f}%" for share in shares[:, place])
            shown = _shown(found[0, place], (low[0, place], high[0, place]))
            lines.append(f"{effect:24}{shown}{parts}")
    return lines


def _shown(value: float, ends: Any) -> str:
    interval = f"{ends[0]:.4f} to {ends[1]:.4f}" if np.isfinite(ends).all() else "none"
    return f"{value:9.4f} {interval:20}"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=100)
    draws = parser.parse_args().draws
    for name in ("adult", "german"):
        print("\n".join(table(name, draws)), flush=True)


if __name__ == "__main__":
    main()
