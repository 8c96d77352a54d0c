"""What a plan knows of a run in advance: candidates, losses, a recommended run, hints.

**Pages.** An outlook is written as tables, a figure, a page and a configuration to run.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

import numpy as np
import tomli_w

from dpadmm.data.feature_maps import PRODUCT_COLUMNS
from dpadmm.durable import write_whole
from dpadmm.errors import ParameterError
from dpadmm.experiments.figures import Curve, Panel, figure_table, write_figure
from dpadmm.experiments.question import DIFFICULTIES, RunQuestion
from dpadmm.experiments.rehearsal import BAND, ExpectedLoss, NoiseCurve, band
from dpadmm.plain import html_table
from dpadmm.privacy.figures import AtMost, Given
from dpadmm.report.document import (
    COMMAND,
    CONFIGURATION,
    Code,
    Facts,
    Report,
    Section,
    Table,
    Words,
    cell_text,
)
from dpadmm.report.html import write_report
from dpadmm.run.config import load_toml
from dpadmm.run.options import TrainingParameters
from dpadmm.run.plan import Plan, announced
from dpadmm.version import __version__


@final
@dataclass(frozen=True)
class Prospect:
    """A candidate algorithm: its noise, its guarantee, and its expected loss.

    Attributes
    ----------
    who
        Its name and options.
    parameters
        The parameters of the run.
    plan
        The run with every number fixed; None if it was refused.
    privacy
        The statement of that plan; None if it was refused.
    losses
        Points lost, by difficulty; empty if it was not rehearsed.
    refused
        Why the run was refused.
    """

    who: str
    parameters: TrainingParameters
    plan: Plan | None = None
    privacy: Mapping[str, Any] | None = None
    losses: Mapping[str, ExpectedLoss] | None = None
    refused: str = ""

    @property
    def noise(self) -> float | None:
        """The largest standard deviation of the noise in a party's first message."""
        if self.plan is None:
            return None
        told = [events[0].to_dict().get("sigma") for events in announced(self.plan)]
        found = [float(sigma) for sigma in told if sigma is not None]
        if len(found) < len(told):
            return None
        # A guarantee with shared noise counts on the shares of all honest parties.
        shared = self.plan.algorithm.summation
        shares = 1 if shared is None else shared.parties - shared.colluders
        return max(found) / math.sqrt(shares)

    def plain(self) -> dict[str, Any]:
        """For machines."""
        planned, privacy = self.plan, self.privacy or {}
        return {
            "who": self.who,
            "algorithm": self.parameters.algorithm,
            "rounds": None if planned is None else planned.rounds,
            "topology": None if planned is None else planned.site.topology.name,
            "noise": self.noise,
            "epsilon": privacy.get("epsilon"),
            "delta": privacy.get("delta"),
            "theorem": privacy.get("theorem"),
            "adversary": privacy.get("adversary"),
            "losses": _plain_losses(self.losses),
            "band": _plain_band(self.losses),
            "refused": self.refused or None,
        }


@final
@dataclass(frozen=True)
class Change:
    """More of something, and the loss that is expected then."""

    what: str
    times: int
    losses: Mapping[str, ExpectedLoss]

    def plain(self) -> dict[str, Any]:
        """For machines."""
        return {
            "what": self.what,
            "times": self.times,
            "losses": _plain_losses(self.losses),
            "band": _plain_band(self.losses),
        }


@final
@dataclass(frozen=True)
class SmallestEpsilon:
    """The smallest budget for a wanted loss; None if no budget reaches it."""

    who: str
    difficulty: str
    epsilon: float | None

    def plain(self) -> dict[str, Any]:
        """For machines."""
        return {"who": self.who, "difficulty": self.difficulty, "epsilon": self.epsilon}


