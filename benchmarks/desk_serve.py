"""Readers and writers of the desk's page at once: no error, no lost entry, and how long an answer takes.

    python benchmarks/desk_serve.py --readers 50 --writers 10 --seconds 60

The server is a process of its own; the clients are threads of this one. Nobody waits between two messages.
"""

from __future__ import annotations

import argparse
import http.client
import random
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from urllib.parse import urlencode

from unrank.collection.build import build_collection
from unrank.collection.options import ImportOptions
from unrank.collection.sources.source import Judgement, Raw, Text
from unrank.desk.history_index import Entry
from unrank.desk.key import key_file
from unrank.desk.ledger import Ledger
from unrank.desk.service import Role as RankerRole
from unrank.desk.service import ServiceRanker, add_ranker
from unrank.serve.people import Role, make_token

DOCUMENTS = 200
FORM = {"content-type": "application/x-www-form-urlencoded"}
PAGES = ("/", "/history", "/runs", "/certificates", "/plan")


@dataclass
class Client:
    """A person with a browser: a connection that is kept, a cookie, and the times of all answers."""

    port: int
    token: str
    times: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    added: int = 0
    cookie: str = ""
    csrf: str = ""

    def __post_init__(self) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        _, page, cookies = self._send("GET", "/sign-in")
        self.cookie = cookies.split(";")[0]
        status, _, cookies = self._post("/sign-in", {"csrf": _csrf(page), "token": self.token})
        assert status == 303, page
        self.cookie = cookies.split(";")[0]
        self.csrf = _csrf(self._send("GET", "/")[1])

    def _send(self, method: str, path: str, body: str | None = None) -> tuple[int, str, str]:
        headers = {"cookie": self.cookie, "origin": f"http://127.0.0.1:{self.port}", **(FORM if body else {})}
        self._connection.request(method, path, body, headers)
        answer = self._connection.getresponse()
        return answer.status, answer.read().decode(), answer.headers.get("set-cookie", "")

    def _post(self, path: str, form: dict[str, str]) -> tuple[int, str, str]:
        return self._send("POST", path, urlencode(form))

    def read(self, path: str) -> None:
        began = time.perf_counter()
        status, text, _ = self._send("GET", path)
        self.times.append(time.perf_counter() - began)
        if status != 200:
            self.errors.append(f"{path}: {status}: {text[-300:]}")

    def add(self, collection: str, document: str) -> None:
        form = {"csrf": self.csrf, "collection": collection, "item": f"document:{document}", "basis": "objection"}
        began = time.perf_counter()
        status, text, _ = self._post("/requests", form)
        self.times.append(time.perf_counter() - began)
        if status == 303:
            self.added += 1
        else:
            self.errors.append(f"add: {status}: {text[-300:]}")


def _csrf(page: str) -> str:
    found = re.search(r'name="csrf" value="([^"]+)"', page)
    assert found is not None, page
    return found.group(1)


def make_desk(folder: Path, writers: int) -> tuple[Path, dict[str, str]]:
    """Make a ledger with one ranker, and tokens for a reader and for each writer."""
    texts = [Text(f"d{number}", f"article {number} about things {number % 17}") for number in range(DOCUMENTS)]
    queries = [Text(f"q{number}", f"things {number}") for number in range(DOCUMENTS)]
    pairs = [Judgement(query.id, text.id, 1) for query, text in zip(queries, texts, strict=True)]
    raw = Raw("served", lambda: queries, lambda: texts, {"train": lambda: pairs})
    collection = build_collection(raw, folder / "collection", ImportOptions(candidates=5))
    path, tokens = folder / "desk.ledger", folder / "desk.ledger.tokens"
    with Ledger.open(path, make_with=key_file(path)) as ledger:
        ledger.key(key_file(path))
        add_ranker(ledger, ServiceRanker("one", RankerRole.retriever, str(folder), str(collection.folder)))
    made = {"reader": make_token(tokens, "reader", [Role.auditor])}
    return path, made | {f"w{number}": make_token(tokens, f"w{number}", [Role.clerk]) for number in range(writers)}


