"""Results as text and tables."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from unrank.errors import CONTROL_CHARACTERS, LONGEST_LINE, count, one_line, printable_line
from unrank.record import SETS, PairRank
from unrank.report.wording import ASK_FOR_INDEX, NOT_A_RANK, interval_words
from unrank.report.wording import duration as duration
from unrank.report.wording import epochs_of as epochs_of
from unrank.report.wording import numbered as numbered

if TYPE_CHECKING:
    from unrank.collection.collection import Collection, Pairs
    from unrank.collection.duplicates import Duplicates, TextCopy
    from unrank.collection.partition import Partition
    from unrank.collection.removal import Removal
    from unrank.engine.pieces import Made, Pieces
    from unrank.evaluation.scorecard import Scorecard, SetMetrics
    from unrank.forgetting.evaluate import ReferenceComparison
    from unrank.forgetting.forget import Forgotten
    from unrank.record import Record, SubstituteSummary, WholeIndexRanks

COPIES_SHOWN = 10
LABELS = {
    "forget": "forget",
    "entangled": "entangled",
    "disjoint": "disjoint",
    "test": "test",
    "forget_full": "forget, paper's way",
}


def console() -> Console:
    return Console(highlight=False)


def say(line: str) -> None:
    """Print a line, with control characters escaped."""
    console().print(printable_line(line), markup=False, soft_wrap=True)


def say_json(value: Any) -> None:
    """Print JSON, with control characters escaped."""
    print(CONTROL_CHARACTERS.sub(lambda found: json.dumps(found.group())[1:-1], json.dumps(value, ensure_ascii=False)))


def show_made(done: Made, pieces: Pieces, as_json: bool, quiet: bool) -> None:
    """Say what a worker did of a table that is made in pieces."""
    if as_json:
        say_json(vars(done))
    elif not quiet:
        say(done.in_words(pieces.table.name, pieces.file))


def notice(line: str) -> None:
    """Print a line on standard error, with control characters escaped, so that the output stays as it was asked for."""
    print(printable_line(line), file=sys.stderr)


def tell_unrecognised(record: Record | None, silent: bool) -> None:
    """Say that earlier requests of a ranker cannot be recognised here, if the listener of the job is silent."""
    from unrank.forgetting.previous_requests import not_recognised

    if silent and (warning := not_recognised(record)):
        notice(warning)


def tell_other_collection(record: Record | None, collection: Collection) -> None:
    """Say that the record of a ranker is of another collection than the one that is measured or forgotten from."""
    if record is None or record.collection.fingerprint == collection.fingerprint:
        return
    name, given = record.collection.name, collection.name
    which = f"the collection {name!r}" if name != given else f"another collection of the name {name!r}"
    notice(f"the ranker's record is of {which}, not of this one: whether it was trained on this one is not known")


def show_copies(found: Duplicates, removed: bool) -> None:
    """Name the copies of what is to be forgotten, on standard error."""
    if found.copies:
        copies = f"in the collection, {count(len(found.copies), 'copy')} of what is named"
        notice(
            f"{copies}: removed too; --no-copies leaves copies" if removed else f"{copies}: left, as --no-copies says"
        )
        _show_texts(found.copies)
    if found.tests:
        notice(
            f"in the collection, {count(len(found.tests), 'test query')} with a removed text: "
            "no ranker was trained on it, so none can forget it; import the collection without it"
        )
        _show_texts(found.tests)


def _show_texts(copies: Sequence[TextCopy]) -> None:
    for copy in copies[:COPIES_SHOWN]:
        like = "the same text as" if copy.exact else f"has much ({copy.likeness:.2f}) of the text of"
        notice(f"  {copy.kind} {copy.id}: {like} {copy.of}")
    if len(copies) > COPIES_SHOWN:
        notice(f"  and {len(copies) - COPIES_SHOWN:,} more")


def show_counts(counts: Mapping[str, str | float]) -> None:
    """Print counts as two columns."""
    table = Table.grid(padding=(0, 2))
    for name, value in counts.items():
        shown = f"{value:,}" if isinstance(value, int | float) else escape(one_line(str(value), LONGEST_LINE))
        table.add_row(name.replace("_", " "), shown)
    console().print(table)


def show_partition(partition: Partition) -> None:
    """Print how many training pairs a removal affects."""
    queries, documents = (len({*partition.forget[:, side].tolist()}) for side in (0, 1))
    say("the removal would")
    forgotten = count(len(partition.forget), "pair")
    say(f"  forget {forgotten}, of {count(queries, 'query')} and {count(documents, 'document')}")
    say(f"  touch  {count(len(partition.entangled), 'kept pair')} sharing a query or a document with those (entangled)")
    say(f"  leave  {count(len(partition.disjoint), 'kept pair')} sharing nothing with them (disjoint)")


NO_SUBSTITUTE = "no substitute was measured: what they replace answers no training query that is to be forgotten"


def show_scorecard(scorecard: Scorecard) -> None:
    """Print the metrics of each set."""
    table = Table("set", "MRR", "95 % interval", "nDCG@10", "queries", box=None)
    for name, label in LABELS.items():
        measured: SetMetrics | None = getattr(scorecard, name)
        if measured is None:
            table.add_row(label, "none", "", "", "0")
        else:
            table.add_row(
                label,
                f"{measured.mean:.3f}",
                interval_words(measured.low, measured.high, len(measured.queries)),
                f"{measured.ndcg:.3f}",
                f"{len(measured.queries):,}",
            )
    console().print(table)


def show_whole_index(found: Mapping[str, WholeIndexRanks] | None) -> None:
    """Print the ranks of each set among all documents of an index, or that these are another figure."""
    if found is None:
        say(ASK_FOR_INDEX)
        return
    say(f"{NOT_A_RANK}; over the whole index:")
    table = Table("set", "MRR", "median rank", "in the first 10", "not in the index", "queries", box=None)
    for name, each in found.items():
        rank = "none" if each.median_rank is None else f"{each.median_rank:,g}"
        table.add_row(
            name, f"{each.mrr:.3f}", rank, *(f"{n:,}" for n in (each.first_ten, each.not_in_index, each.queries))
        )
    console().print(table)


def show_substitutes(
    before: SubstituteSummary | None, after: SubstituteSummary | None, removal: Removal | None
) -> None:
    """Print where substitutes stand, and where they stood if that is known; or why none of those named is measured."""
    if after is None:
        if removal is not None and removal.substitutes:
            say(f"{NO_SUBSTITUTE}")
        return
    was = f"; before: {before}" if before is not None else ""
    say(f"substitutes of {count(after.pairs, 'forget pair')}: {after}{was}")


def show_change(result: Forgotten) -> None:
    """Print the MRR of each set before and after."""
    table = Table("set", "before", "after", "change (95 %)", "kept", "queries", box=None)
    for name in SETS:
        before: SetMetrics | None = getattr(result.before, name)
        after: SetMetrics | None = getattr(result.after, name)
        if before is None or after is None:
            table.add_row(name, "none", "none", "", "", "0")
            continue
        change = interval_words(*after.change_since(before), len(after.queries), "+.3f")
        kept = f"{result.kept[name]:.3f}" if name in result.kept else ""
        table.add_row(name, f"{before.mean:.3f}", f"{after.mean:.3f}", change, kept, f"{len(after.queries):,}")
    console().print(table)


def show_sampled(result: Forgotten) -> None:
    """Print the sets of which only a sample was measured."""
    for name, whole in result.record.set_queries.items():
        measured: SetMetrics | None = getattr(result.after, name)
        if measured is not None and len(measured.queries) < whole:
            say(f"{name}: {len(measured.queries):,} of its {whole:,} queries were measured; --measure 0 takes all")


def show_comparison(compared: ReferenceComparison) -> None:
    """Print how far a ranker agrees with references on the forget set, beside the noise between these."""
    queries = next(iter(compared.references.values())).queries
    say(f"the forget set, {count(queries, 'query')} one by one:")
    table = Table("compared with", "distance", "95 % interval", "correlation", "overlap of lists", box=None)
    rows = {escape(one_line(name, LONGEST_LINE)): each for name, each in compared.references.items()}
    short = {Path(name).name: each for name, each in rows.items()}
    rows = short if len(short) == len(rows) else rows
    if compared.noise is not None:
        rows["each other"] = compared.noise
    for name, each in rows.items():
        related, overlap = (
            "undefined" if value is None else f"{value:.3f}" for value in (each.correlation, each.rank_biased_overlap)
        )
        table.add_row(name, f"{each.distance:.3f}", interval_words(each.low, each.high, each.queries), related, overlap)
    console().print(table)
    if compared.noise is None:
        say("with a second --reference, retrained with another seed, the noise between the two would be known")


def show_agreement(record: Record) -> None:
    """Print the distance to the reference before and after, query by query."""
    if record.agreement is not None:
        before, after = record.agreement.before, record.agreement.after
        line = (
            f"query by query, the forget set is {after.distance:.3f} from the reference's, before {before.distance:.3f}"
        )
        related = [
            "undefined" if value is None else f"{value:.2f}" for value in (after.correlation, before.correlation)
        ]
        say(f"{line}; correlation {related[0]}, before {related[1]}")


def show_recovery(record: Record) -> None:
    """Print the forget MRR after one epoch on kept data."""
    if record.recovery is not None:
        found = record.recovery
        line = f"after one epoch on kept data the forget MRR goes from {found.before:.3f} to {found.after:.3f}"
        if found.reference_after is not None:
            line += f"; the reference's from {found.reference_before:.3f} to {found.reference_after:.3f}"
        say(line)


def show_cleared(record: Record) -> None:
    """Print how many rows of the vocabulary were set back, because only removed texts touch them."""
    if record.cleared is not None and record.cleared.reset:
        rows = count(record.cleared.reset, "row")
        say(f"{rows} of the vocabulary that only removed texts touch are now as if training had not read these texts")


def show_entries(record: Record) -> None:
    """Print how many entries of a document's vector are not zero, before and after, if vectors are sparse."""
    found = record.entries
    if found is not None and found.before is not None:
        say(f"entries of a document's vector that are not zero, on average: {found.before:.1f}, now {found.after:.1f}")


