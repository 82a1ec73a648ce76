"""A certificate with any byte changed does not verify."""

from __future__ import annotations

import base64
import json
import random
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from unrank.desk.key import Key
from unrank.desk.signature import (
    CERTIFICATE,
    PAGE,
    PREDICATE,
    encoded,
    read_public_key,
    read_signed,
    seal,
    write_seal,
)
from unrank.desk.verification import Verification
from unrank.errors import BadFile, UnrankError

KEY, OTHER = Key(bytes(32), bytes(range(32))), Key(bytes(32), bytes(32))
FILES = {"model.safetensors": "ab" * 32, "config.json": "cd" * 32}
VALUE: dict[str, Any] = {
    "request": {"id": 7, "commitment": {"salt": "5a", "of": []}},
    "state": "forgotten",
    "rankers": [{"name": None, "audited": None}],
    "history": {"entries": 3, "last_hash": "ab"},
    "words": "häufig <gelöscht>",
    "figures": [0.25, 1e-9, None],
}


def sign(out: Path, value: dict[str, Any] = VALUE, key: Key = KEY) -> Path:
    write_seal(out, seal(value, FILES, "<p>forgotten, and the page says so</p>\n", key))
    return out


@pytest.fixture
def sealed(tmp_path: Path) -> Path:
    return sign(tmp_path / "sealed")


@pytest.fixture
def former(tmp_path: Path) -> Path:
    """A certificate of version 1."""
    with ZipFile(Path(__file__).parent / "version_0_1.zip") as archive:
        archive.extractall(tmp_path)
    return tmp_path / "certificate"


def test_what_was_sealed_is_read_back(sealed: Path) -> None:
    for place in (sealed, sealed / CERTIFICATE, sealed / PAGE):
        found = read_signed(place, [OTHER.public, KEY.public])
        assert {name: found.value[name] for name in VALUE} == VALUE
        assert found.public_key == KEY.public and found.version == 3
        assert found.subjects == FILES and found.rankers == [FILES]


def test_a_certificate_of_version_2_is_still_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rankers hold no claims that a program can check."""
    value = VALUE | {"rankers": [{"name": None, "audited": {"verdict": "cannot be known", "tests": {}}}]}
    monkeypatch.setattr("unrank.desk.signature.PREDICATE", "urn:unrank:certificate:v2")
    found = read_signed(sign(tmp_path / "before", value), [KEY.public])
    assert found.version == 2 and Verification(tmp_path, found, "--public-key").holds
    monkeypatch.undo()
    with pytest.raises(BadFile, match="not a certificate of forgetting"):
        read_signed(sign(tmp_path / "now", value))
    monkeypatch.setattr("unrank.desk.signature.PREDICATE", "urn:unrank:certificate:v4")
    with pytest.raises(BadFile, match="changed"):
        read_signed(sign(tmp_path / "later"))


def test_it_is_an_in_toto_statement_in_a_dsse_envelope(sealed: Path) -> None:
    """Any tool that reads these formats can check it, without unrank."""
    envelope = json.loads((sealed / CERTIFICATE).read_bytes())
    assert sorted(envelope) == ["payload", "payloadType", "signatures"]
    payload = base64.b64decode(envelope["payload"])
    [signature] = envelope["signatures"]
    signed = b"DSSEv1 28 application/vnd.in-toto+json %d %s" % (len(payload), payload)
    assert signed == encoded(envelope["payloadType"], payload)
    public = Ed25519PublicKey.from_public_bytes(bytes.fromhex(KEY.public))
    public.verify(base64.b64decode(signature["sig"]), signed)
    statement = json.loads(payload)
    assert statement["_type"] == "https://in-toto.io/Statement/v1" and statement["predicateType"] == PREDICATE
    assert {one["name"]: one["digest"] for one in statement["subject"]} == {
        name: {"sha256": digest} for name, digest in FILES.items()
    }


@pytest.mark.parametrize("version", ["sealed", "former"])
def test_random_changes(version: str, request: pytest.FixtureRequest) -> None:
    place: Path = request.getfixturevalue(version)
    generator = random.Random(5)
    whole = {name: (place / name).read_bytes() for name in (CERTIFICATE, PAGE)}
    for number in range(200):
        name = (CERTIFICATE, PAGE)[number % 4 == 3]
        content = bytearray(whole[name])
        byte = generator.randrange(len(content))
        kind = number % 5
        if kind == 0:
            content.insert(byte, generator.choice(b' \n0a"'))
        elif kind == 1:
            del content[byte]
        else:
            content[byte] ^= generator.randrange(1, 256)
        if bytes(content) == whole[name]:
            continue
        (place / name).write_bytes(content)
        with pytest.raises(BadFile, match="changed after it was signed"):
            read_signed(place)
        (place / name).write_bytes(whole[name])
    read_signed(place)


def test_upper_case_and_another_layout_are_changes(sealed: Path, former: Path) -> None:
    for place in (sealed, former):
        path = place / CERTIFICATE
        value = json.loads(path.read_bytes())
        changes = [{**value, "more": 1}]
        if place == former:
            changes += [{**value, "signature": form(value["signature"])} for form in (str.upper, " {}".format)]
        else:
            [signature] = value["signatures"]
            changes += [
                {**value, "signatures": [{**signature, "keyid": signature["keyid"].upper()}]},
                {**value, "signatures": [signature, signature]},
                {**value, "payload": value["payload"] + "="},
                {**value, "payloadType": "application/json"},
            ]
        for changed in changes:
            path.write_text(json.dumps(changed, indent=1, sort_keys=True) + "\n")
            with pytest.raises(BadFile, match="changed"):
                read_signed(place)
        path.write_text(json.dumps(value))
        with pytest.raises(BadFile, match="changed"):
            read_signed(place)


def test_a_forger_signs_with_another_key(sealed: Path, tmp_path: Path) -> None:
    sign(tmp_path / "forged", key=OTHER)
    assert read_signed(tmp_path / "forged").public_key == OTHER.public
    with pytest.raises(BadFile, match="signed by another key"):
        read_signed(tmp_path / "forged", [KEY.public])


@pytest.mark.parametrize("value", [{}, {"request": {"id": 7}}, VALUE | {"request": "7"}, VALUE | {"rankers": None}])
def test_what_is_signed_and_no_certificate(value: dict[str, Any], tmp_path: Path) -> None:
    sign(tmp_path / "foreign", value)
    with pytest.raises(BadFile, match="signed, but not a certificate of forgetting"):
        read_signed(tmp_path / "foreign")


def test_what_is_missing(sealed: Path, tmp_path: Path) -> None:
    (sealed / PAGE).unlink()
    with pytest.raises(BadFile, match="no such file"):
        read_signed(sealed)
    with pytest.raises(BadFile, match="no such file"):
        read_signed(tmp_path / "nothing")


def test_public_keys() -> None:
    assert read_public_key(KEY.public.upper()) == KEY.public
    for text in ("", "zz", "ab" * 31):
        with pytest.raises(UnrankError, match="64 hex digits"):
            read_public_key(text)
