"""The kit that every organisation gets from a federation's public file.

The same files make the same bytes, with nothing secret in them. At its organisation
:mod:`dpadmm.federation.joining` completes a kit; whatever it says is checked there, or made again.
"""

from __future__ import annotations

import io
import os
import secrets
import shutil
import zipfile
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import tomli_w
from cryptography import x509
from pydantic import BeforeValidator, Field, model_validator

from dpadmm.data.schema import Schema
from dpadmm.durable import FileRefusal, read_regular
from dpadmm.errors import DataError, ParameterError, fail, refuse_repeats
from dpadmm.federation.config import Address, AgreedRun, NodeName
from dpadmm.federation.identity import (
    AUTHORITY,
)
from dpadmm.federation.membership import (
    LedgerBudget,
    Organisation,
    PublicFederation,
    ServerNode,
    fingerprints,
)
from dpadmm.federation.pins import Fingerprint, PinTable
from dpadmm.federation.transport.session import split_address
from dpadmm.plain import Part, as_tuple
from dpadmm.privacy.figures import Given
from dpadmm.run.config import validated

KIT_VERSION: Final = 1
UNIT: Final = "dpadmm-node@.service"
_LARGEST: Final = 1 << 20
_FILES: Final = frozenset(
    (
        "kit.toml",
        "node.toml",
        "agreed.toml",
        "schema.toml",
        f"{AUTHORITY}.pem",
        "certificate.pem",
        "next.pem",
        "README.md",
        UNIT,
    )
)
# What a zip file needs and no reader looks at; the earliest that there is.
_TIME: Final = (1980, 1, 1, 0, 0, 0)


class KitMember(Part):
    """``[[member]]`` of a kit: a node, and the sha256 of its certificate.

    Parameters
    ----------
    name, address
        Of the node.
    sha256, next_sha256
        Of its certificate; of the one that takes its place, while it changes it.
    """

    name: NodeName
    address: Address
    sha256: Fingerprint
    next_sha256: Fingerprint | None = None


class KitFacts(Part):
    """``kit.toml``: whose kit it is, of which federation, and who else is in it.

    Parameters
    ----------
    kit
        Version of this form.
    federation, revision
        As in ``federation.toml``.
    node, listen
        Whose it is, and where that node listens.
    budget
        What may ever be spent on its rows; a server has none.
    member
        All nodes.
    """

    kit: Literal[1]
    federation: NodeName
    revision: Annotated[int, Field(ge=1)]
    node: NodeName
    listen: Address
    budget: LedgerBudget | None = None
    member: Annotated[tuple[KitMember, ...], BeforeValidator(as_tuple)]

    @model_validator(mode="after")
    def _check(self) -> KitFacts:
        names = tuple(member.name for member in self.member)
        refuse_repeats(names, "a member must be named once", "take another kit")
        if self.node not in names:
            raise fail(f"node must be a member of the kit; got {self.node!r}: take another kit")
        return self

    @property
    def folder(self) -> str:
        """The folder of this kit, inside that of the node."""
        return f"kit-{self.revision}"

    def pins(self, roots: list[x509.Certificate]) -> PinTable:
        """Whose certificate is whose."""
        following = {each.name: each.next_sha256 for each in self.member if each.next_sha256}
        pins = {each.name: each.sha256 for each in self.member}
        return PinTable(self.federation, fingerprints(roots), pins, following)

    def node_table(self, agreed: AgreedRun, schema: Schema) -> dict[str, Any]:
        """What the node's ``node.toml`` says; its owner's part is in another file."""
        name, inside = self.node, self.folder
        results = str(agreed.run.run_id)
        places = {member.name: member.address for member in self.member}
        party = name != agreed.server
        node: dict[str, Any] = {"name": name, "listen": self.listen}
        node |= {"schema": f"{inside}/schema.toml", "messages": f"{name}.messages"}
        node |= {"ledger": f"{name}.ledger"} if party else {"role": "server"}
        kinds = {"model": "model", "record": "json", "statement": "txt"}
        table: dict[str, Any] = {
            "own": "own.toml",
            "run": f"{inside}/agreed.toml",
            "node": node,
            "certificates": {
                "authority": f"{inside}/{AUTHORITY}.pem",
                "certificate": f"{inside}/certificate.pem",
                "key": f"{name}.key",
            },
            "watch": {"log": f"{name}.log", "status": f"{name}.status.json"},
            "neighbour": [
                {"name": other, "address": places[other]}
                for other in agreed.neighbours(name, agreed.plan(schema))
            ],
        }
        if party:
            if agreed.study is not None:
                del kinds["model"]
            table["result"] = {kind: f"{results}.{end}" for kind, end in kinds.items()}
        return table


