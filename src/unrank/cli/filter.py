"""The command `filter`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unrank.cli.option import KeyFile, LedgerFile
from unrank.cli.show import say
from unrank.desk.key import key_file
from unrank.desk.ledger import Ledger
from unrank.errors import count


def filter_(
    data: Annotated[
        str, typer.Argument(metavar="DATA", help="New training data: beir:PATH, trec:PATH, triples:PATH, irds:ID.")
    ],
    out: Annotated[Path, typer.Option("--out", help="Where to write what passes; it must not exist.")],
    ledger: LedgerFile,
    key: KeyFile = None,
) -> None:
    """Pass new training data on without what was removed, so that it does not come back."""
    with Ledger.open(ledger) as opened:
        secret = opened.key(key or key_file(ledger))
        opened.verify()

        from unrank.desk.filter import filter_source
        from unrank.desk.sieve import Sieve

        tally = filter_source(data, out, Sieve.of(opened, secret))
    for name, read in tally.read.items():
        say(f"{name}: {count(read, 'row')}, {tally.dropped[name]:,} dropped")
    say(f"written to {out}")