@final
@dataclass(frozen=True)
class Outlook:
    """Everything that is known of a run in advance.

    Attributes
    ----------
    question
        The question.
    pooled
        Accuracy of pooled training without privacy on generated rows, by difficulty.
    curves
        The loss as a function of the noise, relative to own noise as asked, by difficulty.
    candidates
        The runs to choose from.
    recommended
        The recommended candidate; ``reason`` says why.
    changes
        How more rows, parties, rounds or budget would change its loss.
    wanted_loss, smallest
        Points that may be lost, and the smallest budgets that achieve it.
    hints
        Pairs of a topic and a sentence.
    encodings
        What is lost on the same medium rows as the schema encodes them, and encoded otherwise;
        empty without a schema.
    """

    question: RunQuestion
    pooled: Mapping[str, float]
    curves: Mapping[str, NoiseCurve]
    candidates: tuple[Prospect, ...]
    recommended: Prospect
    reason: str
    changes: tuple[Change, ...]
    budgets: tuple[tuple[float, Mapping[str, ExpectedLoss]], ...]
    wanted_loss: float | None
    smallest: tuple[SmallestEpsilon, ...]
    hints: tuple[tuple[str, str], ...]
    encodings: tuple[tuple[str, ExpectedLoss], ...] = ()

    @property
    def band(self) -> tuple[float, float]:
        """The band in which the loss of the recommended run is expected."""
        return band(list((self.recommended.losses or {}).values()))

    @property
    def reachable(self) -> bool:
        """Whether some budget achieves the wanted loss, at medium difficulty."""
        return not self.smallest or any(
            found.epsilon is not None for found in self.smallest if found.difficulty == "medium"
        )

    def run_table(self) -> dict[str, Any]:
        """The recommended ``[run]``: every value that differs from the defaults."""
        told, plan = self.recommended.parameters, self.recommended.plan
        assert plan is not None
        table: dict[str, Any] = {
            "algorithm": told.algorithm,
            "epsilon": told.epsilon,
            "delta": told.delta,
            "rounds": plan.rounds,
            "topology": plan.site.topology.name,
        }
        if plan.site.topology.name == "edges":
            table["topology"] = [list(edge) for edge in plan.site.topology.edges]
        usual = TrainingParameters(told.algorithm)
        for name in ("penalty", "regularization", "party_weight", "loss", "rows_per_person"):
            if getattr(told, name) != getattr(usual, name):
                table[name] = getattr(told, name)
        if told.algorithm_options:
            table["algorithm_options"] = dict(told.algorithm_options)
        return table

    def _repr_html_(self) -> str:
        found = [html_table((), headline=outlook_sentence(self))]
        for title, table in outlook_tables(self).items():
            rows = ([cell_text(cell) for cell in row] for row in table.rows)
            found.append(html_table(rows, columns=table.columns, headline=title))
        return "".join(found)

    def plain(self) -> dict[str, Any]:
        """For machines."""
        shape = self.question.shape
        low, high = self.band
        return {
            "rows": list(self.question.counts),
            "features": shape.features,
            "classes": shape.classes,
            "difficulties": [
                {"name": each.name, "words": each.words, "pooled": self.pooled[each.name]}
                for each in DIFFICULTIES
            ],
            "candidates": [candidate.plain() for candidate in self.candidates],
            "recommended": {
                "who": self.recommended.who,
                "reason": self.reason,
                "run": self.run_table(),
                "statement": dict(self.recommended.privacy or {}),
            },
            "band": {"low": low, "high": high},
            "more": [change.plain() for change in self.changes],
            "budgets": [
                {"epsilon": epsilon, "losses": _plain_losses(losses), "band": _plain_band(losses)}
                for epsilon, losses in self.budgets
            ],
            "wanted_loss": self.wanted_loss,
            "smallest_epsilon": [found.plain() for found in self.smallest],
            "hints": [{"about": about, "words": words} for about, words in self.hints],
            "encodings": [{"encoding": name, **loss._asdict()} for name, loss in self.encodings],
        }


def _plain_losses(losses: Mapping[str, ExpectedLoss] | None) -> dict[str, Any] | None:
    return {name: loss._asdict() for name, loss in losses.items()} if losses else None


def _plain_band(losses: Mapping[str, ExpectedLoss] | None) -> dict[str, float] | None:
    return dict(zip(("low", "high"), band(list(losses.values())), strict=True)) if losses else None


#: Shared noise has a weaker adversary. It must save this many points on average over the
#: difficulties to be worth that.
WORTH: Final = 1.0

# A party with fewer rows helps neither itself nor the others.
_FEW_ROWS: Final = 30
# Columns up to which Fourier features beat products, and rows from which either beats a line: on
# training rows of twelve public sets (docs/nonlinear.md).
_FEW_COLUMNS: Final = 3
_MAP_ROWS: Final = 500
# A hint appears if even easy rows lose more points than this.
_MUCH: Final = 5.0
_NAMES: Final = 3


