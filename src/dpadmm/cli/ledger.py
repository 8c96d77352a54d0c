"""``dpadmm ledger``: the budget of a data set, over all runs ever made on it."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpadmm.cli.output import (
    JsonOption,
    command_group,
    console,
    emit,
    refusals,
    say,
    show_table,
    takes,
)
from dpadmm.plain import json_data
from dpadmm.privacy.figures import AtLeast, AtMost, Given

if TYPE_CHECKING:
    from dpadmm.ledger.balance import Account
    from dpadmm.ledger.sqlite import SQLiteLedger

ledger_app = command_group(
    "ledger",
    "The privacy budget of a data set: create its ledger, amend its policy, see it, check it, "
    "export it, back it up.\n\nExample: `dpadmm ledger show north.ledger`",
)

ColludersOption = Annotated[
    int | None, typer.Option(help="Shared noise must hold against at least this many colluders.")
]
EpsilonAloneOption = Annotated[
    float | None,
    typer.Option(help="What shared noise may ever spend if all other parties collude."),
]
PathArgument = Annotated[Path, typer.Argument(help="The ledger's file.")]
# Looking does not wait long for a process that writes.
_TIMEOUT = 10.0


def _open(path: Path) -> SQLiteLedger:
    """Open a ledger to look at it; after a crash only a writer can clear up."""
    from dpadmm.ledger.sqlite import SQLiteLedger

    return SQLiteLedger(path, timeout=_TIMEOUT, read_only=not os.access(path, os.W_OK))


@dataclass(frozen=True, kw_only=True)
class LedgerOptions:
    """What ``dpadmm ledger init`` is asked."""

    path: PathArgument
    dataset: Annotated[str, typer.Option(help="Name of the data set.")]
    owner: Annotated[str, typer.Option(help="Name of the party that holds it.")]
    rows: Annotated[int, typer.Option(help="Number of its rows.")]
    epsilon: Annotated[float, typer.Option(help="What may ever be spent on it, in all.")]
    delta: Annotated[float, typer.Option(help="The delta that goes with epsilon.")]
    rows_per_person: Annotated[int, typer.Option(help="The most rows of one person.")] = 1
    filter_: Annotated[
        str,
        typer.Option(
            "--filter",
            help="gaussian (for algorithms with Gaussian output noise) or renyi (for all).",
        ),
    ] = "gaussian"
    order: Annotated[
        float | None, typer.Option(help="Order of the renyi filter, if not chosen for you.")
    ] = None
    schema_hash: Annotated[
        str | None, typer.Option(help="Hash of the schema that encodes the rows.")
    ] = None
    colluders: ColludersOption = None
    epsilon_alone: EpsilonAloneOption = None
    as_json: JsonOption = False


@ledger_app.command()
@takes(LedgerOptions)
def init(options: LedgerOptions) -> None:
    """Create the ledger of a data set, with nothing spent.

    Example: `dpadmm ledger init north.ledger --dataset patients --owner north --rows 6000
    --epsilon 1 --delta 1e-6`

    It never replaces a file. `dpadmm ledger show` prints the whole statement.
    """
    from dpadmm.ledger.base import ChargedData
    from dpadmm.ledger.filters import Policy
    from dpadmm.ledger.sqlite import SQLiteLedger

    with refusals("ledger init", options.as_json):
        policy = Policy(
            options.epsilon,
            options.delta,
            options.rows_per_person,
            options.filter_,
            options.order,
            options.colluders,
            options.epsilon_alone,
        )
        data = ChargedData(options.dataset, options.owner, options.rows, options.schema_hash)
        with SQLiteLedger.create(options.path, data, policy) as made:
            if options.as_json:
                emit("ledger init", made.account.to_dict())
            else:
                _show_new(options.path, made.account)


def _show_new(path: Path, account: Account) -> None:
    """Whose rows, how much, against whom; the rest is in the statement that ``show`` prints."""
    say(f"Created {path}.")
    told = dict(account.lines())
    for heading in ("Data set", "Guarantee", "Adversary", "Noise may be shared if"):
        if heading in told:
            say(told[heading], heading)
    say(f"Nothing is spent. dpadmm ledger show {path} prints the whole statement.")


@dataclass(frozen=True, kw_only=True)
class AmendOptions:
    """What ``dpadmm ledger amend`` is asked."""

    path: PathArgument
    epsilon: Annotated[
        float | None, typer.Option(help="What may ever be spent, in all, what was spent included.")
    ] = None
    delta: Annotated[float | None, typer.Option(help="The delta that goes with epsilon.")] = None
    colluders: ColludersOption = None
    epsilon_alone: EpsilonAloneOption = None
    loosen: Annotated[
        bool,
        typer.Option(
            "--loosen",
            help="Allow what was not allowed: a larger epsilon or delta, noise that holds against "
            "fewer colluders, a larger epsilon if all others collude.",
        ),
    ] = False
    as_json: JsonOption = False


@ledger_app.command()
@takes(AmendOptions)
def amend(options: AmendOptions) -> None:
    """Change the policy of a ledger by a new entry. Everything spent so far stays counted.

    Example: `dpadmm ledger amend north.ledger --colluders 3 --epsilon-alone 8 --loosen`

    What you do not give stays as it is. Decide for public reasons: a policy that was chosen from
    what was released is not covered. A ledger made without --colluders and --epsilon-alone holds
    its epsilon against all others together, so adding one of them loosens it.
    """
    from dpadmm.errors import ParameterError
    from dpadmm.ledger.sqlite import SQLiteLedger

    with refusals("ledger amend", options.as_json):
        given = (options.epsilon, options.delta, options.colluders, options.epsilon_alone)
        if all(value is None for value in given):
            raise ParameterError(
                "an amendment must change something: give --epsilon, --delta, --colluders or "
                "--epsilon-alone."
            )
        with SQLiteLedger(options.path, timeout=_TIMEOUT) as ledger:
            before = ledger.head
            ledger.amend(
                epsilon=options.epsilon,
                delta=options.delta,
                colluders=options.colluders,
                epsilon_alone=options.epsilon_alone,
                loosen=options.loosen,
            )
            if options.as_json:
                emit("ledger amend", ledger.account.to_dict())
                return
            done = "has this policy already" if ledger.head == before else "is amended"
            say(f"{options.path} {done}.")
            say(ledger.statement())
            say(f"Head: {ledger.head}")


@ledger_app.command()
def show(path: PathArgument, as_json: JsonOption = False) -> None:
    """Show the policy, what was spent, what is left, and every run.

    Example: `dpadmm ledger show north.ledger`
    """
    with refusals("ledger show", as_json), _open(path) as ledger:
        account = ledger.account
        if as_json:
            emit("ledger show", account.to_dict())
            return
        say(ledger.statement())
        say(f"Head: {ledger.head}")
        _show_runs(account)


def _show_runs(account: Account) -> None:
    limit = account.filter.limit
    runs: list[dict[str, Any]] = account.to_dict()["runs"]
    show_table(
        f"Runs (share of the budget, in {account.filter.unit})",
        ("run", "opened (UTC)", "reserved", "sent or ready", "share", "more like its last"),
        [
            (
                run["run"],
                run["opened"].replace("T", " ").partition(".")[0],
                run["reserved"],
                run["committed"],
                f"{AtMost(100 * run['spent'] / limit):4}%",
                "" if run["more_like_last"] is None else run["more_like_last"],
            )
            for run in runs
        ],
    )
    console.print(
        f"{AtMost(100 * float(account.spent) / limit):4}% spent "
        f"(epsilon = {AtMost(account.spent_epsilon)}), "
        f"{AtLeast(100 * float(account.left) / limit):4}% left "
        f"(epsilon up to {AtLeast(account.fitting_epsilon)})",
        highlight=False,
    )


@ledger_app.command()
def verify(
    path: PathArgument,
    head: Annotated[
        str | None,
        typer.Option(help="A head noted earlier (NUMBER:HASH), which must still be there."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Recompute every hash, message and cost; fail at the first entry that is wrong.

    Example: `dpadmm ledger verify north.ledger`
    """
    with refusals("ledger verify", as_json), _open(path) as ledger:
        account = ledger.verify(head)
        if as_json:
            emit("ledger verify", {"valid": True, **account.to_dict()})
            return
        assert account.head is not None
        say(
            f"{path} is consistent: {account.head.number + 1} entries, epsilon = "
            f"{AtMost(account.spent_epsilon)} of {Given(account.policy.epsilon)} spent at delta = "
            f"{Given(account.policy.delta)}."
        )
        say(f"Head: {ledger.head}")
        if head is None:
            say(
                "An older copy put in its place would pass, too: note the head elsewhere and give "
                "it with --head."
            )


