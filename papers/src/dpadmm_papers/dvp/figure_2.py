"""Fig. 2 of DVP: the loss over iterations, for several alpha; the rho that section 5 selects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar, Final

import numpy as np

from dpadmm.experiments.figures import Curve, Panel
from dpadmm.experiments.jobs import Job, Result
from dpadmm.experiments.measures import Interval, mean_interval
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
from dpadmm_papers.experiment import Conclusion, Evaluation, Finding, Setting, ours, paper
from dpadmm_papers.statistics import difference
from dpadmm_papers.verdicts import all_above, all_below, best_or_immaterial, within

_TITLES: Final = {"published": "As published", "proven": "Proven"}
_LOSS: Final = "loss (mean over parties)"
# How far from the loss without privacy a good one may be.
_GOOD: Final = 0.1


class Figure2(Section5):
    """The empirical loss over 100 iterations."""

    name = "dvp-figure-2"
    seconds = 20
    part = "Fig. 2"
    title = "Convergence of DVP for several alpha"
    settings: ClassVar[Mapping[str, Setting]] = {
        **SETTINGS,
        "alphas": ours(
            (0.01, 0.05, 0.1, 0.3), "not stated but for 0.3; around 1/25, the paper's 1/c5"
        ),
        "stated alpha": ours(0.3, "the one that the paper chose rho with"),
        "other etas": ours(
            (0.5, 5.0, 500.0), "eta is not stated; 0.5 is what later papers take at C = 1750"
        ),
    }
    conclusions = (
        Conclusion(
            "better",
            "Larger values of alpha yield better convergence.",
            "For every two neighbouring alphas the 97.5% interval of the loss at iteration 100 "
            "with the smaller minus that with the larger is above 0.",
            choices=(ZETA,),
        ),
        Conclusion(
            "faster",
            "A larger alpha leads to faster convergence of the algorithm.",
            "For every two neighbouring alphas the 97.5% interval of the loss, averaged over all "
            "100 iterations, with the smaller minus that with the larger is above 0.",
            choices=(ZETA,),
        ),
        Conclusion(
            "good",
            "DVP manages the trade-off while keeping a good convergence performance.",
            "At alpha = 0.3 the whole 97.5% interval of the loss at iteration 100 is within 10% of "
            "the loss without privacy.",
            choices=("eta", ZETA),
        ),
    )

    def cells(self) -> dict[str, Job]:
        """Every alpha with each noise, and the control; one alpha at other etas."""
        cells: dict[str, Job] = {CONTROL: self.control()}
        for calibration in CALIBRATIONS:
            for alpha in self["alphas"]:
                cells[label(alpha, calibration)] = self.at_alpha(alpha, calibration)
        for alpha in self["alphas"]:
            cells[label(alpha, HALVED)] = self.at_alpha(alpha, "published", halved=True)
        for eta in self["other etas"]:
            cells[f"{CONTROL}, eta {eta:g}"] = self.control(eta)
            cells[self._elsewhere(eta)] = self.at_alpha(self["stated alpha"], "published", eta=eta)
        return cells

    def _elsewhere(self, eta: float) -> str:
        return label(self["stated alpha"], f"eta {eta:g}")

    def evaluate(self, results: Mapping[str, Result]) -> Evaluation:
        """Courses, and the differences between neighbouring alphas."""
        findings: list[Finding] = []
        courses = {name: result.course("average loss") for name, result in results.items()}
        for calibration, kind, varied in (
            *((each, each, {}) for each in CALIBRATIONS),
            ("published", HALVED, {"choice": ZETA, "variant": HALVED}),
        ):
            names = {alpha: label(alpha, kind) for alpha in self["alphas"]}
            samples = {
                "better": {alpha: courses[name][-1] for alpha, name in names.items()},
                "faster": {alpha: courses[name].mean(axis=0) for alpha, name in names.items()},
            }
            for conclusion, losses in samples.items():
                judged, rests_on = all_above(falls(losses)), names.values()
                findings.append(
                    Finding.of(conclusion, calibration, judged, rests_on=rests_on, **varied)
                )
            stated = names[self["stated alpha"]]
            findings.append(self._good(courses, calibration, stated, CONTROL, **varied))
        findings += [
            self._good(
                courses,
                "published",
                self._elsewhere(eta),
                f"{CONTROL}, eta {eta:g}",
                choice="eta",
                variant=f"{eta:g}",
            )
            for eta in self["other etas"]
        ]
        shown = [self._losses(courses, calibration) for calibration in CALIBRATIONS]
        above = [self._excess(courses, calibration) for calibration in CALIBRATIONS]
        return Evaluation(
            (*shown, self._other_etas(courses), *above),
            {"Claimed and provable": self.guarantees(results, self["alphas"])},
            tuple(findings),
            (
                "The loss is the mean over parties of each party's mean loss on its own rows; the "
                f"paper's C(t) is {self['C^R']} times it.",
                *self._rises(courses),
            ),
        )

    def _rounds(self) -> range:
        return range(1, self["iterations"] + 1)

    def _losses(self, courses: Mapping[str, Array], calibration: str) -> Panel:
        curves = [
            Curve.of_runs(
                f"alpha {alpha:g}", self._rounds(), courses[label(alpha, calibration)], calibration
            )
            for alpha in self["alphas"]
        ]
        curves.append(Curve.of_runs(CONTROL, self._rounds(), courses[CONTROL]))
        return Panel(_TITLES[calibration], "iteration", _LOSS, tuple(curves))

    def _excess(self, courses: Mapping[str, Array], calibration: str) -> Panel:
        """What the mean loss has above that without privacy, where the courses lie too close."""
        curves = []
        for alpha in self["alphas"]:
            above = (courses[label(alpha, calibration)] - courses[CONTROL]).mean(axis=1)
            name = f"alpha {alpha:g}"
            curves.append(Curve.of_runs(name, self._rounds(), above[:, None], calibration))
        return Panel(
            f"{_TITLES[calibration]}: above no privacy",
            "iteration",
            "mean loss minus loss without privacy",
            tuple(curves),
            y_scale="log",
        )

    def _other_etas(self, courses: Mapping[str, Array]) -> Panel:
        curves = []
        for eta in self["other etas"]:
            noisy, plain = courses[self._elsewhere(eta)], courses[f"{CONTROL}, eta {eta:g}"]
            # Of one colour: they have the same label.
            curves.append(Curve.of_runs(f"eta {eta:g}", self._rounds(), noisy, "published"))
            curves.append(Curve.of_runs(f"eta {eta:g}", self._rounds(), plain))
        return Panel(
            f"alpha {self['stated alpha']:g}, other eta",
            "iteration",
            _LOSS,
            tuple(curves),
            note="solid: without privacy.",
        )

    def _rises(self, courses: Mapping[str, Array]) -> list[str]:
        """A remark on every course that ends surely above its lowest mean."""
        found = []
        for calibration in CALIBRATIONS:
            for alpha in self["alphas"]:
                course = courses[label(alpha, calibration)]
                lowest = int(course.mean(axis=1).argmin())
                rise = mean_interval(course[-1] - course[lowest])
                if rise.low > 0:
                    found.append(
                        f"With alpha = {alpha:g}, {calibration}, noise adds up: the loss is lowest "
                        f"at iteration {lowest + 1} and then rises by {rise:.3f}."
                    )
        return found

    def _good(
        self,
        courses: Mapping[str, Array],
        calibration: str,
        name: str,
        control: str,
        **variant: str,
    ) -> Finding:
        least = float(courses[control][-1, 0])
        excess = difference(courses[name][-1] / least, 1.0)
        return Finding.judged(
            "good",
            calibration,
            within(excess, -_GOOD, _GOOD),
            f"Excess over the loss without privacy, {least:.4f}: {excess:.2%}.",
            rests_on=(name,),
            **variant,
        )


_KINDS = (*CALIBRATIONS, "")


class SelectionOfRho(Section5):
    """The empirical loss over rho, at alpha = 0.3 and without noise."""

    name = "dvp-rho"
    seconds = 30
    part = "section 5: selection of rho"
    title = "The empirical loss over rho, at alpha = 0.3 and without noise"
    settings: ClassVar[Mapping[str, Setting]] = {
        **SETTINGS,
        "stated alpha": paper(0.3, "section 5: the fixed alpha at which rho is selected"),
        "exponents of rho": ours(
            (-10.0, -5.0, -2.5, -1.0, 0.0, 1.0),
            "'a few fixed values' that are not printed; the two that were selected are among them",
        ),
        "other etas": ours((5.0, 500.0), "eta is not stated"),
        "noise of a run": ours(
            "the same for every rho", "what rho does is far less than what noise does to a run"
        ),
    }
    conclusions = (
        Conclusion(
            "rho with noise",
            "The value of rho that minimises the empirical loss at alpha = 0.3 is 10^-2.5.",
            "The 97.5% interval of the loss at iteration 100 with 10^-2.5 less that with every "
            "other rho, of runs with the same noise, is below 0. Immaterial where what is better "
            "is so by less than a tenth of what two means of ten runs, each with noise of its own, "
            "tell apart: nobody who ran it ten times could know.",
            choices=("eta", ZETA),
        ),
        Conclusion(
            "rho without noise",
            "Without privacy it is 10^-10.",
            "Without noise the loss at iteration 100 with 10^-10 is below that with every other "
            "rho.",
        ),
    )

    def _label(self, kind: str, exponent: float, eta: float | None = None) -> str:
        where = "" if eta is None else f", eta {eta:g}"
        return f"{kind or 'no privacy'}, rho 10^{exponent:g}{where}"

    def cells(self) -> dict[str, Job]:
        """Every rho with each noise; published noise also at other etas."""
        cells: dict[str, Job] = {}
        alpha = self["stated alpha"]
        for exponent in self["exponents of rho"]:
            rho = 10.0**exponent
            cells[self._label("", exponent)] = self.control(rho=rho)
            cells[self._label(HALVED, exponent)] = self.at_alpha(
                alpha, "published", halved=True, rho=rho
            )
            for kind in CALIBRATIONS:
                cells[self._label(kind, exponent)] = self.at_alpha(alpha, kind, rho=rho)
            for eta in self["other etas"]:
                cells[self._label("published", exponent, eta)] = self.at_alpha(
                    alpha, "published", rho=rho, eta=eta
                )
        return cells

    def _losses(
        self, results: Mapping[str, Result], kind: str, eta: float | None = None
    ) -> dict[float, Array]:
        return {
            exponent: results[self._label(kind, exponent, eta)].final("average loss")
            for exponent in self["exponents of rho"]
        }

    def evaluate(self, results: Mapping[str, Result]) -> Evaluation:
        """Compare the loss at the selected rho with every other."""
        private = float(np.log10(self["rho"]))
        findings = [
            self._selected("rho with noise", kind, private, results) for kind in CALIBRATIONS
        ]
        findings += [
            self._selected(
                "rho with noise",
                "published",
                private,
                results,
                eta,
                choice="eta",
                variant=f"{eta:g}",
            )
            for eta in self["other etas"]
        ]
        proof = self._selected("rho with noise", HALVED, private, results)
        findings.append(replace(proof, calibration="published", choice=ZETA, variant=HALVED))
        plain = float(np.log10(self["rho without privacy"]))
        findings.append(self._selected("rho without noise", "", plain, results))
        curves, rows = [], []
        for kind in _KINDS:
            losses = self._losses(results, kind)
            rhos = [10.0**exponent for exponent in losses]
            name = "DVP" if kind else "no privacy"
            curves.append(Curve.of_runs(name, rhos, losses.values(), kind))
            rows += [
                (
                    kind or "no privacy",
                    f"10^{exponent:g}",
                    f"{mean_interval(values):.5f}" if kind else f"{values[0]:.7f}",
                )
                for exponent, values in losses.items()
            ]
        panel = Panel(
            f"Loss at iteration {self['iterations']}, alpha {self['stated alpha']:g}",
            "rho",
            "loss (mean over parties)",
            tuple(curves),
            x_scale="log",
        )
        table = Table.of(("noise", "rho", "loss"), rows)
        return Evaluation((panel,), {"Losses": table}, tuple(findings))

    def _selected(
        self,
        conclusion: str,
        kind: str,
        exponent: float,
        results: Mapping[str, Result],
        eta: float | None = None,
        **variant: str,
    ) -> Finding:
        """Whether the loss at an exponent is below that at every other, run by run."""
        losses = self._losses(results, kind, eta)
        nearest = min(losses, key=lambda each: abs(each - exponent))
        others = {
            f"10^{nearest:g} less 10^{other:g}": values
            for other, values in losses.items()
            if other != nearest
        }
        steps = {name: losses[nearest] - values for name, values in others.items()}
        if kind:
            gaps = {name: mean_interval(step) for name, step in steps.items()}
            ten = self["runs"]
            seen = {
                name: difference(losses[nearest][:ten], values[:ten])
                for name, values in others.items()
            }
            judged = best_or_immaterial(gaps, seen, ".2g")
        else:
            judged = all_below(
                {name: Interval(*(float(step[0]),) * 3) for name, step in steps.items()}, ".2g"
            )
        rests_on = [self._label(kind, each, eta) for each in losses]
        return Finding.of(conclusion, kind, judged, rests_on=rests_on, **variant)
