"""Families of models, and how far unrank's scores are from those of sentence-transformers.

`python -m tests.families` measures every family on a tiny random model and writes the tables of
docs/reference/families.md. The tests use the same functions.
"""

from __future__ import annotations

import copy
import random
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from peft import LoraConfig
from sentence_transformers import CrossEncoder, MultiVectorEncoder, SentenceTransformer, SparseEncoder
from sentence_transformers.base.modules import Dense, Router, Transformer
from sentence_transformers.cross_encoder.modules import LogitScore
from sentence_transformers.sentence_transformer.modules import Pooling, StaticEmbedding
from sentence_transformers.sparse_encoder.modules import SparseStaticEmbedding, SpladePooling
from transformers import AutoModelForSequenceClassification

from tests.pages import ROOT
from tests.rankers.conftest import enliven
from tests.tiny import (
    DECODERS,
    FAMILIES,
    SPECIAL,
    WORDS,
    decoder_tokenizer,
    make_decoder,
    make_dense_collection,
    make_encoder,
    make_tokenizer,
    text_of,
)
from unrank.collection.collection import Collection
from unrank.collection.removal import Removal
from unrank.engine.runtime import Silence
from unrank.errors import UnrankError
from unrank.forgetting.forget import forget
from unrank.methods.cocol import Cocol
from unrank.rankers import create_ranker, load_ranker
from unrank.rankers.base import Ranker
from unrank.rankers.decoder import TEMPLATE
from unrank.rankers.fast.packing import Family, packing_family

QUERIES = ["ba be", "", "xyzzy", "cel dan fos", "ba cel dir fos gu " * 40]
DOCUMENTS = ["ce di fo gu", "ba be", "", "ba cel dir fos gu " * 40, "han kel " * 25]
KINDS = ("bi-encoder", "cross-encoder", "colbert", "splade")
NO_HEAD = {("t5", "splade")}
"""Families without the head that a kind needs."""
NO_ADAPTER = {"t5": "not in the library"}
"""Families whose encoder the library cannot load with an adapter on it: it takes the decoder too."""
NAMED = {
    "bert": "BERT", "distilbert": "DistilBERT", "mpnet": "MPNet", "modernbert": "ModernBERT", "roberta": "RoBERTa",
    "xlm-roberta": "XLM-RoBERTa", "electra": "ELECTRA", "deberta-v2": "DeBERTa-v3", "t5": "T5 (encoder)",
}  # fmt: skip
PROMPTS = {"query": "hir ", "document": "kos lan "}
CLASSES: dict[str, Any] = {
    "bi-encoder": SentenceTransformer, "cross-encoder": CrossEncoder, "colbert": MultiVectorEncoder,
    "splade": SparseEncoder, "decoder": CrossEncoder,
}  # fmt: skip
LARGEST = 1e-4
"""The largest difference of two scores, as a share of the range of the list."""
MOST_TIMES = 1.5
"""In bfloat16, scores here are at most this many times as far from those in float32 as the library's own are."""
PAIRS = 64
"""The number of pairs that are scored in bfloat16."""
PAGE = ROOT / "docs" / "reference" / "families.md"


def library_scores(
    kind: str,
    folder: Path,
    queries: Sequence[str] = QUERIES,
    documents: Sequence[str] = DOCUMENTS,
    dtype: torch.dtype = torch.float32,
) -> Any:
    """Return the scores of pairs as the class that the folder belongs to gives them."""
    model = CLASSES[kind](str(folder), device="cpu", model_kwargs={"dtype": dtype})
    if kind in ("cross-encoder", "decoder"):
        pairs = list(zip(queries, documents, strict=True))
        return model.predict(pairs, activation_fn=torch.nn.Identity(), convert_to_tensor=True).float().numpy()
    dense = {"convert_to_sparse_tensor": False} if kind == "splade" else {}
    sides = model.encode_query(list(queries), **dense), model.encode_document(list(documents), **dense)
    return model.similarity_pairwise(*sides).float().numpy()


def difference(folder: Path) -> float:
    """Return the largest difference of a folder's scores here and in its library, as a share of their range."""
    ranker = load_ranker(folder)
    wanted = library_scores(ranker.kind, folder)
    assert np.ptp(wanted) > 1e-3, "all pairs have the same score"
    return float(np.abs(np.subtract(ranker.score_texts(QUERIES, DOCUMENTS), wanted)).max() / np.ptp(wanted))


