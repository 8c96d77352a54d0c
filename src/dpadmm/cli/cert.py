"""``dpadmm cert``: a trial authority and the certificates of nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dpadmm.cli.output import JsonOption, command_group, emit, refusals, say

_OWN_AUTHORITY = (
    "This authority is for trials: whoever holds its key can pass for any node, and it cannot "
    "withdraw a certificate. For more than a trial, organisations bring certificates of their own. "
    "Each needs the node's name as common name, its host names or addresses as subject "
    "alternative names, server and client authentication as extended key usages, an unencrypted "
    "PEM key that only its owner may read, and one PEM file with the authorities all nodes trust."
)

cert_app = command_group(
    "cert",
    "Certificates of nodes, for mutual TLS: make them for a trial, look at them.\n\n"
    f"Example: `dpadmm cert authority trial`\n\n{_OWN_AUTHORITY}",
)

FederationOption = Annotated[
    Path, typer.Option("--federation", help="The public file of the federation.")
]
FolderArgument = Annotated[Path, typer.Argument(help="The folder of the files.")]


@cert_app.command()
def authority(
    folder: FolderArgument,
    name: Annotated[
        str, typer.Option(help="The name of the authority.")
    ] = "dpadmm trial authority",
    days: Annotated[int, typer.Option(help="How long it is valid.")] = 1095,
    as_json: JsonOption = False,
) -> None:
    """Create a trial authority: ca.pem for every node, and ca.key for you alone.

    Example: `dpadmm cert authority trial`

    It never overwrites a file. Whoever holds ca.key can make a certificate in any node's name.
    """
    with refusals("cert authority", as_json):
        from dpadmm.federation.identity import make_authority, read_certificate

        certificate, key = make_authority(folder, name=name, days=days)
        facts = read_certificate(certificate).to_dict()
    if as_json:
        emit("cert authority", {"certificate": str(certificate), "key": str(key), **facts})
        return
    say(f"Made {certificate} (for every node) and {key} (for nobody else).")
    say(f"Valid until {facts['not_after'][:10]}; sha256 {facts['fingerprint']}")
    say(_OWN_AUTHORITY)
    say(f"Next: dpadmm cert node {folder} NAME --host HOST")


@cert_app.command()
def node(
    folder: FolderArgument,
    name: Annotated[str, typer.Argument(help="The node's name: letters, digits, '.', '_', '-'.")],
    host: Annotated[
        list[str] | None,
        typer.Option(
            help="A name or address under which its neighbours reach it; may be repeated. "
            "[default: localhost, 127.0.0.1, ::1]"
        ),
    ] = None,
    days: Annotated[int, typer.Option(help="How long it is valid.")] = 365,
    authority: Annotated[
        Path | None, typer.Option(help="The folder of ca.pem and ca.key, if it is another one.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Create the certificate of a node, NAME.pem, and its key, NAME.key, signed by ca.key.

    Example: `dpadmm cert node trial north --host north.example.org`

    It never overwrites a file. Give the node ca.pem, NAME.pem and NAME.key, and nothing else.
    """
    with refusals("cert node", as_json):
        from dpadmm.federation.identity import DEFAULT_HOSTS, make_certificate, read_certificate

        certificate, key = make_certificate(
            folder, name, hosts=host or DEFAULT_HOSTS, days=days, authority=authority
        )
        facts = read_certificate(certificate).to_dict()
    if as_json:
        emit("cert node", {"certificate": str(certificate), "key": str(key), **facts})
        return
    say(f"Made {certificate} and {key}, for {', '.join(facts['hosts'])}.")
    say(f"Valid until {facts['not_after'][:10]}; sha256 {facts['fingerprint']}")
    say(f"Bring the key to node {name!r} by a way that nobody else reads, and leave no copy.")


@cert_app.command()
def request(
    name: Annotated[str, typer.Argument(help="The node's name, as in the federation's file.")],
    federation: FederationOption,
    folder: Annotated[
        Path, typer.Option(help="Where NAME.key and NAME.csr go; the node's folder.")
    ] = Path(),
    days: Annotated[int, typer.Option(help="How long the authority may use the request.")] = 30,
    as_json: JsonOption = False,
) -> None:
    """Make a node's own key, and a request for its certificate.

    Example: `dpadmm cert request north --federation federation.toml`

    NAME.key stays on this machine, readable by its owner only. Send NAME.csr to the authority: it
    is public. Name, host and federation are those of the federation's file.
    """
    with refusals("cert request", as_json):
        from dpadmm.federation.identity import make_request, read_request
        from dpadmm.federation.membership import load_federation
        from dpadmm.federation.pins import spoken

        told = load_federation(federation)
        hosts = (told.host(name),)
        file, key = make_request(folder, name, told.name, hosts=hosts, days=days)
        facts = read_request(file)
        words = spoken(facts.fingerprint)
    if as_json:
        places = {"request": str(file), "key": str(key)}
        emit("cert request", {**places, **facts.to_dict(), "words": words})
        return
    say(f"Made {key}, which stays here, and {file}, for {facts.hosts[0]} in {told.name}.")
    say(f"Send {file} to the authority before {facts.until:%Y-%m-%d}. If it calls, read: {words}")


@cert_app.command()
def sign(
    requests: Annotated[list[Path], typer.Argument(help="What cert request made: NAME.csr.")],
    federation: FederationOption,
    authority: Annotated[Path, typer.Option(help="The folder of ca.pem and ca.key.")] = Path(
        "authority"
    ),
    days: Annotated[int, typer.Option(help="How long each certificate is valid.")] = 365,
    as_json: JsonOption = False,
) -> None:
    """Sign requests of a federation's organisations, all of them or none.

    Example: `dpadmm cert sign requests/*.csr --federation federation.toml --authority authority`

    It compares name, host, federation and date with the federation's file, and puts certificates
    into its folder. A second one of a node is its next one, for `dpadmm federation rotate`. A
    request proves nothing about who sent it: compare its words by telephone.
    """
    with refusals("cert sign", as_json):
        from dpadmm.federation.membership import load_federation, sign_requests

        signed = sign_requests(load_federation(federation), requests, authority, days)
    if as_json:
        emit("cert sign", {"signed": [each.to_dict() for each in signed]})
        return
    for each in signed:
        say(f"{each.name}: {each.certificate}, sha256 {each.fingerprint}")
        say(f"  request: {each.words}")


@cert_app.command()
def show(
    file: Annotated[Path, typer.Argument(help="A certificate, a PEM file.")],
    as_json: JsonOption = False,
) -> None:
    """Show what a certificate says.

    Example: `dpadmm cert show trial/north.pem`

    Compare the fingerprint by telephone.
    """
    with refusals("cert show", as_json):
        from dpadmm.federation.identity import read_certificate
        from dpadmm.federation.pins import spoken

        facts = read_certificate(file)
    if as_json:
        emit("cert show", {"certificate": str(file), **facts.to_dict()})
        return
    kind = "authority" if facts.authority else "node"
    say(f"name: {facts.name} ({kind})")
    say(f"signed by: {facts.issuer}")
    if facts.hosts:
        say(f"reached as: {', '.join(facts.hosts)}")
    left = f"{facts.days_left} days left" if facts.days_left >= 0 else "EXPIRED"
    say(f"valid: {facts.not_before:%Y-%m-%d %H:%M} to {facts.not_after:%Y-%m-%d %H:%M} UTC, {left}")
    say(f"sha256: {facts.fingerprint}")
    say(f"in words: {spoken(facts.fingerprint)}")