def kits_of(federation: PublicFederation) -> dict[str, dict[str, bytes]]:
    """The files of every node's kit, by their names; refused before the first is made."""
    agreed, schema = federation.check(), federation.schema_read
    table = federation.pin_table()
    content = federation.agreed_table(table)
    agreed = validated(AgreedRun, content, Path(), "the federation")
    agreed.whole(schema)
    shared = {
        "agreed.toml": tomli_w.dumps(content).encode(),
        "schema.toml": read_regular(federation.schema_file),
        f"{AUTHORITY}.pem": read_regular(federation.certificates / f"{AUTHORITY}.pem"),
    }
    members = [
        {"name": node.name, "address": node.address, "sha256": table.pins[node.name]}
        | ({"next_sha256": table.next_pins[node.name]} if node.name in table.next_pins else {})
        for node in federation.nodes
    ]
    kits = {}
    for node in federation.nodes:
        told = _kit_table(federation, node) | {"member": members}
        facts = validated(KitFacts, told, Path(), "the kit")
        own = {
            "kit.toml": tomli_w.dumps(told).encode(),
            "node.toml": tomli_w.dumps(facts.node_table(agreed, schema)).encode(),
            "certificate.pem": read_regular(federation.certificate_file(node.name)),
            "README.md": readme(facts, agreed).encode(),
            UNIT: unit(),
        }
        if node.name in table.next_pins:
            file = federation.certificate_file(node.name, following=True)
            own["next.pem"] = read_regular(file)
        kits[node.name] = own | shared
    return kits


def _kit_table(federation: PublicFederation, node: Organisation | ServerNode) -> dict[str, Any]:
    listen = node.listen
    if listen is None:
        host, port = split_address(node.address)
        listen = f"[::]:{port}" if ":" in host else f"0.0.0.0:{port}"
    told: dict[str, Any] = {
        "kit": KIT_VERSION,
        "federation": federation.name,
        "revision": federation.revision,
        "node": node.name,
        "listen": listen,
    }
    if isinstance(node, Organisation):
        budget = federation.budget
        told["budget"] = {
            "epsilon": budget.epsilon if node.epsilon is None else node.epsilon,
            "delta": budget.delta if node.delta is None else node.delta,
        }
    return told


def unit() -> bytes:
    """The systemd unit of a node."""
    return files("dpadmm.federation").joinpath(UNIT).read_bytes()


def join_command(facts: KitFacts, *, first: bool) -> str:
    """The one command with which a member takes a kit."""
    data = " --data ROWS.csv" if first and facts.budget is not None else ""
    return f"dpadmm federation join {facts.node}.zip{data}"


