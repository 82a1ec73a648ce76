"""Rankers: `RANKERS` names them, and each has a file of its own. `base.py` is the contract."""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

from unrank.disk import exists, open_regular, sha256_once
from unrank.errors import BadFile, UnrankError
from unrank.plugins import Catalogue, summary_of
from unrank.record import MODEL_CARD, Record

if TYPE_CHECKING:
    from unrank.rankers.base import Ranker
    from unrank.record import Setting


@dataclass(frozen=True)
class RankerEntry:
    """The module and name of a ranker's class, which is imported, and torch with it, at its first use."""

    module: str
    name: str
    summary: str
    alias: str = ""
    recipes: Mapping[str, Mapping[str, Setting]] = field(default_factory=dict)
    """By method, the settings that suit this ranker better than the method's defaults."""
    own: type[Ranker] | None = None

    @classmethod
    def of(
        cls,
        ranker: type[Ranker],
        summary: str,
        alias: str = "",
        recipes: Mapping[str, Mapping[str, Setting]] = MappingProxyType({}),
    ) -> RankerEntry:
        """Return the entry of a class that is imported already."""
        return cls(ranker.__module__, ranker.__name__, summary, alias, recipes, own=ranker)

    @property
    def ranker(self) -> type[Ranker]:
        if self.own is not None:
            return self.own
        return cast("type[Ranker]", getattr(importlib.import_module(f"unrank.rankers.{self.module}"), self.name))


LONGEST_CARD = 1_000_000
"""The most bytes of a model card that are read."""
WORDS_FORGET = {"learning_rate": 5e-3, "warm_up": 1, "batch": 16, "hold_factor": 16}
"""Settings of cocol for a ranker on word vectors: many small steps, at a higher rate than in training (docs/log.md)."""

RANKERS: dict[str, RankerEntry] = {
    "cross-encoder": RankerEntry(
        "cross_encoder",
        "CrossEncoderRanker",
        "one encoder reads query and document together; precise and slow",
        "bertcat",
    ),
    "bi-encoder": RankerEntry(
        "bi_encoder",
        "BiEncoderRanker",
        "query and document encoded apart, a similarity of two vectors; fast",
        "bertdot",
    ),
    "colbert": RankerEntry(
        "colbert",
        "ColbertRanker",
        "a vector per token, each of the query's matched with the nearest of the document's; between the two",
    ),
    "colbert-dot": RankerEntry(
        "colbert",
        "ColbertDotRanker",
        "a colbert with wide vectors that are not normalised, as the code released for unranking has it",
    ),
    "decoder": RankerEntry(
        "decoder",
        "DecoderRanker",
        "a language model reads query and document in a template and answers yes or no; precise and slowest",
    ),
    "splade": RankerEntry(
        "splade",
        "SpladeRanker",
        "a sparse vector with a weight for each word of the vocabulary, for an inverted index",
    ),
    "parade": RankerEntry(
        "parade",
        "ParadeRanker",
        "a document's passages read one by one with the query, then together; for long documents",
    ),
    "duet": RankerEntry(
        "duet",
        "DuetRanker",
        "exact matches of the query's words, and what both texts mean, on word vectors; no encoder, light",
        recipes={
            "cocol": WORDS_FORGET,
            "retrain": {"learning_rate": 5e-4, "epochs": 4, "batch": 64, "negatives": 4, "together": 1},
        },
    ),
    "match-pyramid": RankerEntry(
        "match_pyramid",
        "MatchPyramidRanker",
        "reads the similarities of all words like an image, on word vectors; no encoder, light",
        "matchpyramid",
        {
            "cocol": WORDS_FORGET,
            "retrain": {"learning_rate": 1e-3, "epochs": 6, "batch": 64, "negatives": 4, "together": 1},
        },
    ),
}

MODEL_TYPES = {
    "CrossEncoder": "cross-encoder",
    "SentenceTransformer": "bi-encoder",
    "MultiVectorEncoder": "colbert",
    "SparseEncoder": "splade",
    "ColBERT": "colbert",
}
"""Model types that sentence-transformers and PyLate (the last) write, and their rankers."""


