"""Cut word vectors to the words of a collection, if the whole table is too large.

    python runs/cut_words.py COLLECTION OUT.txt [BASE]

BASE is a file in GloVe's format; without it the vectors of `unrank[words]` are cut. The order stays, the most
frequent word first: the initial weight of a word depends on it. Give the file to `unrank train` as --base.
"""

from __future__ import annotations

import sys
from pathlib import Path

import unrank
from unrank.errors import count
from unrank.rankers.word_file import find_vectors, write_vectors
from unrank.rankers.word_ranker import words_of


def cut(collection: str, out: str, base: str | None = None) -> None:
    opened = unrank.open_collection(collection)
    words: set[str] = set()
    for texts in (opened.queries, opened.documents):
        for chunk in texts.batches():
            words.update(word for text in chunk.to_pylist() for word in words_of(text))
    kept = find_vectors(base, words.__contains__)
    write_vectors(Path(out), kept)
    print(f"{count(len(kept.words), 'word')} of the collection's {len(words):,} written to {out}")


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    cut(*sys.argv[1:])
