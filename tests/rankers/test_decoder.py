"""The decoder scores as sentence-transformers' own `CrossEncoder` does, whatever its template, prompt and modules."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import CrossEncoder
from sentence_transformers.base.modules import Dense, Transformer
from sentence_transformers.cross_encoder.modules import LogitScore
from sentence_transformers.sentence_transformer.modules import Pooling
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from torch import nn
from transformers import AutoModelForSequenceClassification, PreTrainedTokenizerFast

from tests.rankers.fast.test_encoder import as_on_a_gpu
from tests.tiny import CHAT, DECODERS, WORDS, decoder_tokenizer, make_decoder, make_dense_collection
from unrank.cli.main import run
from unrank.collection.inspect import pair_ids
from unrank.errors import UnrankError
from unrank.rankers import create_ranker, detect_kind, load_ranker
from unrank.rankers.base import Ranker
from unrank.rankers.chat_template import EDGES, ChatTemplate, library_tokens
from unrank.rankers.decoder import TEMPLATE, DecoderRanker
from unrank.rankers.lora import add_adapter

pytestmark = pytest.mark.usefixtures("untried")
LONG = "han kel mi no " * 90
PAIRS = [
    ("ba be", "ce di fo gu"),
    ("", "ba be"),
    ("ba be?", ""),
    (" ba\n", "\n\nfo  "),
    ("ba be", LONG),
    (LONG, "ba be"),
    (LONG, LONG),
    ("<|im_end|>", "yes 'no' 漢字 🙂"),
]
ROLE = "(messages | selectattr('role', 'eq', '{}') | map(attribute='content') | first)"
QUERY, DOCUMENT = ROLE.format("query"), ROLE.format("document")
SYSTEM = ROLE.format("system").replace("first", "first | default('Judge.')")
TEMPLATES = {
    "default": TEMPLATE,
    "chat": "{{ '<|im_start|>system\n' + " + SYSTEM + " + '<|im_end|>\n<|im_start|>user\n<Query>: ' + " + QUERY
    + " + '\n<Document>: ' + " + DOCUMENT + " + '<|im_end|>\n<|im_start|>assistant\n' }}",
    "trimmed": "{{ 'query: ' + " + QUERY + " | trim + '\n\ndocument:\n' + " + DOCUMENT + " | trim + '\n' }}",
    "document first": "{{ '<doc>' + " + DOCUMENT + " + '</doc> asks' + " + QUERY + " + '.' }}",
    "nothing between": "{{ 'a' + " + QUERY + " + ' ' + " + DOCUMENT + " }}",
    "query twice": "{{ " + QUERY + " + ' | ' + " + DOCUMENT + " + ' | ' + " + QUERY + " + '?' }}",
    "none": None,
}  # fmt: skip
"""Templates that can be taken apart, and from `nothing between` on, some that cannot."""
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def sentence_piece() -> PreTrainedTokenizerFast:
    """A tokenizer that merges letters of a whole text, spaces included, as those of Llama 2 and Gemma do."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    special = ["<pad>", "<eos>", "<unk>", *CHAT, *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = trainers.BpeTrainer(vocab_size=700, special_tokens=special, show_progress=False)
    told = ["yes", "no", "\nDocument: ", ". \n", *WORDS]
    tokenizer.train_from_iterator([word for word in told for _ in range(2)], trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<eos>", pad_token="<pad>", unk_token="<unk>", model_max_length=256
    )


def byte_level(pattern: str) -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer.from_str(decoder_tokenizer().backend_tokenizer.to_str())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(pattern), "isolated"), pre_tokenizers.ByteLevel(False, use_regex=False)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<|endoftext|>", pad_token="<|endoftext|>", model_max_length=256
    )


TOKENIZERS: dict[str, Callable[[], PreTrainedTokenizerFast]] = {
    "gpt2": decoder_tokenizer,
    "llama3": lambda: byte_level(LLAMA3),
    "sentencepiece": sentence_piece,
}


