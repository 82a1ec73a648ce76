"""A method of your own makes a ranker forget a document; run with COLLECTION RANKER DOCUMENT_ID OUT."""

import sys
from dataclasses import dataclass
from typing import ClassVar

from numpy.random import Generator
from torch import Tensor

import unrank
from unrank.engine.samples import Phase, Samples, Scored, all_present
from unrank.methods.base import Method
from unrank.methods.task import Task


@dataclass(frozen=True)
class Demote(Method):
    name = "demote"
    limits: ClassVar = {"hold": (0, 100)}
    learning_rate: float = 1e-3
    hold: float = 1.0

    def plan(self, task: Task) -> list[Phase]:
        forget = task.partition.forget

        def draw(generator: Generator, epoch: int) -> Samples:
            roles = {"forget": all_present(forget), "kept": task.draw_kept(len(forget), generator)}
            return Samples.of(roles, task.teacher)

        return [Phase("demote", len(forget), draw, self._loss, batch=16)]

    def _loss(self, scored: Scored) -> Tensor:
        forget, kept = scored["forget"], scored["kept"]
        height = (forget.score - forget.list_min) / forget.list_range
        drift = (kept.score - kept.teacher) / kept.list_range
        return height.relu().mean() + self.hold * drift.abs().mean()


def main(collection: str, ranker: str, document: str, out: str) -> None:
    unrank.METHODS["demote"] = unrank.methods.MethodEntry.of(Demote, "to the end of its list with what is forgotten")
    opened, removal = unrank.open_collection(collection), unrank.Removal(documents=[document])
    unrank.forget(unrank.load_ranker(ranker), opened, removal, method="demote", target="50%").save(out)


if __name__ == "__main__":
    main(*sys.argv[1:])
