"""``dpadmm audit``: try to refute what a mechanism or an algorithm claims."""

from __future__ import annotations

from typing import Annotated, Final

import typer
from rich.progress import Progress
from rich.text import Text

from dpadmm.algorithms import REGISTRY
from dpadmm.audit import MECHANISMS, AlgorithmCase, Case, Verdict, audit_case, mechanism_case
from dpadmm.cli.output import JsonOption, console, emit, errors, refusals, show_table
from dpadmm.errors import ParameterError
from dpadmm.privacy.shown import AtLeast, AtMost

__all__ = ["REFUTED", "audit"]

#: The exit code of a refuted claim; 0 is one that stands, 2 a question that makes no sense.
REFUTED: Final = 3

_PRIVATE = ", ".join(name for name, algorithm in REGISTRY.items() if algorithm.private)


def audit(
    mechanism: Annotated[
        str | None, typer.Option(help=f"A mechanism: {', '.join(MECHANISMS)}.")
    ] = None,
    algorithm: Annotated[
        str | None, typer.Option(help=f"Or a whole algorithm: {_PRIVATE}.")
    ] = None,
    epsilon: Annotated[float, typer.Option(help="The claimed epsilon, of the whole run.")] = 1.0,
    delta: Annotated[
        float, typer.Option(help="The claimed delta; pure mechanisms have none.")
    ] = 1e-5,
    rounds: Annotated[int, typer.Option(help="Messages of an algorithm.")] = 3,
    rows: Annotated[int, typer.Option(help="Rows of an algorithm's party.")] = 100,
    penalty: Annotated[float, typer.Option(help="The algorithm's penalty.")] = 0.5,
    calibration: Annotated[
        str, typer.Option(help="proven, or published: the noise that a paper prints.")
    ] = "proven",
    noise_scale: Annotated[
        float, typer.Option(help="Multiply the noise: below 1 makes the claim false.")
    ] = 1.0,
    samples: Annotated[int, typer.Option(help="Runs of each of the two data sets.")] = 50_000,
    confidence: Annotated[float, typer.Option(help="How surely the lower bound holds.")] = 0.99,
    seed: Annotated[int, typer.Option(help="The same seed gives the same verdict.")] = 0,
    as_json: JsonOption = False,
) -> None:
    """Run the worst case many times and bound from below what it loses.

    Exits with 0 if the claim stands, 3 if it is refuted, 2 if the question makes no sense.
    """
    with refusals("audit", as_json):
        case = _case(
            mechanism,
            algorithm,
            epsilon=epsilon,
            delta=delta,
            rounds=rounds,
            rows=rows,
            penalty=penalty,
            calibration=calibration,
            noise_scale=noise_scale,
        )
        verdict = _run(case, samples, confidence, seed)
    if as_json:
        emit("audit", {"seed": seed, **verdict.to_dict()})
    else:
        _show(verdict)
    if verdict.refuted:
        raise typer.Exit(REFUTED)


def _case(
    mechanism: str | None,
    algorithm: str | None,
    *,
    epsilon: float,
    delta: float,
    rounds: int,
    rows: int,
    penalty: float,
    calibration: str,
    noise_scale: float,
) -> Case:
    """What to run, or a refusal."""
    if mechanism is not None and algorithm is None:
        return mechanism_case(
            mechanism, epsilon, delta, noise_scale=noise_scale, calibration=calibration
        )
    if algorithm is not None and mechanism is None:
        return AlgorithmCase(
            algorithm,
            epsilon,
            delta,
            rounds=rounds,
            rows=rows,
            penalty=penalty,
            calibration=calibration,
            noise_scale=noise_scale,
        )
    raise ParameterError("either --mechanism or --algorithm must be given, and not both.")


def _run(case: Case, samples: int, confidence: float, seed: int) -> Verdict:
    # On the error stream, and only where a person watches: what is printed stays machine-readable.
    with Progress(console=errors, transient=True, disable=not errors.is_terminal) as progress:
        task = progress.add_task("auditing", total=2 * samples)
        return audit_case(
            case,
            samples=samples,
            confidence=confidence,
            seed=seed,
            on_progress=lambda runs: progress.advance(task, runs),
        )


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
        ("verdict", verdict.verdict),
    ]
    show_table("Audit", ("", "finding"), lines)
    console.print(Text(verdict.words()), soft_wrap=True)
