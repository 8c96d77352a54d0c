"""Runs that are charged to the ledgers of their parties."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Final

from dpadmm.errors import LedgerError, ParameterError
from dpadmm.ledger.balance import Account, RowRange
from dpadmm.ledger.base import Ledger
from dpadmm.ledger.sqlite import LONGEST_NAME, LedgerRun, SQLiteLedger
from dpadmm.privacy.events import Event
from dpadmm.privacy.mechanisms import require_exact_shares
from dpadmm.privacy.noise import NoiseSource
from dpadmm.run.engine import fingerprint
from dpadmm.run.evaluate import Split, WholePlan, evaluation_id, is_evaluation
from dpadmm.run.plan import Plan, announced
from dpadmm.run.train import _check_continued

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
    charged before, all of it, is not refused: its model is paid for, and may have been evaluated.

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
    """What the ledgers of parties have under a run beside its training and its own evaluation.

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
        """What a statement that counts them says of them."""
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
    """Refuse a run whose messages would come from ledgers, unless that was asked for.

    Nobody looks at rows here: whether they are those of a run is not known. What a crash cut short
    goes on in another process; what is complete, or was begun in this process, is taken for
    another run under the same name, such as the next fold of a cross-validation.

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
    _check_continued(planned, "charged to a ledger")
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
    schema_sha256: str | None = None,
    part: Part = _all_rows,
    before: Callable[[], None] | None = None,
    preparation: str | None = None,
) -> Iterator[Sequence[Ledger] | None]:
    """Open every party's ledger for a run; None without ledgers.

    Whatever does not fit is refused here, before a row is read and with nothing charged: a ledger
    that belongs to somebody else or to other data, a run over budget, noise that can be repeated.

    Parameters
    ----------
    planned, noise
        The run.
    ledgers
        The file of each party, by its name. A ledger's owner must be that party.
    run_id
        The name under which the run can be continued; the same name never spends twice.
    schema_sha256
        How the rows were encoded, if by a schema; a ledger that names another one is refused.
    part
        Which of a ledger's rows it reads, from how many there are.
    before
        As of :func:`open_runs`; not called without ledgers.
    preparation
        A word for how rows are prepared, where neither the plan nor a schema says it.
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
            check_owner(name, ledger, schema_sha256)
        runs = open_runs(
            planned, opened, run_id, noise, part=part, before=before, preparation=preparation
        )
        for each in runs:
            stack.enter_context(each)
        yield runs


def check_owner(name: str, ledger: SQLiteLedger, schema_sha256: str | None) -> None:
    """Refuse a ledger that belongs to somebody else or is about rows of another schema."""
    about = ledger.dataset
    if about.owner != name:
        raise LedgerError(
            f"the ledger of party {name} must have it as owner; {ledger.path} has {about.owner!r}."
        )
    if None not in (about.schema_hash, schema_sha256) and about.schema_hash != schema_sha256:
        raise LedgerError(
            f"the ledger of party {name} must be about rows of this schema ({schema_sha256}); "
            f"{ledger.path} is about {about.schema_hash}."
        )


def ledger_checks(ledgers: Mapping[str, str | Path] | None) -> dict[str, dict[str, Any]]:
    """Work every ledger out again: its account, or what is wrong with it."""
    checks: dict[str, dict[str, Any]] = {}
    for name, path in (ledgers or {}).items():
        try:
            with SQLiteLedger(Path(path), read_only=True) as ledger:
                checks[str(name)] = _check(ledger)
        except LedgerError as error:
            checks[str(name)] = {"account": None, "error": str(error)}
    return checks


def _check(ledger: SQLiteLedger) -> dict[str, Any]:
    """Work an open ledger out again."""
    try:
        account = ledger.verify().to_dict()
    except LedgerError as error:
        return {"account": None, "error": str(error)}
    # When runs were opened, with the time a record ends, would tell how long they took.
    account["runs"] = [
        {key: value for key, value in run.items() if key != "opened"} for run in account["runs"]
    ]
    return {"account": account, "error": None}


def ledger_facts(ledgers: Mapping[str, str | Path] | None) -> dict[str, dict[str, Any]]:
    """What a record keeps of every ledger: its words (policy, rule, spent, left) and its check.

    Opening a ledger reads it whole, so each is opened once for both.
    """
    words: dict[str, Any] = {}
    checks: dict[str, Any] = {}
    for name, path in (ledgers or {}).items():
        with SQLiteLedger(Path(path), read_only=True) as ledger:
            words[str(name)] = ledger.statement()
            checks[str(name)] = _check(ledger)
    return {"ledgers": words, "ledger_checks": checks}
