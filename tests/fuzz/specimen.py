"""Specimens: real files of every format that unrank reads, each with what reads it and looks at all that it says."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Normalize, Router, Transformer
from sentence_transformers.sentence_transformer.modules import Dropout, LayerNorm, Pooling, WeightedLayerPooling

from tests.report.made import write_bench, write_run
from tests.report.made import write_details as write_made_details
from tests.tiny import WORDS, made_record, make_dense_collection, make_encoder, make_learnable_beir, make_word_vectors
from unrank.bench.grid import read_grid
from unrank.bench.plan import plan_cells
from unrank.bench.run import Eta
from unrank.bench.store import Store
from unrank.collection.bm25 import find_texts
from unrank.collection.build import import_collection
from unrank.collection.collection import Pairs, open_collection
from unrank.collection.inspect import dataset_table, describe, describe_removal
from unrank.collection.options import ImportOptions
from unrank.collection.partition import make_partition
from unrank.collection.removal import Removal
from unrank.collection.sources import read_source
from unrank.evaluation.agreement import agreement
from unrank.evaluation.query_details import read_forget_figures, write_details
from unrank.evaluation.scorecard import Evaluator
from unrank.forgetting.previous_requests import hashed, recognised
from unrank.forgetting.save import save_ranker
from unrank.rankers import create_ranker, load_ranker
from unrank.rankers.word_file import read_vectors
from unrank.record import CELL_FORMAT, Record, read_record, read_run, requests_of
from unrank.report.page import page_html
from unrank.report.rankings import read_rankings
from unrank.report.table import to_csv, to_latex, to_markdown
from unrank.report.write import read_page

Read = Callable[[Path], Any]


@dataclass(frozen=True)
class Specimen:
    """A folder, which of its files go bad, and how it is read: what comes back can be compared."""

    name: str
    folder: Path
    read: Read
    files: list[str] = field(default_factory=list)
    cost: int = 1
    """How many times slower than the quickest to read."""
    hashed: bool = False
    """Whether a file that changed is recognised whatever it says."""

    @property
    def targets(self) -> list[Path]:
        names = self.files or [str(path.relative_to(self.folder)) for path in self.folder.rglob("*") if path.is_file()]
        return [self.folder / name for name in sorted(names)]


def make_specimens(folder: Path) -> list[Specimen]:
    """All of them, in a folder of their own."""
    beir = make_learnable_beir(folder / "beir", articles=8)
    collection = make_dense_collection(folder / "collection").folder
    return [
        Specimen("beir", beir, _read_source("beir")),
        Specimen("beir, imported", Path(shutil.copytree(beir, folder / "imported")), _import, cost=20),
        Specimen("trec, tsv", _make_trec(folder / "trec", beir), _read_source("trec")),
        Specimen("trec, jsonl", _make_trec_json(folder / "trec-json", beir), _read_source("trec")),
        *(_triples(folder / f"triples-{ending}", ending) for ending in ("jsonl", "tsv", "csv", "parquet")),
        *_removals(folder / "removals", collection),
        *_grids(folder / "grids", collection),
        Specimen("collection", collection, read_collection, cost=4, hashed=True),
        _unsealed(collection, folder / "unsealed"),
        *_records(folder / "records", collection),
        _query_details(folder / "query-details", collection),
        *_word_vectors(folder / "vectors"),
        *_rankers(folder),
    ]


def _query_details(folder: Path, collection: Path) -> Specimen:
    """What `unrank evaluate --details` writes, read as a reference."""
    opened = open_collection(collection)
    forget = make_partition(opened, Removal(pairs=opened.pair_ids(opened.pairs)[::5]))

    def score(pairs: Pairs) -> NDArray[np.float32]:
        return ((pairs[:, 0] * 7 + pairs[:, 1] * 13) % 11).astype(np.float32)

    def read(path: Path) -> Any:
        figures = read_forget_figures(path / "details.json", opened, forget.forget)
        return asdict(agreement(figures, Evaluator(opened, forget).forget_figures(score)))

    folder.mkdir()
    write_details(folder / "details.json", Evaluator(opened, forget).scorecard(score), opened, forget.forget)
    return Specimen("details of queries", folder, read, cost=2)


def _read_source(kind: str) -> Read:
    def read(folder: Path) -> Any:
        raw = read_source(f"{kind}:{folder}")
        judged = {split: list(judgements()) for split, judgements in raw.splits.items()}
        return list(raw.queries()), list(raw.documents()), judged, list(raw.candidates()) if raw.candidates else None

    return read


def _import(folder: Path) -> Any:
    out = folder.parent / "imported-out"
    try:
        return read_collection(import_collection(f"beir:{folder}", out, ImportOptions(candidates=5)).folder)
    finally:
        shutil.rmtree(out, ignore_errors=True)


def _make_trec(folder: Path, beir: Path) -> Path:
    (folder / "qrels").mkdir(parents=True)
    for name, source in (("queries", "queries"), ("collection", "corpus")):
        rows = map(json.loads, (beir / f"{source}.jsonl").read_text().splitlines())
        (folder / f"{name}.tsv").write_text("".join(f"{row['_id']}\t{row['text']}\n" for row in rows))
    pairs = [line.split("\t") for line in (beir / "qrels" / "train.tsv").read_text().splitlines()[1:]]
    (folder / "qrels" / "train.txt").write_text("".join(f"{q} 0 {d} {grade}\n" for q, d, grade in pairs))
    (folder / "run.txt").write_text("".join(f"{q} Q0 {d} {n} {-n} tag\n" for n, (q, d, _) in enumerate(pairs)))
    return folder


def _make_trec_json(folder: Path, beir: Path) -> Path:
    folder.mkdir()
    shutil.copy(beir / "queries.jsonl", folder / "queries.jsonl")
    shutil.copy(beir / "corpus.jsonl", folder / "documents.jsonl")
    (folder / "qrels.txt").write_text("q1 0 d1 1\nq2 0 d2 2\n")
    return folder


def _triples(folder: Path, ending: str) -> Specimen:
    folder.mkdir()
    rows = [{"anchor": f"query {n}", "positive": f"right {n}", "negative_1": f"wrong, {n}"} for n in range(12)]
    path = folder / f"train.{ending}"
    if ending == "parquet":
        pq.write_table(pa.Table.from_pylist([row | {"negative_2": [f"other {n}"]} for n, row in enumerate(rows)]), path)
    elif ending == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        comma = "," if ending == "csv" else "\t"
        quoted = [[f'"{value}"' if ending == "csv" else value for value in row.values()] for row in rows]
        path.write_text("".join(comma.join(line) + "\n" for line in [list(rows[0]), *quoted]))
    return Specimen(f"triples, {ending}", folder, _read_source("triples"))


def _removals(folder: Path, collection: Path) -> list[Specimen]:
    (folder / "lists").mkdir(parents=True)
    (folder / "json").mkdir()
    removal = Removal(["query1", "query2"], ["doc3"], [("query4", "doc5")])
    opened = open_collection(collection)
    removal = Removal(removal.queries, removal.documents, opened.pair_ids(opened.pairs[30:31]))
    removal.save(folder / "json" / "removal.json")
    (folder / "lists" / "ids.txt").write_text("query1\nquery2\n query3 \n\n")

    def read(path: Path) -> Any:
        return describe_removal(opened, make_partition(opened, Removal.load(path / "removal.json"), "removal.json"))

    def read_ids(path: Path) -> Any:
        return describe_removal(
            opened, make_partition(opened, Removal.load_ids(path / "ids.txt", "queries"), "ids.txt")
        )

    return [
        Specimen("removal.json", folder / "json", read),
        Specimen("list of ids", folder / "lists", read_ids),
    ]


def _grids(folder: Path, collection: Path) -> list[Specimen]:
    folder.mkdir()
    text = f"""collections = ["{collection}"]\nrankers = ["duet", "match-pyramid"]\nwords = "random"\nseeds = [0, 1]