def hints_for(
    question: RunQuestion,
    own: Plan,
    losses: Mapping[str, ExpectedLoss],
    saved: float | None,
) -> Iterator[tuple[str, str]]:
    """Pairs of a topic and a sentence.

    Parameters
    ----------
    question
        The question.
    own, losses
        The run with own noise, and its expected losses.
    saved
        Points that shared noise would save on average; None if noise cannot be shared.
    """
    yield from _about_the_constant(question)
    yield from _about_maps(question)
    yield from _about_rows(question, losses)
    yield from _about_delta(own)
    if saved is not None:
        worth = "worth a secure sum" if saved >= WORTH else "hardly worth a secure sum"
        yield (
            "secure sum",
            f"noise = 'shared' is expected to save {saved:.1f} points on average over the "
            f"difficulties: {worth}. It protects against the server together with a minority of "
            "the parties; own noise protects against all other parties.",
        )


def _about_the_constant(question: RunQuestion) -> Iterator[tuple[str, str]]:
    constant, length = question.shape.constant, question.shape.typical_norm
    if constant > length:
        yield (
            "constant",
            f"the columns are short beside the constant: their typical norm is {length:.2g}, the "
            f"constant is {constant:g}. It takes up most of the norm of 1 that the noise is made "
            f"for. Try constant = {length / 2:.2g} in the schema, on public rows.",
        )


def _about_maps(question: RunQuestion) -> Iterator[tuple[str, str]]:
    """Which public map suits this many columns and rows: docs/nonlinear.md has the measurements."""
    shape, rows = question.shape, sum(question.counts)
    if shape.whole:
        return
    columns = shape.features - bool(shape.constant)
    if columns <= _FEW_COLUMNS and rows >= _MAP_ROWS:
        advice = "fourier = 150 draws any curve and suits so few columns"
    elif columns <= PRODUCT_COLUMNS and rows >= _MAP_ROWS:
        advice = "polynomial = 2 suits this many columns, unless most of them are categories"
    else:
        return
    yield (
        "map",
        f"with {columns} encoded columns and {rows} rows, {advice}. Both are public maps and cost "
        "no privacy; drawn rows do not show what they bring: try them on public rows.",
    )


def _about_rows(
    question: RunQuestion, losses: Mapping[str, ExpectedLoss]
) -> Iterator[tuple[str, str]]:
    few = [place for place, count in enumerate(question.counts) if count < _FEW_ROWS]
    if few:
        names = question.names or tuple(str(place) for place in range(len(question.counts)))
        shown = ", ".join(names[place] for place in few[:_NAMES])
        more = f" and {len(few) - _NAMES} more" if len(few) > _NAMES else ""
        yield (
            "small parties",
            f"{shown}{more} have fewer than {_FEW_ROWS} rows: the noise of a party of that size "
            "hides what it contributes. Let it join a larger party.",
        )
    easy = losses["easy"].mean
    if easy > _MUCH:
        yield (
            "small parties",
            f"even easy rows are expected to lose {easy:.0f} points with own noise: there are too "
            "few rows for this budget. Use more rows, a larger epsilon, fewer features or shared "
            "noise.",
        )


def _about_delta(own: Plan) -> Iterator[tuple[str, str]]:
    budget = own.budget
    assert budget is not None
    weak = np.flatnonzero(budget.delta >= 1 / own.site.rows)
    if len(weak):
        first = int(weak[0])
        yield (
            "delta",
            f"delta = {Given(budget.delta[first])} is not below 1 / rows at {len(weak)} of "
            f"{len(own.site.rows)} parties ({own.site.names[first]} has {own.site.rows[first]}): "
            "publishing one random row would satisfy it. Use a smaller delta.",
        )


NOTICE: Final = (
    "Rehearsed on generated rows of the same shape; no private row was read, nothing was spent. A "
    "loss is the accuracy of pooled training without privacy minus that of the run, in points."
)
_BAND_WORDS: Final = (
    f"The band reaches {BAND:g} standard deviations of a single run beyond the means of all "
    "difficulties."
)
_PANEL: Final = "Expected loss over the budget"
_NO_FIGURE: Final = "-"


def outlook_sentence(outlook: Outlook) -> str:
    """Say in one sentence what to expect."""
    budget, expected = outlook.recommended.parameters, _band_words(outlook.band)
    gain = "; less than 0 is a gain" if expected.startswith("-") else ""
    return (
        f"With {outlook.recommended.who} at {_budget_words(budget.epsilon)} expect to lose "
        f"{expected} points of accuracy{gain}."
    )