def readme(facts: KitFacts, agreed: AgreedRun) -> str:
    """The page of a kit: what it is, and its three commands."""
    budget = facts.budget
    asks = (
        "It has neither rows nor a ledger."
        if budget is None
        else f"The run asks for epsilon = {_of(agreed.run.epsilon, facts.node)}; your ledger will "
        f"allow {Given(budget.epsilon)} in all, unless you say otherwise (--epsilon)."
    )
    does = "It trains" if agreed.study is None else "It asks the study"
    return f"""# {facts.node} in the federation {facts.federation}

Revision {facts.revision}. Nothing in this kit is secret. {does} {agreed.run.algorithm!r} as run
{agreed.run.run_id!r} with {", ".join(agreed.nodes)}. {asks}

Put the kit beside {facts.node}.key, which never leaves your machine, and run there:

    {join_command(facts, first=True)}
    dpadmm federation pins
    dpadmm node --config node.toml

The first checks everything, makes your ledger and writes node.toml; your own choices are in
own.toml. The second shows words that all members read to each other on one call, and must hear
alike. The third trains. Edit no file of the kit.
{UNIT} runs the node as a service.
"""


def _of(value: Any, name: str) -> str:
    return f"{value[name] if isinstance(value, dict) else value:g}"


def zipped(content: Mapping[str, bytes]) -> bytes:
    """A zip file of these files: the same bytes from the same content."""
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w", zipfile.ZIP_STORED) as file:
        for name in sorted(content):
            entry = zipfile.ZipInfo(name, _TIME)
            entry.create_system = 3
            entry.external_attr = 0o100644 << 16
            file.writestr(entry, content[name])
    return whole.getvalue()


def write_kits(
    kits: Mapping[str, Mapping[str, bytes]], output: Path, *, folders: bool = False
) -> tuple[Path, ...]:
    """Write all kits or none: a folder of zip files, or of folders. Return each kit's place.

    If the folder is there with the same content, nothing is written; with another it is refused.
    """
    content: dict[str, bytes] = {}
    for node, kit in kits.items():
        if folders:
            content |= {f"{node}/{name}": data for name, data in kit.items()}
        else:
            content[f"{node}.zip"] = zipped(kit)
    write_folder(output, content, "raise revision in the federation's file, or move it away")
    return tuple(output / (node if folders else f"{node}.zip") for node in kits)


def write_folder(place: Path, content: Mapping[str, bytes], advice: str) -> bool:
    """Make a folder with these files, whole or not at all; whether it was not there before."""
    if os.path.lexists(place):
        found = {
            file.relative_to(place).as_posix(): file.read_bytes()
            for file in sorted(place.rglob("*"))
            if file.is_file() and file.stat().st_size <= _LARGEST
        }
        if found != dict(content):
            raise ParameterError(f"{place} must not be there with another content: {advice}.")
        return False
    partial = place.with_name(f".{place.name}.{secrets.token_hex(8)}.partial")
    try:
        for name, data in content.items():
            file = partial / name
            file.parent.mkdir(parents=True, exist_ok=True)
            with open(file, "xb") as opened:
                opened.write(data)
                opened.flush()
                os.fsync(opened.fileno())
        os.rename(partial, place)
    except OSError as error:
        raise DataError(f"{place} must be a folder that can be made: {error.strerror}.") from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return True


def read_files(place: str | Path) -> dict[str, bytes]:
    """The files of a kit, a folder or a zip file that nothing in can surprise."""
    place = Path(place)
    try:
        if place.is_dir():
            found = [each for each in sorted(place.iterdir()) if each.name in _FILES]
            return {each.name: read_regular(each, largest=_LARGEST) for each in found}
        whole = io.BytesIO(read_regular(place, largest=len(_FILES) * _LARGEST))
        with zipfile.ZipFile(whole) as file:
            entries = [each for each in file.infolist() if each.filename in _FILES]
            # Stored as they are: nothing can grow when it is read.
            if any(each.compress_type or each.file_size > _LARGEST for each in entries):
                raise FileRefusal("its files are compressed or too long")
            return {each.filename: file.read(each) for each in entries}
    except (FileRefusal, zipfile.BadZipFile, NotImplementedError, RuntimeError, OSError) as error:
        raise ParameterError(
            f"a kit must be a folder or a zip file of dpadmm federation init; got {place}: {error}."
        ) from None
