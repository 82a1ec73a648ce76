"""The owner's kept state: the next request computes nothing again, and nothing stays of what was removed."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.desk.conftest import take_in
from tests.forgetting.conftest import FAST
from unrank.collection.collection import Collection
from unrank.collection.removal import Removal
from unrank.desk.closing import close
from unrank.desk.key import key_file
from unrank.desk.ledger import Ledger
from unrank.desk.request import Item, State
from unrank.engine import kept, scoring
from unrank.engine.checkpoint import Arrays, Cache
from unrank.engine.kept import KeptState, NamedRows, erase_from_kept
from unrank.engine.tokens import TokenStore
from unrank.errors import UnrankError
from unrank.forgetting.forget import Forgotten, forget
from unrank.forgetting.prepared_proxies import ProxyOptions, prepare_proxies
from unrank.forgetting.train import Trained
from unrank.forgetting.validation import Base
from unrank.rankers import create_ranker
from unrank.rankers.base import DualEncoder, Ranker
from unrank.rankers.fast.cpu import FrozenStates

REMOVAL = Removal(documents=[f"doc{number}" for number in range(8)])
ROUNDING = 2e-3
"""The most that a weight differs if vectors differ in their last bits: as far as a few steps may move it."""


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An owner's state folder of this test alone."""
    monkeypatch.setenv("UNRANK_STATE", str(tmp_path / "state"))
    return tmp_path / "state"


