"""Fig. 3 of DVP: privacy against accuracy, a model of it, and the alpha that it chooses."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import Any, ClassVar, Final

from dpadmm.experiments.experiment import (
    Conclusion,
    Evaluation,
    Finding,
    Setting,
    ours,
    paper,
    seed_of,
)
from dpadmm.experiments.job import Job, Result
from dpadmm.experiments.statistics import difference
from dpadmm.report.tables import Table
from dpadmm_papers.dvp.figure_3_panels import (
    Samples,
    design_panels,
    grid_panel,
    iteration_panel,
    outcome_panels,
)
from dpadmm_papers.dvp.setting import CALIBRATIONS, CONTROL, SETTINGS, Section5, falls, label
from dpadmm_papers.dvp.trade_off import Fitted, LossCurve, best_alpha, fit_resampled

__all__ = ["Figure3"]

WHOLE_RUN: Final = "the whole run"


class Figure3(Section5):
    """Loss and errors over alpha, the fitted loss, the utility of privacy."""

    name = "dvp-figure-3"
    part = "Fig. 3"
    title = "Privacy against accuracy, and the alpha that the design problem chooses"
    settings: ClassVar[Mapping[str, Setting]] = {
        **SETTINGS,
        "omega": paper((0.02, 6.0, 9.0, 1.0), "caption of Fig. 3"),
        "c4, c5": paper((0.2, 25.0), "section 5"),
        "c4, c5 for t > 1": paper((20.0, 20.0), "section 5, next sentence"),
        "objective": ours(
            "U_priv - L_acc", "the design problem is not written out; both terms as they are"
        ),
        "range of alpha": ours((0.01, 0.5), "that of the runs; without a limit alpha = 0 is best"),
        "scale of the loss": ours(
            "mean loss of a row", "C(t) has the factor C^R = 1750, c4 = 0.2 clearly has not"
        ),
        "shown iterations": ours((1, 10, 100), "(a)-(b) show 'different iterations'"),
        "error rate": ours("of test rows", "(d) does not say of which rows; parties' own models"),
        "resamples": ours(1000, "for the intervals of fitted constants"),
        "alphas of a run": ours(
            (0.05, 0.1, 0.3), "0.01 for all 100 iterations is less than the Jacobian alone costs"
        ),
        "other etas": ours((5.0, 500.0), "eta is not stated"),
        "other parties": ours(((20, 2000),), "P and B_p are not stated"),
        "alphas elsewhere": ours((0.01, 0.05, 0.1, 0.3), "those of Fig. 2"),
        "runs elsewhere": ours(5, "half, to save computing"),
    }
    conclusions = (
        Conclusion(
            "iterations",
            "There is a trade-off between privacy and accuracy at different iterations: the "
            "accuracy increases as alpha becomes larger.",
            "At each of iterations 1, 10 and 100 the 95% interval of the loss at the smallest "
            "alpha minus that at the largest is above 0, and for no two neighbouring alphas is it "
            "below 0.",
        ),
        Conclusion(
            "form",
            "By curve fitting, the loss is modelled as c4 exp(-c5 alpha) + c6.",
            "The least squares fit is within 5% of the mean loss at iteration 100 for every alpha.",
        ),
        Conclusion(
            "constants",
            "From the experimental results, c4 = 0.2 and c5 = 25.",
            "Both are within the 95% intervals of our fit at iteration 100; over the grid of what "
            "the paper leaves open: in at least one setting.",
        ),
        Conclusion(
            "all iterations",
            "These values are applicable at all iterations.",
            "The 95% intervals of our c4 at iterations 1, 10 and 100 overlap, every two of them, "
            "and so do those of c5.",
        ),
        Conclusion(
            "risk",
            "(c) The empirical risk of the final output falls as alpha grows.",
            "At iteration 100 the 95% interval of the loss is above 0 for the smallest alpha minus "
            "the largest, and below 0 for no two neighbours.",
        ),
        Conclusion(
            "error",
            "(d) The misclassification rate at iteration 100 falls as alpha grows.",
            "The 95% interval of the rate is above 0 for the smallest alpha minus the largest, and "
            "below 0 for no two neighbours.",
        ),
        Conclusion(
            "design",
            "The optimal privacy parameter comes from an optimisation problem: utility of privacy "
            "against loss.",
            "The maximum of U_priv - L_acc lies inside the range of alpha, not at an end, for at "
            "least 95% of fits to resampled runs.",
        ),
    )

    def cells(self) -> dict[str, Job]:
        """Every alpha in both calibrations and for the whole run; a grid of what is not stated."""
        cells: dict[str, Job] = {CONTROL: self.control()}
        for alpha in self["alphas"]:
            for calibration in CALIBRATIONS:
                cells[label(alpha, calibration)] = self.at_alpha(alpha, calibration)
        for alpha in self["alphas of a run"]:
            name = label(alpha, WHOLE_RUN)
            cells[name] = self.cell(name, epsilon=alpha, noise="gaussian")
        for alpha in self["alphas elsewhere"]:
            for place, changes in self._elsewhere().items():
                cells[label(alpha, place)] = self.at_alpha(
                    alpha, "published", runs=self["runs elsewhere"], **changes
                )
        return cells

    def _elsewhere(self) -> dict[str, dict[str, Any]]:
        etas = {f"eta {eta:g}": {"eta": eta} for eta in self["other etas"]}
        sizes = {
            f"{parties} parties of {rows:,}": {"parties": parties, "rows": rows}
            for parties, rows in self["other parties"]
        }
        return {**etas, **sizes}

    def _alphas(self, kind: str) -> tuple[float, ...]:
        if kind == WHOLE_RUN:
            return tuple(self["alphas of a run"])
        return tuple(self["alphas" if kind in CALIBRATIONS else "alphas elsewhere"])

    def _losses(self, results: Mapping[str, Result], kind: str, iteration: int = 0) -> Samples:
        """The loss of every run at an iteration, by alpha; the last by default."""
        return {
            alpha: results[label(alpha, kind)].course("average loss")[iteration - 1]
            for alpha in self._alphas(kind)
        }

    def _errors(self, results: Mapping[str, Result], kind: str) -> Samples:
        return {
            alpha: 1 - results[label(alpha, kind)].final("average test accuracy")
            for alpha in self._alphas(kind)
        }

    def _fit(self, samples: Samples, name: str) -> Fitted:
        seed = seed_of(f"resamples, {name}")
        return fit_resampled(samples, draws=self["resamples"], seed=seed)

    def evaluate(self, results: Mapping[str, Result]) -> Evaluation:
        """The four parts, and the grid."""
        shown = self["shown iterations"]
        by_iteration = {
            kind: {each: self._losses(results, kind, each) for each in shown}
            for kind in CALIBRATIONS
        }
        fits = {
            kind: {each: self._fit(samples, f"{kind} {each}") for each, samples in losses.items()}
            for kind, losses in by_iteration.items()
        }
        main = f"eta {self['eta']:g}, {self['parties']} parties"
        grid = {main: "published", **{place: place for place in self._elsewhere()}}
        losses = {place: self._losses(results, kind) for place, kind in grid.items()}
        errors = {place: self._errors(results, kind) for place, kind in grid.items()}
        elsewhere = {place: self._fit(losses[place], place) for place in self._elsewhere()}
        findings = [
            finding
            for kind in CALIBRATIONS
            for finding in self._judge(
                kind, by_iteration[kind], self._errors(results, kind), fits[kind]
            )
        ]
        kinds = (*CALIBRATIONS, WHOLE_RUN)
        control = results[CONTROL]
        panels = (
            iteration_panel(by_iteration),
            *design_panels(
                self,
                {kind: by_iteration[kind][shown[-1]] for kind in CALIBRATIONS},
                {kind: fits[kind][shown[-1]] for kind in CALIBRATIONS},
            ),
            *outcome_panels(
                {kind: self._losses(results, kind) for kind in kinds},
                {kind: self._errors(results, kind) for kind in kinds},
                (
                    float(control.final("average loss").mean()),
                    1 - float(control.final("average test accuracy").mean()),
                ),
            ),
            grid_panel(losses),
        )
        return Evaluation(
            panels,
            {
                "Fitted constants, and the alpha that maximises U_priv - L_acc": self._fit_table(
                    fits, elsewhere
                ),
                "Over what the paper leaves open, as published": self._grid_table(losses, errors),
                "Claimed and provable": self.guarantees(results, self["alphas"]),
            },
            (*findings, self._over_grid(elsewhere)),
            (
                "As published and as proven, every iteration is to be alpha-private: that is what "
                "the paper claims. What the iterations come to together is in the last table. 'The "
                "whole run' keeps (alpha, delta) over all iterations together, as the paper's "
                "'independent of the number of iterations' would have it: proven, with Gaussian "
                "noise.",
                "U_priv - L_acc has no maximum unless alpha has a lower limit: it grows without "
                "bound as alpha goes to 0. The paper's Assumption 6 has its two directions the "
                "wrong way round.",
            ),
        )

    # -- findings ---------------------------------------------------------------------------

    def _judge(
        self,
        calibration: str,
        losses: Mapping[int, Samples],
        errors: Samples,
        fits: Mapping[int, Fitted],
    ) -> list[Finding]:
        last = self["shown iterations"][-1]
        verdicts = {each: _falling(samples) for each, samples in losses.items()}
        final = fits[last]
        best, inside = final.chosen(self["omega"], self["range of alpha"])
        height, rate = self["c4, c5"]
        return [
            Finding.judged(
                "iterations",
                calibration,
                all(holds for holds, _ in verdicts.values()),
                " ".join(f"Iteration {each}: {words}" for each, (_, words) in verdicts.items()),
            ),
            Finding.judged(
                "form",
                calibration,
                final.furthest <= 0.05,
                f"Furthest from a mean: {100 * final.furthest:.1f}%.",
            ),
            Finding.judged(
                "constants", calibration, final.holds(height, rate), f"{final.words()}."
            ),
            Finding.judged(
                "all iterations",
                calibration,
                all(one.agrees(other) for one, other in combinations(fits.values(), 2)),
                " ".join(f"Iteration {each}: {fitted.words()}." for each, fitted in fits.items()),
            ),
            _judged("risk", calibration, losses[last]),
            _judged("error", calibration, errors),
            Finding.judged(
                "design",
                calibration,
                inside >= 0.95,
                f"alpha = {best:.3g}, inside for {100 * inside:.0f}% of fits.",
            ),
        ]

    def _over_grid(self, elsewhere: Mapping[str, Fitted]) -> Finding:
        height, rate = self["c4, c5"]
        return Finding.judged(
            "constants",
            "published, over the grid",
            any(each.holds(height, rate) for each in elsewhere.values()),
            " ".join(f"{place}: {each.words()}." for place, each in elsewhere.items()),
        )

    # -- tables -----------------------------------------------------------------------------

    def _fit_table(
        self, fits: Mapping[str, Mapping[int, Fitted]], elsewhere: Mapping[str, Fitted]
    ) -> Table:
        ends = self["range of alpha"]
        rows: list[tuple[str, ...]] = []
        for setting in ("c4, c5", "c4, c5 for t > 1"):
            height, rate = self[setting]
            alpha, _ = best_alpha(LossCurve(height, rate, 0.0), self["omega"], *ends)
            rows.append(
                (f"the paper's {setting}", f"{height:g}", f"{rate:g}", "", "", f"{alpha:.3g}")
            )
        named = {
            f"{kind}, iteration {each}": fitted
            for kind, by_iteration in fits.items()
            for each, fitted in by_iteration.items()
        }
        for name, fitted in {**named, **elsewhere}.items():
            chosen, _ = fitted.chosen(self["omega"], ends)
            rows.append(
                (
                    name,
                    *(f"{fitted.interval(each):.3g}" for each in ("height", "rate", "floor")),
                    f"{100 * fitted.furthest:.1f}%",
                    f"{chosen:.3g}",
                )
            )
        return Table.of(("fit", "c4", "c5", "c6", "furthest from a mean", "alpha chosen"), rows)

    def _grid_table(self, losses: Mapping[str, Samples], errors: Mapping[str, Samples]) -> Table:
        alphas = self["alphas elsewhere"]
        rows = [
            (
                place,
                *(float(losses[place][alpha].mean()) for alpha in alphas),
                *(float(errors[place][alpha].mean()) for alpha in alphas),
                *("yes" if _falling(each[place])[0] else "no" for each in (losses, errors)),
            )
            for place in losses
        ]
        heads = [f"{what}, alpha {alpha:g}" for what in ("loss", "error") for alpha in alphas]
        return Table.of(("setting", *heads, "loss falls", "error falls"), rows)


def _falling(samples: Samples) -> tuple[bool, str]:
    """Whether the smallest alpha is above the largest, and no alpha below its next; in words."""
    whole = difference(samples[min(samples)], samples[max(samples)])
    gaps = falls(samples)
    low, high, least = min(gaps, key=lambda gap: gap[2].high)
    return (
        whole.low > 0 and least.high >= 0,
        f"{whole:.4f} from end to end; the neighbours that come nearest to rising, {low:g} and "
        f"{high:g}: {least:.4f}.",
    )


def _judged(conclusion: str, calibration: str, samples: Samples) -> Finding:
    holds, words = _falling(samples)
    return Finding.judged(conclusion, calibration, holds, words)
