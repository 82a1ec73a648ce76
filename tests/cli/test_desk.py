"""One request from the mail to the certificate, and all that can be wrong with one, by command line alone."""

from __future__ import annotations

import json
import random
import shutil
from datetime import date, timedelta
from pathlib import Path

import pytest

from tests.cli.conftest import Refused, some_pairs, write_beir
from unrank.cli.main import run
from unrank.desk.key import key_file
from unrank.desk.ledger import Ledger
from unrank.desk.schema import VERSION
from unrank.desk.signature import read_signed

Said = pytest.CaptureFixture[str]
SETTINGS = ["--set", "learning_rate=1e-3", "--set", "epochs=20", "--reference", "retrained", "--quiet"]
SETTINGS += ["--target", "destination-1"]  # what these small rankers reach
CANARY = "zyxomma"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("desk")


@pytest.fixture(scope="module")
def marked(folder: Path) -> Path:
    """A BEIR folder with ids and texts that nobody would meet by chance, so that raw bytes can be searched."""
    out = write_beir(folder / "beir", *some_pairs(queries=40, tests=12), documents=10)
    for path in [*out.glob("*.jsonl"), *out.glob("qrels/*.tsv")]:
        text = path.read_text()
        for name in ("query", "doc"):
            text = text.replace(f"{name}1", f"{CANARY}-{name}1")
        path.write_text(text)
    corpus = [json.loads(line) for line in (out / "corpus.jsonl").read_text().splitlines()]
    for row in corpus:
        if row["_id"].startswith(CANARY):
            row["text"] = f"{CANARY} {row['_id'].removeprefix(CANARY)} {row['text']}"
    (out / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in corpus))
    return out


@pytest.fixture(scope="module")
def walked(marked: Path, folder: Path, encoder: Path) -> Path:
    """The collection, a ranker trained on it, and one that was retrained without what the requests name."""
    assert run(["import", f"beir:{marked}", "--out", str(folder / "collection"), "--candidates", "10"]) == 0
    command = ["train", str(folder / "collection"), "--ranker", "bi-encoder", "--base", str(encoder), "--quiet"]
    settings = [item for name in ("epochs=4", "learning_rate=1e-3", "batch=48") for item in ("--set", name)]
    assert run([*command, "--out", str(folder / "ranker"), *settings]) == 0
    removal = folder / "retrained.json"
    documents = [f"{CANARY}-doc{number}" for number in (1, *range(10, 20))]
    removal.write_text(json.dumps({"queries": [f"{CANARY}-query1", f"{CANARY}-query12"], "documents": documents}))
    retrained = ["--out", str(folder / "retrained"), "--removal", str(removal), "--seed", "1"]
    assert run([*command, *retrained, *settings]) == 0
    removal.unlink()
    return folder