def _budget_words(epsilon: Any) -> str:
    if isinstance(epsilon, Mapping):
        return "the parties' budgets"
    return f"epsilon {Given(epsilon)}"


def outlook_tables(outlook: Outlook) -> dict[str, Table]:
    """The tables for people, by title."""
    names = tuple(each.name for each in DIFFICULTIES)
    found = {
        "Difficulties": Table.of(
            ("rows", "pooled", "what it means"),
            [
                (each.name, f"{100 * outlook.pooled[each.name]:.0f}%", each.words)
                for each in DIFFICULTIES
            ],
        ),
        "Candidates: points lost, and the spread of a run": Table.of(
            ("algorithm", "noise", "epsilon", *names),
            [_candidate_row(candidate) for candidate in outlook.candidates],
        ),
        f"What more would bring ({outlook.recommended.who})": Table.of(
            ("more", *names, "band"),
            [
                (
                    each.what if each.times == 1 else f"{each.what} x{each.times}",
                    *(_loss_words(each.losses.get(name)) for name in names),
                    _band_words(band(list(each.losses.values()))),
                )
                for each in outlook.changes
            ],
        ),
    }
    if len(outlook.encodings) > 1:
        found["Encodings of the same medium rows, with noise of each party's own"] = Table.of(
            ("encoding", "points lost"),
            [(name, _loss_words(loss)) for name, loss in outlook.encodings],
        )
    if outlook.smallest:
        whose = list(dict.fromkeys(each.who for each in outlook.smallest))
        by_place = {(each.who, each.difficulty): each.epsilon for each in outlook.smallest}
        assert outlook.wanted_loss is not None
        points = "point" if outlook.wanted_loss == 1 else "points"
        found[f"Smallest epsilon for a loss of {outlook.wanted_loss:g} {points}"] = Table.of(
            ("algorithm", *names),
            [(who, *(_epsilon_words(by_place[who, name]) for name in names)) for who in whose],
        )
    return found


def _candidate_row(candidate: Prospect) -> tuple[str, ...]:
    if candidate.plan is None or candidate.privacy is None:
        return (candidate.who, "refused", *(_NO_FIGURE,) * 4)
    losses = candidate.losses or {}
    noise, epsilon = candidate.noise, candidate.privacy["epsilon"]
    return (
        candidate.who,
        _NO_FIGURE if noise is None else f"{noise:.3g}",
        epsilon if isinstance(epsilon, str) else f"{AtMost(epsilon):4}",
        *(_loss_words(losses.get(each.name)) for each in DIFFICULTIES),
    )


def _loss_words(loss: ExpectedLoss | None) -> str:
    return _NO_FIGURE if loss is None else f"{_points(loss.mean)} ±{loss.spread:.1f}"


def _points(points: float) -> str:
    """One decimal, without a minus before zero."""
    return f"{round(points, 1) + 0.0:.1f}"


def _band_words(expected: tuple[float, float]) -> str:
    low, high = expected
    return f"{_points(low)} to {_points(high)}"


def _epsilon_words(epsilon: float | None) -> str:
    return "out of reach" if epsilon is None else f"{AtMost(epsilon):3}"


def _panel(outlook: Outlook) -> Panel:
    """The loss as a function of the budget, one line for each difficulty."""
    budgets = tuple(epsilon for epsilon, _ in outlook.budgets)
    curves = []
    for each in DIFFICULTIES:
        losses = [losses[each.name] for _, losses in outlook.budgets]
        curves.append(
            Curve(
                each.name,
                budgets,
                tuple(loss.mean for loss in losses),
                tuple(loss.mean - BAND * loss.spread for loss in losses),
                tuple(loss.mean + BAND * loss.spread for loss in losses),
            )
        )
    note = f"{outlook.recommended.who}; bands are {BAND:g} standard deviations of a run."
    return Panel(_PANEL, "epsilon of a party", "points lost", tuple(curves), "log", note=note)


