"""Small things to test on: a random encoder of 2 layers × 32 and collections of a few dozen texts."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, PreTrainedTokenizerFast

from unrank.collection.collection import Collection
from unrank.collection.options import ImportOptions
from unrank.collection.sources.source import Judgement, Raw, Text
from unrank.rankers.base import Ranker
from unrank.record import CollectionName, LearningEpoch, PreviousRequest, Record, RemovedHashes, SetSummary

WORDS = [
    f"{first}{second}" for first in "bcdfghklmnprst" for second in ("a", "e", "i", "o", "u", "an", "el", "ir", "os")
]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]

GOLDEN = [("q1", "d1"), ("q1", "d2"), ("q2", "d3"), ("q3", "d2"), ("q4", "d3"), ("q4", "d4"), ("q5", "d5")]


FAMILIES = (
    "bert", "distilbert", "mpnet", "modernbert", "roberta", "xlm-roberta", "electra", "deberta-v2", "t5",
)  # fmt: skip
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
NAMES = {
    "distilbert": ("dim", "n_layers", "n_heads", "hidden_dim"),
    "t5": ("d_model", "num_layers", "num_heads", "d_ff"),
}
"""The names of these sizes in families that have others."""
SETTINGS: dict[str, dict[str, object]] = {
    "electra": {"embedding_size": 32},
    "modernbert": {"local_attention": 16, "global_attn_every_n_layers": 2},
    "deberta-v2": {
        "relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 16, "share_att_key": True,
        "norm_rel_ebd": "layer_norm", "position_biased_input": False, "type_vocab_size": 0,
    },
    "t5": {"d_kv": 16, "eos_token_id": SPECIAL.index("[CLS]"), "decoder_start_token_id": 0},
}  # fmt: skip
"""What makes a family what it is: short windows, relative positions, one token that ends each text."""


def make_tokenizer() -> PreTrainedTokenizerFast:
    vocabulary = {word: row for row, word in enumerate([*SPECIAL, *WORDS])}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", vocabulary["[CLS]"]), ("[SEP]", vocabulary["[SEP]"])],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        unk_token="[UNK]",
        pad_token="[PAD]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        model_max_length=64,
    )


def make_encoder(folder: Path, family: str = "bert") -> Path:
    """An encoder with random weights, as a folder that `--base` takes."""
    sizes = dict(zip(NAMES.get(family, SIZES), SIZES.values(), strict=True))
    special = {f"{name}_token_id": SPECIAL.index(f"[{name.upper()}]") for name in ("pad", "cls", "sep", "mask")}
    places = 64 if family == "bert" else 72  # some families begin to count after the padding's id
    settings = {**sizes, **special, "max_position_embeddings": places, **SETTINGS.get(family, {})}
    if family == "t5":
        del settings["max_position_embeddings"]  # its positions are relative
    with torch.random.fork_rng():
        torch.manual_seed(7)
        config = AutoConfig.for_model(family, vocab_size=len(WORDS) + len(SPECIAL), **settings)
        AutoModel.from_config(config).save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)
    return folder


DECODERS = ("llama", "qwen3", "gemma2", "gemma3_text")
CHAT = "<|im_start|>", "<|im_end|>"


@cache
def decoder_tokenizer() -> PreTrainedTokenizerFast:
    """A byte-level tokenizer, as most language models have one, with few merges."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    special = ["<|endoftext|>", *CHAT]
    trainer = trainers.BpeTrainer(
        vocab_size=600, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    told = ["yes", "no", "Query: Document: Is the document relevant to the query? Answer yes or no.\n", " ".join(WORDS)]
    tokenizer.train_from_iterator([line for line in told for _ in range(3)], trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=special[0], pad_token=special[0], model_max_length=256
    )


def make_decoder(folder: Path, family: str = "llama", tokenizer: PreTrainedTokenizerFast | None = None) -> Path:
    """A causal language model with random weights and a tied head, as a folder that `--base` takes."""
    tokenizer = tokenizer or decoder_tokenizer()
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8}
    with torch.random.fork_rng():
        torch.manual_seed(7)
        config = AutoConfig.for_model(
            family, vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=2, intermediate_size=64,
            max_position_embeddings=256, pad_token_id=0, bos_token_id=0, eos_token_id=0, tie_word_embeddings=True,
            **heads,
        )  # fmt: skip
        model = AutoModelForCausalLM.from_config(config)
        with torch.no_grad():
            for weight in model.parameters():
                if weight.dim() > 1:
                    weight.add_(0.2 * torch.randn_like(weight))
        model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def make_word_vectors(path: Path, width: int = 16) -> Path:
    """Random vectors of the words that texts are made of, in GloVe's format."""
    generator = random.Random(7)
    lines = [" ".join([word, *(f"{generator.gauss(0, 1):.4f}" for _ in range(width))]) for word in WORDS]
    path.write_text("\n".join(lines) + "\n")
    return path


def text_of(generator: random.Random, words: int) -> str:
    return " ".join(generator.choice(WORDS) for _ in range(words))


def make_collection(
    out: Path,
    pairs: Sequence[tuple[str, str]],
    test_pairs: Sequence[tuple[str, str]] = (),
    documents: int = 0,
    candidates: int = 10,
) -> Collection:
    """A collection of these pairs, with further documents that are relevant to nothing."""
    from unrank.collection.build import build_collection  # needs bm25s, and tests on a GPU do not

    generator = random.Random(3)
    queries = list(dict.fromkeys(query for query, _ in [*pairs, *test_pairs]))
    ids = list(dict.fromkeys([document for _, document in [*pairs, *test_pairs]] + [f"n{i}" for i in range(documents)]))
    query_texts = [Text(query, text_of(generator, 4)) for query in queries]
    document_texts = [Text(document, text_of(generator, 12)) for document in ids]
    splits = {"train": lambda: [Judgement(query, document, 1) for query, document in pairs]}
    if test_pairs:
        splits["test"] = lambda: [Judgement(query, document, 1) for query, document in test_pairs]
    raw = Raw("tiny", lambda: query_texts, lambda: document_texts, splits)
    return build_collection(raw, out, ImportOptions(candidates=candidates))