def show_earlier(record: Record) -> None:
    """Print the MRR of previous requests before and after."""
    if record.earlier is not None:
        say(str(record.earlier))


def show_worst_pair(result: Forgotten, collection: Collection, forget: Pairs) -> None:
    """Print the worst forget pair, and how many pairs that had to fall did not.

    `forget` are the forget pairs in the order of the partition.
    """
    before, after, ranks = result.before.pair_ranks, result.after.pair_ranks, result.judgement.ranks
    assert before is not None and after is not None and ranks.worst is not None
    places = [None] * len(after) if result.places is None else result.places.ranks.tolist()
    every = [PairRank(then, now, 0, place) for then, now, place in zip(before, after, places, strict=True)]
    worst = min(range(len(every)), key=lambda number: every[number].order)
    query, document = (
        texts.id(int(row)) for texts, row in zip((collection.queries, collection.documents), forget[worst], strict=True)
    )
    falling = sum(ranks.had_to_fall)
    say(f"worst pair of {ranks.pairs:,}: query {query}, document {document}: {ranks.worst}")
    had, stayed = "had to fall", "did not"
    if ranks.places:  # some pairs may stand there, by chance
        had, stayed = "stood higher than places allow", "did not fall"
    say(f"{count(falling, 'pair')} {had}, {ranks.unmoved:,} {stayed}; {ranks.changed:,} of {ranks.pairs:,} changed")


def between(low: float, high: float) -> str:
    """Return a range of times in one unit, rounded outwards.

    >>> between(100, 290), between(3, 5.2), between(20, 130), between(7200, 7200)
    ('between 1 and 5 minutes', 'between 3 and 6 seconds', 'up to 3 minutes', 'about 2 hours')
    """
    unit, name = next((each for each in ((3600, "hour"), (60, "minute")) if high > 1.5 * each[0]), (1, "second"))
    least, most = math.floor(low / unit), max(1, math.ceil(high / unit))
    shown = name if most == 1 else f"{name}s"
    if least == most:
        return f"about {most} {shown}"
    return f"between {least} and {most} {shown}" if least else f"up to {most} {shown}"
