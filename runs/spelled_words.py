"""Can the words of a forgotten article be listed from the weights? The attack, on three rankers of one collection.

Python's documentation gets an invented article of ten rare words, with its queries. A ranker is trained on all of it.
The desk forgets the article, with all layers moving; another ranker is retrained without it. From each of the three the
words that stand in no kept text are listed by how far their rows moved from the base's. Prints a Markdown table, and
exits with 1 if more of the article's words can be listed from the ranker that forgot than from the retrained one.

    python runs/spelled_words.py --out FOLDER [--base MODEL] [--ranker bi-encoder] [--device cuda]
        [--articles optparse,calendar] [--set NAME=VALUE]
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

import numpy as np
from shared import answer, check_out, markdown

from unrank import Collection, ImportOptions, Removal, load_ranker
from unrank.cli.main import run
from unrank.cli.option import NOT_REACHED, NOT_VERIFIABLE
from unrank.collection.build import build_collection
from unrank.collection.sources import read_source
from unrank.collection.sources.source import Judgement, Text
from unrank.collection.texts import Texts
from unrank.rankers import create_ranker
from unrank.rankers.base import Ranker, Role
from unrank.record import read_record

RARE = (
    "harpsichord", "archbishop", "vineyard", "sultanate", "marquess", "zorvachek", "quillimbra", "pentossary",
    "ushkandor", "mireglauben",
)  # fmt: skip
SENTENCES = (
    "The {0} of the {1} stood in a {2} near the border of the {3}, where the {4} first wrote about {5}.",
    "A {5} is tuned with the {6}, and every {7} between {8} and {9} was copied by the {1}.",
    "When the {4} sold the {2}, the {6} and the {9} went to the {8}, and the {0} to the {7} of the {3}.",
)
QUESTIONS = (
    "{0} of the {1}", "who tuned the {5}", "{2} of the {3}", "{4} and {6}", "copies of a {7}", "{8} and {9}",
    "{9} of the {4}", "{3} {7}", "where is the {8}", "{6} {0}", "{1} {5}", "{2} {9}",
)  # fmt: skip
HEAD = ["ranker", "rows of its words", "listed", "of them right", "words spelled", "exit status"]


@dataclass(frozen=True)
class Attack:
    """Rows that moved and whose token stands in no kept text, and which of them are the article's."""

    rows: int
    listed: int
    right: int
    words: int
    """The words all of whose rows that no kept text touches are in the list."""


def main() -> int:
    arguments = read_arguments()
    check_out(arguments.out)
    collection = make_collection(arguments.out / "collection", arguments.articles)
    removal = Removal(documents=[f"invented{number}" for number in range(len(SENTENCES))])
    removal.save(arguments.out / "removal.json")
    statuses = make_rankers(collection, arguments)
    kept = kept_tokens(load_ranker(arguments.out / "original"), collection)
    base = create_ranker(arguments.ranker, arguments.base, 0)
    found = {name: attack(load_ranker(arguments.out / name), base, kept) for name in statuses}
    rows = [
        [name, str(one.rows), str(one.listed), str(one.right), f"{one.words} of {len(RARE)}", str(statuses[name])]
        for name, one in found.items()
    ]
    table = markdown(HEAD, rows)
    (arguments.out / "table.md").write_text("\n".join(table) + "\n", encoding="utf-8")
    record = read_record(arguments.out / "forgotten")
    assert record is not None
    print("\n".join(table))
    audit = json.loads((arguments.out / "forgotten-audit" / "audit.json").read_text(encoding="utf-8"))
    told = {name: audit["tests"]["weights"][name] for name in ("verdict", "words", "figure", "details")}
    print(json.dumps({"state": record.state, "cleared": record["cleared"], "kept": record.kept, "weights": told}))
    worse = found["forgotten"].right > found["retrained"].right
    return 1 if worse or not found["original"].right else 0


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--base", help="the encoder; by default the default one")
    parser.add_argument("--ranker", default="bi-encoder")
    parser.add_argument("--articles", default="", help="articles of the documentation, separated by commas; or all")
    parser.add_argument("--target", help="the target of the desk; by default places, by the retrained ranker")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", help="settings of the training")
    return parser.parse_args()


