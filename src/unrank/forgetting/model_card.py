"""The model card of a ranker, in the form that the hub and sentence-transformers read. It ships with the ranker.

What was removed is there as counts alone. The card that the original had is kept below, without its head, if it holds
no words of what was removed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np

from unrank.collection.collection import Collection
from unrank.collection.normalisation import normalised
from unrank.collection.partition import Partition
from unrank.errors import count, printable
from unrank.record import SETS, ForgetState, Record

PIPELINES = {
    "cross-encoder": "text-ranking",
    "bi-encoder": "sentence-similarity",
    "colbert": "sentence-similarity",
    "colbert-dot": "sentence-similarity",
    "splade": "feature-extraction",
}
CLASSES = {
    "bi-encoder": "SentenceTransformer",
    "colbert": "MultiVectorEncoder",
    "colbert-dot": "MultiVectorEncoder",
    "cross-encoder": "CrossEncoder",
    "splade": "SparseEncoder",
}
"""The kinds of rankers that a class of sentence-transformers loads. The others only unrank loads."""
ENCODE = """from sentence_transformers import {name}

model = {name}("path/of/this/folder")
queries = model.encode_query(["a query"])
documents = model.encode_document(["a document", "another one"])
print(model.similarity(queries, documents))"""
PREDICT = """from sentence_transformers import CrossEncoder

model = CrossEncoder("path/of/this/folder")
print(model.predict([("a query", "a document"), ("a query", "another one")]))"""
ADAPT = """from sentence_transformers import {name}

model = {name}("path/of/the/ranker")
model.load_adapter("path/of/this/folder")"""
APART = (
    "This folder is an adapter for the ranker `{base}` (hash `{digest}`). Without the adapter, that ranker ranks as "
    "before{remembers}."
)
SCORE = """import unrank

ranker = unrank.load_ranker("path/of/this/folder")
print(ranker.score_texts(["a query", "a query"], ["a document", "another one"]))"""
TWO_TOWERS = (
    "Queries and documents have encoders of their own. `encode_query()` is for queries: its encoder has forgotten. "
    "`encode_document()` is for documents: its encoder is that of the original. Plain `encode()` names no side, "
    "so do not use it."
)
HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
EARLIER = "## The card of the original"
LEFT_OUT = "The original had a card. It is left out, because it may hold words of what was removed."
MOST = 100_000
"""The most characters of an earlier card that are kept."""
WORDS = 4
"""A card that holds this many words of a removed text in their order holds the text."""


def model_card(record: Record, earlier: str = "") -> str:
    """Return the card of a ranker; `earlier` is what is kept of the original's."""
    body = [f"# A {record.ranker}", made_by(record), *_forgotten(record), "## Use", *_use(record)]
    body += ["## Training data", _data(record), "## Figures", _figures(record)]
    body += [EARLIER, earlier] if earlier else []
    return f"{_head(record)}\n" + "\n\n".join(part for part in body if part) + "\n"


def made_by(record: Record) -> str:
    """Return how a ranker was made, in a sentence."""
    base = f" It was first trained from `{_inline(record.base)}`." if record.base and record.before else ""
    base = f" It was trained from `{_inline(record.base)}`." if record.base and not record.before else base
    return f"Made by unrank with the method `{_inline(record.method)}`.{base}"


def _head(record: Record) -> str:
    kind = [record.ranker, "reranker"] if record.ranker == "cross-encoder" else [record.ranker, "feature-extraction"]
    pipeline = PIPELINES.get(record.ranker, "text-ranking")
    library = "sentence-transformers" if record.ranker in CLASSES else "unrank"
    tags = dict.fromkeys([library, pipeline, *kind, *(["machine-unlearning"] if record.removed else []), "unrank"])
    lines = ["---", "tags:", *(f"- {tag}" for tag in tags)]
    if record.base and HUB_ID.fullmatch(record.base):
        lines.append(f"base_model: {record.base}")
    return "\n".join([*lines, f"pipeline_tag: {pipeline}", f"library_name: {library}", "---"])


def _forgotten(record: Record) -> list[str]:
    if record.removed is None:
        return []
    counts = ", ".join(f"{number} {kind}" for kind, number in record.removed.counts.items())
    how = "only as hashes under the owner's key" if record.removed.key else "in no form"
    lines = ["## What was asked to be forgotten", f"Removed: {counts}. Their ids are recorded {how}."]
    lines += [f"The state of the request: {record.state}."] if record.state else []
    lines += [] if record.changed or not record.before else ["The weights are those of the original."]
    if record.removed_before:
        earlier = count(len(record.removed_before), "earlier request")
        lines.append(f"The record names {earlier} too.")
    if record.index_valid is not None:
        state = "still valid" if record.index_valid else "stale"
        lines.append(f"Document vectors that were stored before are {state}.")
    return lines


