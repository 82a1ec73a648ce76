"""The commands `desk certificate` and `verify`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unrank.cli.option import DESK_LEDGER, LedgerFlags, Out, Quiet, RequestNumber, with_flags
from unrank.cli.show import say
from unrank.desk.ledger import Ledger
from unrank.errors import count

PUBLIC = "The public key that must have signed it; by default the ledger's, if there is one."


@with_flags
def certificate(request: RequestNumber, out: Out, files: LedgerFlags, quiet: Quiet = False) -> None:
    """Write the certificate of a fulfilled request: a page to print and a signed JSON file."""
    with Ledger.open(files.ledger) as desk:
        secret = desk.key(files.key_file)

        from unrank.desk.certificate import write_certificate

        write_certificate(desk, secret, request, out)
    if not quiet:
        say(f"written to {out}; the public key is {secret.public}")


def verify(
    place: Annotated[
        Path | None,
        typer.Argument(metavar="[CERTIFICATE]", help="The folder of a certificate; without it, only the ledger."),
    ] = None,
    public_key: Annotated[str | None, typer.Option("--public-key", help=PUBLIC)] = None,
    ledger: Annotated[
        Path | None, typer.Option("--ledger", help="The ledger of requests; by default desk.ledger, if it exists.")
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Check that no byte of a certificate was changed, and that the ledger's history is complete."""
    from unrank.desk.signature import check_anchor, read_public_key, read_signed

    trusted = read_public_key(public_key) if public_key is not None else None
    at_hand = ledger or DESK_LEDGER
    if place is None or ledger is not None or at_hand.exists():
        with Ledger.open(at_hand) as desk:
            desk.verify()
            trusted = trusted or desk.about("public_key")
            if place is not None:
                check_anchor(desk, read_signed(place, trusted))
            if not quiet:
                say(f"{at_hand}: the history of {count(desk.head()[0], 'entry')} is complete")
    if place is not None:
        signed = read_signed(place, trusted)
        if not quiet or trusted is None:
            say(f"{place}: no byte was changed; request {signed.value['request']['id']}, signed by {signed.public_key}")
        if trusted is None:
            say("anyone can sign: compare that key with the one you were given, or name it with --public-key")
