"""A method of your own makes a ranker forget a document; run with COLLECTION RANKER DOCUMENT_ID OUT."""

import sys
from dataclasses import dataclass

from numpy.random import Generator
from torch import Tensor

import unrank
from unrank.engine.samples import Phase, Samples, Scored, all_present
from unrank.methods.base import Method, Task


@dataclass(frozen=True)
class Demote(Method):
    name = "demote"
    learning_rate: float = 1e-3
    hold: float = 1.0

    def plan(self, task: Task) -> list[Phase]:
        def draw(generator: Generator, epoch: int) -> Samples:
            kept = task.draw_kept(len(task.partition.forget), generator)
            return Samples.of({"forget": all_present(task.partition.forget), "kept": kept}, task.teacher)

        return [Phase("demote", len(task.partition.forget), draw, self._loss, batch=16)]

    def _loss(self, scored: Scored) -> Tensor:
        return scored["forget"].height.relu().mean() + self.hold * scored["kept"].drift.abs().mean()


def main(collection: str, ranker: str, document: str, out: str) -> None:
    unrank.METHODS["demote"] = unrank.methods.MethodEntry.of(Demote, "pushes pairs to the end of their list")
    given = unrank.load_ranker(ranker), unrank.open_collection(collection), unrank.Removal(documents=[document])
    unrank.forget(*given, method="demote", target="50%").save(out)


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    try:
        main(*sys.argv[1:])
    except unrank.UnrankError as error:
        sys.exit(f"{error}")
