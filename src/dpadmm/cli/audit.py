"""``dpadmm audit``: try to refute what a mechanism or an algorithm claims."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.progress import Progress

from dpadmm.cli.output import (
    JsonOption,
    emit,
    errors,
    named_values,
    refusals,
    say,
    show_table,
    takes,
)
from dpadmm.errors import ParameterError
from dpadmm.privacy.figures import AtLeast, AtMost

if TYPE_CHECKING:
    from dpadmm.audit.verdict import Verdict

#: The exit code of a refuted claim; 0 is one that stands, 2 a question that makes no sense.
REFUTED: Final = 3


@dataclass(frozen=True, kw_only=True)
class AuditOptions:
    """What ``dpadmm audit`` is asked."""

    mechanism: Annotated[
        str | None, typer.Option(help="A mechanism, such as gaussian; a wrong name lists all.")
    ] = None
    algorithm: Annotated[
        str | None, typer.Option(help="Or a whole private algorithm, such as pr-admm.")
    ] = None
    epsilon: Annotated[float, typer.Option(help="The claimed epsilon, of the whole run.")] = 1.0
    delta: Annotated[float, typer.Option(help="The claimed delta; pure mechanisms have none.")] = (
        1e-5
    )
    rounds: Annotated[int, typer.Option(help="Messages of an algorithm.")] = 3
    rows: Annotated[int, typer.Option(help="Rows of an algorithm's party.")] = 100
    penalty: Annotated[float, typer.Option(help="The algorithm's penalty.")] = 0.5
    features: Annotated[
        int | None, typer.Option(help="Dimension of a row; drawn from the seed if not given.")
    ] = None
    outputs: Annotated[
        int | None, typer.Option(help="Columns of the classifier; drawn if not given.")
    ] = None
    rows_per_person: Annotated[
        int | None, typer.Option(help="Rows replaced at once; drawn if not given.")
    ] = None
    option: Annotated[
        list[str] | None,
        typer.Option(help="An option of the algorithm, NAME=VALUE; drawn where not given."),
    ] = None
    calibration: Annotated[
        str, typer.Option(help="proven, or published: the noise that a paper prints.")
    ] = "proven"
    noise_scale: Annotated[
        float, typer.Option(help="Multiply the noise: below 1 makes the claim false.")
    ] = 1.0
    samples: Annotated[int, typer.Option(help="Runs of each of the two data sets.")] = 50_000
    confidence: Annotated[
        float, typer.Option(help="Confidence of the verdict: of the bound, and of the noise.")
    ] = 0.99
    seed: Annotated[
        int, typer.Option(help="Decides setting and attack; deployed noise takes no seed.")
    ] = 0
    as_json: JsonOption = False


@takes(AuditOptions)
def audit(options: AuditOptions) -> None:
    """Run the worst case many times to bound its privacy loss from below; test a run's noise.

    For example:

    * `dpadmm audit --algorithm dp-gd --samples 5000`

    * `dpadmm audit --algorithm dp-gd --samples 5000 --noise-scale 0.5` (half the noise: refuted)

    * `dpadmm audit --mechanism gaussian --epsilon 1 --delta 1e-5`

    The seed draws every setting of the algorithm that you do not give.

    The exit code is 0 if the claim stands, 3 if it is refuted, 2 if the question makes no sense.
    """
    with refusals("audit", options.as_json):
        if (options.mechanism is None) == (options.algorithm is None):
            raise ParameterError(
                "either --mechanism or --algorithm must be given, and not both: see dpadmm audit "
                "--help."
            )
        with _progress(2 * options.samples) as on_progress:
            verdict = _audited(options, on_progress)
    if options.as_json:
        emit("audit", {"seed": options.seed, **verdict.to_dict()})
    else:
        _show(verdict)
    if verdict.refuted:
        raise typer.Exit(REFUTED)


def _audited(options: AuditOptions, on_progress: Callable[[int], None]) -> Verdict:
    """The verdict on an algorithm or, where none is named, on a mechanism."""
    from dpadmm.audit.algorithms import audit_algorithm, mechanism_case
    from dpadmm.audit.cases import audit_case
    from dpadmm.audit.scene import draw_scene

    drawn = {name: getattr(options, name) for name in ("features", "outputs", "rows_per_person")}
    given = {name: value for name, value in drawn.items() if value is not None}
    measured: dict[str, Any] = {
        "samples": options.samples,
        "confidence": options.confidence,
        "on_progress": on_progress,
    }
    if options.algorithm is not None:
        scene = draw_scene(
            options.algorithm,
            options.seed,
            epsilon=options.epsilon,
            delta=options.delta,
            rounds=options.rounds,
            rows=options.rows,
            penalty=options.penalty,
            options=named_values(options.option or []),
            calibration=options.calibration,
            **given,
        )
        return audit_algorithm(scene, noise_scale=options.noise_scale, **measured)
    if given or options.option:
        raise ParameterError(f"{next(iter(given), 'option')} must be left out for a mechanism.")
    case = mechanism_case(
        str(options.mechanism),
        options.epsilon,
        options.delta,
        noise_scale=options.noise_scale,
        calibration=options.calibration,
    )
    return audit_case(case, seed=options.seed, **measured)


@contextmanager
def _progress(total: int) -> Iterator[Callable[[int], None]]:
    # On the error stream, and only where a person watches: what is printed stays machine-readable.
    with Progress(console=errors, transient=True, disable=not errors.is_terminal) as progress:
        task = progress.add_task("auditing", total=total)
        yield lambda runs: progress.advance(task, runs)


def _show(verdict: Verdict) -> None:
    setting, quantity = verdict.setting, verdict.claim.quantity
    lines = [
        ("audited", setting.subject),
        ("claim", verdict.claim.words()),
        ("neighbours", setting.adjacency),
        ("worst case", setting.worst_case),
        ("statistic", setting.statistic),
        ("attack", verdict.attack.words()),
        ("runs", f"{verdict.samples} of each data set"),
        (f"claimed {quantity}", f"{AtMost(verdict.claim.value):4}"),
        (
            f"{quantity} at least",
            f"{AtLeast(verdict.lower_bound):4}, with confidence {verdict.confidence:g} "
            f"({verdict.recovered:.0%} of the claim; estimate {verdict.estimate:.4g})",
        ),
        *_noise_lines(verdict),
        ("verdict", verdict.verdict),
    ]
    show_table("Audit", ("", "finding"), lines)
    say(verdict.words())


def _noise_lines(verdict: Verdict) -> list[tuple[str, str]]:
    """What the test of the noise found, line by line."""
    noise = verdict.noise
    if noise is None:
        return []
    found = [finding.sentence for finding in noise.findings] or ["as claimed"]
    about = (
        f"{noise.tests} tests of {noise.draws} draws over rounds, coordinates, parties and runs; "
        f"false alarms at most {noise.false_alarm:.3g}"
    )
    return [("noise", about), *(("", sentence) for sentence in found)]
