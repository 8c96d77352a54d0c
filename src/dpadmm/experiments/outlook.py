"""What is known of a run before it happens: candidates, losses, the run to recommend, hints.

**Pages.** What an outlook leaves behind: tables, a drawing, a page, a configuration to run.
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

from dpadmm.durable import write_whole
from dpadmm.errors import ParameterError
from dpadmm.experiments.figures import Curve, Panel, figure_table, write_figure
from dpadmm.experiments.question import DIFFICULTIES, RunQuestion
from dpadmm.experiments.rehearsal import BAND, ExpectedLoss, NoiseCurve, band
from dpadmm.privacy.figures import AtMost, Given
from dpadmm.report import texts
from dpadmm.report.document import Code, Facts, Report, Section, Table, Words
from dpadmm.report.html import write_report
from dpadmm.run.config import load_toml
from dpadmm.run.parameters import TrainingParameters
from dpadmm.run.plan import Plan, announced
from dpadmm.version import __version__


@final
@dataclass(frozen=True)
class Prospect:
    """An algorithm that could be run: its noise, its guarantee, and what it is expected to lose.

    Attributes
    ----------
    who
        Its name, with options.
    parameters
        The run.
    plan
        The same with every number fixed; None where it was refused.
    privacy
        The statement of that plan; None where it was refused.
    losses
        Points lost, by difficulty; empty where it was not rehearsed.
    refused
        Why it cannot be run.
    """

    who: str
    parameters: TrainingParameters
    plan: Plan | None = None
    privacy: Mapping[str, Any] | None = None
    losses: Mapping[str, ExpectedLoss] | None = None
    refused: str = ""

    @property
    def noise(self) -> float | None:
        """Standard deviation of what a party adds to each number of its first message, at most."""
        if self.plan is None:
            return None
        told = [events[0].to_dict().get("sigma") for events in announced(self.plan)]
        found = [float(sigma) for sigma in told if sigma is not None]
        if len(found) < len(told):
            return None
        # Of shared noise a guarantee counts on the shares of all who are honest.
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
    """More of something, and what is then expected to be lost."""

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
    """The smallest budget for a wanted loss; None where no budget reaches it."""

    who: str
    difficulty: str
    epsilon: float | None

    def plain(self) -> dict[str, Any]:
        """For machines."""
        return {"who": self.who, "difficulty": self.difficulty, "epsilon": self.epsilon}


@final
@dataclass(frozen=True)
class Outlook:
    """Everything that is known of a run before it happens.

    Attributes
    ----------
    question
        What was asked.
    pooled
        Accuracy of pooled training without privacy on drawn rows, by difficulty.
    curves
        What is lost by the noise, relative to that of own noise as asked, by difficulty.
    candidates
        What could be run.
    recommended
        The one of them to run, and ``reason``: why.
    changes
        What more rows, parties, rounds or budget would bring it.
    wanted_loss, smallest
        Points that may be lost, and the smallest budgets for that.
    hints
        Pairs of a topic and a sentence.
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

    @property
    def band(self) -> tuple[float, float]:
        """Where the loss of the recommended run is expected."""
        return band(list((self.recommended.losses or {}).values()))

    @property
    def reachable(self) -> bool:
        """Whether the wanted loss can be had by a budget, at medium difficulty."""
        return not self.smallest or any(
            found.epsilon is not None for found in self.smallest if found.difficulty == "medium"
        )

    def run_table(self) -> dict[str, Any]:
        """The recommended ``[run]``: what differs from the defaults of a configuration."""
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
        }


def _plain_losses(losses: Mapping[str, ExpectedLoss] | None) -> dict[str, Any] | None:
    return {name: loss._asdict() for name, loss in losses.items()} if losses else None


def _plain_band(losses: Mapping[str, ExpectedLoss] | None) -> dict[str, float] | None:
    return dict(zip(("low", "high"), band(list(losses.values())), strict=True)) if losses else None


#: Points that shared noise must save, on average over the difficulties, to be worth a weaker
#: adversary.
WORTH: Final = 1.0

