"""What a ranker starts from, as one hash: the same weights have the same one, wherever they lie."""

from __future__ import annotations

import hashlib
from pathlib import Path

from unrank.disk import sha256
from unrank.errors import BadFile
from unrank.rankers import ranker_class
from unrank.rankers.encoder import DEFAULT_ENCODER, NOT_PICKLED, find_encoder
from unrank.rankers.word_file import DEFAULT_WORDS, vector_files


def reads_words(kind: str) -> bool:
    """Whether a ranker starts from word vectors, and not from an encoder."""
    return ranker_class(kind).default_base == DEFAULT_WORDS


def base_hash(kind: str, base: str | None) -> str:
    """One hash of all the files of a base; of its name alone where it has none."""
    default = ranker_class(kind).default_base
    files: list[Path] = []
    if reads_words(kind):
        files = vector_files(base)
    elif default == DEFAULT_ENCODER:
        files = [path for pattern in NOT_PICKLED for path in find_encoder(base).rglob(pattern)]
    try:
        hashes = sorted(sha256(path) for path in files)
    except OSError as error:
        raise BadFile(error.filename, error.strerror or "cannot be read") from error
    return hashlib.sha256(" ".join(hashes or [base or default]).encode()).hexdigest()
