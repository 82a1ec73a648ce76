"""Attacks by what happens meanwhile: another process, a folder that changes between two readings, a link in a path."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.attacks.test_closing import close, desk
from tests.desk.conftest import take_in
from tests.desk.test_remains import Desk
from tests.tiny import make_collection
from unrank.cli.main import run
from unrank.desk import certificate as certificates
from unrank.desk.certificate import write_certificate
from unrank.desk.closing import close as close_request
from unrank.desk.key import key_file
from unrank.desk.request import Item, State
from unrank.desk.run_ledger import begin_run, only_run, unfinished_run
from unrank.desk.run_options import RunOptions
from unrank.desk.run_result import finish_unchanged
from unrank.desk.service import Role, ServiceRanker, add_ranker, remove_ranker, service_ranker, settle, states_of
from unrank.desk.trust import rotate
from unrank.desk.undo import undo_run
from unrank.desk.witness import write_witness
from unrank.disk import beside, folder_hash
from unrank.errors import UnrankError

__all__ = ["desk"]


@pytest.mark.attack(0)
def test_copies_are_not_added_to_a_request_that_was_withdrawn_meanwhile(desk: Desk) -> None:
    close_request(desk.ledger, 1, State.WITHDRAWN)
    with pytest.raises(UnrankError, match="request 1 is withdrawn"):
        desk.ledger.add_copies(1, [Item(document="doc-copy", document_text="the text again")], desk.key)
    assert desk.ledger.items(1) == []


@pytest.mark.attack(0)
def test_a_refused_run_deletes_no_checkpoint_of_the_unfinished_one(desk: Desk) -> None:
    asked = {"ranker": str(desk.original), "requests": [1]}
    first = begin_run(desk.ledger, asked, desk.folder / "first")
    checkpoint = beside(first.out) / "checkpoint.safetensors"
    checkpoint.parent.mkdir()
    checkpoint.write_bytes(b"an hour of work")
    (desk.folder / "taken").mkdir()
    with pytest.raises(UnrankError, match="exists already"):
        begin_run(desk.ledger, {**asked, "seed": 1}, desk.folder / "taken")
    assert unfinished_run(desk.ledger) == first and checkpoint.exists()


@pytest.mark.attack(0)
def test_a_run_that_is_undone_while_its_certificate_is_written_has_none(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    settled = desk.run()
    entries, last = desk.ledger.head()
    made: Any = {"history": {"entries": entries, "last_hash": last}, "state": "x"}
    monkeypatch.setattr(certificates, "certificate", lambda *_: certificates.Certificate(made, {}))
    monkeypatch.setattr(certificates, "certificate_page", lambda *_: undo_run(desk.ledger, settled))
    monkeypatch.setattr(certificates, "page_html", lambda _: "<!doctype html>")
    with pytest.raises(UnrankError, match="changed while"):
        write_certificate(desk.ledger, desk.key, 1, desk.folder / "paper")
    assert not (desk.folder / "paper").exists() and desk.ledger.request(1).state is State.OPEN


@pytest.mark.attack(0)
def test_nothing_is_signed_with_a_key_that_was_replaced_meanwhile(desk: Desk) -> None:
    desk.run()
    rotate(desk.ledger, key_file(desk.ledger.path))
    writers: list[Callable[[Path], object]] = [
        lambda out: write_certificate(desk.ledger, desk.key, 1, out),
        lambda out: write_witness(desk.ledger, desk.key, out),
    ]
    for write in writers:
        with pytest.raises(UnrankError, match="its signing key was replaced"):
            write(desk.folder / "out")
    assert not (desk.folder / "out").exists()


@pytest.mark.attack(0)
@pytest.mark.parametrize("changed", ["ranker", "collection"])
def test_a_finding_of_nothing_to_forget_is_about_the_files_that_were_read(desk: Desk, changed: str) -> None:
    read = {"ranker_files": folder_hash(desk.original), "collection_fingerprint": desk.collection.fingerprint}
    begun = begin_run(desk.ledger, {"ranker": str(desk.original), "requests": [1], **read}, desk.folder / "out")
    if changed == "ranker":
        (desk.original / "model.safetensors").write_bytes(b"another ranker")
    else:
        make_collection(desk.folder / "other", [("q1", "d1")])
        shutil.rmtree(desk.data)
        (desk.folder / "other").rename(desk.data)
    context: Any = SimpleNamespace(options=SimpleNamespace(ranker=str(desk.original), collection=desk.data))
    with pytest.raises(UnrankError, match="was changed during this run"):
        finish_unchanged(desk.ledger, begun, context, {})


@pytest.mark.attack(0)
def test_no_run_is_undone_while_another_one_works(desk: Desk) -> None:
    settled = desk.run()
    with only_run(desk.ledger.path), pytest.raises(UnrankError, match="another run is in progress"):
        undo_run(desk.ledger, settled)
    assert desk.ledger.request(1).state is State.FORGOTTEN


@pytest.mark.attack(0)
def test_a_run_settles_nothing_in_another_ranker_that_took_the_name_meanwhile(desk: Desk) -> None:
    add_ranker(desk.ledger, ServiceRanker("search", Role.retriever, str(desk.original), str(desk.data)))
    running = service_ranker(desk.ledger, "search")
    remove_ranker(desk.ledger, "search")
    add_ranker(desk.ledger, ServiceRanker("search", Role.retriever, str(desk.folder / "other"), str(desk.data)))
    with desk.ledger.transaction():
        desk.ledger.ask("INSERT INTO run VALUES (1, 'passed', '/srv/new', '{}', '{}')")
        settle(desk.ledger, 1, State.FORGOTTEN, 1, running)
    assert [each.state for each in states_of(desk.ledger, 1)] == [State.OPEN]
    assert desk.ledger.request(1).state is State.OPEN


@pytest.mark.attack(0)
def test_a_ranker_is_not_in_service_before_its_run_made_it(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    add_ranker(desk.ledger, ServiceRanker("search", Role.retriever, str(desk.original), str(desk.data)))
    desk.run(member="search")
    words = ["desk", "service", "deploy", "search", "--ledger", str(desk.ledger.path)]
    assert run([*words, "--since", str(date.today() - timedelta(days=9))]) == 2
    assert "run 1 made it" in capsys.readouterr().err
    assert service_ranker(desk.ledger, "search").since is None
    assert run(words) == 0


@pytest.mark.attack(0)
def test_a_counter_that_cannot_be_kept_is_reported(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unrank.desk.counter.remember", lambda *_: False)
    take_in(desk.ledger, desk.key)
    assert any("cannot notice if an old copy" in note for note in desk.ledger.notes)


@pytest.mark.attack(0)
def test_an_original_is_not_gone_if_only_a_link_to_it_is(desk: Desk) -> None:
    """The ledger knows the folder itself, by whatever link it was named."""
    links = [desk.folder / "link", desk.folder / "data-link"]
    for link, real in zip(links, (desk.original, desk.data), strict=True):
        link.symlink_to(real)
    options = RunOptions(str(links[0]), links[1], references=(str(links[0]),)).absolute()
    assert options.paths == [str(desk.original), str(desk.data), str(desk.original)]
    add = ["desk", "service", "add", "search", *map(str, links), "--ledger", str(desk.ledger.path)]
    assert run(add) == 0
    known = service_ranker(desk.ledger, "search")
    assert (known.ranker, known.collection) == (str(desk.original), str(desk.data))


@pytest.mark.attack(0)
def test_a_link_that_no_search_follows_is_listed(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    desk.run()
    look = desk.folder / "look"
    look.mkdir()
    (look / "data").symlink_to(desk.data)
    (look / "round").symlink_to(look)
    assert close(desk, "--look", str(look), "--leave", "other") == 0
    told = [line for line in capsys.readouterr().out.splitlines() if "not checked" in line]
    assert told == [f"  not checked: file {look / 'data'} is a link to a folder elsewhere, so it was not searched"]


@pytest.mark.attack(0)
def test_a_line_break_in_a_name_makes_no_line_of_its_own(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    forged = "a\nrequest 9: forgotten"
    take_in(desk.ledger, desk.key, Item(document=forged, document_text=forged))
    assert run(["desk", "show", "2", "--ledger", str(desk.ledger.path)]) == 0
    told = capsys.readouterr().out
    assert "a\\nrequest 9: forgotten" in told and "request 9: forgotten" not in told.splitlines()


@pytest.mark.attack(0)
def test_raw_data_inside_another_rankers_folder_is_found(desk: Desk) -> None:
    desk.run()
    look = desk.folder / "look"
    look.mkdir()
    shutil.copytree(desk.new, look / "model")
    (look / "model" / "data").mkdir()
    [item] = desk.ledger.items(1)
    (look / "model" / "data" / "train.jsonl").write_text(f'{{"text": "{item.document_text}"}}')
    assert ("file", "holds a text, or half of one") in desk.remains(look)
