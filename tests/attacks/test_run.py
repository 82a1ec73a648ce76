"""Attacks on a run of the desk: on what it forgets, what it is compared with, and what it leaves behind."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.forgetting.conftest import QUICK
from tests.forgetting.test_resume import StopAfter
from tests.tiny import make_bi_encoder
from unrank.audit.audit import AUDIT
from unrank.audit.context import Thoroughness
from unrank.cli.main import run
from unrank.collection.collection import Collection, Pairs
from unrank.collection.removal import Removal
from unrank.desk import run as desk_run
from unrank.desk.key import key_file
from unrank.desk.ledger import Ledger
from unrank.desk.request import RUNNABLE, State, items_of
from unrank.desk.run import run_open
from unrank.desk.run_ledger import audit_folder
from unrank.desk.run_options import RunOptions
from unrank.desk.run_result import RunResult
from unrank.disk import beside, read_json, sha256
from unrank.engine.checkpoint import digest
from unrank.engine.resume import resumable
from unrank.engine.runtime import Progress
from unrank.errors import Stopped, UnrankError
from unrank.forgetting.forget import forget_in
from unrank.forgetting.options import ForgetOptions
from unrank.forgetting.target import tolerance
from unrank.forgetting.train import train
from unrank.rankers import load_ranker

WEIGHTS = "model.safetensors"
FirstPairs = list[tuple[str, str]]


@dataclass
class Desk:
    """A ledger, and a ranker that it is about."""

    ledger: Ledger
    collection: Collection
    options: RunOptions

    @property
    def folder(self) -> Path:
        return self.ledger.path.parent

    def ask(self, **named: Any) -> int:
        items = items_of(Removal(**named), self.collection)
        key = self.ledger.key(key_file(self.ledger.path))
        return self.ledger.add(items, date(2026, 1, 1), date(2026, 2, 1), "other", key).id

    def run(self, progress: Progress | None = None, out: Path | None = None, **changes: Any) -> RunResult:
        options = replace(self.options, **changes)
        done = run_open(self.ledger, key_file(self.ledger.path), options, out, progress)
        assert done is not None
        return done

    def words(self, *words: object) -> list[str]:
        """A command line with the settings of this desk."""
        told = ["desk", "run", self.options.ranker, self.collection.folder, "--yes", "--quiet", "--device", "cpu"]
        return [str(word) for word in (*told, "--ledger", self.ledger.path, "--queries", 5, *words)]


@pytest.fixture
def make_desk(dense: Collection, encoder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Path], Desk]]:
    """Desks whose audits take little time. Their ranker is untrained, so some documents are first by chance."""
    monkeypatch.setattr("unrank.desk.run_context.Thoroughness", partial(Thoroughness, relearning_steps=(1,)))
    opened: list[Ledger] = []

    def make(folder: Path) -> Desk:
        folder.mkdir(exist_ok=True)
        ranker = make_bi_encoder(encoder, folder / "ranker")
        forget = ForgetOptions(settings={"learning_rate": "1e-3", "epochs": "3"}, device="cpu", checkpoint_every=0)
        path = folder / "desk.ledger"
        opened.append(Ledger.open(path, make_with=key_file(path)))
        return Desk(opened[-1], dense, RunOptions(str(ranker), dense.folder, forget, audit_queries=5))

    yield make
    for ledger in opened:
        ledger.__exit__(None, None, None)


@pytest.fixture
def desk(make_desk: Callable[[Path], Desk], tmp_path: Path) -> Desk:
    return make_desk(tmp_path / "desk")


def ranks(collection: Collection, ranker: Path, pairs: Pairs) -> list[int]:
    """The rank of each pair among its query's negatives, counted without the desk's own code."""
    loaded = load_ranker(ranker)

    def scores(query: int, documents: list[int]) -> Any:
        texts = [*collection.queries.texts(np.array([query]))] * len(documents)
        return loaded.score_texts(texts, collection.documents.texts(np.array(documents)))

    found = []
    for query, document in pairs.tolist():
        others = collection.negatives.pairs(np.array([query]))[:, 1].tolist()
        own, *rest = np.asarray(scores(query, [document, *others])).tolist()
        found.append(1 + sum(score > own for score in rest))
    return found


@pytest.fixture(scope="module")
def first_pairs(dense: Collection, encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> FirstPairs:
    """The pairs that the ranker of every desk ranks first."""
    ranker = make_bi_encoder(encoder, tmp_path_factory.mktemp("original") / "ranker")
    first = np.array(ranks(dense, ranker, dense.pairs)) == 1
    return dense.pair_ids(dense.pairs[first])


@pytest.mark.attack(2)
def test_a_target_that_asks_for_nothing_forgets_nothing(
    desk: Desk, first_pairs: FirstPairs, capsys: pytest.CaptureFixture[str]
) -> None:
    desk.ask(pairs=first_pairs[:1])
    assert run(desk.words("--target", "1.0", "--json")) == 3
    [told] = json.loads(capsys.readouterr().out)["requests"]
    assert told["state"] == "not forgotten" and told["worst"]["before"] == told["worst"]["after"] == 1
    assert desk.ledger.request(1).state is State.NOT_FORGOTTEN
    out = desk.folder / "paper"
    assert run(["desk", "certificate", "1", "--out", str(out), "--ledger", str(desk.ledger.path)]) == 2
    assert not out.exists() and "fulfilled" not in capsys.readouterr().out


def hardly_changed(desk: Desk, folder: Path) -> str:
    """The original with one bias moved by 1e-6, and no record."""
    ranker = load_ranker(desk.options.ranker)
    with torch.no_grad():
        next(weight for name, weight in ranker.named_parameters() if name.endswith("bias")).add_(1e-6)
    ranker.save(folder)
    return str(folder)


@pytest.mark.attack(3)
def test_the_original_hardly_changed_is_no_reference(
    desk: Desk, first_pairs: FirstPairs, encoder: Path, tmp_path: Path
) -> None:
    wanted = first_pairs[:1]
    desk.ask(pairs=wanted)
    fake = hardly_changed(desk, tmp_path / "fake")
    real = train(desk.collection, "bi-encoder", str(encoder), Removal(pairs=wanted), method=QUICK)
    real.save(tmp_path / "real")
    forged = shutil.copytree(fake, tmp_path / "forged")
    shutil.copy(tmp_path / "real" / "unrank.json", forged)
    begun = train(desk.collection, "bi-encoder", fake, Removal(pairs=wanted), method=QUICK)
    begun.save(tmp_path / "begun")
    for reference, base, strict, why in (
        (fake, str(encoder), True, "it has no record"),
        (fake, str(encoder), False, "it has no record"),
        (str(forged), str(encoder), False, "a file was changed since"),
        (str(tmp_path / "begun"), str(encoder), True, "not trained from the base of the ranker"),
        (str(tmp_path / "real"), None, False, "the base of the ranker is unknown"),
    ):
        forget, target = replace(desk.options.forget, base=base), None if strict else "destination-1"
        with pytest.raises(UnrankError, match=f"needs references .* provenance unknown: .*{why}"):
            desk.run(references=(reference,), strict=strict, target=target, forget=forget)
    done = desk.run(references=(fake,))
    assert State(done.requests[1].state) in (State.NOT_VERIFIABLE, State.NOT_FORGOTTEN)
    assert "provenance unknown: it has no record" in next(gate.words for gate in done.gates if gate.name == "audit")


@pytest.mark.attack(5)
def test_a_request_that_did_not_move_is_not_hidden_by_its_batch(desk: Desk, first_pairs: FirstPairs) -> None:
    wanted = first_pairs[:17]
    for pair in wanted:
        desk.ask(pairs=[pair])
    little = replace(desk.options.forget, settings={"learning_rate": "3e-4", "epochs": "1"})
    done = desk.run(target="test-mrr", forget=little)
    assert done.out is not None and len(done.requests) == len(wanted)
    rows = np.array([desk.collection.queries.rows([query])[0] for query, _ in wanted])
    documents = np.array([desk.collection.documents.rows([document])[0] for _, document in wanted])
    after = ranks(desk.collection, done.out, np.stack([rows, documents], axis=1))
    unmoved = {id for id, rank in enumerate(after, 1) if rank == 1}
    assert unmoved and len(unmoved) < len(wanted), "the attack needs some that moved and some that did not"
    for id in done.requests:
        state, own = desk.ledger.request(id).state, done.requests[id].ranks
        high = own.mrr_after > own.target + tolerance(own.queries)
        assert (state is State.NOT_FORGOTTEN) == (id in unmoved or high), (id, state, after[id - 1])
        assert done.requests[id].ranks.ranks_after == (after[id - 1],)


def stop_before_the_end(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Kill a run after its audit; return the folder of its ranker."""
    with monkeypatch.context() as patched, pytest.raises(ZeroDivisionError):
        patched.setattr(desk_run, "finish_run", lambda *_: 1 / 0)
        desk.run()
    return Path(f"{desk.options.ranker}-run1")


