"""A run that is killed at random goes on: the ledger is whole, no request is lost or done twice."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
from pathlib import Path
from time import monotonic

import pytest

from tests.tiny import make_bi_encoder
from unrank.cli.main import run
from unrank.collection.collection import Collection
from unrank.desk.closing import scrub
from unrank.desk.counter import Counter
from unrank.desk.key import key_file
from unrank.desk.ledger import Ledger
from unrank.desk.request import State
from unrank.desk.trust import is_own
from unrank.disk import sha256

ROOT = Path(__file__).parents[2]
NAMED = (["--document", "doc1"], ["--query", "query5", "--query", "query3"], ["--query", "query4"])

WRITER = """
import sys
from pathlib import Path
from datetime import date
from unrank.desk.closing import close
from unrank.desk.key import key_file
from unrank.desk.ledger import Ledger
from unrank.desk.request import Item, State
from unrank.desk.trust import rotate

path = Path(sys.argv[1])
print("ready", flush=True)
while True:
    with Ledger.open(path) as ledger:
        key = ledger.key(key_file(path))
        id = ledger.add([Item(document="d", document_text="a text")], date(2026, 1, 1), date(2026, 2, 1), "other", key)
        close(ledger, id.id, State.REFUSED)
        rotate(ledger, key_file(path))
"""


def prepared(folder: Path, dense: Collection, encoder: Path) -> Path:
    """A ranker, a collection, and a ledger with three open requests."""
    shutil.copytree(dense.folder, folder / "collection")
    make_bi_encoder(encoder, folder / "ranker")
    for named in NAMED:
        assert run(["desk", "add", str(folder / "collection"), *named, "--ledger", str(folder / "desk.ledger")]) == 0
    return folder


def kill(folder: Path, dense: Collection, encoder: Path, kills: int) -> int:
    for name in ("whole", "killed"):
        (folder / name).mkdir()
        prepared(folder / name, dense, encoder)
    command = [sys.executable, "-m", "tests.desk.killer", str(folder), str(kills)]
    done = subprocess.run(command, cwd=ROOT, stderr=subprocess.PIPE, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    return int(done.stderr.splitlines()[-1])


def check(folder: Path) -> None:
    with Ledger.open(folder / "killed" / "desk.ledger") as ledger:
        ledger.verify()
        for request in ledger.requests(list(State)):
            events = [entry.event for entry in ledger.history(request.id)]
            taken = request.id <= len(NAMED)  # a later one came while the run was unfinished, and waits
            assert request.state is (State.FORGOTTEN if taken else State.OPEN)
            assert events == (["added", "forgotten"] if taken else ["added"])
        assert ledger.counts()[State.FORGOTTEN] == len(NAMED)
        assert ledger.ask("SELECT state, count(*) FROM run GROUP BY state") == [("passed", 1)]
        assert ledger.ask("SELECT count(*) FROM history WHERE event = 'run begun'") == [(1,)]
    made = [folder / name / "ranker-run1" / "model.safetensors" for name in ("whole", "killed")]
    assert sha256(made[0]) == sha256(made[1])
    assert not [*folder.rglob("*.partial-*"), *folder.rglob("*.unfinished")]


@pytest.mark.slow
@pytest.mark.parametrize("times", [2, 20])
def test_a_run_that_is_killed_again_and_again_goes_on(
    dense: Collection, encoder: Path, tmp_path: Path, times: int
) -> None:
    assert kill(tmp_path, dense, encoder, times) >= 1
    check(tmp_path)


@pytest.mark.parametrize("kills", [3, pytest.param(60, marks=pytest.mark.slow)])
def test_a_ledger_whose_writers_are_killed_is_never_taken_for_a_rolled_back_one(tmp_path: Path, kills: int) -> None:
    """Nor for a changed one, while somebody else writes."""
    path, generator = tmp_path / "desk.ledger", random.Random(4)
    with Ledger.open(path, make_with=key_file(path)) as ledger:
        ledger.key(key_file(path))
    for _ in range(kills):
        process = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE)
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        until = monotonic() + generator.uniform(0.02, 0.4)
        while monotonic() < until:
            with Ledger.read(path) as read:
                assert is_own(read, key_file(path))
                read.verify()
        process.kill()
        process.wait()
        process.stdout.close()
        with Ledger.open(path) as ledger:
            assert ledger.key(key_file(path)).public == ledger.about("public_key")
            ledger.verify()
            scrub(ledger)
            assert not ledger.notes and Counter.read(ledger.about("key")) == Counter(*ledger.head())
