"""``dpadmm describe``: figures of all parties' rows, or what to expect of them."""

from __future__ import annotations

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
)
from dpadmm.errors import ParameterError
from dpadmm.privacy.figures import AtMost

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dpadmm.studies.describe_figures import StudyFigure
    from dpadmm.studies.describe_files import DescribeConfig, Description
    from dpadmm.studies.infer_files import Inference


@dataclass(frozen=True, kw_only=True)
class DescribeCommand:
    """What ``dpadmm describe`` is asked."""

    config: Annotated[Path, typer.Argument(help="The study, a describe.toml.")]
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
            help="With --plan: the smallest epsilon with which no interval is wider than this part "
            "of what is possible (0.05: five points of a share, a twentieth of the bounds)."
        ),
    ] = None
    verbose: VerboseOption = False
    as_json: JsonOption = False


@takes(DescribeCommand)
def describe_command(options: DescribeCommand) -> None:
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
    from dpadmm.studies.describe_files import DescribeConfig
    from dpadmm.studies.study_files import load_study

    with refusals("describe", options.as_json):
        if options.width is not None and not options.plan:
            raise ParameterError("--width must come with --plan: it is about what to expect.")
        config = load_study(options.config, DescribeConfig)
        if options.epsilon is not None:
            told = type(config.study).model_validate(
                config.study.model_dump() | {"epsilon": options.epsilon}
            )
            config = config.model_copy(update={"study": told})
        if options.plan:
            _plan(config, options)
            return
        _describe(config, options)


def _describe(config: DescribeConfig, options: DescribeCommand) -> None:
    from dpadmm.report.html import write_page
    from dpadmm.report.studies import describe_report
    from dpadmm.studies.describe_files import describe_files

    found = describe_files(config, owner_at_terminal())
    record, place = found.record(), config.result.report_file
    if place is not None:
        write_page(place, describe_report(record))
    if options.as_json:
        emit("describe", {"record": str(config.result.record), **record})
        return
    _show_figures(found.figures)
    _show_proposed(found)
    show_statement(found.privacy_, verbose=options.verbose)
    say(f"Written: {config.result.record}" + (f", {place}" if place else ""))
    if found.proposed:
        narrow = config.result.schema_file
        say(
            'schema = "narrow.toml" under [result], and this command again: with ledgers it costs '
            "nothing"
            if narrow is None
            else f"dpadmm train run.toml, with schema = {str(narrow)!r} and the same ledgers",
            "Next step",
        )


def _show_proposed(found: Description) -> None:
    if found.proposed:
        rows = [
            (each.column, each.lower, each.upper, each.transform or "") for each in found.proposed
        ]
        show_table("Proposed bounds", ("column", "lower", "upper", "transform"), rows)


def _plan(config: DescribeConfig, options: DescribeCommand) -> None:
    from dpadmm.studies.describe import described
    from dpadmm.studies.describe_files import (
        budget_split,
        describe_epsilon,
        expected_figures,
        plan_describe,
        relative_width,
        split_detail,
    )
    from dpadmm.studies.study import planned_privacy
    from dpadmm.studies.study_files import rows_to_plan, study_schema

    about = described(study_schema(config), config.wish)
    rows, terms = rows_to_plan(config), config.study.terms
    found: dict[str, Any] = {"rows": rows}
    if options.width is not None:
        epsilon = describe_epsilon(about, rows, terms, options.width)
        terms = replace(terms, epsilon=epsilon)
        found |= {"width": options.width, "epsilon": epsilon}
    planned = plan_describe(about, rows, terms)
    figures = expected_figures(about, planned)
    widths = [relative_width(about, figure) for figure in figures]
    key = config.study.simulation_key
    privacy = planned_privacy(planned, key, split_detail(planned))
    found |= {
        "privacy": privacy.to_dict(),
        "split": budget_split(planned),
        "expected": [
            {**figure.to_dict(), "relative_width": width}
            for figure, width in zip(figures, widths, strict=True)
        ],
    }
    if options.as_json:
        emit("describe", found)
        return
    _show_expected(figures, widths)
    if options.width is not None:
        say(f"{AtMost(found['epsilon']):4}", "Smallest epsilon")
    show_statement(privacy, verbose=options.verbose)
    say(
        "Widths are parts of what is possible at all (of 0 to 1, of the bounds, of -1 to 1), as if "
        "every column were spread evenly. Nothing was read or spent."
    )


def _show_expected(figures: Sequence[StudyFigure], widths: Sequence[float]) -> None:
    shown = {
        (figure.kind, figure.column, figure.group or ""): each
        for figure, each in zip(figures, widths, strict=True)
    }
    lines = [
        (*key, "says nothing" if each >= 1 else f"{100 * each:.3g}%") for key, each in shown.items()
    ]
    show_table("Expected intervals", ("figure", "of", "group", "width"), lines)


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


def show_answer(answer: Description | Inference) -> None:
    """Print what a study between nodes found."""
    from dpadmm.studies.infer_files import Inference

    if isinstance(answer, Inference):
        question = answer.question
        summary = answer.effects.summary(level=question.asked.level, response=question.explained)
        say(str(summary))
    else:
        _show_figures(answer.figures)
        _show_proposed(answer)
