"""Attacks on certificates, by the command line that their receivers use."""

from __future__ import annotations

import base64
import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.desk.conftest import take_in
from tests.desk.made import made_result, made_run, ranks
from unrank.cli.main import run
from unrank.desk.certificate import certificate, write_certificate
from unrank.desk.key import Key, key_file
from unrank.desk.ledger import Ledger
from unrank.desk.request import Item
from unrank.desk.signature import seal, write_seal
from unrank.disk import file_hashes
from unrank.forgetting.outcome import ForgetState, Judgement

Verify = Callable[..., tuple[int, dict[str, Any]]]
TEXTS = ("Mr Quixote owns a windmill", "who sold the zanzibar clock", "left handed spanners are rare")


def make_desk(folder: Path, ranker: Path) -> tuple[Path, str]:
    """Make a ledger with one forgotten request, and its certificate beside it; return that and the public key."""
    folder.mkdir()
    path = folder / "desk.ledger"
    with Ledger.open(path, make_with=key_file(path)) as ledger:
        key = ledger.key(key_file(path))
        take_in(ledger, key)
        judged = {1: Judgement(ForgetState.FORGOTTEN, "why", ranks([1, 1], [4, 5]))}
        made_run(ledger, judged, made_result(judged) | {"ranker_files": file_hashes(ranker)}, ranker)
        write_certificate(ledger, key, 1, folder / "certificate")
    return folder / "certificate", key.public


@pytest.fixture
def ranker(tmp_path: Path) -> Path:
    folder = tmp_path / "ranker"
    (folder / "1_Pooling").mkdir(parents=True)
    for name in ("model.safetensors", "config.json", "1_Pooling/config.json"):
        (folder / name).write_text(f"the content of {name}")
    return folder


