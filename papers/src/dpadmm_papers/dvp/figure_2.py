"""Fig. 2 of DVP: the loss over iterations, for several alpha."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final

from dpadmm.experiments.experiment import Conclusion, Evaluation, Finding, Setting, ours
from dpadmm.experiments.figures import Curve, Panel
from dpadmm.experiments.job import Job, Result
from dpadmm.experiments.statistics import difference, mean_interval
from dpadmm.experiments.verdicts import all_above, within
from dpadmm.plain import Array
from dpadmm_papers.dvp.setting import CALIBRATIONS, CONTROL, SETTINGS, Section5, falls, label

__all__ = ["Figure2"]

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
        ),
        Conclusion(
            "faster",
            "A larger alpha leads to faster convergence of the algorithm.",
            "For every two neighbouring alphas the 97.5% interval of the loss, averaged over all "
            "100 iterations, with the smaller minus that with the larger is above 0.",
        ),
        Conclusion(
            "good",
            "DVP manages the trade-off while keeping a good convergence performance.",
            "At alpha = 0.3 the whole 97.5% interval of the loss at iteration 100 is within 10% of "
            "the loss without privacy.",
            choices=("eta",),
        ),
    )

    def cells(self) -> dict[str, Job]:
        """Every alpha in both calibrations, and the control; one alpha at other etas."""
        cells: dict[str, Job] = {CONTROL: self.control()}
        for calibration in CALIBRATIONS:
            for alpha in self["alphas"]:
                cells[label(alpha, calibration)] = self.at_alpha(alpha, calibration)
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
        for calibration in CALIBRATIONS:
            names = {alpha: label(alpha, calibration) for alpha in self["alphas"]}
            samples = {
                "better": {alpha: courses[name][-1] for alpha, name in names.items()},
                "faster": {alpha: courses[name].mean(axis=0) for alpha, name in names.items()},
            }
            for conclusion, losses in samples.items():
                judged, rests_on = all_above(falls(losses)), names.values()
                findings.append(Finding.of(conclusion, calibration, judged, rests_on=rests_on))
            stated = names[self["stated alpha"]]
            findings.append(self._good(courses, calibration, stated, CONTROL))
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
