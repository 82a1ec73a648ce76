"""A collection and a trained ranker made through the command line, once; each test takes them as folders."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.tiny import GOLDEN, text_of
from unrank.cli.main import run

Pair = tuple[str, str]
Refused = Callable[..., str]


def write_beir(folder: Path, train: Sequence[Pair], test: Sequence[Pair] = (), documents: int = 0) -> Path:
    """A BEIR folder of these pairs, and of so many further documents."""
    generator = random.Random(11)
    (folder / "qrels").mkdir(parents=True)
    pairs = [*train, *test]
    ids = dict.fromkeys([document for _, document in pairs] + [f"more{number}" for number in range(documents)])
    queries = dict.fromkeys(query for query, _ in pairs)
    texts = {"corpus.jsonl": (ids, 10), "queries.jsonl": (queries, 4)}
    for name, (names, words) in texts.items():
        lines = [json.dumps({"_id": id, "text": text_of(generator, words)}) for id in names]
        (folder / name).write_text("\n".join(lines) + "\n")
    for split, given in (("train", train), ("test", test)):
        if given:
            lines = [f"{query}\t{document}\t1" for query, document in given]
            (folder / "qrels" / f"{split}.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *lines]) + "\n")
    return folder


def some_pairs(queries: int = 18, tests: int = 6) -> tuple[list[Pair], list[Pair]]:
    """Training queries that share documents, and test queries."""
    generator = random.Random(12)
    documents = [f"doc{number}" for number in range(30)]
    train = [(f"query{number}", document) for number in range(queries) for document in generator.sample(documents, 3)]
    return train, [(f"test{number}", generator.choice(documents)) for number in range(tests)]


def tree(folder: Path) -> dict[str, tuple[int, int]]:
    """Every path under a folder, with its size and when it was last written."""
    stats = {str(path.relative_to(folder)): path.stat() for path in folder.rglob("*")}
    return {name: (stat.st_size, stat.st_mtime_ns) for name, stat in stats.items()}


@pytest.fixture(scope="session")
def beir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_beir(tmp_path_factory.mktemp("beir") / "little", *some_pairs(), documents=10)


@pytest.fixture(scope="session")
def collection(beir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("collection") / "little"
    assert run(["import", f"beir:{beir}", "--out", str(out), "--candidates", "10"]) == 0
    return out


@pytest.fixture(scope="session")
def golden_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The paper's example; it has no test queries."""
    folder = tmp_path_factory.mktemp("golden")
    write_beir(folder / "beir", GOLDEN)
    assert run(["import", f"beir:{folder / 'beir'}", "--out", str(folder / "golden"), "--candidates", "3"]) == 0
    return folder / "golden"


@pytest.fixture(scope="session")
def ranker(collection: Path, encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("ranker") / "trained"
    settings = [item for name in ("epochs=4", "learning_rate=1e-3", "batch=48") for item in ("--set", name)]
    command = ["train", str(collection), "--ranker", "bi-encoder", "--base", str(encoder), "--out", str(out), "--quiet"]
    assert run([*command, *settings]) == 0
    return out


@pytest.fixture(scope="session")
def removal(collection: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("removal") / "removal.json"
    command = ["split", str(collection), "--remove", "documents", "--share", "0.2", "--out", str(out)]
    assert run(command) == 0
    return out


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Refused:
    """Run a command that must fail through the user's fault: the line that it prints."""

    def refuse(*arguments: object) -> str:
        capsys.readouterr()
        before = tree(tmp_path)
        status = run([str(argument) for argument in arguments])
        said = capsys.readouterr()
        assert status == 2, said.err
        assert tree(tmp_path) == before
        lines = said.err.splitlines()
        assert len(lines) == 1, said.err
        assert lines[0].startswith("unrank: ")
        assert "Traceback" not in said.err
        assert "a bug in unrank" not in said.err
        return lines[0].removeprefix("unrank: ")

    return refuse
