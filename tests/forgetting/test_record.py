"""What forgetting leaves on the disk: all that is needed to judge it, and nothing that was removed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sentence_transformers import SentenceTransformer

from unrank.collection.collection import Collection
from unrank.collection.removal import Removal
from unrank.disk import sha256
from unrank.errors import UnrankError
from unrank.forgetting.forget import Forgotten, forget
from unrank.forgetting.train import Trained, train
from unrank.methods.cocol import Cocol
from unrank.methods.retrain import Retrain
from unrank.owner import owner_key
from unrank.rankers import load_ranker
from unrank.rankers.bi_encoder import BiEncoderRanker
from unrank.record import RECORD, read_record, sealed_by_owner

KINDS = ["documents", "queries", "pairs"]


def removed_strings(collection: Collection, removal: Removal) -> dict[str, str]:
    """Every id and every text that a removal names."""
    queries = {*removal.queries, *(query for query, _ in removal.pairs)}
    documents = {*removal.documents, *(document for _, document in removal.pairs)}
    texts = {
        **dict(zip(queries, collection.queries.texts(collection.queries.rows([*queries])), strict=True)),
        **dict(zip(documents, collection.documents.texts(collection.documents.rows([*documents])), strict=True)),
    }
    return {**{f"id {id}": id for id in texts}, **{f"text of {id}": text for id, text in texts.items()}}


def found_in(folder: Path, strings: dict[str, str]) -> Iterator[str]:
    """Which of the strings stand somewhere in the bytes or the names of a folder's files."""
    for path in folder.rglob("*"):
        content = str(path.relative_to(folder)).encode() + (path.read_bytes() if path.is_file() else b"")
        for name, string in strings.items():
            if string.encode() in content or json.dumps(string)[1:-1].encode() in content:
                yield f"{name} in {path.name}"


@pytest.fixture(scope="module")
def saved(
    removals: dict[str, Removal],
    briefly: Callable[[Removal], Forgotten],
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, Path]:
    """The folder of a run for each kind of removal."""
    folders = {kind: tmp_path_factory.mktemp("forgotten") / kind for kind in KINDS}
    for kind, folder in folders.items():
        briefly(removals[kind]).save(folder)
    return folders