@pytest.fixture(scope="module")
def made(large: Collection, learned: Trained, encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An owner's state folder after proxies were prepared."""
    base, folder = Base(learned.record.base, learned.record.base_digest, str(encoder)), tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("UNRANK_STATE", str(folder / "state"))
        how = {"record": learned.record, "options": ProxyOptions(count=2, epochs=1, device="cpu")}
        cache = KeptState.open(large, make=True)
        prepare_proxies(learned.ranker, large, folder / "proxies", base, **how, cache=cache)  # type: ignore[arg-type]
    return folder / "state"


@pytest.fixture
def prepared(made: Path, state: Path, large: Collection) -> KeptState:
    """What the preparation of proxies keeps."""
    shutil.copytree(made, state)
    opened = KeptState.open(large)
    assert opened is not None
    return opened


def run(learned: Trained, large: Collection, cache: KeptState | None, **changes: Any) -> Forgotten:
    method = replace(FAST, epochs=1, place_epochs=1)
    given: dict[str, Any] = {"method": method, "device": "cpu", "record": learned.record, "cache": cache} | changes
    return forget(given.pop("ranker", learned.ranker), large, given.pop("removal", REMOVAL), **given)


def weights(result: Forgotten) -> torch.Tensor:
    return torch.cat([weight.detach().flatten() for weight in result.ranker.parameters()])


class Count:
    """Counts the texts that a ranker which does not move encodes, and the pairs that are scored together."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.texts = self.pairs = 0
        together, encode = scoring._score_together, DualEncoder.compact

        def scored(ranker: Ranker, store: TokenStore, pairs: Any, job: Any) -> Any:
            self.pairs += 0 if torch.is_grad_enabled() else len(pairs)
            return together(ranker, store, pairs, job)

        def encoded(ranker: DualEncoder, vectors: torch.Tensor) -> torch.Tensor:
            self.texts += 0 if torch.is_grad_enabled() else len(vectors)
            return encode(ranker, vectors)

        patch.setattr(scoring, "_score_together", scored)
        patch.setattr(DualEncoder, "compact", encoded)


def content(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


def traces(state: Path, large: Collection, role: str, id: str) -> list[bytes]:
    """The bytes of the tokens and of the vectors of a text, as the kept files hold them now."""
    [row] = (large.queries if role == "query" else large.documents).rows([id])
    opened, found = KeptState.open(large), list[bytes]()
    assert opened is not None
    for path in sorted((state / "kept").rglob(f"*-{role}-*.cache")):
        arrays = opened.load(path.name.removesuffix(".cache"))
        assert arrays is not None
        [place] = np.flatnonzero(arrays["rows"] == row)
        if "ids" in arrays:
            start = arrays["lengths"][:place].sum()
            found.append(arrays["ids"][start : start + arrays["lengths"][place]].tobytes())
        elif "vectors" in arrays:
            found.append(arrays["vectors"][place].tobytes())
    assert found and all(trace in content(state) for trace in found)
    return found


@pytest.mark.parametrize("freeze", [None, "documents"])
def test_a_request_encodes_only_what_moves_and_comes_to_the_same(
    freeze: str | None, prepared: KeptState, learned: Trained, large: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = run(learned, large, None, freeze=freeze)
    seen = Count(monkeypatch)
    cached = run(learned, large, KeptState.open(large), freeze=freeze)
    texts, one_side = seen.texts, len(large.queries)
    most = len(large.queries) + len(large.documents) * (freeze is None)
    assert 0 < texts <= 3 * most, "at each check and in the end the student's own"
    assert torch.allclose(weights(cached), weights(usual), rtol=0, atol=ROUNDING)
    assert cached.record.epochs == usual.record.epochs == 1
    assert cached.after.mrrs == pytest.approx(usual.after.mrrs, abs=0.02)
    assert cached.record.places is not None and cached.record.places.proxies == 2
    if freeze:
        assert texts <= 2 * one_side, "no document is encoded but the removed ones"


def test_the_next_request_begins_with_what_the_one_before_measured(
    prepared: KeptState, learned: Trained, large: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = run(learned, large, KeptState.open(large), target="50%")
    usual = run(learned, large, None, ranker=first.ranker, record=first.record, removal=Removal(documents=["doc9"]))
    seen, encoded = Count(monkeypatch), list[int]()
    begin = TokenStore.keep_vectors

    def began(store: TokenStore, ranker: Ranker, device: str) -> None:
        begin(store, ranker, device)
        encoded.append(seen.texts)

    monkeypatch.setattr(TokenStore, "keep_vectors", began)
    given = {"ranker": first.ranker, "record": first.record, "removal": Removal(documents=["doc9"])}
    second = run(learned, large, KeptState.open(large), **given)
    assert torch.allclose(weights(second), weights(usual), rtol=0, atol=ROUNDING)
    assert encoded[1] - encoded[0] < len(large.queries), "the original's are known but those of what was removed"


@pytest.mark.parametrize("kind", ["bi-encoder", "cross-encoder"])
def test_no_byte_of_what_was_removed_is_left(
    kind: str, state: Path, learned: Trained, large: Collection, encoder: Path
) -> None:
    ranker = learned.ranker if kind == "bi-encoder" else create_ranker(kind, str(encoder), 0)
    made, given = KeptState.open(large, make=True), {"ranker": ranker, "record": None, "target": "50%"}
    run(learned, large, made, **given, removal=Removal(documents=["doc30"]))  # keeps all of the others
    gone = [trace for id in REMOVAL.documents for trace in traces(state, large, "document", id)]
    run(learned, large, KeptState.open(large), **given)
    assert not any(trace in content(state) for trace in gone)
    assert traces(state, large, "document", "doc19"), "the rest is kept"
    for path in (state / "kept").rglob("scores-*.cache"):
        arrays = KeptState(path.parent).load(path.name.removesuffix(".cache"))
        assert arrays is not None and len(arrays["keys"])
        documents = large.documents.ids(np.unique(arrays["keys"] % len(large.documents)))
        assert not {*documents} & {*REMOVAL.documents}


def test_closing_a_request_erases_it(
    prepared: KeptState, state: Path, learned: Trained, large: Collection, tmp_path: Path
) -> None:
    gone = traces(state, large, "document", "doc1") + traces(state, large, "query", "query3")
    other = traces(state, large, "document", "doc19")
    assert len(gone) >= 6, "the tokens of both, and the vectors of three rankers"
    path = tmp_path / "desk.ledger"
    with Ledger.open(path, make_with=key_file(path)) as ledger:
        request = take_in(ledger, ledger.key(key_file(path)), Item(document="doc1"), Item(query="query3"))
        with ledger.transaction():
            ledger.move(request.id, State.FORGOTTEN)
        close(ledger, request.id)
    assert not any(trace in content(state) for trace in gone)
    assert all(trace in content(state) for trace in other)


def test_a_job_that_was_at_work_while_something_was_erased_keeps_nothing(
    prepared: KeptState, state: Path, learned: Trained, large: Collection
) -> None:
    at_work, gone = KeptState.open(large), traces(state, large, "document", "doc1")
    assert at_work is not None
    store = TokenStore(learned.ranker, large, at_work)
    store.get(large.documents.rows(["doc1"]), "document")
    assert erase_from_kept(Removal(documents=["doc1"])) == []
    for path in at_work.folder.glob("tokens-*"):
        path.unlink()
    store.save(print)
    assert not any(trace in content(state) for trace in gone)
    assert not list(at_work.folder.glob("tokens-*"))


@pytest.mark.parametrize("harm", ["cut", "about", "moved", "strange"])
def test_what_cannot_be_read_is_deleted(harm: str, prepared: KeptState, state: Path, large: Collection) -> None:
    files = sorted(prepared.folder.glob("*.cache"))
    if harm == "cut":
        files[0].write_bytes(files[0].read_bytes()[:-40])
    elif harm == "about":
        (prepared.folder / "about.json").write_text("{")
    elif harm == "moved":
        (prepared.folder / "about.json").write_text('{"collection": "/nowhere/at/all", "erased": 0}')
    else:
        Cache(prepared.folder).write("scores-strange", {"strange": np.zeros(2)})
    assert erase_from_kept(Removal(documents=["doc1"])) == []
    left = sorted(path.name for path in (state / "kept").rglob("*.cache"))
    assert left == ([path.name for path in files[harm == "cut" :]] if harm in ("cut", "strange") else [])


def test_a_file_that_cannot_be_deleted_keeps_a_request_open(
    prepared: KeptState, large: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    unlink = Path.unlink

    def refused(path: Path, missing_ok: bool = False) -> None:
        if path.suffix == ".cache":
            raise OSError("read-only file system")
        unlink(path, missing_ok)

    def no_longer(*_: object) -> None:
        raise UnrankError("full")

    monkeypatch.setattr(Cache, "write", no_longer)
    monkeypatch.setattr(Path, "unlink", refused)
    holding = {path.name.partition("-")[0] for path in erase_from_kept(Removal(documents=["doc1"]))}
    assert holding == {"tokens", "vectors"}


@pytest.mark.parametrize(
    ("name", "arrays", "left"),
    [
        (
            "tokens-document-a-b",
            {"rows": [0, 2, 5], "lengths": [1, 2, 1], "ids": [9, 8, 7, 6]},
            {"rows": [0, 5], "lengths": [1, 1], "ids": [9, 6]},
        ),
        ("tokens-query-a-b", {"rows": [1, 2], "lengths": [1, 1], "ids": [9, 8]}, None),
        (
            "vectors-query-a",
            {"rows": [3, 4], "vectors": [[1.0, 2.0], [3.0, 4.0]]},
            {"rows": [4], "vectors": [[3.0, 4.0]]},
        ),
        ("scores-a-b", {"keys": [0, 2, 12, 31, 45], "values": [0.0] * 5}, {"keys": [0, 45], "values": [0.0] * 2}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_rows_leave_every_kind_of_file(name: str, arrays: dict[str, Any], left: dict[str, Any] | None) -> None:
    """Of ten documents the third, of queries the fourth, and the pair of the second query and the third document."""
    rows = NamedRows(10, query=np.array([3]), document=np.array([2]), pairs=np.array([12]))
    given: Arrays = {key: np.array(value) for key, value in arrays.items()}
    found = rows.left_of(name, given)
    assert {key: array.tolist() for key, array in found.items()} == (left or arrays)
    assert (found is given) == (left is None)


def test_nothing_is_kept_that_nobody_prepared(
    state: Path, learned: Trained, large: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert KeptState.open(large) is None
    run(learned, large, KeptState.open(large), target="50%")
    assert not (state / "kept").exists()
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert KeptState.open(large, make=True) is None, "each process would have to read the same"


def test_too_much_is_not_kept(prepared: KeptState, monkeypatch: pytest.MonkeyPatch) -> None:
    before = sorted(prepared.folder.glob("*.cache"))
    monkeypatch.setattr(kept, "MOST_BYTES", 3 * max(path.stat().st_size for path in before))
    prepared.write("vectors-query-new", {"rows": np.arange(2), "vectors": np.zeros((2, 2), np.float32)})
    left = sorted(path.name for path in prepared.folder.glob("*.cache"))
    assert "vectors-query-new.cache" in left and len(left) < len(before)


def test_named_rows_are_those_that_are_there(large: Collection) -> None:
    [(query, document)] = large.pair_ids(large.pairs[:1])
    removal = Removal(["query1", "nobody"], ["doc3", "nothing"], [(query, document), ("nobody", "doc3")])
    rows: Callable[[], NamedRows] = lambda: NamedRows.of(large, removal)  # noqa: E731
    assert large.queries.ids(rows().query) == ["query1"] and large.documents.ids(rows().document) == ["doc3"]
    assert rows().pairs.tolist() == large.pair_keys(large.pairs[:1]).tolist()


@pytest.mark.parametrize("freeze", [None, "documents"])
def test_states_of_frozen_layers_are_computed_once_for_all_requests(
    freeze: str | None, state: Path, learned: Trained, large: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"train_layers": 1, "freeze": freeze, "target": "50%", "removal": Removal(documents=["doc7"])}
    usual = run(learned, large, None, **given)
    run(learned, large, KeptState.open(large, make=True), **given)
    gone = large.documents.rows(["doc7"])
    for path in sorted((state / "kept").rglob("states-document-*.cache")):
        arrays = KeptState(path.parent).load(path.name.removesuffix(".cache"))
        assert arrays is not None and len(arrays["rows"]) and not np.isin(gone, arrays["rows"]).any()
    assert any((state / "kept").rglob("states-document-*")) == (freeze is None)
    assert len({path.name.rpartition("-")[0] for path in (state / "kept").rglob("states-query-*")}) == 1
    made, keep = list[int](), FrozenStates.keep

    def kept_anew(states: FrozenStates, texts: Any, padded: torch.Tensor) -> None:
        made.append(len(texts))
        keep(states, texts, padded)

    monkeypatch.setattr(FrozenStates, "keep", kept_anew)
    again = run(learned, large, KeptState.open(large), **given)
    assert sum(made) <= 40, "those that are in a batch with the removed document"
    assert torch.allclose(weights(again), weights(usual), rtol=0, atol=ROUNDING)


def test_frozen_documents_need_no_states_of_frozen_layers(
    prepared: KeptState, learned: Trained, large: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kept states of documents are neither read nor written, and the ranker is the same without them."""
    given: dict[str, Any] = {"train_layers": 1, "target": "50%", "removal": Removal(documents=["doc7"])}
    run(learned, large, KeptState.open(large), **given)
    of_documents = [*prepared.folder.glob("states-document-*")]
    assert of_documents
    read, load = list[str](), KeptState.load

    def loaded(state: KeptState, name: str) -> Arrays | None:
        read.append(name)
        return load(state, name)

    monkeypatch.setattr(KeptState, "load", loaded)
    before = [path.stat().st_mtime_ns for path in of_documents]
    folder = shutil.copytree(prepared.folder, prepared.folder.parent.parent / "copy")
    frozen = run(learned, large, KeptState.open(large), **given, freeze="documents")
    assert not [name for name in read if name.startswith("states-document-")]
    assert [name for name in read if name.startswith("states-query-")]
    assert [path.stat().st_mtime_ns for path in of_documents] == before
    shutil.rmtree(prepared.folder)
    shutil.copytree(folder, prepared.folder)
    for path in of_documents:
        path.unlink()
    without = run(learned, large, KeptState.open(large), **given, freeze="documents")
    assert torch.equal(weights(frozen), weights(without))
    assert not [*prepared.folder.glob("states-document-*")]


def test_only_files_that_hold_something_of_it_are_rewritten(state: Path, large: Collection) -> None:
    opened = KeptState.open(large, make=True)
    assert opened is not None
    for name, rows in (("states-document-a-0", np.arange(5)), ("states-document-a-1", np.arange(5, 10))):
        opened.write(name, {"rows": rows, "lengths": np.ones(5, np.int64), "states": np.ones((5, 2), np.float32)})
    assert opened.names("states-document-a-") == ["states-document-a-0", "states-document-a-1"]
    before = {name: opened.path(name).stat().st_ino for name in opened.names("states-")}
    assert opened.erase(NamedRows(60, document=np.array([7]))) == []
    assert opened.path("states-document-a-0").stat().st_ino == before["states-document-a-0"]
    assert [opened.rows_in(name) for name in before] == [5, 4]


@pytest.mark.parametrize("harm", ["row", "name", "states"])
def test_a_file_whose_index_was_changed_is_deleted_and_never_used(harm: str, state: Path, large: Collection) -> None:
    opened, name = KeptState.open(large, make=True), "states-document-a-0"
    assert opened is not None
    arrays = {"rows": np.array([5, 77]), "lengths": np.ones(2, np.int64), "states": np.full((2, 2), 7.5, np.float32)}
    opened.write(name, arrays)
    path, whole = opened.path(name), opened.path(name).read_bytes()
    if harm == "name":
        name, path = "states-document-b-0", path.rename(opened.path("states-document-b-0"))
    else:
        kind: Any = np.int64 if harm == "row" else np.float32
        before, after = (77, 76) if harm == "row" else (7.5, 7.0)
        path.write_bytes(whole.replace(kind(before).tobytes(), kind(after).tobytes()))
        assert path.read_bytes() != whole
    assert opened.load(name) is None
    assert (opened.index(name) is None) == (harm != "states")
    assert opened.erase(NamedRows(60, document=np.array([5 if harm == "states" else 6]))) == []
    assert not path.exists()


def test_the_states_of_measured_queries_are_prepared_too(
    state: Path, learned: Trained, large: Collection, encoder: Path, tmp_path: Path
) -> None:
    base = Base(learned.record.base, learned.record.base_digest, str(encoder))
    record = replace(learned.record, settings={**learned.record.settings, "train_layers": 1})
    options, cache = ProxyOptions(count=2, epochs=1, device="cpu"), KeptState.open(large, make=True)
    assert cache is not None
    prepare_proxies(learned.ranker, large, tmp_path / "proxies", base, record=record, options=options, cache=cache)
    kept_rows = [row for name in cache.names("states-query-") for row in (cache.index(name) or {})["rows"].tolist()]
    assert {*large.test_queries.tolist()} <= {*kept_rows}
