"""Places at the desk: each request is judged by its own pairs and their places, which stay in the run's own folder."""

from __future__ import annotations

import shutil
from dataclasses import replace
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.desk.conftest import take_in
from tests.desk.made import made_result, made_run, ranks
from tests.forgetting.conftest import QUICK
from tests.tiny import made_record, make_bi_encoder
from unrank.audit.context import Thoroughness
from unrank.cli.desk_show import result_json
from unrank.collection.collection import Collection
from unrank.collection.removal import Removal
from unrank.desk import run as desk_run
from unrank.desk.batch import open_batch
from unrank.desk.certificate import certificate
from unrank.desk.copies import find_copies
from unrank.desk.gates import AuditResult, Limits, RequestPairs, gates
from unrank.desk.key import Key, key_file
from unrank.desk.ledger import Ledger
from unrank.desk.page import certificate_page
from unrank.desk.plan import make_plan
from unrank.desk.request import State, items_of
from unrank.desk.run import run_open
from unrank.desk.run_context import RunContext
from unrank.desk.run_ledger import UnfinishedRun, begin_run, clear_ended
from unrank.desk.run_options import RunOptions
from unrank.desk.run_result import RunResult
from unrank.disk import PLACES_FILE, beside
from unrank.engine.checkpoint import Checkpoint
from unrank.errors import UnrankError
from unrank.forgetting.options import ForgetOptions
from unrank.forgetting.outcome import Findings, ForgetState, Judgement, pair_ranks
from unrank.forgetting.places import Places, near
from unrank.forgetting.previous_requests import was_trained_on
from unrank.forgetting.provenance import base_record, base_saw
from unrank.forgetting.proxies import Foreseen, foresee_proxies
from unrank.forgetting.train import train
from unrank.forgetting.validation import Base
from unrank.forgetting.workspace import Workspace
from unrank.methods.retrain import Retrain
from unrank.rankers import load_ranker
from unrank.rankers.encoder import DEFAULT_ENCODER
from unrank.record import PairRanks, PlacesFound, Record, SetSummary
from unrank.report.page import page_html

FOUND = PlacesFound(proxies=1, source="made", epochs=2, calibrated_on=40, spread=0.12, above=0.25, mrr=0.987654)
NOTHING, NOT = ForgetState.NOTHING, ForgetState.NOT_FORGOTTEN
HIGHEST, LOWEST = 1.0, -1.0


@pytest.fixture(autouse=True)
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unrank.desk.run_context.Thoroughness", partial(Thoroughness, relearning_steps=(1,)))