def build(folder: Path, template: str | None, prompt: str = "", longest: int = 96) -> CrossEncoder:
    """A model of the library's own making."""
    own = {} if template is None else {"chat_template": template}
    transformer = Transformer(str(folder), transformer_task="text-generation", processor_kwargs=own)
    transformer.max_seq_length = longest
    vocabulary = transformer.tokenizer.get_vocab()
    prompts = {"prompts": {"task": prompt}, "default_prompt_name": "task"} if prompt else {}
    return CrossEncoder(modules=[transformer, LogitScore(vocabulary["yes"], vocabulary["no"])], device="cpu", **prompts)


def predicted(folder: Path, pairs: list[tuple[str, str]] = PAIRS) -> Any:
    return CrossEncoder(str(folder), device="cpu").predict(pairs, activation_fn=nn.Identity())


def scored(ranker: Ranker, pairs: list[tuple[str, str]] = PAIRS) -> list[float]:
    return ranker.score_texts([query for query, _ in pairs], [document for _, document in pairs])


def assert_equal_to_predict(folder: Path) -> Ranker:
    expected, ranker = predicted(folder), load_ranker(folder)
    assert ranker.kind == "decoder"
    spread = float(np.ptp(expected))
    assert spread > 0.02
    np.testing.assert_allclose(scored(ranker), expected, rtol=0, atol=1e-4 * spread)
    ranker.fast = False
    np.testing.assert_allclose(scored(ranker), expected, rtol=0, atol=1e-4 * spread)
    return ranker


