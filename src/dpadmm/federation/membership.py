"""One public file for a whole federation: who takes part, what is trained, and what changes later.

A ``federation.toml`` (:class:`PublicFederation`) says who takes part, where each is reached, what
is trained, and what each may spend. The authority signs what fits it (:func:`sign_requests`), and
:mod:`dpadmm.federation.kit` makes a kit for every node from it. Changes write the next revision.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import tomli_w
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding
from pydantic import BeforeValidator, Field, model_validator

from dpadmm.data.schema import Schema, load_schema
from dpadmm.durable import read_regular, write_whole, written_whole
from dpadmm.errors import ParameterError, fail, refuse_repeats, unknown_name
from dpadmm.federation.config import Address, AgreedRun, Limit, NodeName
from dpadmm.federation.identity import (
    AUTHORITY,
    RequestFacts,
    certificate_facts,
    certificate_fault,
    load_certificates,
    read_certificate,
    read_request,
    signed_request,
)
from dpadmm.federation.pins import Fingerprint, PinTable, spoken
from dpadmm.federation.transport.session import split_address
from dpadmm.federation.transport.wire import NAME_PATTERN
from dpadmm.plain import Names, Part, as_tuple
from dpadmm.run.config import File, load_toml, validated

Table = dict[str, Any]


class LedgerBudget(Part):
    """``[budget]``: what may ever be spent on an organisation's rows, unless it says otherwise.

    Parameters
    ----------
    epsilon, delta
        Of its ledger.
    """

    epsilon: Limit
    delta: Limit


class Organisation(Part):
    """``[[organisation]]``: who takes part.

    Parameters
    ----------
    name, address
        Its node's name, and where the others reach it, ``host:port``.
    rows
        Its public number of rows.
    listen
        Where its node listens, if not at that port of all its addresses.
    epsilon, delta
        What may ever be spent on its rows; as under ``[budget]`` unless given.
    """

    name: NodeName
    address: Address
    rows: Annotated[int, Field(ge=1)]
    listen: Address | None = None
    epsilon: Limit | None = None
    delta: Limit | None = None


class ServerNode(Part):
    """``[server]``: the node without rows that averages.

    Parameters
    ----------
    name, address, listen
        As of an organisation.
    """

    name: NodeName
    address: Address
    listen: Address | None = None


class PublicFederation(Part):
    """``federation.toml``: everything public about a federation; frozen.

    Parameters
    ----------
    name
        Of the federation: requests and kits of another one are refused.
    revision
        Raised by whoever changes the file after kits were given out.
    schema_file
        ``schema``: how rows are encoded.
    certificates
        The folder with ``ca.pem``, the certificate of every node, and under ``next`` those that
        take their place.
    run, study, wish, infer
        ``[run]``, or the tables of a study, as in ``agreed.toml``.
    budget, organisation, server
        The tables of the file.
    rotation
        Whose next certificate counts beside the present one.
    revoked
        The signed parts (sha256) of certificates that count for nothing.
    """

    name: NodeName
    revision: Annotated[int, Field(ge=1)] = 1
    schema_file: File = Field(alias="schema")
    certificates: File
    run: dict[str, Any] | None = None
    study: dict[str, Any] | None = None
    wish: list[dict[str, Any]] | None = None
    infer: dict[str, Any] | None = None
    budget: LedgerBudget
    organisation: Annotated[tuple[Organisation, ...], BeforeValidator(as_tuple)]
    server: ServerNode | None = None
    rotation: Names = ()
    revoked: Annotated[tuple[Fingerprint, ...], BeforeValidator(as_tuple)] = ()

    @model_validator(mode="after")
    def _check(self) -> PublicFederation:
        names = tuple(node.name for node in self.nodes)
        lower = tuple(name.lower() for name in names)
        # Files of some systems do not tell capitals from small letters.
        refuse_repeats(lower, "organisations must have names that differ", "change one")
        places = tuple("{}:{}".format(*_place(node.address)) for node in self.nodes)
        refuse_repeats(places, "organisations must have addresses that differ", "change one")
        for name in self.rotation:
            if name not in names:
                raise fail(f"rotation must name organisations of this file; got {name!r}")
        return self

    @property
    def nodes(self) -> tuple[Organisation | ServerNode, ...]:
        """The organisations, and the server if there is one."""
        return self.organisation if self.server is None else (*self.organisation, self.server)

    @property
    def run_id(self) -> str:
        """The name of the run, or of the study."""
        return str((self.study or self.run or {})["run_id"])

    @cached_property
    def schema_read(self) -> Schema:
        """The schema."""
        return load_schema(self.schema_file)

    def node(self, name: str) -> Organisation | ServerNode:
        """The node of a name, or a refusal that lists all."""
        for node in self.nodes:
            if node.name == name:
                return node
        raise unknown_name("name", name, [node.name for node in self.nodes])

    def host(self, name: str) -> str:
        """The host under which a node is reached, as its certificate must have it."""
        return split_address(self.node(name).address)[0]

    def certificate_file(self, name: str, *, following: bool = False) -> Path:
        """Where the certificate of a node is, or the one that takes its place."""
        folder = self.certificates / "next" if following else self.certificates
        return folder / f"{name}.pem"

    def agreed_table(self, table: PinTable) -> dict[str, Any]:
        """What ``agreed.toml`` says."""
        content: dict[str, Any] = {"schema_sha256": self.schema_read.sha256}
        if self.server is not None:
            content["server"] = self.server.name
        if self.revoked:
            content["revoked"] = sorted(self.revoked)
        asked = {name: getattr(self, name) for name in ("run", "study", "wish", "infer")}
        content |= {name: table for name, table in asked.items() if table is not None}
        content["party"] = [{"name": each.name, "rows": each.rows} for each in self.organisation]
        if table.next_pins:
            content["rotation"] = {
                name: [table.pins[name], pin] for name, pin in table.next_pins.items()
            }
        return content

    def check(self) -> AgreedRun:
        """The run that this file makes; refused if it cannot run, whoever has certificates yet."""
        nothing = PinTable(self.name, (), {}, {})
        agreed = validated(
            AgreedRun, self.agreed_table(nothing), self.schema_file.parent, "the federation"
        )
        check_run_name(agreed)
        agreed.plan(self.schema_read)
        agreed.told(self.schema_read)
        return agreed

    def check_request(self, asked: RequestFacts) -> None:
        """Refuse a request that has expired or is not of this federation, as it is written down."""
        now = datetime.now(UTC)
        if asked.federation != self.name:
            raise ParameterError(
                f"a request must be for this federation, {self.name!r}; that of {asked.name} is "
                f"for {asked.federation!r}: nothing was signed."
            )
        if asked.until < now:
            raise ParameterError(
                f"a request must not have expired; that of {asked.name} did at "
                f"{asked.until:%Y-%m-%d %H:%M} UTC: have a new one made. Nothing was signed."
            )
        host = self.host(asked.name)
        if asked.hosts != (host,):
            raise ParameterError(
                f"a request must be for the host that the federation's file has, {host}; that of "
                f"{asked.name} is for {', '.join(asked.hosts)}: nothing was signed."
            )

    def pin_table(self) -> PinTable:
        """Everybody's certificates, read and checked."""
        root = self.certificates / f"{AUTHORITY}.pem"
        wanted = [(node.name, False) for node in self.nodes]
        wanted += [(name, True) for name in self.rotation]
        lacking = without_certificate(self)
        if lacking:
            raise ParameterError(
                f"every node must have a certificate in {self.certificates}; not there: "
                f"{', '.join(lacking)}. Each organisation makes a request (dpadmm cert request "
                "NAME), and the authority signs it (dpadmm cert sign)."
            )
        roots = load_certificates(root)
        pins: dict[str, str] = {}
        next_pins: dict[str, str] = {}
        for name, following in wanted:
            file = self.certificate_file(name, following=following)
            own, *chain = load_certificates(file)
            fault = certificate_fault(name, own, chain, roots, datetime.now(UTC))
            facts = certificate_facts(own.public_bytes(Encoding.DER))
            if not fault and self.host(name) not in facts.hosts:
                fault = f"it is not for {self.host(name)}, where {name} is reached"
            if not fault and facts.signed_part in self.revoked:
                fault = "it is revoked"
            if fault:
                raise ParameterError(
                    f"{file} must be a certificate of {name}; {fault}: have a new one signed."
                )
            (next_pins if following else pins)[name] = facts.fingerprint
        return PinTable(self.name, fingerprints(roots), pins, next_pins)