@pytest.mark.slow
@pytest.mark.attack(7)
def test_the_audit_of_one_ranker_is_not_joined_with_the_weights_of_another(
    desk: Desk, first_pairs: FirstPairs, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.ask(pairs=first_pairs[:3])
    out = stop_before_the_end(desk, monkeypatch)
    first = read_json(audit_folder(out) / AUDIT)["rankers"]["ranker"]["weights"]
    shutil.rmtree(out)

    def other_version(*given: Any, **more: Any) -> Any:
        found = forget_in(*given, **more)
        with torch.no_grad():
            next(iter(found.ranker.parameters())).add_(1e-3)
        return found

    monkeypatch.setattr(desk_run, "forget_in", other_version)
    done = desk.run()
    audited = done.result["audit"]["rankers"]["ranker"]["weights"]
    assert done.run == 1 and audited == digest(load_ranker(out).state_dict()) != first


@pytest.mark.attack(7)
@pytest.mark.attack(17)
def test_a_run_that_is_not_recorded_yet_has_its_own_weights_and_is_not_thrown_away_for_a_request_that_arrives(
    desk: Desk, first_pairs: FirstPairs, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.ask(pairs=first_pairs[:1])
    out = stop_before_the_end(desk, monkeypatch)
    written = (out / WEIGHTS).read_bytes()
    shutil.copy(Path(desk.options.ranker) / WEIGHTS, out / WEIGHTS)
    with pytest.raises(UnrankError, match="exists and is not what this run wrote"):
        desk.run()
    assert desk.ledger.request(1).state is State.OPEN
    (out / WEIGHTS).write_bytes(written)
    desk.ask(pairs=first_pairs[1:2])
    done = desk.run()
    assert (done.run, [*done.requests], done.later) == (1, [1], [2]) and (out / WEIGHTS).read_bytes() == written
    assert desk.ledger.request(2).state is State.OPEN


@pytest.mark.slow
@pytest.mark.attack(7)
@pytest.mark.parametrize("changed", ["audit", "old ranker"])
def test_what_was_changed_between_two_steps_is_not_taken_for_the_runs_own(
    changed: str, desk: Desk, first_pairs: FirstPairs, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.ask(pairs=first_pairs[:1])
    out = stop_before_the_end(desk, monkeypatch)
    if changed == "audit":
        found = read_json(audit_folder(out) / AUDIT)
        (audit_folder(out) / AUDIT).write_text(json.dumps(found | {"verdict": "kept"}))
        with pytest.raises(UnrankError, match="exists and is not what this run wrote"):
            desk.run()
        assert desk.ledger.request(1).state is State.OPEN
        return
    hardly_changed(desk, desk.folder / "other")
    shutil.copy(desk.folder / "other" / WEIGHTS, Path(desk.options.ranker) / WEIGHTS)
    assert desk.run().run == 2, "another original makes another run"
    assert desk.ledger.ask("SELECT state FROM run WHERE id = 1") == [("abandoned",)]


@pytest.mark.slow
@pytest.mark.attack(17)
def test_a_request_that_arrives_does_not_throw_an_unfinished_run_away(
    desk: Desk, first_pairs: FirstPairs, make_desk: Callable[[Path], Desk], tmp_path: Path
) -> None:
    """Stopped while it learns, by a signal: the run goes on from its checkpoint and ends with the very same weights."""
    whole = make_desk(tmp_path / "whole")
    wanted = first_pairs
    for each in (desk, whole):
        each.ask(pairs=wanted[:3])
    counter = StopAfter(-1)
    done = whole.run(counter)
    steps, stops = -1 - counter.left, 0
    for share in (0.2, 0.3):
        try:
            desk.run(StopAfter(int(share * steps)))
        except Stopped as stop:
            assert "goes on from" in str(stop)
            stops += 1
    out = Path(f"{desk.options.ranker}-run1")
    assert stops and beside(out).is_dir() and not out.exists()
    desk.ask(pairs=wanted[3:4])
    again = desk.run()
    assert (again.run, [*again.requests], again.later) == (1, [1], [2]) and again.out is not None
    assert done.out is not None and sha256(again.out / WEIGHTS) == sha256(done.out / WEIGHTS)
    assert desk.ledger.request(2).state is State.OPEN and not beside(out).exists()
    assert desk.ledger.ask("SELECT count(*) FROM history WHERE event = 'run begun'") == [(1,)]


@pytest.mark.slow
@pytest.mark.attack(17)
def test_a_request_that_is_withdrawn_from_an_unfinished_run_is_not_forgotten_by_it(
    desk: Desk, first_pairs: FirstPairs, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = first_pairs[:2]
    for pair in wanted:
        desk.ask(pairs=[pair])
    stop_before_the_end(desk, monkeypatch)
    closed = ["desk", "close", "1", "--as", "withdrawn", "--ledger", str(desk.ledger.path)]
    assert run(closed) == 0
    done = desk.run()
    assert done.run == 2 and [*done.requests] == [2] and desk.ledger.request(1).state is State.WITHDRAWN
    made = desk_run._audit

    def withdrawn_meanwhile(*given: Any) -> None:
        made(*given)
        assert run([*closed[:2], "3", *closed[3:]]) == 0

    desk.ask(pairs=first_pairs[2:3])
    monkeypatch.setattr(desk_run, "_audit", withdrawn_meanwhile)
    last = desk.run(target="0.01")
    assert last.states[3] is State.WITHDRAWN and last.requests.keys() >= {3}
    assert 3 not in [request.id for request in desk.ledger.requests(RUNNABLE)]
    desk.ledger.verify()


@pytest.mark.attack(18)
@pytest.mark.parametrize("name", ["*", "?b", "[a-z]b", "**", "ab.partial-x"])
def test_a_name_that_is_a_pattern_deletes_nothing_of_others(name: str, tmp_path: Path) -> None:
    others = [tmp_path / f".{other}.partial-0123abcd" for other in ("ab", "ab.partial-x.partial-x", "*b", "**x")]
    own = tmp_path / f".{name}.partial-0abc1234"
    for folder in (*others, own):
        folder.mkdir()
    with resumable(tmp_path / name):
        pass
    assert not own.exists() and all(other.exists() for other in others)


@pytest.mark.slow
@pytest.mark.attack(18)
def test_a_run_whose_folder_is_a_pattern_deletes_nothing_of_others(desk: Desk, first_pairs: FirstPairs) -> None:
    desk.ask(pairs=first_pairs[:1])
    others = [desk.folder / name for name in (".ranker.partial-0123abcd", ".x-audit.partial-0123abcd")]
    for other in others:
        other.mkdir()
    done = desk.run(out=desk.folder / "*")
    assert done.out == desk.folder / "*" and all(other.exists() for other in others)


@pytest.mark.slow
@pytest.mark.attack(0)
def test_a_ranker_retrained_from_the_original_itself_is_refused(desk: Desk, first_pairs: FirstPairs) -> None:
    desk.ask(pairs=first_pairs[:1])
    retrain = replace(desk.options.forget, method="retrain", settings={"epochs": "1"})
    with pytest.raises(UnrankError, match=r"holds the weights of .* itself, which it has to forget"):
        desk.run(forget=replace(retrain, base=desk.options.ranker))
    tiny = replace(
        retrain, base=hardly_changed(desk, desk.folder / "base"), settings={"epochs": "1", "learning_rate": "1e-9"}
    )
    done = desk.run(forget=tiny)
    assert State(done.requests[1].state) is State.NOT_FORGOTTEN, "its pair is where it was"
