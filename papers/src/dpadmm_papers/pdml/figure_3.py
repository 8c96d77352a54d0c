"""Fig. 3: how the servers come to agree, and what risk they end at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar, Final, final

import numpy as np

from dpadmm.experiments.figures import Curve, Panel
from dpadmm.experiments.jobs import Job, Result
from dpadmm.experiments.measures import mean_interval
from dpadmm.plain import Array
from dpadmm.privacy.figures import AtMost, Given
from dpadmm.report.document import Table
from dpadmm_papers.experiment import (
    Conclusion,
    Evaluation,
    Experiment,
    Finding,
    Setting,
    ours,
)
from dpadmm_papers.pdml.scheme import (
    ADULT,
    CITATION,
    CONSTANT,
    GUARANTEE_COLUMNS,
    Kind,
    Variant,
    adult_cell,
    adult_variant,
    convergence_round,
    final_risk,
    guarantee_row,
    risk_course,
)
from dpadmm_papers.statistics import paired
from dpadmm_papers.verdicts import Judged, above, below, within

# What the verdicts are about, by the names of the curves.
_JUDGED: Final[Mapping[str, Kind]] = {
    "reference": "reference",
    "phase 1 alone": "phase 1",
    "both phases": "published",
    "both phases, calibrated": "proven",
}

# With their criteria.
_CONCLUSIONS: Final[tuple[Conclusion, ...]] = (
    Conclusion(
        "consensus",
        "Both distances, with and without the privacy-preserving approach of phase 2, converge to "
        "0: the consensus constraint is eventually satisfied.",
        "After the last round the upper end of the 97.5% interval of the mean largest distance "
        "between the norms of two servers' classifiers, which is what the paper draws, is below 1% "
        "of the norm of the reference classifier. The distance between the classifiers stands "
        "beside it: equal norms are not yet consensus.",
        choices=(CONSTANT,),
    ),
    Conclusion(
        "convergence",
        "The combined noise-adding scheme preserves the convergence property of ADMM.",
        "The risk has settled: the 97.5% interval of its mean over the last tenth of the rounds "
        "minus that over the tenth before lies within 1% of the reference risk.",
        choices=(CONSTANT,),
    ),
    Conclusion(
        "longer",
        "Due to the noise of phase 2 the convergence time becomes longer.",
        "The round after which the risk stays within 1% of its last value is later than without "
        "phase 2: the 97.5% interval of the difference is above 0.",
        choices=(CONSTANT,),
    ),
    Conclusion(
        "not the reference",
        "With and without phase 2, the final risk of ADMM on original data is not reached.",
        "The 97.5% interval of the final risk minus the reference's of the same draw is above 0.",
        choices=(CONSTANT,),
    ),
)


@final
class Figure3(Experiment):
    """The convergence properties of PDML."""

    name: ClassVar[str] = "pdml-figure-3"
    seconds: ClassVar[float] = 50.0
    citation: ClassVar[str] = CITATION
    part: ClassVar[str] = "Fig. 3"
    title: ClassVar[str] = "Distances between servers and empirical risk, round by round"
    settings: ClassVar[Mapping[str, Setting]] = ADULT | {
        "row epsilon, grid": ours((1.0, 3.0, 10.0), "how the proven noise weighs"),
        "initial noise, grid": ours((0.1, 1.0), "V decides how long the noise is felt"),
        "a, grid": ours((0.01, 0.1, 1.0, 10.0), "the risk depends on it"),
    }
    conclusions: ClassVar[tuple[Conclusion, ...]] = _CONCLUSIONS

    def _judged_at(self, a: float) -> dict[str, Variant]:
        """Variants that the verdicts are about, by name."""
        return {
            name: adult_variant(self.settings, kind, regularization=a)
            for name, kind in _JUDGED.items()
        }

    def _followed(self) -> dict[str, Variant]:
        """Variants whose course is shown, by the names of their curves."""
        package = adult_variant(self.settings, "package")
        return {**self._judged_at(self["a"]), "calibrated, as the package does": package}

    def _by_row_epsilon(self) -> dict[float, Variant]:
        return {
            epsilon: adult_variant(self.settings, "proven", row_epsilon=epsilon)
            for epsilon in self["row epsilon, grid"]
        }

    def _by_initial_noise(self) -> dict[float, Variant]:
        return {
            noise: adult_variant(self.settings, "published", initial_noise=noise)
            for noise in self["initial noise, grid"]
        }

    def _by_regularization(self) -> dict[float, dict[str, Variant]]:
        return {
            a: {
                kind: adult_variant(self.settings, kind, regularization=a)
                for kind in _JUDGED.values()
            }
            for a in self["a, grid"]
        }

    def cells(self) -> dict[str, Job]:
        """One cell per variant; those that are followed have courses."""
        followed = {*self._followed().values(), *self._by_initial_noise().values()}
        followed |= {each for a in self["other a"] for each in self._judged_at(a).values()}
        grids = [*self._by_row_epsilon().values()]
        grids += [each for kinds in self._by_regularization().values() for each in kinds.values()]
        variants = [*followed, *grids]
        return {
            each.label: adult_cell(self.settings, each, course=each in followed)
            for each in sorted(variants, key=lambda each: each.label)
        }

    def evaluate(self, results: Mapping[str, Result]) -> Evaluation:
        """Courses, findings, and the grids over what the paper does not state."""
        followed = self._followed()
        found = {name: results[each.label] for name, each in followed.items()}
        courses = {
            name: risk_course(found[name], each, self["servers"]) for name, each in followed.items()
        }
        return Evaluation(
            panels=self._panels(followed, found, courses),
            tables={
                "What is guaranteed": self._guarantees(found),
                "The proven noise, by the row's epsilon": self._row_grid(results),
                "The published noise, by V": self._noise_grid(results, courses),
                "The risk, by the regulariser's constant": self._regularization_grid(results),
            },
            findings=(
                *self._findings(results, self["a"]),
                *(
                    replace(finding, choice=CONSTANT, variant=f"{a:g}")
                    for a in self["other a"]
                    for finding in self._findings(results, a)
                ),
            ),
            remarks=self._remarks(found, courses),
        )

    def _panels(
        self,
        followed: Mapping[str, Variant],
        found: Mapping[str, Result],
        courses: Mapping[str, Array],
    ) -> tuple[Panel, ...]:
        rounds = range(1, self["rounds"] + 1)
        shown = [name for name in followed if name != "reference"]
        norms, distances = (
            tuple(
                Curve.of_runs(name, rounds, found[name].course(what), followed[name].calibration)
                for name in shown
            )
            for what in ("distance of norms", "largest distance")
        )
        final = float(courses["reference"][-1].mean())
        risks = (
            *(
                Curve.of_runs(name, rounds, courses[name], followed[name].calibration)
                for name in shown
            ),
            # Last, so that the others have the colours that they have in the first panel.
            Curve("reference: ADMM on the true labels", tuple(rounds), (final,) * len(rounds)),
        )
        epsilons = tuple(
            Curve(
                name,
                tuple(rounds),
                tuple(found[name].values["epsilon"].tolist()),
                calibration=followed[name].calibration,
            )
            for name in shown
            if followed[name].calibration
        )
        return (
            Panel(
                "(a) Norm of the errors",
                "round",
                "largest distance between the norms of two servers' classifiers",
                norms,
                y_scale="log",
            ),
            Panel(
                "Ours: consensus",
                "round",
                "largest distance between two servers' classifiers",
                distances,
                y_scale="log",
            ),
            Panel("(b) Empirical risk", "round", "empirical risk (1)", risks, y_scale="log"),
            Panel(
                "Ours: what is proven for the noise",
                "round",
                f"proven row epsilon at delta {Given(self['row delta'])}",
                epsilons,
                y_scale="log",
                note="the epsilon that is proven for a row against the other servers, after each "
                "round; eta earns nothing, and the decaying noise lets it grow exponentially.",
            ),
        )

    def _findings(self, results: Mapping[str, Result], a: float) -> tuple[Finding, ...]:
        followed = self._judged_at(a)
        found = {name: results[each.label] for name, each in followed.items()}
        courses = {
            name: risk_course(found[name], each, self["servers"]) for name, each in followed.items()
        }
        findings = []
        settled = {
            name: convergence_round(course, self["settled"]) for name, course in courses.items()
        }
        reference = float(courses["reference"][-1].mean())
        norm = float(np.sqrt(found["reference"].course("average squared norm")[-1].mean()))
        tenth = max(1, self["rounds"] // 10)
        for calibration, name in (
            ("phase 1 alone", "phase 1 alone"),
            ("published", "both phases"),
            ("proven", "both phases, calibrated"),
        ):
            norms = mean_interval(found[name].course("distance of norms")[-1])
            distance = mean_interval(found[name].course("largest distance")[-1])
            course, bound = courses[name], 0.01 * reference
            moved = mean_interval(
                course[-tenth:].mean(axis=0) - course[-2 * tenth : -tenth].mean(axis=0)
            )
            later = paired(settled[name], settled["phase 1 alone"])
            gap = paired(course[-1], courses["reference"][-1])
            judged = {
                "consensus": Judged(
                    below(norms, 0.01 * norm),
                    f"Largest distance between two norms after round {self['rounds']}: "
                    f"{norms:.3g}; between two classifiers: {distance:.3g}; 1% of the reference's "
                    f"norm is {0.01 * norm:.3g}.",
                ),
                "convergence": Judged(
                    within(moved, -bound, bound),
                    f"Between the last two tenths the risk moved by {moved:.3g}; 1% of the "
                    f"reference risk is {bound:.3g}.",
                ),
                "longer": Judged(above(later), f"Rounds more: {later:.3g}."),
                "not the reference": Judged(
                    above(gap), f"Above the reference risk of {reference:.4g} by {gap:.3g}."
                ),
            }
            if name == "phase 1 alone":
                del judged["longer"]
            cells = {followed[each].label for each in ("reference", "phase 1 alone", name)}
            findings += [
                Finding.judged(conclusion, calibration, *each, rests_on=sorted(cells))
                for conclusion, each in judged.items()
            ]
        return tuple(findings)

    def _remarks(
        self, found: Mapping[str, Result], courses: Mapping[str, Array]
    ) -> tuple[str, ...]:
        nothing = self["servers"] * np.log(2)
        published = mean_interval(courses["both phases"][-1])
        accuracy = found["reference"].final("training accuracy").mean()
        side = "above" if published.low > nothing else "not above"
        return (
            f"The classifier w = 0, which has learnt nothing, has the risk n ln 2 = {nothing:.4g}. "
            f"With both phases as published (R = {self['R']:g}) the final risk is "
            f"{published:.4g}: {side} that of no classifier at all; eta stays in the objective in "
            f"every round. At a = {self['a']:g} the reference classifier's accuracy on the "
            f"training rows is {accuracy:.1%}; the larger class has {self['larger class']:.1%}.",
            "The figures are of what a server sends, noise included. With rho < 1 a calibrated "
            "run spends its budget on the last rounds, and the noise of the first is very large.",
        )

    def _guarantees(self, found: Mapping[str, Result]) -> Table:
        rows = [
            (
                name,
                *guarantee_row(name, found[name])[1:],
                *(AtMost(found[name].values["epsilon"][place - 1]) for place in self._looks()),
            )
            for name in (
                "both phases",
                "both phases, calibrated",
                "calibrated, as the package does",
            )
        ]
        return Table.of(
            (
                *GUARANTEE_COLUMNS,
                *(f"proven epsilon of a row after {place} rounds" for place in self._looks()),
            ),
            rows,
        )

    def _looks(self) -> tuple[int, ...]:
        return tuple(max(1, self["rounds"] * share // 100) for share in (20, 50, 80))

    def _row_grid(self, results: Mapping[str, Result]) -> Table:
        reference = self._followed()["reference"]
        base = final_risk(results[reference.label], reference, self["servers"])
        rows = [
            (epsilon, f"{paired(final_risk(results[each.label], each, self['servers']), base):.3g}")
            for epsilon, each in self._by_row_epsilon().items()
        ]
        return Table.of(("proven row epsilon", "final risk above the reference"), rows)

    def _noise_grid(self, results: Mapping[str, Result], courses: Mapping[str, Array]) -> Table:
        alone = convergence_round(courses["phase 1 alone"], self["settled"])
        rows = []
        for noise, each in self._by_initial_noise().items():
            course = risk_course(results[each.label], each, self["servers"])
            later = paired(convergence_round(course, self["settled"]), alone)
            gap = paired(course[-1], courses["reference"][-1])
            epsilon = AtMost(results[each.label].values["epsilon"][-1])
            rows.append((noise, f"{later:.3g}", f"{gap:.3g}", epsilon))
        return Table.of(
            (
                "V",
                "rounds more than phase 1 alone",
                "final risk above the reference",
                f"proven epsilon of a row at delta {Given(self['row delta'])}",
            ),
            rows,
        )

    def _regularization_grid(self, results: Mapping[str, Result]) -> Table:
        rows = []
        for a, kinds in self._by_regularization().items():
            risks = {
                kind: final_risk(results[each.label], each, self["servers"])
                for kind, each in kinds.items()
            }
            accuracy = results[kinds["reference"].label].final("training accuracy").mean()
            rows.append(
                (
                    a,
                    float(risks["reference"].mean()),
                    f"{accuracy:.1%}",
                    *(
                        f"{paired(risks[kind], risks['reference']):.3g}"
                        for kind in ("phase 1", "published", "proven")
                    ),
                )
            )
        return Table.of(
            (
                "a",
                "reference risk",
                "its accuracy on training rows",
                "phase 1 alone: above it by",
                "both phases, published: above it by",
                "both phases, proven: above it by",
            ),
            rows,
        )