def check_run_name(agreed: AgreedRun) -> None:
    """Refuse a run_id that could name a file elsewhere, or one of the node's own."""
    run_id = str(agreed.run.run_id)
    # Results are named after it; the status of a node is in NAME.status.json.
    if not re.fullmatch(NAME_PATTERN, run_id) or run_id.endswith(".status"):
        raise ParameterError(
            "run_id under [run] must be 1 to 63 letters, digits, '.', '_' or '-', and must not end "
            f"with '.status', because results are named after it; got {run_id!r}: change it."
        )


def _place(address: str) -> tuple[str, int]:
    host, port = split_address(address)
    return host.lower().rstrip("."), port


def without_certificate(federation: PublicFederation) -> list[str]:
    """Nodes whose certificate, or next one, the authority has not signed yet."""
    present = [node.name for node in federation.nodes]
    lacking = [name for name in present if not federation.certificate_file(name).is_file()]
    following = federation.rotation
    files = {name: federation.certificate_file(name, following=True) for name in following}
    return lacking + [f"{name} (next)" for name, file in files.items() if not file.is_file()]


def fingerprints(certificates: list[x509.Certificate]) -> tuple[str, ...]:
    """The sha256 of certificates."""
    return tuple(each.fingerprint(hashes.SHA256()).hex() for each in certificates)