@dataclass(frozen=True, kw_only=True)
class ExportOptions:
    """What ``dpadmm ledger export`` is asked."""

    path: PathArgument
    messages: Annotated[
        bool,
        typer.Option("--messages", help="With the bytes of the messages, as hexadecimal digits."),
    ] = False
    as_json: Annotated[
        bool,
        typer.Option(
            "--json", help="For an audit: after the entries a line with the head and what is spent."
        ),
    ] = False


@ledger_app.command()
@takes(ExportOptions)
def export(options: ExportOptions) -> None:
    """Verify a ledger and print every entry as a line of JSON: enough to recompute the spending.

    Example: `dpadmm ledger export north.ledger --json > north.jsonl`

    Nothing is printed of a ledger that is wrong.
    """
    with refusals("ledger export", False), _open(options.path) as ledger:
        account = ledger.verify()
        assert account.head is not None
        for row in ledger.export(messages=options.messages):
            # What was added since it was verified is for the next export.
            if row["number"] <= account.head.number:
                sys.stdout.write(json.dumps(row) + "\n")
        if options.as_json:
            head = f"{account.head.number}:{account.head.hash}"
            told = json_data({"head": head, **account.to_dict()})
            sys.stdout.write(json.dumps({"kind": "verified", **told}) + "\n")


@ledger_app.command()
def head(path: PathArgument, as_json: JsonOption = False) -> None:
    """Print number and hash of the last entry, to note down elsewhere.

    Example: `dpadmm ledger head north.ledger`

    `dpadmm ledger verify --head` tells by it whether a ledger was put back to an older copy.
    """
    with refusals("ledger head", as_json), _open(path) as ledger:
        found = ledger.head
    if as_json:
        number, _, digest = found.partition(":")
        emit("ledger head", {"head": found, "number": int(number), "sha256": digest})
        return
    say(found)


@ledger_app.command()
def backup(
    path: PathArgument,
    place: Annotated[Path, typer.Argument(help="A new file, or a folder for one of that name.")],
    as_json: JsonOption = False,
) -> None:
    """Copy a ledger to a new file, also while a node writes, and verify the copy.

    Example: `dpadmm ledger backup north.ledger /media/backup`

    It never overwrites a file. Restore the newest copy only: an older one has forgotten spending.
    """
    with refusals("ledger backup", as_json), _open(path) as ledger:
        made = place / path.name if place.is_dir() else place
        found = ledger.backup(made)
    if as_json:
        emit("ledger backup", {"ledger": str(path), "backup": str(made), "head": found})
        return
    say(f"Made and verified {made}.")
    say(f"Head: {found}")
