"""PARADE: passages are cut as they should be, a long document counts whole, and memory does not grow with it."""

from __future__ import annotations

import copy
import json
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import processors
from transformers import AutoModel, DistilBertConfig, ModernBertConfig, MPNetConfig, T5Config

from tests.rankers.conftest import enliven
from tests.rankers.fast.test_encoder import as_on_a_gpu
from tests.tiny import SPECIAL, WORDS, make_tokenizer, text_of
from unrank.errors import BadFile, UnrankError
from unrank.rankers import create_ranker, load_ranker, parade
from unrank.rankers.base import Ranker
from unrank.rankers.lora import add_adapter
from unrank.rankers.parade import ParadeRanker
from unrank.rankers.passages import PassageSettings, TransformerAggregator, passage_spans
from unrank.rankers.tokens import Tokens

pytestmark = pytest.mark.usefixtures("untried")
USUAL = PassageSettings(256)
SIZE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
FAMILIES = {
    "distilbert": DistilBertConfig(dim=32, n_layers=2, n_heads=2, hidden_dim=64, vocab_size=131),
    "mpnet": MPNetConfig(**SIZE, vocab_size=131),
    "modernbert": ModernBertConfig(**SIZE, vocab_size=131, pad_token_id=0, cls_token_id=2, sep_token_id=3),
}
QUERIES = ["ba be", "cel dan fos gu", "hir", ""]
DOCUMENTS = ["ba ce di fo gu " * 30, "lir mos", "", "na pe ri so tu " * 11]


def spans(length: int, settings: PassageSettings = USUAL) -> list[tuple[int, int]]:
    document, starts, ends = passage_spans(np.array([length]), settings)
    assert not document.any()
    return list(zip(starts.tolist(), ends.tolist(), strict=True))


@pytest.fixture
def ranker(rankers: dict[str, Ranker]) -> ParadeRanker:
    """To be changed at will."""
    ranker = copy.deepcopy(rankers["parade"])
    assert isinstance(ranker, ParadeRanker)
    return ranker


