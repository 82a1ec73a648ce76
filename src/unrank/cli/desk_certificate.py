"""The commands `desk certificate`, `verify`, `match`, `revoke`, `rotate`, `witness` and `restored`."""

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
    WriteFlags,
    notes_of,
    with_flags,
)
from unrank.cli.show import say, say_json
from unrank.desk.key import key_file, signing_file
from unrank.desk.ledger import Ledger
from unrank.desk.trust import Reason
from unrank.errors import BadFile, UnrankError, count

if TYPE_CHECKING:
    from unrank.desk.verification import Verification

PUBLIC = "The public key that must have signed it; by default those of your own ledger, if its key is there too."
RANKER = "The folder of a ranker: every file in it is compared with the certificate."
WITNESS = "A witness: the ledger must go on from the head that it holds."
AUTHORITY = "The root certificate (PEM) of the authority that stamped the witness."
TIMESTAMP = "The address of an RFC 3161 authority; it gets a hash of the witness and nothing else."
LEDGER, WRITTEN = LedgerFlags(), WriteFlags()
CertificateFolder = Annotated[Path, typer.Argument(metavar="CERTIFICATE", help="The folder of a certificate.")]


@with_flags
def certificate(request: RequestNumber, out: Out, files: WriteFlags, quiet: Quiet = False) -> None:
    """Write the certificate of a settled request: a page to print and a signed JSON file."""
    with files.open() as (desk, secret):
        from unrank.desk.certificate import write_certificate

        made = write_certificate(desk, secret, request, out)
    if not quiet:
        say(f"request {request}: {made['state']}; written to {out}; the public key is {secret.public}")


@dataclass(frozen=True)
class VerifyFlags:
    """The key, the ledger and the ranker that a certificate is compared with."""

    public_key: Annotated[str | None, typer.Option("--public-key", help=PUBLIC)] = None
    ranker: Annotated[Path | None, typer.Option("--ranker", help=RANKER)] = None
    witness: Annotated[Path | None, typer.Option("--witness", help=WITNESS)] = None
    authority: Annotated[Path | None, typer.Option("--authority", help=AUTHORITY)] = None
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
    """Check a certificate, its ranker and the ledger; exit code 3 if not as certified, 4 if not known."""
    from unrank.desk.signature import read_public_key

    known = read_public_key(flags.public_key) if flags.public_key is not None else None
    if place is None:
        if flags.ranker is not None or (known is not None and flags.witness is None):
            raise UnrankError("--ranker and --public-key need a certificate: name its folder")
        if not _verify_ledger(flags, known, as_json, quiet):
            raise typer.Exit(NOT_VERIFIABLE)
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


def _verify_ledger(flags: VerifyFlags, known: str | None, as_json: bool, quiet: bool) -> bool:
    """Verify a ledger, and that it goes on from a witness; return whether it is known who signed the witness."""
    with Ledger.read(flags.at_hand) as desk, notes_of(desk):
        from unrank.desk.trust import is_own, signers
        from unrank.desk.verification import UNKNOWN
        from unrank.desk.witness import check_witness, read_witness

        own = is_own(desk, flags.key_file)
        desk.verify()
        found: dict[str, object] = {"history_entries": desk.head()[0]}
        whole = "is complete" if own else "is unbroken; only its owner can know if it is complete"
        lines = [f"{flags.at_hand}: the history of {count(desk.head()[0], 'entry')} {whole}"]
        signer_known = True
        if flags.witness is not None:
            witness = read_witness(flags.witness)
            check_witness(desk, witness)
            signer_known = witness.signed_for(
                [known] if known else [signer.public for signer in signers(desk)] if own else []
            )
            lines.append(f"{flags.witness}: the history goes on from entry {witness.entries}, as it was witnessed")
            found |= {"witnessed_entries": witness.entries, "signer_known": signer_known}
            if flags.authority is not None:
                from unrank.desk.timestamp import check_stamp

                when = check_stamp(flags.witness, witness.content, flags.authority)
                lines.append(f"{flags.witness}: existed on {when:%Y-%m-%d at %H:%M:%S %Z}, by {flags.authority}")
                found |= {"stamped": when.isoformat()}
        found |= {"own": own, "notes": list(dict.fromkeys(desk.notes))}
    if as_json:
        say_json(found)
    else:
        for line in [*([] if signer_known else [UNKNOWN]), *lines] if not (quiet and signer_known) else ():
            say(line)
    return signer_known


