"""The commands `desk certificate` and `desk verify`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unrank.cli.option import KeyFile, LedgerFile, Out, RequestNumber
from unrank.cli.show import say
from unrank.desk.key import key_file
from unrank.desk.ledger import Ledger
from unrank.errors import count

PUBLIC = "The public key that must have signed it; by default the ledger's, where there is one."


def certificate(
    request: RequestNumber, out: Out, ledger: LedgerFile = Path("desk.ledger"), key: KeyFile = None
) -> None:
    """Write the certificate of a fulfilled request: a page to print and a signed JSON file."""
    with Ledger.open(ledger) as desk:
        secret = desk.key(key or key_file(ledger))

        from unrank.desk.certificate import write_certificate

        write_certificate(desk, secret, request, out)
    say(f"written to {out}; the public key is {secret.public}")


def verify(
    place: Annotated[
        Path | None, typer.Argument(metavar="[CERTIFICATE]", help="The folder of a certificate; else the ledger alone.")
    ] = None,
    public_key: Annotated[str | None, typer.Option(help=PUBLIC)] = None,
    ledger: Annotated[
        Path | None, typer.Option(help="The ledger of requests; by default desk.ledger, where it is there.")
    ] = None,
) -> None:
    """Check that not one byte of a certificate was changed, and that the ledger's history is whole."""
    from unrank.desk.seal import check_anchor, read_public_key, read_sealed

    trusted = read_public_key(public_key) if public_key is not None else None
    at_hand = ledger or Path("desk.ledger")
    if place is None or ledger is not None or at_hand.exists():
        with Ledger.open(at_hand) as desk:
            desk.verify()
            trusted = trusted or desk.about("public_key")
            if place is not None:
                check_anchor(desk, read_sealed(place, trusted))
            say(f"{at_hand}: the history of {count(desk.head()[0], 'entry')} is whole")
    if place is not None:
        sealed = read_sealed(place, trusted)
        say(f"{place}: not a byte was changed; request {sealed.value['request']['id']}, signed by {sealed.public_key}")
        if trusted is None:
            say("anyone can sign: compare that key with the one you were given, or name it with --public-key")
