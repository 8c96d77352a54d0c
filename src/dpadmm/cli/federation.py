"""``dpadmm federation``: one public file, a kit for every organisation, and what changes later."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpadmm.cli.output import (
    JsonOption,
    command_group,
    console,
    emit,
    owner_at_terminal,
    refusals,
    say,
    show_table,
    takes,
    warn,
)
from dpadmm.privacy.figures import pair

if TYPE_CHECKING:
    from dpadmm.federation.joining import Choices, Joined, Kit
    from dpadmm.federation.membership import PublicFederation, Table
    from dpadmm.federation.pins import PinTable

federation_app = command_group(
    "federation",
    "A federation from one public file: kits, joining, pins, and members that come, leave or "
    "change their certificates.\n\nExample: `dpadmm federation init federation.toml`",
)

FileArgument = Annotated[Path, typer.Argument(help="The public file of the federation.")]
NameArgument = Annotated[str, typer.Argument(help="The organisation.")]
OutputOption = Annotated[
    Path | None, typer.Option(help="Where the kits go. [default: kits-REVISION beside the file]")
]
FoldersOption = Annotated[
    bool, typer.Option("--folders", help="Make folders instead of zip files.")
]
FolderOption = Annotated[Path, typer.Option(help="The node's folder.")]
RunIdOption = Annotated[
    str | None, typer.Option(help="Name of the next run. [default: its number raised by one]")
]
HeardOption = Annotated[
    str | None, typer.Option(help="The words that other members read: pin all certificates.")
]
RevokeOption = Annotated[
    bool, typer.Option("--revoke", help="Put the old certificate on the list of revoked ones.")
]


@contextmanager
def _warned() -> Iterator[None]:
    """Say each warning about a run's budget or course once, however often it is planned."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    for sentence in dict.fromkeys(str(each.message) for each in caught):
        warn(sentence)


@federation_app.command()
def init(
    file: FileArgument,
    output: OutputOption = None,
    folders: FoldersOption = False,
    as_json: JsonOption = False,
) -> None:
    """Make a kit for every organisation, from one public file and everybody's certificates.

    Example: `dpadmm federation init federation.toml`

    Nothing in a kit is secret, and the same files make the same bytes. It writes all kits or none.
    """
    with refusals("federation init", as_json), _warned():
        from dpadmm.federation.membership import load_federation

        facts = _make_kits(load_federation(file), file, output, folders=folders)
        if as_json:
            emit("federation init", facts)
        else:
            _say_kits(facts)


def _make_kits(
    federation: PublicFederation, file: Path, output: Path | None, *, folders: bool = False
) -> dict[str, object]:
    from dpadmm.federation.kit import kits_of, write_kits

    kits = kits_of(federation)
    place = output or file.with_name(f"kits-{federation.revision}")
    made = write_kits(kits, place, folders=folders)
    commands = {node.name: f"dpadmm federation join {node.name}.zip" for node in federation.nodes}
    return {
        "federation": federation.name,
        "revision": federation.revision,
        "kits": {name: str(kit) for name, kit in zip(kits, made, strict=True)},
        "commands": {
            name: f"{words}{'/' if folders else ''}".replace(".zip/", "")
            for name, words in commands.items()
        },
        "words": federation.pin_table().phrase,
    }


def _say_kits(facts: dict[str, object]) -> None:
    kits, commands = facts["kits"], facts["commands"]
    assert isinstance(kits, dict)
    assert isinstance(commands, dict)
    say(f"Revision {facts['revision']} of {facts['federation']}. Send each its kit:")
    for place in kits.values():
        say(f"  {place}")
    say("Each runs in its node's folder (the first time with --data FILE):")
    for command in commands.values():
        say(f"  {command}")
    say(f"All members must hear the same words: {facts['words']}")


@dataclass(frozen=True, kw_only=True)
class JoinOptions:
    """What ``dpadmm federation join`` is asked."""

    kit: Annotated[Path, typer.Argument(help="The kit: a zip file or a folder.")]
    data: Annotated[
        str | None, typer.Option(help="The file with this party's rows; kept from then on.")
    ] = None
    folder: FolderOption = Path()
    key: Annotated[
        Path | None, typer.Option(help="The node's key. [default: NAME.key in its folder]")
    ] = None
    dataset: Annotated[str, typer.Option(help="What the new ledger calls the rows.")] = "rows"
    epsilon: Annotated[
        float | None, typer.Option(help="What the new ledger ever allows. [default: as in the kit]")
    ] = None
    delta: Annotated[float | None, typer.Option(help="The delta that goes with it.")] = None
    most_epsilon: Annotated[
        float | None,
        typer.Option(help="The most that one run may spend. [default: as the first kit's run]"),
    ] = None
    heard: HeardOption = None
    as_json: JsonOption = False

    def choices(self) -> Choices:
        """What the owner decides."""
        from dpadmm.federation.joining import Choices

        return Choices(
            data=self.data,
            key=self.key,
            dataset=self.dataset,
            epsilon=self.epsilon,
            delta=self.delta,
            most_epsilon=self.most_epsilon,
            heard=self.heard,
        )