@pytest.fixture(scope="module")
def trained(dense: Collection, encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("trained") / "ranker"
    train(dense, "bi-encoder", str(encoder), method=Retrain(learning_rate=3e-3, epochs=3), device="cpu").save(out)
    return out


@pytest.fixture
def options(dense: Collection, trained: Path, tmp_path: Path) -> RunOptions:
    shutil.copytree(trained, tmp_path / "ranker")
    settings = {"learning_rate": "1e-3", "place_epochs": "1"}
    forget = ForgetOptions(settings=settings, proxy_epochs=1, device="cpu")
    return RunOptions(str(tmp_path / "ranker"), dense.folder, forget, audit_queries=5)


def ask(ledger: Ledger, key: Key, collection: Collection, **named: Any) -> int:
    items = items_of(Removal(**named), collection)
    return ledger.add(items, date(2026, 1, 1), date(2026, 2, 1), "other", key).id


def judged(
    dense: Collection, places: list[int], before: float, after: float, found: Findings, **more: Any
) -> Judgement:
    """Judge one request for the first pairs, whose places have these ranks."""
    pairs = dense.pairs[np.unique(dense.pairs[:, 0], return_index=True)[1]][: len(places)]
    relevant = dense.pair_keys(dense.pairs)
    at = np.array(places)
    made = Places(pairs, near(at), np.zeros(len(at), np.float32), ranks=at, found=replace(FOUND, **more))
    request = RequestPairs(dense, {1: pairs}, places=made)

    def score(height: float) -> Any:
        return lambda some: np.where(np.isin(dense.pair_keys(some), relevant), height, 0.0).astype(np.float32)

    [one] = request.judge(score(before), score(after), 0.0, found).values()
    return one


ALONE = Findings(weights_changed=False, has_reference=True)
MOVED = Findings(weights_changed=True, has_reference=True, for_others=True)


@pytest.mark.parametrize(
    ("places", "before", "after", "found", "state"),
    [
        ([1], HIGHEST, HIGHEST, ALONE, NOTHING),  # a ranker that never saw it ranks it first too
        ([1, 1, 1], HIGHEST, HIGHEST, MOVED, NOTHING),  # the run was for others
        ([1, 8], HIGHEST, HIGHEST, ALONE, NOT),  # one pair has nothing to forget, the other has
        ([1, 8], HIGHEST, LOWEST, MOVED, ForgetState.FORGOTTEN),
        ([3], LOWEST, HIGHEST, MOVED, NOT),  # it stood lower than its place, and was pulled up too far
        ([1], LOWEST, HIGHEST, MOVED, NOTHING),  # it stood lower than its place, and was pulled up to it
        ([8], LOWEST, LOWEST, MOVED, NOTHING),
    ],
)
def test_each_pair_has_its_own_place(
    places: list[int], before: float, after: float, found: Findings, state: ForgetState, dense: Collection
) -> None:
    one = judged(dense, places, before, after, found)
    assert one.state is state, one.words
    assert one.ranks.target == pytest.approx(np.mean([1 / place for place in places]))
    assert sorted(one.ranks.places) == sorted(places)


def test_a_request_of_many_queries_is_judged_as_if_it_were_alone(dense: Collection) -> None:
    one = judged(dense, [1] * 9 + [8] * 3, HIGHEST, HIGHEST, ALONE, above=0.25)
    assert one.ranks.may_exceed == 6, "of twelve pairs; all pairs of a run may be more, and none of them is asked"
    assert one.state is NOT, "as many may be higher by chance, but the mean is not near"
    assert judged(dense, [1] * 11 + [2], HIGHEST, HIGHEST, ALONE, above=0.25).state is NOTHING


def test_a_few_estimated_places_do_not_show_that_there_is_nothing_to_forget(dense: Collection) -> None:
    """A pair that the ranker knows best of all has the first place by an estimate."""
    for found in (Findings(False), Findings(True, for_others=True), Findings(False, unseen_mrr=0.5)):
        one = judged(dense, [1], HIGHEST, HIGHEST, found)
        assert one.state is NOT and one.why.startswith("its places could only be estimated, and for 1 query")
    low = judged(dense, [8], LOWEST, LOWEST, Findings(False, unseen_mrr=0.5))
    assert low.state is NOTHING, "it is ranked no higher than what the ranker never saw"


def test_a_run_begins_if_one_request_stands_too_high_though_all_together_do_not(dense: Collection) -> None:
    pairs = dense.pairs[np.unique(dense.pairs[:, 0], return_index=True)[1]][:12]
    at = np.full(12, 2)
    now = np.where(np.arange(12) == 4, 1, 2)
    together = Places(pairs, near(at), np.zeros(12, np.float32), ranks=at, found=FOUND)
    assert together.missed(now) == together.left(now) == 0, "one of twelve may be by chance"
    apart = replace(together, apart=tuple(np.array([row]) for row in range(12)))
    assert apart.missed(now) == 0 and apart.left(now) == 1 and apart.left(at) == 0


def stopped_before_its_audit(ledger: Ledger, path: Path, options: RunOptions) -> Path:
    """The private folder of a run that has written its ranker."""
    with pytest.MonkeyPatch.context() as patched, pytest.raises(ZeroDivisionError):
        patched.setattr(desk_run, "_audit", lambda *_: 1 / 0)
        run_open(ledger, key_file(path), options)
    return beside(Path(f"{options.ranker}-run1"))


def test_places_stay_in_the_runs_own_folder_until_each_request_is_judged(
    ledger: Ledger, key: Key, path: Path, dense: Collection, options: RunOptions
) -> None:
    for named in ({"documents": ["doc1", "doc10"]}, {"queries": ["query3"]}):
        ask(ledger, key, dense, **named)
    forget = open_batch(ledger, key, dense, Record.read(options.ranker)).partition(dense).forget
    private = stopped_before_its_audit(ledger, path, options)
    assert private.stat().st_mode & 0o777 == 0o700 and [each.name for each in private.iterdir()] == [PLACES_FILE]
    out, written = Path(f"{options.ranker}-run1"), private / PLACES_FILE
    assert not [*out.rglob(PLACES_FILE)]
    [held] = find_copies([private], [], dense, path)
    assert held.kind == "checkpoint"
    state = Checkpoint.load(written)
    assert state is not None
    places = Places.of(forget, state)
    whole = written.read_bytes()
    written.write_bytes(whole[:-1] + b"x")
    with pytest.raises(UnrankError, match=r"places.checkpoint is gone or was changed since this run wrote it: remove"):
        run_open(ledger, key_file(path), options)
    written.write_bytes(whole)

    done = run_open(ledger, key_file(path), replace(options, look=(out.parent,)))
    assert done is not None and done.run == 1 and not private.exists()
    record = Record.read(out)
    assert record is not None and record.removed is not None
    assert done.result["run_name"] == record.removed.salt, "an anchor file knows the places of a run by it"
    assert not [holder for holder in done.result["holders"] if holder["kind"] == "checkpoint"]
    score = Workspace.open(load_ranker(out), dense, None, "cpu").scorer(load_ranker(out))
    for id, own in RequestPairs.of(dense, open_items(ledger, dense)).of_request.items():
        part, one = places.part(dense.find_pairs(own, places.pairs)), done.requests[id].ranks
        assert sorted(one.places) == sorted(part.ranks.tolist()) and one.target == part.mrr
        assert sorted(one.ranks_after) == sorted(pair_ranks(dense, own, score).tolist())
        assert one.may_exceed == part.may_exceed
    check_told(done, ledger, key)


def open_items(ledger: Ledger, dense: Collection) -> dict[int, Any]:
    return {id: ledger.items(id) for id in (1, 2)}


def check_told(done: RunResult, ledger: Ledger, key: Key) -> None:
    """The command, the ledger and the certificate say the same, and no figure of the other request."""
    assert done.places is not None and (done.places.proxies, done.places.source) == (1, "made")
    assert result_json(done)["places"]["source"] == "made"
    [target, *_] = done.gates
    assert target.name == "target" and "ranked higher than their places allow; the forget MRR is" in target.words
    for id, state in done.states.items():
        if state in (State.NOT_FORGOTTEN, State.OPEN):
            continue
        [part] = certificate(ledger, key, id).value["rankers"]
        assert part["state"] == str(state) == str(ledger.request(id).state)
        assert part["measured"]["request"]["places"] == list(done.requests[id].ranks.places)
        assert part["done"]["target_name"] == "places" and "target" not in part["done"]
        assert set(part["done"]["places"]) == {"proxies", "source", "epochs", "calibrated_on", "calibrated_by"}


def test_a_run_that_has_ended_leaves_no_places(ledger: Ledger, tmp_path: Path) -> None:
    """One that is given up, and one that was killed when its result had been written."""
    asked = {"ranker": str(tmp_path / "ranker"), "requests": []}

    def left(name: str) -> Path:
        beside(tmp_path / "first").mkdir(exist_ok=True)
        (beside(tmp_path / "first") / name).touch()
        return beside(tmp_path / "first")

    begin_run(ledger, asked, tmp_path / "first")
    held = left(PLACES_FILE)
    clear_ended(ledger)
    assert held.exists(), "it has not ended"
    begin_run(ledger, {**asked, "seed": 1}, tmp_path / "second")
    assert not held.exists()
    held = left(f"{PLACES_FILE}.partial")
    clear_ended(ledger)
    assert not held.exists()


@pytest.mark.parametrize("known", [True, False])
def test_if_every_pair_is_at_its_place_no_weight_changes(
    known: bool, ledger: Ledger, key: Key, path: Path, dense: Collection, options: RunOptions
) -> None:
    """With a proxy, and if the base of the ranker is not known."""
    ranker = load_ranker(options.ranker)
    if not known:
        (Path(options.ranker) / "unrank.json").unlink()
    at = pair_ranks(dense, dense.pairs, Workspace.open(ranker, dense, None, "cpu").scorer(ranker))
    ask(ledger, key, dense, pairs=dense.pair_ids(dense.pairs[at == at.max()][:1]))
    done = run_open(ledger, key_file(path), options)
    assert done is not None and done.out is None and done.states == {1: State.NOTHING_TO_FORGET}
    assert done.places is not None and done.places.proxies == known
    value = certificate(ledger, key, 1).value
    page = certificate_page(value, key.public)
    estimate = "" if known else "by an estimate, "
    assert page.verdict == f"Request 1: {estimate}there was nothing to forget."
    assert page.lead.startswith("Where its pairs belong could only be estimated") is not known
    assert "very pair stood, and stands, about where a ranker that never saw it would place it" in page.lead
    assert page.lead.endswith("no weight was changed.")


@pytest.mark.parametrize("forged", [False, True])
def test_a_ranker_that_was_never_trained_on_it_has_nothing_to_forget(
    forged: bool, ledger: Ledger, key: Key, path: Path, dense: Collection, encoder: Path, options: RunOptions
) -> None:
    """By its record, with the owner's seal, wherever its pairs are; a record alone shows nothing."""
    out, removed = Path(options.ranker).with_name("without"), Removal(documents=["doc1", "doc10"])
    train(dense, "bi-encoder", str(encoder), removed, method=QUICK, device="cpu").save(out)
    if forged:
        record = (out / "unrank.json").read_text()
        (out / "unrank.json").write_text(record.replace('"seed": 0', '"seed": 1', 1))
    ask(ledger, key, dense, documents=["doc1"])
    asked = replace(options, ranker=str(out))
    context = RunContext.of(asked, open_batch(ledger, key, dense, Record.read(out)), dense, Record.read(out))
    assert context.never_seen == ([] if forged else [1])
    beyond = RunContext.of(replace(asked, target="beyond:3"), context.batch, dense, context.record)
    assert not beyond.never_seen, "it must not be found, whatever a ranker does that never saw it"
    if forged:
        return
    done = run_open(ledger, key_file(path), asked)
    assert done is not None and done.out is None and done.states == {1: State.NOTHING_TO_FORGET}
    assert done.requests[1].why == "the ranker was trained without it, as its record shows"
    page = certificate_page(certificate(ledger, key, 1).value, key.public)
    assert page.lead.startswith("The old ranker was trained without what the request names, as its record with the")
    assert "That the base, the model that the ranker was trained from, never saw it." in page_html(page)


def test_a_base_whose_record_is_of_another_collection_may_have_seen_it(
    ledger: Ledger, key: Key, dense: Collection, encoder: Path, options: RunOptions, tmp_path: Path
) -> None:
    """The record of the ranker shows what its own training left out, not what that of its base did."""
    first, out, removed = tmp_path / "first", tmp_path / "without", Removal(documents=["doc1"])
    base = train(dense, "bi-encoder", str(encoder), method=QUICK, device="cpu")
    elsewhere = replace(base.record, collection=replace(base.record.collection, fingerprint="0" * 64))
    replace(base, record=elsewhere).save(first)
    train(dense, "bi-encoder", str(first), removed, method=QUICK, device="cpu").save(out)
    ask(ledger, key, dense, documents=["doc1"])
    record = Record.read(out)
    context = RunContext.of(replace(options, ranker=str(out)), open_batch(ledger, key, dense, record), dense, record)
    assert was_trained_on(dense, record, removed) is False and context.never_seen == []
    assert base_saw(str(first), dense, removed) is None
    assert base_saw(str(encoder), dense, removed) is False, "a model without a record counts as one that did not"


def told(before: list[int], after: list[int], places: list[int], may_exceed: int = 0) -> PairRanks:
    least = tuple(near(np.array(places)).tolist())
    target = float(np.mean([1 / place for place in places]))
    return replace(
        ranks(before, after, 40), least_ranks=least, places=tuple(places), may_exceed=may_exceed, target=target
    )


@pytest.mark.parametrize(
    ("state", "given", "found", "lead"),
    [
        (
            ForgetState.NOT_VERIFIABLE,
            told([1], [9], [8]),
            FOUND,
            "Every pair is about where a ranker that never saw it would place it, or lower, but 1 of 1 pair is still "
            "among the first 10 of its list and nobody can say",
        ),
        (
            ForgetState.NOT_VERIFIABLE,
            told([1], [9], [8]),
            replace(FOUND, proxies=0, source="estimated"),
            "Where its pairs belong could only be estimated, because no ranker that never saw them was there to ask. "
            "By that estimate, every pair is about where",
        ),
        (
            ForgetState.NOT_VERIFIABLE,
            told([1] * 12, [12] * 12, [8] * 12),
            replace(FOUND, calibrated_on=0, above=0.5),
            "Its places show little, because too few pairs that no ranker saw were there to try them on. By these, "
            "every pair is about where",
        ),
        (
            ForgetState.NOT_VERIFIABLE,
            told([1] * 12, [12] * 12, [8] * 12),
            replace(FOUND, above=0.37),
            "Its places show little, because 37% of pairs that the ranker never saw stand above theirs. By these, "
            "every pair is about where a ranker that never saw it would place it, or lower, but nobody can say whether "
            "a trace is left.",
        ),
        (
            ForgetState.FORGOTTEN,
            told([1] * 12, [2] + [8] * 11, [8] * 12, may_exceed=3),
            FOUND,
            "1 of 12 pairs is ranked higher than places allow, where up to 3 may be by chance; every other pair is "
            "about where",
        ),
        (
            ForgetState.NOTHING,
            told([5], [3], [3]),
            FOUND,
            "Every pair stood, and stands, about where a ranker that never saw it would place it, or lower, and no "
            "training was needed for it. 1 of 1 pair is still among the first 10 of its list and 1 of 1 pair is ranked "
            "higher now than before.",
        ),
        (
            ForgetState.NOT_CLEARED,
            told([1], [1], [1]),
            FOUND,
            "Every pair stood, and stands, about where a ranker that never saw it would place it, or lower, so nothing "
            "had to fall, but",
        ),
        (
            ForgetState.NOTHING,
            replace(told([1, 2], [1, 2], [1, 2]), list_lengths=(7, 7)),
            FOUND,
            "Every pair stood, and stands, about where a ranker that never saw it would place it, or lower, and no "
            "training was needed for it. 1 of 2 pairs is the first of its list.",
        ),
    ],
)
def test_what_the_page_says_of_places(
    state: ForgetState, given: PairRanks, found: PlacesFound, lead: str, ledger: Ledger, key: Key
) -> None:
    take_in(ledger, key)
    made = {1: Judgement(state, "why", given)}
    result = made_result({1: Judgement(ForgetState.FORGOTTEN, "why", given)})
    result["record"] |= {"target_name": "places", "places": vars(found)}
    made_run(ledger, made, result)
    value = certificate(ledger, key, 1).value
    page = certificate_page(value, key.public)
    assert page.lead.startswith(lead), page.lead
    html = page_html(page).replace("\xa0", " ")
    entries = given.list_lengths[0]
    assert f"{given.ranks_before[0]} → {given.ranks_after[0]} of {entries} (place {given.places[0]})" in html
    assert "its place is" in html and "two such rankers differ" in html
    if found.proxies and found.calibrated_on:
        assert (
            "calibrated on 40 pairs of queries that no ranker had seen. Of 100 such pairs, 84 stood at most 0.12"
            in html
        )
    else:
        assert "How far off they may be is not known" in html
    assert value["rankers"][0]["done"]["places"]["mrr"] == FOUND.mrr, "the run was for this request alone"


def test_a_target_over_all_requests_is_left_out_of_the_certificate_of_one(ledger: Ledger, key: Key) -> None:
    for _ in range(2):
        take_in(ledger, key)
    made = {id: Judgement(ForgetState.FORGOTTEN, "why", told([1], [9], [8])) for id in (1, 2)}
    for name, says in (("places", "for each pair about where"), ("destination-1", "over all requests of the run")):
        result = made_result(made)
        found = {"places": vars(FOUND)} if name == "places" else {}
        result["record"] |= {"target": FOUND.mrr, "target_name": name, **found}
        made_run(ledger, made, result)
        value = certificate(ledger, key, 1).value
        assert "987654" not in str(value)
        assert says in page_html(certificate_page(value, key.public))


def test_what_a_target_was_once_called(ledger: Ledger, key: Key) -> None:
    take_in(ledger, key)
    made = {1: Judgement(ForgetState.FORGOTTEN, "why", ranks([1], [9]))}
    result = made_result(made)
    result["record"]["target_name"] = "unseen"
    made_run(ledger, made, result)
    value = certificate(ledger, key, 1).value
    assert value["rankers"][0]["done"]["target_name"] == "test-mrr"
    assert "The target was test-mrr (to rank it as" in page_html(certificate_page(value, key.public))


def test_a_run_of_an_earlier_version_goes_on_to_its_own_target(
    ledger: Ledger, key: Key, path: Path, dense: Collection, options: RunOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask(ledger, key, dense, documents=["doc1"])
    record = Record.read(options.ranker)
    old = RunContext.of(replace(options, target="test-mrr"), open_batch(ledger, key, dense, record), dense, record)
    begun = UnfinishedRun(1, path.with_name("out"), {**old.asked, "target": "unseen"})
    assert begun.former_default == "test-mrr" and begun.is_asked_again(old.asked, None)
    seen: list[tuple[int, str]] = []

    def forget(ledger: Ledger, run: UnfinishedRun, context: RunContext, *_: Any) -> None:
        seen.append((run.id, context.target))
        raise ZeroDivisionError

    monkeypatch.setattr(desk_run, "_forget", forget)
    monkeypatch.setattr(desk_run, "unfinished_run", lambda _: begun)
    for target in (None, "places"):
        with pytest.raises(ZeroDivisionError):
            run_open(ledger, key_file(path), replace(options, target=target))
    assert seen == [(1, "test-mrr"), (1, "places")], "the second one is begun anew"


def test_a_method_that_stops_by_its_own_measure_has_no_places(
    ledger: Ledger, key: Key, dense: Collection, options: RunOptions
) -> None:
    ask(ledger, key, dense, documents=["doc1"])
    retrain = replace(options, forget=replace(options.forget, method="retrain", settings={}))
    context = RunContext.of(retrain, open_batch(ledger, key, dense, None), dense, None)
    assert (context.target, context.default_target) == ("test-mrr", "test-mrr")


def test_a_proxy_does_not_begin_from_the_ranker_itself(
    ledger: Ledger, key: Key, path: Path, dense: Collection, encoder: Path, options: RunOptions
) -> None:
    """A proxy of it would have seen the request, and would put it where it is."""
    ranker = make_bi_encoder(encoder, Path(options.ranker).with_name("other"))
    shutil.copytree(ranker, path.with_name("copy"))
    ask(ledger, key, dense, documents=["doc1"])
    given = replace(options.forget, base=str(path.with_name("copy")))
    with pytest.raises(UnrankError, match=r"holds the weights of .*other itself, which it has to forget: name with"):
        run_open(ledger, key_file(path), replace(options, ranker=str(ranker), forget=given))
    assert ledger.ask("SELECT * FROM run") == []


def test_the_gate_of_places_is_of_all_requests() -> None:
    audit = AuditResult.of({"verdict": "suppressed", "tests": {}})
    for after, passed in (([9], True), ([2], False)):
        pairs, now = told([1], after, [8]), {"forget": SetSummary(0.2, 0.1, 0.3, 1)}
        record = replace(made_record(), target=0.125, target_name="places", places=FOUND, pairs=pairs, after=now)
        gate = gates(record, audit, 0.125, Limits())[0]
        assert gate.passed is passed and gate.words.startswith(f"in all {int(not passed)} of 1 pair ranked higher than")


def test_the_plan_counts_the_proxy(
    ledger: Ledger, key: Key, path: Path, dense: Collection, options: RunOptions
) -> None:
    ask(ledger, key, dense, documents=["doc1"])
    record, ranker = Record.read(options.ranker), load_ranker(options.ranker)
    batch = open_batch(ledger, key, dense, record)
    forget = replace(options.forget, proxy_epochs=500)
    made, other = (
        make_plan(ranker, dense, batch, record, [], path, replace(forget, target=target))
        for target in ("places", "test-mrr")
    )
    assert str(made.proxies) == "places are those of a proxy that is trained first, without what is removed"
    assert made.seconds["cocol"].low > other.seconds["cocol"].high
    assert other.proxies is None


def test_what_a_run_would_find_places_by(trained: Path, dense: Collection) -> None:
    workspace = Workspace.for_removal(load_ranker(trained), dense, Removal(documents=["doc1"]), device="cpu")
    assert str(foresee_proxies(workspace, "bi-encoder", Base())).startswith("places can only be estimated: the base of")
    assert foresee_proxies(workspace, "bi-encoder", Base(place="there")) == Foreseen(made=True)
    reference = foresee_proxies(workspace, "bi-encoder", Base(), known_reference=True)
    assert (str(reference), reference.number) == ("places are those of the reference", 1)
    assert str(Foreseen(2, made=True)).startswith("places are those of 2 prepared proxies and a proxy that is trained")


def test_the_record_of_the_default_base_is_not_looked_for_on_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(*_: object, **__: object) -> None:
        raise AssertionError("the default base is in its package")

    monkeypatch.setattr("huggingface_hub.snapshot_download", asked)
    assert base_record(DEFAULT_ENCODER) is None and base_record("nowhere") is None
    with pytest.raises(AssertionError):
        base_record("someone/an-encoder")
