"""Fig. 3 of DVP: privacy against accuracy, a model of it, and the alpha that it chooses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import combinations
from typing import Any, ClassVar, Final

import numpy as np

from dpadmm.experiments.figures import Curve, Panel
from dpadmm.experiments.jobs import Job, Result
from dpadmm.plain import Array
from dpadmm.report.document import Table
from dpadmm_papers.dvp.setting import (
    CALIBRATIONS,
    CONTROL,
    HALVED,
    SETTINGS,
    ZETA,
    Section5,
    falls,
    label,
)
from dpadmm_papers.experiment import (
    Conclusion,
    Evaluation,
    Experiment,
    Finding,
    Setting,
    ours,
    paper,
)
from dpadmm_papers.loss_fits import NEAR, Fitted, Samples, fit_resampled
from dpadmm_papers.statistics import difference
from dpadmm_papers.trade_off import LossCurve, PrivacyUtility, design_alpha
from dpadmm_papers.verdicts import Judged, VerdictWord, above, below, certain, every

_NEAR: Final = f"within a factor of {NEAR:g}"
# The two choices of ours that the printed constants were varied over.
_GRID, _OPEN = "the alpha grid", "eta, P and B_p"
# Fits that must agree on where the best alpha lies.
_SURE: Final = 0.975


class Figure3(Section5):
    """Loss and errors over alpha, the fitted loss, the utility of privacy."""

    name = "dvp-figure-3"
    seconds = 80
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
        "other grid": ours(0.05, "the smallest alpha of another grid: the paper's is not stated"),
        "scale of the loss": ours(
            "mean loss of a row",
            "C(t) has the factor C^R = 1750, c4 = 0.2 clearly has not; c4 = 20 is judged with it",
        ),
        "shown iterations": ours((1, 10, 100), "(a)-(b) show 'different iterations'"),
        "error rate": ours("of test rows", "(d) does not say of which rows; parties' own models"),
        "resamples": ours(1000, "for the intervals of fitted constants"),
        "other etas": ours((5.0, 500.0), "eta is not stated"),
        "other parties": ours(((20, 2000),), "P and B_p are not stated"),
        "alphas elsewhere": ours((0.01, 0.05, 0.1, 0.3), "those of Fig. 2"),
    }
    conclusions = (
        Conclusion(
            "iterations",
            "There is a trade-off between privacy and accuracy at different iterations: the "
            "accuracy increases as alpha becomes larger.",
            "At each of iterations 1, 10 and 100 the 97.5% interval of the loss at the smallest "
            "alpha minus that at the largest is above 0, and for no two neighbouring alphas is it "
            "below 0.",
            choices=(ZETA,),
        ),
        Conclusion(
            "form",
            "By curve fitting, the loss is modelled as c4 exp(-c5 alpha) + c6.",
            "The least squares fit is within 5% of the mean loss at iteration 100 for every alpha, "
            "by the whole 97.5% interval.",
            choices=(_GRID, ZETA),
        ),
        Conclusion(
            "c4",
            "From the experimental results, c4 = 0.2.",
            f"The whole 97.5% interval of our fit's at iteration 100 is {_NEAR} of it.",
            choices=(_GRID, ZETA, _OPEN),
        ),
        Conclusion(
            "c5",
            "From the experimental results, c5 = 25.",
            f"The whole 97.5% interval of our fit's at iteration 100 is {_NEAR} of it.",
            choices=(_GRID, ZETA, _OPEN),
        ),
        Conclusion(
            "constants for t > 1",
            "For iteration t > 1, c4 = 20 and c5 = 20.",
            "At iterations 10 and 100 the whole 97.5% intervals of our fit to C(t), which is C^R "
            f"times the loss, are {_NEAR} of both.",
            choices=(_GRID, ZETA),
        ),
        Conclusion(
            "all iterations",
            "These values are applicable at all iterations.",
            "The 97.5% intervals of the ratios of our c4 and c5 at every two of iterations 1, 10 "
            f"and 100 are {_NEAR} of 1.",
            choices=(_GRID, ZETA),
        ),
        Conclusion(
            "risk",
            "(c) The empirical risk of the final output falls as alpha grows.",
            "At iteration 100 the 97.5% interval of the loss is above 0 for the smallest alpha "
            "minus the largest, and below 0 for no two neighbours.",
            choices=(ZETA,),
        ),
        Conclusion(
            "error",
            "(d) The misclassification rate at iteration 100 falls as alpha grows.",
            "The 97.5% interval of the rate is above 0 for the smallest alpha minus the largest, "
            "and below 0 for no two neighbours.",
            choices=(ZETA,),
        ),
        Conclusion(
            "design",
            "The optimal privacy parameter comes from an optimisation problem: utility of privacy "
            "against loss.",
            "The maximum of U_priv - L_acc lies inside the range of alpha, not at an end, for at "
            f"least {_SURE:.1%} of fits to resampled runs; it does not stand where it is at an end "
            "for as many.",
            choices=(ZETA,),
        ),
    )

    def cells(self) -> dict[str, Job]:
        """Every alpha in both calibrations; a grid of what is not stated."""
        cells: dict[str, Job] = {CONTROL: self.control()}
        for alpha in self["alphas"]:
            for calibration in CALIBRATIONS:
                cells[label(alpha, calibration)] = self.at_alpha(alpha, calibration)
            cells[label(alpha, HALVED)] = self.at_alpha(alpha, "published", halved=True)
        for alpha in self["alphas elsewhere"]:
            for place, changes in self._elsewhere().items():
                cells[label(alpha, place)] = self.at_alpha(alpha, "published", **changes)
        return cells

    def _elsewhere(self) -> dict[str, dict[str, Any]]:
        etas = {f"eta {eta:g}": {"eta": eta} for eta in self["other etas"]}
        sizes = {
            f"{parties} parties of {rows:,}": {"size": (parties, rows)}
            for parties, rows in self["other parties"]
        }
        return {**etas, **sizes}

    def _alphas(self, kind: str) -> tuple[float, ...]:
        here = (*CALIBRATIONS, HALVED)
        return tuple(self["alphas" if kind in here else "alphas elsewhere"])

    def _errors(self, results: Mapping[str, Result], kind: str) -> Samples:
        return {
            alpha: 1 - results[label(alpha, kind)].final("average test accuracy")
            for alpha in self._alphas(kind)
        }

    def _fit(self, samples: Samples, name: str) -> Fitted:
        return fit_resampled(samples, draws=self["resamples"], name=name)

    def _utility(self) -> PrivacyUtility:
        return PrivacyUtility(*self["omega"])

    def evaluate(self, results: Mapping[str, Result]) -> Evaluation:
        """The four parts, and the grid."""
        shown = self["shown iterations"]
        by_iteration: dict[str, dict[int, Samples]] = {
            kind: {each: self.losses(results, kind, self["alphas"], each) for each in shown}
            for kind in (*CALIBRATIONS, HALVED)
        }
        fits = {
            kind: {each: self._fit(samples, f"{kind} {each}") for each, samples in losses.items()}
            for kind, losses in by_iteration.items()
        }
        main = f"eta {self['eta']:g}, {self['parties']} parties"
        grid = {main: "published", **{place: place for place in self._elsewhere()}}
        losses = {
            place: self.losses(results, kind, self._alphas(kind)) for place, kind in grid.items()
        }
        elsewhere = {place: self._fit(losses[place], place) for place in self._elsewhere()}
        findings = [
            _of_paper(finding)
            for kind in by_iteration
            for finding in (
                *self._trade_offs(kind, by_iteration[kind], self._errors(results, kind)),
                *self._constants(kind, by_iteration[kind], fits[kind]),
            )
            # Of choices one is made otherwise at a time.
            if kind != HALVED or not finding.choice
        ]
        last = {kind: by_iteration[kind][shown[-1]] for kind in CALIBRATIONS}
        return Evaluation(
            (
                iteration_panel({kind: by_iteration[kind] for kind in CALIBRATIONS}),
                *design_panels(self, last, {kind: fits[kind][shown[-1]] for kind in CALIBRATIONS}),
                *self._outcomes(results),
                grid_panel(losses),
            ),
            {
                "Fitted constants, and the alpha that maximises U_priv - L_acc": self._fit_table(
                    fits, elsewhere
                ),
                "Claimed and provable": self.guarantees(results, self["alphas"]),
            },
            (*findings, *self._over_grid(elsewhere)),
            (
                "As published and as proven, every iteration is to be alpha-private: that is what "
                "the paper claims. What the iterations come to together is in the last table.",
                "U_priv - L_acc has no maximum unless alpha has a lower limit: it grows without "
                "bound as alpha goes to 0. The paper's Assumption 6 has its two directions the "
                "wrong way round. `dpadmm_papers.trade_off.design_alpha` solves it for costs of "
                "one's own.",
            ),
        )

    def _outcomes(self, results: Mapping[str, Result]) -> tuple[Any, ...]:
        kinds, control = CALIBRATIONS, results[CONTROL]
        return outcome_panels(
            {kind: self.losses(results, kind, self._alphas(kind)) for kind in kinds},
            {kind: self._errors(results, kind) for kind in kinds},
            (
                float(control.final("average loss").mean()),
                1 - float(control.final("average test accuracy").mean()),
            ),
        )

    # -- findings ---------------------------------------------------------------------------

    def _rests_on(self, kind: str) -> list[str]:
        return [label(alpha, kind) for alpha in self._alphas(kind)]

    def _trade_offs(
        self, calibration: str, losses: Mapping[int, Samples], errors: Samples
    ) -> Iterator[Finding]:
        """What falls as alpha grows."""
        judged = {each: _falling(samples) for each, samples in losses.items()}
        at_all = Judged(
            every(each.verdict for each in judged.values()),
            " ".join(f"Iteration {each}: {found.number}" for each, found in judged.items()),
        )
        last = losses[self["shown iterations"][-1]]
        for conclusion, found in (
            ("iterations", at_all),
            ("risk", _falling(last)),
            ("error", _falling(errors)),
        ):
            rests_on = self._rests_on(calibration)
            yield Finding.of(conclusion, calibration, found, rests_on=rests_on)

    def _constants(
        self, calibration: str, losses: Mapping[int, Samples], fits: Mapping[int, Fitted]
    ) -> Iterator[Finding]:
        """What the fits say, also of the other grid."""
        rests_on = self._rests_on(calibration)
        start = self["other grid"]
        shorter = {
            each: self._fit(
                {alpha: values for alpha, values in samples.items() if alpha >= start},
                f"{calibration} {each} from {start}",
            )
            for each, samples in losses.items()
        }
        for choice, variant, found in (("", "", fits), (_GRID, f"from {start:g}", shorter)):
            for conclusion, judged in self._of_fits(found).items():
                yield Finding.of(
                    conclusion,
                    calibration,
                    judged,
                    choice=choice,
                    variant=variant,
                    rests_on=rests_on,
                )
        best, inside = fits[max(fits)].chosen(self._utility(), self["range of alpha"])
        # As often at an end as it should be inside: then it is not.
        verdict: VerdictWord = (
            certain(inside >= _SURE) if abs(inside - 0.5) >= _SURE - 0.5 else "not decided"
        )
        number = f"alpha = {best:.3g}, inside for {inside:.0%} of fits."
        yield Finding.judged("design", calibration, verdict, number, rests_on=rests_on)

    def _of_fits(self, fits: Mapping[int, Fitted]) -> dict[str, Judged]:
        final = fits[max(fits)]
        later = {each: fitted for each, fitted in fits.items() if each > 1}
        height, rate = self["c4, c5 for t > 1"]
        words = " ".join(f"Iteration {each}: {fitted.words()}." for each, fitted in fits.items())
        pairs = combinations(fits.values(), 2)
        return {
            "form": final.follows(0.05),
            **self._printed(final),
            "constants for t > 1": Judged(
                every(fitted.has(height / self["C^R"], rate) for fitted in later.values()),
                f"Times {self['C^R']}, the paper's c4 is {height / self['C^R']:.3g} here. {words}",
            ),
            "all iterations": Judged(every(one.agrees(other) for one, other in pairs), words),
        }

    def _printed(self, fitted: Fitted) -> dict[str, Judged]:
        """Whether c4 and c5 are those that the paper prints."""
        height, rate = self["c4, c5"]
        return {
            "c4": Judged(fitted.near("height", height), f"{fitted.words()}."),
            "c5": Judged(fitted.near("rate", rate), f"{fitted.words()}."),
        }

    def _over_grid(self, elsewhere: Mapping[str, Fitted]) -> Iterator[Finding]:
        for place, fitted in elsewhere.items():
            for conclusion, judged in self._printed(fitted).items():
                yield Finding.of(
                    conclusion,
                    "published",
                    judged,
                    choice=_OPEN,
                    variant=place,
                    rests_on=self._rests_on(place),
                )

    # -- tables -----------------------------------------------------------------------------

    def _fit_table(
        self, fits: Mapping[str, Mapping[int, Fitted]], elsewhere: Mapping[str, Fitted]
    ) -> Table:
        low, high = ends = self["range of alpha"]
        rows: list[tuple[str, ...]] = []
        for setting, scale in (("c4, c5", 1.0), ("c4, c5 for t > 1", self["C^R"])):
            height, rate = self[setting]
            curve = LossCurve(height / scale, rate, 0.0)
            alpha = design_alpha(curve, self._utility(), lowest=low, highest=high).alpha
            heads = (f"the paper's {setting}", f"{height:g}", f"{rate:g}")
            rows.append((*heads, "", "", f"{alpha:.3g}"))
        named = {
            f"{kind}, iteration {each}": fitted
            for kind, by_iteration in fits.items()
            for each, fitted in by_iteration.items()
        }
        for name, fitted in {**named, **elsewhere}.items():
            chosen, _ = fitted.chosen(self._utility(), ends)
            rows.append(
                (
                    name,
                    *(f"{fitted.interval(each):.3g}" for each in ("height", "rate", "floor")),
                    f"{fitted.furthest:.1%}",
                    f"{chosen:.3g}",
                )
            )
        return Table.of(("fit", "c4", "c5", "c6", "furthest from a mean", "alpha chosen"), rows)


def _of_paper(finding: Finding) -> Finding:
    """A finding with the proof's zeta as a variant of the one with Algorithm 2's."""
    if finding.calibration != HALVED:
        return finding
    return replace(finding, calibration="published", choice=ZETA, variant=HALVED)


def _falling(samples: Samples) -> Judged:
    """Whether the smallest alpha is above the largest, and no alpha below its next; in words."""
    whole = difference(samples[min(samples)], samples[max(samples)])
    gaps = falls(samples)
    least = min(gaps, key=lambda pair: gaps[pair].high)
    # Neighbours may lie level: only a sure rise counts against.
    level = every("does not stand" if below(gap) == "stands" else "stands" for gap in gaps.values())
    return Judged(
        every([above(whole), level]),
        f"{whole:.4f} from end to end; the neighbours that come nearest to rising, {least}: "
        f"{gaps[least]:.4f}.",
    )


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