def write_outlook(outlook: Outlook, folder: Path, command: str) -> None:
    """Write the figure, its data, the answers as JSON and a page."""
    panel = _panel(outlook)
    write_figure([panel], folder / "figure.svg", outlook_sentence(outlook))
    write_whole(folder / "figure.csv", figure_table([panel]).csv().encode(), "data")
    text = json.dumps(outlook.plain(), indent=1, default=str)
    write_whole(folder / "plan.json", text.encode(), "plan")
    tables = [
        Table(title, table.columns, table.rows) for title, table in outlook_tables(outlook).items()
    ]
    page = Report(
        title="What to expect of a run",
        subtitle=f"A plan by dpadmm {__version__}, from public facts alone",
        headline=outlook_sentence(outlook),
        answers=(
            ("Recommended", f"{outlook.recommended.who}: {outlook.reason}."),
            ("Where this comes from", f"{NOTICE} {_BAND_WORDS}"),
            *((f"Hint: {about}", words) for about, words in outlook.hints),
        ),
        picture=panel.plot(),
        sections=(
            Section("Figures", tuple(tables)),
            Section("Guarantee", (Facts(_statement_facts(outlook)),)),
            Section(
                CONFIGURATION,
                (
                    Words("The recommended run. Add your files to it:"),
                    Code("run.toml", tomli_w.dumps({"run": outlook.run_table()})),
                    Code(COMMAND, command),
                ),
            ),
        ),
    )
    write_report(folder, page)


def _statement_facts(outlook: Outlook) -> tuple[tuple[str, str], ...]:
    """The guarantee of the recommended run, and its adversary."""
    privacy = outlook.recommended.privacy or {}
    wanted = ("theorem", "adjacency", "adversary")
    epsilon = privacy.get("epsilon")
    shown = str(epsilon) if isinstance(epsilon, str) or epsilon is None else str(AtMost(epsilon))
    return (
        ("Epsilon", shown),
        ("Delta", str(AtMost(privacy.get("delta", 0.0)))),
        *((name.capitalize(), str(privacy[name])) for name in wanted if privacy.get(name)),
    )


def recommended_text(outlook: Outlook, config: Path | None, schema: str | None) -> str:
    """The recommended ``run.toml``, with placeholders for files that are not known yet.

    Parameters
    ----------
    outlook
        The outlook.
    config
        The configuration of the question. Everything in it except ``[run]`` is kept.
    schema
        The schema of the question, relative to the folder of the new file.
    """
    reason = f"# Recommended by dpadmm plan: {outlook.reason}.\n# {outlook_sentence(outlook)}\n"
    if config is not None:
        content = load_toml(config, "configuration")
        kept = {
            name: value
            for name, value in content.get("run", {}).items()
            if name in ("simulation_key", "run_id", "tolerance", "output")
        }
        return reason + tomli_w.dumps({**content, "run": {**outlook.run_table(), **kept}})
    counts = outlook.question.counts
    numbers = range(1, len(counts) + 1)
    names = outlook.question.names or tuple(f"party-{number}" for number in numbers)
    parties = [
        {"name": name, "file": f"party-{number}.csv", "rows": count}
        for number, name, count in zip(numbers, names, counts, strict=True)
    ]
    tables = {
        "run": outlook.run_table(),
        "data": {"schema": schema or "schema.toml"},
        "party": parties,
        "result": {"model": "trained.model", "record": "record.json"},
    }
    fill_in = (
        "# Fill in the names and the files of the parties, then: dpadmm train FILE.\n"
        "# Under [run], holdout = 0.2 and evaluate = true say how good the model is.\n"
        '# [ledgers] with a line party-1 = "party-1.ledger" for each holds a budget over\n'
        "# all runs: dpadmm ledger init makes one.\n"
    )
    return reason + fill_in + tomli_w.dumps(tables)


def write_configuration(
    outlook: Outlook, place: Path, config: Path | None, schema: Path | None
) -> None:
    """Write the recommended run to a new file."""
    check_new(place, config)
    # Paths in a configuration are relative to it.
    seen = schema and os.path.relpath(schema.resolve(), place.resolve().parent)
    write_whole(place, recommended_text(outlook, config, seen or None).encode(), "configuration")


def check_new(place: Path, config: Path | None) -> None:
    """Refuse to overwrite a file, or to break the relative paths of a configuration."""
    if place.exists():
        raise ParameterError(f"--write must name a new file; {place} exists. Name another.")
    if config is not None and place.resolve().parent != config.resolve().parent:
        raise ParameterError(
            f"--write must name a file in the folder of {config}, because its paths are relative; "
            f"got {place}."
        )