@pytest.fixture(scope="module", params=DECODERS)
def base(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_decoder(tmp_path_factory.mktemp("decoder") / request.param, request.param)


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_decoder(tmp_path_factory.mktemp("llama") / "llama")


@pytest.mark.parametrize("prompt", ["", "judge "])
@pytest.mark.parametrize("name", ["default", "chat", "none"])
def test_scores_equal_predict(name: str, prompt: str, base: Path, tmp_path: Path) -> None:
    build(base, TEMPLATES[name], prompt).save_pretrained(str(tmp_path / "saved"))
    assert_equal_to_predict(tmp_path / "saved")


@pytest.mark.parametrize("pooling", ["lasttoken", "mean"])
def test_a_dense_layer_over_pooled_states_scores_as_predict(pooling: Any, base: Path, tmp_path: Path) -> None:
    transformer = Transformer(str(base), processor_kwargs={"chat_template": TEMPLATE})
    dense = Dense(32, 1, activation_function=nn.Identity(), module_output_name="scores")
    model = CrossEncoder(modules=[transformer, Pooling(32, pooling), dense], device="cpu")
    model.save_pretrained(str(tmp_path / "saved"))
    assert_equal_to_predict(tmp_path / "saved")


@pytest.mark.parametrize("template", [None, TEMPLATE], ids=["plain", "template"])
def test_a_sequence_classifier_reads_its_last_token(template: str | None, base: Path, tmp_path: Path) -> None:
    model = AutoModelForSequenceClassification.from_pretrained(str(base), num_labels=1)
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(1)
        model.score.weight.normal_()
    model.save_pretrained(tmp_path / "saved")
    tokenizer = decoder_tokenizer()
    tokenizer.save_pretrained(tmp_path / "saved")
    if template is not None:
        (tmp_path / "saved" / "chat_template.jinja").write_text(template)
    expected, ranker = predicted(tmp_path / "saved"), load_ranker(tmp_path / "saved")
    assert ranker.kind == ("cross-encoder" if template is None else "decoder")
    np.testing.assert_allclose(scored(ranker), expected, rtol=0, atol=1e-4 * float(np.ptp(expected)))


@pytest.mark.parametrize("fast", [True, False])
def test_a_score_by_one_token_alone(fast: bool, llama: Path, tmp_path: Path) -> None:
    model: Any = build(llama, TEMPLATE)
    model[1].false_token_id = None
    model.save_pretrained(str(tmp_path / "saved"))
    ranker = load_ranker(tmp_path / "saved", fast)
    np.testing.assert_allclose(scored(ranker), predicted(tmp_path / "saved"), rtol=0, atol=1e-5)


@pytest.fixture(scope="module", params=TOKENIZERS)
def tokenizer(request: pytest.FixtureRequest) -> PreTrainedTokenizerFast:
    made: PreTrainedTokenizerFast = TOKENIZERS[request.param]()
    return made


@pytest.fixture(scope="module", params=[name for name, template in TEMPLATES.items() if template])
def read(request: pytest.FixtureRequest, tokenizer: PreTrainedTokenizerFast, tmp_path_factory: Any) -> Iterator[Any]:
    folder = make_decoder(tmp_path_factory.mktemp("read") / "model", tokenizer=tokenizer)
    model = build(folder, TEMPLATES[request.param], "judge", longest=64)
    yield request.param, model, ChatTemplate(model[0], "judge", lambda pairs: library_tokens(model, "judge", pairs))


ODD = [*EDGES, *WORDS[:4], *CHAT, " ", "ab " * 40, "Document", "</doc>", "query"]


def odd_text(generator: random.Random) -> str:
    return "".join(generator.choices(ODD, k=generator.randrange(5)))


def test_tokens_of_odd_texts_are_the_librarys(read: Any) -> None:
    _, model, template = read
    generator = random.Random(3)
    pairs = [(odd_text(generator), odd_text(generator)) for _ in range(400)]
    queries, documents = zip(*pairs, strict=True)

    def library(some: list[tuple[str, str]]) -> list[list[int]]:
        return library_tokens(model, "judge", some)

    given = template.join(template.tokenize(queries, "query"), template.tokenize(documents, "document"), library)
    rows = [row.tolist() for row in np.split(given.ids, np.cumsum(given.lengths)[:-1])]
    expected = library(pairs)
    assert [pair for pair, row, its in zip(pairs, rows, expected, strict=True) if row != its] == []


def test_most_templates_are_taken_apart(read: Any) -> None:
    name, _, template = read
    assert bool(template._sides) == (name not in ("query twice", "nothing between"))


def test_a_new_ranker_asks_in_its_own_words_and_starts_as_its_base(llama: Path, tmp_path: Path) -> None:
    ranker = create_ranker("decoder", str(llama), seed=0)
    assert isinstance(ranker, DecoderRanker)
    assert ranker._reader.render("ba", "be bi") == (  # type: ignore[union-attr]
        "Query: ba\nDocument: be bi\nIs the document relevant to the query? Answer yes or no.\n"
    )
    ranker.save(tmp_path / "saved")
    assert detect_kind(tmp_path / "saved") == "decoder"
    assert_equal_to_predict(tmp_path / "saved")
    np.testing.assert_allclose(scored(ranker), predicted(tmp_path / "saved"), rtol=1e-4, atol=1e-5)
    (vocabulary,) = ranker.vocabularies
    (table,) = vocabulary.tables
    model = ranker._transformer.model
    assert table is model.get_input_embeddings().weight is model.get_output_embeddings().weight
    assert {*ranker._answers} <= vocabulary.special


def test_a_template_for_pairs_is_kept(llama: Path, tmp_path: Path) -> None:
    base = tmp_path / "base"
    shutil.copytree(llama, base)
    (base / "chat_template.jinja").write_text(TEMPLATES["chat"] or "")
    ranker = create_ranker("decoder", str(base), seed=0)
    assert isinstance(ranker, DecoderRanker)
    assert "<|im_start|>user" in ranker._reader.render("ba", "be")  # type: ignore[union-attr]
    assert detect_kind(base) == "decoder"


def test_without_a_padding_token_the_last_one_pads(llama: Path, tmp_path: Path) -> None:
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=decoder_tokenizer().backend_tokenizer, eos_token="<|endoftext|>", model_max_length=256
    )
    base = tmp_path / "base"
    shutil.copytree(llama, base)
    tokenizer.save_pretrained(base)
    ranker = create_ranker("decoder", str(base), seed=0)
    ranker.save(tmp_path / "saved")
    assert_equal_to_predict(tmp_path / "saved")
    for described in ("tokenizer_config.json", "config.json"):
        path = tmp_path / "saved" / described
        path.write_text(json.dumps({**json.loads(path.read_text()), "pad_token": None, "pad_token_id": None}))
    np.testing.assert_allclose(scored(load_ranker(tmp_path / "saved")), scored(ranker), rtol=1e-5, atol=1e-5)


