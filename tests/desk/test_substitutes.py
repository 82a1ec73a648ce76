"""Substitutes at the desk: taken in, kept and erased with their request, and measured for each request by itself."""

from __future__ import annotations

import json
from datetime import date
from functools import partial
from pathlib import Path

import pytest

from tests.desk.conftest import take_in
from tests.desk.test_closing import fulfilled, said_in
from tests.tiny import make_bi_encoder
from unrank.audit.context import Thoroughness
from unrank.cli.desk_show import result_json, show_result
from unrank.collection.collection import Collection
from unrank.collection.removal import Removal
from unrank.desk.batch import open_batch
from unrank.desk.certificate import certificate
from unrank.desk.closing import close
from unrank.desk.gates import RequestPairs
from unrank.desk.history_index import BrokenChain
from unrank.desk.intake import add_request, touched
from unrank.desk.key import Key, key_file
from unrank.desk.ledger import Ledger
from unrank.desk.page import certificate_page
from unrank.desk.request import Basis, Item, Request
from unrank.desk.run import run_open
from unrank.desk.run_options import RunOptions
from unrank.desk.substitutes import RequestSubstitutes, as_json
from unrank.errors import UnrankError
from unrank.forgetting.options import ForgetOptions
from unrank.parse import parse
from unrank.report.page import page_html
from unrank.serve import requests

REPLACED = Item(
    document="document-quixote",
    document_text="Mr Quixote of Dulcinea Street owns a windmill",
    substitute="document-sancho",
    substitute_text="The windmill belongs to Mr Panza by now",
)
DATES = (date(2026, 2, 1), date(2026, 3, 1))


def ask(ledger: Ledger, key: Key, collection: Collection, substitutes: dict[str, str], *more: str) -> Request:
    found = touched(collection, Removal(documents=[*substitutes, *more], substitutes=substitutes), leave_copies=False)
    return add_request(ledger, key, collection, found, DATES, Basis.other)


def test_a_substitute_is_kept_with_its_request_and_erased_with_it(ledger: Ledger, key: Key, path: Path) -> None:
    id = fulfilled(ledger, key, REPLACED, Item(document="other", document_text="another text"))
    assert ledger.items(id)[0] == REPLACED and ledger.items(id)[1].substitute is None
    assert ledger.history(id)[0].values["substitutes"] == 1
    assert len(said_in(path.parent, REPLACED)) == 4
    ledger.verify()
    close(ledger, id)
    assert said_in(path.parent, REPLACED) == set() and ledger.items(id) == []
    ledger.verify()


def test_the_page_of_a_request_shows_it(ledger: Ledger, key: Key) -> None:
    request = take_in(ledger, key, REPLACED)
    page = str(requests._names(request, ledger.items(request.id)))
    assert page.index("Mr Quixote") < page.index("in its place: ") < page.index("by now")
    now, before = ({"pairs": 2, "mrr": mrr, "median_rank": 3.0, "first": 0, "above": 1} for mrr in (0.5, 0.25))
    found = {"left_out": 0, "stand": {"before": before, "after": now}}
    result = {"requests": {"1": {"words": "all fell"}, "2": {"words": "none fell"}}, "substitutes": {"1": found}}
    assert requests._reason(result, "1").startswith("all fell; substitutes of 2 forget pairs: median rank 3, MRR 0.500")
    assert requests._reason(result, "2") == "none fell" and requests._reason({}, "3") == ""


def test_nobody_changes_a_substitute_unseen(ledger: Ledger, key: Key) -> None:
    take_in(ledger, key, REPLACED)
    ledger.ask("UPDATE substitute SET substitute = 'another'")
    with pytest.raises(BrokenChain, match=r"request 1 is not as its history says"):
        ledger.verify()


def test_requests_without_substitutes_have_the_hashes_of_earlier_versions(ledger: Ledger, key: Key) -> None:
    """So a ledger of version 5 is whole after it was converted."""
    take_in(ledger, key)
    ledger.ask("DROP TABLE substitute")
    ledger.ask("CREATE TABLE substitute (request, document, substitute, substitute_text, salt)")
    ledger.verify()
    assert "substitutes" not in ledger.history(1)[0].values


def test_what_cannot_take_a_place(ledger: Ledger, key: Key, dense: Collection) -> None:
    with pytest.raises(UnrankError, match=r"^the request: 1 document id not in the collection: 'nothing'"):
        ask(ledger, key, dense, {"doc1": "nothing"})
    with pytest.raises(UnrankError, match=r"^the substitute 'doc10' of 'doc1' is removed too: name another one$"):
        ask(ledger, key, dense, {"doc1": "doc10"}, "doc10")
    with pytest.raises(UnrankError, match=r"^the substitute 'doc1' of 'doc1' is removed too"):
        ask(ledger, key, dense, {"doc1": "doc1"})
    ask(ledger, key, dense, {"doc1": "doc10"})
    with pytest.raises(UnrankError, match=r"^request 1 replaces 'doc1' by 'doc10': name the same one, or end that"):
        ask(ledger, key, dense, {"doc1": "doc3"})
    ask(ledger, key, dense, {}, "doc3")
    with pytest.raises(UnrankError, match=r"^the substitute 'doc3' of 'doc4' is in another request: name another one$"):
        ask(ledger, key, dense, {"doc4": "doc3"})
    with pytest.raises(UnrankError, match=r"^the substitute 'doc1' of 'doc4' is in another request"):
        ask(ledger, key, dense, {"doc4": "doc1"})
    assert len(ledger.requests(["open"])) == 2, "what is refused leaves no request"  # type: ignore[list-item]