@federation_app.command()
@takes(JoinOptions)
def join(options: JoinOptions) -> None:
    """Complete a kit at its organisation: own rows, own ledger, own policy.

    Example: `dpadmm federation join north.zip --data patients.csv`

    It checks what a start would check, and changes nothing if something is wrong. Your choices are
    in own.toml, which is yours to edit; what the kit says is never edited. A later kit needs this
    command alone.
    """
    with refusals("federation join", options.as_json), _warned():
        from dpadmm.federation.joining import join as complete
        from dpadmm.federation.joining import read_kit

        joined = complete(read_kit(options.kit), options.folder, options.choices())
        if options.as_json:
            emit("federation join", _joined_facts(joined))
        else:
            _say_joined(joined)


def _joined_facts(joined: Joined) -> dict[str, object]:
    facts, setup = joined.kit.facts, joined.setup
    return {
        "federation": facts.federation,
        "revision": facts.revision,
        "node": facts.node,
        "run_id": setup.agreed.run.run_id,
        "run_sha256": setup.run.hex(),
        "ledger": None if joined.ledger is None else str(joined.ledger),
        "checks": [check.to_dict() for check in joined.checks],
        "unpinned": list(joined.unpinned),
        "words": joined.kit.table.phrase,
    }


def _say_joined(joined: Joined) -> None:
    facts, setup = joined.kit.facts, joined.setup
    say(f"Joined {facts.federation}, revision {facts.revision}, as {facts.node}.")
    if joined.ledger is not None:
        say(f"Made {joined.ledger.name}: dpadmm ledger show {joined.ledger.name} has its policy.")
    for check in joined.checks:
        say(f"{'ok' if check.ok else 'NOT OK':6} {check.check}: {check.words}")
    policy = setup.config.policy
    if policy.epsilon is not None and policy.delta is not None:
        limit = pair(policy.epsilon, policy.delta)
        shared = f", noise against {policy.colluders} colluders" if policy.colluders else ""
        say(f"own.toml allows a run {limit} at most, {', '.join(policy.algorithms or ())}{shared}.")
    if joined.unpinned:
        say(f"Not compared yet: {', '.join(joined.unpinned)}. Next: dpadmm federation pins")
    say(f"For run {setup.run.hex()[:12]}: dpadmm node --config node.toml")


