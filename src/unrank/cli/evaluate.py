"""The command `evaluate`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import permutations
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unrank.cli.option import (
    MEASURED,
    WHOLE,
    AsJson,
    CollectionFolder,
    Copies,
    DeviceFlags,
    Measure,
    PieceFlags,
    RankerName,
    RemovalFile,
    WholeIndexOption,
    with_flags,
)
from unrank.cli.ranker import open_both
from unrank.cli.show import (
    say,
    say_json,
    show_comparison,
    show_made,
    show_scorecard,
    show_substitutes,
    show_whole_index,
    tell_other_collection,
    tell_unrecognised,
)
from unrank.cli.whole_index import ranks_over_index
from unrank.disk import check_free, check_outside, folder_hash, several_processes, sha256, whole_path
from unrank.errors import UnrankError, count

if TYPE_CHECKING:
    from unrank.collection.collection import Collection
    from unrank.collection.removal import Removal
    from unrank.engine.runtime import Progress
    from unrank.evaluation.scorecard import MeasuredLists, Scorecard
    from unrank.record import Record

REFERENCE = (
    "A ranker retrained without what is removed, or the file that --details wrote for it: how far the two agree on the "
    "forget set, query by query. Give two for the noise between them. Repeatable."
)
DETAILS = "Also write the figures of every query to this file, so that a later comparison needs no weights."
RUNS = "Also write the lists of every set to this new folder as TREC runs, which trec_eval reads."
QRELS = "Also write the judgements of every set to this new folder as TREC qrels."
SCORES = (
    "Also write the scores of the measured lists to an Arrow file in this folder, in pieces; pieces that are there are "
    "not scored again."
)
ORIGINAL = "The ranker before it forgot: its runs are written beside those of the ranker, as SET.before.run."


@dataclass(frozen=True)
class FileFlags:
    """The options that write files."""

    details: Annotated[Path | None, typer.Option("--details", metavar="FILE", help=DETAILS)] = None
    runs: Annotated[Path | None, typer.Option("--runs", metavar="DIR", help=RUNS)] = None
    qrels: Annotated[Path | None, typer.Option("--qrels", metavar="DIR", help=QRELS)] = None
    original: Annotated[str | None, typer.Option("--original", metavar="RANKER", help=ORIGINAL)] = None

    def check(self, *inputs: str | Path, scores: Path | None = None) -> None:
        """Refuse files and folders that could not be written, before any work is done.

        Each is written whole, so no other may be in it, nor what is written to the folder `scores`.
        """
        given = {"--details": self.details, "--runs": self.runs, "--qrels": self.qrels}
        new = {option: out for option, out in given.items() if out is not None}
        for option, out in new.items():
            check_outside(out, *inputs, option=option)
            check_free(out, option)
        places = {option: whole_path(out) for option, out in {**new, "--scores": scores}.items() if out is not None}
        for (option, place), (other, outer) in permutations(places.items(), 2):
            together = place == outer and {option, other} == {"--runs", "--qrels"}
            if other in new and place.is_relative_to(outer) and not together:
                raise UnrankError(f"{option} {place} is not outside {other} {outer}: choose another place for one")
        if self.original is not None and self.runs is None:
            raise UnrankError("--original is measured for its runs: name a folder for them with --runs")
        if self.original == "bm25":
            raise UnrankError("--original takes a ranker; measure bm25 by itself: 'unrank evaluate bm25 ...'")


@dataclass(frozen=True)
class ScoreFlags(PieceFlags):
    """The options that store the scores of the measured lists in pieces, made by one worker or by several."""

    scores: Annotated[Path | None, typer.Option("--scores", metavar="DIR", help=SCORES)] = None

    def check_with(self, ranker: str, *inputs: str | Path) -> None:
        """Refuse what cannot be done in pieces."""
        self.check()
        if self.scores is None:
            if self.on is not None or self.shard != WHOLE:
                raise UnrankError("--shard and --on share the scores of a folder: name it with --scores")
            return
        check_outside(self.scores, ranker, *inputs, option="--scores")
        if ranker == "bm25":
            raise UnrankError("--scores takes a ranker; bm25 is measured in one piece: leave it out")
        if several_processes():
            raise UnrankError("--scores is shared by --shard or --on ray: start it without torchrun or accelerate")


def check_distinct(references: Sequence[str]) -> None:
    """Refuse a reference that is given twice: how far a ranker is from itself is no noise."""
    seen: dict[str, str] = {}
    for name in references if len(references) > 1 else ():
        files = sha256(Path(name)) if Path(name).is_file() else folder_hash(Path(name)) or name
        if files in seen:
            raise UnrankError(f"--reference {seen[files]} and {name} are the same: name another retrained ranker")
        seen[files] = name


FILES, STORED, DEVICE = FileFlags(), ScoreFlags(), DeviceFlags()


@with_flags
def evaluate(
    ranker: RankerName,
    collection: CollectionFolder,
    removal: RemovalFile = None,
    copies: Copies = True,
    measure: Measure = MEASURED,
    reference: Annotated[list[str] | None, typer.Option("--reference", help=REFERENCE)] = None,
    files: FileFlags = FILES,
    index: WholeIndexOption = None,
    stored: ScoreFlags = STORED,
    as_json: AsJson = False,
    on: DeviceFlags = DEVICE,
) -> None:
    """Measure a ranker, or the baseline bm25, on the forget, entangled, disjoint and test pairs."""
    files.check(ranker, collection, *(reference or ()), *filter(None, [files.original]), scores=stored.scores)
    stored.check_with(ranker, collection)
    if reference and removal is None:
        raise UnrankError("--reference compares what is forgotten: name what was removed with --removal")
    check_distinct(reference or ())
    opened, removed = open_both(collection, removal, copies)

    from unrank.engine.pieces import Pieces
    from unrank.forgetting.evaluate import compare_with, reference_figures
    from unrank.forgetting.previous_requests import check_references
    from unrank.forgetting.progress import show_progress
    from unrank.forgetting.stored_scores import ScoringJob
    from unrank.rankers import record_of

    record = None if ranker == "bm25" else record_of(ranker)
    tell_unrecognised(record, on.quiet or as_json)
    if removed is not None:  # else nobody asks what it remembers
        tell_other_collection(record, opened)
    with show_progress(on.quiet or as_json) as listener:
        how = (record, opened, removed, measure, on, listener)
        measure_ranker = partial(_measure, ranker, *how)
        if stored.scores is not None:
            job = ScoringJob(stored.scores, ranker, collection, removed, measure, on.device, on.fast)
            table = job.table(listener)
            pieces = Pieces(stored.scores, table)
            if (done := stored.run(pieces, job, listener)).missing:
                show_made(done, pieces, as_json, on.quiet)
                return
            measure_ranker = partial(table.measure, pieces)
        if removed is not None:
            check_references(reference or (), opened, removed)
            where = (opened, removed, on.device, listener, on.fast)
            references = {name: reference_figures(name, *where) for name in reference or ()}
        whole = ranks_over_index(index, ranker, opened, removed, measure, on, listener) if index else None
        scorecard, lists = measure_ranker()
        before = _measure(files.original, *how)[1] if files.original else None
    compared = compare_with(scorecard, references) if reference else None
    if files.details is not None:
        _write_details(files.details, scorecard, opened, removed)
    _write_trec(files, opened, lists, before, on.quiet or as_json)
    if as_json:
        found = {"whole_index": {name: asdict(each) for name, each in whole.items()}} if whole is not None else {}
        say_json(scorecard.to_json() | (compared.to_json() if compared else {}) | found)
        return
    show_scorecard(scorecard)
    show_substitutes(None, scorecard.substitutes, removed)
    show_whole_index(whole)
    if compared is not None:
        show_comparison(compared)


def _measure(
    name: str,
    record: Record | None,
    collection: Collection,
    removal: Removal | None,
    measure: int,
    on: DeviceFlags,
    progress: Progress,
) -> tuple[Scorecard, dict[str, MeasuredLists]]:
    """Return the scorecard and the lists of a ranker, or of bm25. `record` names what is left out."""
    from unrank.forgetting.evaluate import evaluate_bm25, evaluate_with_lists
    from unrank.rankers import load_ranker

    if name == "bm25":
        return evaluate_bm25(collection, removal, measure)
    return evaluate_with_lists(
        load_ranker(name, on.fast),
        collection,
        removal,
        record=record,
        measure=measure,
        device=on.device,
        progress=progress,
    )


def _write_trec(
    to: FileFlags,
    collection: Collection,
    after: dict[str, MeasuredLists],
    before: dict[str, MeasuredLists] | None,
    quiet: bool,
) -> None:
    """Write runs and qrels to their folders, which may be the same one."""
    from unrank.evaluation.trec_files import TrecFiles, count_escaped, qrels_files, run_files, write_trec

    folders: dict[Path, dict[str, Iterator[str]]] = {}
    sides = [("before", before), ("after", after)] if before is not None else [("", after)]
    made: list[tuple[Path | None, TrecFiles]] = [(to.qrels, qrels_files(after, collection))]
    made += [(to.runs, run_files(lists, collection, when)) for when, lists in sides if lists is not None]
    for folder, files in made:
        if folder is not None:
            folders.setdefault(whole_path(folder), {}).update(files)
    for folder, files in folders.items():
        write_trec(folder, files)
    if folders and not quiet:
        say(f"TREC files are in {' and '.join(map(str, folders))}; ties are written as scores that fall strictly")
        if changed := count_escaped(after, collection):
            say(f"{count(changed, 'id')} with blanks or percent signs: written with percent escapes, such as %20")


def _write_details(out: Path, scorecard: Scorecard, collection: Collection, removal: Removal | None) -> None:
    from unrank.collection.partition import NO_PAIRS, make_partition
    from unrank.evaluation.query_details import write_details

    forget = make_partition(collection, removal).forget if removal is not None else NO_PAIRS
    write_details(out, scorecard, collection, forget)