def times_as_far(folder: Path) -> float:
    """Return how far a folder's scores in bfloat16 are from those in float32: here, over the library's own distance.

    Distances are roots of mean squares. Here a CPU takes the passes of a GPU, without the kernels.
    """
    generator = random.Random(0)
    queries, documents = ([text_of(generator, generator.randint(1, most)) for _ in range(PAIRS)] for most in (8, 40))
    ranker = load_ranker(folder)
    exact, theirs = (
        library_scores(ranker.kind, folder, queries, documents, dtype) for dtype in (torch.float32, torch.bfloat16)
    )
    with (
        patch("unrank.rankers.fast.encoder.on_gpu", lambda encoder: True),
        patch("unrank.rankers.mlm_head._lower", lambda tensor: tensor.to(torch.bfloat16)),
    ):
        ours = ranker.score_texts(queries, documents)
    distances = [float(np.sqrt(np.mean(np.square(scores - exact)))) for scores in (np.array(ours), theirs)]
    assert distances[0] > 0, "nothing was computed in bfloat16"
    return distances[0] / distances[1]


def with_adapter(folder: Path, out: Path) -> Path:
    """Write the model of a folder as its library does with an adapter on it, which changes the scores."""
    kind = load_ranker(folder).kind
    model = CLASSES[kind](str(folder), device="cpu")
    model.add_adapter(LoraConfig(r=4, lora_alpha=16, target_modules="all-linear"))
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "lora_" in name:
                weight.copy_(0.1 * torch.randn(weight.shape, generator=generator))
    model.save_pretrained(str(out), create_model_card=False)
    without, adapted = (library_scores(kind, place) for place in (folder, out))
    assert np.abs(without - adapted).max() > 1e-3, "the adapter changes nothing"
    return out


def make_ranker(kind: str, base: Path, out: Path, prompted: bool = False) -> Path:
    """Write a ranker on an encoder, with weights large enough that scores differ; with prompts if asked."""
    ranker: Any = enliven(create_ranker(kind, str(base), seed=0))
    if prompted:
        ranker.model.prompts = dict(PROMPTS)
        ranker.model.default_prompt_name = "query" if kind == "cross-encoder" else None
    ranker.save(out)
    return out


def forget_briefly(folder: Path, collection: Collection, out: Path) -> Path:
    """Write the ranker of a folder after one epoch of forgetting a document."""
    ranker = load_ranker(folder)
    before = copy.deepcopy(ranker.state_dict())
    method = Cocol(epochs=1, learning_rate=1e-3, batch=16)
    done = forget(ranker, collection, Removal(documents=["doc1"]), method=method, target=0.02, progress=Silence())
    done.save(out)
    moved = done.ranker.state_dict()
    assert any(not torch.equal(weight, moved[name]) for name, weight in before.items()), "nothing was learned"
    return out


def static_embedding(_: Path, out: Path) -> Path:
    """A bi-encoder without a transformer: the mean of static vectors."""
    vectors = torch.randn(len(SPECIAL) + len(WORDS), 16, generator=torch.Generator().manual_seed(0))
    module = StaticEmbedding(make_tokenizer(), embedding_weights=vectors)
    SentenceTransformer(modules=[module], prompts=PROMPTS, device="cpu").save_pretrained(
        str(out), create_model_card=False
    )
    return out


def truncated(base: Path, out: Path) -> Path:
    """A bi-encoder whose vectors are cut to their first numbers, as Matryoshka training allows."""
    folder = make_ranker("bi-encoder", base, out / "whole")
    model = SentenceTransformer(str(folder), device="cpu", truncate_dim=12)
    model.save_pretrained(str(out / "cut"), create_model_card=False)
    return out / "cut"


def two_encoders(base: Path, out: Path) -> Path:
    """A bi-encoder with an encoder for each side, by a router."""
    sides = [[Transformer(str(base)), Pooling(32, mode)] for mode in ("mean", "cls")]
    router = Router.for_query_document(*sides)
    model = SentenceTransformer(modules=[router], prompts=PROMPTS, similarity_fn_name="dot", device="cpu")
    ranker_weights = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.2 * torch.randn(weight.shape, generator=ranker_weights))
    model.save_pretrained(str(out), create_model_card=False)
    return out


def static_queries(base: Path, out: Path) -> Path:
    """A splade whose queries have static weights, by a router."""
    folder = make_ranker("splade", base, out / "splade")
    transformer = Transformer(str(folder), transformer_task="fill-mask")
    static = SparseStaticEmbedding(transformer.tokenizer, torch.linspace(0.1, 2, len(SPECIAL) + len(WORDS)))
    router = Router.for_query_document([static], [transformer, SpladePooling("max")])
    model = SparseEncoder(modules=[router], similarity_fn_name="dot", device="cpu")
    model.save_pretrained(str(out / "routed"), create_model_card=False)
    return out / "routed"