# A party with fewer rows is a nuisance to itself and to the others.
_FEW_ROWS: Final = 30
# Points that even easy rows may lose before it is worth a word.
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
        What is asked.
    own, losses
        The run with noise of each party's own, and what it is expected to lose.
    saved
        Points that shared noise would save on average; None where noise cannot be shared.
    """
    yield from _about_the_constant(question)
    yield from _about_rows(question, losses)
    yield from _about_delta(own)
    if saved is not None:
        worth = "worth a secure sum" if saved >= WORTH else "hardly worth a secure sum"
        yield (
            "secure sum",
            f"noise = 'shared' is expected to save {saved:.1f} points on average over the "
            f"difficulties: {worth}. It holds against the server and a minority of the parties "
            "together, noise of one's own against all others.",
        )


def _about_the_constant(question: RunQuestion) -> Iterator[tuple[str, str]]:
    constant, length = question.shape.constant, question.shape.typical_norm
    if constant > length:
        yield (
            "constant",
            f"columns are short beside the constant: they have a typical norm of {length:.2g}, it "
            f"has {constant:g}. It takes up most of the norm of 1 that noise is made for: try "
            f"constant = {length / 2:.2g} in the schema, on public rows.",
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
            f"{shown}{more} have fewer than {_FEW_ROWS} rows: what a party of that size brings is "
            "lost in its own noise. Let it join with a larger one.",
        )
    easy = losses["easy"].mean
    if easy > _MUCH:
        yield (
            "small parties",
            f"even easy rows are expected to lose {easy:.0f} points with noise of each party's "
            "own: there are too few rows for this budget. More rows, a larger epsilon, fewer "
            "features or shared noise are the ways out.",
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
            "publishing a random row whole would satisfy it. Use a smaller delta.",
        )


NOTICE: Final = (
    "Rehearsed on drawn rows of the same shape; no row of anybody was read, nothing was spent. A "
    "loss is accuracy of pooled training without privacy less that of the run, in points."
)
_BAND_WORDS: Final = (
    f"The band reaches {BAND:g} standard deviations of one run beyond the means of all "
    "difficulties."
)
_PANEL: Final = "Expected loss over the budget"
_NO_FIGURE: Final = "-"


def outlook_sentence(outlook: Outlook) -> str:
    """What to expect, in one sentence."""
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
    """The tables for people, by their titles."""
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
    """One digit, and no minus before a zero."""
    return f"{round(points, 1) + 0.0:.1f}"


def _band_words(expected: tuple[float, float]) -> str:
    low, high = expected
    return f"{_points(low)} to {_points(high)}"


def _epsilon_words(epsilon: float | None) -> str:
    return "out of reach" if epsilon is None else f"{AtMost(epsilon):3}"


def _panel(outlook: Outlook) -> Panel:
    """Losses over the budget, a line for each difficulty."""
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
    """Write figure, its data, the answers for machines and a page."""
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
        answers=(
            ("What to expect", outlook_sentence(outlook)),
            ("Recommended", f"{outlook.recommended.who}: {outlook.reason}."),
            ("Where this comes from", f"{NOTICE} {_BAND_WORDS}"),
            *((f"Hint: {about}", words) for about, words in outlook.hints),
        ),
        picture=panel.plot(),
        sections=(
            Section("Figures", tuple(tables)),
            Section("Guarantee", (Facts(_statement_facts(outlook)),)),
            Section(
                texts.CONFIGURATION,
                (
                    Words("The recommended run, to be completed with files:"),
                    Code("run.toml", tomli_w.dumps({"run": outlook.run_table()})),
                    Code(texts.COMMAND, command),
                ),
            ),
        ),
    )
    write_report(folder, page)


def _statement_facts(outlook: Outlook) -> tuple[tuple[str, str], ...]:
    """What the recommended run would guarantee, and against whom."""
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
    """The recommended ``run.toml``; files that are not known yet have names to be replaced.

    Parameters
    ----------
    outlook
        What is recommended.
    config
        The configuration that was asked about: all of it but ``[run]`` stays as it is.
    schema
        The schema that was named, as seen from where the text is going to be.
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
    fill_in = "# Names and files of the parties are yours to fill in.\n"
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
    """Refuse to write over a file, or where a configuration's paths would lead elsewhere."""
    if place.exists():
        raise ParameterError(f"--write must name a new file; {place} is there. Name another.")
    if config is not None and place.resolve().parent != config.resolve().parent:
        raise ParameterError(
            f"--write must name a file beside {config}, to which its paths are relative; got "
            f"{place}."
        )
