"""The command `filter`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unrank.cli.option import KeyFile, LedgerFile, Quiet
from unrank.cli.show import say
from unrank.desk.key import key_file
from unrank.desk.ledger import Ledger
from unrank.errors import count

DATA = "New training data: beir:PATH, trec:PATH, triples:PATH, irds:ID."


def filter_(
    data: Annotated[str, typer.Argument(metavar="DATA", help=DATA)],
    out: Annotated[Path, typer.Option("--out", help="The file or folder to write; it must not exist.")],
    ledger: LedgerFile = Path("desk.ledger"),
    key: KeyFile = None,
    quiet: Quiet = False,
) -> None:
    """Copy new training data without what was removed before."""
    with Ledger.open(ledger) as opened:
        secret = opened.key(key or key_file(ledger))
        opened.verify()

        from unrank.desk.filter import filter_source
        from unrank.desk.matcher import Matcher

        rows = filter_source(data, out, Matcher.of(opened, secret))
    for name, read in rows.read.items():
        if not quiet or rows.dropped[name]:
            say(f"{name}: {count(read, 'row')}, {rows.dropped[name]:,} dropped")
    if not quiet:
        say(f"written to {out}")