def _adopt(name: str, found: Any) -> RankerEntry:
    """Return the entry of a ranker of another package: a class, or an entry that the package made."""
    from unrank.rankers.base import Ranker

    if isinstance(found, type) and issubclass(found, Ranker):
        found = RankerEntry.of(found, summary_of(found))
    if not isinstance(found, RankerEntry):
        raise UnrankError("its entry point names neither a Ranker class nor a RankerEntry")
    if found.ranker.kind != name:
        raise UnrankError(f"its entry point says {name!r} and its class {found.ranker.kind!r}")
    return replace(found, alias="")


CATALOGUE = Catalogue("ranker", RANKERS, _adopt)
"""All rankers that can be named: unrank's own, and those of installed packages."""


def ranker_kind(name: str) -> str:
    """Return the kind of ranker with this name or alias."""
    return CATALOGUE.find(name)[0]


def ranker_class(kind: str) -> type[Ranker]:
    """Return the class of a kind of ranker."""
    return CATALOGUE.find(kind)[1].ranker


def create_ranker(kind: str, base: str | None, seed: int, fast: bool = True) -> Ranker:
    """Return a new ranker on a pretrained encoder or word vectors; its new weights are sampled by the seed."""
    import torch

    from unrank.rankers.encoder import find_encoder
    from unrank.rankers.trial import Attempt, try_out
    from unrank.rankers.vocabulary import check_rows

    made = ranker_class(kind)
    if base is not None and not made.reads_words and CATALOGUE.find(kind)[1].own is None:
        try_out(Attempt(str(find_encoder(base)), fast, kind))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        ranker = made.create(base).eval()
    check_rows(ranker.vocabularies, Path(base or kind))
    ranker.fast = fast
    return ranker


def reads_words(kind: str) -> bool:
    """Return whether a kind of ranker starts from word vectors and not from an encoder."""
    return ranker_class(kind).reads_words


def public_name(kind: str, base: str | None) -> str:
    """Return the name of a base for a record: for a file or folder its last part, never the path."""
    if base is None:
        return ranker_class(kind).default_base
    return Path(base).resolve().name if exists(Path(base)) else base


def base_hash(kind: str, base: str | None) -> str:
    """Return a hash of all files of a base; of its name if it has no files."""
    ranker = ranker_class(kind)
    try:
        hashes = sorted(sha256_once(path) for path in ranker.base_files(base))
    except OSError as error:
        raise BadFile(error.filename, error.strerror or "cannot be read") from error
    return hashlib.sha256(" ".join(hashes or [base or ranker.default_base]).encode()).hexdigest()


def load_ranker(name: str | Path, fast: bool = True) -> Ranker:
    """Return a trained ranker of any kind from a folder or a hub id. Without `fast`, only its library computes.

    A folder that this machine does not know is first loaded in a process with limits.
    """
    from unrank.rankers.encoder import find_model
    from unrank.rankers.saved_files import note_loaded
    from unrank.rankers.trial import Attempt, try_out

    folder = find_model(str(name))
    try_out(Attempt(str(folder), fast))
    ranker = read_ranker(folder, fast)
    note_loaded(ranker, folder)
    ranker.source = str(name)
    return ranker


def record_of(name: str | Path) -> Record | None:
    """Return the record of a ranker in a folder or of a hub id; `None` if unrank did not write it."""
    return Record.read(folder_of(name))


def folder_of(name: str | Path) -> Path:
    """Return the folder of a ranker that is named by its folder or by its hub id."""
    if exists(Path(name)):
        return Path(name)
    from unrank.rankers.encoder import find_model

    return find_model(str(name))


def read_ranker(folder: Path, fast: bool) -> Ranker:
    """Return the ranker in a folder that was checked. An adapter is merged into it."""
    from unrank.rankers.adapter_folder import has_adapter, merge_stored, whole_model
    from unrank.rankers.model_folder import loading
    from unrank.rankers.vocabulary import check_rows

    kind = detect_kind(folder)
    with loading(folder, f"a {kind}"):
        with whole_model(folder) as whole:
            ranker = ranker_class(kind).load(whole).eval()  # a class may leave dropout on
        if has_adapter(folder):
            merge_stored(ranker, folder)
        ranker.fast = fast
        check_rows(ranker.vocabularies, folder)
        ranker.score_texts(["a"], ["a"])  # some folders load, but cannot score
        ranker.card = read_card(folder)
    return ranker