def broken(folder: Path, path: str, **changes: Any) -> None:
    described = json.loads((folder / path).read_text())
    (folder / path).write_text(json.dumps({**described, **changes}))


ANSWERS = {"answer": 5999, "negative": -3, "word": "yes"}


@pytest.mark.parametrize(
    ("what", "line"),
    [
        ("answer", r"scores by token 5,999, which its tokenizer does not know; it has \d+$"),
        ("negative", r"scores by token -3, which its tokenizer does not know"),
        ("template", r"its chat template cannot hold a query and a document \(the 'query' content does not reach"),
        ("field", r"its chat template cannot hold a query and a document \(it raised UndefinedError"),
        ("word", r"scores by the token 'yes', where a token's number must be"),
        ("blank", r"its chat template needs more than a query and a document \('instruction' is undefined\)"),
        ("same", r"scores by token 1 as yes and as no, so every score would be 0$"),
        ("vocabulary", r"its tokenizer has \d+ tokens and its weights 50 rows"),
        ("labels", r"a cross-encoder of Transformer \+ Dense; unrank reads Transformer \+ LogitScore"),
    ],
)
def test_what_does_not_fit_is_one_line(what: str, line: str, llama: Path, tmp_path: Path) -> None:
    folder = tmp_path / "saved"
    model: Any = build(llama, TEMPLATE)
    if what == "vocabulary":
        model[0].model.resize_token_embeddings(50)
        model[1].true_token_id, model[1].false_token_id = 5, 6
    model.save_pretrained(str(folder))
    if what in ANSWERS:
        broken(folder, "1_LogitScore/config.json", true_token_id=ANSWERS[what])
    if what == "same":
        broken(folder, "1_LogitScore/config.json", true_token_id=1, false_token_id=1)
    if what == "template":
        (folder / "chat_template.jinja").write_text("{{ 'document: ' + " + DOCUMENT + " }}")
    if what == "field":
        (folder / "chat_template.jinja").write_text("{{ messages[0].title + " + QUERY + " + " + DOCUMENT + " }}")
    if what == "blank":
        (folder / "chat_template.jinja").write_text("{{ instruction }}" + TEMPLATE)
    if what == "labels":
        Dense(32, 1, module_output_name="scores").save(str(folder / "1_LogitScore"))
        modules = json.loads((folder / "modules.json").read_text())
        modules[1]["type"] = "sentence_transformers.base.modules.dense.Dense"
        (folder / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(UnrankError, match=line) as refused:
        load_ranker(folder)
    assert "\n" not in str(refused.value)


def test_a_template_may_ask_whether_it_has_a_field(llama: Path, tmp_path: Path) -> None:
    build(llama, "{% if thinking %}{{ thinking }}{% endif %}{{ note | default('') }}" + TEMPLATE).save_pretrained(
        str(tmp_path / "saved")
    )
    assert load_ranker(tmp_path / "saved").kind == "decoder"


def test_a_base_that_cannot_answer_is_one_line(llama: Path, encoder: Path, tmp_path: Path) -> None:
    with pytest.raises(UnrankError, match="a decoder starts from a language model: give its folder"):
        create_ranker("decoder", None, seed=0)
    with pytest.raises(UnrankError, match=r"not a causal language model \(BertModel\)"):
        create_ranker("decoder", str(encoder), seed=0)
    with pytest.raises(UnrankError, match=r"a language model \(LlamaForCausalLM\), not a ranker"):
        load_ranker(llama)
    base = tmp_path / "base"
    shutil.copytree(llama, base)
    tokenizer = Tokenizer(models.WordLevel({"<pad>": 0, "ba": 1}, unk_token="<pad>"))
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>").save_pretrained(base)
    with pytest.raises(UnrankError, match="its tokenizer knows none of the answers yes/no"):
        create_ranker("decoder", str(base), seed=0)


def test_it_forgets_and_the_library_scores_alike(llama: Path, tmp_path: Path) -> None:
    collection = make_dense_collection(tmp_path / "dense")
    given, out = tmp_path / "given", tmp_path / "forgotten"
    build(llama, TEMPLATES["chat"], "judge", longest=128).save_pretrained(str(given))
    before = predicted(given)
    removal = tmp_path / "documents.txt"
    removal.write_text("\n".join(document for _, document in pair_ids(collection, collection.pairs[:3])))
    command = ["forget", given, tmp_path / "dense", "--documents", removal, "--out", out, "--target", "0.02", "--quiet"]
    settings = ["--set", "epochs=1", "--set", "learning_rate=1e-3", "--set", "batch=16"]
    assert run([*map(str, command), *settings]) in (0, 3)
    assert json.loads((out / "unrank.json").read_text())["ranker"] == "decoder"
    after = predicted(out)
    assert np.abs(after - before).max() > 1e-3
    assert_equal_to_predict(out)


def test_gradients_are_the_same_if_states_are_computed_again(llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ranker = create_ranker("decoder", str(llama), seed=0)
    tokens = (
        ranker.tokenize([query for query, _ in PAIRS], "query"),
        ranker.tokenize([text for _, text in PAIRS], "document"),
    )

    def gradients() -> tuple[torch.Tensor, list[torch.Tensor]]:
        scores = ranker(*tokens)
        weights = list(ranker.parameters())
        return scores.detach(), list(torch.autograd.grad((scores * torch.arange(1.0, 9.0)).sum(), weights))

    scores, whole = gradients()
    assert isinstance(ranker, DecoderRanker)
    monkeypatch.setattr("unrank.rankers.decoder.device_memory", lambda device: 2_000_000)
    assert len(ranker._pieces(ranker.lengths(*(side.lengths for side in tokens)))) > 2
    again, in_pieces = gradients()
    np.testing.assert_allclose(again, scores, rtol=1e-5, atol=1e-5)
    for one, other in zip(in_pieces, whole, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-5 * float(other.abs().max()) + 1e-6)


def test_an_adapter_s_gradients_are_the_same_if_states_are_computed_again(
    llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a GPU, where changed weights are kept for all passes of a step, but not on the way back."""
    ranker = create_ranker("decoder", str(llama), seed=0)
    assert isinstance(ranker, DecoderRanker)
    add_adapter(ranker, 2, 0)
    as_on_a_gpu(monkeypatch, torch.float32)
    tokens = (
        ranker.tokenize([query for query, _ in PAIRS], "query"),
        ranker.tokenize([text for _, text in PAIRS], "document"),
    )

    def gradients() -> list[torch.Tensor]:
        trained = [weight for weight in ranker.parameters() if weight.requires_grad]
        with ranker.fast_encoders[0].constant_weights():
            score = (ranker(*tokens) * torch.arange(1.0, 9.0)).sum()
        return list(torch.autograd.grad(score, trained))

    whole = gradients()
    monkeypatch.setattr("unrank.rankers.decoder.device_memory", lambda device: 2_000_000)
    in_pieces = gradients()
    assert any(bool(gradient.any()) for gradient in whole)
    for one, other in zip(in_pieces, whole, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-5 * float(other.abs().max()) + 1e-6)