def load_federation(path: str | Path) -> PublicFederation:
    """Read a ``federation.toml``; paths in it are relative to its folder."""
    content = {"certificates": "certificates", **load_toml(path, "the federation")}
    return validated(PublicFederation, content, Path(path).parent, "the federation")


@dataclass(frozen=True)
class Signed:
    """A certificate that was signed for a request.

    Parameters
    ----------
    name, certificate
        The node, and where its certificate is.
    fingerprint
        The sha256 of the certificate.
    words
        Those of the request, to be compared by telephone.
    following
        Whether it is to take the place of another one.
    """

    name: str
    certificate: Path
    fingerprint: str
    words: str
    following: bool

    def to_dict(self) -> dict[str, Any]:
        """Data for machines."""
        return asdict(self) | {"certificate": str(self.certificate)}


def sign_requests(
    federation: PublicFederation, requests: Sequence[Path], authority: Path, days: int
) -> list[Signed]:
    """Sign all of these requests of a federation's nodes, or none.

    Parameters
    ----------
    federation
        Who may ask for what; certificates go into its folder.
    requests
        Files of :func:`~dpadmm.federation.identity.make_request`.
    authority
        The folder with ``ca.pem`` and ``ca.key``.
    days
        How long each is valid.
    """
    content: dict[Path, bytes] = {}
    signed = []
    for path in requests:
        asked = read_request(path)
        federation.check_request(asked)
        hosts = [federation.host(asked.name)]
        data = signed_request(path, authority, asked=asked, hosts=hosts, days=days)
        present = federation.certificate_file(asked.name)
        following = os.path.lexists(present)
        file = federation.certificate_file(asked.name, following=True) if following else present
        if file in content or os.path.lexists(file):
            raise ParameterError(
                f"{file} must not be there twice, and is never overwritten: nothing was signed. "
                "Finish the rotation before, or leave a request out."
            )
        content[file] = data
        facts = certificate_facts(x509.load_pem_x509_certificate(data).public_bytes(Encoding.DER))
        words = spoken(asked.fingerprint)
        signed.append(Signed(asked.name, file, facts.fingerprint, words, following))
    root = federation.certificates / f"{AUTHORITY}.pem"
    trusted = read_regular(authority / f"{AUTHORITY}.pem")
    if not root.exists():
        content[root] = trusted
    elif not set(load_certificates(authority / f"{AUTHORITY}.pem")) <= set(load_certificates(root)):
        raise ParameterError(
            f"the authority in {authority} must be one that {root} lists; it is another: nothing "
            "was signed."
        )
    _write_new(content)
    return signed


def _write_new(content: Mapping[Path, bytes]) -> None:
    """Write new files, all or none."""
    written: list[Path] = []
    try:
        for file, data in content.items():
            file.parent.mkdir(parents=True, exist_ok=True)
            with written_whole(file, "the certificate", new=True) as opened:
                opened.write(data)
            written.append(file)
    except BaseException:
        for file in written:
            file.unlink(missing_ok=True)
        raise