def _use(record: Record) -> list[str]:
    name = CLASSES.get(record.ranker)
    how = SCORE if name is None else PREDICT if name == "CrossEncoder" else ENCODE.format(name=name)
    if record.adapter is not None and name is not None:
        how = ADAPT.format(name=name)
    lines = ["It ranks documents for a query: a higher score comes first. Scores of different queries do not compare."]
    if record.removed is not None and record.state != ForgetState.NOT_FORGOTTEN:
        lines[0] += (
            " What was removed can still be found if its text is in the index, at the rank that its words earn: "
            "delete it there as well."
        )
    if record.adapter is not None:
        remembers = " and remembers what was removed" if record.state == ForgetState.WHILE_ADAPTED else ""
        base, digest = _inline(record.adapter.name), record.adapter.digest[:16]
        lines.append(APART.format(base=base, digest=digest, remembers=remembers))
    lines += [f"```python\n{how}\n```"]
    return [*lines, TWO_TOWERS] if record.settings.get("freeze") == "documents" else lines


def _data(record: Record) -> str:
    found = record.collection
    print_ = f" (fingerprint `{found.fingerprint[:16]}`)" if found.fingerprint else ""
    return f"The collection `{_inline(found.name)}`{print_}."


def _figures(record: Record) -> str:
    """Return a table of the MRR before and after. It is over the lists of the collection."""
    lines = ["| set | MRR before | MRR after | queries |", "| --- | --- | --- | --- |"]
    for name in [*SETS, *(each for each in record.after if each not in SETS)]:
        if (after := record.after.get(name)) is not None:
            shown = f"{record.before[name].mrr:.3f}" if name in record.before else ""
            lines.append(f"| {name} | {shown} | {after.mrr:.3f} | {after.queries} |")
    return "\n".join([*lines, "", "The MRR is over the lists of the collection, not over a whole index."])


def _inline(text: str | None) -> str:
    """Return a name in a form that cannot end the code that it stands in."""
    return printable(" ".join((text or "").replace("`", "'").split()))


def earlier_card(card: str, collection: Collection, partition: Partition) -> str:
    """Return what is kept of an original's card: of one that unrank wrote, what that had kept of an earlier one."""
    text = re.sub(r"\A---\n.*?\n---\n", "", card.replace("\r\n", "\n"), count=1, flags=re.DOTALL).strip()
    if "Made by unrank with the method" in text:
        text = text.partition(f"\n{EARLIER}\n")[2].strip()
    if not text or text == LEFT_OUT:
        return text
    ids, texts = _removed(collection, partition)
    return LEFT_OUT if len(text) > MOST or holds_any(text, ids, texts) else printable(text)


def _removed(collection: Collection, partition: Partition) -> tuple[list[str], list[str]]:
    """Return the ids and texts of removed queries and documents, and of both sides of removed pairs."""
    pairs = partition.forget
    alone = ~np.isin(pairs[:, 0], partition.queries) & ~np.isin(pairs[:, 1], partition.documents)
    queries = np.union1d(partition.queries, pairs[alone, 0])
    documents = np.union1d(partition.documents, pairs[alone, 1])
    ids = [*collection.queries.ids(queries), *collection.documents.ids(documents)]
    return ids, [*collection.queries.texts(queries), *collection.documents.texts(documents)]


def holds_any(card: str, ids: Iterable[str], texts: Iterable[str]) -> bool:
    """Return whether a card holds an id, or a few words of a text in their order; all of a text that has fewer.

    >>> holds_any("Trained on: Where is the old mill?", ["d5"], ["the old mill of Mr Quixote is where he lives"])
    False
    >>> holds_any("As 'mill of Mr Quixote' shows", [], ["the old mill of Mr Quixote"]), holds_any("id d5.", ["d5"], [])
    (True, True)
    """
    words = _words(card)
    runs = {size: {tuple(words[start : start + size]) for start in range(len(words))} for size in range(1, WORDS + 1)}
    line = f" {' '.join(words)} "
    if any(f" {' '.join(_words(id))} " in line for id in ids if not id.isdecimal()):  # a card holds figures
        return True
    for text in texts:
        own = _words(text)
        size = min(WORDS, len(own))
        if size and any(tuple(own[start : start + size]) in runs[size] for start in range(len(own) - size + 1)):
            return True
    return False


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", normalised(text))
