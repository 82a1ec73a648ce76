"""The commands `desk certificate`, `verify` and `match`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unrank.cli.option import (
    DESK_LEDGER,
    NOT_REACHED,
    NOT_VERIFIABLE,
    AsJson,
    KeyFile,
    LedgerFlags,
    Out,
    Quiet,
    RequestNumber,
    with_flags,
)
from unrank.cli.show import say, say_json
from unrank.desk.key import key_file
from unrank.desk.ledger import Ledger
from unrank.errors import BadFile, UnrankError, count

if TYPE_CHECKING:
    from unrank.desk.verification import Verification

PUBLIC = "The public key that must have signed it; by default those of your own ledger, if its key is there too."
RANKER = "The folder of a ranker: every file in it is compared with the certificate."
LEDGER = LedgerFlags()
CertificateFolder = Annotated[Path, typer.Argument(metavar="CERTIFICATE", help="The folder of a certificate.")]


@with_flags
def certificate(request: RequestNumber, out: Out, files: LedgerFlags, quiet: Quiet = False) -> None:
    """Write the certificate of a settled request: a page to print and a signed JSON file."""
    with Ledger.open(files.ledger) as desk:
        secret = desk.key(files.key_file)

        from unrank.desk.certificate import write_certificate

        made = write_certificate(desk, secret, request, out)
    if not quiet:
        say(f"request {request}: {made['state']}; written to {out}; the public key is {secret.public}")


@dataclass(frozen=True)
class VerifyFlags:
    """The key, the ledger and the ranker that a certificate is compared with."""

    public_key: Annotated[str | None, typer.Option("--public-key", help=PUBLIC)] = None
    ranker: Annotated[Path | None, typer.Option("--ranker", help=RANKER)] = None
    ledger: Annotated[
        Path | None, typer.Option("--ledger", help="The ledger of requests; by default desk.ledger, if it exists.")
    ] = None
    key: KeyFile = None

    @property
    def at_hand(self) -> Path:
        return self.ledger or DESK_LEDGER

    @property
    def key_file(self) -> Path:
        return self.key or key_file(self.at_hand)


@with_flags
def verify(
    flags: VerifyFlags,
    place: Annotated[
        Path | None,
        typer.Argument(metavar="[CERTIFICATE]", help="The folder of a certificate; without it, only the ledger."),
    ] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Check a certificate, the ranker that it is about, and the ledger; exit 3 if not as certified, 4 if not known."""
    from unrank.desk.signature import read_public_key

    known = read_public_key(flags.public_key) if flags.public_key is not None else None
    if place is None:
        if flags.ranker is not None or known is not None:
            raise UnrankError("--ranker and --public-key need a certificate: name its folder")
        _verify_ledger(flags, as_json, quiet)
        return
    found = _verification(place, flags, known)
    if as_json:
        say_json(found.to_json())
    else:
        for line in found.lines() if not (quiet and found.holds and found.trusted_by) else ():
            say(line)
    if not found.holds:
        raise typer.Exit(NOT_REACHED)
    if found.trusted_by is None:
        raise typer.Exit(NOT_VERIFIABLE)


def _verify_ledger(flags: VerifyFlags, as_json: bool, quiet: bool) -> None:
    with Ledger.open(flags.at_hand) as desk:
        if flags.key_file.exists():
            desk.key(flags.key_file)
        desk.verify()
        entries = desk.head()[0]
    if as_json:
        say_json({"history_entries": entries})
    elif not quiet:
        say(f"{flags.at_hand}: the history of {count(entries, 'entry')} is complete")


def _verification(place: Path, flags: VerifyFlags, known: str | None) -> Verification:
    """Verify a certificate. A key is trusted if the user names it, or if it is that of the user's own ledger."""
    from unrank.desk.signature import read_signed
    from unrank.desk.verification import Verification, check_anchor, compare_files

    trusted = {known: "--public-key"} if known is not None else {}
    entries = None
    if flags.ledger is not None or flags.at_hand.exists():
        with Ledger.open(flags.at_hand) as desk:
            if known is None and flags.key_file.exists():
                trusted = {desk.key(flags.key_file).public: str(flags.at_hand)}
            desk.verify()
            check_anchor(desk, read_signed(place, trusted or None))
            entries = desk.head()[0]
    signed = read_signed(place, trusted or None)
    differences = None if flags.ranker is None else compare_files(signed, flags.ranker)
    return Verification(place, signed, trusted.get(signed.public_key), flags.ranker, differences, entries)


@with_flags
def match(
    place: CertificateFolder,
    text: Annotated[Path | None, typer.Option("--text", help="A file with the text of a query or a document.")] = None,
    id: Annotated[str | None, typer.Option("--id", help="The id of a query or a document.")] = None,
    as_json: AsJson = False,
    files: LedgerFlags = LEDGER,
) -> None:
    """Show with the ledger's key that a certificate is about a text or an id; exit 3 if it is not."""
    if (text is None) == (id is None):
        raise UnrankError("give either --text FILE or --id ID")
    with Ledger.open(files.ledger) as desk:
        secret = desk.key(files.key_file)

    from unrank.desk.commitment import matched
    from unrank.desk.signature import read_signed

    signed = read_signed(place, [secret.public])
    if signed.version == 1:
        raise UnrankError(f"{place}: a certificate of version 1 holds no commitment to single texts: it cannot tell")
    found = matched(secret, signed.value["request"]["commitment"], text=None if text is None else _text(text), id=id)
    if as_json:
        say_json({"request": signed.request, "state": signed.value["state"], "about_it": bool(found), "as": found})
    else:
        what = "this text" if id is None else f"the id {id!r}"
        about = f"is about {what}: it is {' and '.join(found)}" if found else f"is NOT about {what}"
        say(f"{place}: the certificate of request {signed.request} ({signed.value['state']}) {about}")
    if not found:
        raise typer.Exit(NOT_REACHED)


def _text(path: Path) -> str:
    from unrank.disk import open_regular

    try:
        with open_regular(path) as file:
            return file.read().decode()
    except OSError as error:
        raise BadFile(path, error.strerror or "cannot be read") from error
    except UnicodeDecodeError as error:
        raise BadFile(path, "not UTF-8 text") from error