def read_card(folder: Path) -> str:
    """Return the model card of a folder; nothing if it has none, or one that is not text or is too long."""
    try:
        with open_regular(folder / MODEL_CARD) as file:
            text = file.read(LONGEST_CARD + 1)
        return text.decode() if len(text) <= LONGEST_CARD else ""
    except (OSError, UnicodeDecodeError):
        return ""


def detect_kind(folder: Path) -> str:
    """Return the kind of ranker in a folder, by its files. The class of a colbert then tells a colbert-dot apart."""
    from unrank.rankers.adapter_folder import has_adapter, whole_model
    from unrank.rankers.model_folder import is_own_folder, read_description

    if has_adapter(folder):
        with whole_model(folder) as whole:
            return detect_kind(whole)
    if is_own_folder(folder):
        return ranker_kind(read_description(folder)[0])
    described = folder / "config_sentence_transformers.json"
    if described.is_file():
        description = _read_object(described)
        unnamed = "ColBERT" if "query_prefix" in description else "SentenceTransformer"  # older releases name no type
        model_type = str(description.get("model_type", unnamed))
        if model_type == "CrossEncoder" and _is_decoder(folder):
            return "decoder"
        if model_type in MODEL_TYPES:
            return MODEL_TYPES[model_type]
        raise BadFile(folder, f"a {model_type}, which unrank does not rank with")
    if (folder / "modules.json").is_file():
        return "bi-encoder"
    if (folder / "config.json").is_file():
        architecture = _architecture(folder)
        if _is_decoder(folder):
            return "decoder"
        if architecture.endswith("ForSequenceClassification"):
            return "cross-encoder"
        if architecture == "HF_ColBERT":
            return "colbert"
        if architecture.endswith("ForCausalLM"):
            raise BadFile(
                folder, f"a language model ({architecture}), not a ranker; train one with it as --base of a decoder"
            )
        raise BadFile(folder, f"an encoder ({architecture}), not a ranker; train one with it as --base")
    raise BadFile(folder, "not a ranker: no sentence-transformers model and no config.json is there")


def _is_decoder(folder: Path) -> bool:
    """Return whether a `CrossEncoder` is more than a classifier of the two texts as they are.

    It has several modules, or a chat template; a language model is a ranker if its template is made for pairs.
    """
    from unrank.rankers.folder_check import read_config

    modules = read_config(folder / "modules.json") if (folder / "modules.json").is_file() else []
    if isinstance(modules, list) and len(modules) > 1:
        return True
    template = _chat_template(folder)
    architecture = _architecture(folder)
    if architecture.endswith("ForCausalLM"):
        return bool(modules) or ("query" in template and "document" in template)
    return architecture.endswith("ForSequenceClassification") and template != ""


def _architecture(folder: Path) -> str:
    """Return the class of transformers that a folder names for its weights."""
    config = folder / "config.json"
    names = _read_object(config).get("architectures") if config.is_file() else None
    return str(names[0]) if isinstance(names, list) and names else "of unknown kind"


def _chat_template(folder: Path) -> str:
    """Return the chat templates of a folder; empty if it has none."""
    found = [path.read_text("utf-8", "replace") for path in sorted(folder.glob("chat_template*")) if path.is_file()]
    for path in (folder / "tokenizer_config.json", folder / "processor_config.json"):
        if path.is_file() and (template := _read_object(path).get("chat_template")):
            found.append(str(template))
    return "\n".join(found)


def _read_object(path: Path) -> dict[str, object]:
    from unrank.rankers.folder_check import read_config

    value = read_config(path)
    if not isinstance(value, dict):
        raise BadFile(path, "not a model's description: expected a JSON object")
    return value
