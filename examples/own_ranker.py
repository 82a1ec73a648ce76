"""A ranker of your own learns and forgets; run with COLLECTION DOCUMENT_ID OUT. It adds the weights of shared words."""

import sys
from collections.abc import Sequence
from zlib import crc32

import torch

import unrank
from unrank.methods.retrain import Retrain
from unrank.rankers import RankerEntry
from unrank.rankers.base import Ranker, Tokens


class SharedWords(Ranker):
    kind = "shared-words"

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1 << 16))

    def tokenize(self, texts: Sequence[str], role: str) -> Tokens:
        return Tokens.of([[1 + crc32(word.encode()) % 65_535 for word in text.lower().split()] for text in texts])

    def forward(self, queries: Tokens, documents: Tokens) -> torch.Tensor:
        words, others = (side.padded(0, 1_000, self.device) for side in (queries, documents))
        return (self.weight[words] * (words[:, :, None] == others[:, None, :]).any(2) * (words > 0)).sum(1)


def main(collection_folder: str, document: str, out: str) -> None:
    unrank.RANKERS["shared-words"] = RankerEntry.of(SharedWords, "the sum of the weights of shared words")
    collection, removal = unrank.open_collection(collection_folder), unrank.Removal(documents=[document])
    ranker = unrank.train(collection, "shared-words", method=Retrain(learning_rate=0.02, epochs=3)).ranker
    method = unrank.make_method("cocol", {"learning_rate": "0.02"})
    unrank.forget(ranker, collection, removal, method=method, target="50%").save(out)


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    try:
        main(*sys.argv[1:])
    except unrank.UnrankError as error:
        sys.exit(f"{error}")
