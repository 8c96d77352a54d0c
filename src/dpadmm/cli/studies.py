"""``dpadmm describe`` and ``dpadmm infer``: what all parties' rows say, or what to expect of it."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpadmm.cli.output import (
    JsonOption,
    VerboseOption,
    emit,
    owner_at_terminal,
    refusals,
    say,
    show_statement,
    show_table,
    takes,
    warn,
)
from dpadmm.errors import ParameterError
from dpadmm.privacy.figures import AtMost

if TYPE_CHECKING:
    from dpadmm.studies.describe_figures import StudyFigure
    from dpadmm.studies.questions import StudyAnswer
    from dpadmm.studies.study_files import StudyConfig


@dataclass(frozen=True, kw_only=True)
class StudyCommand:
    """What a study is asked."""

    config: Annotated[Path, typer.Argument(help="The study, a describe.toml or an infer.toml.")]
    epsilon: Annotated[
        float | None, typer.Option(help="Epsilon of every party, instead of [study]'s.")
    ] = None
    plan: Annotated[
        bool,
        typer.Option(
            "--plan", help="Only say how wide intervals will be; reads and spends nothing."
        ),
    ] = False
    width: Annotated[
        float | None,
        typer.Option(
            help="With --plan: the smallest epsilon with which no interval is wider than this: a "
            "part of what is possible (0.05: five points of a share, a twentieth of the bounds), "
            "or for infer as many times as wide as without privacy."
        ),
    ] = None
    verbose: VerboseOption = False
    as_json: JsonOption = False


@takes(StudyCommand)
def describe_command(options: StudyCommand) -> None:
    """Describe the rows of all parties: one charged release, each figure with an interval.

    For example:

    * `dpadmm describe describe.toml --plan` (how wide intervals will be; nothing is spent)

    * `dpadmm describe describe.toml --plan --width 0.05` (the smallest epsilon for that)

    * `dpadmm describe describe.toml`

    A configuration has the budget under `[study]`, the `schema` under `[data]`, a `name` and a
    `file` under `[[party]]`, the `record` to write under `[result]`, and under each `[[wish]]` a
    `kind` and `columns`: count, proportion, mean, sd, quantiles, histogram, table, correlation,
    or bounds, which proposes bounds for a schema.

    Asked again with the same ledgers, the same study costs nothing and says the same.
    """
    with refusals("describe", options.as_json):
        from dpadmm.studies.describe_files import DescribeConfig

        _study("describe", DescribeConfig, options)


@takes(StudyCommand)
def infer_command(options: StudyCommand) -> None:
    """Regress on the rows of all parties: coefficients with intervals, in their own units.

    For example:

    * `dpadmm infer infer.toml --plan` (how wide intervals will be; nothing is spent)

    * `dpadmm infer infer.toml --plan --width 1.2` (the smallest epsilon for that)

    * `dpadmm infer infer.toml`

    A configuration has the budget under `[study]`, the `schema` under `[data]`, a `name` and a
    `file` under `[[party]]`, the `record` to write under `[result]`, and under `[infer]` the
    `family` (gaussian, binomial, poisson or survival), the `response` and the `columns`.

    Asked again with the same ledgers, the same study costs nothing and says the same.
    """
    with refusals("infer", options.as_json):
        from dpadmm.studies.infer_files import InferConfig

        _study("infer", InferConfig, options)


def _study(kind: str, model: type[StudyConfig], options: StudyCommand) -> None:
    from dpadmm.studies.study_files import load_study

    if options.width is not None and not options.plan:
        raise ParameterError("--width must come with --plan: it is about what to expect.")
    config = load_study(options.config, model)
    if options.epsilon is not None:
        told = config.study.model_dump() | {"epsilon": options.epsilon}
        study = type(config.study).model_validate(told)
        config = config.model_copy(update={"study": study})
    (_plan if options.plan else _answer)(kind, config, options)


def _answer(kind: str, config: StudyConfig, options: StudyCommand) -> None:
    from dpadmm.report.html import write_page
    from dpadmm.report.studies import REPORTS
    from dpadmm.studies.study_files import answer_files

    with warnings.catch_warnings():
        if not options.as_json:
            warnings.showwarning = lambda message, *_: warn(str(message))
        found = answer_files(config, owner_at_terminal())
    record, place = found.record(), config.result.report_file
    if place is not None:
        write_page(place, REPORTS[kind](record))
    if options.as_json:
        emit(kind, {"record": str(config.result.record), **record})
        return
    show_answer(found)
    show_statement(found.privacy_, verbose=options.verbose)
    say(f"Written: {config.result.record}" + (f", {place}" if place else ""))
    if getattr(found, "proposed", ()):
        narrow = config.result.schema_file
        say(
            'schema = "narrow.toml" under [result], and this command again: with ledgers it costs '
            "nothing"
            if narrow is None
            else f"dpadmm train run.toml, with schema = {str(narrow)!r} and the same ledgers",
            "Next step",
        )


def _plan(kind: str, config: StudyConfig, options: StudyCommand) -> None:
    from dpadmm.studies.study import planned_privacy
    from dpadmm.studies.study_files import rows_to_plan, study_schema

    question = config.question(study_schema(config))
    rows, terms = rows_to_plan(config), config.study.terms
    found: dict[str, Any] = {"rows": rows}
    if options.width is not None:
        terms = replace(terms, epsilon=question.epsilon_for(rows, terms, options.width))
        found |= {"width": options.width, "epsilon": terms.epsilon}
    planned = question.plan(rows, terms)
    details = question.details(planned)
    privacy = planned_privacy(planned, config.study.simulation_key, details)
    found |= {"privacy": privacy.to_dict(), **question.expected(planned)}
    if options.as_json:
        emit(kind, found)
        return
    if kind == "describe":
        _show_expected(found["expected"])
    else:
        times = f"{found['expected_width']:.2f} times as wide as without privacy"
        say(times, "Expected intervals")
        say(f"{found['strength']:.3g}, needed {found['needed']:g}", "q = n mu / p^1.5")
        for line in found["warnings"]:
            say(line, "Weak")
    if options.width is not None:
        say(f"{AtMost(found['epsilon']):4}", "Smallest epsilon")
    show_statement(privacy, verbose=options.verbose)
    if kind == "describe":
        say(
            "Widths are parts of what is possible at all (of 0 to 1, of the bounds, of -1 to 1), "
            "as if every column were spread evenly. Nothing was read or spent."
        )
    else:
        say("Nothing was read or spent.")


def _show_expected(figures: Sequence[Mapping[str, Any]]) -> None:
    shown = {
        (each["kind"], each["column"], each.get("group", "")): each["relative_width"]
        for each in figures
    }
    lines = [
        (*key, "says nothing" if each >= 1 else f"{100 * each:.3g}%") for key, each in shown.items()
    ]
    show_table("Expected intervals", ("figure", "of", "group", "width"), lines)


def show_answer(answer: StudyAnswer) -> None:
    """Print what a study found."""
    from dpadmm.studies.describe_files import Description
    from dpadmm.studies.infer_files import Inference

    if isinstance(answer, Inference):
        question = answer.question
        summary = answer.effects.summary(level=question.asked.level, response=question.explained)
        say(str(summary))
    elif isinstance(answer, Description):
        _show_figures(answer.figures)
        if answer.proposed:
            heads = ("column", "lower", "upper", "transform")
            rows = [
                (each.column, each.lower, each.upper, each.transform or "")
                for each in answer.proposed
            ]
            show_table("Proposed bounds", heads, rows)


def _show_figures(figures: Sequence[StudyFigure]) -> None:
    rows = [
        (
            figure.kind,
            figure.column,
            figure.group or "",
            figure.item or "",
            figure.reason if figure.value is None else f"{figure.value:.4g}",
            "" if figure.low is None else f"{figure.low:.4g} to {figure.high:.4g}",
        )
        for figure in figures
    ]
    if rows:
        heads = ("figure", "of", "group", "item", "value", "interval")
        show_table("Found", heads, rows)