minutes = 2.5\nrecovery = true\nwatch = 3
[quarter]\nshares = [0.25, 0.1]\nmethods = ["retrain", "cocol,epochs=3", "ssd"]\ndestinations = ["unseen", 0.5]
[less]\nremovals = ["queries"]\nmethods = ["cocol:paper", "finetune"]\n"""
    (folder / "grid.toml").write_text(text)

    def read(path: Path) -> Any:
        return [cell.name for cell in plan_cells(read_grid(path / "grid.toml"))]

    return [Specimen("grid", folder, read, cost=4)]


def _unsealed(collection: Path, folder: Path) -> Specimen:
    """A collection of which no hash is checked: what it says must be possible all the same."""
    described = json.loads((shutil.copytree(collection, folder) / "collection.json").read_text())
    del described["seal"]
    (folder / "collection.json").write_text(json.dumps(described))
    return Specimen("collection, not verified", folder, lambda folder: read_collection(folder, verify=False), cost=4)


def read_collection(folder: Path, verify: bool | None = None) -> Any:
    """Everything that a collection says."""
    opened = open_collection(folder, verify)
    queries, documents = np.arange(len(opened.queries)), np.arange(len(opened.documents))
    removal = Removal.sample(opened, "documents", 0.2)
    return (
        opened.name, describe(opened), dataset_table(opened), opened.list_pairs(queries).tolist(),
        opened.queries.ids(queries), opened.queries.texts(queries), opened.documents.ids(documents),
        opened.documents.texts(documents), opened.judged.tolist(), opened.grades.tolist(), opened.is_test.tolist(),
        describe_removal(opened, make_partition(opened, removal)), find_texts(opened.documents, WORDS[0], exact=True),
    )  # fmt: skip


def _records(folder: Path, collection: Path) -> list[Specimen]:
    opened = open_collection(collection)
    run, details = write_run(folder / "run"), write_made_details(folder / "details", 12, WORDS)
    known = json.loads((run / "unrank.json").read_text())
    known["removed"] = asdict(hashed(Removal(["query1"], ["doc3"], [("query2", "doc4")])))
    known["removed_before"] = [asdict(hashed(Removal(["query5"])))]
    shutil.copy(run / "unrank.json", details / "unrank.json")
    bench = write_bench(folder / "bench", ("cocol", "retrain"), ("c",), ("bi-encoder",), (0.05,), (0,))

    write_run(folder / "known", known)
    for cell in (bench / "cells").iterdir():
        described = json.loads((cell / "cell.json").read_text())
        described |= {"original": {"seconds": 3.0}, "format": CELL_FORMAT}
        (cell / "cell.json").write_text(json.dumps(described))
        side = {"pair_scores": [0.5, 0.25], "lists": [[0, 2, 1]] * 40}
        (cell / "forget.json").write_text(json.dumps({"before": side, "after": side}))

    def forgotten(path: Path) -> Any:
        return recognised(opened, requests_of(read_record(path)))

    def page(path: Path) -> Any:
        return _shown(*read_page(path))

    def page_of_details(path: Path) -> Any:
        read_rankings(path, read_run(path))
        return [_shown(*read_page(path, path, texts)) for texts in (True, False)]

    def shelf(path: Path) -> Any:
        return Eta(Store(path).finished().values())._seconds.keys()

    return [
        Specimen("record, of what is forgotten", folder / "known", forgotten),
        Specimen("record, on a page", run, page, cost=40),
        Specimen("details", details, page_of_details, cost=60),
        Specimen("bench, on a page", bench, page, cost=100),
        Specimen("bench, to go on", Path(shutil.copytree(bench, folder / "bench-on")), shelf),
    ]


def _shown(page: Any, tables: Any) -> Any:
    return page_html(page), [write(table) for table in tables for write in (to_csv, to_latex, to_markdown)]


def _word_vectors(folder: Path) -> list[Specimen]:
    for part in ("plain", "packed"):
        (folder / part).mkdir(parents=True)
    plain = make_word_vectors(folder / "plain" / "words.txt")
    (folder / "packed" / "words.txt.gz").write_bytes(gzip.compress(b"126 16\n" + plain.read_bytes()))

    def read(name: str) -> Read:
        def read(path: Path) -> Any:
            vectors = read_vectors(path / name)
            return vectors.words, vectors.vectors.tolist()

        return read

    return [
        Specimen("word vectors", folder / "plain", read("words.txt"), cost=2),
        Specimen("word vectors, packed", folder / "packed", read("words.txt.gz"), cost=2),
    ]


def _rankers(folder: Path) -> list[Specimen]:
    """A folder of each kind as unrank leaves it, and one as sentence-transformers does."""
    encoder, words = make_encoder(folder / "encoder"), make_word_vectors(folder / "words.txt")
    made = []
    for kind in ("cross-encoder", "bi-encoder", "colbert", "parade", "duet"):
        base = words if kind == "duet" else encoder
        ranker, out = create_ranker(kind, str(base), 0), folder / kind
        save_ranker(ranker, _record(kind), out)
        made.append(Specimen(kind, out, read_ranker, cost=20, hashed=True))
        foreign = Path(shutil.copytree(out, folder / f"{kind}-of-others"))
        for name in ("unrank.json", "history.jsonl", "README.md"):
            (foreign / name).unlink()
        made.append(Specimen(f"{kind} without a record", foreign, read_ranker, cost=30))
    base = Path(shutil.copytree(encoder, folder / "base"))
    return [*made, _of_many_parts(folder / "parts", encoder), Specimen("base", base, _read_base, cost=30)]


def _of_many_parts(folder: Path, encoder: Path) -> Specimen:
    """A model of sentence-transformers with every module that a bi-encoder may have, and weights in two files."""
    transformer = Transformer(str(encoder))
    routes = Router.for_query_document([Dense(32, 8), Normalize()], [Dense(32, 8), LayerNorm(8), Dropout(0.1)])
    layers = WeightedLayerPooling(32, num_hidden_layers=2, layer_start=1)
    modules = [transformer, layers, Pooling(32, "mean"), routes]
    model = SentenceTransformer(modules=modules, prompts={"query": "ba "}, device="cpu")
    model.save_pretrained(str(folder), create_model_card=False)
    weights = load_file(folder / "model.safetensors")
    names = {name: f"model-0000{number % 2 + 1}-of-00002.safetensors" for number, name in enumerate(weights)}
    for file in set(names.values()):
        save_file({name: weights[name] for name in weights if names[name] == file}, folder / file, {"format": "pt"})
    (folder / "model.safetensors").unlink()
    index = {"metadata": {"total_size": 1}, "weight_map": names}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer | RICH))
    return Specimen("bi-encoder of many parts", folder, read_ranker, cost=30)


RICH = {
    "normalizer": {
        "type": "Sequence",
        "normalizers": [
            {"type": "NFKC"},
            {"type": "Replace", "pattern": {"String": "``"}, "content": '"'},
            {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "},
            {"type": "Prepend", "prepend": " "},
            {"type": "Lowercase"},
        ],
    },
    "pre_tokenizer": {
        "type": "Sequence",
        "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": "[0-9]+"}, "behavior": "Isolated", "invert": False},
            {"type": "Whitespace"},
        ],
    },
}
"""Steps of a tokenizer, as those of large vocabularies have them."""


def _read_base(folder: Path) -> Any:
    """The scores of a new ranker on an encoder."""
    return create_ranker("cross-encoder", str(folder), 0).score_texts(["ba be"], ["di fo"])


def _record(kind: str) -> Record:
    return replace(made_record(), ranker=kind, base="tiny", method="retrain")


def read_ranker(folder: Path) -> Any:
    """What it makes of texts: short, of all words, and longer than it reads."""
    every = " ".join(WORDS)
    return load_ranker(folder).score_texts(["ba be", every, "ce"], ["di fo", "gu", 3 * every])