def next_run_id(run_id: str) -> str:
    """The name of the run after this one: its number, or 2, raised by one."""
    stem, digits = re.fullmatch(r"(.*?)(\d*)", run_id, re.DOTALL).groups()  # type: ignore[union-attr]
    return f"{stem}{int(digits) + 1}" if digits else f"{stem}-2"


def _what_is_agreed(table: Table) -> dict[str, Any]:
    """``[run]``, or ``[study]`` in its place."""
    told: dict[str, Any] = table["study"] if "study" in table else table["run"]
    return told


def add(table: Table, node: Mapping[str, Any], links: Sequence[str] = ()) -> None:
    """Add an organisation to the table of a federation's file, and links where they are listed."""
    table["organisation"] = [*table["organisation"], dict(node)]
    run = _what_is_agreed(table)
    topology: Any = run.get("topology")
    if links and not isinstance(topology, list):
        raise ParameterError(
            f"link must be left out unless topology lists links; topology is {topology!r}."
        )
    if links:
        run["topology"] = [*topology, *([node["name"], other] for other in links)]


def remove(table: Table, name: str) -> None:
    """Take an organisation out, with its links and its numbers under ``[run]``."""
    table["organisation"] = [each for each in table["organisation"] if each["name"] != name]
    table["rotation"] = [each for each in table.get("rotation", []) if each != name]
    run = _what_is_agreed(table)
    if isinstance(run.get("topology"), list):
        run["topology"] = [link for link in run["topology"] if name not in link]
    for told in (run, run.get("algorithm_options", {})):
        for key, value in told.items():
            if isinstance(value, dict) and key != "algorithm_options":
                told[key] = {other: each for other, each in value.items() if other != name}


def revoke(table: Table, certificate: Path) -> None:
    """Put a certificate on the list of those that count for nothing."""
    listed = {*table.get("revoked", []), read_certificate(certificate).signed_part}
    table["revoked"] = sorted(listed)


def take_next(federation: PublicFederation, name: str) -> Path:
    """Let the next certificate of a node take the place of its present one, which is kept.

    Return where it is kept. It may be called again: the file is written after this.
    """
    present, following = (
        federation.certificate_file(name, following=each) for each in (False, True)
    )
    kept = federation.certificates / "old" / f"{name}.{federation.revision}.pem"
    if following.is_file():
        kept.parent.mkdir(exist_ok=True)
        write_whole(kept, read_regular(present), "the old certificate")
        os.replace(following, present)
    elif not kept.is_file():
        check_next(federation, name)
    return kept


def check_next(federation: PublicFederation, name: str) -> None:
    """Refuse a rotation to a certificate that was not signed yet."""
    file = federation.certificate_file(name, following=True)
    if not file.is_file():
        raise ParameterError(
            f"the next certificate of {name} must be {file}; it is not there: {name} makes a "
            "request in a new folder, and the authority signs it (dpadmm cert sign)."
        )


def write_change(
    path: Path, change: Callable[[PublicFederation, Table], None], run_id: str | None = None
) -> PublicFederation:
    """Change a federation's file: the next revision, of another run; the former is kept beside it.

    Parameters
    ----------
    path
        The file.
    change
        Changes its table, or refuses.
    run_id
        The name of the next run; with a number raised by one unless given.

    Returns
    -------
    PublicFederation
        The new one, checked as a whole before it is written.
    """
    before = load_federation(path)
    table = load_toml(path, "the federation")
    told = before.check()
    table["revision"] = before.revision + 1
    _what_is_agreed(table)["run_id"] = run_id or next_run_id(str(told.run.run_id))
    former = path.read_bytes()
    change(before, table)
    for name in ("rotation", "revoked"):
        if not table.get(name, True):
            del table[name]
    text = tomli_w.dumps(table)
    content = {"certificates": "certificates", **tomllib.loads(text)}
    after = validated(PublicFederation, content, path.parent, "the federation")
    after.check()
    kept = path.with_name(f"{path.stem}.{before.revision}{path.suffix}")
    write_whole(kept, former, "the former file")
    write_whole(path, text.encode(), "the federation's file")
    return after
