"""What an outlook leaves behind: tables, a drawing, a page, and a configuration to run."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import tomli_w

from dpadmm.durable import write_whole
from dpadmm.errors import ParameterError
from dpadmm.experiments.difficulties import DIFFICULTIES
from dpadmm.experiments.figures import Curve, Panel, figure_table, write_figure
from dpadmm.experiments.outlook import Outlook, Prospect
from dpadmm.experiments.rehearsal import BAND, ExpectedLoss, band
from dpadmm.privacy.figures import AtMost, Given
from dpadmm.report import texts
from dpadmm.report.document import Code, Facts, Report, Section, Words
from dpadmm.report.html import write_report
from dpadmm.report.tables import Table
from dpadmm.run.config import load_toml
from dpadmm.version import __version__

__all__ = [
    "NOTICE",
    "check_new",
    "outlook_sentence",
    "outlook_tables",
    "recommended_text",
    "write_configuration",
    "write_outlook",
]

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
