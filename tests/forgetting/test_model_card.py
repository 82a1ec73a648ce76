"""The model card: what the hub reads, counts of what was forgotten, and no word of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.forgetting.conftest import FAST
from tests.tiny import made_record
from unrank.collection.collection import Collection
from unrank.collection.partition import make_partition
from unrank.collection.removal import Removal
from unrank.forgetting.forget import Forgotten, forget
from unrank.forgetting.model_card import EARLIER, LEFT_OUT, earlier_card, model_card
from unrank.forgetting.previous_requests import hashed
from unrank.forgetting.train import Trained
from unrank.rankers import load_ranker
from unrank.record import SetSummary


def head_of(card: str) -> dict[str, object]:
    """The head of a card, as the hub reads it."""
    import yaml  # type: ignore[import-untyped]

    found = yaml.safe_load(card.split("---\n")[1])
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize(
    ("kind", "pipeline", "library", "call"),
    [
        ("bi-encoder", "sentence-similarity", "sentence-transformers", "model.encode_query("),
        ("colbert", "sentence-similarity", "sentence-transformers", "MultiVectorEncoder("),
        ("cross-encoder", "text-ranking", "sentence-transformers", "model.predict("),
        ("duet", "text-ranking", "unrank", "unrank.load_ranker("),
    ],
)
def test_the_head_and_the_call_suit_the_kind(kind: str, pipeline: str, library: str, call: str) -> None:
    card = model_card(replace(made_record(), ranker=kind, base="some/encoder"))
    head = head_of(card)
    assert (head["pipeline_tag"], head["library_name"], head["base_model"]) == (pipeline, library, "some/encoder")
    assert isinstance(head["tags"], list) and {library, kind, pipeline} <= {*head["tags"]}
    assert call in card and EARLIER not in card and "forgotten" not in card


def test_a_folder_is_no_base_on_the_hub_and_a_name_breaks_nothing() -> None:
    odd = replace(made_record(), base="evil`\n---\nlicense: mine")
    assert "base_model" not in head_of(model_card(odd)) and "license" not in head_of(model_card(odd))
    assert "`evil' --- license: mine`" in model_card(odd)


def test_a_card_that_was_there_is_kept_below_without_its_head_and_only_once(
    trained: Trained, dense: Collection, removal: Removal, tmp_path: Path
) -> None:
    trained.save(tmp_path / "original")
    (tmp_path / "original" / "README.md").write_text("---\nlicense: mit\n---\n# My ranker\n\nFor my shop.\n")
    ranker = load_ranker(tmp_path / "original")
    first = forget(ranker, dense, removal, method=replace(FAST, epochs=1), target="80%")
    first.save(tmp_path / "first")
    card = (tmp_path / "first" / "README.md").read_text()
    assert card.endswith(f"{EARLIER}\n\n# My ranker\n\nFor my shop.\n") and "license" not in card
    assert "Removed: 0 queries, 8 documents, 0 pairs." in card
    partition = make_partition(dense, removal)
    again = earlier_card(load_ranker(tmp_path / "first").card, dense, partition)
    assert again == "# My ranker\n\nFor my shop.", "what unrank wrote itself is not kept"


def test_a_card_of_a_run_that_forgot_nothing_does_not_say_that_it_did() -> None:
    summary = {"forget": SetSummary(0.5, 0.4, 0.6, 9)}
    asked = replace(made_record(removed=hashed(Removal(["q1"]))), state="not forgotten", before=summary, after=summary)
    card = model_card(replace(asked, epochs=0))
    assert "## What was asked to be forgotten" in card and "The state of the request: not forgotten." in card
    assert "The weights are those of the original." in card and "can still be found" not in card
    done = model_card(replace(asked, epochs=2, state="forgotten"))
    assert "those of the original" not in done and "can still be found if its text is in the index" in done


def test_a_card_with_words_of_what_is_removed_is_left_out(dense: Collection, removals: dict[str, Removal]) -> None:
    for removal in removals.values():
        partition = make_partition(dense, removal)
        document = dense.documents.text(int(partition.forget[0, 1]))
        query = dense.queries.text(int(partition.forget[0, 0]))
        quoted = [document, query] if removal.pairs else [document if removal.documents else query]
        for text in quoted:
            part = " ".join(text.split()[1:]) if text == document else text
            assert earlier_card(f"# Mine\n\n| {part.upper()} |", dense, partition) == LEFT_OUT
        [name] = [*removal.queries[:1], *removal.documents[:1], *(query for query, _ in removal.pairs[:1])]
        assert earlier_card(f"See {name}.", dense, partition) == LEFT_OUT
        assert earlier_card("A ranker of mine.", dense, partition) == "A ranker of mine."


def test_the_card_of_a_run_holds_no_removed_word(forgotten: Forgotten, dense: Collection, removal: Removal) -> None:
    card = model_card(forgotten.record, forgotten.card)
    assert not any(id in card for id in removal.documents)
    assert not any(text in card for text in dense.documents.texts(dense.documents.rows(removal.documents)))
