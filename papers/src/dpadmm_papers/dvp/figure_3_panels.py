"""The parts of Fig. 3 as panels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from dpadmm.experiments.experiment import Experiment
from dpadmm.experiments.figures import Curve, Panel
from dpadmm.experiments.loss_fits import Fitted, Samples
from dpadmm.plain import Array
from dpadmm.privacy.trade_off import LossCurve, PrivacyUtility
from dpadmm_papers.dvp.setting import CALIBRATIONS, CONTROL

__all__ = ["design_panels", "grid_panel", "iteration_panel", "outcome_panels"]

_LOSS = "loss (mean over parties)"
_ALPHA = "alpha, claimed or proven"


def iteration_panel(losses: Mapping[str, Mapping[int, Samples]]) -> Panel:
    """(a): the loss over alpha, by calibration and iteration."""
    curves = [
        _over(f"iteration {iteration}", samples, calibration)
        for calibration, by_iteration in losses.items()
        for iteration, samples in by_iteration.items()
    ]
    return Panel("(a) at different iterations", _ALPHA, _LOSS, tuple(curves), "log", "log")


def design_panels(
    experiment: Experiment, losses: Mapping[str, Samples], fits: Mapping[str, Fitted]
) -> tuple[Panel, Panel]:
    """(b): L_acc fitted, and what is left of the utility of privacy."""
    lowest, highest = experiment["range of alpha"]
    alphas = np.geomspace(lowest, highest, 100)
    height, rate = experiment["c4, c5"]
    # The paper's c6 is a loss of its own runs; ours takes its place.
    of_paper = LossCurve(height, rate, fits["published"].curve.floor)
    model = [_over("loss", losses[kind], kind) for kind in CALIBRATIONS]
    model += [_line("our fit", alphas, each.curve(alphas), kind) for kind, each in fits.items()]
    model.append(_line("the paper's c4, c5, our c6", alphas, of_paper(alphas)))
    privacy = PrivacyUtility(*experiment["omega"])(alphas)
    worth = [_line("U_priv alone", alphas, privacy)]
    worth += [
        _line("with our fit", alphas, privacy - each.curve(alphas) + each.curve.floor, kind)
        for kind, each in fits.items()
    ]
    left = privacy - of_paper(alphas) + of_paper.floor
    worth.append(_line("with the paper's c4, c5", alphas, left))
    note = "c6 is left out of L_acc here: a constant does not move the maximum."
    return (
        Panel("(b) L_acc, fitted", _ALPHA, _LOSS, tuple(model), "log"),
        Panel("(b) U_priv - L_acc", _ALPHA, "utility", tuple(worth), "log", note=note),
    )


def outcome_panels(
    losses: Mapping[str, Samples], errors: Mapping[str, Samples], control: tuple[float, float]
) -> tuple[Panel, Panel]:
    """(c) and (d): loss and error rate at the end."""
    return (
        _outcome("(c) final empirical risk", _LOSS, losses, control[0]),
        _outcome("(d) error rate", "error on test rows", errors, control[1]),
    )


def _outcome(title: str, what: str, by_kind: Mapping[str, Samples], control: float) -> Panel:
    curves = [_over("DVP", samples, kind) for kind, samples in by_kind.items()]
    alphas = sorted({alpha for samples in by_kind.values() for alpha in samples})
    curves.append(_line(CONTROL, alphas, np.full(len(alphas), control)))
    return Panel(title, _ALPHA, what, tuple(curves), "log", "log")


def grid_panel(losses: Mapping[str, Samples]) -> Panel:
    """The loss over alpha, by setting."""
    curves = [_over(place, samples, "published") for place, samples in losses.items()]
    return Panel("over what is not stated", "alpha, claimed", _LOSS, tuple(curves), "log", "log")


def _over(name: str, samples: Samples, calibration: str) -> Curve:
    alphas = sorted(samples)
    return Curve.of_runs(name, alphas, [samples[each] for each in alphas], calibration)


def _line(name: str, x: Iterable[float], y: Array, calibration: str = "") -> Curve:
    return Curve(name, tuple(map(float, x)), tuple(y.tolist()), calibration=calibration)