@pytest.fixture
def folder(folders: dict[str, Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(folders["parade"], tmp_path / "ranker"))


@pytest.fixture
def seen(ranker: ParadeRanker) -> list[torch.Size]:
    """The shapes that the encoder is given."""
    shapes: list[torch.Size] = []
    ranker.encoder.register_forward_pre_hook(
        lambda _, given, named: shapes.append(named["input_ids"].shape), with_kwargs=True
    )
    return shapes


@pytest.mark.parametrize(
    ("length", "expected"),
    [
        (0, [(0, 0)]),
        (1, [(0, 1)]),
        (50, [(0, 50)]),
        (51, [(0, 51), (43, 51)]),
        (57, [(0, 57), (43, 57)]),
        (120, [(0, 57), (43, 107), (93, 120)]),
        (2000, [(0, 57), *((50 * i - 7, 50 * i + 57) for i in range(1, 39)), (1943, 2000)]),
    ],
)
def test_passages_are_cut(length: int, expected: list[tuple[int, int]]) -> None:
    assert spans(length) == expected


def test_many_documents_are_cut_as_each_alone() -> None:
    lengths = [120, 0, 51, 1]
    document, starts, ends = passage_spans(np.array(lengths), USUAL)
    expected = [(row, *span) for row, length in enumerate(lengths) for span in spans(length)]
    assert list(zip(document.tolist(), starts.tolist(), ends.tolist(), strict=True)) == expected


def test_the_encoder_reads_each_passage_with_the_query(ranker: ParadeRanker) -> None:
    rows: list[list[int]] = []
    ranker.encoder.register_forward_pre_hook(
        lambda _, given, named: rows.extend(named["input_ids"].tolist()), with_kwargs=True
    )
    words = text_of(random.Random(2), 40).split()
    ranker.score_texts(["ba be"], [" ".join(words)])
    vocabulary = {word: number for number, word in enumerate([*SPECIAL, *WORDS])}
    query, document = ([vocabulary[word] for word in text] for text in (["ba", "be"], words))
    cut = spans(40, ranker.settings)
    assert len(cut) > 1
    expected = [[2, *query, 3, *document[start:end], 3] for start, end in cut]
    assert [[token for token in row if token] for row in rows] == expected


def test_the_usual_passages_where_they_fit(encoder: Path, ranker: ParadeRanker, tmp_path: Path) -> None:
    """An encoder of 64 tokens has shorter ones, so that half of its room is left to the query."""
    roomy = create_ranker("parade", str(save_family(tmp_path / "mpnet", "mpnet")), 0)
    assert isinstance(roomy, ParadeRanker)
    assert (roomy.settings.passage, roomy.settings.overlap, roomy.settings.longest) == (50, 7, 256)
    assert (ranker.settings.passage, ranker.settings.overlap, ranker.settings.longest) == (16, 7, 64)


@pytest.mark.parametrize("aggregation", ["transformer", "max"])
def test_in_pieces_and_whole_are_the_same(encoder: Path, aggregation: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = enliven(ParadeRanker.create(str(encoder), aggregation=aggregation))
    pieces = copy.deepcopy(whole)
    expected = backward(whole)
    monkeypatch.setattr(parade, "TOKENS_AT_ONCE", {"cpu": 100})
    torch.testing.assert_close(backward(pieces), expected, rtol=1e-5, atol=1e-5)
    gradients = {name: weight.grad for name, weight in whole.named_parameters()}
    for name, weight in pieces.named_parameters():
        assert weight.grad is not None
        torch.testing.assert_close(weight.grad, gradients[name], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(pieces.score_texts(QUERIES, DOCUMENTS), expected, rtol=1e-5, atol=1e-5)


def backward(ranker: Ranker) -> torch.Tensor:
    with ranker.constant_weights():
        scores: torch.Tensor = ranker(ranker.tokenize(QUERIES, "query"), ranker.tokenize(DOCUMENTS, "document"))
    torch.autograd.backward((scores * torch.tensor([1.0, -2.0, 0.5, 3.0])).sum())
    return scores.detach()


def test_in_pieces_as_on_a_gpu(ranker: ParadeRanker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without padding, and read again on the way back."""
    expected = backward(ranker)
    gradients = {name: weight.grad for name, weight in ranker.named_parameters()}
    ranker.zero_grad()
    as_on_a_gpu(monkeypatch, torch.float32)
    monkeypatch.setattr(parade, "TOKENS_AT_ONCE", {"cpu": 100})
    torch.testing.assert_close(backward(ranker), expected, rtol=1e-5, atol=1e-5)
    for name, weight in ranker.named_parameters():
        torch.testing.assert_close(weight.grad, gradients[name], rtol=1e-3, atol=1e-4)


def test_an_adapter_in_pieces_as_on_a_gpu(ranker: ParadeRanker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Changed weights are kept for all passes of a step, but not on the way back."""
    add_adapter(ranker, 2, 0)
    as_on_a_gpu(monkeypatch, torch.float32)

    def gradients() -> dict[str, torch.Tensor]:
        ranker.zero_grad()
        backward(ranker)
        return {name: weight.grad.clone() for name, weight in ranker.named_parameters() if weight.grad is not None}

    whole = gradients()
    monkeypatch.setattr(parade, "TOKENS_AT_ONCE", {"cpu": 100})
    in_pieces = gradients()
    assert any(bool(gradient.any()) for name, gradient in whole.items() if "parametrizations" in name)
    for name, gradient in whole.items():
        torch.testing.assert_close(in_pieces[name], gradient, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("words", [2_000, 8_000])
def test_the_encoder_is_never_given_more_than_it_may_hold(
    ranker: ParadeRanker, seen: list[torch.Size], words: int
) -> None:
    long = text_of(random.Random(3), words)
    tokens = ranker.tokenize(["ba be"], "query"), ranker.tokenize([long], "document")
    score = ranker(*tokens)
    read = len(seen)
    assert bool(score.isfinite())
    torch.autograd.backward(score.sum())
    assert max(rows * width for rows, width in seen) <= parade.TOKENS_AT_ONCE["cpu"]
    assert sum(rows for rows, _ in seen[:read]) == -(-words // ranker.settings.passage)
    assert len(seen) == 2 * read  # each piece is read again on the way back


def test_what_is_kept_for_the_way_back_does_not_grow_with_the_document(ranker: ParadeRanker) -> None:
    """Of each further passage, its tokens and its vectors in the aggregator, and not its layers in the encoder."""

    def kept(words: int) -> int:
        sizes: list[int] = []

        def note(tensor: torch.Tensor) -> torch.Tensor:
            sizes.append(tensor.numel())
            return tensor

        tokens = ranker.tokenize(["ba"], "query"), ranker.tokenize([text_of(random.Random(3), words)], "document")
        with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
            ranker(*tokens)
        return sum(sizes)

    few, many = kept(7 * ranker.settings.passage), kept(70 * ranker.settings.passage)
    assert many < few


def test_a_length_is_what_the_encoder_is_given(ranker: ParadeRanker, seen: list[torch.Size]) -> None:
    for query, document in zip(["ba be", "ba " * 100, "hir", ""], DOCUMENTS, strict=True):
        seen.clear()
        tokens = ranker.tokenize([query], "query"), ranker.tokenize([document], "document")
        ranker(*tokens)
        assert ranker.lengths(tokens[0].lengths, tokens[1].lengths).tolist() == [
            sum(rows * width for rows, width in seen)
        ]


def test_a_long_query_leaves_a_passage_its_room(ranker: ParadeRanker) -> None:
    query = ranker.tokenize(["ba be " * 100], "query")
    assert int(query.lengths[0]) == 64 - 3 - ranker.settings.window
    first, other = ("ba " * ranker.settings.window + last for last in ("cel", "dan"))
    different = ranker.score_texts(["ba be " * 100] * 2, [first, other])
    assert abs(different[0] - different[1]) > 1e-4


def test_an_empty_document_is_one_empty_passage(ranker: ParadeRanker, seen: list[torch.Size]) -> None:
    assert np.isfinite(ranker.score_texts(["ba"], [""])).all()
    assert [rows for rows, _ in seen] == [1]
    assert len(ranker(Tokens.of([[7]]), Tokens.of([[]]))) == 1


def with_ending(words: int, ending: str, seed: int) -> str:
    """A document whose last words alone tell whether it is relevant."""
    return f"{text_of(random.Random(seed), words)} {ending}"


@pytest.mark.parametrize("aggregation", ["transformer", pytest.param("max", marks=pytest.mark.slow)])
def test_a_relevant_passage_at_the_end_of_a_long_document_counts(encoder: Path, aggregation: Any) -> None:
    """It would not if documents were cut to what the encoder reads at once: there the two are the same.

    The training documents have a handful of passages, those to be ranked well over a hundred.
    """
    relevant, other = "tos tir " * 12, "ba be " * 12
    torch.manual_seed(0)
    ranker = ParadeRanker.create(str(encoder), aggregation=aggregation)
    optimizer = torch.optim.AdamW(ranker.parameters(), lr=2e-3)
    for number in range(40):
        texts = [with_ending(60, ending, 10 * number + row) for ending in (relevant, other) for row in range(4)]
        scores = ranker(ranker.tokenize(["tos"] * 8, "query"), ranker.tokenize(texts, "document"))
        loss = torch.relu(1 - scores[:4] + scores[4:]).mean()
        torch.autograd.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
    assert float(loss.detach()) < 0.5
    long = [[with_ending(2_000, ending, seed) for seed in range(900, 906)] for ending in (relevant, other)]
    good, bad = (ranker.score_texts(["tos"] * 6, texts) for texts in long)
    assert min(np.subtract(good, bad)) > 0.02
    reads_the_beginning = create_ranker("cross-encoder", str(encoder), 0)
    good, bad = (reads_the_beginning.score_texts(["tos"] * 6, texts) for texts in long)
    assert good == bad


def test_the_new_layers_hand_on_the_passages() -> None:
    """A fresh one sees the mean of them, so that it learns from its first step on."""
    aggregator = TransformerAggregator(width=32, heads=2, layers=2)
    passages, missing = torch.randn(64, 3, 32), torch.zeros(64, 3, dtype=torch.bool)
    with torch.no_grad():
        row = torch.cat([aggregator.first.expand(64, -1, -1), passages], 1)
        for layer in aggregator.layers:
            row = layer(row)
    assert float(torch.nn.functional.cosine_similarity(row[:, 0], passages.mean(1)).mean()) > 0.9
    assert aggregator(passages, missing).shape == (64,)


def save_family(folder: Path, family: str) -> Path:
    torch.manual_seed(3)
    AutoModel.from_config(FAMILIES[family]).save_pretrained(folder)
    tokenizer = make_tokenizer()
    tokenizer.model_max_length = 512
    tokenizer.model_input_names = ["input_ids", "attention_mask"]
    tokenizer.save_pretrained(folder)
    return folder


@pytest.mark.parametrize("family", FAMILIES)
def test_encoders_of_other_families(family: str, tmp_path: Path) -> None:
    ranker = enliven(create_ranker("parade", str(save_family(tmp_path / "base", family)), 0))
    together = ranker.score_texts(QUERIES, DOCUMENTS)
    alone = [ranker.score_texts([query], [document])[0] for query, document in zip(QUERIES, DOCUMENTS, strict=True)]
    np.testing.assert_allclose(together, alone, rtol=1e-5, atol=1e-5)
    assert np.std(together) > 0.01
    backward(ranker)
    assert all(weight.grad is not None for weight in ranker.parameters())
    ranker.save(tmp_path / "saved")
    assert load_ranker(tmp_path / "saved").score_texts(QUERIES, DOCUMENTS) == together


def test_max_is_kept_with_the_ranker(encoder: Path, tmp_path: Path) -> None:
    ranker = enliven(ParadeRanker.create(str(encoder), aggregation="max"))
    ranker.save(tmp_path / "saved")
    loaded = load_ranker(tmp_path / "saved")
    assert isinstance(loaded, ParadeRanker)
    assert loaded.settings.aggregation == "max"
    assert loaded.score_texts(QUERIES, DOCUMENTS) == ranker.score_texts(QUERIES, DOCUMENTS)
    assert not any("layers" in name for name, _ in loaded.aggregator.named_parameters())


def test_what_is_written(folder: Path) -> None:
    described = json.loads((folder / "ranker.json").read_text())
    assert described["kind"] == "parade"
    assert described["settings"] == {
        "longest": 64, "passage": 16, "overlap": 7, "layers": 2, "aggregation": "transformer"
    }  # fmt: skip
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= {path.name for path in folder.iterdir()}


def test_loading_leaves_the_random_numbers_alone(folder: Path) -> None:
    state = torch.random.get_rng_state()
    load_ranker(folder)
    assert torch.equal(torch.random.get_rng_state(), state)


def refused(folder: Path) -> str:
    with pytest.raises(BadFile) as raised:
        load_ranker(folder)
    line = str(raised.value)
    assert "\n" not in line and len(line) < 500 and str(folder) in line
    return line


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"passage": 0}, "passage is a whole number from 1 to 1,000,000, not 0"),
        ({"passage": "50"}, "passage is a whole number"),
        ({"passage": 50}, "passages of 64 tokens leave no token for a query"),
        ({"overlap": -1}, "overlap is a whole number from 0"),
        ({"layers": True}, "layers is a whole number from 1 to 24, not True"),
        ({"layers": 10**9}, "layers is a whole number from 1 to 24"),
        ({"layers": 3}, "model.safetensors is not what ranker.json describes"),
        ({"aggregation": "mean"}, "aggregation is transformer or max, not 'mean'"),
        ({"aggregation": ["max"]}, "aggregation is transformer or max"),
        ({"aggregation": "max"}, "model.safetensors is not what ranker.json describes"),
        ({"longest": 65}, "longest is 65; the encoder reads 64"),
        ({"longest": 10}, "leave no token for a query"),
        ({"overlap": None}, "overlap is a whole number"),
        ({"colour": 1}, "wrong: 'colour'"),
    ],
    ids=str,
)
def test_settings_that_cannot_be(folder: Path, change: dict[str, Any], expected: str) -> None:
    described = json.loads((folder / "ranker.json").read_text())
    described["settings"].update(change)
    (folder / "ranker.json").write_text(json.dumps(described))
    assert expected in refused(folder)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("{", "not JSON"),
        ("[]", "expected a JSON object with settings"),
        ('{"settings": {}, "format_version": 9}', "format 9"),
        ('{"settings": {}, "format_version": 1, "kind": "parade"}', "wrong: 'aggregation', 'layers'"),
    ],
)
def test_a_broken_description(folder: Path, content: str, expected: str) -> None:
    (folder / "ranker.json").write_text(content)
    assert expected in refused(folder)


def test_a_description_of_another_kind(folder: Path) -> None:
    (folder / "ranker.json").write_text('{"settings": {}, "format_version": 1, "kind": "parrot"}')
    with pytest.raises(UnrankError, match="unknown ranker 'parrot': did you mean 'parade'"):
        load_ranker(folder)


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"model_type": "nothing"}'])
def test_a_broken_config(folder: Path, content: str) -> None:
    (folder / "config.json").write_text(content)
    said = refused(folder)
    assert "cannot be loaded as a" in said or "config.json, line 1: not JSON" in said


def test_a_base_without_a_first_token(tmp_path: Path) -> None:
    """T5 reads `query </s> document </s>`."""
    AutoModel.from_config(
        T5Config(d_model=32, d_kv=16, d_ff=64, num_layers=1, num_heads=2, vocab_size=131)
    ).save_pretrained(tmp_path)
    tokenizer = make_tokenizer()
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="$A [SEP]", pair="$A [SEP] $B [SEP]", special_tokens=[("[SEP]", 3)]
    )
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(BadFile, match="its inputs begin with no token that represents them"):
        create_ranker("parade", str(tmp_path), 0)