def _verification(place: Path, flags: VerifyFlags, known: str | None) -> Verification:
    """Verify a certificate, with the ledger that is named or at hand."""
    from unrank.desk.verification import verify_certificate

    if flags.ledger is None and not flags.at_hand.exists():
        return verify_certificate(place, known, flags.ranker)
    with Ledger.read(flags.at_hand) as desk, notes_of(desk):
        return verify_certificate(place, known, flags.ranker, (desk, flags.key_file))


@with_flags
def match(
    place: CertificateFolder,
    text: Annotated[Path | None, typer.Option("--text", help="A file with the text of a query or a document.")] = None,
    id: Annotated[str | None, typer.Option("--id", help="The id of a query or a document.")] = None,
    as_json: AsJson = False,
    files: LedgerFlags = LEDGER,
) -> None:
    """Show with the ledger's key that a certificate is about a text or an id; exit code 3 if it is not."""
    if (text is None) == (id is None):
        raise UnrankError("give either --text FILE or --id ID")
    with files.read() as (desk, secret):
        from unrank.desk.trust import signers

        trusted = [signer.public for signer in signers(desk)]

    from unrank.desk.commitment import matched
    from unrank.desk.signature import read_signed

    signed = read_signed(place, trusted)
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


@with_flags
def revoke(
    place: CertificateFolder,
    reason: Annotated[Reason, typer.Option("--reason", help="Why the certificate no longer holds.")],
    files: WriteFlags = WRITTEN,
    quiet: Quiet = False,
) -> None:
    """Record in the ledger that a certificate no longer holds; 'desk verify' and 'desk witness' say so."""
    from unrank.desk.signature import read_signed
    from unrank.desk.trust import revoke as revoke_certificate

    with files.open() as (desk, _):
        desk.verify()
        signed = read_signed(place)
        revoke_certificate(desk, signed.digest, reason)
    if not quiet:
        say(f"the certificate of request {signed.request} in {place} is revoked; tell those who have a copy")


@with_flags
def rotate(files: WriteFlags, quiet: Quiet = False) -> None:
    """Replace the signing key; certificates of the former key stay valid."""
    from unrank.desk.trust import rotate as rotate_key

    with files.open() as (desk, _):
        desk.verify()
        public = rotate_key(desk, files.key_file)
    say(f"the public key is {public}")
    if not quiet:
        say(f"publish it; back up {signing_file(files.key_file)}; if the former key was stolen, revoke what it signed")


@with_flags
def witness(
    out: Annotated[Path, typer.Option("--out", help="The file to write; it must not exist.")],
    timestamp: Annotated[str | None, typer.Option("--timestamp", metavar="URL", help=TIMESTAMP)] = None,
    files: LedgerFlags = LEDGER,
    quiet: Quiet = False,
) -> None:
    """Write the signed head of the history, for somebody else to keep: it shows later if the ledger was rolled back."""
    from unrank.desk.timestamp import request_stamp, stamp_file
    from unrank.desk.witness import write_witness
    from unrank.disk import check_free, new_file

    for place in (out, stamp_file(out)):
        check_free(place)
    with files.read() as (desk, secret):
        made = write_witness(desk, secret, out)
    if not quiet:
        say(f"entry {made.entries} written to {out}: send it to somebody who keeps it")
    if timestamp is not None:
        stamp, when = request_stamp(made.content, timestamp)
        with new_file(stamp_file(out)) as partial:
            partial.write_bytes(stamp)
        say(f"stamped {when:%Y-%m-%d %H:%M:%S %Z} by {timestamp}, not checked; written to {stamp_file(out)}")


@with_flags
def restored(files: WriteFlags, quiet: Quiet = False) -> None:
    """Accept a ledger that was restored from a backup; its history records that entries may be missing."""
    with Ledger.open(files.ledger, by=files.by) as desk, notes_of(desk):
        desk.verify()
        missing = desk.accept(files.key_file)
    if missing is None:
        say(f"{files.ledger}: accepted as it is; every entry that this machine has seen of it is there")
    elif not quiet:
        say(f"{files.ledger}: accepted; this machine had seen entry {missing}: add again what came after the backup")


def _text(path: Path) -> str:
    from unrank.disk import open_regular

    try:
        with open_regular(path) as file:
            return file.read().decode()
    except OSError as error:
        raise BadFile(path, error.strerror or "cannot be read") from error
    except UnicodeDecodeError as error:
        raise BadFile(path, "not UTF-8 text") from error
