"""A certificate with any byte changed does not verify."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from unrank.desk.key import Key
from unrank.desk.signature import CERTIFICATE, PAGE, read_public_key, read_signed, sign_certificate
from unrank.errors import BadFile, UnrankError

KEY, OTHER = Key(bytes(range(32))), Key(bytes(32))
VALUE = {
    "request": {"id": 7},
    "history": {"entries": 3, "last_hash": "ab"},
    "words": "häufig <gelöscht>",
    "figures": [0.25, 1e-9, None],
}


@pytest.fixture
def sealed(tmp_path: Path) -> Path:
    sign_certificate(tmp_path / "sealed", VALUE, "<p>forgotten, and the page says so</p>\n", KEY)
    return tmp_path / "sealed"


def test_what_was_sealed_is_read_back(sealed: Path) -> None:
    for place in (sealed, sealed / CERTIFICATE, sealed / PAGE):
        found = read_signed(place, KEY.public)
        assert {name: found.value[name] for name in VALUE} == VALUE
        assert found.public_key == KEY.public


def test_a_thousand_random_changes(sealed: Path) -> None:
    generator = random.Random(5)
    whole = {name: (sealed / name).read_bytes() for name in (CERTIFICATE, PAGE)}
    for number in range(1_000):
        name = (CERTIFICATE, PAGE)[number % 4 == 3]
        content = bytearray(whole[name])
        place = generator.randrange(len(content))
        kind = number % 5
        if kind == 0:
            content.insert(place, generator.choice(b' \n0a"'))
        elif kind == 1:
            del content[place]
        else:
            content[place] ^= generator.randrange(1, 256)
        if bytes(content) == whole[name]:
            continue
        (sealed / name).write_bytes(content)
        with pytest.raises(BadFile, match="changed after it was signed"):
            read_signed(sealed)
        (sealed / name).write_bytes(whole[name])
    read_signed(sealed)


def test_upper_case_and_another_layout_are_changes(sealed: Path) -> None:
    path = sealed / CERTIFICATE
    value = json.loads(path.read_bytes())
    for changed in ({**value, "signature": value["signature"].upper()}, {**value, "more": 1}):
        path.write_text(json.dumps(changed, indent=1, sort_keys=True) + "\n")
        with pytest.raises(BadFile, match="changed"):
            read_signed(sealed)
    path.write_text(json.dumps(value))
    with pytest.raises(BadFile, match="changed"):
        read_signed(sealed)


def test_a_forger_signs_with_another_key(sealed: Path, tmp_path: Path) -> None:
    sign_certificate(tmp_path / "forged", VALUE, "page", OTHER)
    assert read_signed(tmp_path / "forged").public_key == OTHER.public
    with pytest.raises(BadFile, match="signed by another key"):
        read_signed(tmp_path / "forged", KEY.public)


@pytest.mark.parametrize("value", [{}, {"request": {"id": 7}}, VALUE | {"request": "7"}])
def test_what_is_signed_and_no_certificate(value: dict[str, object], tmp_path: Path) -> None:
    sign_certificate(tmp_path / "foreign", value, "page", KEY)
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
