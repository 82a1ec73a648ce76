"""Ids find their rows, few or many."""

from __future__ import annotations

import pyarrow as pa
import pytest

from unrank.collection import texts
from unrank.collection.texts import Texts


@pytest.mark.parametrize("few", [0, 10**6])
def test_ids_are_found_however_many_are_asked_for(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, "FEW", few)
    chunks = [["a", "b"], ["c"], ["d", "e"]]
    table = pa.table({"id": pa.chunked_array(chunks), "text": pa.chunked_array(chunks)})
    found = Texts("document", table).find(pa.array(["e", "x", "a", "e", "c"]))
    assert found.tolist() == [4, -1, 0, 4, 2]
    assert Texts("document", table).find(pa.array([], pa.string())).tolist() == []
