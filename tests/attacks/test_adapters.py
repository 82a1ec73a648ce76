"""Attacks with an adapter: nothing is called forgotten while the ranker below the adapter remembers it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from tests.desk.conftest import DOCUMENT, take_in
from tests.desk.conftest import key as key
from tests.desk.conftest import ledger as ledger
from tests.desk.conftest import path as path
from tests.desk.test_run import ask, folder_of, fulfil
from tests.desk.test_run import options as options
from tests.forgetting.test_outcome import ranks
from tests.tiny import made_record
from unrank.audit.context import Thoroughness
from unrank.collection.collection import Collection
from unrank.desk import gates
from unrank.desk.certificate import certificate
from unrank.desk.closing import Leave, close
from unrank.desk.copies import adapters_beside, find_copies
from unrank.desk.ending import EndOptions, end_request
from unrank.desk.key import Key
from unrank.desk.ledger import Ledger
from unrank.desk.page import certificate_page
from unrank.desk.remains import find_remains
from unrank.desk.request import RUNNABLE, State
from unrank.desk.run_options import RunOptions
from unrank.errors import UnrankError
from unrank.forgetting.outcome import Findings, ForgetState, Judgement, judge
from unrank.record import AdapterOf, PairRanks

pytestmark = pytest.mark.attack(0)
REFUSED = r"is forgotten while the adapter is on: .* with --as merged, then delete"
APART = Findings(weights_changed=True, apart=True)
FELL = ranks([1] * 12, [30] * 12)


@pytest.fixture
def all_fell(monkeypatch: pytest.MonkeyPatch) -> None:
    """Judge every request by pairs that fell as far as they had to: a tiny ranker does not forget in one epoch."""
    monkeypatch.setattr("unrank.desk.run_context.Thoroughness", partial(Thoroughness, relearning_steps=(1,)))
    own: Callable[[PairRanks, Findings], Judgement] = judge
    monkeypatch.setattr(gates, "judge", lambda _, found: own(FELL, replace(found, remembered="", untold="")))


def test_whatever_else_was_found_an_adapter_apart_is_never_forgotten() -> None:
    flags = ("weights_changed", "for_others", "retrained", "forgotten_before", "has_reference", "default_known")
    for values in product((False, True), repeat=len(flags)):
        for left, (then, now) in product((0, 3), (([1] * 12, [30] * 12), ([30] * 12, [30] * 12), ([1], [30]))):
            changed: dict[str, Any] = dict(zip(flags, values, strict=True))
            found = replace(APART, **changed, rows_left=left)
            state = judge(ranks(then, now), found).state
            if found.forgotten_before and not found.weights_changed:
                continue  # then the ranker below has forgotten it too
            assert state not in (ForgetState.FORGOTTEN, ForgetState.NOT_VERIFIABLE), (values, left, then)


def test_a_request_that_an_adapter_hides_is_not_closed(ledger: Ledger, key: Key) -> None:
    take_in(ledger, key)
    with ledger.transaction():
        ledger.move(1, State.WHILE_ADAPTED)
    for leave in (None, Leave.other):
        with pytest.raises(UnrankError, match=REFUSED):
            end_request(ledger, 1, EndOptions(leave=leave))
    assert ledger.request(1).state is State.WHILE_ADAPTED and ledger.items(1) and ledger.requests(RUNNABLE)
    assert ledger.request(1).is_overdue(date.max), "it is still due"


def test_adapters_beside_a_ranker_are_found_with_or_without_a_record(tmp_path: Path) -> None:
    for name in ("merged", "one", "other"):
        (tmp_path / name).mkdir()
    for name in ("one", "other"):
        (tmp_path / name / "adapter_config.json").write_text("{}")
        (tmp_path / name / "adapter_model.safetensors").write_bytes(b"")
    made = replace(made_record(), adapter=AdapterOf("ranker", "0" * 64, 8))
    made.write(tmp_path / "one", {})
    beside = adapters_beside([tmp_path / "merged"])
    assert beside == [tmp_path / "one", tmp_path / "other"]
    found = find_copies(beside, [DOCUMENT], made.collection, tmp_path / "desk.ledger")
    assert {(copy.kind, copy.path) for copy in found} == {("adapter", str(folder)) for folder in beside}


@pytest.mark.slow
def test_an_adapter_is_not_closed_and_is_named_beside_a_merged_ranker(
    ledger: Ledger, key: Key, path: Path, dense: Collection, options: RunOptions, all_fell: None, tmp_path: Path
) -> None:
    ask(ledger, key, dense, documents=["doc1"])
    adapt = replace(options.forget, adapt="lora:2", saved_as="adapter")
    options = replace(options, target="0.01")
    done = fulfil(ledger, path, replace(options, forget=adapt))
    adapter = folder_of(done)
    assert done.states == {1: State.WHILE_ADAPTED} and (adapter / "adapter_config.json").is_file()
    for refused in (lambda: close(ledger, 1), lambda: end_request(ledger, 1, EndOptions())):
        with pytest.raises(UnrankError, match=REFUSED):
            refused()
    value = certificate(ledger, key, 1).value
    page = certificate_page(value, key.public)
    assert page.verdict == "Request 1 is forgotten while the adapter is on, and only then."
    assert "not a certificate of fulfilment" in str(page)
    assert "That the request is fulfilled" in value["not_claimed"][0] and "adapter" in value["also_delete"][-1]

    merged = fulfil(ledger, path, replace(options, forget=replace(adapt, saved_as="merged")))
    assert merged.states == {1: State.FORGOTTEN} and not (folder_of(merged) / "adapter_config.json").exists()
    assert ("adapter", str(adapter)) in {(each["kind"], each["path"]) for each in merged.result["holders"]}
    assert "adapter" in certificate(ledger, key, 1).value["also_delete"][-1]
    hidden = folder_of(merged).parent / "old things"
    hidden.mkdir()
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        shutil.copy(adapter / name, hidden)
    assert _adapters(ledger) == {str(adapter), str(hidden)}
    assert not end_request(ledger, 1, EndOptions()).closed
    shutil.rmtree(adapter)
    assert _adapters(ledger) == {str(hidden)}
    shutil.rmtree(hidden)
    assert not _adapters(ledger)


def _adapters(ledger: Ledger) -> set[str]:
    return {copy.path for copy in find_remains(ledger, 1).there if copy.kind == "adapter"}
