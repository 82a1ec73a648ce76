"""Copies of removed texts in a collection: exact and near ones, of a few texts and of many."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tiny import text_of

from unrank.collection import duplicates
from unrank.collection.build import build_collection
from unrank.collection.collection import Collection
from unrank.collection.duplicates import FEW_WORDS, PLAIN, WORD, Duplicates, copies_of, find_duplicates
from unrank.collection.normalisation import normalised
from unrank.collection.options import ImportOptions
from unrank.collection.removal import Removal
from unrank.collection.sources.source import Judgement, Raw, Text
from unrank.collection.texts import Texts
from unrank.errors import UnrankError

ARTICLE = (
    "The clerk of the old town hall keeps every lost key in a wooden box behind the door, and on the first Monday of "
    "each month Mr Quixote of Dulcinea Street comes to look whether the one of his windmill is among them"
)


def texts_of(texts: Sequence[str], batch: int = 7) -> Texts:
    chunks = [pa.array(texts[start : start + batch], pa.string()) for start in range(0, len(texts), batch)]
    ids = [pa.array([f"d{row}" for row in range(start, start + len(chunk))]) for start, chunk in enumerate(chunks)]
    return Texts("document", pa.table({"id": pa.chunked_array(ids), "text": pa.chunked_array(chunks)}))


def others(number: int) -> list[str]:
    generator = random.Random(number)
    return [text_of(generator, generator.randint(3, 60)) for _ in range(number)]


COPIES = {
    "the same": (ARTICLE, True),
    "capitals": (ARTICLE.upper(), True),
    "blanks and a full stop": (ARTICLE.replace(" ", "\n ") + ".", True),
    "soft hyphens in every word": (re.sub(r"(\w)(\w)", "\\1\u00ad\\2", ARTICLE), True),
    "fullwidth letters": ("".join(chr(ord(c) + 0xFEE0) if c.isalpha() else c for c in ARTICLE), True),
    "a changed word": (ARTICLE.replace("wooden", "metal"), True),
    "a word more": (ARTICLE.replace("lost key", "lost silver key"), True),
    "another punctuation": (ARTICLE.replace(" and", "; and").replace("Mr", "Mr."), True),
    "inside a longer text": (" ".join([*others(2), ARTICLE, *others(3)]), True),
    "a quarter of the words": (" ".join(ARTICLE.split()[:10]), False),
    "every fifth word changed": (" ".join("x" if i % 5 == 0 else w for i, w in enumerate(ARTICLE.split())), False),
    "the words in another order": (" ".join(sorted(ARTICLE.split())), False),
}


@pytest.mark.parametrize("name", COPIES)
@pytest.mark.parametrize("many", [False, True], ids=["a few texts", "many texts"])
def test_copies_of_a_text(name: str, many: bool) -> None:
    copy, is_copy = COPIES[name]
    texts = texts_of([*others(20), copy, *others(9)])
    more = [f"another wanted text {number}" for number in range(FEW_WORDS + 1)] if many else []
    found = copies_of(texts, [ARTICLE, *more])
    assert ([*found] == [20]) is is_copy and found.keys() <= {20}
    if is_copy:
        [match] = found[20]
        assert match.place == 0 and match.exact is (normalised(copy) == normalised(ARTICLE))


@pytest.mark.parametrize("few", [0, FEW_WORDS], ids=["many texts", "a few texts"])
def test_a_copy_may_lack_a_rare_word_wherever_it_is_repeated(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duplicates, "FEW_WORDS", few)
    text = " ".join([*(f"w{place}" for place in range(60)), *(["quixotical foo bar"] * 8)])
    copy = text.replace("quixotical ", "")
    [match] = copies_of(texts_of([*others(20), copy, *others(9)]), [text])[20]
    assert not match.exact and match.likeness >= 0.8


words = st.lists(st.sampled_from([f"w{number}" for number in range(12)]), min_size=20, max_size=60)


@given(words, st.lists(st.tuples(st.integers(0, 59), st.sampled_from(["w1", "w2", "new"])), max_size=6), st.booleans())
def test_marks_leave_out_no_copy(words: list[str], changes: list[tuple[int, str]], longer: bool) -> None:
    other = [*words]
    for place, word in changes:
        other[place % len(other)] = word
    other += ["more", "words", "than", "before"] * (10 * longer)
    share = duplicates.likeness(duplicates.runs_of(words), duplicates.runs_of(other))
    found = duplicates.WantedTexts([" ".join(words)]).matches(" ".join(other))
    assert [match.likeness for match in found] == ([share] if share else [])


@given(
    st.lists(
        st.lists(st.sampled_from([*(f"w{number}" for number in range(30)), "é", "x\x00"]), max_size=40), min_size=1
    ),
    st.lists(st.tuples(st.integers(0, 39), st.sampled_from(["w1", "NEW", "-", "\x1f", ""])), max_size=8),
    st.integers(1, 5),
)
def test_a_filter_leaves_out_no_copy(wanted: list[list[str]], changes: list[tuple[int, str]], at_once: int) -> None:
    changed = [[*words] for words in wanted]
    for place, word in changes:
        for words in changed:
            if words:
                words[place % len(words)] = word
    rows = [*others(9), *map(" ".join, changed), "", *map(" ".join, wanted), "w1 w2."]
    index = duplicates.WantedTexts([" ".join(words) for words in wanted])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(duplicates, "FEW_WORDS", 0)
        patch.setattr(duplicates, "ROWS_AT_ONCE", at_once)
        found = copies_of(texts_of(rows), [" ".join(words) for words in wanted])
    assert found == {row: matches for row, text in enumerate(rows) if (matches := index.matches(text))}


def test_a_filter_passes_few_rows() -> None:
    marks = duplicates.WantedTexts([ARTICLE, "lost keys"]).mark_filter()
    assert marks is not None
    rows = [ARTICLE.upper(), *others(50), "Keys, lost: lost keys", "lost letters", "ä", "a\x00b", "", ARTICLE[40:]]
    assert marks.rows(pa.array(rows)[0:56]).tolist() == [0, 51, 53, 54]


def test_a_short_text_has_exact_copies_only() -> None:
    texts = texts_of(["Lost keys?", "how to find lost keys", "lost  KEYS", "keys lost", "lost key"])
    assert copies_of(texts, ["lost keys"]) == {0: [(0, 1.0, True)], 2: [(0, 1.0, True)]}


@pytest.mark.parametrize(
    "text", ["鍵を失くした人は町役場の窓口で箱の中を見ることができます毎月最初の月曜日", "???", "ß"]
)
def test_texts_without_spaces_or_words(text: str) -> None:
    texts = texts_of([*others(9), f" {text.upper()}", *others(3)])
    assert [*copies_of(texts, [text])] == [9]


@given(st.lists(st.sampled_from(["town", "hall", "key", "straße", "ΣΑΣ", "Ǆ", "x²", "naïve", "e\u0301t"]), max_size=40))
def test_a_few_texts_are_found_as_many_are(words: list[str]) -> None:
    text = " ".join(words)
    rows = [*others(5), text.upper(), text.replace("hall", "house"), f"{text} {text}", text.swapcase()]
    few = copies_of(texts_of(rows), [text])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(duplicates, "FEW_WORDS", 0)
        assert few == copies_of(texts_of(rows), [text])


def test_a_plain_character_hides_no_word() -> None:
    points = [*range(0xD800), *range(0xE000, 0x10000), *range(0x1F300, 0x1FA00)]
    plain = pc.match_substring_regex(pa.array([chr(point) for point in points]), f"[{PLAIN}]").to_pylist()
    changed = [
        (chr(point), after)
        for point, is_plain in zip(points, plain, strict=True)
        if is_plain and (after := normalised(f"x{chr(point)}x")[1:-1]) != chr(point) and WORD.search(after)
    ]
    assert len(changed) > 200  # the capital letters
    for before, after in changed:
        assert pc.match_substring_regex(pa.array([before]), f"^(?i:{after})$")[0].as_py(), (before, after)


@pytest.fixture
def collection(tmp_path: Path) -> Collection:
    queries = {"q1": "lost keys", "q2": "Lost  KEYS.", "q3": "a windmill", "q4": "town halls", "t1": "lost keys!"}
    documents = {
        "d1": ARTICLE,
        "d2": ARTICLE.replace("wooden", "metal"),
        "d3": "a town hall",
        "d4": "another one",
        "d5": "A town hall.",
    }
    pairs = [("q1", "d1"), ("q2", "d2"), ("q3", "d2"), ("q4", "d3")]
    raw = Raw(
        "copies",
        lambda: [Text(*item) for item in queries.items()],
        lambda: [Text(*item) for item in documents.items()],
        {
            "train": lambda: [Judgement(*pair, 1) for pair in pairs],
            "test": lambda: [Judgement("t1", "d4", 1)],
        },
    )
    return build_collection(raw, tmp_path / "collection", ImportOptions(candidates=2))


def named(found: Duplicates) -> dict[str, tuple[str, float]]:
    return {copy.id: (copy.of, round(copy.likeness, 2)) for copy in found.copies}


def test_copies_of_queries_documents_and_pairs(collection: Collection) -> None:
    queries = find_duplicates(collection, Removal(queries=["q1"]))
    assert named(queries) == {"q2": ("q1", 1.0)} and queries.removal == Removal(queries=["q2"])
    assert [(copy.id, copy.of) for copy in queries.tests] == [("t1", "q1")]
    documents = find_duplicates(collection, Removal(documents=["d1"]))
    assert named(documents) == {"d2": ("d1", 0.86)} and documents.removal == Removal(documents=["d2"])
    pairs = find_duplicates(collection, Removal(pairs=[("q1", "d1")]))
    assert pairs.removal == Removal(pairs=[("q2", "d2")])


def test_what_is_named_already_is_no_copy(collection: Collection) -> None:
    found = find_duplicates(collection, Removal(["q1", "q2"], ["d1", "d2"]))
    assert found.copies == [] and not found.removal


def test_a_substitute_with_the_removed_text_is_refused(collection: Collection) -> None:
    with pytest.raises(UnrankError, match=r"^mine: the substitute 'd5' has the text of 'd3': name another one$"):
        find_duplicates(collection, Removal(documents=["d3"], substitutes={"d3": "d5"}), "mine")
    found = find_duplicates(collection, Removal(documents=["d3"], substitutes={"d3": "d4"}))
    assert found.removal == Removal(documents=["d5"], substitutes={"d5": "d4"})


def test_a_substitute_is_no_copy_and_a_copy_has_its_substitute(collection: Collection) -> None:
    alike = find_duplicates(collection, Removal(documents=["d1"], substitutes={"d1": "d2"}))
    assert alike.copies == [] and not alike.removal
    removal = Removal(documents=["d1"], substitutes={"d1": "d3"})
    found = find_duplicates(collection, removal).removal
    assert found == Removal(documents=["d2"], substitutes={"d2": "d3"})
    assert (removal | found).substitutes == {"d1": "d3", "d2": "d3"}
