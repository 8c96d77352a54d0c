"""Fig. 4: the final risk by R, rho and epsilon."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, ClassVar, Final, NamedTuple, final

import numpy as np

from dpadmm.experiments.figures import Curve, Panel
from dpadmm.experiments.jobs import Job, Result
from dpadmm.experiments.measures import Interval
from dpadmm.plain import Array
from dpadmm.privacy.figures import Given
from dpadmm.report.document import Table
from dpadmm_papers.experiment import (
    Conclusion,
    Evaluation,
    Experiment,
    Finding,
    Setting,
    ours,
    paper,
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
from dpadmm_papers.verdicts import Judged, all_above, all_below, all_within

# Of intervals in words.
_FORM: Final = ".3g"
_BOTH: Final[tuple[Kind, ...]] = ("published", "proven")
_LABELS_ALONE: Final[tuple[Kind, str]] = ("phase 1", "epsilon")
# The choice of ours that "close to the reference" was varied over, beside a.
_CLOSE: Final = "what counts as close"


# With their criteria.
_CONCLUSIONS: Final[tuple[Conclusion, ...]] = (
    Conclusion(
        "R",
        "The larger the noise bound R, the greater the gap between the achieved risk and the "
        "reference value.",
        "From each R to the next larger one the final risk rises: all 97.5% intervals of the "
        "difference are above 0.",
        choices=(CONSTANT,),
    ),
    Conclusion(
        "rho: time",
        "The convergence time is affected by rho: a larger rho needs more iterations.",
        "From each rho to the next larger one the round after which the risk stays within 1% of "
        "its last value comes later: all 97.5% intervals of the difference are above 0.",
        choices=(CONSTANT,),
    ),
    Conclusion(
        "rho: risk",
        "With more iterations, a larger rho obtains the same final risk as a smaller one.",
        "From each rho to the next larger one the 97.5% interval of the change of the final risk "
        "lies within 1% of the reference risk.",
        choices=(CONSTANT,),
    ),
    Conclusion(
        "epsilon",
        "The final risks decrease with larger epsilon.",
        "Up to epsilon = 0.6, above which the paper itself sees no significant change, the final "
        "risk falls from each epsilon to the next: all 97.5% intervals of the difference are below "
        "0. And so is that from the smallest epsilon to the largest.",
        choices=(CONSTANT,),
    ),
    Conclusion(
        "phase 2",
        "The extra perturbations of phase 2 lead to larger risks for every epsilon.",
        "At every epsilon the 97.5% interval of the final risk minus that of phase 1 alone is "
        "above 0.",
        choices=(CONSTANT,),
    ),
    Conclusion(
        "large epsilon",
        "For epsilon > 0.6 the achieved risks are close to the reference value and do not "
        "significantly change.",
        "At every epsilon above 0.6 the 97.5% interval of the final risk minus the reference risk "
        "lies within 5% of the reference risk, and so does that of the change from one to the "
        "next.",
        choices=(CONSTANT, _CLOSE),
    ),
)


class _Measured(NamedTuple):
    """What the runs at one a come to."""

    base: Array
    risks: Mapping[tuple[Kind, str], Mapping[float, Array]]
    courses: Mapping[Kind, Mapping[float, Array]]


@final
class Figure4(Experiment):
    """The effects of key parameters."""

    name: ClassVar[str] = "pdml-figure-4"
    seconds: ClassVar[float] = 360.0
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
        "a, grid": ours((0.01, 0.1, 1.0, 10.0), "decides how near to the reference is near"),
        "close": ours(0.05, "a share of the reference risk; the paper gives no number"),
        "other close": ours((0.01, 0.5), "whether that number decides"),
    }
    conclusions: ClassVar[tuple[Conclusion, ...]] = _CONCLUSIONS

    def _variants(self, kind: Kind, what: str, a: float | None = None) -> dict[float, Variant]:
        """Variants along one of the three parameters, by its values."""
        a = self["a"] if a is None else a
        grid = f"{what}, grid, proven" if (what, kind) == ("rho", "proven") else f"{what}, grid"
        field = {"R": "bound", "rho": "decay", "epsilon": "label_epsilon"}[what]
        return {
            value: adult_variant(self.settings, kind, regularization=a, **{field: value})
            for value in self[grid]
        }

    def _reference(self, a: float) -> Variant:
        return adult_variant(self.settings, "reference", regularization=a)

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
        followed: set[Variant] = set()
        variants = {each for both in self._by_regularization().values() for each in both}
        for a in (self["a"], *self["other a"]):
            variants.add(self._reference(a))
            variants |= set(self._variants("phase 1", "epsilon", a).values())
            for kind in _BOTH:
                followed |= set(self._variants(kind, "rho", a).values())
                for what in ("R", "rho", "epsilon"):
                    variants |= set(self._variants(kind, what, a).values())
        return {
            each.label: adult_cell(self.settings, each, course=each in followed)
            for each in sorted(variants, key=lambda each: each.label)
        }

    def evaluate(self, results: Mapping[str, Result]) -> Evaluation:
        """Risks along each parameter, findings, and what is guaranteed."""
        base, risks, courses = self._measured(results, self["a"])
        return Evaluation(
            panels=self._panels(base, risks, courses),
            tables={
                "What is guaranteed": self._guarantees(results),
                "How near to the reference, by the regulariser's constant": self._nearness(results),
            },
            findings=(
                *self._findings(results, self["a"]),
                *(
                    replace(finding, choice=CONSTANT, variant=f"{a:g}")
                    for a in self["other a"]
                    for finding in self._findings(results, a)
                ),
                *self._near_elsewhere(results),
                *self._near_otherwise(results),
            ),
            remarks=(self._spread(risks),),
        )

    def _measured(self, results: Mapping[str, Result], a: float) -> _Measured:
        """The reference's risk, the others' along each parameter, and courses along rho."""
        reference = self._reference(a)
        along = [(kind, what) for what in ("R", "rho", "epsilon") for kind in _BOTH]
        return _Measured(
            final_risk(results[reference.label], reference, self["servers"]),
            {
                (kind, what): {
                    value: final_risk(results[each.label], each, self["servers"])
                    for value, each in self._variants(kind, what, a).items()
                }
                for kind, what in (*along, _LABELS_ALONE)
            },
            {
                kind: {
                    value: risk_course(results[each.label], each, self["servers"])
                    for value, each in self._variants(kind, "rho", a).items()
                }
                for kind in _BOTH
            },
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

    def _findings(self, results: Mapping[str, Result], a: float) -> tuple[Finding, ...]:
        base, risks, courses = self._measured(results, a)
        findings = []
        for kind in _BOTH:
            times = {
                value: convergence_round(course, self["settled"])
                for value, course in courses[kind].items()
            }
            bound = 0.01 * float(base.mean())
            judged = {
                "R": all_above(_steps(risks[kind, "R"]), _FORM),
                "rho: time": all_above(_steps(times), _FORM),
                "rho: risk": all_within(_steps(risks[kind, "rho"]), bound, _FORM),
            }
            for name, each in judged.items():
                labels = self._labels(kind, name.split(":")[0], a)
                findings.append(Finding.judged(name, kind, *each, rests_on=labels))
        for kind in (_LABELS_ALONE[0], *_BOTH):
            findings += self._epsilon_findings(kind, base, risks, a)
        return tuple(findings)

    def _labels(self, kind: Kind, what: str, a: float) -> list[str]:
        """What a finding along a parameter rests on: the reference first."""
        variants = self._variants(kind, what, a).values()
        return [self._reference(a).label, *(each.label for each in variants)]

    def _epsilon_findings(
        self,
        kind: Kind,
        base: Array,
        risks: Mapping[tuple[Kind, str], Mapping[float, Array]],
        a: float,
    ) -> list[Finding]:
        by_epsilon = risks[kind, "epsilon"]
        some = {value: risk for value, risk in by_epsilon.items() if value <= self["large epsilon"]}
        whole = {value: by_epsilon[value] for value in (min(by_epsilon), max(by_epsilon))}
        judged = {"epsilon": all_below(_steps(some) | _steps(whole), _FORM)}
        if kind != "phase 1":
            extra = {
                f"epsilon {value:g}": paired(risk, risks["phase 1", "epsilon"][value])
                for value, risk in by_epsilon.items()
            }
            judged["phase 2"] = all_above(extra, _FORM)
        judged["large epsilon"] = self._near(base, by_epsilon, self["close"])
        own = self._labels(kind, "epsilon", a)
        # The first label is the reference's, which the fall from epsilon to epsilon does not need.
        rests_on = {
            "epsilon": own[1:],
            "phase 2": [*own[1:], *self._labels("phase 1", "epsilon", a)[1:]],
            "large epsilon": own,
        }
        return [
            Finding.judged(name, _noise(kind), *each, rests_on=rests_on[name])
            for name, each in judged.items()
        ]

    def _near(self, base: Array, by_epsilon: Mapping[float, Array], share: float) -> Judged:
        """Whether large epsilons are near the reference and to each other."""
        large = {value: risk for value, risk in by_epsilon.items() if value > self["large epsilon"]}
        gaps = {f"epsilon {value:g}": paired(risk, base) for value, risk in large.items()}
        return all_within(gaps | _steps(large), share * float(base.mean()), _FORM)

    def _near_otherwise(self, results: Mapping[str, Result]) -> Iterator[Finding]:
        """Near the reference, by other shares of its risk."""
        a = self["a"]
        base, risks, _ = self._measured(results, a)
        for kind in (_LABELS_ALONE[0], *_BOTH):
            for share in self["other close"]:
                yield Finding.judged(
                    "large epsilon",
                    _noise(kind),
                    *self._near(base, risks[kind, "epsilon"], share),
                    choice=_CLOSE,
                    variant=f"{share:.0%}",
                    rests_on=self._labels(kind, "epsilon", a),
                )

    def _near_elsewhere(self, results: Mapping[str, Result]) -> Iterator[Finding]:
        """Whether other constants a bring the largest epsilon near the reference."""
        for a, (reference, published) in self._by_regularization().items():
            if a in (self["a"], *self["other a"]):
                continue
            base = final_risk(results[reference.label], reference, self["servers"])
            gap = paired(final_risk(results[published.label], published, self["servers"]), base)
            gaps = {f"epsilon {Given(published.label_epsilon)}": gap}
            yield Finding.judged(
                "large epsilon",
                "published",
                *all_within(gaps, self["close"] * float(base.mean()), _FORM),
                choice=CONSTANT,
                variant=f"{a:g}",
                rests_on=[reference.label, published.label],
            )

    def _nearness(self, results: Mapping[str, Result]) -> Table:
        rows = []
        for a, (reference, published) in self._by_regularization().items():
            base = final_risk(results[reference.label], reference, self["servers"])
            gap = paired(final_risk(results[published.label], published, self["servers"]), base)
            nothing = self["servers"] * np.log(2) - float(base.mean())
            bound = self["close"] * float(base.mean())
            rows.append((a, float(base.mean()), f"{gap:.3g}", bound, nothing))
        return Table.of(
            (
                "a",
                "reference risk",
                "both phases, published, labels' (local, proven) epsilon "
                f"{Given(max(self['epsilon, grid']))}: above it by",
                f"{self['close']:.0%} of it",
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


def _noise(kind: Kind) -> str:
    """What a finding says of the noise."""
    return "phase 1 alone" if kind == "phase 1" else kind


def _steps(values: Mapping[float, Array]) -> dict[str, Interval]:
    """Changes from each value to the next, draw by draw."""
    return {
        f"{before:g} to {after:g}": paired(np.asarray(values[after]), np.asarray(values[before]))
        for before, after in pairwise(values)
    }
