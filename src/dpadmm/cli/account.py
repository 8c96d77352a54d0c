"""``dpadmm account``: what a run or a list of releases guarantees, without any data."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import typer

from dpadmm.cli.output import (
    JsonOption,
    VerboseOption,
    console,
    emit,
    named_values,
    read_value,
    show_statement,
    show_table,
    takes,
    whole_numbers,
)
from dpadmm.errors import ParameterError, positive_integer
from dpadmm.privacy.figures import AtLeast, AtMost, Given
from dpadmm.run.options import AUTO, DEFAULT, MOST_ROUNDS, OPTIONS

if TYPE_CHECKING:
    from dpadmm.experiments.question import RunQuestion
    from dpadmm.privacy.events import Event
    from dpadmm.privacy.statement import PrivacyStatement
    from dpadmm.run.charges import WholePlan
    from dpadmm.run.options import TrainingParameters
    from dpadmm.run.plan import Plan

_CURVE = (1e-3, 1e-4, 1e-5, 1e-6, 1e-8, 1e-10)

ReleaseKind = Literal["gaussian", "pure", "objective", "subsampled"]


@dataclass(frozen=True, kw_only=True)
class AccountOptions:
    """What ``dpadmm account`` is asked."""

    config: Annotated[
        Path | None,
        typer.Argument(help="A configuration; it then decides the run, and the options do not."),
    ] = None
    epsilon: Annotated[float, typer.Option(help=OPTIONS["epsilon"].help)] = DEFAULT.epsilon
    delta: Annotated[float, typer.Option(help=OPTIONS["delta"].help)] = DEFAULT.delta
    algorithm: Annotated[str, typer.Option(help=OPTIONS["algorithm"].help)] = DEFAULT.algorithm
    rounds: Annotated[
        str,
        typer.Option(help="Messages, or releases of one kind; auto: as the algorithm has them."),
    ] = AUTO
    rows: Annotated[str, typer.Option(help="Rows of each party, separated by commas.")] = (
        "8000,8000,8000,8000,8000"
    )
    features: Annotated[int, typer.Option(help="Columns of an encoded row.")] = 105
    topology: Annotated[str, typer.Option(help=OPTIONS["topology"].help)] = DEFAULT.topology
    penalty: Annotated[str, typer.Option(help=OPTIONS["penalty"].help)] = DEFAULT.penalty
    regularization: Annotated[float, typer.Option(help=OPTIONS["regularization"].help)] = (
        DEFAULT.regularization
    )
    party_weight: Annotated[str, typer.Option(help=OPTIONS["party_weight"].help)] = (
        DEFAULT.party_weight
    )
    rows_per_person: Annotated[int, typer.Option(help=OPTIONS["rows_per_person"].help)] = (
        DEFAULT.rows_per_person
    )
    option: Annotated[list[str] | None, typer.Option(help=OPTIONS["algorithm_options"].help)] = None
    release: Annotated[
        ReleaseKind | None,
        typer.Option(help="Compose `--rounds` releases of this kind instead of a run."),
    ] = None
    mu: Annotated[float | None, typer.Option(help="gaussian, objective: sensitivity / sigma.")] = (
        None
    )
    release_epsilon: Annotated[float | None, typer.Option(help="pure: epsilon of one release.")] = (
        None
    )
    convexity: Annotated[
        float | None, typer.Option(help="objective: strong convexity m of the local problem.")
    ] = None
    batch: Annotated[int | None, typer.Option(help="subsampled: rows of a batch.")] = None
    population: Annotated[int | None, typer.Option(help="subsampled: rows it is drawn from.")] = (
        None
    )
    noise_multiplier: Annotated[
        float | None, typer.Option(help="subsampled: sigma / replace-one sensitivity.")
    ] = None
    schedule: Annotated[
        Literal["constant", "periodic", "iteration", "geometric"],
        typer.Option(help="gaussian: how the variance changes over the rounds."),
    ] = "constant"
    decay: Annotated[float, typer.Option(help="Decay of the schedule.")] = 0.925
    period: Annotated[int, typer.Option(help="Period of the periodic schedule.")] = 1
    verbose: VerboseOption = False
    as_json: JsonOption = False


@takes(AccountOptions)
def account(options: AccountOptions) -> None:
    """Say what a run would guarantee and cost each party, or compose releases by hand.

    For example:

    * `dpadmm account run.toml` (the run of a configuration whose parties declare their rows)

    * `dpadmm account --epsilon 1 --delta 1e-5 --rows 8000,4000` (a run)

    * `dpadmm account --release pure --release-epsilon 0.1 --rounds 50 --delta 1e-4`

    * `dpadmm account --release gaussian --mu 0.01 --schedule periodic --decay 0.925`

    It reads no data.
    """
    if options.release is not None:
        (result, statement), show = _composed(options, options.release), _show_releases
    else:
        (result, statement), show = _run(_question(options)), _show_run
    if options.as_json:
        emit("account", result | {"lines": statement.lines()})
    else:
        show(result)
        show_statement(statement, verbose=options.verbose)


# -- a run ---------------------------------------------------------------------------------------


def _question(options: AccountOptions) -> RunQuestion:
    """What a configuration says, without opening a file of rows; or what the options say."""
    from dpadmm.experiments.question import RunQuestion
    from dpadmm.run.options import TrainingParameters

    if options.config is not None:
        return RunQuestion.from_config(options.config, settled=True)
    known = {each.name for each in fields(TrainingParameters)}
    told = [each.name for each in fields(options) if each.name in known]
    given = {name: getattr(options, name) for name in told}
    # Words that may stand for a number, a list or a table.
    given |= {name: read_value(given[name]) for name in ("rounds", "penalty")}
    parameters = TrainingParameters(**given, algorithm_options=named_values(options.option or []))
    return RunQuestion(
        whole_numbers(options.rows), features=options.features, parameters=parameters
    )


def _ahead(whole: WholePlan) -> tuple[tuple[Event, ...], ...]:
    """What each party would be charged for the evaluation after a run."""
    from dpadmm.run.plan import announced

    expected = whole.expected()
    return () if expected is None else announced(expected)


def _histories(
    whole: WholePlan, training: Sequence[Sequence[Event]]
) -> list[list[tuple[Event, ...]]]:
    """Of each party the releases that add up; of several lists the larger cost counts.

    Held-out rows have a list of their own, as in a statement (:class:`Charges`).
    """
    from dpadmm.privacy.events import parts_add_up

    ahead, budget = _ahead(whole), whole.training.budget
    if budget is None or not ahead:
        return [[tuple(events)] for events in training]
    held_out = whole.wish.split.holdout
    return [
        [both] if not held_out or parts_add_up(both, budget.rows_per_person) else [(*events,), more]
        for events, more in zip(training, ahead, strict=True)
        for both in [(*events, *more)]
    ]


def _run(question: RunQuestion) -> tuple[dict[str, Any], PrivacyStatement]:
    """Configure a run for public facts only and account what it announces."""
    from dpadmm.privacy.gaussian import gaussian_mu
    from dpadmm.privacy.noise import SimulatedNoise, secure_noise
    from dpadmm.run.plan import announced
    from dpadmm.run.session import state_whole

    parameters, whole = question.parameters, question.whole()
    planned = whole.training
    site, budget = planned.site, planned.budget
    events = announced(planned)
    # About the noise that a run on this machine would draw.
    noise = SimulatedNoise(0) if question.simulated else secure_noise()
    statement = state_whole(planned, events, noise, whole.wish, ahead=_ahead(whole))
    statement = replace(statement, noise=f"none drawn yet: this is a plan ({statement.noise})")
    weakest = None if budget is None else float(gaussian_mu(budget.epsilon, budget.delta).max())
    result = {
        "algorithm": planned.algorithm.name,
        "rounds": planned.rounds,
        "penalty": planned.penalty if planned.algorithm.uses_penalty else None,
        "budget_mu": weakest,
        "parties": [
            _party(planned, place, events[place], statement) for place in range(len(site.names))
        ],
        "curve": _curve(chain(*_histories(whole, events)), parameters.rows_per_person),
        "other_rounds": [
            _other_rounds(question, count, events)
            for count in _other_counts(parameters, planned.rounds)
        ],
        "statement": statement.to_dict(),
    }
    return result, statement


def _party(
    planned: Plan, place: int, events: Sequence[Event], statement: PrivacyStatement
) -> dict[str, Any]:
    """What one party releases and is guaranteed."""
    site = planned.site
    name, first, last = site.names[place], events[0].to_dict(), events[-1].to_dict()
    guarantee = statement.parties[name]
    return {
        "party": name,
        "rows": int(site.rows[place]),
        "degree": int(site.degree[place]),
        "sensitivity": first.get("sensitivity"),
        "sigma_first": first.get("sigma"),
        "sigma_last": last.get("sigma"),
        "epsilon": guarantee.epsilon,
        "delta": 0.0 if planned.budget is None else float(planned.budget.delta[place]),
        "accountant": guarantee.accountant,
        "theorem": guarantee.theorem,
        "epsilon_after_round": statement.rounds[name].tolist(),
    }


def _other_counts(parameters: TrainingParameters, rounds: int) -> tuple[int, ...]:
    """Other numbers of rounds to show; none beside a list that has one number for each round."""
    given = [parameters.penalty, *parameters.algorithm_options.values()]
    tables = [each.values() for each in given if isinstance(each, Mapping)]
    if any(isinstance(each, list | tuple) for each in chain(given, *tables)):
        return (rounds,)
    return max(1, rounds // 2), rounds, min(2 * rounds, MOST_ROUNDS)


def _other_rounds(
    question: RunQuestion, rounds: int, events: Sequence[Sequence[Event]]
) -> dict[str, Any]:
    """What the same budget asks of the noise, and what the same noise would cost at most."""
    from dpadmm.privacy.accountant import epsilon_spent
    from dpadmm.privacy.noise import SAMPLER_ALLOWANCE
    from dpadmm.run.plan import announced

    whole, people = question.whole(rounds=rounds), question.parameters.rows_per_person
    planned = whole.training
    deltas = np.zeros(len(events)) if planned.budget is None else planned.budget.delta
    calibrated = announced(planned)[0][0].to_dict()
    trained = [tuple(own[t % len(own)] for t in range(rounds)) for own in events]
    # Parties often share a history; each different one is accounted once.
    histories = dict.fromkeys(
        (history, float(delta) * (1 - SAMPLER_ALLOWANCE))
        for own, delta in zip(_histories(whole, trained), deltas, strict=True)
        for history in own
    )
    return {
        "rounds": rounds,
        "penalty": planned.penalty if planned.algorithm.uses_penalty else None,
        "sigma_for_this_budget": calibrated.get("sigma"),
        "epsilon_with_this_noise": max(
            epsilon_spent(history, ideal, rows_per_person=people).epsilon
            for history, ideal in histories
        ),
    }


def _show_parties(result: dict[str, Any]) -> None:
    """What each party adds and spends; an accountant that all parties share is shown elsewhere."""
    differ = len({party["accountant"] for party in result["parties"]}) > 1
    apart = ("accountant",) if differ else ()
    show_table(
        f"{result['algorithm']}, {result['rounds']} rounds"
        + ("" if result["penalty"] is None else f", penalty {_short(result['penalty'])}"),
        ("party", "rows", "degree", "sensitivity", "noise", "epsilon", "delta", *apart),
        [
            (
                party["party"],
                party["rows"],
                party["degree"],
                _short(party["sensitivity"]),
                _span(party["sigma_first"], party["sigma_last"]),
                AtMost(party["epsilon"]),
                AtMost(party["delta"]),
                *(party[name] for name in apart),
            )
            for party in result["parties"]
        ],
    )


def _show_run(result: dict[str, Any]) -> None:
    _show_parties(result)
    if result["budget_mu"] is not None:
        # What the budget allows: more of it would not be within (epsilon, delta).
        mu = AtLeast(result["budget_mu"])
        console.print(f"The largest budget of a party is mu = {mu} of Gaussian DP.\n")
    spent = result["parties"][0]["epsilon_after_round"]
    marks = sorted({0, len(spent) // 4, len(spent) // 2, 3 * len(spent) // 4, len(spent) - 1})
    show_table(
        f"Spent by party {result['parties'][0]['party']} over the rounds",
        ("after round", "epsilon"),
        [(mark + 1, f"{AtMost(spent[mark]):4}") for mark in marks],
    )
    _show_curve(result["curve"])
    show_table(
        "The same budget over fewer or more rounds",
        (
            "rounds",
            "penalty",
            f"noise it asks of party {result['parties'][0]['party']}",
            "epsilon if the noise stayed, at most",
        ),
        [
            (
                row["rounds"],
                _short(row["penalty"]),
                _short(row["sigma_for_this_budget"]),
                f"{AtMost(row['epsilon_with_this_noise']):4}",
            )
            for row in result["other_rounds"]
        ],
    )


# -- releases by hand ----------------------------------------------------------------------------


def _releases(options: AccountOptions) -> tuple[list[Event], dict[str, Any]]:
    """The events of ``--rounds`` releases of one kind, and facts worth showing."""
    from dpadmm.privacy import events

    def need(name: str) -> Any:
        value = getattr(options, name)
        if value is None:
            flag = name.replace("_", "-")
            raise ParameterError(
                f"--{flag} must be given with --release {options.release}; got none."
            )
        return value

    rows = positive_integer("rows", whole_numbers(options.rows)[0])
    count = _releases_made(options.rounds)
    if options.release == "pure":
        return [events.Repeated(events.PureRelease(need("release_epsilon")), count)], {}
    if options.release == "objective":
        # Logistic loss with weight 1: curvature at most 1/4.
        kappa = 0.25 / (rows * need("convexity"))
        one = events.GaussianObjectivePerturbation(need("mu"), kappa)
        return [events.Repeated(one, count)], {"kappa": kappa}
    if options.release == "subsampled":
        event = events.SubsampledGaussian(
            need("batch"), need("population"), 1.0, need("noise_multiplier")
        )
        return [events.Repeated(event, count)], {"sampling_rate": event.sampling_rate}
    return _gaussian_releases(need("mu"), options)


def _gaussian_releases(mu: float, options: AccountOptions) -> tuple[list[Event], dict[str, Any]]:
    """Releases whose variance follows a schedule, the first with the given ``mu``."""
    from dpadmm.algorithms import pr_admm
    from dpadmm.privacy.events import GaussianRelease

    count, decay = _releases_made(options.rounds), options.decay
    ratios = {
        "constant": lambda: pr_admm.constant(count),
        "periodic": lambda: pr_admm.periodic(count, decay, options.period),
        "iteration": lambda: pr_admm.iteration(count, decay),
        "geometric": lambda: pr_admm.periodic(count, decay),
    }[options.schedule]()
    facts = {
        "inverse_variance_sum": pr_admm.inverse_variance_sum(ratios),
        "largest_share": pr_admm.largest_share(ratios),
    }
    return [GaussianRelease(mu, math.sqrt(ratio)) for ratio in ratios], facts


def _composed(
    options: AccountOptions, kind: ReleaseKind
) -> tuple[dict[str, Any], PrivacyStatement]:
    from dpadmm.privacy.gaussian import gaussian_mu
    from dpadmm.privacy.statement import Charges, Terms, make_statement

    events, facts = _releases(options)
    delta = options.delta
    by_hand = "none drawn: these releases were composed by hand"
    spent = make_statement(
        Charges(("the party",), [events], [delta], options.rows_per_person),
        Terms(algorithm=f"{kind} releases", noise=by_hand, simulated=False),
        by_round=False,
    )
    finite = spent.private and delta > 0 and spent.epsilon > 0
    result = {
        "release": kind,
        "epsilon": spent.epsilon,
        "delta": delta,
        "budget_mu": float(gaussian_mu(spent.epsilon, delta)) if finite else None,
        "accountant": spent.accountant,
        "theorem": spent.theorem,
        **facts,
        "curve": _curve([events], options.rows_per_person),
    }
    return result, spent


def _show_releases(result: dict[str, Any]) -> None:
    hidden = {"curve", "theorem", "release"}
    show_table(
        f"{result['release']} releases",
        ("what", "value"),
        [
            (key.replace("_", " "), _shown(key, value))
            for key, value in result.items()
            if key not in hidden and value is not None
        ],
    )
    _show_curve(result["curve"])


def _shown(key: str, value: Any) -> Any:
    """Bounds rounded up; of the rest a few digits."""
    if key == "delta":
        return Given(value)
    if key in ("epsilon", "budget_mu"):
        return AtMost(value)
    return _short(value, 6) if isinstance(value, float) else value


# -- shared --------------------------------------------------------------------------------------


def _curve(histories: Iterable[Sequence[Event]], rows_per_person: int) -> list[dict[str, float]]:
    """The largest epsilon of the parties at other deltas."""
    from dpadmm.privacy.accountant import epsilon_curve
    from dpadmm.privacy.noise import SAMPLER_ALLOWANCE

    # As in a statement, delta leaves room for the distance of a sampler from the ideal one.
    ideal = [delta * (1 - SAMPLER_ALLOWANCE) for delta in _CURVE]
    values = [
        epsilon_curve(history, ideal, rows_per_person=rows_per_person)
        for history in dict.fromkeys(tuple(history) for history in histories)
    ]
    return [
        {"delta": delta, "epsilon": float(value)}
        for delta, value in zip(_CURVE, np.max(values, axis=0), strict=True)
    ]


def _show_curve(curve: list[dict[str, float]]) -> None:
    show_table(
        "Epsilon at other deltas, the largest of the parties'",
        ("delta", "epsilon"),
        [(Given(point["delta"]), f"{AtMost(point['epsilon']):4}") for point in curve],
    )


def _releases_made(text: str) -> int:
    """How many releases to compose: a number, or as many as most algorithms make."""
    from dpadmm.run.plan import chosen_rounds

    return chosen_rounds(read_value(text), DEFAULT.algorithm)


def _short(value: float | None, digits: int = 4) -> str:
    if value is None:
        return ""
    return f"{value:.{digits}g}" if math.isfinite(value) else "infinite"


def _span(first: float | None, last: float | None) -> str:
    return _short(first) if first == last else f"{_short(first)} to {_short(last)}"