@federation_app.command()
def pins(
    place: Annotated[
        Path, typer.Argument(help="A node's folder, a kit, or the federation's file.")
    ] = Path(),
    heard: HeardOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show whose certificate is whose, and words for all of them; pin what was compared.

    Example: `dpadmm federation pins`

    On one call every member reads the words of its own table. If all read the same, each says so
    here, or gives what it heard (`--heard`), and the certificates are pinned in own.toml. Your own
    row was checked against your key.
    """
    with refusals("federation pins", as_json), _warned():
        table, kit = _table_of(place)
        if heard is not None:
            table.check_heard(heard)
        elif kit is not None and not as_json:
            _show_pins(table)
        pinned = kit is not None and (heard is not None or (not as_json and _all_alike()))
        if pinned:
            from dpadmm.federation.joining import pin

            pin(place)
        if as_json:
            facts = {"federation": table.federation, "pins": dict(table.pins)}
            facts |= {"next_pins": dict(table.next_pins), "words": table.phrase}
            emit("federation pins", {**facts, "pinned": pinned})
        elif pinned:
            say(f"Pinned {len(table.pins)} certificates in {place / 'own.toml'}.")
        elif kit is None:
            _show_pins(table)


def _table_of(place: Path) -> tuple[PinTable, Kit | None]:
    """The table of a node's folder, a kit or a federation's file; the kit in use of a folder."""
    from dpadmm.federation.joining import current_kit, read_kit
    from dpadmm.federation.membership import load_federation

    if place.suffix == ".toml":
        return load_federation(place).pin_table(), None
    kit = current_kit(place) if place.is_dir() and not (place / "kit.toml").is_file() else None
    return (read_kit(place).table, None) if kit is None else (kit.table, kit)


def _show_pins(table: PinTable) -> None:
    rows = [(name, pin) for name, pin in table.pins.items()]
    rows += [(f"{name} (next)", pin) for name, pin in table.next_pins.items()]
    show_table(f"Certificates of {table.federation}", ("node", "sha256"), rows)
    say("The words of this table, for all members to read on one call:")
    words = table.phrase.split()
    for first in range(0, len(words), 5):
        say(f"  {first + 1:2}  {' '.join(words[first : first + 5])}")


def _all_alike() -> bool:
    """Ask the owner at a terminal whether all read the same words."""
    if owner_at_terminal() is None:
        return False
    console.print("Did every other member read exactly these words? \\[y/N]", end=" ")
    return sys.stdin.readline().strip().lower() in ("y", "yes")


@dataclass(frozen=True, kw_only=True)
class AddOptions:
    """What ``dpadmm federation add`` is asked."""

    file: FileArgument
    name: NameArgument
    address: Annotated[str, typer.Option(help="Where its node is reached, host:port.")]
    rows: Annotated[int, typer.Option(help="Its public number of rows.")]
    link: Annotated[
        list[str] | None,
        typer.Option(help="Whom it talks to, where topology lists links; may be repeated."),
    ] = None
    run_id: RunIdOption = None
    as_json: JsonOption = False


@federation_app.command()
@takes(AddOptions)
def add(options: AddOptions) -> None:
    """Add an organisation to the federation's file, for the next run.

    Example: `dpadmm federation add federation.toml west --address west.example.org:7447
    --rows 3000`

    The former file is kept beside it. The organisation makes a request, and the authority signs
    it. Then `dpadmm federation init` makes the kits, and every member joins its own.
    """
    with refusals("federation add", options.as_json), _warned():
        from dpadmm.federation.membership import add as add_node

        node = {"name": options.name, "address": options.address, "rows": options.rows}
        _change(
            "federation add",
            options.file,
            lambda _, table: add_node(table, node, options.link or ()),
            options.run_id,
            as_json=options.as_json,
        )


@federation_app.command()
def remove(
    file: FileArgument,
    name: NameArgument,
    revoke: RevokeOption = False,
    run_id: RunIdOption = None,
    as_json: JsonOption = False,
) -> None:
    """Take an organisation out of the federation's file, for the next run.

    Example: `dpadmm federation remove federation.toml west --revoke`

    The former file is kept beside it. New kits are made for all others.
    """
    with refusals("federation remove", as_json), _warned():
        from dpadmm.federation import membership

        def change(before: PublicFederation, table: Table) -> None:
            before.node(name)
            membership.remove(table, name)
            if revoke:
                membership.revoke(table, before.certificate_file(name))

        _change("federation remove", file, change, run_id, as_json=as_json)


@federation_app.command()
def rotate(
    file: FileArgument,
    name: NameArgument,
    finish: Annotated[
        bool, typer.Option("--finish", help="The next certificate alone counts from now on.")
    ] = False,
    revoke: RevokeOption = False,
    run_id: RunIdOption = None,
    as_json: JsonOption = False,
) -> None:
    """Let a node's next certificate count beside its present one, or finish that.

    Example: `dpadmm federation rotate federation.toml north`

    Before, the organisation makes a new request in a new folder, and the authority signs it. If a
    key was stolen, `--finish --revoke` replaces it in one step.
    """
    with refusals("federation rotate", as_json), _warned():
        from dpadmm.errors import ParameterError
        from dpadmm.federation import membership

        if revoke and not finish:
            raise ParameterError("--revoke must come with --finish: until then both count.")

        def change(before: PublicFederation, table: Table) -> None:
            before.node(name)
            others = [each for each in table.get("rotation", []) if each != name]
            table["rotation"] = others if finish else [*others, name]
            if not finish:
                membership.check_next(before, name)
            elif revoke:
                membership.revoke(table, membership.take_next(before, name))
            else:
                membership.take_next(before, name)

        _change("federation rotate", file, change, run_id, as_json=as_json)


def _change(
    command: str,
    file: Path,
    change: Callable[[PublicFederation, Table], None],
    run_id: str | None,
    *,
    as_json: bool,
) -> None:
    """Change the file; make the kits if every certificate is there; say what members run."""
    from dpadmm.federation.membership import without_certificate, write_change

    after = write_change(file, change, run_id)
    lacking = without_certificate(after)
    facts: dict[str, object] = {"federation": after.name, "revision": after.revision}
    facts |= {"run_id": after.run_id, "lacking": lacking}
    if not lacking:
        facts |= _make_kits(after, file, None)
    if as_json:
        emit(command, facts)
        return
    say(f"{file} has revision {after.revision}, for run {after.run_id}.")
    if not lacking:
        _say_kits(facts)
        return
    for name in lacking:
        say(f"{name} runs: dpadmm cert request {name} --federation {file.name}")
    say(f"The authority runs: dpadmm cert sign NAME.csr --federation {file}")
    say(f"Then: dpadmm federation init {file}")
