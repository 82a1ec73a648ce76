"""A run: what it forgets, how it goes on after a stop, and what it leaves in the ledger."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from datetime import date
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from tests.forgetting.conftest import QUICK
from tests.tiny import made_record, make_bi_encoder
from unrank.audit.audit import OF_MEMORY
from unrank.audit.context import Thoroughness
from unrank.audit.margins import SaidMargins
from unrank.audit.plan import AuditPlan
from unrank.audit.plan import Prospect as PairsProspect
from unrank.cli.desk_show import result_json, show_result
from unrank.cli.option import NOT_REACHED, exit_status
from unrank.collection.collection import Collection, Pairs
from unrank.collection.partition import make_partition
from unrank.collection.removal import Removal
from unrank.collection.texts import Rows
from unrank.desk import run as desk_run
from unrank.desk.batch import honoured_in, open_batch
from unrank.desk.certificate import certificate
from unrank.desk.copies import OTHER_COLLECTION, Copy, find_copies, in_collection, without_names
from unrank.desk.gates import AuditResult, Limits, RequestPairs, gates
from unrank.desk.key import Key, key_file
from unrank.desk.ledger import Ledger
from unrank.desk.plan import Prospect, prospects, queries_that_notice, training_epochs
from unrank.desk.remains import find_remains
from unrank.desk.request import Item, State, items_of, removal_of
from unrank.desk.run import run_open
from unrank.desk.run_context import RunContext
from unrank.desk.run_ledger import UnfinishedRun, audit_folder, beside_ranker, only_run
from unrank.desk.run_options import RunOptions
from unrank.desk.run_result import RunResult
from unrank.disk import CHECKPOINT, beside
from unrank.engine.checkpoint import Cache
from unrank.engine.tokens import TokenStore
from unrank.errors import Stopped, UnrankError
from unrank.evaluation.scorecard import Evaluator
from unrank.forgetting.estimate import Seconds
from unrank.forgetting.options import ForgetOptions
from unrank.forgetting.outcome import Findings, ForgetState, Judgement, pair_ranks
from unrank.forgetting.previous_requests import hashed, recognised
from unrank.forgetting.train import train
from unrank.forgetting.workspace import Workspace
from unrank.methods.retrain import Retrain
from unrank.rankers import load_ranker
from unrank.record import Check, PreviousMrr, Record, SetSummary, read_record, requests_of

NOWHERE = Path("/nowhere/desk.ledger")


JUDGE = RequestPairs.judge


def forgotten(self: RequestPairs, *given: Any) -> dict[int, Judgement]:
    return {id: replace(one, state=ForgetState.FORGOTTEN) for id, one in JUDGE(self, *given).items()}


@pytest.fixture(autouse=True)
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """Audits that take no time, and requests that count as forgotten: these collections are too small to show it."""
    monkeypatch.setattr("unrank.desk.run_context.Thoroughness", partial(Thoroughness, relearning_steps=(1,)))
    monkeypatch.setattr(RequestPairs, "judge", forgotten)


@pytest.fixture
def options(dense: Collection, encoder: Path, tmp_path: Path) -> RunOptions:
    ranker = make_bi_encoder(encoder, tmp_path / "ranker")
    forget = ForgetOptions(settings={"learning_rate": "1e-3", "epochs": "1"}, device="cpu")
    return RunOptions(str(ranker), dense.folder, forget, target="0.9", audit_queries=5)


def ask(ledger: Ledger, key: Key, collection: Collection, **named: Any) -> int:
    items = items_of(Removal(**named), collection)
    return ledger.add(items, date(2026, 1, 1), date(2026, 2, 1), "other", key).id


def folder_of(done: RunResult) -> Path:
    assert done.out is not None
    return done.out


def fulfil(ledger: Ledger, path: Path, options: RunOptions) -> RunResult:
    done = run_open(ledger, key_file(path), options)
    assert done is not None and done.out is not None
    return done


def test_all_that_is_open_goes_in_one_run(
    ledger: Ledger, key: Key, path: Path, dense: Collection, options: RunOptions
) -> None:
    for named in ({"queries": ["query1"]}, {"documents": ["doc1"]}):
        ask(ledger, key, dense, **named)
    done = fulfil(ledger, path, options)
    assert {*done.states.values()} == {State.FORGOTTEN} and folder_of(done).name == "ranker-run1"
    record = read_record(folder_of(done))
    assert record is not None
    assert recognised(dense, [record.removed] if record.removed else []) == Removal(["query1"], ["doc1"])
    assert [ledger.request(id).run for id in (1, 2)] == [1, 1]
    assert run_open(ledger, key_file(path), options) is None, "what is fulfilled is not done twice"
    [part] = certificate(ledger, key, 1).value["rankers"]
    assert part["requests"] == 2 and part["run"] == 1
    ledger.verify()


def test_margins_are_in_the_history_before_there_is_a_new_ranker(
    ledger: Ledger,
    key: Key,
    path: Path,
    dense: Collection,
    options: RunOptions,
    encoder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A run that is stopped after the first step goes on with the margins that were said, and says none again."""
    ask(ledger, key, dense, documents=["doc1", "doc10"])
    places = [tmp_path / f"retrained-{seed}" for seed in range(2)]
    for seed, place in enumerate(places):
        removed = Removal(documents=["doc1", "doc10"])
        train(dense, "bi-encoder", str(encoder), removed, method=QUICK, seed=seed).save(place)
    given, audit = replace(options, references=tuple(map(str, places))), desk_run._audit

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(desk_run, "_audit", stop)
    with pytest.raises(KeyboardInterrupt):
        run_open(ledger, key_file(path), given)
    monkeypatch.setattr(desk_run, "_audit", audit)
    found = fulfil(ledger, path, given).result["audit"]["tests"]["equivalence"]["details"]
    entries = ledger.ask("SELECT event, details FROM history WHERE event LIKE 'run %' ORDER BY number")
    assert [event for event, _ in entries] == ["run begun", "run margins", "run step", "run step", "run passed"]
    assert found["said_beforehand"] is True and found["margins"] == json.loads(entries[1][1])["margins"]
    assert set(found["margins"]["figures"]) == {"reciprocal ranks", "scores"}
    ledger.verify()