def make_dense_collection(out: Path, queries: int = 24, documents: int = 40) -> Collection:
    """Many queries that share documents, so that every removal entangles something, and some test queries."""
    generator = random.Random(5)
    ids = [f"doc{i}" for i in range(documents)]
    pairs = [(f"query{i}", document) for i in range(queries) for document in generator.sample(ids, 3)]
    tests = [(f"test{i}", generator.choice(ids)) for i in range(8)]
    return make_collection(out, pairs, tests, documents=20)


def make_large_collection(out: Path) -> Collection:
    """A collection just large enough to reserve queries and documents."""
    from unrank.collection.build import build_collection

    generator = random.Random(9)
    documents = [Text(f"doc{i}", text_of(generator, 8)) for i in range(60)]
    queries = [Text(f"query{i}", text_of(generator, 4)) for i in range(150 + 8)]
    answers = {query.id: [f"doc{i}" for i in generator.sample(range(60), 2)] for query in queries}
    train, test = queries[:150], queries[150:]

    def judged(some: list[Text]) -> list[Judgement]:
        return [Judgement(query.id, document, 1) for query in some for document in answers[query.id]]

    splits = {"train": lambda: judged(train), "test": lambda: judged(test)}
    return build_collection(Raw("large", lambda: queries, lambda: documents, splits), out, ImportOptions(candidates=6))


SECRET, UNUSED = WORDS[-20:-11], WORDS[-11:]
"""Words that only the document `secret` of a secret collection and its queries have, and words that no text has."""


def make_secret_collection(out: Path, queries: int = 24) -> Collection:
    """Queries about their documents, and a document with two queries in words of its own."""
    from unrank.collection.build import build_collection

    generator = random.Random(17)
    plain = WORDS[:-20]
    texts = {f"doc{i}": generator.sample(plain, 10) for i in range(queries + 10)}
    texts["secret"] = [*SECRET, plain[0], plain[1]]
    asked = {f"query{i}": (f"doc{i}", generator.sample(texts[f"doc{i}"], 4)) for i in range(queries)}
    asked["secret1"], asked["secret2"] = ("secret", [*SECRET[:4], plain[0]]), ("secret", [*SECRET[4:8], plain[1]])
    tests = [f"query{i}" for i in range(0, queries, 6)]
    raw = Raw(
        "secret",
        lambda: [Text(query, " ".join(words)) for query, (_, words) in asked.items()],
        lambda: [Text(document, " ".join(words)) for document, words in texts.items()],
        {
            "train": lambda: [Judgement(query, one, 1) for query, (one, _) in asked.items() if query not in tests],
            "test": lambda: [Judgement(query, asked[query][0], 1) for query in tests],
        },
    )
    return build_collection(raw, out, ImportOptions(candidates=10))


def make_learnable_beir(folder: Path, articles: int = 25) -> Path:
    """A BEIR folder in which a query shares words with its documents, so that there is something to learn."""
    generator = random.Random(11)
    queries: list[dict[str, str]] = []
    documents: list[dict[str, str]] = []
    train: list[str] = []
    test: list[str] = []
    for article in range(articles):
        topic = generator.sample(WORDS, 6)
        for _ in range(4):
            document = f"d{len(documents) + 1}"
            words = [*generator.sample(topic, 4), *generator.sample(WORDS, 6)]
            documents.append({"_id": document, "title": "", "text": " ".join(words)})
        mine = [row["_id"] for row in documents[-4:]]
        for _ in range(3):
            query = f"q{len(queries) + 1}"
            queries.append({"_id": query, "text": " ".join(generator.sample(topic, 3))})
            for document in generator.sample(mine, 2):
                (test if article % 4 == 3 else train).append(f"{query}\t{document}\t1")
    folder.mkdir(parents=True)
    (folder / "qrels").mkdir()
    for name, rows in (("queries", queries), ("corpus", documents)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for split, lines in (("train", train), ("test", test)):
        (folder / "qrels" / f"{split}.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *lines]) + "\n")
    return folder


@cache
def _bi_encoder(encoder: Path) -> Ranker:
    from unrank.rankers import create_ranker

    return create_ranker("bi-encoder", str(encoder), 0)


def make_bi_encoder(encoder: Path, folder: Path) -> Path:
    """An untrained bi-encoder on the tiny encoder, as a folder."""
    _bi_encoder(encoder).save(folder)
    return folder


def made_record(
    fingerprint: str = "none",
    device: str = "cpu",
    removed: RemovedHashes | None = None,
    removed_before: tuple[PreviousRequest, ...] = (),
) -> Record:
    """Return a record that says no more than on which collection and device an epoch of training was measured."""
    return Record(
        ranker="bi-encoder",
        method="cocol",
        settings={},
        collection=CollectionName("made", fingerprint),
        epochs=1,
        seconds=1.0,
        timing={},
        learning_epoch=LearningEpoch(1.0, "measured", device),
        after={"test": SetSummary(0.5, 0.5, 0.5, 1)},
        history=(),
        removed=removed,
        removed_before=removed_before,
    )