def serve(ledger: Path) -> tuple[subprocess.Popen[str], int]:
    words = ["desk", "serve", "--ledger", str(ledger), "--port", "0", "--posts", "1000000"]
    process = subprocess.Popen([sys.executable, "-m", "unrank", *words], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    found = re.search(r"127\.0\.0\.1:([0-9]+)", process.stdout.readline())
    assert found is not None
    return process, int(found.group(1))


def measure(port: int, tokens: dict[str, str], readers: int, collection: str, seconds: float) -> list[list[Client]]:
    """Let all of them work at once; return the readers and the writers."""
    reading = [Client(port, tokens["reader"]) for _ in range(readers)]
    writing = [Client(port, token) for name, token in tokens.items() if name != "reader"]
    until = time.monotonic() + seconds

    def read(client: Client, choose: random.Random) -> None:
        while time.monotonic() < until:
            known = sum(writer.added for writer in writing)
            own = [f"/requests/{choose.randint(1, known)}"] if known else []
            attempt(client, partial(client.read, choose.choice([*PAGES, *own * len(PAGES)])))

    def write(client: Client, choose: random.Random) -> None:
        while time.monotonic() < until:
            attempt(client, partial(client.add, collection, f"d{choose.randrange(DOCUMENTS)}"))

    work = [(read, client) for client in reading] + [(write, client) for client in writing]
    threads = [
        threading.Thread(target=do, args=(client, random.Random(place))) for place, (do, client) in enumerate(work)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [reading, writing]


def attempt(client: Client, do: Callable[[], None]) -> None:
    """Do it; a connection that breaks is an error."""
    try:
        do()
    except (OSError, http.client.HTTPException) as error:
        client.errors.append(repr(error))
        time.sleep(1)


def report(name: str, clients: list[Client], seconds: float) -> float:
    times = sorted(value for client in clients for value in client.times)
    p95 = statistics.quantiles(times, n=20)[-1] if len(times) > 1 else 0.0
    rate = f"{len(times) / seconds:.0f} a second, median {statistics.median(times) * 1000:.0f} ms"
    print(f"{name}: {len(clients)}, {len(times):,} answers, {rate}, p95 {p95 * 1000:.0f} ms, longest {times[-1]:.2f} s")
    return p95


def lost(ledger: Path, writing: list[Client]) -> int:
    """Return how many requests that were answered are not in the verified history."""
    with Ledger.read(ledger) as desk:
        desk.key(key_file(ledger))
        desk.verify()
        entries = [Entry(*row) for row in desk.ask("SELECT * FROM history WHERE event = 'added'")]
    by = [entry.by for entry in entries]
    return sum(abs(client.added - by.count(f"w{place}")) for place, client in enumerate(writing))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--readers", type=int, default=50)
    parser.add_argument("--writers", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--p95", type=float, default=0.5, help="the longest p95 in seconds that passes")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="desk-serve-") as name:
        ledger, tokens = make_desk(Path(name), given.writers)
        process, port = serve(ledger)
        try:
            collection = str(Path(name) / "collection")
            reading, writing = measure(port, tokens, given.readers, collection, given.seconds)
        finally:
            process.terminate()
            process.wait()
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        p95 = max(report("readers", reading, given.seconds), report("writers", writing, given.seconds))
        errors = [error for client in (*reading, *writing) for error in client.errors]
        missing = lost(ledger, writing)
    answers = sum(len(client.times) for client in (*reading, *writing))
    core = (used.ru_utime + used.ru_stime) / answers * 1000
    print(f"the server used {core:.1f} ms of a core for an answer, its start included")
    print(f"{sum(client.added for client in writing):,} requests added, {missing} lost, {len(errors)} errors")
    for error in errors[:3]:
        print(error)
    sys.exit(1 if errors or missing or p95 > given.p95 else 0)


if __name__ == "__main__":
    main()
