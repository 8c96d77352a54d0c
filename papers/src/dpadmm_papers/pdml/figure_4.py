"""Fig. 4: the final risk by R, rho and epsilon."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, ClassVar, Final, final

import numpy as np

from dpadmm.experiments.experiment import (
    Conclusion,
    Evaluation,
    Experiment,
    Finding,
    Setting,
    ours,
    paper,
)
from dpadmm.experiments.figures import Curve, Panel
from dpadmm.experiments.job import Job, Result
from dpadmm.experiments.statistics import Interval
from dpadmm.plain import Array
from dpadmm.privacy.figures import Given
from dpadmm.report.tables import Table
from dpadmm_papers.pdml.adult import ADULT, adult_cell, adult_variant
from dpadmm_papers.pdml.conclusions import FIGURE_4
from dpadmm_papers.pdml.scheme import (
    CITATION,
    GUARANTEE_COLUMNS,
    Kind,
    Variant,
    convergence_round,
    final_risk,
    guarantee_row,
    paired,
    risk_course,
)

__all__ = ["Figure4"]

_BOTH: Final[tuple[Kind, ...]] = ("published", "proven")
_LABELS_ALONE: Final[tuple[Kind, str]] = ("phase 1", "epsilon")


@final
class Figure4(Experiment):
    """The effects of key parameters."""

    name: ClassVar[str] = "pdml-figure-4"
    citation: ClassVar[str] = CITATION
    part: ClassVar[str] = "Fig. 4"
    title: ClassVar[str] = "Empirical risk by the noise bound, the decay and the labels' epsilon"
    settings: ClassVar[Mapping[str, Setting]] = ADULT | {
        "R, grid": ours((0.0, 1.0, 3.0, 9.0), "not stated; 1 and 9 as in Table I"),
        "rho, grid": ours((0.7, 0.8, 0.9), "not stated; around the 0.8 of Fig. 4(a)"),
        "rho, grid, proven": ours(
            (0.8, 0.9, 1.0),
            "with 0.7 the proven noise of the first of 100 rounds exceeds what a message may hold",
        ),
        "epsilon, grid": ours((0.2, 0.4, 0.6, 0.8, 1.0), "not stated but for 0.6"),
        "large epsilon": paper(0.6, "VI-B: epsilon > 0.6"),
        "a, grid": ours((0.1, 1.0, 10.0), "decides how near to the reference is near"),
    }
    conclusions: ClassVar[tuple[Conclusion, ...]] = FIGURE_4

    def _variants(self, kind: Kind, what: str) -> dict[float, Variant]:
        """Variants along one of the three parameters, by its values."""
        grid = f"{what}, grid, proven" if (what, kind) == ("rho", "proven") else f"{what}, grid"
        field = {"R": "bound", "rho": "decay", "epsilon": "label_epsilon"}[what]
        return {value: adult_variant(self.settings, kind, **{field: value}) for value in self[grid]}

    def _by_regularization(self) -> dict[float, tuple[Variant, Variant]]:
        """The reference and both phases as published with the largest epsilon, by a."""
        epsilon = max(self["epsilon, grid"])
        return {
            a: (
                adult_variant(self.settings, "reference", regularization=a),
                adult_variant(self.settings, "published", regularization=a, label_epsilon=epsilon),
            )
            for a in self["a, grid"]
        }

    def cells(self) -> dict[str, Job]:
        """One cell per variant; along rho the risk is followed."""
        base = [adult_variant(self.settings, kind) for kind in ("reference", "phase 1")]
        followed = set(base)
        variants = set(base) | set(self._variants("phase 1", "epsilon").values())
        variants |= {each for both in self._by_regularization().values() for each in both}
        for kind in _BOTH:
            followed |= set(self._variants(kind, "rho").values())
            for what in ("R", "rho", "epsilon"):
                variants |= set(self._variants(kind, what).values())
        return {
            each.label: adult_cell(self.settings, each, course=each in followed)
            for each in sorted(variants, key=lambda each: each.label)
        }

    def evaluate(self, results: Mapping[str, Result]) -> Evaluation:
        """Risks along each parameter, findings, and what is guaranteed."""
        reference = adult_variant(self.settings, "reference")
        base = final_risk(results[reference.label], reference, self["servers"])
        along = [(kind, what) for what in ("R", "rho", "epsilon") for kind in _BOTH]
        risks = {
            (kind, what): {
                value: final_risk(results[each.label], each, self["servers"])
                for value, each in self._variants(kind, what).items()
            }
            for kind, what in (*along, _LABELS_ALONE)
        }
        courses = {
            kind: {
                value: risk_course(results[each.label], each, self["servers"])
                for value, each in self._variants(kind, "rho").items()
            }
            for kind in _BOTH
        }
        return Evaluation(
            panels=self._panels(base, risks, courses),
            tables={
                "What is guaranteed": self._guarantees(results),
                "How near to the reference, by the regulariser's constant": self._nearness(results),
            },
            findings=self._findings(base, risks, courses),
            remarks=(self._spread(risks),),
        )

    def _spread(self, risks: Mapping[tuple[Kind, str], Mapping[float, Array]]) -> str:
        """How much draws differ, which decides how small an effect can be seen."""
        deviations = {
            kind: float(np.std(risks[kind, "epsilon"][self["epsilon"]], ddof=1))
            for kind in (_LABELS_ALONE[0], *_BOTH)
        }
        return (
            "Every variant has the same draws, and differences are taken draw by draw. At epsilon "
            f"{Given(self['epsilon'])} the final risk has a standard deviation over draws of "
            f"{deviations['phase 1']:.2g} with phase 1 alone, of {deviations['published']:.2g} "
            f"with both phases as published and of {deviations['proven']:.2g} as proven: the "
            "effect of epsilon is seen against that."
        )

    def _panels(
        self,
        base: Array,
        risks: Mapping[tuple[Kind, str], Mapping[float, Array]],
        courses: Mapping[Kind, Mapping[float, Array]],
    ) -> tuple[Panel, ...]:
        rounds = range(1, self["rounds"] + 1)

        def along(what: str, kinds: Sequence[Kind]) -> tuple[Curve, ...]:
            first = tuple(risks[kinds[0], what])
            line = Curve("reference", first, (float(base.mean()),) * len(first))
            return (
                line,
                *(
                    Curve.of_runs(
                        "phase 1 alone" if kind == "phase 1" else "both phases",
                        tuple(risks[kind, what]),
                        list(risks[kind, what].values()),
                        "" if kind == "phase 1" else kind,
                    )
                    for kind in kinds
                ),
            )

        followed = tuple(
            Curve.of_runs(f"rho {value:g}", rounds, course, kind)
            for kind, by_value in courses.items()
            for value, course in by_value.items()
        )
        return (
            Panel(
                f"(a) Different R (with rho = {self['rho']:g})",
                "R",
                "final empirical risk",
                along("R", ("published", "proven")),
                y_scale="log",
            ),
            Panel(
                f"(b) Different rho (with R = {self['R']:g})",
                "round",
                "empirical risk",
                followed,
                y_scale="log",
            ),
            Panel(
                f"(c) Different epsilon (with R = {self['R']:g})",
                "epsilon of the labels (local, proven)",
                "final empirical risk",
                along("epsilon", ("phase 1", "published", "proven")),
            ),
        )

    def _findings(
        self,
        base: Array,
        risks: Mapping[tuple[Kind, str], Mapping[float, Array]],
        courses: Mapping[Kind, Mapping[float, Array]],
    ) -> tuple[Finding, ...]:
        reference = float(base.mean())
        findings = []
        for kind in _BOTH:
            rises = _steps(risks[kind, "R"])
            findings.append(
                Finding.judged("R", kind, all(s.low > 0 for s in rises.values()), _words(rises))
            )
            times = {
                value: convergence_round(course, self["settled"])
                for value, course in courses[kind].items()
            }
            later = _steps(times)
            findings.append(
                Finding.judged(
                    "rho: time",
                    kind,
                    all(step.low > 0 for step in later.values()),
                    f"Rounds more: {_words(later)}",
                )
            )
            changes = _steps(risks[kind, "rho"])
            bound = 0.01 * reference
            findings.append(
                Finding.judged(
                    "rho: risk",
                    kind,
                    all(_within(step, bound) for step in changes.values()),
                    f"{_words(changes)} 1% of the reference risk is {bound:.3g}.",
                )
            )
        for kind in (_LABELS_ALONE[0], *_BOTH):
            findings += self._epsilon_findings(kind, base, risks)
        return tuple(findings)

    def _epsilon_findings(
        self,
        kind: Kind,
        base: Array,
        risks: Mapping[tuple[Kind, str], Mapping[float, Array]],
    ) -> list[Finding]:
        calibration = "phase 1 alone" if kind == "phase 1" else kind
        by_epsilon = risks[kind, "epsilon"]
        steps = _steps(by_epsilon)
        findings = [
            Finding.judged(
                "epsilon", calibration, all(step.high < 0 for step in steps.values()), _words(steps)
            )
        ]
        if kind != "phase 1":
            extra = {
                f"{value:g}": paired(risk, risks["phase 1", "epsilon"][value])
                for value, risk in by_epsilon.items()
            }
            findings.append(
                Finding.judged(
                    "phase 2",
                    calibration,
                    all(each.low > 0 for each in extra.values()),
                    _words(extra),
                )
            )
        large = {value: risk for value, risk in by_epsilon.items() if value > self["large epsilon"]}
        gaps = {f"{value:g}": paired(risk, base) for value, risk in large.items()}
        bound = 0.05 * float(base.mean())
        near = [*gaps.values(), *_steps(large).values()]
        findings.append(
            Finding.judged(
                "large epsilon",
                calibration,
                all(_within(each, bound) for each in near),
                f"Above the reference: {_words(gaps)} Change: {_words(_steps(large))} 5% of the "
                f"reference risk is {bound:.3g}.",
            )
        )
        return findings

    def _nearness(self, results: Mapping[str, Result]) -> Table:
        rows = []
        for a, (reference, published) in self._by_regularization().items():
            base = final_risk(results[reference.label], reference, self["servers"])
            gap = paired(final_risk(results[published.label], published, self["servers"]), base)
            nothing = self["servers"] * np.log(2) - float(base.mean())
            bound = 0.05 * float(base.mean())
            rows.append((a, float(base.mean()), f"{gap:.3g}", bound, _within(gap, bound), nothing))
        return Table.of(
            (
                "a",
                "reference risk",
                "both phases, published, labels' (local, proven) epsilon "
                f"{Given(max(self['epsilon, grid']))}: above it by",
                "5% of it",
                "within 5%",
                "the classifier w = 0: above it by",
            ),
            rows,
        )

    def _guarantees(self, results: Mapping[str, Result]) -> Table:
        rows: list[tuple[Any, ...]] = []
        for kind in _BOTH:
            for what in ("rho", "epsilon"):
                for value, each in self._variants(kind, what).items():
                    name = f"{kind}, {what} {value:g}"
                    rows.append(guarantee_row(name, results[each.label]))
        return Table.of(
            GUARANTEE_COLUMNS,
            rows,
        )


def _steps(values: Mapping[float, Array]) -> dict[str, Interval]:
    """Changes from each value to the next, draw by draw."""
    return {
        f"{before:g} to {after:g}": paired(np.asarray(values[after]), np.asarray(values[before]))
        for before, after in pairwise(values)
    }


def _within(interval: Interval, bound: float) -> bool:
    return -bound < interval.low and interval.high < bound


def _words(intervals: Mapping[str, Interval]) -> str:
    return "; ".join(f"{name}: {interval:.3g}" for name, interval in intervals.items()) + "."
