"""``dpadmm choose-alpha``: DVP's privacy of an iteration, for a user's own costs."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Annotated, Final

import typer

from dpadmm.cli.output import JsonOption, emit, refusals, show_table, warn
from dpadmm.errors import ParameterError
from dpadmm.privacy.figures import AtMost, Given

_COLUMNS: Final = ("alpha", "loss")


def choose_alpha_command(
    trials: Annotated[
        Path,
        typer.Argument(
            help="A CSV file with the columns alpha and loss, from trials on public rows: several "
            "lines of one alpha are averaged."
        ),
    ],
    lowest: Annotated[
        float | None, typer.Option(help="The smallest alpha allowed; by default of the trials.")
    ] = None,
    highest: Annotated[
        float | None, typer.Option(help="The largest alpha allowed; by default of the trials.")
    ] = None,
    weight: Annotated[
        float, typer.Option(help="omega_1: what it is worth, in loss, to divide alpha by e.")
    ] = 0.02,
    linear: Annotated[float, typer.Option(help="omega_3.")] = 9.0,
    quadratic: Annotated[float, typer.Option(help="omega_4.")] = 1.0,
    rounds: Annotated[int, typer.Option(min=1, help="Iterations of the run.")] = 50,
    delta: Annotated[float, typer.Option(help="For the total of all iterations.")] = 1e-5,
    as_json: JsonOption = False,
) -> None:
    """Choose how private an iteration of dvp is, by what privacy is worth and a model loses.

    Example: `dpadmm choose-alpha trials.csv --weight 0.06 --rounds 50`

    It fits the loss c4 exp(-c5 alpha) + c6 to the trials and maximises omega_1 ln(1 / (omega_3
    alpha + omega_4 alpha^2)) minus that loss. Trials on private rows are releases of their own:
    try on public rows. The choice is for `--option epsilon_per_round=ALPHA` of `dvp`; all
    iterations together cost the total that is shown.
    """
    from dpadmm.privacy.accountant import epsilon_spent
    from dpadmm.privacy.events import PureRelease
    from dpadmm_papers.trade_off import PrivacyUtility, design_alpha, fit_loss

    with refusals("choose-alpha", as_json):
        found = read_trials(trials)
        curve = fit_loss(tuple(found), [sum(each) / len(each) for each in found.values()])
        worth = PrivacyUtility(weight=weight, linear=linear, quadratic=quadratic)
        low = min(found) if lowest is None else lowest
        high = max(found) if highest is None else highest
        chosen = design_alpha(curve, worth, lowest=low, highest=high)
        spent = epsilon_spent([(PureRelease(chosen.alpha), rounds)], delta)
    if as_json:
        emit(
            "choose-alpha",
            {
                "alpha": chosen.alpha,
                "inside": chosen.inside,
                "c4": curve.height,
                "c5": curve.rate,
                "c6": curve.floor,
                "rounds": rounds,
                "epsilon": spent.epsilon,
                "delta": delta,
            },
        )
        return
    show_table(
        "DVP's privacy of an iteration",
        ("what", "value"),
        [
            ("alpha", f"{chosen.alpha:.4g}"),
            ("loss there, by the fit", f"{float(curve(chosen.alpha)):.4g}"),
            ("fitted loss", f"{curve.height:.3g} exp(-{curve.rate:.3g} alpha) + {curve.floor:.3g}"),
            (f"epsilon of {rounds} iterations, delta {Given(delta)}", f"{AtMost(spent.epsilon)}"),
        ],
    )
    if not chosen.inside:
        warn(
            "alpha lies at an end of the range: the range decides, not the costs. Set --lowest or "
            "--highest, or try other alphas."
        )


def read_trials(place: Path) -> dict[float, list[float]]:
    """Losses by alpha, or a refusal that says which line is wrong."""
    with place.open(newline="") as file:
        reader = csv.DictReader(file)
        missing = [name for name in _COLUMNS if name not in (reader.fieldnames or ())]
        if missing:
            raise ParameterError(
                f"{place} must have the columns alpha and loss; it lacks {' and '.join(missing)}."
            )
        found: dict[float, list[float]] = {}
        for number, row in enumerate(reader, start=2):
            try:
                alpha, loss = (float(row[name]) for name in _COLUMNS)
            except (TypeError, ValueError):
                raise ParameterError(
                    f"line {number} of {place} must have a number as alpha and as loss; got "
                    f"{row['alpha']!r} and {row['loss']!r}."
                ) from None
            if not (0 < alpha < float("inf") and abs(loss) < float("inf")):
                raise ParameterError(
                    f"line {number} of {place} must have a positive finite alpha and a finite "
                    f"loss; got {alpha:g} and {loss:g}."
                )
            found.setdefault(alpha, []).append(loss)
    return dict(sorted(found.items()))
