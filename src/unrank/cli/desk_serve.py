"""The commands `desk serve` and `desk token`: a page for the desk, and the people who may use it."""

from __future__ import annotations

import socket
import tempfile
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated

import typer

from unrank.cli.option import LedgerFlags, with_flags
from unrank.cli.show import say
from unrank.disk import check_writable, exists
from unrank.errors import UnrankError

TOKENS = "The file of the people who may sign in; by default beside the ledger, ending in .tokens."
CERTIFICATES = (
    "The folder for certificates that the page writes; by default beside the ledger, ending in .certificates."
)
HOST = "The address to listen at; others than those of this machine need --behind-tls."
NAME = "A name under which browsers reach it. Repeatable."
TLS = "Browsers reach it by https, through a proxy that adds TLS."
WITH = "The words of 'unrank desk run' for every plan and run, such as --reference retrained, after --."
DEMO = "Make a ledger with some requests in a scratch folder, and serve that."


class RoleName(StrEnum):
    """The roles of people at the desk."""

    clerk = "clerk"
    engineer = "engineer"
    auditor = "auditor"


@dataclass(frozen=True)
class ServeFlags:
    """Where the page is, and what it writes."""

    host: Annotated[str, typer.Option("--host", help=HOST)] = "127.0.0.1"
    port: Annotated[int, typer.Option("--port", help="The port; 0 for any free one.", min=0, max=65535)] = 8720
    name: Annotated[list[str] | None, typer.Option("--name", help=NAME)] = None
    behind_tls: Annotated[bool, typer.Option("--behind-tls", help=TLS)] = False
    tokens: Annotated[Path | None, typer.Option("--tokens", help=TOKENS)] = None
    certificates: Annotated[Path | None, typer.Option("--certificates", help=CERTIFICATES)] = None
    hours: Annotated[float, typer.Option("--hours", help="The length of a session.", min=0.1, max=168)] = 8.0
    posts: Annotated[int, typer.Option("--posts", help="The most posts of a session in a minute.", min=1)] = 120
    demo: Annotated[bool, typer.Option("--demo", help=DEMO)] = False


@with_flags
def serve(
    run_with: Annotated[list[str] | None, typer.Argument(metavar="[-- RUN-OPTIONS]", help=WITH)] = None,
    *,
    flags: ServeFlags,
    files: LedgerFlags,
) -> None:
    """Serve the desk as a page for people who do not program; on this machine alone, unless told otherwise."""
    _check_library()
    _check_host(flags)
    from unrank.serve.app import Server, run_server
    from unrank.serve.guard import Gate, names_of
    from unrank.serve.limits import Limits
    from unrank.serve.office import Office, Place
    from unrank.serve.people import People, read_people

    words = tuple(run_with or ())
    if flags.demo:
        from unrank.serve.demo import make_demo

        made = make_demo(Path(tempfile.mkdtemp(prefix="unrank-desk-")), say)
        place, tokens, words = made.place, made.tokens, (*made.place.run_words, *words)
    else:
        place = Place(
            files.ledger.absolute(),
            files.key_file.absolute(),
            _beside(flags.certificates, files.ledger, "certificates"),
        )
        tokens = _beside(flags.tokens, files.ledger, "tokens")
    place = Place(place.ledger, place.key, place.certificates, words)
    read_people(tokens)
    check_ledger(place.ledger, place.key)
    listening = _listen(flags.host, flags.port)
    port = listening.getsockname()[1]
    gate = Gate(names_of(tuple(flags.name or ()), port, flags.behind_tls), flags.behind_tls, Limits(posts=flags.posts))
    office = Office(place)
    office.clear_jobs()
    shown = f"https://{flags.name[0]}" if flags.behind_tls and flags.name else f"http://{_shown(flags.host)}:{port}"
    say(f"the desk of {place.ledger} is at {shown}; Ctrl-C stops it, runs go on")
    try:
        run_server(Server(office, People(tokens), gate, flags.hours).app(), listening)
    finally:
        office.close()


@with_flags
def token(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the person, for the history.")],
    role: Annotated[list[RoleName], typer.Option("--role", help="clerk, engineer or auditor. Repeatable.")],
    tokens: Annotated[Path | None, typer.Option("--tokens", help=TOKENS)] = None,
    files: LedgerFlags = LedgerFlags(),  # noqa: B008 - frozen
) -> None:
    """Make a token with which a person signs in to 'desk serve'; it is printed once and stored nowhere."""
    from unrank.serve.people import Role, make_token

    path = _beside(tokens, files.ledger, "tokens")
    check_writable(path)
    say(make_token(path, name, [Role(each.value) for each in role]))


def _beside(given: Path | None, ledger: Path, ending: str) -> Path:
    return (given or ledger.with_name(f"{ledger.name}.{ending}")).absolute()


def _check_library() -> None:
    try:
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise UnrankError(f"'desk serve' needs {error.name}: pip install 'unrank[serve]'") from error


def _check_host(flags: ServeFlags) -> None:
    """Refuse an address that others can reach, unless TLS is in front of it: tokens would travel in clear."""
    try:
        local = flags.host == "localhost" or ip_address(flags.host).is_loopback
    except ValueError as error:
        raise UnrankError(f"--host {flags.host} is not an address: give one such as 127.0.0.1 or 0.0.0.0") from error
    if not local and not flags.behind_tls:
        raise UnrankError(
            f"--host {flags.host} can be reached from elsewhere, and tokens would travel in clear: put a proxy with "
            "TLS in front, and give --behind-tls and --name"
        )
    if flags.behind_tls and not flags.name:
        raise UnrankError("--behind-tls needs --name: the name under which browsers reach the proxy")


def check_ledger(ledger: Path, key: Path) -> None:
    """Make the ledger if there is none; refuse one that cannot be used, before anybody asks for a page."""
    from unrank.desk.ledger import Ledger

    if not exists(ledger):
        with Ledger.open(ledger, make_with=key):
            say(f"{ledger} is new; keep a copy of its key, {key}, elsewhere: it cannot be replaced")
    with Ledger.read(ledger) as desk:
        desk.key(key)
        desk.verify()


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen(1024)
    except OSError as error:
        listening.close()
        raise UnrankError(f"cannot listen at {host}, port {port}: {error.strerror}; choose another --port") from error
    return listening


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host