def decoder(base: Path, out: Path, template: str | None, prompt: str, pooled: bool = False) -> Path:
    """A `CrossEncoder` over a language model that answers yes or no, or with a dense layer over its last token."""
    given = {} if template is None else {"processor_kwargs": {"chat_template": template}}
    transformer = Transformer(
        str(base), transformer_task="feature-extraction" if pooled else "text-generation", max_seq_length=96, **given
    )
    words = transformer.tokenizer.get_vocab()
    head: list[Any] = [LogitScore(words["yes"], words["no"])]
    if pooled:
        head = [Pooling(32, "lasttoken"), Dense(32, 1, activation_function=None, module_output_name="scores")]
    prompts: dict[str, Any] = {"prompts": {"task": prompt}, "default_prompt_name": "task"} if prompt else {}
    model = CrossEncoder(modules=[transformer, *head], device="cpu", **prompts)
    model.save_pretrained(str(out), create_model_card=False)
    return out


def classifier(base: Path, out: Path, template: str | None) -> Path:
    """A sequence classifier of a decoder family."""
    model = AutoModelForSequenceClassification.from_pretrained(str(base), num_labels=1)
    with torch.no_grad():
        model.score.weight.copy_(torch.linspace(-1, 1, 32))
    model.save_pretrained(out)
    decoder_tokenizer().save_pretrained(out)
    if template is not None:
        (out / "chat_template.jinja").write_text(template)
    return out


def decoder_rows(within: Path, collection: Collection) -> list[list[str]]:
    """Measure every family of decoders: each cell is the larger of as given and after forgetting."""
    rows = []
    for family in DECODERS:
        base = make_decoder(within / family, family)
        made = [
            decoder(base, within / f"{family} plain", None, "judge "),
            decoder(base, within / f"{family} template", TEMPLATE, ""),
            decoder(base, within / f"{family} prompt", TEMPLATE, "judge"),
            decoder(base, within / f"{family} pooled", TEMPLATE, "", pooled=True),
            classifier(base, within / f"{family} classifier", None),
            classifier(base, within / f"{family} classified template", TEMPLATE),
        ]
        cells = [LANGUAGE_MODELS[family]]
        for folder in made:
            after = forget_briefly(folder, collection, within / f"{folder.name} forgotten")
            worst = max(map(difference, (folder, after)))
            assert worst <= LARGEST, f"{folder.name}: {worst}"
            cells.append(written(worst))
        rows.append([*cells, adapted(made[0], collection), packing(load_ranker(made[0]))])
        print(*rows[-1], sep=" | ", file=sys.stderr)
    return rows


def adapted(folder: Path, collection: Collection) -> str:
    """Measure a ranker with an adapter on it: the larger of as given and after forgetting, merged."""
    given = with_adapter(folder, folder.parent / f"{folder.name} adapted")
    after = forget_briefly(given, collection, folder.parent / f"{given.name} forgotten")
    worst = max(map(difference, (given, after)))
    assert worst <= LARGEST, f"{given}: {worst}"
    return written(worst)


def bf16_rows(within: Path, collection: Collection) -> list[list[str]]:
    """Measure every family in bfloat16: its rankers, and one with an adapter."""
    rows = []
    for family in FAMILIES:
        base, place = make_encoder(within / f"bf16 {family}", family), within / f"bf16 made {family}"
        made = {kind: make_ranker(kind, base, place / kind) for kind in KINDS if (family, kind) not in NO_HEAD}
        if family not in NO_ADAPTER:
            made["adapter"] = with_adapter(made["bi-encoder"], place / "adapter")
        found = {"adapter": NO_ADAPTER.get(family, ""), **{kind: times(folder) for kind, folder in made.items()}}
        rows.append([NAMED[family], *(found.get(kind, "no such head") for kind in (*KINDS, "adapter"))])
        print(*rows[-1], sep=" | ", file=sys.stderr)
    return rows


def bf16_decoder_rows(within: Path, collection: Collection) -> list[list[str]]:
    """Measure every family of decoders in bfloat16: in three forms, and with an adapter."""
    rows = []
    for family in DECODERS:
        base, place = make_decoder(within / f"bf16 {family}", family), within / f"bf16 made {family}"
        made = [
            decoder(base, place / "template", TEMPLATE, ""),
            decoder(base, place / "pooled", TEMPLATE, "", pooled=True),
            classifier(base, place / "classifier", None),
        ]
        made.append(with_adapter(made[0], place / "adapter"))
        rows.append([LANGUAGE_MODELS[family], *map(times, made)])
        print(*rows[-1], sep=" | ", file=sys.stderr)
    return rows


def times(folder: Path) -> str:
    """Measure a folder in bfloat16, and refuse it if it is too far from float32."""
    found = times_as_far(folder)
    assert found <= MOST_TIMES, f"{folder.name}: {found:.2f} times as far as the library"
    return f"{found:.2f}"


