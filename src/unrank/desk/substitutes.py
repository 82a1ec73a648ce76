"""The substitutes of requests: documents that take the place of removed ones, each request's by itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from unrank.desk.history_index import Json
from unrank.errors import count
from unrank.record import Substituted
from unrank.report.wording import left_out_words

if TYPE_CHECKING:
    from unrank.collection.collection import Collection
    from unrank.desk.batch import Batch
    from unrank.evaluation.scorecard import Scorer


@dataclass(frozen=True)
class RequestSubstitutes:
    """What became of the substitutes that a request names."""

    left_out: int
    """How many take no place: they are to be forgotten themselves, or the collection does not hold them."""
    stand: Substituted | None = None
    """Where the others stood and stand; `None` if there are none."""

    def __str__(self) -> str:
        said = [left_out_words(self.left_out)] if self.left_out else []
        if self.stand is not None:
            then, now = self.stand.before, self.stand.after
            said.append(f"substitutes of {count(now.pairs, 'forget pair')}: {now}; before: {then}")
        return "; ".join(said)


def substitutes_of_each(
    batch: Batch, collection: Collection, before: Scorer, after: Scorer
) -> dict[int, RequestSubstitutes]:
    """Measure the substitutes of each request that names some, before and after a run."""
    from unrank.evaluation.substitutes import measure_substitutes

    partition, found = batch.partition(collection), dict[int, RequestSubstitutes]()
    for id in batch.items:
        own, left_out = batch.partition_of(collection, partition, id), batch.left_out(id)
        if not (own.substitutes or left_out):
            continue
        then, now = (measure_substitutes(score, collection, own) for score in (before, after))
        found[id] = RequestSubstitutes(left_out, Substituted(then, now) if then and now else None)
    return found


def as_json(found: Mapping[int, RequestSubstitutes]) -> Json:
    """Return the substitutes of requests as the result of a run holds them."""
    return {str(id): asdict(each) for id, each in found.items()}