@pytest.fixture(scope="module")
def record(saved: dict[str, Path]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((saved["documents"] / "unrank.json").read_text())
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_that_was_removed_is_written(
    saved: dict[str, Path], removals: dict[str, Removal], dense: Collection, kind: str
) -> None:
    strings = removed_strings(dense, removals[kind])
    assert len(strings) > 10
    assert len(list(saved[kind].rglob("*"))) > 8
    assert list(found_in(saved[kind], strings)) == []


def test_a_leak_would_be_seen(saved: dict[str, Path], removals: dict[str, Removal], dense: Collection) -> None:
    """The search itself works: a file that holds a removed text is found."""
    strings = removed_strings(dense, removals["documents"])
    leak = saved["documents"] / "2_Dense" / "notes.bin"
    leak.write_bytes(b"\0" + next(iter(strings.values())).encode() + b"\0")
    try:
        assert len(list(found_in(saved["documents"], strings))) >= 1
    finally:
        leak.unlink()


@pytest.mark.parametrize("kind", ["documents", *(pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS[1:])])
def test_nothing_comes_along_from_the_original_folder(
    trained: Trained, dense: Collection, removals: dict[str, Removal], tmp_path: Path, kind: str
) -> None:
    """The model card of the original may show training samples, the removed among them; other files may too."""
    strings = removed_strings(dense, removals[kind])
    original = tmp_path / "original"
    trained.save(original)
    card = "---\nlibrary_name: sentence-transformers\nwidget:\n"
    card += (
        "".join(f"- text: {text}\n" for text in strings.values()) + "---\n# A ranker\n" + "\n".join(strings.values())
    )
    (original / "README.md").write_text(card)
    (original / "samples.json").write_text(json.dumps([*strings.values()]))
    (original / "history.jsonl").write_text("\n".join(map(json.dumps, strings.values())))
    assert len(set(found_in(original, strings))) >= len(strings)
    method = Cocol(learning_rate=1e-3, batch=16, epochs=1)
    forget(load_ranker(original), dense, removals[kind], method=method, target=0.01).save(tmp_path / "result")
    assert list(found_in(tmp_path / "result", strings)) == []


def test_nothing_comes_along_when_there_was_nothing_to_do(
    trained: Trained, dense: Collection, removal: Removal, tmp_path: Path
) -> None:
    strings = removed_strings(dense, removal)
    trained.save(tmp_path / "original")
    (tmp_path / "original" / "README.md").write_text("\n".join(strings.values()))
    forget(load_ranker(tmp_path / "original"), dense, removal, target=1.0).save(tmp_path / "result")
    assert list(found_in(tmp_path / "result", strings)) == []


def test_retraining_writes_nothing_that_was_removed(
    dense: Collection, encoder: Path, removal: Removal, tmp_path: Path
) -> None:
    method = Retrain(epochs=1, negatives=1)
    train(dense, "bi-encoder", str(encoder), removal, method=method).save(tmp_path / "retrained")
    assert list(found_in(tmp_path / "retrained", removed_strings(dense, removal))) == []
    found = read_record(tmp_path / "retrained")
    assert found is not None
    assert found["removed"]["documents"]["count"] == len(removal.documents)


def test_the_history_has_a_line_a_check(saved: dict[str, Path], record: dict[str, Any]) -> None:
    lines = (saved["documents"] / "history.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == record["history"]
    assert len(lines) == record["epochs"] == 2


def test_every_file_of_the_model_is_hashed(saved: dict[str, Path], record: dict[str, Any]) -> None:
    folder = saved["documents"]
    ours = {"unrank.json", "history.jsonl", "README.md"}
    files = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert files - ours == record["hashes"].keys()
    assert ours < files
    assert all(sha256(folder / name) == value for name, value in record["hashes"].items())


def test_the_record_is_json_that_any_reader_takes(saved: dict[str, Path]) -> None:
    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    text = (saved["documents"] / "unrank.json").read_text()
    assert json.loads(text, parse_constant=refuse)["record_version"] == 2


@pytest.mark.parametrize("kind", KINDS)
def test_hashes_recognise_what_was_removed(saved: dict[str, Path], removals: dict[str, Removal], kind: str) -> None:
    found = read_record(saved[kind])
    assert found is not None
    removed, owner = found["removed"], owner_key()
    items = getattr(removals[kind], kind)
    assert removed[kind]["count"] == len(items)
    assert owner is not None and removed["key"] == owner.name
    expected = {owner.mac(f"removed {kind}", json.dumps(item).encode())[:32] for item in items}
    assert set(removed[kind]["hashes"]) == expected
    assert all(removed[other] == {"count": 0, "hashes": []} for other in KINDS if other != kind)


def test_a_record_is_sealed_by_its_owner(
    saved: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(saved["documents"], folder)
    assert sealed_by_owner(folder)
    record = json.loads((folder / RECORD).read_text())
    weights = folder / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-1] + b"x")
    assert not sealed_by_owner(folder)
    weights.write_bytes(whole)
    (folder / "added.json").write_text("{}")
    assert not sealed_by_owner(folder)
    (folder / "added.json").unlink()
    for changed in (record | {"method": "retrain"}, record | {"added": 1}, record | {"seal": None}):
        (folder / RECORD).write_text(json.dumps(changed))
        assert not sealed_by_owner(folder)
    (folder / RECORD).write_text(json.dumps(record))
    assert sealed_by_owner(folder)
    monkeypatch.setenv("UNRANK_STATE", str(tmp_path / "other"))
    assert not sealed_by_owner(folder)
    assert owner_key(make=True) is not None
    assert not sealed_by_owner(folder)


def test_the_model_card_tells_what_was_done_in_counts(saved: dict[str, Path], record: dict[str, Any]) -> None:
    card = (saved["documents"] / "README.md").read_text()
    assert "Made by unrank with the method `cocol`." in card
    assert "Removed: 0 queries, 8 documents, 0 pairs." in card
    forgotten = record["before"]["forget"]["mrr"], record["after"]["forget"]["mrr"]
    assert f"| forget | {forgotten[0]:.3f} | {forgotten[1]:.3f} |" in card


def test_the_result_is_a_ranker_for_its_users_tools(saved: dict[str, Path]) -> None:
    ranker = load_ranker(saved["documents"])
    assert isinstance(ranker, BiEncoderRanker)
    model = SentenceTransformer(str(saved["documents"]), device="cpu")
    wanted = model.similarity(model.encode_query(["ba be"]), model.encode_document(["ce di"])).item()
    assert ranker.score_texts(["ba be"], ["ce di"])[0] == pytest.approx(wanted, rel=1e-6)


def test_a_folder_that_unrank_did_not_write_has_no_record(encoder: Path) -> None:
    assert read_record(encoder) is None


@pytest.mark.parametrize(
    "failure", [OSError(28, "No space left on device"), RuntimeError("broken"), KeyboardInterrupt()]
)
@pytest.mark.parametrize(
    "where", ["unrank.rankers.bi_encoder.BiEncoderRanker.save", "unrank.forgetting.save.model_card"]
)
def test_a_result_appears_whole_or_not_at_all(
    forgotten: Forgotten, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, failure: BaseException
) -> None:
    """Whether the weights or the last file beside them cannot be written."""

    def fail(*_: object) -> None:
        raise failure

    monkeypatch.setattr(where, fail)
    with pytest.raises(UnrankError if isinstance(failure, OSError) else type(failure)):
        forgotten.save(tmp_path / "deep" / "result")
    assert [path for path in tmp_path.rglob("*") if path.name != "deep"] == []
    monkeypatch.undo()
    forgotten.save(tmp_path / "deep" / "result")
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["result"]


def test_a_folder_that_exists_is_never_touched(forgotten: Forgotten, tmp_path: Path) -> None:
    (tmp_path / "result").mkdir()
    (tmp_path / "result" / "mine").write_text("mine")
    with pytest.raises(UnrankError, match="exists already"):
        forgotten.save(tmp_path / "result")
    assert [path.name for path in tmp_path.rglob("*")] == ["result", "mine"]