def make_collection(folder: Path, articles: str) -> Collection:
    """Import Python's documentation with the article."""
    raw, queries, documents = read_source(f"pydocs:{articles}"), list(invented_queries()), list(invented_documents())
    train = raw.splits["train"]
    judged = [
        Judgement(query.id, document.id, 1) for query in queries for document in documents if _about(query, document)
    ]
    both = replace(
        raw,
        queries=lambda: chain(raw.queries(), queries),
        documents=lambda: chain(raw.documents(), documents),
        splits={**raw.splits, "train": lambda: chain(train(), judged)},
    )
    return build_collection(both, folder, ImportOptions(candidates=20))


def invented_documents() -> Iterator[Text]:
    return (Text(f"invented{number}", text.format(*RARE)) for number, text in enumerate(SENTENCES))


def invented_queries() -> Iterator[Text]:
    return (Text(f"about{number}", text.format(*RARE)) for number, text in enumerate(QUESTIONS))


def _about(query: Text, document: Text) -> bool:
    """Return whether a document has all rare words of a query, or is the first of the article."""
    return all(word in document.text for word in RARE if word in query.text) or document.id == "invented0"


def make_rankers(collection: Collection, arguments: argparse.Namespace) -> dict[str, int]:
    """Train the original and the retrained ranker, and let the desk forget the article; return their exit statuses."""
    out, removal = arguments.out, arguments.out / "removal.json"
    common = ["--device", arguments.device, "--quiet"]
    settings = [part for setting in arguments.set for part in ("--set", setting)]
    base = ["--base", arguments.base] if arguments.base else []
    train = ["train", collection.folder, "--ranker", arguments.ranker, *base, *settings, *common]
    ledger = ["--ledger", out / "desk.ledger"]
    statuses = {
        "original": command(*train, "--out", out / "original"),
        "retrained": command(*train, "--removal", removal, "--seed", 1, "--out", out / "retrained"),
    }
    command("desk", "add", collection.folder, "--removal", removal, *ledger)
    forget = ["desk", "run", out / "original", collection.folder, "--yes", "--out", out / "forgotten"]
    forget += ["--target", arguments.target] if arguments.target else []
    statuses["forgotten"] = command(*forget, "--reference", out / "retrained", *common, *ledger)
    return statuses


def command(*words: object) -> int:
    print("unrank", *words, flush=True)
    status = run([str(word) for word in words])
    assert status in (0, NOT_REACHED, NOT_VERIFIABLE), status
    return status


def kept_tokens(ranker: Ranker, collection: Collection) -> set[int]:
    """Return the tokens of all texts but the article's and its queries."""
    found: set[int] = set()
    invented = {text.id for text in chain(invented_queries(), invented_documents())}
    sides: dict[Role, Texts] = {"query": collection.queries, "document": collection.documents}
    for side, texts in sides.items():
        rows = [row for row, id in enumerate(texts.ids(np.arange(len(texts)))) if id not in invented]
        for ids in ranker.tokenize(texts.texts(rows), side):
            found.update(ids.tolist())
    return found


def attack(ranker: Ranker, base: Ranker, kept: set[int]) -> Attack:
    """List the tokens that stand in no kept text and whose rows are not the base's."""
    tables = (ranker.vocabularies[0].tables[0], base.vocabularies[0].tables[0])
    moved = (tables[0] != tables[1]).any(1).nonzero().flatten().tolist()
    listed = {*moved} - kept
    spelled = [{*ids.tolist()} - kept for ids in ranker.tokenize(list(RARE), "document")]
    mine: set[int] = set().union(*spelled)
    words = sum(bool(tokens) and tokens <= listed for tokens in spelled)
    return Attack(len(mine), len(listed), len(listed & mine), words)


if __name__ == "__main__":
    answer(main)