@pytest.fixture
def verify(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Verify:
    """Verify as a receiver does, in a folder of its own; return the exit status and the JSON."""
    (tmp_path / "receiver").mkdir()
    monkeypatch.chdir(tmp_path / "receiver")

    def verified(*words: object) -> tuple[int, dict[str, Any]]:
        capsys.readouterr()
        status = run(["desk", "verify", *map(str, words), "--json"])
        out = capsys.readouterr().out
        return status, json.loads(out) if out else {}

    return verified


@pytest.mark.attack(9)
def test_an_attackers_own_ledger_beside_his_certificate_is_not_trusted(
    ranker: Path,
    verify: Verify,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    _, public = make_desk(tmp_path / "owner", ranker)
    forged, other = make_desk(tmp_path / "attacker", ranker)
    key_file(tmp_path / "attacker" / "desk.ledger").unlink()  # he keeps his secret
    monkeypatch.chdir(tmp_path / "attacker")
    for words in ([], ["--ledger", "desk.ledger"], ["--ranker", ranker]):
        status, found = verify(forged, *words)
        assert status == 4 and found["signer"] == {"key": other, "known_from": None}
    assert run(["desk", "verify", "certificate"]) == 4
    assert capsys.readouterr().out.startswith("the signer is unknown: anyone can sign")
    assert run(["desk", "verify", "certificate", "--public-key", public]) == 2
    assert "signed by another key" in capsys.readouterr().err
    assert run(["desk", "verify", "certificate", "--quiet"]) == 4
    assert capsys.readouterr().out.startswith("the signer is unknown"), "even then"


@pytest.mark.attack(9)
def test_not_even_if_he_gives_his_secret_away(
    ranker: Path, verify: Verify, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """His key lies beside his ledger, as an owner's would. This machine has never used that ledger."""
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("XDG_STATE_HOME", str(tmp_path / "his-state"))
        forged, other = make_desk(tmp_path / "attacker", ranker)
    monkeypatch.chdir(tmp_path / "attacker")
    for words in ([], ["--ledger", "desk.ledger"], ["--ledger", "desk.ledger", "--key", "desk.ledger.key"]):
        status, found = verify(forged, *words)
        assert status == 4 and found["signer"] == {"key": other, "known_from": None}


@pytest.mark.attack(9)
def test_the_owner_and_who_has_the_public_key_know_the_signer(ranker: Path, verify: Verify, tmp_path: Path) -> None:
    place, public = make_desk(tmp_path / "owner", ranker)
    assert verify(place)[0] == 4, "nothing is known here"
    assert verify(place, "--public-key", public)[0] == 0
    status, found = verify(place, "--ledger", tmp_path / "owner" / "desk.ledger")
    assert status == 0 and found["signer"]["known_from"]


@pytest.mark.attack(16)
def test_other_weights_in_a_certified_folder(ranker: Path, verify: Verify, tmp_path: Path) -> None:
    place, public = make_desk(tmp_path / "owner", ranker)

    def found(folder: Path) -> tuple[int, dict[str, Any]]:
        status, said = verify(place, "--public-key", public, "--ranker", folder)
        return status, {name: names for name, names in said["ranker"].items() if names and name != "same"}

    assert found(ranker) == (0, {})
    for number, (change, differs) in enumerate(CHANGES):
        shutil.copytree(ranker, tmp_path / f"changed{number}")
        change(tmp_path / f"changed{number}")
        assert found(tmp_path / f"changed{number}") == (3, differs)


CHANGES: list[tuple[Callable[[Path], object], dict[str, list[str]]]] = [
    (lambda there: (there / "model.safetensors").write_text("the original's"), {"changed": ["model.safetensors"]}),
    (lambda there: (there / "config.json").unlink(), {"missing": ["config.json"]}),
    (lambda there: (there / "pytorch_model.bin").write_text("more"), {"extra": ["pytorch_model.bin"]}),
    (lambda there: (there / "link").symlink_to("/"), {"extra": ["link"]}),
]


@pytest.mark.attack(16)
def test_the_words_name_the_files_that_are_not_certified(
    ranker: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place, public = make_desk(tmp_path / "owner", ranker)
    (ranker / "model.safetensors").write_text("the original's")
    assert run(["desk", "verify", str(place), "--public-key", public, "--ranker", str(ranker)]) == 3
    assert "NOT the ranker that was certified: changed: 'model.safetensors'" in capsys.readouterr().out
    assert run(["desk", "verify", str(place), "--ranker", str(tmp_path / "nothing")]) == 2
    assert "no such folder" in capsys.readouterr().err


@pytest.mark.attack(6)
def test_nothing_of_one_request_is_in_the_certificate_of_another(tmp_path: Path) -> None:
    """Ids are short, files are named by texts, and each request has ranks and counts of its own."""
    path = tmp_path / "desk.ledger"
    ids = ("d5", "q7", "d81")
    with Ledger.open(path, make_with=key_file(path)) as ledger:
        key = ledger.key(key_file(path))
        judged = {}
        for number, (id, text) in enumerate(zip(ids, TEXTS, strict=True), 1):
            take_in(ledger, key, Item(document=id, document_text=text))
            placed = ranks([number * 1001 + 3], [number * 2003 + 7], 9000)
            words = f"{number * 313} queries are not enough"
            judged[number] = Judgement(ForgetState.FORGOTTEN, words, replace(placed, queries=number * 577))
        copies = [f"/srv/{text}.txt" for text in TEXTS] + [
            f"/srv/{id}/{text}" for id, text in zip(ids, TEXTS, strict=True)
        ]
        made_run(ledger, judged, made_result(judged, copies=copies))
        for number in judged:
            write_certificate(ledger, key, number, tmp_path / f"certificate{number}")
    for number, own in judged.items():
        content = _all_content(tmp_path / f"certificate{number}")
        for id, text in zip(ids, TEXTS, strict=True):
            assert text not in content and text.replace(" ", "%20") not in content
            assert f'"{id}"' not in content and f"/{id}" not in content and f">{id}<" not in content
        for other in judged.keys() - {number}:
            rank = judged[other].ranks
            for secret in (*rank.ranks_before, *rank.ranks_after, rank.queries, other * 313):
                assert not re.search(rf"\b({secret}|{secret:,})\b", content)
        assert str(own.ranks.ranks_after[0]) in content, "its own are there"
        for of_the_test_set in ('"queries": 4321', 'data-key="4321">4,321<'):
            assert of_the_test_set in content
            content = content.replace(of_the_test_set, "", 1)
        assert not re.search(r"\b(4321|4,321)\b", content), "nor a count of all of them"


def _all_content(folder: Path) -> str:
    """Return the page, and the statement in the envelope, as one text without hashes."""
    envelope = (folder / "certificate.json").read_text()
    payload = base64.b64decode(json.loads(envelope)["payload"]).decode()
    return re.sub("[0-9a-f]{32,}", "", (folder / "certificate.html").read_text() + payload)


@pytest.mark.attack(0)
def test_a_certificate_that_the_ledger_never_recorded_is_refused(
    ranker: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Somebody copied the key, and signs a certificate of his own with it."""
    path = tmp_path / "owner" / "desk.ledger"
    recorded, _ = make_desk(path.parent, ranker)
    with Ledger.open(path) as ledger:
        key: Key = ledger.key(key_file(path))
        made = certificate(ledger, key, 1)
    write_seal(tmp_path / "forged", seal(made.value, made.subjects, "<h1>Request 1 is forgotten.</h1>", key))
    assert run(["desk", "verify", str(recorded), "--ledger", str(path)]) == 0
    assert run(["desk", "verify", str(tmp_path / "forged"), "--ledger", str(path)]) == 2
    assert "its history does not hold this certificate" in capsys.readouterr().err


@pytest.mark.attack(0)
def test_the_certificate_of_a_run_that_was_undone_is_revoked(
    ranker: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The original is in service again, and the certificate is still on paper."""
    place, public = make_desk(tmp_path / "owner", ranker)
    ledger = ["--ledger", str(tmp_path / "owner" / "desk.ledger")]
    assert run(["desk", "undo", "1", *ledger]) == 0
    assert run(["desk", "verify", str(place), *ledger, "--public-key", public]) == 3
    assert "REVOKED: on " in capsys.readouterr().out
