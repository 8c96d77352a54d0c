"""``dpadmm account``: what a run or a list of releases guarantees, without any data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import numpy as np
import typer

from dpadmm.cli.output import JsonOption, console, emit, show_table
from dpadmm.errors import ParameterError

if TYPE_CHECKING:
    from dpadmm.training import Plan, TrainingParameters

__all__ = ["account"]

_CURVE = (1e-3, 1e-4, 1e-5, 1e-6, 1e-8, 1e-10)

ReleaseKind = Literal["gaussian", "pure", "objective", "subsampled"]


def account(
    config: Annotated[
        Path | None,
        typer.Argument(help="A configuration; it then decides the run, and the options do not."),
    ] = None,
    epsilon: Annotated[float, typer.Option(help="Total budget of each party.")] = 1.0,
    delta: Annotated[float, typer.Option(help="Its delta.")] = 1e-5,
    algorithm: Annotated[str, typer.Option(help="Which algorithm.")] = "pr-admm",
    rounds: Annotated[int, typer.Option(help="Messages, or releases of one kind.")] = 50,
    rows: Annotated[
        str, typer.Option(help="Rows of each party, separated by commas.")
    ] = "8000,8000,8000,8000,8000",
    features: Annotated[int, typer.Option(help="Columns of an encoded row.")] = 105,
    topology: Annotated[str, typer.Option(help="Who talks to whom.")] = "auto",
    penalty: Annotated[str, typer.Option(help="A number or auto.")] = "auto",
    regularization: Annotated[float, typer.Option(help="Weight of the squared norm.")] = 1e-4,
    party_weight: Annotated[str, typer.Option(help="rows or equal.")] = "rows",
    rows_per_person: Annotated[int, typer.Option(help="Rows replaced at once.")] = 1,
    option: Annotated[
        list[str] | None, typer.Option(help="An option of the algorithm, NAME=VALUE.")
    ] = None,
    release: Annotated[
        ReleaseKind | None,
        typer.Option(help="Compose `--rounds` releases of this kind instead of a run."),
    ] = None,
    mu: Annotated[
        float | None, typer.Option(help="gaussian, objective: sensitivity / sigma.")
    ] = None,
    release_epsilon: Annotated[
        float | None, typer.Option(help="pure: epsilon of one release.")
    ] = None,
    convexity: Annotated[
        float | None, typer.Option(help="objective: strong convexity m of the local problem.")
    ] = None,
    batch: Annotated[int | None, typer.Option(help="subsampled: rows of a batch.")] = None,
    population: Annotated[
        int | None, typer.Option(help="subsampled: rows it is drawn from.")
    ] = None,
    noise_multiplier: Annotated[
        float | None, typer.Option(help="subsampled: sigma / replace-one sensitivity.")
    ] = None,
    schedule: Annotated[
        Literal["constant", "periodic", "iteration", "geometric"],
        typer.Option(help="gaussian: how the variance changes over the rounds."),
    ] = "constant",
    decay: Annotated[float, typer.Option(help="Of the schedule.")] = 0.925,
    period: Annotated[int, typer.Option(help="Of the periodic schedule.")] = 1,
    as_json: JsonOption = False,
) -> None:
    """Say what a run would guarantee and cost each party, or compose releases by hand.

    No data are read. Examples:

    * `dpadmm account run.toml` (the run of a configuration whose parties declare their rows)

    * `dpadmm account --epsilon 1 --delta 1e-5 --rows 8000,4000` (a run)

    * `dpadmm account --release pure --release-epsilon 0.1 --rounds 50 --delta 1e-4`

    * `dpadmm account --release gaussian --mu 0.01 --schedule periodic --decay 0.925`
    """
    if release is None:
        if config is not None:
            question = _from_config(config)
        else:
            from dpadmm.training import TrainingParameters

            parameters = TrainingParameters(
                algorithm=algorithm,
                epsilon=epsilon,
                delta=delta,
                rounds=rounds,
                topology=topology,
                penalty=penalty if penalty == "auto" else _number("penalty", penalty),
                regularization=regularization,
                party_weight=party_weight,
                rows_per_person=rows_per_person,
                algorithm_options=_options(option or []),
            )
            question = _Question(parameters, _counts(rows), features)
        result = _run(question)
        show = _show_run
    else:
        from dpadmm.privacy.events import Event

        events: Sequence[Event | tuple[Event, int]]
        events, facts = _releases(
            release,
            rounds,
            {
                "mu": mu,
                "release_epsilon": release_epsilon,
                "convexity": convexity,
                "batch": batch,
                "population": population,
                "noise_multiplier": noise_multiplier,
            },
            rows=_counts(rows)[0],
            schedule=schedule,
            decay=decay,
            period=period,
        )
        result = _composed(release, events, delta, rows_per_person, facts)
        show = _show_releases
    if as_json:
        emit("account", result)
    else:
        show(result)


# -- a run ---------------------------------------------------------------------------------------


class _Question(NamedTuple):
    """The public facts of a run that has not happened."""

    parameters: TrainingParameters
    rows: list[int]
    features: int
    outputs: int = 1
    names: tuple[str, ...] | None = None

    def plan(self, rounds: int) -> Plan:
        """The run, with so many rounds."""
        from dpadmm.training import plan

        return plan(
            replace(self.parameters, rounds=rounds),
            self.rows,
            features=self.features,
            outputs=self.outputs,
            names=self.names,
        )


def _from_config(path: Path) -> _Question:
    """What a configuration says, without opening a file of rows."""
    from dpadmm.config import load_config
    from dpadmm.privacy.sqlite_ledger import SQLiteLedger
    from dpadmm.schema import load_schema

    told = load_config(path)
    rows = {party.name: party.rows for party in told.party}
    for name, place in told.ledgers.items():
        with SQLiteLedger(place, read_only=True) as ledger:
            rows[name] = ledger.dataset.rows
    counts = {name: count for name, count in rows.items() if count is not None}
    if len(counts) < len(rows) or not rows:
        missing = ", ".join(name for name in rows if name not in counts) or "every party"
        raise ParameterError(
            f"rows must be declared, under [[party]] or in a ledger, to account a run without "
            f"reading its files; they are not for {missing}."
        )
    schema = load_schema(told.data.schema_file)
    classes = len(schema.classes)
    names = tuple(counts)
    return _Question(
        told.parameters(names),
        list(counts.values()),
        len(schema.feature_names),
        1 if classes == 2 else classes,
        names,
    )


def _run(question: _Question) -> dict[str, Any]:
    """Configure a run for public facts only and account what it announces."""
    from dpadmm.privacy.gaussian import gaussian_mu
    from dpadmm.privacy.statement import make_statement
    from dpadmm.training import announced

    parameters = question.parameters
    rounds, people = parameters.rounds, parameters.rows_per_person
    planned = question.plan(rounds)
    site, budget = planned.site, planned.budget
    deltas = np.zeros(len(site.names)) if budget is None else budget.delta
    events = announced(planned)
    statement = make_statement(
        parameters.algorithm,
        site.names,
        events,
        deltas,
        rows_per_person=people,
        noise="none drawn: this is a plan",
        simulated=False,
        calibration=planned.calibration,
        claim=planned.algorithm.claim(site),
        details=planned.algorithm.statement_details(site, deltas),
    )
    parties = []
    for place, name in enumerate(site.names):
        first, last = events[place][0].to_dict(), events[place][-1].to_dict()
        parties.append(
            {
                "party": name,
                "rows": int(site.rows[place]),
                "degree": int(site.degree[place]),
                "sensitivity": first.get("sensitivity"),
                "sigma_first": first.get("sigma"),
                "sigma_last": last.get("sigma"),
                "epsilon": statement.parties[name].epsilon,
                "delta": float(deltas[place]),
                "accountant": statement.parties[name].accountant,
                "theorem": statement.parties[name].theorem,
                "epsilon_after_round": statement.rounds[name].tolist(),
            }
        )
    worst = max(range(len(parties)), key=lambda place: parties[place]["epsilon"])
    weakest = None if budget is None else float(gaussian_mu(budget.epsilon, budget.delta).max())
    return {
        "algorithm": parameters.algorithm,
        "rounds": rounds,
        "penalty": planned.penalty,
        "budget_mu": weakest,
        "parties": parties,
        "curve": _curve(events[worst], people),
        "other_rounds": [
            _other_rounds(question.plan(count), count, events[worst], deltas[worst], people)
            for count in (max(1, rounds // 2), rounds, 2 * rounds)
        ],
        "statement": statement.to_dict(),
        "lines": statement.lines(),
    }


def _other_rounds(
    planned: Plan, rounds: int, events: Sequence[Any], delta: float, people: int
) -> dict[str, Any]:
    """What the same budget asks of the noise, and what the same noise would cost."""
    from dpadmm.privacy.accountant import epsilon_spent
    from dpadmm.training import announced

    calibrated = announced(planned)[0][0].to_dict()
    repeated = [events[t % len(events)] for t in range(rounds)]
    return {
        "rounds": rounds,
        "penalty": planned.penalty,
        "sigma_for_this_budget": calibrated.get("sigma"),
        "epsilon_with_this_noise": epsilon_spent(
            repeated, float(delta), rows_per_person=people
        ).epsilon,
    }


def _show_run(result: dict[str, Any]) -> None:
    show_table(
        f"{result['algorithm']}, {result['rounds']} rounds, penalty {result['penalty']:.4g}",
        ("party", "rows", "degree", "sensitivity", "noise", "epsilon", "delta", "accountant"),
        [
            (
                party["party"],
                party["rows"],
                party["degree"],
                _short(party["sensitivity"]),
                _span(party["sigma_first"], party["sigma_last"]),
                _short(party["epsilon"], 6),
                f"{party['delta']:g}",
                party["accountant"],
            )
            for party in result["parties"]
        ],
    )
    if result["budget_mu"] is not None:
        mu = result["budget_mu"]
        console.print(f"The budget of one party is mu = {mu:.5f} of Gaussian DP.\n")
    spent = result["parties"][0]["epsilon_after_round"]
    marks = sorted({0, len(spent) // 4, len(spent) // 2, 3 * len(spent) // 4, len(spent) - 1})
    show_table(
        f"Spent by party {result['parties'][0]['party']} over the rounds",
        ("after round", "epsilon"),
        [(mark + 1, _short(spent[mark])) for mark in marks],
    )
    _show_curve(result["curve"])
    show_table(
        "The same budget over fewer or more rounds",
        ("rounds", "penalty", "noise it asks for", "epsilon if the noise stayed"),
        [
            (
                row["rounds"],
                f"{row['penalty']:.4g}",
                _short(row["sigma_for_this_budget"]),
                _short(row["epsilon_with_this_noise"]),
            )
            for row in result["other_rounds"]
        ],
    )
    _show_lines(result["lines"])


# -- releases by hand ----------------------------------------------------------------------------


def _releases(
    kind: ReleaseKind,
    count: int,
    given: dict[str, Any],
    *,
    rows: int,
    schedule: str,
    decay: float,
    period: int,
) -> tuple[list[Any], dict[str, Any]]:
    """The events of ``count`` releases of one kind, and facts worth showing."""
    from dpadmm import schedules
    from dpadmm.errors import positive_integer
    from dpadmm.privacy import events

    def need(name: str) -> Any:
        if given[name] is None:
            flag = name.replace("_", "-")
            raise ParameterError(f"--{flag} must be given with --release {kind}; got none.")
        return given[name]

    positive_integer("rounds", count)
    if kind == "pure":
        return [(events.PureRelease(need("release_epsilon")), count)], {}
    if kind == "objective":
        # Logistic loss with weight 1: curvature at most 1/4.
        kappa = 0.25 / (rows * need("convexity"))
        return [(events.GaussianObjectivePerturbation(need("mu"), kappa), count)], {"kappa": kappa}
    if kind == "subsampled":
        event = events.SubsampledGaussian(
            need("batch"), need("population"), 1.0, need("noise_multiplier")
        )
        return [(event, count)], {"sampling_rate": event.sampling_rate}
    ratios = {
        "constant": lambda: schedules.constant(count),
        "periodic": lambda: schedules.periodic(count, decay, period),
        "iteration": lambda: schedules.iteration(count, decay),
        "geometric": lambda: schedules.geometric(count, decay),
    }[schedule]()
    total = schedules.inverse_variance_sum(ratios)
    releases = [events.GaussianRelease(need("mu"), math.sqrt(ratio)) for ratio in ratios]
    facts = {"inverse_variance_sum": total, "largest_share": schedules.largest_share(ratios)}
    return releases, facts


def _composed(
    kind: str, events: list[Any], delta: float, rows_per_person: int, facts: dict[str, Any]
) -> dict[str, Any]:
    from dpadmm.privacy.accountant import epsilon_spent
    from dpadmm.privacy.gaussian import gaussian_mu
    from dpadmm.privacy.statement import ADVERSARY, NOT_COVERED, adjacency_words

    spent = epsilon_spent(events, delta, rows_per_person=rows_per_person)
    finite = math.isfinite(spent.epsilon) and delta > 0 and spent.epsilon > 0
    lines = [
        ("Guarantee", f"({spent.epsilon:.6g}, {delta:g})-differential privacy, total"),
        ("Adjacency", adjacency_words(rows_per_person)),
        ("Adversary", ADVERSARY),
        ("Theorem", spent.theorem),
        ("Accountant", spent.accountant),
        ("Not covered", "; ".join(NOT_COVERED)),
    ]
    return {
        "release": kind,
        "epsilon": spent.epsilon,
        "delta": delta,
        "budget_mu": float(gaussian_mu(spent.epsilon, delta)) if finite else None,
        "accountant": spent.accountant,
        "theorem": spent.theorem,
        **facts,
        "curve": _curve(events, rows_per_person),
        "lines": lines,
    }


def _show_releases(result: dict[str, Any]) -> None:
    hidden = {"curve", "lines", "theorem", "release"}
    show_table(
        f"{result['release']} releases",
        ("what", "value"),
        [
            (key.replace("_", " "), _short(value, 6) if isinstance(value, float) else value)
            for key, value in result.items()
            if key not in hidden and value is not None
        ],
    )
    _show_curve(result["curve"])
    _show_lines(result["lines"])


# -- shared --------------------------------------------------------------------------------------


def _curve(events: Sequence[Any], rows_per_person: int) -> list[dict[str, float]]:
    from dpadmm.privacy.accountant import epsilon_curve

    values = epsilon_curve(events, _CURVE, rows_per_person=rows_per_person)
    return [
        {"delta": delta, "epsilon": float(value)}
        for delta, value in zip(_CURVE, values, strict=True)
    ]


def _show_curve(curve: list[dict[str, float]]) -> None:
    show_table(
        "Epsilon at other deltas",
        ("delta", "epsilon"),
        [(f"{point['delta']:g}", _short(point["epsilon"])) for point in curve],
    )


def _show_lines(lines: Sequence[tuple[str, str]]) -> None:
    for heading, words in lines:
        console.print(f"[bold]{heading}:[/bold] {words}", highlight=False)


def _short(value: float | None, digits: int = 4) -> str:
    if value is None:
        return ""
    return f"{value:.{digits}g}" if math.isfinite(value) else "infinite"


def _span(first: float | None, last: float | None) -> str:
    return _short(first) if first == last else f"{_short(first)} to {_short(last)}"


def _number(parameter: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ParameterError(
            f"{parameter} must be a positive number or 'auto'; got {text!r}."
        ) from None


def _counts(text: str) -> list[int]:
    try:
        counts = [int(part) for part in text.split(",")]
    except ValueError:
        counts = [0]
    if min(counts) < 1:
        raise ParameterError(f"rows must be whole numbers separated by commas; got {text!r}.")
    return counts


def _options(pairs: list[str]) -> dict[str, Any]:
    """``name=value`` pairs; a value that reads as a number is one."""
    options: dict[str, Any] = {}
    for pair in pairs:
        name, mark, value = pair.partition("=")
        if not mark:
            raise ParameterError(f"option must be NAME=VALUE; got {pair!r}.")
        for read in (int, float):
            try:
                options[name] = read(value)
                break
            except ValueError:
                continue
        else:
            options[name] = {"true": True, "false": False}.get(value, value)
    return options
