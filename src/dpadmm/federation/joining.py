"""A kit at its organisation: checked, completed by what is the owner's, and ready to start.

The folder of a node has what its owner decides in ``own.toml``, the key, the ledger, and every kit
that was joined in a folder of its own. ``node.toml`` names one of them, and is replaced last: until
then nothing has changed, and joining the same kit again completes what was cut short.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, Final

import tomli_w
from cryptography import x509

from dpadmm.data.schema import Schema, load_schema
from dpadmm.durable import write_whole, written_whole
from dpadmm.errors import DataError, LedgerError, ParameterError
from dpadmm.federation.config import AgreedRun, NodeConfig, load_agreed_run
from dpadmm.federation.identity import (
    AUTHORITY,
    REQUEST,
    load_certificates,
    load_signing_key,
    read_request,
)
from dpadmm.federation.kit import (
    UNIT,
    KitFacts,
    read_files,
    readme,
    unit,
    write_folder,
)
from dpadmm.federation.membership import check_run_name, fingerprints
from dpadmm.federation.node import Check, check_node
from dpadmm.federation.pins import PinTable
from dpadmm.federation.runtime import NodeSetup, prepare_node
from dpadmm.ledger.base import ChargedData
from dpadmm.ledger.filters import Policy
from dpadmm.ledger.sqlite import SQLiteLedger
from dpadmm.privacy.curves import gaussian_mu_squared
from dpadmm.run.config import load_toml, validated, with_own
from dpadmm.run.plan import announced

_NODE: Final = "node.toml"
_OWN: Final = "own.toml"


@dataclass(frozen=True)
class Kit:
    """A kit whose parts were checked against each other.

    Parameters
    ----------
    facts, agreed, schema
        Whose it is; the run; how rows are encoded.
    roots
        The authority.
    files
        What goes into the node's folder, by name.
    """

    facts: KitFacts
    agreed: AgreedRun
    schema: Schema
    roots: list[x509.Certificate]
    files: Mapping[str, bytes]

    @property
    def party(self) -> bool:
        """Whether it is of a node with rows."""
        return self.facts.node != self.agreed.server

    @cached_property
    def table(self) -> PinTable:
        """Whose certificate is whose."""
        return self.facts.pins(self.roots)

    @property
    def node_table(self) -> dict[str, Any]:
        """What ``node.toml`` says."""
        return self.facts.node_table(self.agreed, self.schema)


def read_kit(place: str | Path) -> Kit:
    """Read a kit, a zip file or a folder; refuse one whose parts contradict each other."""
    place = Path(place)
    found = read_files(place)
    needed = ("kit.toml", _NODE, "agreed.toml", "schema.toml", f"{AUTHORITY}.pem")
    lacking = [name for name in (*needed, "certificate.pem") if name not in found]
    if lacking:
        raise ParameterError(
            f"a kit must have {', '.join(lacking)}; {place} has not: take another."
        )
    with tempfile.TemporaryDirectory() as folder:
        for name, data in found.items():
            (Path(folder) / name).write_bytes(data)
        try:
            kit, shown, node_table = _parsed(Path(folder), found)
        except ValueError as error:
            # Readers name the file in what they refuse.
            raise ParameterError(f"{place}: {error}".replace(f"{folder}/", "")) from None
    _check_parts(kit, place, shown, node_table)
    # Not believed, but made again.
    made = {UNIT: unit(), "README.md": readme(kit.facts, kit.agreed).encode()}
    return replace(kit, files={**found, **made})


def _parsed(folder: Path, found: Mapping[str, bytes]) -> tuple[Kit, list[str], dict[str, Any]]:
    facts = validated(KitFacts, load_toml(folder / "kit.toml", "the kit"), folder, "the kit")
    agreed, schema = load_agreed_run(folder / "agreed.toml"), load_schema(folder / "schema.toml")
    check_run_name(agreed)
    roots = load_certificates(folder / f"{AUTHORITY}.pem")
    shown = [
        fingerprints(load_certificates(folder / name))[0]
        for name in ("certificate.pem", "next.pem")
        if name in found
    ]
    node_table = load_toml(folder / _NODE, "the node's configuration")
    return Kit(facts, agreed, schema, roots, found), shown, node_table


def _check_parts(kit: Kit, place: Path, shown: list[str], node_table: Mapping[str, Any]) -> None:
    """Refuse a kit whose files say different things."""
    facts, agreed, table = kit.facts, kit.agreed, kit.table
    rotation = {name: (table.pins[name], pin) for name, pin in table.next_pins.items()}
    own = next(each for each in facts.member if each.name == facts.node)
    differs = {
        "the members": {each.name for each in facts.member} != set(agreed.nodes),
        "the schema": agreed.schema_sha256 != kit.schema.sha256,
        "the rotation": rotation != agreed.rotation,
        "the own certificate": shown != list(filter(None, (own.sha256, own.next_sha256))),
        "the budget": (facts.budget is None) == kit.party,
    }
    # The coordinator says who is where; nothing else in the node's configuration is theirs to say.
    if not any(differs.values()):
        differs[_NODE] = node_table != kit.node_table
    for what, wrong in differs.items():
        if wrong:
            raise ParameterError(
                f"a kit must be of one piece; in {place} {what} and the other files differ: "
                "nothing was written. Ask for the kit again."
            )


@dataclass(frozen=True, kw_only=True)
class Choices:
    """What an owner decides at joining; what is None stays as it was, or as the kit proposes.

    Parameters
    ----------
    data
        The file with the rows, or an address.
    key
        The node's key; ``NAME.key`` in its folder unless given.
    dataset
        What the ledger calls the rows.
    epsilon, delta
        What may ever be spent on the rows, by a new ledger.
    most_epsilon
        The most that one run may spend: what the run of the first kit asks for unless given.
    heard
        The words that the other members read.
    """

    data: str | None = None
    key: Path | None = None
    dataset: str = "rows"
    epsilon: float | None = None
    delta: float | None = None
    most_epsilon: float | None = None
    heard: str | None = None


@dataclass(frozen=True)
class Joined:
    """What joining a kit has made.

    Parameters
    ----------
    kit, setup
        The kit, and the node as it would start.
    checks
        What a start needs, and whether it is there.
    unpinned
        Members whose certificates were not compared yet.
    ledger
        The new ledger, if one was made.
    """

    kit: Kit
    setup: NodeSetup
    checks: tuple[Check, ...]
    unpinned: tuple[str, ...]
    ledger: Path | None


def join(kit: Kit, folder: Path, choices: Choices) -> Joined:
    """Complete a kit in the folder of its node, or refuse and leave the folder as it was."""
    facts = kit.facts
    own = _read_own(folder)
    _check_follows(kit, folder)
    if choices.heard is not None:
        kit.table.check_heard(choices.heard)
    key = _key(kit, folder, choices, own)
    before, own = own, _own_part(kit, folder, choices, own, key)
    place = folder / facts.folder
    made: list[Path] = []
    try:
        if write_folder(place, kit.files, "ask for a kit with a higher revision"):
            made.append(place)
        setup = _prepared(kit, folder, own)
        ledger = _new_ledger(kit, setup, choices)
        if ledger is not None:
            made.append(ledger)
        checks = tuple(check_node(setup))
        for check in checks:
            if check.check == "ledger" and not check.ok:
                raise LedgerError(check.words)
        _write_own(folder, own)
        try:
            write_whole(folder / _NODE, kit.files[_NODE], _NODE)
        except DataError:
            if before:
                _write_own(folder, before)
            else:
                (folder / _OWN).unlink()
            raise
    except BaseException:
        for each in made:
            shutil.rmtree(each) if each.is_dir() else each.unlink(missing_ok=True)
        raise
    return Joined(kit, setup, checks, _unpinned(kit, own), ledger)


def _read_own(folder: Path) -> dict[str, Any]:
    if not folder.is_dir():
        raise DataError(f"folder must be one that exists; got {folder}: make it")
    file = folder / _OWN
    return load_toml(file, "the owner's part") if file.exists() else {}


def current_kit(folder: Path) -> Kit | None:
    """The kit that a node's folder uses now."""
    file = folder / _NODE
    if not file.exists():
        return None
    run = load_toml(file, "the node's configuration").get("run")
    place = (folder / str(run)).parent
    if not (place / "kit.toml").is_file():
        raise ParameterError(
            f"{file} must be of a kit; it was written by hand: join the kit in another folder."
        )
    return read_kit(place)


