r"""What a run is charged for: its training, the evaluation of its model, and the parties' ledgers.

:func:`charged` opens a run in every ledger, and refuses there what does not fit.

**Evaluation.** One charged histogram says how good a model is on rows that nobody may see. It
is a run of one round (:mod:`dpadmm.evaluation.release`): announced, reserved, computed, committed
and exchanged like any other, under a name of its own in the ledgers. On rows that were kept out of
training it has an account of its own, and a person's cost is the larger of the two. On the rows
that were trained on it adds up.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Final

import numpy as np

from dpadmm.algorithms import HISTOGRAM
from dpadmm.data.schema import Schema
from dpadmm.errors import LedgerError, ParameterError
from dpadmm.evaluation.histogram import NoisyHistogram
from dpadmm.evaluation.release import HistogramRelease
from dpadmm.ledger.balance import Account, RowRange
from dpadmm.ledger.base import Ledger
from dpadmm.ledger.sqlite import LONGEST_NAME, LedgerRun, SQLiteLedger
from dpadmm.plain import Array
from dpadmm.privacy.curves import gaussian_mu_squared
from dpadmm.privacy.events import Event, parts_add_up, single_events
from dpadmm.privacy.gaussian import gaussian_epsilon, gaussian_mu
from dpadmm.privacy.mechanisms import require_exact_shares
from dpadmm.privacy.noise import NoiseSource, SimulatedNoise
from dpadmm.run.engine import Outcome, fingerprint
from dpadmm.run.options import AUTO, Split, TrainingParameters, Wish
from dpadmm.run.plan import Plan, announced, check_labels_once, plan, sums_of_all

#: The part of a run's mu^2 that probabilities on the rows of the training take.
HISTOGRAM_SHARE: Final = 0.1
# Between the name of a run and the word for the terms of its evaluation.
_EVALUATION: Final = " evaluation "


@dataclass(frozen=True)
class WholePlan:
    """A training and the evaluation after it, every number but the model fixed; without any row.

    Attributes
    ----------
    training
        The run.
    wish
        What was asked for beside it.
    classes, rows
        How many there are; public number of rows of each party, those kept out included.
    terms
        Of the histogram; None where none is wanted.
    """

    training: Plan
    wish: Wish
    classes: int
    rows: Mapping[str, int]
    terms: EvaluationTerms | None = None

    def evaluation(self, weights: Array) -> Plan:
        """The evaluation of a model."""
        assert self.terms is not None
        return plan_evaluation(weights, self.classes, self.evaluated_rows, self.terms)

    def expected(self) -> Plan | None:
        """The evaluation of a model that does not exist yet: it costs the same."""
        if self.terms is None:
            return None
        return self.evaluation(np.ones((self.training.site.outputs, self.training.site.features)))

    @property
    def evaluated_rows(self) -> dict[str, int]:
        """Public number of rows of each party that are evaluated on."""
        return {name: self.wish.split.evaluated_rows(rows) for name, rows in self.rows.items()}


def plan_whole(
    parameters: TrainingParameters,
    rows: Mapping[str, int],
    *,
    features: int,
    classes: int,
    wish: Wish,
    least_constant: float | None = None,
) -> WholePlan:
    """Fix a run and the evaluation asked for with it; every refusal happens here.

    Parameters
    ----------
    parameters
        What to do; its budget is for a person, whatever part the rows are in.
    rows
        Public number of rows of each party, those kept out included.
    features, classes, least_constant
        Dimension of a row, how many classes there are, and what a plan needs of a constant.
    wish
        What is asked for beside the training.
    """
    counts = [wish.split.train_rows(count) for count in rows.values()]
    names, outputs = tuple(rows), 1 if classes == 2 else classes
    on_rows = partial(plan, features=features, outputs=outputs, least_constant=least_constant)

    def planned(told: TrainingParameters) -> Plan:
        return on_rows(told, counts, names=names)

    training, terms = planned(parameters), None
    if wish.histogram:
        if training.budget is None:
            raise ParameterError(
                f"evaluate and probabilities must be left out with the algorithm "
                f"{training.algorithm.name!r}, which is not private: a histogram would be the only "
                "thing that is. Use loss = 'logistic' for probabilities, and dpadmm evaluate."
            )
        refuse_apart(training)
        terms = EvaluationTerms.of_run(parameters)
        if wish.split.holdout:
            _refuse_both_parts(training)
        else:
            trained, counted = shared_budgets(training)
            training = planned(replace(parameters, epsilon=trained))
            terms = replace(terms, epsilon=counted)
    whole = WholePlan(training, wish, classes, dict(rows), terms)
    whole.expected()
    return whole


def refuse_apart(training: Plan) -> None:
    """Refuse to count the labels of a run that protects them apart from rows."""
    if training.algorithm.label_noise is not None:
        raise ParameterError(
            "an evaluation on private rows, and probabilities, must be left out with the "
            f"algorithm {training.algorithm.name!r}: a histogram counts true labels, which it "
            "protects apart from rows. Evaluate on public rows."
        )


def adds_up(training: Plan) -> bool:
    """Whether an evaluation of other rows adds to what the training costs a person."""
    budget = training.budget
    events = chain(*announced(training))
    return budget is not None and parts_add_up(events, budget.rows_per_person)


def _refuse_both_parts(training: Plan) -> None:
    """Refuse a budget that a person with rows in both parts would exceed."""
    if adds_up(training):
        assert training.budget is not None
        raise ParameterError(
            "rows_per_person must be 1 to evaluate on rows kept out of training with the algorithm "
            f"{training.algorithm.name!r}; got {training.budget.rows_per_person}: its releases are "
            "not Gaussian, so that what both parts cost a person with rows in each adds up, beyond "
            "epsilon. Use an algorithm with Gaussian releases, such as 'dp-gd', or train without "
            "evaluate and probabilities."
        )


@dataclass(frozen=True)
class EvaluationTerms:
    """What an evaluation costs and whose noise protects it, all from public facts.

    Attributes
    ----------
    epsilon, delta
        What each party may spend on it: a number, or one for each party by its name.
    rows_per_person
        How many rows are replaced at once.
    noise, colluders
        As the options of ``dp-gd`` have them.
    topology
        The graph over which sums travel; everybody is heard on any.
    """

    epsilon: float | Mapping[Any, float]
    delta: float | Mapping[Any, float]
    rows_per_person: int = 1
    noise: str = "own"
    colluders: int | None = None
    topology: Any = AUTO

    @classmethod
    def of_run(cls, parameters: TrainingParameters) -> EvaluationTerms:
        """Those of a run: its budget, and shared noise where its training shares it."""
        options = parameters.algorithm_options
        shared = options.get("noise") == "shared"
        return cls(
            parameters.epsilon,
            parameters.delta,
            parameters.rows_per_person,
            "shared" if shared else "own",
            options.get("colluders") if shared else None,
        )

    def asked(
        self, algorithm: str, options: Mapping[str, Any], rounds: int = 1
    ) -> TrainingParameters:
        """What is asked of an algorithm that costs this."""
        return TrainingParameters(
            algorithm,
            epsilon=self.epsilon,
            delta=self.delta,
            rounds=rounds,
            rows_per_person=self.rows_per_person,
            algorithm_options=dict(options),
            topology=self.topology,
        )


def plan_evaluation(
    weights: Array, classes: int, rows: Mapping[str, int], terms: EvaluationTerms
) -> Plan:
    """Check every parameter against the public facts and fix the release; no row is read.

    Parameters
    ----------
    weights
        Of the released model, ``(outputs, features)``, for rows as they are laid out.
    classes
        How many there are.
    rows
        Public number of rows that each party evaluates, in the order of the parties.
    terms
        What it may cost.
    """
    options = {
        "weights": tuple(tuple(map(float, row)) for row in weights),
        "classes": classes,
        "rows": sum(rows.values()),
        "noise": terms.noise,
        "colluders": terms.colluders,
    }
    site, settings = sums_of_all(terms.asked(HISTOGRAM, options), rows)
    release = HistogramRelease.configure(site, settings)
    return Plan(release, replace(site, features=release.grid.cells), settings)


def evaluation_id(run_id: str, planned: Plan) -> str:
    """The name of an evaluation in the ledgers: the run's, and a word for its terms.

    The same evaluation of the same model has the same name: asked again, it costs nothing and says
    the same.
    """
    release = planned.algorithm
    assert isinstance(release, HistogramRelease)
    budget = planned.budget
    assert budget is not None
    spent = (budget.epsilon.tolist(), budget.delta.tolist(), budget.rows_per_person)
    about = (planned.site.names, planned.site.rows.tolist(), release.grid, release.shared)
    digest = hashlib.sha256(release.weights.tobytes())
    digest.update(repr((*spent, *about)).encode())
    return f"{run_id}{_EVALUATION}{digest.hexdigest()[:16]}"


def is_evaluation(name: str, run_id: str) -> bool:
    """Whether a name in a ledger is that of an evaluation under a run."""
    return re.fullmatch(re.escape(f"{run_id}{_EVALUATION}") + "[0-9a-f]{16}", name) is not None


def evaluation_noise(noise: NoiseSource, key: int | None) -> NoiseSource:
    """The source of an evaluation's noise; a simulation does not repeat the training's noise."""
    if key is None:
        return noise
    digest = hashlib.sha256(f"{HISTOGRAM} {key}".encode("ascii")).digest()
    return SimulatedNoise(int.from_bytes(digest[:8], "little"))


def histogram_of(planned: Plan, outcome: Outcome) -> NoisyHistogram:
    """What an evaluation released."""
    release = planned.algorithm
    assert isinstance(release, HistogramRelease)
    return release.histogram(outcome.last[0], planned.site)


def shared_budgets(planned: Plan) -> tuple[dict[str, float], dict[str, float]]:
    r"""Epsilon of each party for the training and for a histogram of the same rows.

    .. math:: \mu_{\text{train}} = \sqrt{0.9}\,\mu,\qquad \mu_{\text{histogram}} = \sqrt{0.1}\,\mu,

    at the party's delta: the squares of Gaussian releases add up to :math:`\mu^2`, the run's. An
    algorithm with other releases is refused.

    Parameters
    ----------
    planned
        The run without probabilities: what it would spend on the training alone.
    """
    budget = planned.budget
    assert budget is not None
    singles = chain(*map(single_events, chain(*announced(planned))))
    if any(gaussian_mu_squared(part, 1) is None for part, _ in singles):
        raise ParameterError(
            f"probabilities must be fitted to rows kept out of training with the algorithm "
            f"{planned.algorithm.name!r}, whose releases are not Gaussian and share no budget "
            "with a histogram of the same rows; got no holdout. Add one, such as 0.2."
        )
    delta = budget.ideal_delta
    mu = gaussian_mu(budget.epsilon, delta)

    def part_of(share: float) -> dict[str, float]:
        epsilons = np.atleast_1d(gaussian_epsilon(np.sqrt(share) * mu, delta))
        return dict(zip(planned.site.names, map(float, epsilons), strict=True))

    return part_of(1 - HISTOGRAM_SHARE), part_of(HISTOGRAM_SHARE)


#: From the number of rows of a ledger to those that a run reads; None for all.
Part = Callable[[int], RowRange | None]


# Runs that this process has opened, by the first entries of their ledgers.
_BEGUN: Final[set[tuple[str, str]]] = set()


def _all_rows(rows: int) -> RowRange | None:
    return None


def check_evaluation(
    whole: WholePlan,
    accounts: Mapping[str, Account],
    run_id: str,
    *,
    rounds: range | None = None,
) -> None:
    """Refuse a run whose evaluation would not fit after it; nothing is charged, no row is read.

    What the training will have spent counts, where both read the same rows. A training that was
    fully charged before is not refused: its model is paid for, and may have been evaluated.

    Parameters
    ----------
    whole
        The run, and what is asked for beside it.
    accounts
        What the ledgers of parties say now, by their names.
    run_id
        The name of the run in them.
    rounds
        Which rounds of the training are charged under that name; all unless given.
    """
    expected, split = whole.expected(), whole.wish.split
    if expected is None:
        return
    asked = range(whole.training.rounds) if rounds is None else rounds
    names, left = whole.training.site.names, {}
    for name, training in zip(names, announced(whole.training), strict=True):
        if name in accounts:
            _check_room(accounts[name], whole.rows[name], evaluation_id(run_id, expected))
            known = accounts[name].runs.get(run_id)
            made = {} if known is None else known.events
            left[name] = [training[t] for t in asked if t not in made]
    if not any(left.values()):
        return
    for name, counting in zip(names, announced(expected), strict=True):
        if name in accounts:
            account = accounts[name]
            apart = split.holdout and account.keeps_parts
            ahead = [*(() if apart else left[name]), *counting]
            account.require(ahead, split.held_out(account.dataset.rows))


@dataclass(frozen=True)
class OtherEvaluations:
    """Evaluations that the parties' ledgers list under a run, beside its own.

    Attributes
    ----------
    names
        Of the evaluations, in any of the ledgers.
    trained_on, kept_out
        What each party was charged for those that read rows of the training, and rows kept out of
        it; one that read both is among both.
    """

    names: tuple[str, ...] = ()
    trained_on: tuple[tuple[Event, ...], ...] = ()
    kept_out: tuple[tuple[Event, ...], ...] = ()

    @classmethod
    def of(
        cls,
        accounts: Sequence[Account],
        run_ids: Collection[str],
        split: Split,
        *,
        own: str = "",
    ) -> OtherEvaluations:
        """Find them.

        Parameters
        ----------
        accounts
            What the ledger of each party says.
        run_ids
            The names of the run: more than one where nodes went on without another.
        split
            Which rows it kept out.
        own
            The name of its own evaluation, which is not among them.
        """
        names: dict[str, None] = {}
        found: tuple[list[tuple[Event, ...]], ...] = ([], [])
        for account in accounts:
            rows = account.dataset.rows
            parts = (split.train(rows) or RowRange(0, rows), split.held_out(rows))
            others = {
                name: record
                for name, record in account.runs.items()
                if record.events
                and name != own
                and any(is_evaluation(name, run_id) for run_id in run_ids)
            }
            names |= dict.fromkeys(others)
            for part, charged_to in zip(parts, found, strict=True):
                read = (each for each in others.values() if part and part.meets(each.rows))
                charged_to.append(tuple(chain(*(each.events.values() for each in read))))
        return cls(tuple(names), *map(tuple, found))

    @property
    def caveats(self) -> tuple[str, ...]:
        """The caveats of a statement that counts them."""
        if not self.names:
            return ()
        count = len(self.names)
        some = "1 other evaluation" if count == 1 else f"{count} other evaluations"
        return (
            f"Evaluated before: the ledgers have {some} under this run, counted here: the "
            "guarantee may be more than what the run was given.",
        )


def _check_room(account: Account, rows: int, name: str) -> None:
    """Refuse a ledger of other rows, and a run whose evaluation would have too long a name."""
    about = account.dataset
    if about.rows != rows:
        # The rows that are trained on may be as many by chance.
        raise ParameterError(
            f"the ledger of party {about.owner} must be about its {rows} rows; it is about "
            f"{about.rows}."
        )
    if len(name) > LONGEST_NAME:
        raise ParameterError(
            f"run_id must leave room for the name of its evaluation, {LONGEST_NAME} characters in "
            f"all; that would have {len(name)}: shorten it."
        )


def refuse_repeated(
    whole: WholePlan, ledgers: Mapping[str, str | Path] | None, run_id: str, *, resume: bool
) -> None:
    """Refuse a run that would repeat messages stored in ledgers, unless the caller asked for that.

    This reads no rows, so it cannot know whether they are those of the earlier run. What a crash
    cut short goes on in another process; what is complete, or was begun in this process, is taken
    for another run under the same name, such as the next fold of a cross-validation.

    Parameters
    ----------
    whole
        The run, and what is asked for beside it.
    ledgers
        The file of each party, by its name, with the run open in this process.
    run_id
        The name of the run in them.
    resume
        Take what is there.
    """
    if not ledgers:
        return
    complete, begun = True, False
    for path in ledgers.values():
        with SQLiteLedger(Path(path), read_only=True) as ledger:
            this, account = (ledger.first, run_id), ledger.account
        complete = complete and _is_complete(whole, account, run_id)
        begun = begun or (this in _BEGUN and bool(account.runs[run_id].events))
        _BEGUN.add(this)
    if resume or not (begun or complete):
        return
    why = "the ledgers have all of it" if complete else "a fit of this process has begun it"
    raise ParameterError(
        f"run_id must be one of a new run; got {run_id!r}, and {why}: the messages there would be "
        "taken, whatever the rows are now. Give every fit a run_id of its own, which spends anew; "
        "cross_val_score and GridSearchCV cannot, and belong on public rows. To have the same run "
        "on the same rows, at no further cost, give resume=True."
    )


def _is_complete(whole: WholePlan, account: Account, run_id: str) -> bool:
    """Whether a ledger has every message of a run, and of an evaluation where one is asked for."""
    if len(account.runs[run_id].commits) < whole.training.rounds:
        return False
    if not whole.wish.histogram:
        return True
    return any(
        is_evaluation(name, run_id) and record.commits for name, record in account.runs.items()
    )


def ledger_accounts(ledgers: Mapping[str, str | Path] | None) -> dict[str, Account]:
    """What the ledgers of parties say now, by their names."""
    accounts = {}
    for name, path in (ledgers or {}).items():
        with SQLiteLedger(Path(path), read_only=True) as ledger:
            accounts[str(name)] = ledger.account
    return accounts


def open_runs(
    planned: Plan,
    ledgers: Sequence[SQLiteLedger],
    run_id: str,
    noise: NoiseSource,
    *,
    rounds: range | None = None,
    part: Part = _all_rows,
    before: Callable[[], None] | None = None,
    preparation: str | None = None,
) -> list[LedgerRun]:
    """Open a run in the ledger of every party computed here, for :func:`train`.

    A run that does not fit as a whole is refused at once, with nothing charged anywhere. After a
    crash the same call continues the run: its rounds are not charged, nor drawn, again.

    Parameters
    ----------
    planned
        The run.
    ledgers
        One per party, in their order; each must be about that party's rows.
    run_id
        The name under which the run can be continued.
    noise
        Where its noise will come from: draws that can be repeated protect nobody.
    rounds
        Which rounds of the plan will be charged; all unless given.
    part
        Which of a ledger's rows it reads, from how many there are.
    before
        Called once nothing stands in the way of a run that was not charged anything yet; nothing
        is written where it raises.
    preparation
        A word for how rows are prepared, where neither the plan nor a schema says it.
    """
    mark, people = check_runs(
        planned, ledgers, run_id, noise, rounds=rounds, part=part, preparation=preparation
    )
    if before is not None and not any(has_begun(each.account, run_id) for each in ledgers):
        before()
    opened: list[LedgerRun] = []
    try:
        for ledger in ledgers:
            rows = part(ledger.dataset.rows)
            opened.append(
                ledger.open_run(
                    run_id, mark, rows_per_person=people, rows=rows, preparation=preparation
                )
            )
    except BaseException:
        for each in opened:
            each.close()
        raise
    return opened


def has_begun(account: Account, run_id: str) -> bool:
    """Whether a round of a run was ever charged."""
    known = account.runs.get(run_id)
    return known is not None and bool(known.events)


def check_runs(
    planned: Plan,
    ledgers: Sequence[SQLiteLedger],
    run_id: str,
    noise: NoiseSource,
    *,
    rounds: range | None = None,
    part: Part = _all_rows,
    preparation: str | None = None,
) -> tuple[str, int]:
    """Refuse what :func:`open_runs` would, and write nothing.

    Returns
    -------
    str, int
        The fingerprint of the run and the rows per person it was calibrated to.
    """
    site = planned.site
    if noise.simulated:
        raise ParameterError(
            f"noise must not be simulated in a run that is charged to a ledger; got "
            f"{noise.description!r}. Leave random_state out."
        )
    check_labels_once(planned, "charged to a ledger")
    if planned.algorithm.summation is not None:
        require_exact_shares(noise)
    if site.runs != 1:
        raise ParameterError(f"runs must be 1 in a run charged to a ledger; got {site.runs}.")
    if len(ledgers) != len(site.index):
        raise ParameterError(
            f"ledgers must be one per party ({len(site.index)}); got {len(ledgers)}."
        )
    for name, rows, ledger in zip(site.names, site.rows.tolist(), ledgers, strict=True):
        first, stop = part(ledger.dataset.rows) or (0, ledger.dataset.rows)
        if stop - first != rows:
            raise ParameterError(
                f"the ledger of party {name} must be about its {rows} rows; {ledger.path} is about "
                f"{stop - first}."
            )
    for events, ledger in zip(announced(planned), ledgers, strict=True):
        ledger.check_run(events, run_id, rounds=rounds, rows=part(ledger.dataset.rows))
    mark = fingerprint(planned.algorithm, site, planned.rounds)
    people = 1 if planned.budget is None else planned.budget.rows_per_person
    for ledger in ledgers:
        rows_read = part(ledger.dataset.rows)
        ledger.check_parameters(
            run_id, mark, rows_per_person=people, rows=rows_read, preparation=preparation
        )
    return mark, people


@contextmanager
def charged(
    planned: Plan,
    ledgers: Mapping[str, str | Path] | None,
    run_id: str,
    noise: NoiseSource,
    *,
    schema: Schema | None = None,
    part: Part = _all_rows,
    before: Callable[[], None] | None = None,
    preparation: str | None = None,
) -> Iterator[Sequence[Ledger] | None]:
    """Open every party's ledger for a run; None without ledgers.

    Whatever does not fit is refused here, before a row is read and with nothing charged: a ledger
    that belongs to somebody else or to other data, a run over budget, noise that can be repeated.

    Parameters
    ----------
    ledgers
        The file of each party, by its name. A ledger's owner must be that party.
    schema
        How the rows were encoded, if by one (:func:`check_owner`).
    planned, run_id, noise, part, before, preparation
        As of :func:`open_runs`; without ledgers nothing is called.
    """
    if not ledgers:
        yield None
        return
    names = planned.site.names
    given = {str(name): Path(path) for name, path in ledgers.items()}
    if set(given) != set(names):
        raise ParameterError(
            f"ledgers must be given for every party ({', '.join(names)}); got "
            f"{', '.join(sorted(given))}."
        )
    with ExitStack() as stack:
        opened = [stack.enter_context(SQLiteLedger(given[name])) for name in names]
        for name, ledger in zip(names, opened, strict=True):
            check_owner(name, ledger, schema)
        runs = open_runs(
            planned, opened, run_id, noise, part=part, before=before, preparation=preparation
        )
        for each in runs:
            stack.enter_context(each)
        yield runs


def check_owner(name: str, ledger: SQLiteLedger, schema: Schema | None) -> None:
    """Refuse a ledger that belongs to somebody else or is about rows of another schema.

    A schema is no other where studies only narrowed bounds
    (:attr:`~dpadmm.data.schema.Schema.hashes`).
    """
    about = ledger.dataset
    if about.owner != name:
        raise LedgerError(
            f"the ledger of party {name} must have it as owner; {ledger.path} has {about.owner!r}."
        )
    if schema is None or about.schema_hash in (None, *schema.hashes):
        return
    raise LedgerError(
        f"the ledger of party {name} must be about rows of this schema ({schema.sha256}), or of "
        f"one whose bounds it narrows; {ledger.path} is about {about.schema_hash}. Name the schema "
        "of the ledger, or the one that dpadmm describe made of it."
    )
