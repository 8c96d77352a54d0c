"""``dpadmm infer``: a regression of all parties' rows, or what to expect of it."""

from __future__ import annotations

import warnings
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
    takes,
    warn,
)
from dpadmm.errors import ParameterError
from dpadmm.privacy.figures import AtMost

if TYPE_CHECKING:
    from dpadmm.studies.infer_files import InferConfig


@dataclass(frozen=True, kw_only=True)
class InferCommand:
    """What ``dpadmm infer`` is asked."""

    config: Annotated[Path, typer.Argument(help="The study, an infer.toml.")]
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
            help="With --plan: the smallest epsilon with which intervals are no more than so many "
            "times as wide as without privacy."
        ),
    ] = None
    verbose: VerboseOption = False
    as_json: JsonOption = False


@takes(InferCommand)
def infer_command(options: InferCommand) -> None:
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
    from dpadmm.studies.infer_files import InferConfig
    from dpadmm.studies.study_files import load_study

    with refusals("infer", options.as_json):
        if options.width is not None and not options.plan:
            raise ParameterError("--width must come with --plan: it is about what to expect.")
        config = load_study(options.config, InferConfig)
        if options.epsilon is not None:
            told = type(config.study).model_validate(
                config.study.model_dump() | {"epsilon": options.epsilon}
            )
            config = config.model_copy(update={"study": told})
        if options.plan:
            _plan(config, options)
            return
        _infer(config, options)


def _infer(config: InferConfig, options: InferCommand) -> None:
    from dpadmm.report.html import write_page
    from dpadmm.report.studies import infer_report
    from dpadmm.studies.infer_files import infer_files

    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_: warn(str(message))
        found = infer_files(config, owner_at_terminal())
    record, place = found.record(), config.result.report_file
    if place is not None:
        write_page(place, infer_report(record))
    if options.as_json:
        emit("infer", {"record": str(config.result.record), **record})
        return
    say(str(found.effects.summary(level=config.infer.level, response=found.question.explained)))
    show_statement(found.privacy_, verbose=options.verbose)
    say(f"Written: {config.result.record}" + (f", {place}" if place else ""))


def _plan(config: InferConfig, options: InferCommand) -> None:
    from dpadmm.studies.effects import RULES, check_strength
    from dpadmm.studies.glm import Regression, expected_width
    from dpadmm.studies.infer_files import FileRegression, epsilon_for_relative_width
    from dpadmm.studies.study import planned_privacy
    from dpadmm.studies.study_files import rows_to_plan, study_schema

    question = FileRegression(config.infer, study_schema(config))
    rows, terms = rows_to_plan(config), config.study.terms
    found: dict[str, Any] = {"rows": rows}
    if options.width is not None:
        terms = replace(
            terms, epsilon=epsilon_for_relative_width(question, rows, terms, options.width)
        )
        found |= {"width": options.width, "epsilon": terms.epsilon}
    planned = question.plan(rows, terms)
    study, privacy = planned.algorithm, planned_privacy(planned, config.study.simulation_key)
    assert isinstance(study, Regression)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        check_strength(study)
    found |= {
        "privacy": privacy.to_dict(),
        "strength": study.strength,
        "needed": RULES[study.facts.family].warned,
        "expected_width": expected_width(study),
        "coefficients": [*question.response.constants, *question.design.names],
        "warnings": [str(each.message) for each in said],
    }
    if options.as_json:
        emit("infer", found)
        return
    say(f"{expected_width(study):.2f} times as wide as without privacy", "Expected intervals")
    say(f"{study.strength:.3g}, needed {found['needed']:g}", "q = n mu / p^1.5")
    for line in found["warnings"]:
        say(line, "Weak")
    if options.width is not None:
        say(f"{AtMost(found['epsilon']):4}", "Smallest epsilon")
    show_statement(privacy, verbose=options.verbose)
    say("Nothing was read or spent.")