def _check_follows(kit: Kit, folder: Path) -> None:
    """Refuse a kit of another federation or node, an older one, or one of another authority."""
    before, facts = current_kit(folder), kit.facts
    if before is None:
        return
    must = f"a kit in {folder} must be"
    known = before.facts
    if (known.federation, known.node) != (facts.federation, facts.node):
        raise ParameterError(
            f"{must} of {known.node} in the federation {known.federation!r}; got one of "
            f"{facts.node} in {facts.federation!r}: nothing was changed."
        )
    if facts.revision < known.revision:
        raise ParameterError(
            f"{must} of revision {known.revision} at least; got {facts.revision}: nothing was "
            "changed. Ask for the newest."
        )
    if not set(before.table.authority) & set(kit.table.authority):
        raise ParameterError(
            f"{must} of the same authority, or of one that follows it while both are trusted; got "
            "one of another: nothing was changed. Ask by telephone."
        )


def _key(kit: Kit, folder: Path, choices: Choices, own: Mapping[str, Any]) -> Path:
    """The node's key; refused if the kit is not for whoever made it."""
    facts = kit.facts
    kept = own.get("certificates", {}).get("key", f"{facts.node}.key")
    key = folder / kept if choices.key is None else choices.key
    if not key.is_file():
        raise ParameterError(
            f"key must be the file that dpadmm cert request made; {key} is not there: go to its "
            f"folder, or give --key. This is the kit of {facts.node}."
        )
    asked = key.with_suffix(f".{REQUEST}")
    if asked.is_file():
        federation = read_request(asked).federation
        if federation != facts.federation:
            raise ParameterError(
                f"a kit must be of the federation that {asked} was made for, {federation!r}; got "
                f"one of {facts.federation!r}: nothing was written."
            )
    return key


