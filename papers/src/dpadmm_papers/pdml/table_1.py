"""Table I: accuracy on held-back rows of seven data sets, compared cell by cell."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import permutations
from typing import ClassVar, Final, final

from dpadmm.experiments.jobs import Job, Result, TrainingJob
from dpadmm.experiments.measures import mean_interval
from dpadmm.experiments.problems import NamedProblem, ProblemSource
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
from dpadmm_papers.pdml.comparison import (
    COLUMNS,
    COMPARABLE,
    PRINTED,
    SETS,
    Accuracies,
    by_preparation,
    by_spread,
    cell_by_cell,
    judge,
    judge_chance,
    judge_strongest,
    mean_of_sets,
    panels,
)
from dpadmm_papers.pdml.scheme import (
    CITATION,
    GUARANTEE_COLUMNS,
    SHARED,
    Kind,
    Variant,
    guarantee_row,
)
from dpadmm_papers.preparations import CodedProblem, StandardizedProblem

_STANDARD: Final = "standardised columns and a constant"
_NORM: Final = "rows of norm at most 1"
_CODED: Final = "bases numbered from 1, over the longest row, without a constant"
_MEASURE: Final = "test accuracy"
# The columns that are looked at under other preparations.
_HEADINGS: Final = (
    "without privacy",
    "epsilon 1, no phase 2",
    "epsilon 1, R 1",
    "epsilon 0.4, R 9",
)


# With their criteria.
_CONCLUSIONS: Final[tuple[Conclusion, ...]] = (
    Conclusion(
        "epsilon and R",
        "Larger epsilon and smaller R generate better accuracy.",
        "In the mean over the seven sets, draw by draw: accuracy at epsilon 1 minus 0.4, for each "
        "R, and at R 1 minus 9, for each epsilon, has a 97.5% interval above 0 in every case.",
    ),
    Conclusion(
        "strongest",
        "Even under the strongest privacy setting (epsilon = 0.4, R = 9) the accuracy is "
        "comparable to the reference.",
        "The reference's accuracy minus that at epsilon 0.4, R 9, in the mean over the seven sets, "
        "has a 97.5% interval whose upper end is at most the paper's own mean gap.",
        choices=("spread of eta", COMPARABLE),
    ),
    Conclusion(
        "banana",
        "Under Banana accuracy is inferior in all settings, around 50%: logistic regression does "
        "not suit it.",
        "In every column the 97.5% interval of the mean accuracy is below 60%.",
    ),
    Conclusion(
        "splice",
        "Under Splice accuracy is inferior in all settings, around 50%: logistic regression does "
        "not suit it.",
        "In every column the 97.5% interval of the mean accuracy is below 60%.",
        choices=("preparation",),
    ),
)


@final
class Table1(Experiment):
    """Classification accuracy with test data."""

    name: ClassVar[str] = "pdml-table-1"
    seconds: ClassVar[float] = 140.0
    citation: ClassVar[str] = CITATION
    part: ClassVar[str] = "Table I"
    title: ClassVar[str] = "Accuracy on held-back rows of seven data sets, in seven settings"
    settings: ClassVar[Mapping[str, Setting]] = SHARED | {
        "data sets": paper(tuple(SETS), "VI-A 1: the seven largest of Rätsch's benchmark"),
        "rows held back": paper(
            {name: each.test_rows for name, each in SETS.items()},
            "read off Table I: the smallest number that leaves ten equal groups and of which every "
            "printed accuracy is a whole multiple. The text says about 30%; for ringnorm and "
            "twonorm, with 7,400 rows, it is 53%",
        ),
        "printed accuracies": paper(PRINTED, "Table I"),
        "settings of epsilon and R": paper(tuple(COLUMNS), "Table I"),
        "preparation": ours(
            _STANDARD,
            "not stated for these sets; it brings the column without privacy nearest to the "
            "paper's. The preparation stated for Adult is shown beside; Splice also with its bases "
            "as numbers from 1",
        ),
        "row bound": ours(
            2.0,
            "times the root of the number of columns, constant included: what a row's norm is "
            "scaled down to where it is longer, which the proofs need",
        ),
        "rounds": ours(
            50,
            "not stated; with 100 and rho = 0.8 the proven noise of the first round exceeds what a "
            "message may hold",
        ),
        "rho": ours(0.8, "not stated for the table; as in Fig. 4(a)"),
        "draws": ours(
            10, "the paper's figures are of one; each draws split, labels and noise anew"
        ),
        "bound of eta, grid": ours(
            (1.0, 1 / math.sqrt(3)),
            "as shares of R: the uniform distribution, and one whose deviation, R/3, is that of a "
            "normal one that is cut off at three deviations",
        ),
        "row epsilon, grid": ours((1.0, 3.0, 10.0), "how the proven noise weighs"),
        "other preparations": ours(
            ((_STANDARD, 0.1), (_STANDARD, 10.0), (_NORM, 1.0), (_NORM, 0.1)),
            "preparation and a, for a few columns",
        ),
        "other preparations, draws": ours(3, "a rough look"),
        "numberings of the bases": ours(
            tuple(each for each in permutations(range(4)) if each[0] < each[3]),
            "splice: the benchmark's is not documented; these are all, up to turning them round",
        ),
    }
    conclusions: ClassVar[tuple[Conclusion, ...]] = _CONCLUSIONS

    def _cell(
        self,
        name: str,
        variant: Variant,
        preparation: str,
        draws: int,
        numbering: tuple[int, ...] = (),
    ) -> TrainingJob:
        each, servers = SETS[name], self["servers"]
        shares = (name, servers, (each.rows - each.test_rows) // servers, each.test_rows)
        problem: ProblemSource = NamedProblem(*shares)
        scale = 1.0
        if preparation == _STANDARD:
            scale = self["row bound"] * math.sqrt(each.columns + 1)
            problem = StandardizedProblem(NamedProblem(*shares), scale, numbering)
        elif preparation == _CODED:
            problem = CodedProblem(NamedProblem(*shares))
        return TrainingJob(
            problem,
            variant.parameters(self.settings, scale),
            runs=1,
            seed=self["seed"],
            finals=(_MEASURE,),
            repeats=draws,
        )

    def _columns(self, kind: Kind, a: float | None = None) -> dict[str, Variant]:
        """The table's columns; those with phase 2 in the calibration that is asked for."""
        return {
            heading: replace(
                each,
                kind=kind if each.kind == "published" else each.kind,
                decay=self["rho"],
                initial_noise=self["initial noise"],
                row_epsilon=self["row epsilon"],
                regularization=self["a"] if a is None else a,
            )
            for heading, each in COLUMNS.items()
        }

    def _package(self) -> dict[float, Variant]:
        return {
            epsilon: Variant("package", 1.0, row_epsilon=epsilon, regularization=self["a"])
            for epsilon in self["row epsilon, grid"]
        }

    def _by_bound(self) -> dict[float, dict[str, Variant]]:
        """The columns with the larger R, as published, by eta's bound as a share of R."""
        columns = self._columns("published")
        return {
            share: {
                heading: replace(columns[heading], bound=columns[heading].bound * share)
                for heading in ("epsilon 0.4, R 9", "epsilon 1, R 9")
            }
            for share in self["bound of eta, grid"]
        }

    def _elsewhere(self) -> dict[tuple[str, float], dict[str, Variant]]:
        """Some columns under other preparations, by preparation and a."""
        return {
            (preparation, a): {
                heading: self._columns("published", a)[heading] for heading in _HEADINGS
            }
            for preparation, a in self["other preparations"]
        }

    def cells(self) -> dict[str, Job]:
        """A cell for every data set and variant."""
        cells: dict[str, Job] = {}
        main = self["preparation"]
        for name in self["data sets"]:
            variants = [*self._columns("published").values(), *self._columns("proven").values()]
            variants += [each for both in self._by_bound().values() for each in both.values()]
            for each in (*variants, *self._package().values()):
                cells[f"{name}: {each.label}"] = self._cell(name, each, main, self["draws"])
            for (preparation, _), columns in self._elsewhere().items():
                for each in columns.values():
                    cells[f"{name}, {preparation}: {each.label}"] = self._cell(
                        name, each, preparation, self["other preparations, draws"]
                    )
        reference = self._columns("published")["without privacy"]
        if "splice" in self["data sets"]:
            for numbering in self["numberings of the bases"]:
                cells[f"splice, bases numbered {numbering}"] = self._cell(
                    "splice", reference, main, self["other preparations, draws"], numbering
                )
            for kind in ("published", "proven"):
                for each in self._columns(kind).values():
                    cells[f"splice, {_CODED}: {each.label}"] = self._cell(
                        "splice", each, _CODED, self["draws"]
                    )
        return cells

    def _accuracies(
        self, results: Mapping[str, Result], variants: Mapping[str, Variant], where: str = ""
    ) -> Accuracies:
        """In percent, of every data set, by the variants' headings."""
        return {
            name: {
                heading: 100 * results[f"{name}{where}: {each.label}"].final(_MEASURE, each.output)
                for heading, each in variants.items()
            }
            for name in self["data sets"]
        }

    def evaluate(self, results: Mapping[str, Result]) -> Evaluation:
        """The table beside the paper's, findings, and what other choices would give."""
        published = self._accuracies(results, self._columns("published"))
        proven = self._accuracies(results, self._columns("proven"))
        compared = cell_by_cell(published, proven, self["row epsilon"])
        spreads = {
            share: self._accuracies(results, columns) for share, columns in self._by_bound().items()
        }
        elsewhere = {
            (preparation, a): self._accuracies(results, columns, f", {preparation}")
            for (preparation, a), columns in self._elsewhere().items()
        }
        here = {(self["preparation"], self["a"]): published}
        coded = self._coded(results)
        tables = {"Splice, other preparation": coded[0]} if coded else {}
        return Evaluation(
            panels=panels(published, proven),
            tables={
                "Cell by cell": compared,
                **tables,
                "Proven, by the row's epsilon": self._row_grid(results, published),
                "By the spread of eta": by_spread(published, spreads),
                "Other preparations": by_preparation(here | elsewhere, _HEADINGS),
                "What is guaranteed": self._guarantees(results),
            },
            findings=(
                *self._judged("published", published),
                *self._judged("proven", proven),
                *self._narrower(published, spreads),
                *(coded[1] if coded else ()),
            ),
            remarks=self._remarks(results, compared),
        )

    def _judged(self, calibration: Kind, found: Accuracies) -> list[Finding]:
        labels = {
            name: [f"{name}: {each.label}" for each in self._columns(calibration).values()]
            for name in found
        }
        return judge(calibration, found, labels)

    def _narrower(
        self, published: Accuracies, spreads: Mapping[float, Accuracies]
    ) -> Iterator[Finding]:
        """The strongest setting under an eta of the other spreads."""
        alone = mean_of_sets(published)["without privacy"]
        reference = self._columns("published")["without privacy"]
        for share, found in spreads.items():
            if share == 1:
                continue
            mean = mean_of_sets(found) | {"without privacy": alone}
            variants = [*self._by_bound()[share].values(), reference]
            labels = [f"{name}: {each.label}" for name in found for each in variants]
            yield judge_strongest(
                "published",
                mean,
                found,
                choice="spread of eta",
                variant=f"deviation {share / math.sqrt(3):.2f} R",
                rests_on=labels,
            )

    def _coded(self, results: Mapping[str, Result]) -> tuple[Table, list[Finding]] | None:
        """Splice with bases as numbers from 1: cell by cell, and whether it is near chance."""
        if "splice" not in self["data sets"]:
            return None
        found, findings = {}, []
        for kind in ("published", "proven"):
            columns = self._columns(kind)
            labels = {head: f"splice, {_CODED}: {each.label}" for head, each in columns.items()}
            found[kind] = {
                head: 100 * results[label].final(_MEASURE, columns[head].output)
                for head, label in labels.items()
            }
            findings.append(
                judge_chance(
                    "splice",
                    kind,
                    found[kind],
                    choice="preparation",
                    variant=_CODED,
                    rests_on=labels.values(),
                )
            )
        published, proven = ({"splice": found[kind]} for kind in ("published", "proven"))
        return cell_by_cell(published, proven, self["row epsilon"]), findings

    def _row_grid(self, results: Mapping[str, Result], published: Accuracies) -> Table:
        variants = {
            f"row epsilon {Given(epsilon)}": each for epsilon, each in self._package().items()
        }
        rows = [
            (
                name,
                SETS[name].rows - SETS[name].test_rows,
                float(published[name]["epsilon 1, no phase 2"].mean()),
                *(f"{mean_interval(values):.1f}" for values in columns.values()),
            )
            for name, columns in self._accuracies(results, variants).items()
        ]
        return Table.of(("data set", "training rows", "no phase 2", *variants), rows)

    def _guarantees(self, results: Mapping[str, Result]) -> Table:
        rows = []
        for heading in ("epsilon 0.4, R 1", "epsilon 1, R 1"):
            published, proven = (
                self._columns(kind)[heading].label for kind in ("published", "proven")
            )
            rows += [
                guarantee_row(f"{name}, published, {heading}", results[f"{name}: {published}"])
                for name in self["data sets"]
            ]
            found = [results[f"{name}: {proven}"] for name in self["data sets"]]
            worst = max(found, key=lambda each: float(each.facts["privacy"]["epsilon"]))
            rows.append(guarantee_row(f"all sets, proven, {heading}", worst))
        return Table.of(
            GUARANTEE_COLUMNS,
            rows,
        )

    def _remarks(self, results: Mapping[str, Result], cells: Table) -> tuple[str, ...]:
        verdicts = [row[4] for row in cells.rows]
        remarks = [
            f"Of {len(verdicts)} cells the paper's figure lies within the range of one of our "
            f"draws in {verdicts.count('agrees')}, outside it in {verdicts.count('differs')}; of "
            f"{verdicts.count('cannot be told')} it cannot be told: "
            + "; ".join(f"{name}, {each.unknown}" for name, each in SETS.items() if each.unknown)
            + ". German's categories are numbered as UCI lists them.",
            "Every printed accuracy is a whole multiple of one over the rows held back: the "
            "paper's figures are of one classifier on one split, without repetition.",
        ]
        if "splice" in self["data sets"]:
            means = [
                100 * float(results[f"splice, bases numbered {each}"].final(_MEASURE).mean())
                for each in self["numberings of the bases"]
            ]
            remarks.append(
                f"Splice: however the four bases are numbered ({len(means)} ways), ADMM without "
                f"privacy has {min(means):.1f}% to {max(means):.1f}%; the paper has "
                f"{PRINTED['splice'][0]}%."
            )
        return tuple(remarks)