LANGUAGE_MODELS = {"llama": "Llama", "qwen3": "Qwen3", "gemma2": "Gemma 2", "gemma3_text": "Gemma 3"}
ADAPTED = "with an adapter"
FORMS = ("plain, prompt", "template", "template, prompt", "pooled", "classifier", "classifier, template")
MODELS: Mapping[str, Callable[[Path, Path], Path]] = {
    "static embeddings (`StaticEmbedding`), with prompts": static_embedding,
    "vectors cut short (Matryoshka, `truncate_dim`)": truncated,
    "an encoder for each side (`Router`), with prompts": two_encoders,
    "splade with static query weights (`Router`)": static_queries,
}
"""Models that are more than an encoder and a head."""


def packing(ranker: Ranker) -> str:
    """Return how the encoder of a ranker runs on a GPU."""
    encoder: Any = ranker.fast_encoders[0]._encoder
    family = packing_family(encoder, torch.device("cpu"))
    if not isinstance(family, Family):
        return "padded"
    return "packed, own kernels" if family.names is not None else "packed"


def encoder_rows(within: Path, collection: Collection) -> list[list[str]]:
    """Measure every family of encoders: new, with prompts, and after forgetting."""
    rows = []
    for family in FAMILIES:
        base, cells, how = make_encoder(within / family, family), [NAMED[family]], ""
        for kind in KINDS:
            if (family, kind) in NO_HEAD:
                cells.append("no such head")
                continue
            place = within / f"{family} {kind}"
            made = [make_ranker(kind, base, place / str(prompted), prompted) for prompted in (False, True)]
            made.append(forget_briefly(made[1], collection, place / "forgotten"))
            worst = max(map(difference, made))
            assert worst <= LARGEST, f"{family} {kind}: {worst}"
            cells.append(written(worst))
            how = packing(load_ranker(made[0]))
        cells.append(NO_ADAPTER.get(family) or adapted(within / f"{family} bi-encoder" / "False", collection))
        rows.append([*cells, how])
        print(*rows[-1], sep=" | ", file=sys.stderr)
    return rows


def model_rows(within: Path, collection: Collection) -> list[list[str]]:
    """Measure the models that are more than an encoder and a head: as given, and after forgetting."""
    base, rows = make_encoder(within / "of models", "bert"), []
    for place, (name, make) in enumerate(MODELS.items()):
        folder = make(base, within / str(place))
        forgotten = forget_briefly(folder, collection, within / f"{place} forgotten")
        rows.append([name, load_ranker(folder).kind, written(difference(folder)), written(difference(forgotten))])
        print(*rows[-1], sep=" | ", file=sys.stderr)
    return rows


def written(share: float) -> str:
    """Return a share as a power of ten that it does not exceed.

    >>> written(0.0), written(3.2e-7)
    ('0', '< 1e-6')
    """
    return "0" if share == 0 else f"< 1e{int(np.floor(np.log10(share))) + 1}"


Rows = Callable[[Path, Collection], list[list[str]]]
TABLES: Mapping[str, tuple[Sequence[str], Rows]] = {
    "encoders": (("family", *KINDS, ADAPTED, "on a GPU"), encoder_rows),
    "encoders in bfloat16": (("family", *KINDS, ADAPTED), bf16_rows),
    "decoders": (("family", *FORMS, ADAPTED, "on a GPU"), decoder_rows),
    "decoders in bfloat16": (("family", "template", "pooled", "classifier", ADAPTED), bf16_decoder_rows),
    "models": (("model", "ranker", "as given", "after forgetting"), model_rows),
}
"""The head of each table of the page, and the function that measures its rows."""


def with_table(text: str, name: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a page with one of its tables, between two marks, written anew."""
    lines = [head, ["---"] * len(head), *rows]
    table = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
    pattern = re.compile(rf"(<!-- {name} -->\n\n).*?(\n\n<!-- end of {name} -->)", re.DOTALL)
    found, times = pattern.subn(lambda mark: f"{mark.group(1)}{table}{mark.group(2)}", text)
    if times != 1:
        raise UnrankError(f"{PAGE.name}: expected one pair of marks '<!-- {name} -->', found {times}")
    return found


def main() -> None:
    """Measure all tables, or those that are named, and write the page."""
    text = PAGE.read_text(encoding="utf-8")
    with TemporaryDirectory(prefix="unrank-families-") as folder:
        collection = make_dense_collection(Path(folder) / "collection")
        for name in sys.argv[1:] or TABLES:
            head, measure = TABLES[name]
            text = with_table(text, name, head, measure(Path(folder), collection))
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