def _certificate(kit: Kit, key: Path) -> str:
    """Which file of the kit is the certificate of this key."""
    public = load_signing_key(key).public_key()
    for name in ("next.pem", "certificate.pem"):
        data = kit.files.get(name)
        if data is not None and x509.load_pem_x509_certificate(data).public_key() == public:
            return name
    raise ParameterError(
        f"a kit must have the certificate of this node's key; that of {kit.facts.node} in "
        f"{kit.facts.federation!r} has none for {key}: it is another's, or the request was not "
        "signed. Nothing was written."
    )


def _own_part(
    kit: Kit, folder: Path, choices: Choices, before: Mapping[str, Any], key: Path
) -> dict[str, Any]:
    """What ``own.toml`` says: what the owner chose, or had chosen."""
    own = {name: dict(told) if isinstance(told, dict) else told for name, told in before.items()}
    certificate = _certificate(kit, key)
    relative = os.path.relpath(key, folder)
    own["certificates"] = {
        "certificate": f"{kit.facts.folder}/{certificate}",
        "key": str(key.resolve()) if relative.startswith("..") else relative,
    }
    if kit.party:
        _add_party(kit, folder, choices, own)
    elif choices.data is not None:
        raise ParameterError(f"data must be left out at a server; got {choices.data!r}.")
    table = kit.table
    known = table.known(own.get("pins", {}), own.get("next_pins", {}))
    pinned = table if choices.heard is not None else known
    own["pins"], own["next_pins"] = dict(pinned.pins), dict(pinned.next_pins)
    for name in ("pins", "next_pins"):
        if not own[name]:
            del own[name]
    return own


