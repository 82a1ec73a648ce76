"""Read records, make the page, the figures and the tables, and write them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from unrank.bench.packed import PACKED, is_packed
from unrank.disk import check_free, new_folder, read_json, write_new
from unrank.errors import BadFile, UnrankError
from unrank.record import RECORD, Said, run_of
from unrank.report.bench_folder import check_numbers, read_bench
from unrank.report.bench_page import bench_page
from unrank.report.drawing import Drawing, write_drawing
from unrank.report.page import Page, page_html
from unrank.report.rankings import read_rankings
from unrank.report.run_page import run_page
from unrank.report.table import Table, to_csv, to_latex, to_markdown
from unrank.report.wording import distinct

FORMATS = {"md": to_markdown, "csv": to_csv, "tex": to_latex}


def write_report(
    folder: Path,
    out: Path,
    details: Path | None = None,
    texts: bool = True,
    figures: Path | None = None,
    tables: Path | None = None,
    said: Said | None = None,
) -> Page:
    """Write the page of what `unrank forget` or `unrank bench` wrote, and folders of its figures and tables.

    `said` is what a bench is asked to compare, if it is said after the runs.
    """
    for new in filter(None, (out, figures, tables)):
        check_free(new)
    page, made = read_page(folder, details, texts, said)
    if figures is not None:
        write_figures(page.drawings, figures)
    if tables is not None:
        write_tables(made, tables)
    write_new(out, page_html(page))
    return page


def read_page(
    folder: Path, details: Path | None = None, texts: bool = True, said: Said | None = None
) -> tuple[Page, list[Table]]:
    """Return the page of a run or a bench, which may be packed, and its tables."""
    if (record := folder / RECORD).is_file():
        if said is not None:
            raise UnrankError("--primary and --margin belong to the report of a bench: one run compares no methods")
        check_numbers(value := read_json(record), record)
        run = run_of(value, record)
        return run_page(run, read_rankings(details, run) if details else None, texts)
    if not is_packed(folder) and not (folder / "cells").is_dir():
        raise BadFile(
            folder,
            "neither what 'unrank forget' wrote (unrank.json), nor 'unrank bench' (cells), nor 'unrank pack' "
            f"(a file {PACKED})",
        )
    if details is not None:
        raise UnrankError("--details belongs to one run of 'unrank forget': a bench has none")
    return bench_page(read_bench(folder), said)


def write_figures(drawings: Sequence[Drawing], out: Path) -> None:
    """Write each drawing as SVG, PDF and PNG."""
    with new_folder(out) as folder:
        for name, drawing in zip(distinct(drawing.name for drawing in drawings), drawings, strict=True):
            write_drawing(drawing, folder / name)


def write_tables(tables: Sequence[Table], out: Path) -> None:
    """Write each table as Markdown, CSV and LaTeX."""
    with new_folder(out) as folder:
        for name, table in zip(distinct(table.name for table in tables), tables, strict=True):
            for ending, write in FORMATS.items():
                (folder / f"{name}.{ending}").write_text(write(table), encoding="utf-8")
