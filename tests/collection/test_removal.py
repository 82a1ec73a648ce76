"""Removals: written and read again, malformed ones, and samples of a share."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.tiny import GOLDEN, make_collection

from unrank.collection.collection import Collection
from unrank.collection.partition import make_partition
from unrank.collection.removal import Kind, Removal
from unrank.errors import BadFile, UnrankError

KINDS: tuple[Kind, Kind] = ("queries", "documents")
ids = st.lists(st.text(min_size=1), max_size=4)


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_ids_are_sorted_and_stand_once() -> None:
    removal = Removal(["b", "a", "b"], ["d"], [("q", "z"), ("q", "a"), ("q", "z")])
    assert removal.queries == ("a", "b")
    assert removal.pairs == (("q", "a"), ("q", "z"))
    assert removal == Removal(["a", "b"], ["d", "d"], [("q", "a"), ("q", "z")])


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"documents": None}, "documents must be a list, not None"),
        ({"pairs": "q1"}, r"pairs must be a list, not one text: \['q1'\]"),
        ({"pairs": ["q1"]}, r"a pair is \(query, document\), not 'q1'"),
        ({"pairs": [("q1",)]}, r"a pair is \(query, document\), not \('q1',\)"),
        ({"documents": [b"d1"]}, "an id is a text or a whole number, not b'd1'"),
        ({"queries": [True]}, "an id is a text or a whole number, not True"),
        ({"documents": ["d"], "substitutes": {"d": None}}, "an id is a text or a whole number, not None"),
    ],
)
def test_what_names_nothing_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(UnrankError, match=said):
        Removal(**given)
    assert Removal(queries=cast(Any, [np.int64(7), 8])).queries == ("7", "8")


def test_two_removals_become_one() -> None:
    both = Removal(["a"], [], [("q", "d")]) | Removal(["b", "a"], ["d"])
    assert both == Removal(["a", "b"], ["d"], [("q", "d")])


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ids, ids, st.lists(st.tuples(st.text(), st.text()), max_size=3))
def test_what_is_saved_is_read_again(
    tmp_path: Path, queries: list[str], documents: list[str], pairs: list[tuple[str, str]]
) -> None:
    removal = Removal(queries, documents, pairs)
    path = tmp_path / "removal.json"
    path.unlink(missing_ok=True)
    removal.save(path)
    if removal:
        assert Removal.load(path) == removal
    else:
        with pytest.raises(BadFile, match="an empty removal"):
            Removal.load(path)


def test_substitutes_are_kept_and_joined(tmp_path: Path) -> None:
    one = Removal(documents=["a"], pairs=[("q", "b")], substitutes={"b": "d", "a": "c"})
    one.save(tmp_path / "one.json")
    assert Removal.load(tmp_path / "one.json") == one and list(one.substitutes) == ["a", "b"]
    assert (one | Removal(documents=["x"], substitutes={"x": "c"})).substitutes == {"a": "c", "b": "d", "x": "c"}
    with pytest.raises(UnrankError, match=r"^'a' has two substitutes: keep one$"):
        one | Removal(documents=["a"], substitutes={"a": "d"})
    with pytest.raises(UnrankError, match=r"^the substitute 'c' of 'a' is removed too: name another one$"):
        one | Removal(documents=["c"])
    assert hash(one) == hash(Removal.load(tmp_path / "one.json"))


@pytest.mark.parametrize(
    ("text", "key"),
    [('{"documents": ["a"], "documents": ["b"]}', "documents"), ('{"substitutes": {"a": "c", "a": "d"}}', "a")],
)
def test_a_key_that_hides_another_is_refused(text: str, key: str, tmp_path: Path) -> None:
    """Half of the request would be dropped without a word."""
    with pytest.raises(BadFile, match=f"the key '{key}' is there twice in one object"):
        Removal.load(write(tmp_path / "removal.json", text))


def test_kinds_without_ids_are_left_out_of_the_file(tmp_path: Path) -> None:
    Removal(pairs=[("q1", "d1")]).save(tmp_path / "removal.json")
    assert json.loads((tmp_path / "removal.json").read_text()) == {"pairs": [["q1", "d1"]]}


def test_a_file_that_exists_is_not_written_over(tmp_path: Path) -> None:
    path = write(tmp_path / "removal.json", "mine")
    with pytest.raises(UnrankError, match="exists already"):
        Removal(["a"]).save(path)
    assert path.read_text() == "mine"
    assert list(tmp_path.iterdir()) == [path]


def test_numbers_serve_as_ids(tmp_path: Path) -> None:
    path = write(tmp_path / "removal.json", '{"queries": [7, "8"], "documents": [-1], "pairs": [[1, "x"], [2, 3]]}')
    assert Removal.load(path) == Removal(["7", "8"], ["-1"], [("1", "x"), ("2", "3")])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1: not JSON: Expecting value"),
        ('{"queries": ["a"],\n "documents": ["b"\n', "line 3: not JSON"),
        ("[]", 'not a removal: expected {"queries"'),
        ('"q1"', "not a removal"),
        ("{}", "an empty removal"),
        ('{"queries": [], "documents": [], "pairs": []}', "an empty removal"),
        ('{"query": ["a"]}', "unknown key 'query': a removal has queries, documents, pairs and substitutes"),
        ('{"queries": "q1"}', "'queries' must be a list of ids, each a string or a whole number"),
        ('{"queries": {"q1": 1}}', "'queries' must be a list"),
        ('{"queries": null}', "'queries' must be a list"),
        ('{"documents": [1.5]}', "'documents' must be a list of ids"),
        ('{"documents": [true]}', "'documents' must be a list of ids"),
        ('{"documents": ["d1", null]}', "'documents' must be a list of ids"),
        ('{"documents": [["d1"]]}', "'documents' must be a list of ids"),
        ('{"pairs": ["q1", "d1"]}', r"'pairs' must be a list of \[query id, document id\]"),
        ('{"pairs": [["q1"]]}', "'pairs' must be"),
        ('{"pairs": [["q1", "d1", "d2"]]}', "'pairs' must be"),
        ('{"pairs": [["q1", null]]}', "'pairs' must be"),
        ('{"pairs": [{"q1": "d1"}]}', "'pairs' must be"),
        ('{"pairs": {"q1": "d1"}}', "'pairs' must be"),
        ('{"documents": ["a"], "substitutes": ["b"]}', "'substitutes' must name a document id for each id"),
        ('{"documents": ["a"], "substitutes": {"a": null}}', "'substitutes' must name a document id for each id"),
        ('{"documents": ["a"], "substitutes": {"b": "c"}}', "'b' has a substitute but is not removed: add it"),
        ('{"documents": ["a", "c"], "substitutes": {"a": "c"}}', "the substitute 'c' of 'a' is removed too"),
        ('{"queries": ["\\ud800"]}', "half of a surrogate pair"),
        ('{"queries": [' + "1" * 5_000 + "]}", "JSON that cannot be read"),
        ("[" * 100_000, "nested too deep"),
    ],
)
def test_malformed_files(tmp_path: Path, text: str, message: str) -> None:
    path = write(tmp_path / "removal.json", text)
    with pytest.raises(BadFile, match=message) as caught:
        Removal.load(path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_files_that_are_not_there_or_no_text(tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes(b'{"queries": ["caf\xe9"]}')
    for name, message in (("missing", "no such file"), ("latin", "not UTF-8 text"), (".", "directory")):
        with pytest.raises(BadFile, match=message):
            Removal.load(tmp_path / name)


@pytest.mark.parametrize("text", ["q2\nq1\n", "q1\r\nq2", "\n  q1  \n\n q2\t\nq1\n", "\ufeffq1\nq2\n"])
def test_ids_one_a_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "ids.txt"
    path.write_bytes(text.encode())
    assert Removal.load_ids(path, "queries") == Removal(queries=["q1", "q2"])
    assert Removal.load_ids(path, "documents") == Removal(documents=["q1", "q2"])


def test_files_without_ids(tmp_path: Path) -> None:
    write(tmp_path / "blank", "\n  \n")
    (tmp_path / "latin").write_bytes(b"caf\xe9\n")
    for name, message in (
        ("blank", "an empty removal: the file names no id"),
        ("latin", "UTF-8 text"),
        ("missing", "no such file"),
    ):
        with pytest.raises(BadFile, match=message):
            Removal.load_ids(tmp_path / name, "queries")
    with pytest.raises(BadFile):
        Removal.load_ids(tmp_path, "queries")


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(KINDS), st.floats(0, 1, exclude_min=True, exclude_max=True), st.integers(0, 1_000))
def test_a_sample_holds_about_the_share_and_never_everything(
    dense: Collection, kind: Kind, share: float, seed: int
) -> None:
    try:
        removal = Removal.sample(dense, kind, share, seed)
    except UnrankError as error:
        assert "too small" in str(error)
        return
    partition = make_partition(dense, removal)
    assert len(partition.retain) > 0
    column = 0 if kind == "queries" else 1
    largest = np.unique(dense.pairs[:, column], return_counts=True)[1].max()
    assert abs(len(partition.forget) - share * len(dense.pairs)) <= largest
    assert not (removal.documents if kind == "queries" else removal.queries)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("share", [0.05, 0.15, 0.25])
def test_the_papers_shares(dense: Collection, kind: Kind, share: float) -> None:
    forget = len(make_partition(dense, Removal.sample(dense, kind, share)).forget)
    assert abs(forget / len(dense.pairs) - share) < 0.03


@pytest.mark.parametrize("kind", KINDS)
def test_the_seed_decides(dense: Collection, kind: Kind) -> None:
    assert Removal.sample(dense, kind, 0.3, seed=4) == Removal.sample(dense, kind, 0.3, seed=4)
    assert len({Removal.sample(dense, kind, 0.3, seed) for seed in range(6)}) == 6


def test_a_sample_is_the_same_on_every_machine(golden: Collection) -> None:
    assert Removal.sample(golden, "queries", 0.4) == Removal(queries=["q1", "q5"])
    assert Removal.sample(golden, "documents", 0.4) == Removal(documents=["d1", "d2"])


@pytest.mark.parametrize("kind", KINDS)
def test_the_order_of_the_input_does_not_matter(tmp_path: Path, golden: Collection, kind: Kind) -> None:
    shuffled = make_collection(tmp_path / "out", random.Random(1).sample(GOLDEN, len(GOLDEN)))
    for seed in range(5):
        assert Removal.sample(shuffled, kind, 0.4, seed) == Removal.sample(golden, kind, 0.4, seed)


@pytest.mark.parametrize("share", [0.0, 1.0, -0.1, 1.5, float("nan"), float("inf")])
def test_shares_that_cannot_be_removed(golden: Collection, share: float) -> None:
    with pytest.raises(UnrankError, match="give one between 0 and 1"):
        Removal.sample(golden, "queries", share)


def test_a_collection_too_small_for_its_share(tmp_path: Path) -> None:
    lone = make_collection(tmp_path / "out", [("q1", "d1"), ("q1", "d2")])
    with pytest.raises(UnrankError, match=r"too small to remove 0\.5 of its 2 pairs and keep some"):
        Removal.sample(lone, "queries", 0.5)
