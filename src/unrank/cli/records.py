"""Commands on the records of a bench: pack."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unrank.cli.option import Quiet
from unrank.cli.show import say
from unrank.disk import check_free
from unrank.errors import count

BENCH = "The folder that 'unrank bench' wrote, or a packed file."


def pack(
    bench: Annotated[list[Path], typer.Argument(metavar="BENCH...", help=BENCH)],
    out: Annotated[Path, typer.Option("--out", help="The file to write, which ends with .jsonl.gz.")],
    quiet: Quiet = False,
) -> None:
    """Pack the finished cells of a bench in one file, which 'unrank report' reads and which others can be given."""
    from unrank.bench.packed import pack_benches

    check_free(out)
    cells = pack_benches(bench, out)
    if not quiet:
        say(f"{count(cells, 'cell')} in {out}")