def test_a_run_that_was_stopped_goes_on_from_the_last_folder(
    ledger: Ledger, key: Key, path: Path, dense: Collection, options: RunOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask(ledger, key, dense, documents=["doc1"])

    def stopped(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    for stage in ("forget_in", "audit_ranker", "finish_run"):
        with monkeypatch.context() as patched, pytest.raises((KeyboardInterrupt, Stopped)):
            patched.setattr(desk_run, stage, stopped)
            fulfil(ledger, path, options)
        assert ledger.request(1).state is State.OPEN
    half = Path(options.ranker).with_name(".ranker-run1.partial-0abc1234")
    half.mkdir()
    with monkeypatch.context() as patched:
        patched.setattr(desk_run, "forget_in", stopped)
        patched.setattr(desk_run, "audit_ranker", stopped)
        assert fulfil(ledger, path, options).states == {1: State.FORGOTTEN}
    assert ledger.ask("SELECT id, state FROM run") == [(1, "passed")] and not half.exists()


def test_a_run_that_was_stopped_is_given_up_when_another_is_asked_for(
    ledger: Ledger, key: Key, path: Path, dense: Collection, options: RunOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask(ledger, key, dense, documents=["doc1"])
    with monkeypatch.context() as patched, pytest.raises(ZeroDivisionError):
        patched.setattr(desk_run, "_audit", lambda *_: 1 / 0)
        fulfil(ledger, path, options)
    left = beside(Path(f"{options.ranker}-run1")) / CHECKPOINT
    left.parent.mkdir()
    left.touch()
    done = fulfil(ledger, path, replace(options, target="0.8"))
    assert done.run == 2 and folder_of(done).name == "ranker-run2"
    assert ledger.ask("SELECT state FROM run ORDER BY id") == [("abandoned",), ("passed",)]
    assert not left.parent.exists(), "its checkpoint held what it had to forget"
    ledger.verify()


def test_a_folder_that_somebody_else_made_is_not_taken_for_the_run(
    ledger: Ledger, key: Key, path: Path, dense: Collection, options: RunOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask(ledger, key, dense, documents=["doc1"])
    with monkeypatch.context() as patched, pytest.raises(ZeroDivisionError):
        patched.setattr(desk_run, "_forget", lambda *_: 1 / 0)
        fulfil(ledger, path, options)
    shutil.copytree(options.ranker, f"{options.ranker}-run1")
    with pytest.raises(UnrankError, match="exists and is not what this run wrote"):
        fulfil(ledger, path, options)


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ({"forget": ForgetOptions(method="magic")}, "unknown method 'magic'"),
        ({"forget": ForgetOptions(settings={"magic": "1"})}, "magic"),
        ({"target": "7"}, "a target of 7 is outside"),
        ({"target": "destination-1"}, "name it with --reference"),
        ({"target": None, "forget": ForgetOptions(proxies="nowhere")}, "--proxies .*nowhere: no proxies are there"),
        ({"forget": ForgetOptions(method="retrain")}, "retrain needs the model"),
        ({"references": ("nowhere",)}, "nowhere"),
        ({"ranker": "nowhere"}, "nowhere"),
    ],
)
def test_what_cannot_be_run_leaves_no_trace(
    wrong: dict[str, Any], problem: str, ledger: Ledger, key: Key, path: Path, dense: Collection, options: RunOptions
) -> None:
    ask(ledger, key, dense, documents=["doc1"])
    with pytest.raises(UnrankError, match=problem):
        run_open(ledger, key_file(path), replace(options, **wrong))
    assert ledger.head()[0] == 1 and ledger.ask("SELECT * FROM run") == []


def test_requests_that_name_the_same_pairs(ledger: Ledger, key: Key, dense: Collection) -> None:
    (query, document), *_ = dense.pair_ids(dense.pairs[:1])
    for named in ({"pairs": [(query, document)]}, {"queries": [query]}, {"documents": [document]}):
        ask(ledger, key, dense, **named)
    ledger.add([Item(query=query, query_text="another text")], date(2026, 1, 1), date(2026, 2, 1), "other", key)
    batch = open_batch(ledger, key, dense, None)
    assert [request.id for request in batch.requests] == [1, 2, 3]
    assert [request.id for request in batch.elsewhere] == [4]
    assert batch.overlaps(dense) == [(1, 2, 1), (1, 3, 1), (2, 3, 1)]


def test_a_request_that_fits_another_collection_does_not_hold_up_the_others(
    ledger: Ledger, key: Key, dense: Collection
) -> None:
    """The same ids and texts are there, as a test query, or as a pair that is not trained on."""
    [(test, document)] = dense.pair_ids(dense.test_pairs[:1])
    for named in ({"queries": [test]}, {"pairs": [(test, document)]}, {"documents": ["doc1"]}):
        ask(ledger, key, dense, **named)
    batch = open_batch(ledger, key, dense, None)
    assert [request.id for request in batch.elsewhere] == [1, 2]
    assert len(batch.partition(dense).forget)


def test_an_older_ranker_forgets_again_what_was_asked_for_before(
    ledger: Ledger, key: Key, path: Path, dense: Collection, options: RunOptions
) -> None:
    ask(ledger, key, dense, documents=["doc1"])
    first = fulfil(ledger, path, options)
    ask(ledger, key, dense, queries=["query1"])
    assert honoured_in(ledger, key, dense) == Removal(documents=["doc1"])
    known = read_record(folder_of(first))
    assert known is not None
    assert not open_batch(ledger, key, dense, replace(known, state="forgotten")).again, "the newer one has forgotten it"
    missed = replace(known, state="not forgotten")
    assert open_batch(ledger, key, dense, missed).again == Removal(documents=["doc1"])
    assert open_batch(ledger, key, dense, None).again == Removal(documents=["doc1"])
    done = fulfil(ledger, path, options)
    assert [*done.requests] == [2]
    assert recognised(dense, requests_of(read_record(folder_of(done)))) == Removal(["query1"], ["doc1"])


def test_a_document_with_the_same_id_and_another_text_was_never_asked_for(
    ledger: Ledger, key: Key, dense: Collection
) -> None:
    named = items_of(Removal(["query1"], ["doc1", "doc10"], dense.pair_ids(dense.pairs[-2:])), dense)
    others = [
        replace(item, document_text="another text") if item.document and item.document != "doc10" else item
        for item in named
    ]
    for items, honoured in ((others, Removal(["query1"], ["doc10"])), (named, removal_of(named))):
        id = ledger.add(items, date(2026, 1, 1), date(2026, 2, 1), "other", key).id
        with ledger.transaction():
            ledger.move(id, State.FORGOTTEN)
        assert honoured_in(ledger, key, dense) == honoured


def test_a_gate_that_is_not_passed_leaves_the_request_open(
    ledger: Ledger, key: Key, path: Path, dense: Collection, options: RunOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask(ledger, key, dense, documents=["doc1"])
    done = fulfil(ledger, path, replace(options, strict=True))
    assert not done.usable and done.states == {1: State.OPEN} and ledger.request(1).state is State.OPEN
    assert ledger.ask("SELECT state FROM run") == [("failed",)]
    assert folder_of(done).exists() and audit_folder(folder_of(done)).exists()
    ledger.verify()


def test_what_a_run_measured_cannot_be_changed_unseen(
    ledger: Ledger, key: Key, path: Path, dense: Collection, options: RunOptions
) -> None:
    ask(ledger, key, dense, documents=["doc1"])
    fulfil(ledger, path, options)
    ledger.ask("UPDATE run SET result = replace(result, 'reached', 'Reached')")
    with pytest.raises(UnrankError, match=r"run 1 is not as its history says in entry 5 \(run passed"):
        ledger.verify()
    with pytest.raises(UnrankError, match="was changed after it was recorded"):
        certificate(ledger, key, 1)


def test_one_run_at_a_time(ledger: Ledger, path: Path, tmp_path: Path) -> None:
    """Whatever path leads to the ledger, and whichever copy of its key is given."""
    (tmp_path / "other").symlink_to(path)
    shutil.copy(key_file(path), tmp_path / "copy.key")
    options = RunOptions("ranker", tmp_path / "collection")
    with only_run(tmp_path / "other"), pytest.raises(UnrankError, match="another run is in progress"):
        run_open(ledger, tmp_path / "copy.key", options)
    with only_run(path):
        pass
    assert not [*tmp_path.glob(".*")]


@pytest.mark.slow
def test_a_run_goes_on_from_another_working_directory(
    ledger: Ledger,
    key: Key,
    path: Path,
    dense: Collection,
    options: RunOptions,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ask(ledger, key, dense, documents=["doc1"])
    monkeypatch.chdir(tmp_path)
    with monkeypatch.context() as patched, pytest.raises(ZeroDivisionError):
        patched.setattr(desk_run, "_audit", lambda *_: 1 / 0)
        run_open(ledger, key_file(path), replace(options, ranker="ranker"), Path("new"))
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    done = run_open(ledger, key_file(path), replace(options, ranker="../below/../ranker"), Path("../new"))
    assert done is not None and done.run == 1 and done.out == tmp_path / "new"
    assert {holder["path"] for holder in done.result["holders"]} >= {options.ranker}
    ledger.verify()


def test_what_a_ranker_from_a_hub_becomes_lies_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert beside_ranker("somebody/model", 2) == tmp_path / "model-run2"


def test_a_request_fits_where_its_ids_have_its_texts(dense: Collection) -> None:
    [item] = items_of(Removal(documents=["doc1"]), dense)
    others = [Item(document="doc1", document_text="another text"), Item(query="none", query_text="x")]
    assert in_collection(dense, [item, *others]) == [True, False, False]


def test_what_holds_it_is_found(dense: Collection, golden: Collection, encoder: Path, tmp_path: Path) -> None:
    items = items_of(Removal(documents=["doc1"]), dense)
    text = str(items[0].document_text)
    shutil.copytree(dense.folder, tmp_path / "deep" / "collection")
    make_bi_encoder(encoder, tmp_path / "ranker")
    (tmp_path / "notes.txt").write_text(f"somebody said: {text}")
    (tmp_path / "rows.jsonl").write_text(json.dumps({"text": text + ' and "more"'}))
    (tmp_path / "innocent.txt").write_text("nothing of the kind")
    (tmp_path / "empty").touch()
    bi_encoder = load_ranker(tmp_path / "ranker")
    for cache, collection in (("cache", dense), ("other", golden)):
        store = TokenStore(bi_encoder, collection, Cache(tmp_path / cache))
        store.get(np.arange(2), "document")
        store.save(print)
    found = {(holder.kind, Path(holder.path).name) for holder in find_copies([tmp_path], items, dense, NOWHERE)}
    [cached] = (tmp_path / "cache").iterdir()
    files = {("file", "notes.txt"), ("file", "rows.jsonl")}
    assert found == files | {("collection", "collection"), ("ranker", "ranker"), ("cache", cached.name)}


def test_the_ledger_is_not_among_what_must_be_deleted(
    ledger: Ledger, key: Key, path: Path, dense: Collection, tmp_path: Path
) -> None:
    ask(ledger, key, dense, documents=["doc1"])
    items = items_of(Removal(documents=["doc1"]), dense)
    assert any(holder.path.startswith(str(path)) for holder in find_copies([tmp_path], items, dense, NOWHERE))
    assert find_copies([tmp_path], items, dense, path.parent / ".." / path.parent.name / path.name) == []
    (tmp_path / "away").mkdir()
    (tmp_path / "away" / "link").symlink_to(path.parent)
    (tmp_path / "away" / "desk").symlink_to(path)
    assert find_copies([tmp_path / "away" / "link", path.parent], items, dense, tmp_path / "away" / "desk") == []


def test_nothing_is_found_twice(dense: Collection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "copy.txt").write_text(dense.documents.texts(dense.documents.rows(["doc1"]))[0])
    monkeypatch.chdir(tmp_path)
    places = [Path(), Path("copy.txt"), tmp_path]
    [found] = find_copies(places, items_of(Removal(documents=["doc1"]), dense), dense, NOWHERE)
    assert found.path == str(tmp_path / "copy.txt")


def test_a_text_whose_title_is_kept_apart_is_found(dense: Collection, tmp_path: Path) -> None:
    for name, title, text in (
        ("short", "The windmill", 'Mr "Quixote" of Dulcinea Street owns it, and\nnobody else'),
        ("long", "A tale of windmills, told in full and with all that belongs to it", "It turns."),
    ):
        (tmp_path / f"{name}.jsonl").write_text(json.dumps({"title": title, "text": text}))
        (tmp_path / f"{name}.csv").write_text('"{}","{}"'.format(*(part.replace('"', '""') for part in (title, text))))
        items = [Item(document="d", document_text=f"{title} {text}")]
        found = {Path(holder.path).name for holder in find_copies([tmp_path], items, dense, NOWHERE)}
        assert found == {f"{name}.jsonl", f"{name}.csv"}


def test_a_ranker_of_a_renamed_collection_is_found(options: RunOptions, dense: Collection) -> None:
    items = items_of(Removal(documents=["doc1"]), dense)
    for trained_on, found in (
        ({"name": "another", "fingerprint": dense.fingerprint}, True),
        ({"name": dense.name, "fingerprint": "another"}, True),
        ({"name": "another", "fingerprint": "another"}, False),
        ({}, True),  # nobody knows
    ):
        (Path(options.ranker) / "unrank.json").write_text(
            json.dumps(made_record().to_json() | {"collection": trained_on})
        )
        assert bool(find_copies([Path(options.ranker)], items, dense, NOWHERE)) is found


def test_a_damaged_collection_does_not_tell_its_path_twice(dense: Collection, tmp_path: Path) -> None:
    damaged = tmp_path / "doc1234" / "collection"
    damaged.mkdir(parents=True)
    (damaged / "collection.json").write_text("{")
    items = [Item(document="doc1234")]
    [told] = without_names(find_copies([tmp_path], items, dense, NOWHERE), items)
    assert told.kind == "collection" and "doc1234" not in told.path + told.why


def test_caches_are_found_wherever_they_lie(dense: Collection, encoder: Path, tmp_path: Path) -> None:
    """In the folder of a collection or of a ranker, half written, or named as such."""
    ranker = make_bi_encoder(encoder, tmp_path / "ranker")
    shutil.copytree(dense.folder, tmp_path / "collection")
    store = TokenStore(load_ranker(ranker), dense, Cache(tmp_path / "ranker" / "cache"))
    store.get(np.arange(2), "document")
    store.save(print)
    [cached] = (tmp_path / "ranker" / "cache").iterdir()
    half = tmp_path / "collection" / ".partial-x" / cached.stem
    half.parent.mkdir()
    half.write_bytes(b"half")
    items = items_of(Removal(documents=["doc1"]), dense)
    assert {holder.path for holder in find_copies([tmp_path], items, dense, NOWHERE) if holder.kind == "cache"} == {
        str(cached),
        str(half),
    }
    assert [holder.kind for holder in find_copies([cached], items, dense, NOWHERE)] == ["cache"]


@pytest.mark.parametrize(
    ("reference", "three", "given", "target"),
    [
        (None, False, None, "places"),
        (None, False, "unseen", "places"),  # another name for it
        ("without", False, None, "places"),
        ("without", True, None, "places"),
        ("without", False, "half-unseen", "half-unseen"),
        ("unknown", False, "test-mrr", "test-mrr"),
    ],
)
def test_a_run_forgets_to_where_a_ranker_is_that_never_saw_it(
    reference: str | None,
    three: bool,
    given: str | None,
    target: str,
    ledger: Ledger,
    key: Key,
    path: Path,
    dense: Collection,
    options: RunOptions,
    encoder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ask(ledger, key, dense, documents=["doc1"])
    if reference == "unknown":
        make_bi_encoder(encoder, tmp_path / reference)
    elif reference is not None:
        removed = Removal(documents=["doc1", "doc10"])
        train(dense, "bi-encoder", str(encoder), removed, method=QUICK).save(tmp_path / reference)
    seen: list[str | None] = []

    class Enough(Exception):
        pass

    def forget(ledger: Ledger, run: UnfinishedRun, context: RunContext, *_: Any) -> None:
        seen.append(context.target)
        assert context.options.target == context.target, "the ledger is told of it"
        known = reference == "without" and (given is not None or three)
        assert context.reference.known is known, "it tells no places if nothing is known of it, or if it has to judge"
        raise Enough

    monkeypatch.setattr(desk_run, "_forget", forget)
    monkeypatch.setattr("unrank.desk.run_context.check_other_weights", lambda *_: None)  # it was never trained
    references = (str(tmp_path / reference),) * (3 if three else 2) if reference else ()
    with pytest.raises(Enough):
        forget_options = replace(options.forget, base=str(encoder))
        run_open(ledger, key_file(path), replace(options, target=given, references=references, forget=forget_options))
    assert seen == [target]


def test_a_ranker_that_fell_short_still_holds_it(
    options: RunOptions, dense: Collection, ledger: Ledger, key: Key, tmp_path: Path
) -> None:
    """Its record names what it was to forget, and that it did not get there. A stray file of weights hides nothing."""
    ask(ledger, key, dense, documents=["doc1"])
    fallen = tmp_path / "srv" / "old" / "fallen"
    shutil.copytree(options.ranker, fallen)
    made = made_record(dense.fingerprint, removed=hashed(Removal(documents=["doc1"])))
    made = replace(made, target=0.1, target_name="0.1")
    (tmp_path / "srv" / "index.bin").write_bytes(b"0")
    (tmp_path / "srv" / "old" / "config.json").write_text("{}")
    items = items_of(Removal(documents=["doc1"]), dense)
    for reached in (True, False):
        (fallen / "unrank.json").write_text(json.dumps(replace(made, reached=reached).to_json()))
        found = {holder.path for holder in find_copies([tmp_path / "srv"], items, dense, NOWHERE)}
        assert (str(fallen) in found) is not reached
        batch = open_batch(ledger, key, dense, read_record(fallen))
        assert ("doc1" in batch.earlier.documents) is reached


def test_a_ranker_with_a_frozen_document_side_holds_the_originals(
    options: RunOptions, dense: Collection, tmp_path: Path
) -> None:
    """Only its query side has forgotten: plain document vectors are the original's."""
    removed = hashed(Removal(documents=["doc1"]))
    made = replace(made_record(dense.fingerprint, removed=removed), target=0.1, target_name="0.1", reached=True)
    items = items_of(Removal(documents=["doc1"]), dense)
    for settings, found in (({}, []), ({"freeze": "documents"}, ["ranker"])):
        written = replace(made, settings=settings).to_json()
        (Path(options.ranker) / "unrank.json").write_text(json.dumps(written))
        copies = find_copies([Path(options.ranker)], items, dense, NOWHERE)
        assert [copy.kind for copy in copies] == found
        assert all("original's document encoder" in copy.why for copy in copies)


@pytest.mark.parametrize(
    ("trained", "learned", "epochs"),
    [
        (1, 0.4, (1, 12)),  # it was given one epoch, and was not done
        (1, 0.97, (1, 1)),  # it ended by itself
        (5, 0.96, (5, 5)),
        (5, None, (5, 12)),  # nothing is known of how it ended
        (12, 0.8, (12, 12)),
        (20, 0.8, (12, 20)),
    ],
)
def test_the_plan_counts_the_epochs_of_a_training_that_ended_by_itself(
    trained: float, learned: float | None, epochs: tuple[float, float]
) -> None:
    recipe = Retrain(epochs=12, enough=0.95)
    history = (Check(epoch=trained, learned=learned),)
    record = replace(made_record(), method="retrain", settings={"epochs": trained}, epochs=trained, history=history)
    assert training_epochs(record, recipe) == epochs
    assert training_epochs(replace(record, method="cocol"), recipe) == (1, 12)
    assert training_epochs(None, recipe) == (1, 12)


def test_who_saw_what_is_removed_is_no_reference(
    ledger: Ledger, key: Key, path: Path, dense: Collection, options: RunOptions, encoder: Path, tmp_path: Path
) -> None:
    ask(ledger, key, dense, documents=["doc1"])
    other = Removal(documents=["doc10"])
    train(dense, "bi-encoder", str(encoder), other, method=QUICK).save(tmp_path / "saw")
    with pytest.raises(
        UnrankError, match="saw was trained on what is removed, as its record says: it cannot be a reference"
    ):
        run_open(ledger, key_file(path), replace(options, references=(str(tmp_path / "saw"),)))


def test_a_path_does_not_tell_what_was_removed() -> None:
    held = [Copy("file", "/data/doc1234/copy.txt", "why"), Copy("file", "/data/doc1234.txt", "why")]
    told = without_names(held, [Item(document="doc1234")])
    assert [holder.path for holder in told] == ["/data", "/data"]


def test_who_notices(golden: Collection) -> None:
    removal = Removal(queries=["q1"])
    noticing = golden.queries.ids(queries_that_notice(golden, make_partition(golden, removal), removal))
    assert "q1" not in noticing and "q3" in noticing
    later = make_partition(golden, removal, previous=Removal(documents=["d3"]))
    assert golden.queries.ids(queries_that_notice(golden, later, removal)) == noticing, "d3 was missed before"


def test_the_plan_says_what_a_run_can_show(ledger: Ledger, key: Key, dense: Collection) -> None:
    """Two judges are needed, and a judge that never saw a pair; a few queries need a ranker to compare with."""
    ask(ledger, key, dense, documents=["doc1"])
    ask(ledger, key, dense, queries=[f"query{number}" for number in range(12)])
    batch, margins = open_batch(ledger, key, dense, None), cast(SaidMargins, SimpleNamespace())
    can, cannot = PairsProspect(9, 9, 0.4), PairsProspect(9, 0, None, "there is none")
    two = "needs 2 more references or proxies that never saw it"
    alone, whole = AuditPlan(9, 9, cannot, Seconds(0, 0), None, two), AuditPlan(9, 9, can, Seconds(0, 0), margins)
    for audit, doubts, lacks in (
        (alone, [], f"cannot be 'equivalent': it {two}"),
        (replace(whole, single=cannot), [""], "single pairs cannot be tested: there is none"),
        (whole, ["", "it has no record"], "reference 2: provenance unknown: it has no record"),
    ):
        found = prospects(dense, batch, audit, doubts).values()
        assert all(str(one).endswith(lacks) and "'forgotten, not verifiable' at best" in str(one) for one in found)
    few, many = prospects(dense, batch, whole, [], compared=False).values()
    assert few.queries < 10 and few.lacks[0].startswith(f"{few.queries} queries, where 10 are needed")
    assert many == Prospect(many.pairs, 12, ())
    assert "the result will be 'forgotten' at best, if the audit says 'equivalent'" in str(many)


def test_gates() -> None:
    def card(mrr: float) -> SetSummary:
        return SetSummary(mrr, mrr, mrr, queries=100)

    record = replace(
        made_record(),
        reached=True,
        target=0.3,
        epochs=2,
        before={"forget": card(0.8), "test": card(0.5)},
        after={"forget": card(0.3), "test": card(0.45)},
    )

    def audit_of(verdict: str, lost: str = "kept", **known: dict[str, str]) -> AuditResult:
        tests = {name: {"verdict": verdict, "words": "why"} for name in OF_MEMORY}
        return AuditResult.of({"verdict": verdict, "tests": {**tests, "retention": {"verdict": lost}, **known}})

    def passed(
        verdict: str,
        least: float | None = None,
        strict: bool = False,
        lost: str = "kept",
        default: float | None = 0.3,
        **more: Any,
    ) -> list[bool]:
        shown = gates(replace(record, **more), audit_of(verdict, lost), default, Limits(least, strict))
        return [gate.passed for gate in shown]

    level = "indistinguishable from a retrained ranker at this test's power"
    assert passed("suppressed") == [True, True]
    assert passed("still remembered") == [True, False]
    assert passed("cannot be known") == [True, False]
    assert passed("undecided") == [True, False]
    assert passed("equivalent", strict=True) == [True, True, True]
    assert passed("undecided", strict=True) == [True, False, False]
    assert passed("suppressed", 0.9) == [True, True, True]
    assert passed("suppressed", 0.95) == [True, False, True]
    assert passed("suppressed", default=0.299) == [False, True]
    assert passed("suppressed", default=None) == [False, True]
    assert passed(level, strict=True) == [True, True, True]
    assert passed(level, strict=True, lost="lost") == [True, True, False]
    assert passed("suppressed", strict=True, reached=False) == [False, True, False]
    assert passed("suppressed", earlier=PreviousMrr(0.2, 0.24)) == [True, True, True]
    assert passed("suppressed", earlier=PreviousMrr(0.2, 0.26)) == [True, False, True]
    assert passed("suppressed", method="ssd", reached=None) == [True, True]
    assert passed("suppressed", method="ssd", reached=None, target=0.2) == [False, True]
    assert passed("suppressed", method="retrain", reached=None, target=0.2) == [True, True]
    assert "no weight was" in gates(replace(record, epochs=0), audit_of(level), 0.3, Limits())[0].words
    audit = audit_of("suppressed", membership={"verdict": "cannot be known", "words": "there are no test pairs"})
    gate = gates(record, audit, 0.3, Limits())[-1]
    assert not gate.passed and gate.words.endswith("cannot be known by membership: there are no test pairs")
    undecided = AuditResult.of({"verdict": "undecided", "words": "needs 7 more queries", "tests": {}})
    assert gates(record, undecided, 0.3, Limits())[-1].words == "in all: undecided; needs 7 more queries"
    doubted = gates(record, audit_of(level), 0.3, Limits(), ["reference 1: provenance unknown: it has no record"])[-1]
    assert not doubted.passed and "provenance unknown" in doubted.words
    barring = gates(replace(record, earlier=PreviousMrr(0.2, 0.3)), audit, 0.2, Limits(0.95, strict=True))
    assert [gate.name for gate in barring if gate.bars_use] == ["earlier", "kept", "strict"]


def test_ranks_of_pairs_are_those_that_the_mrr_goes_by(dense: Collection) -> None:
    generator = np.random.default_rng(1)
    scores = {tuple(pair): generator.integers(6) for pair in dense.list_pairs(np.arange(len(dense.queries))).tolist()}

    def score(pairs: Pairs) -> Any:
        return np.array([scores[tuple(pair)] for pair in pairs.tolist()], np.float32)

    removal = Removal(["query1"], ["doc1", "doc10"])
    partition = make_partition(dense, removal)
    pairs = RequestPairs.of(dense, {7: items_of(removal, dense)})
    [judged] = JUDGE(pairs, score, score, 0.5, Findings(True)).values()
    result = judged.ranks
    assert result.mrr_before == result.mrr_after == Evaluator(dense, partition).forget_mrr(score)
    assert result.queries == len(np.unique(partition.forget[:, 0]))
    expected = []
    for query, document in partition.forget.tolist():
        others = score(dense.negatives.pairs(np.array([query])))
        expected.append((1 + int(np.count_nonzero(others > scores[query, document])), len(others) + 1))
    assert list(zip(result.ranks_before, result.list_lengths, strict=True)) == sorted(expected)
    beyond = RequestPairs.of(dense, {7: items_of(removal, dense)}, "beyond:3")
    [each] = JUDGE(beyond, score, score, 0.25, Findings(True)).values()
    assert set(each.ranks.least_ranks) == {4} and min(result.ranks_after) < 4
    assert each.state is ForgetState.NOT_FORGOTTEN and "ranked higher than the target allows" in each.why


def test_each_request_ends_in_its_own_state(
    ledger: Ledger,
    key: Key,
    path: Path,
    dense: Collection,
    options: RunOptions,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    outcomes = {1: ForgetState.FORGOTTEN, 2: ForgetState.NOT_FORGOTTEN, 3: ForgetState.NOT_VERIFIABLE}
    for document in ("doc1", "doc10", "doc11"):
        ask(ledger, key, dense, documents=[document])

    def results(self: RequestPairs, *given: Any) -> dict[int, Judgement]:
        return {id: replace(one, state=outcomes[id]) for id, one in JUDGE(self, *given).items()}

    monkeypatch.setattr(RequestPairs, "judge", results)
    done = fulfil(ledger, path, options)
    assert {id: str(ledger.request(id).state) for id in outcomes} == {id: str(one) for id, one in outcomes.items()}
    assert exit_status(done.states.values()) == NOT_REACHED
    for target, advised in (("0.9", True), ("beyond:3", False)):
        done.result["record"]["target_name"] = target
        show_result(done)
        said = capsys.readouterr().out
        assert "--method retrain may help" in said and ("a lower --target" in said) is advised
    told = result_json(done)["requests"]
    assert [(one["request"], one["state"]) for one in told] == [(id, str(one)) for id, one in outcomes.items()]
    assert all(one["worst"] and one["pairs"] == len(one["ranks_after"]) for one in told)
    [part] = certificate(ledger, key, 1).value["rankers"]
    own = done.requests[1].to_json()
    assert part["requests"] == 3 and part["measured"]["request"] == {name: own[name] for name in own if name != "words"}
    with pytest.raises(UnrankError, match="request 2 is not forgotten"):
        certificate(ledger, key, 2)
    [taken] = open_batch(ledger, key, dense, read_record(folder_of(done))).requests
    assert taken.id == 2, "the next run takes what is not forgotten"
    ledger.verify()


def ranks_by(folder: str, dense: Collection) -> Rows:
    """Return the rank that a ranker gives each pair in its list."""
    ranker = load_ranker(folder)
    return pair_ranks(dense, dense.pairs, Workspace.open(ranker, dense, None, "cpu").scorer(ranker))


def test_if_nothing_is_ranked_above_unseen_no_weight_changes(
    ledger: Ledger,
    key: Key,
    path: Path,
    dense: Collection,
    options: RunOptions,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """There is no new ranker, and a statement of that finding in place of a certificate."""
    monkeypatch.setattr(RequestPairs, "judge", JUDGE)
    ranks = ranks_by(options.ranker, dense)
    ask(ledger, key, dense, pairs=dense.pair_ids(dense.pairs[ranks == ranks.max()][:1]))
    done = run_open(ledger, key_file(path), replace(options, target=None))
    assert done is not None and done.out is None and done.states == {1: State.NOTHING_TO_FORGET}
    assert exit_status(done.states.values()) == 0 and result_json(done)["ranker"] is None
    assert not Path(f"{options.ranker}-run1").exists() and not [*tmp_path.glob("*.unfinished")]
    assert certificate(ledger, key, 1).value["state"] == "nothing to forget"
    ledger.verify()


def test_a_ranker_with_nothing_to_forget_is_not_still_to_be_deleted(
    ledger: Ledger,
    key: Key,
    path: Path,
    dense: Collection,
    options: RunOptions,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It stays in use. The ranker that it came from is to be deleted, as closing says too."""
    monkeypatch.setattr(RequestPairs, "judge", JUDGE)
    record = made_record(dense.fingerprint).to_json()
    (Path(options.ranker) / "unrank.json").write_text(json.dumps(record))
    ranks = ranks_by(options.ranker, dense)
    low, high = (dense.pair_ids(dense.pairs[ranks == rank][:1]) for rank in (ranks.max(), 1))
    ask(ledger, key, dense, pairs=low)

    def rankers(done: RunResult | None, part: str) -> set[str]:
        assert done is not None
        return {Path(copy["path"]).name for copy in done.result[part] if copy["kind"] == "ranker"}

    done = run_open(ledger, key_file(path), replace(options, target="beyond:6"))
    assert done is not None and done.out is None and rankers(done, "holders") == set()
    assert {copy.path for copy in find_remains(ledger, 1).there} == {str(dense.folder.resolve())}

    ask(ledger, key, dense, pairs=high)
    shutil.copytree(options.ranker, tmp_path / "later")
    monkeypatch.setattr(RequestPairs, "judge", forgotten)
    done = fulfil(ledger, path, replace(options, ranker=str(tmp_path / "later")))
    assert rankers(done, "holders") == {"ranker", "later"}, "an earlier run read it, and looked for another request"
    (tmp_path / "later" / "unrank.json").write_text(json.dumps(made_record("another").to_json()))
    ask(ledger, key, dense, documents=["doc4"])
    done = fulfil(ledger, path, options)
    assert rankers(done, "not_searched") == {"later"} and "later" not in rankers(done, "holders")
    assert {each["why"] for each in done.result["not_searched"]} == {OTHER_COLLECTION}


def test_a_ranker_that_lost_more_than_allowed_is_not_for_use(
    ledger: Ledger, key: Key, path: Path, dense: Collection, options: RunOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask(ledger, key, dense, documents=["doc1"])
    monkeypatch.setattr(Record, "kept", {"disjoint": 0.5})
    done = fulfil(ledger, path, replace(options, keep_at_least=0.9))
    assert not done.usable and done.states == {1: State.OPEN} and result_json(done)["usable"] is False
    assert [request.id for request in open_batch(ledger, key, dense, None).requests] == [1]