def _add_party(kit: Kit, folder: Path, choices: Choices, own: dict[str, Any]) -> None:
    name, run = kit.facts.node, kit.agreed.run
    node = own.setdefault("node", {})
    if choices.data is not None:
        inside = os.path.relpath(choices.data, folder)
        outside = "://" in choices.data or inside.startswith("..")
        whole = choices.data if "://" in choices.data else os.path.abspath(choices.data)
        node["data"] = whole if outside else inside
    if "data" not in node:
        raise ParameterError(
            f"data must be given when {name} joins: the file with its rows (--data); got nothing."
        )
    asks = {word: _of(getattr(run, word), name) for word in ("epsilon", "delta")}
    policy = own.setdefault("policy", {})
    if choices.most_epsilon is not None:
        policy["epsilon"] = choices.most_epsilon
    for word, asked in asks.items():
        policy.setdefault(word, asked)
    policy.setdefault("algorithms", [run.algorithm])
    if kit.agreed.colluders is not None:
        policy.setdefault("colluders", kit.agreed.colluders)


def _of(value: Any, name: str) -> float:
    return float(value[name] if isinstance(value, dict) else value)


def _prepared(kit: Kit, folder: Path, own: Mapping[str, Any]) -> NodeSetup:
    """The node as it would start once all pins are compared; refused as a start would be."""
    table = kit.table
    pins = {"pins": dict(table.pins), "next_pins": dict(table.next_pins)}
    content = with_own(with_own(kit.node_table, own), pins)
    del content["own"]
    config = validated(NodeConfig, content, folder, "the node's configuration")
    _check_ledger_place(config)
    return prepare_node(config)


def _check_ledger_place(config: NodeConfig) -> None:
    ledger = config.node.ledger
    if ledger is not None and not ledger.parent.is_dir():
        raise DataError(f"ledger must be in a folder that exists; got {ledger}: make the folder")


def _new_ledger(kit: Kit, setup: NodeSetup, choices: Choices) -> Path | None:
    """Make the ledger if there is none; one that is there is the owner's, and stays."""
    path, facts = setup.config.node.ledger, kit.facts
    if path is None or path.exists():
        if path is not None and (choices.epsilon, choices.delta) != (None, None):
            raise ParameterError(
                f"epsilon and delta must be left out where a ledger is there; {path} is: dpadmm "
                "ledger amend changes its policy and keeps what was spent."
            )
        return None
    budget = facts.budget
    assert budget is not None
    place = kit.agreed.names.index(facts.node)
    expected = setup.whole().expected()
    plans = [setup.planned, *([] if expected is None else [expected])]
    (*events,) = (event for plan in plans for event in chain(*announced(plan.of_party(place))))
    gaussian = all(gaussian_mu_squared(event) is not None for event in events)
    policy = Policy(
        budget.epsilon if choices.epsilon is None else choices.epsilon,
        budget.delta if choices.delta is None else choices.delta,
        kit.agreed.run.rows_per_person,
        "gaussian" if gaussian else "renyi",
        None,
        setup.config.policy.colluders,
    )
    rows = kit.agreed.rows[facts.node]
    data = ChargedData(choices.dataset, facts.node, rows, kit.schema.sha256)
    SQLiteLedger.create(path, data, policy).close()
    return path


def _unpinned(kit: Kit, own: Mapping[str, Any]) -> tuple[str, ...]:
    """Members whose certificates the owner has not compared yet."""
    table, names = kit.table, []
    for pins, pinned in ((table.pins, "pins"), (table.next_pins, "next_pins")):
        names += [name for name, pin in pins.items() if own.get(pinned, {}).get(name) != pin]
    return tuple(sorted(set(names) - {kit.facts.node}))


def pin(folder: Path) -> Kit:
    """Pin every certificate of the kit in use: its owner has compared the words of the table."""
    kit = current_kit(folder)
    if kit is None:
        raise ParameterError(
            f"folder must be one in which a kit was joined; {folder} is not: join it first."
        )
    own = _read_own(folder)
    own["pins"], own["next_pins"] = dict(kit.table.pins), dict(kit.table.next_pins)
    if not own["next_pins"]:
        del own["next_pins"]
    _write_own(folder, own)
    return kit


def unpinned(folder: Path, kit: Kit) -> tuple[str, ...]:
    """Members of the kit in use whose certificates were not compared yet."""
    return _unpinned(kit, _read_own(folder))


def _write_own(folder: Path, own: Mapping[str, Any]) -> None:
    with written_whole(folder / _OWN, _OWN, private=True) as file:
        file.write(tomli_w.dumps(own).encode())
