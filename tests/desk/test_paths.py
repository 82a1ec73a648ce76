"""Paths that name what is removed, in the ways in which file names are written."""

from __future__ import annotations

import json

import pytest

from unrank.desk.erasing import ERASED, Names, _rewritten
from unrank.desk.paths import names_item, refuse_names, safe_path
from unrank.desk.request import Item
from unrank.errors import UnrankError

SHORT, WEB = Item(document="d5"), Item(document="http://example.org/people/Ana?id=7")
TEXT = Item(document="x1", document_text="Mr Quixote of Dulcinea Street owns a windmill, and sells flour")
QUERY = Item(query="77", query_text="lost keys")


@pytest.mark.parametrize(
    ("path", "item"),
    [
        ("/srv/d5", SHORT),
        ("/srv/d5.json", SHORT),
        ("/srv/ranker-without-D5/model", SHORT),
        ("/srv/copy_of_d5_.txt", SHORT),
        ("/srv/http%3A%2F%2Fexample.org%2Fpeople%2FAna%3Fid%3D7.html", WEB),
        ("/srv/http%253A%252F%252Fexample.org%252Fpeople%252FAna%253Fid%253D7", WEB),
        ("/srv/http___example_org_people_Ana_id_7", WEB),
        ("/srv/http:/example.org/people/Ana?id=7", WEB),
        ("/srv/Mr Quixote of Dulcinea Street.txt", TEXT),
        ("/srv/mr_quixote_of_dulcinea_street_owns_a", TEXT),
        ("/srv/quixote%20of%20dulcinea%20street/a.txt", TEXT),
        ("/srv/MrQuixoteOfDulcineaStreet.txt", TEXT),
        ("/srv/lost-keys.txt", QUERY),
    ],
)
def test_a_path_that_names_an_item(path: str, item: Item) -> None:
    assert names_item(path, [Item(document="another"), item])
    assert safe_path(path, [item]) == ("/srv/http:/example.org/people" if path.endswith("Ana?id=7") else "/srv")
    with pytest.raises(UnrankError, match="holds an id or words of what is to be forgotten"):
        refuse_names([path], [item])


@pytest.mark.parametrize(
    ("path", "item"),
    [
        ("/srv/d55/ranker-run5", SHORT),
        ("/srv/windmill/street", TEXT),
        ("/srv/run-77/2026", QUERY),
        ("/srv/keys/lost", QUERY),
        ("/srv/***", Item(query="***", query_text="???")),
    ],
)
def test_a_path_that_names_none(path: str, item: Item) -> None:
    assert not names_item(path, [item]) and safe_path(path, [item]) == path


def test_the_root_is_kept() -> None:
    assert safe_path("/", [Item(document="srv")]) == "/" and safe_path("/srv", [Item(document="srv")]) == "/"


def test_a_name_that_is_not_utf_8_is_not_written_down() -> None:
    assert safe_path("/srv/look/n\udcff.txt", [QUERY]) == "/srv/look"
    with pytest.raises(UnrankError, match="is not UTF-8, and the ledger keeps this path"):
        refuse_names(["/srv/n\udcff"], [QUERY])


def test_files_of_a_ranker_that_name_an_item_are_numbered() -> None:
    names = Names([Item(document="doc4")])
    files = {"config.json": "1", "notes/doc4-of-Ms-Canary.txt": "2", "model.safetensors": "3"}
    erased = names.erased_files(files)
    assert [*erased.values()] == ["1", "2", "3"] and [*erased] == ["config.json", f"{ERASED} 2", "model.safetensors"]
    unchanged = json.dumps({"files": {"old ranker": "4"}, "ranker_files": files})
    assert "Canary" not in _rewritten(unchanged, names)
    written = json.dumps({"files": {"old ranker": "4", "ranker": "5"}, "ranker_files": {"doc4": "1"}})
    assert _rewritten(written, names) == written, "the program chose these names"