@pytest.mark.slow
def test_the_whole_walk(
    walked: Path, capsys: Said, refused: Refused, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(walked)

    def desk(*words: str) -> str:
        capsys.readouterr()
        assert run(["desk", *words]) == 0
        return capsys.readouterr().out

    # the mail: words are found, one is chosen; two more requests come, one of them late
    found = desk("add", "collection", "--find", f"{CANARY} doc1")
    assert "no request was added: choose with --choose" in found
    both = desk("add", "collection", "--document", f"{CANARY}-doc10", "--find", f"{CANARY} doc1")
    assert "no request was added" in both and "request 1" not in both
    for number in ("0", "-1", "1,0", "999", "x"):
        said = refused("desk", "add", "collection", "--find", f"{CANARY} doc1", f"--choose={number}")
        assert said.startswith(f"--choose {number}: give numbers from 1 to ")
    said = refused("desk", "add", "collection", "--document", f"{CANARY}-doc10", "--choose", "1")
    assert said == "--choose chooses from what --find found: give words to --find too"
    number = next(line.split()[0] for line in found.splitlines() if f"{CANARY}-doc1" in line.split())
    assert "request 1, due" in desk("add", "collection", "--find", f"{CANARY} doc1", "--choose", number)
    desk("add", "collection", "--query", f"{CANARY}-query1", "--basis", "objection", "--received", "2026-01-31")
    named = {"queries": [f"{CANARY}-query12"], "documents": [f"{CANARY}-doc10", f"{CANARY}-doc12"]}
    Path("removal.json").write_text(json.dumps(named))
    assert "removal.json names what is to be forgotten" in desk("add", "collection", "--removal", "removal.json")
    Path("removal.json").unlink()
    listed = desk("list").splitlines()
    assert listed[1].split() == ["2", "open,", "overdue", "2026-01-31", "2026-02-28", "objection"]
    assert f"document {CANARY}-doc1: {CANARY}" in desk("show", "1")

    # the plan, which a run shows too and does nothing
    said = refused("desk", "plan", "ranker", "collection", "--look", "nowhere")
    assert said == "--look nowhere: no such file or folder"
    for said in (desk("plan", "ranker", "collection", "--look", "beir"), desk("run", "ranker", "collection")):
        assert "requests 1, 2, 3 can be run together" in said
        assert (
            "affected: a forgotten document is in the list" in said
            and "with cocol it takes " in said
            and "with retrain it" in said
        )
        assert said.count(" here, of which the audit takes ") == 2
        assert said.count("'forgotten, not verifiable' at best: no margin can be said, so the verdict cannot be") == 3
        assert "ranker: was trained on this collection, and its record does not show that it forgot all of it" in said
        assert "collection: holds 5 of 5 named" in said
    assert not Path("ranker-run1").exists()

    # the run: its target is reached on average, but no judge is there, and request 2 has not moved by itself
    capsys.readouterr()
    assert run(["desk", "run", "ranker", "collection", "--yes", "--keep-at-least", "0.1", *SETTINGS]) == 3
    said = capsys.readouterr().out
    assert "target: passed" in said and "audit: NOT passed; in all: undecided; equivalence: needs 2 more" in said
    assert said.count("forgotten, not verifiable: ") == 2
    assert "pairs had to fall and did not; worst pair: rank 1 of " in said
    assert said.count(": not forgotten: ") == said.count("request 2: not forgotten: ") == 1
    assert "run 1: the new ranker is in ranker-run1, its audit in ranker-run1-audit" in said
    assert "request 2 not forgotten: run again from ranker-run1" in said
    assert desk("show", "2", "--json").count('"state": "not forgotten"') == 1
    assert "only a request that a run has settled has a certificate" in refused(
        "desk", "certificate", "2", "--out", "certificate2"
    )

    # the next request, and a run that keeps what was forgotten before
    desk("add", "collection", *(f"--document={CANARY}-doc{number}" for number in (15, 17, 18)))
    assert run(["desk", "run", "ranker-run1", "collection", "--yes", *SETTINGS]) == 3
    assert "request 4: forgotten, not verifiable: " in capsys.readouterr().out
    assert "request 2 is refused" in desk("close", "2", "--as", "refused")
    assert "no request is open" in desk("run", "ranker", "collection", "--yes", *SETTINGS)
    record = json.loads(Path("ranker-run2/unrank.json").read_text())
    assert len(record["removed_before"]) == 1 and record["earlier"] is not None

    # the end: closed, certified, verified, and not let in again
    assert run(["desk", "close", "1"]) == 3
    said = capsys.readouterr().out
    assert said.startswith("request 1 is not closed: 2 places may still remember it")
    assert f"collection {walked / 'collection'}: holds 1 of 1 named" in said
    assert f"ranker {walked / 'ranker'}: was trained on this collection" in said
    for request in "134":
        desk("close", request, "--leave", "other-purpose")
        desk("certificate", request, "--out", f"certificate{request}")
        new = "ranker-run2" if request == "4" else "ranker-run1"
        assert "every file is the one that was certified" in desk("verify", f"certificate{request}", "--ranker", new)
    assert "keyed hashes are left" in desk("show", "1")
    assert run(["filter", "beir:beir", "--ledger", "desk.ledger", "--out", "filtered"]) == 0
    assert run(["import", "beir:filtered", "--out", "next", "--candidates", "10"]) == 0

    names = [f"{CANARY}-query12", *(f"{CANARY}-doc{number}" for number in (1, 10, 12, 15, 17, 18))]
    texts = [json.loads(line)["text"] for line in Path("beir/corpus.jsonl").read_text().splitlines()]
    gone = [name.encode() for name in names] + [text.encode() for text in texts if text.startswith(CANARY)]
    places = [*Path().glob("desk.ledger*"), *Path().glob("ranker-run*"), *Path().glob("certificate*")]
    for path in (path for place in places for path in [place, *place.rglob("*")] if path.is_file()):
        content = path.read_bytes()
        assert CANARY.encode() not in content, path
        assert not [name for name in gone if name in content], path
    for path in Path("filtered").rglob("*.*"):
        rows = path.read_text().splitlines() if path.is_file() else []
        assert not [row for row in rows for name in names if f'"{name}"' in row or name in row.split("\t")]
    check_page(Path("certificate1"))
    check_changes(Path("certificate1"), walked / "desk.ledger", refused, tmp_path)


@pytest.mark.slow
def test_a_target_that_asks_for_nothing_fulfils_nothing(
    walked: Path, capsys: Said, refused: Refused, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No weight changes, no audit is possible: nothing may say that the request was fulfilled."""
    monkeypatch.chdir(walked)
    ledger = ["--ledger", str(tmp_path / "ledger")]
    assert run(["desk", "add", "collection", "--query", f"{CANARY}-query1", *ledger]) == 0
    out = ["--out", str(tmp_path / "new")]
    capsys.readouterr()
    assert run(["desk", "run", "ranker", "collection", "--yes", "--target", "1.0", "--quiet", *ledger, *out]) == 3
    said = capsys.readouterr().out
    assert "target: NOT passed; the forget MRR is 1.000, the target was 1.000, above the default of 0." in said
    assert "audit: NOT passed; in all: undecided; equivalence: needs 2 more references or proxies" in said
    assert "request 1: not forgotten: the target of 1.000 is above the default of 0." in said
    assert "request 1 not forgotten: run again" in said and "fulfilled" not in said
    assert "only a request that a run has settled" in refused(
        "desk", "certificate", 1, "--out", tmp_path / "paper", *ledger
    )
    assert "request 1 is not forgotten: run" in refused("desk", "close", 1, *ledger)
    assert run(["desk", "verify", *ledger]) == 0


def check_changes(certificate: Path, ledger: Path, refused: Refused, tmp_path: Path) -> None:
    """A changed certificate is refused."""
    shutil.copytree(certificate, tmp_path / "certificate")
    generator = random.Random(2)
    for path in sorted((tmp_path / "certificate").iterdir()):
        whole = path.read_bytes()
        for _ in range(5):
            content = bytearray(whole)
            content[generator.randrange(len(content))] ^= generator.randrange(1, 256)
            path.write_bytes(content)
            assert "changed after it was signed" in refused("desk", "verify", path.parent, "--ledger", ledger)
        path.write_bytes(whole)
    assert "signed by another key" in refused("desk", "verify", path.parent, "--public-key", "ab" * 32)


def check_page(certificate: Path) -> None:
    """It opens offline and says what matters."""
    page = (certificate / "certificate.html").read_text()
    for words in (
        "Request 1 is forgotten",
        "What is not claimed",
        "What else must be deleted",
        "compared with 1 reference, given as retrained without the request",
        "2 other requests",
        "What was measured for this request by itself",
    ):
        assert words in page
    assert "http://" not in page and "https://" not in page
    value = read_signed(certificate).value
    assert value["request"]["named"] == {"query": 0, "document": 1, "pair": 0}
    [part] = value["rankers"]
    assert (
        part["done"]["method"] == "cocol" and part["requests"] == 3 and set(part["copies"]) == {"ranker", "collection"}
    )


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ([], "a request must name something"),
        (["--document", "doc1", "--due", "tomorrow"], "--due 'tomorrow' is not a date"),
        (["--document", "doc1", "--received", "2026-02-30"], "'2026-02-30' is not a date"),
        (["--document", "doc1", "--received", "2026-W10-1"], "'2026-W10-1' is not a date"),
        (["--document", "doc1", "--received", "2906-02-03"], "received on 2906-02-03, which is in the future"),
        (["--find", "qqqqqq", "--choose", "1"], "--choose 1: nothing was found to choose from"),
        (["--document", "doc1", "--received", "2026-02-03", "--due", "2026-02-01"], "before it was received"),
        (["--document", "nothing"], "not in the collection: 'nothing'"),
        (["--document", "\udcff"], r"not in the collection: '\udcff'"),
        (["--query", "test1"], "names test queries"),
        (["--document", "more1"], "nothing that it names is a relevant training pair"),
        (["--find", " "], "nothing to look for"),
        (["--find", "ba", "--choose", "99"], "give numbers from 1 to"),
        (["--document", "doc1", "--basis", "whim"], "'whim'"),
        (["--removal", "none.json"], "no such file"),
        (["--pair=query1"], "--pair takes the id of a query"),
        (["--pair", "query1", "doc1", "--pair", "query1", "nothing"], "not in the collection: 'nothing'"),
    ],
)
def test_requests_that_cannot_be(
    refused: Refused, collection: Path, tmp_path: Path, words: list[str], problem: str
) -> None:
    assert problem in refused("desk", "add", collection, *words, "--ledger", tmp_path / "desk.ledger")


def test_a_substitute_is_shown_with_the_document_that_it_replaces(
    refused: Refused, collection: Path, tmp_path: Path, capsys: Said
) -> None:
    named, ledger = tmp_path / "removal.json", str(tmp_path / "desk.ledger")
    named.write_text(json.dumps({"documents": ["doc1"], "substitutes": {"doc1": "doc10"}}))
    add = ["desk", "add", str(collection), "--ledger", ledger]
    assert run([*add, "--removal", str(named)]) == 0
    assert run([*add, "--document", "doc11", "--substitute", "doc11", "doc10"]) == 0
    capsys.readouterr()
    for request, old in ((1, "doc1"), (2, "doc11")):
        assert run(["desk", "show", str(request), "--ledger", ledger]) == 0
        line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("names"))
        assert line.startswith(f"names     document {old}: ") and "; in its place doc10: " in line
    assert run(["desk", "show", "2", "--json", "--ledger", ledger]) == 0
    [item] = json.loads(capsys.readouterr().out)["names"]
    assert (item["document"], item["substitute"]) == ("doc11", "doc10") and item["substitute_text"]
    assert "--substitute OLD NEW" in refused(*add, "--document", "doc0", "--substitute", "doc0")
    wrong = ["--document", "doc0", "--substitute", "doc3", "doc4"]
    assert "'doc3' has a substitute but is not removed: add it to the documents" in refused(*add, *wrong)
    twice = ["--document", "doc0", "--substitute", "doc0", "doc3", "--substitute", "doc0", "doc4"]
    assert "'doc0' has two substitutes: keep one" in refused(*add, *twice)
    assert run(["desk", "close", "1", "--as", "withdrawn", "--ledger", ledger]) == 0
    capsys.readouterr()
    assert run(["desk", "show", "1", "--ledger", ledger]) == 0
    assert "doc10" not in capsys.readouterr().out


def test_ids_in_files(collection: Path, tmp_path: Path, refused: Refused, capsys: Said) -> None:
    """The options of `desk add` are those of `forget`."""
    ledger = tmp_path / "l"
    for name, ids in (("documents", "doc1\ndoc10\n"), ("queries", "query1\n")):
        (tmp_path / f"{name}.txt").write_text(ids)
    files = [f"--documents={tmp_path / 'documents.txt'}", f"--queries={tmp_path / 'queries.txt'}"]
    assert run(["desk", "add", str(collection), *files, "--document", "doc2", "--ledger", str(ledger)]) == 0
    assert f"{tmp_path / 'queries.txt'} names what is to be forgotten: delete it" in capsys.readouterr().out
    with Ledger.open(ledger) as opened:
        named = {(item.query, item.document) for item in opened.items(1)}
        assert named == {(None, "doc1"), (None, "doc10"), (None, "doc2"), ("query1", None)}
    said = refused("desk", "add", collection, "--documents", "doc1", "--ledger", ledger)
    assert said == "doc1: no such file; if that is the id of a document, write --document doc1"


def test_the_filter_takes_the_ledger_that_the_desk_takes(
    collection: Path, beir: Path, tmp_path: Path, capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["desk", "add", str(collection), "--document", "doc1", "--quiet"]) == 0
    capsys.readouterr()
    assert run(["filter", f"beir:{beir}", "--out", "out", "--quiet"]) == 0
    dropped = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in dropped] == ["corpus.jsonl", "qrels/train.tsv"]
    assert all(line.endswith("dropped") and not line.endswith(" 0 dropped") for line in dropped)


def test_several_pairs(collection: Path, tmp_path: Path) -> None:
    one, two = some_pairs()[0][:2]
    pairs = ["--pair", *one, "--pair", *two]
    assert run(["desk", "add", *pairs, str(collection), "--ledger", str(tmp_path / "l")]) == 0
    with Ledger.open(tmp_path / "l") as ledger:
        assert {(item.query, item.document) for item in ledger.items(1)} == {one, two}


def test_what_stands_in_no_pair_is_said_and_filtered(
    collection: Path, beir: Path, tmp_path: Path, capsys: Said
) -> None:
    ledger = str(tmp_path / "l")
    assert run(["desk", "add", str(collection), "--document", "doc1", "--document", "more1", "--ledger", ledger]) == 0
    assert "in no training pair, so no run changes them" in (said := capsys.readouterr().out)
    assert (
        said.splitlines()[1]
        == f"the ledger is new; keep a copy of its key, {ledger}.key, elsewhere: it cannot be replaced"
    )
    assert said.splitlines()[2].endswith(": 'more1'")
    assert run(["filter", f"beir:{beir}", "--ledger", ledger, "--out", str(tmp_path / "out")]) == 0
    kept = {json.loads(line)["_id"] for line in (tmp_path / "out" / "corpus.jsonl").read_text().splitlines()}
    assert "doc2" in kept and not kept & {"doc1", "more1"}


def test_ledgers_that_cannot_be_used(
    refused: Refused, collection: Path, ranker: Path, tmp_path: Path, capsys: Said
) -> None:
    ledger = tmp_path / "desk.ledger"
    assert "give 64 hex digits" in refused("desk", "verify", tmp_path, "--public-key", "")
    for words in (
        ["list"],
        ["show", 1],
        ["close", 1],
        ["plan", ranker, collection],
        ["run", ranker, collection],
        ["verify"],
        ["verify", tmp_path],
    ):
        assert "no such ledger" in refused("desk", *words, "--ledger", ledger)
    assert run(["desk", "add", str(collection), "--document", "doc1", "--ledger", str(ledger)]) == 0
    for number in (7, 10**30):
        assert f"there is no request {number}" in refused("desk", "show", number, "--ledger", ledger)
    assert "request 1 is open: run" in refused("desk", "close", 1, "--ledger", ledger)
    out = tmp_path / "certificate"
    assert "only a request that a run has settled" in refused(
        "desk", "certificate", 1, "--out", out, "--ledger", ledger
    )
    assert "outside (0, 1]" in refused("desk", "run", ranker, collection, "--keep-at-least", 2, "--ledger", ledger)
    key = key_file(ledger)
    key.rename(tmp_path / "elsewhere")
    for command in (
        ["desk", "close", 1],
        ["desk", "run", ranker, collection, "--yes"],
        ["filter", "beir:x", "--out", out],
    ):
        assert "key is not there" in refused(*command, "--ledger", ledger)
    (tmp_path / "elsewhere").rename(key)
    with Ledger.open(ledger) as opened:
        [[trigger]] = opened.ask("SELECT sql FROM sqlite_master WHERE name = 'history_is_not_changed'")
        opened.ask("DROP TRIGGER history_is_not_changed")
        opened.ask("UPDATE history SET details = '{}' WHERE number = 1")
        opened.ask(trigger)
    broken = "history is broken at entry 1 (request 1, added"
    for words in (
        ["desk", "verify"],
        ["desk", "add", collection, "--document", "doc1"],
        ["desk", "close", 1],
        ["desk", "run", ranker, collection, "--yes"],
        ["desk", "plan", ranker, collection],
        ["filter", "beir:x", "--out", out],
    ):
        assert broken in refused(*words, "--ledger", ledger)
    for look, seen in ((["list"], "in all 1 open"), (["show", "1"], "names     document doc1")):
        assert run(["desk", *look, "--ledger", str(ledger)]) == 0
        said = capsys.readouterr()
        assert seen in said.out and broken in said.err and len(said.err.splitlines()) == 1
    with Ledger.open(ledger) as opened:
        opened.ask(f"PRAGMA user_version = {VERSION + 1}")
    assert f"a ledger of version {VERSION + 1}" in refused("desk", "list", "--ledger", ledger)


def test_a_folder_is_no_ledger_and_a_team_keeps_none(
    refused: Refused, collection: Path, ranker: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "a folder, not a ledger" in refused("desk", "add", collection, "--document", "doc1", "--ledger", ".")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert "start it without torchrun" in refused("desk", "run", ranker, collection, "--yes")


def test_what_is_overdue_stands_in_red(
    collection: Path, tmp_path: Path, capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    yesterday = str(date.today() - timedelta(days=1))
    for due in (str(date.today()), yesterday):
        dates = ["--received", "2026-01-01", "--due", due]
        assert run(["desk", "add", str(collection), "--document", "doc1", *dates, "--ledger", str(tmp_path / "l")]) == 0
    capsys.readouterr()
    assert run(["desk", "list", "--ledger", str(tmp_path / "l")]) == 0
    first, second = capsys.readouterr().out.splitlines()[1:3]
    assert "\x1b[31m" in first and "overdue" in first and yesterday in first
    assert "\x1b[31m" not in second
    assert run(["desk", "list", "--json", "--ledger", str(tmp_path / "l")]) == 0
    assert [request["overdue"] for request in json.loads(capsys.readouterr().out)] == [True, False]


def test_a_request_of_another_collection_waits(
    collection: Path, golden_folder: Path, ranker: Path, tmp_path: Path, capsys: Said
) -> None:
    ledger = str(tmp_path / "l")
    assert run(["desk", "add", str(golden_folder), "--document", "d3", "--ledger", ledger]) == 0
    assert run(["desk", "plan", str(ranker), str(collection), "--ledger", ledger]) == 0
    assert "still open, but does not fit this collection: request 1" in capsys.readouterr().out


def test_the_desk_alone_says_what_it_can_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["desk"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert any(line.split()[:1] == ["certificate"] for line in said)


def test_what_another_request_names_too_is_not_said_to_be_gone(
    collection: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger = str(tmp_path / "l")
    for document in (["doc1", "doc2"], ["doc2"], ["doc10"]):
        named = [word for id in document for word in ("--document", id)]
        assert run(["desk", "add", str(collection), *named, "--ledger", ledger]) == 0
    for request, said in ((1, ", except for items that request 2 may name too\n"), (2, f"no longer in {ledger}\n")):
        capsys.readouterr()
        assert run(["desk", "close", str(request), "--as", "withdrawn", "--ledger", ledger]) == 0
        assert capsys.readouterr().out.endswith(said)


def test_where_nothing_can_be_written_no_run_begins(
    refused: Refused, ranker: Path, collection: Path, tmp_path: Path
) -> None:
    ledger = tmp_path / "l"
    assert run(["desk", "add", str(collection), "--document", "doc1", "--ledger", str(ledger)]) == 0
    (tmp_path / "file").touch()
    command = ("desk", "run", ranker, collection, "--yes", "--ledger", ledger)
    assert refused(*command, "--out", tmp_path / "file" / "new").endswith(f"{tmp_path / 'file'} is not a folder")
    assert "nowhere" in refused(*command, "--base", "nowhere")
    with Ledger.open(ledger) as desk:
        assert desk.ask("SELECT count(*) FROM run") == [(0,)]
    made = ("audit", ranker, collection, "--removal", tmp_path / "nothing.json")
    assert refused(*made, "--out", tmp_path / "file" / "new").endswith(f"{tmp_path / 'file'} is not a folder")
