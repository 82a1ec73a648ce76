"""A method of one's own makes a ranker forget a document; run with COLLECTION RANKER DOCUMENT_ID OUT."""

import sys
from dataclasses import dataclass

from numpy.random import Generator
from torch import Tensor

import unrank
from unrank.engine.samples import Phase, Samples, Scored
from unrank.methods.base import Method, Task, all_present


@dataclass(frozen=True)
class Demote(Method):
    name = "demote"
    learning_rate: float = 1e-3
    hold: float = 1.0

    def plan(self, task: Task) -> list[Phase]:
        def draw(generator: Generator) -> Samples:
            kept = generator.choice(task.partition.retain, len(task.partition.forget))
            return Samples.of(all_present(task.partition.forget), all_present(kept), teacher=task.teacher)

        return [Phase("demote", len(task.partition.forget), draw, self._loss, batch=16)]

    def _loss(self, scored: Scored) -> Tensor:
        height, drift = (scored.score - scored.low) / scored.span, (scored.score - scored.teacher) / scored.span
        return height[:, 0].relu().mean() + self.hold * drift[:, 1].abs().mean()


def main(collection: str, ranker: str, document: str, out: str) -> None:
    unrank.METHODS["demote"] = unrank.methods.MethodEntry.of(Demote, "to the end of its list with what is forgotten")
    opened, removal = unrank.open_collection(collection), unrank.Removal(documents=[document])
    unrank.forget(unrank.load_ranker(ranker), opened, removal, method="demote", target="50%").save(out)


if __name__ == "__main__":
    main(*sys.argv[1:])
