"""Runs that are charged to the ledgers of their parties."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from dpadmm.errors import LedgerError, ParameterError
from dpadmm.privacy.ledger import Ledger
from dpadmm.privacy.noise import NoiseSource
from dpadmm.privacy.sqlite_ledger import SQLiteLedger
from dpadmm.training import Plan, open_runs

__all__ = ["charged", "check_owner", "ledger_checks", "ledger_statements"]


@contextmanager
def charged(
    planned: Plan,
    ledgers: Mapping[str, str | Path] | None,
    run_id: str,
    noise: NoiseSource,
    *,
    schema_sha256: str | None = None,
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
        runs = open_runs(planned, opened, run_id, noise)
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
                account = ledger.verify().to_dict()
                # When runs were opened, with the time a record ends, would tell how long they took.
                account["runs"] = [
                    {key: value for key, value in run.items() if key != "opened"}
                    for run in account["runs"]
                ]
                checks[str(name)] = {"account": account, "error": None}
        except LedgerError as error:
            checks[str(name)] = {"account": None, "error": str(error)}
    return checks


def ledger_statements(ledgers: Mapping[str, str | Path] | None) -> dict[str, str]:
    """What every ledger says now, in words: policy, rule, spent and left."""
    words = {}
    for name, path in (ledgers or {}).items():
        with SQLiteLedger(Path(path), read_only=True) as ledger:
            words[str(name)] = ledger.statement()
    return words
