"""Times, shares, lists and places in words, and names of files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import chain
from itertools import count as numbers

from unrank.errors import count
from unrank.record import PlacesFound, WholeIndex

NOT_A_RANK = (
    "an MRR over imported lists is not a rank in production: there all documents compete, and not only the candidates "
    "of a list"
)
NOTE_ON_RANKS = f"{NOT_A_RANK[0].upper()}{NOT_A_RANK[1:]}."
ASK_FOR_INDEX = f"{NOT_A_RANK}; for a ranker with document vectors, --index measures that"


def duration(seconds: float) -> str:
    """Return a time in words.

    >>> duration(0.4), duration(75), duration(7300)
    ('0.4 s', '1 min 15 s', '2 h 1 min')
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes = int(seconds // 60)
    return f"{minutes} min {int(seconds % 60)} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def epochs_of(epochs: float) -> str:
    """Return a number of epochs in words.

    >>> epochs_of(1), epochs_of(2.25)
    ('1 epoch', '2.25 epochs')
    """
    return f"{epochs:.3g} epoch{'' if epochs == 1 else 's'}"


def numbered(requests: Iterable[int]) -> str:
    """Return the numbers of requests in words.

    >>> numbered([4]), numbered([2, 1])
    ('request 4', 'requests 1, 2')
    """
    ids = sorted(requests)
    return f"request{'s' if len(ids) > 1 else ''} {', '.join(map(str, ids))}"


def left_out_words(number: int) -> str:
    """Say that substitutes take no place, and why.

    >>> left_out_words(1)
    '1 substitute takes no place: it is to be forgotten itself, or this collection does not hold it as it was named'
    """
    what, takes, them = ("it is", "takes", "it") if number == 1 else ("they are", "take", "them")
    itself = "itself" if number == 1 else "themselves"
    named = "as it was named" if number == 1 else "as they were named"
    reason = f"{what} to be forgotten {itself}, or this collection does not hold {them} {named}"
    return f"{count(number, 'substitute')} {takes} no place: {reason}"


def interval_words(low: float, high: float, queries: int, form: str = ".3f") -> str:
    """Write the ends of an interval, if there are enough queries for one.

    >>> interval_words(0.2, 0.41, 10), interval_words(-0.1, 0.2, 30, "+.3f"), interval_words(0.2, 0.2, 1)
    ('0.200 to 0.410', '-0.100 to +0.200', 'too few queries')
    """
    from unrank.evaluation.bootstrap import MIN_QUERIES

    return f"{low:{form}} to {high:{form}}" if queries >= MIN_QUERIES else "too few queries"


def places_found(places: PlacesFound) -> str:
    """Say how places were found.

    >>> places_found(PlacesFound(1, "made", 2, 40, 0.1))
    'the places are those of a proxy of 2 epochs that never saw it'
    """
    if not places.proxies:
        return f"the places are estimates by {count(places.calibrated_on, 'unseen pair')}, without a proxy"
    that = " that never saw it" if places.proxies == 1 else ", for each pair those that never saw it"
    proxies = {
        "reference": "the reference, which never saw it",
        "prepared": f"{count(places.proxies, 'prepared proxy')}{that}",
        "prepared and made": f"{count(places.proxies - 1, 'prepared proxy')} and one made now{that}",
        "made": f"a proxy of {epochs_of(places.epochs)} that never saw it",
    }[places.source]
    calibrated = places.calibrated_on and places.calibrated_by != "openings"
    return f"the places are those of {proxies}" + ("" if calibrated else ", not calibrated")


def over_whole_index(found: WholeIndex) -> str:
    """Say where the forget pairs stand among all documents of an index, before and after.

    >>> from unrank.record import WholeIndexRanks
    >>> ranks = WholeIndexRanks(0.5, 2, 1, 1, 0), WholeIndexRanks(0.0, None, 0, 1, 1)
    >>> over_whole_index(WholeIndex(9, *ranks))
    'over the whole index (9 documents) the forget MRR goes from 0.500 to 0.000, the median rank from 2 to none'
    """
    then, now = found.before, found.after
    ranks = [f"{each.median_rank:,g}" if each.median_rank is not None else "none" for each in (then, now)]
    return (
        f"over the whole index ({count(found.documents, 'document')}) the forget MRR goes from {then.mrr:.3f} to "
        f"{now.mrr:.3f}, the median rank from {ranks[0]} to {ranks[1]}"
    )


def listing(items: Sequence[str]) -> str:
    """Return items as a list in a sentence.

    >>> listing(["a", "b", "c"])
    'a, b and c'
    """
    return " and ".join(filter(None, [", ".join(items[:-1]), items[-1]])) if items else ""


def percent(share: float) -> str:
    """Return a share in percent.

    >>> percent(0.15), percent(0.125)
    ('15%', '12.5%')
    """
    return f"{100 * share:g}%"


def file_name(text: str) -> str:
    """Return a text as the name of a file.

    >>> file_name("trec-car, 25% by queries")
    'trec-car-25-by-queries'
    """
    return re.sub(r"\W+", "-", text.lower()).strip("-")


def distinct(names: Iterable[str]) -> list[str]:
    """Return names of files with numbers after those that are taken: `file_name` may make two names alike.

    >>> distinct(["a", "b", "a", "a"])
    ['a', 'b', 'a-2', 'a-3']
    """
    own: dict[str, None] = {}
    for name in names:
        numbered = (f"{name}-{number}" for number in numbers(2))
        own[next(new for new in chain([name], numbered) if new not in own)] = None
    return list(own)