def test_what_is_to_be_forgotten_takes_no_place(ledger: Ledger, key: Key, dense: Collection) -> None:
    """Erasure goes before a substitute, and no chain is followed: doc1 → doc10 → doc3 leaves doc1 without one."""
    ask(ledger, key, dense, {"doc1": "doc10"})
    batch = open_batch(ledger, key, dense, None)
    assert batch.removal.substitutes == {"doc1": "doc10"} and batch.left_out(1) == 0
    ask(ledger, key, dense, {"doc10": "doc3"})
    batch = open_batch(ledger, key, dense, None)
    assert batch.removal == Removal(documents=["doc1", "doc10"], substitutes={"doc10": "doc3"})
    assert (batch.left_out(1), batch.left_out(2)) == (1, 0)
    assert batch.partition(dense).substitutes == dict([dense.documents.rows(["doc10", "doc3"]).tolist()])
    assert batch.only([1]).removal.substitutes == {"doc1": "doc10"}, "a run that had begun goes on with what it had"


def test_a_substitute_with_another_text_takes_no_place(ledger: Ledger, key: Key, dense: Collection) -> None:
    """Its id means another document in this collection."""
    [text] = dense.documents.texts(dense.documents.rows(["doc1"]))
    take_in(ledger, key, Item(document="doc1", document_text=text, substitute="doc10", substitute_text="once this"))
    batch = open_batch(ledger, key, dense, None)
    assert batch.removal == Removal(documents=["doc1"]) and batch.left_out(1) == 1


@pytest.fixture
def options(dense: Collection, encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunOptions:
    monkeypatch.setattr("unrank.desk.run_context.Thoroughness", partial(Thoroughness, relearning_steps=(1,)))
    ranker = make_bi_encoder(encoder, tmp_path / "ranker")
    forget = ForgetOptions(method="curd", settings={"learning_rate": "3e-3", "epochs": "12"}, device="cpu")
    return RunOptions(str(ranker), dense.folder, forget, target="beyond:10", audit_queries=5)


def test_a_run_raises_them_and_each_certificate_has_its_own(
    ledger: Ledger,
    key: Key,
    path: Path,
    dense: Collection,
    options: RunOptions,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Three requests: one has two substitutes, one removes one of these, and one names the same document without."""
    ask(ledger, key, dense, {"doc1": "doc4", "doc13": "doc6"})
    ask(ledger, key, dense, {}, "doc6")
    ask(ledger, key, dense, {}, "doc1")
    judge = RequestPairs.judge

    def forgotten(self: RequestPairs, *given: object) -> object:
        from dataclasses import replace

        from unrank.forgetting.outcome import ForgetState

        found = judge(self, *given)  # type: ignore[arg-type]
        return {id: replace(one, state=ForgetState.FORGOTTEN) for id, one in found.items()}

    monkeypatch.setattr(RequestPairs, "judge", forgotten)
    done = run_open(ledger, key_file(path), options)
    assert done is not None and {*done.substitutes} == {1}, "the third request named none, and does not learn of it"
    found = done.substitutes[1]
    pairs = dense.pairs[dense.pairs[:, 1] == dense.documents.rows(["doc1"])[0]]
    assert found.left_out == 1 and found.stand is not None
    assert found.stand.after.pairs == len(pairs) and found.stand.after.mrr > found.stand.before.mrr
    assert found.stand.after.above == len(pairs)

    show_result(done)
    said = next(line for line in capsys.readouterr().out.splitlines() if "takes no place" in line)
    assert said.startswith("request 1: 1 substitute takes no place: it is to be forgotten itself") and "median" in said
    assert [each["substitutes"] is None for each in result_json(done)["requests"]] == [False, True, True]

    value = certificate(ledger, key, 1).value
    part = value["rankers"][0]["measured"]["substitutes"]
    assert part == json.loads(json.dumps(done.result["substitutes"]["1"]))
    page = page_html(certificate_page(value, key.public))
    assert "and that another document take the place of 2 of its documents" in page
    assert f"in {len(pairs)} pairs, its median rank among documents that do not answer the query was" in page
    assert "1 such document took no place in this run." in page and "is right, or is found first" in page
    assert not any(f"{name}<" in page or f"{name} " in page for name in ("doc1", "doc4", "doc13", "doc6"))
    for other in (2, 3):
        value = certificate(ledger, key, other).value
        page = page_html(certificate_page(value, key.public))
        assert "substitutes" not in json.dumps(value) and "such document" not in page and "in its place" not in page
        assert "takes the place of a removed one" not in page


def test_substitutes_that_take_no_place_are_read_again() -> None:
    found = {1: RequestSubstitutes(2)}
    assert parse(RequestSubstitutes, json.loads(json.dumps(as_json(found)))["1"], "substitutes") == found[1]
