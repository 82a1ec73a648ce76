"""A cost model of large collections, large rankers and many requests, fitted to measured rates; a simulation checks it.

`python benchmarks/scale.py` prints the tables of docs/scale.md. The rates are read from `results/speed-h200*.json` and
`results/million-h200.json`. What is assumed and not measured is a constant here, and says so. Nothing is run.
"""

from __future__ import annotations

import json
import random
from bisect import bisect_right
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import mean

from arithmetic import PEAK, WITH_GRADIENTS

RESULTS = Path(__file__).parents[1] / "results"
DAY = 86_400.0
LIMIT = PEAK["NVIDIA H200"]
H200_GIB = 139

# Measured, but not in a file of results/: docs/reference/speed.md has them.
STEP_SECONDS = 0.014
"""The least that a step of CoCoL takes of the host: 12 to 16 ms."""
LIST, KEPT_QUERIES = 101, 1_000
"""The pairs of a list, and the most queries that are measured of each kept set."""
PAIRS_A_DOCUMENT, QUERIES_A_DOCUMENT = 2.44, 2.08
"""Of TREC CAR: a hundred documents are 244 pairs of 208 queries."""
EPOCHS, HELD, LEAST_STEPS = 6, 8, 16
PROXY_PAIRS, PROXY_EPOCHS = 20_000, 2
COLLECTION_SECONDS = 1.33e-6
"""For each pair: open, partition and draw an epoch, of a million documents and pairs (growth table, two busy cores)."""
CPU_PAIRS, CPU_REUSE = 1_076.0, 43
"""Pairs of lists that a bi-encoder on MiniLM scores a second on two CPU cores, each document being in 43 of them."""

# Assumed.
START_SECONDS = 5.0
DISK_BYTES = 1e9
PAIR_TOKENS, PASSAGE_TOKENS = 120, 100
DOCUMENTS_A_REQUEST = 10
REQUESTS_A_DAY = 1_000


@dataclass(frozen=True)
class Encoder:
    """The size of a ranker's encoder."""

    name: str
    weights: float
    matrices: float
    """The weights of its matrices, each of which costs two operations a token."""
    layers: int
    width: int

    def operations(self, tokens: int) -> float:
        """Return the operations of one pass over a text."""
        return tokens * (2 * self.matrices + 4 * self.layers * tokens * self.width)


ENCODERS = (
    Encoder("MiniLM, 22 M", 22e6, 10.6e6, 6, 384),
    Encoder("DistilBERT, 66 M", 66e6, 42.5e6, 6, 768),
    Encoder("BERT-base, 110 M", 110e6, 85e6, 12, 768),
    Encoder("decoder, 0.6 B", 0.6e9, 0.44e9, 28, 1_024),
    Encoder("decoder, 8 B", 8.2e9, 6.95e9, 36, 4_096),
)
MEASURED = {"MiniLM, 22 M": "", "DistilBERT, 66 M": "-distilbert", "BERT-base, 110 M": "-bert-base"}
"""Encoders with a file of rates, and what its name ends with."""
COLLECTIONS = {"9 million": (9e6, 0.5e6), "1 billion": (1e9, 50e6)}
"""Passages and training pairs; the pairs are assumed."""


@cache
def figure(encoder: str, what: str, key: str) -> float:
    """Return a measured figure of a cross-encoder on the H200, at the largest batch."""
    found = json.loads((RESULTS / f"speed-h200{MEASURED[encoder]}.json").read_text())["figures"]
    rows = [row for row in found if (row["ranker"], row["what"]) == ("cross-encoder", what)]
    row = max(rows, key=lambda row: row["batch"])
    return float(row["ours"]["a_second"] if key == "a_second" else row[key])


def share(encoder: Encoder, what: str) -> float:
    """Return the share of the arithmetic limit: measured, or the mean of the two encoders that are 768 wide."""
    if encoder.name in MEASURED:
        return figure(encoder.name, what, "share")
    return mean(figure(name, what, "share") for name in MEASURED if name != "MiniLM, 22 M")


@cache
def rate(encoder: Encoder, what: str, tokens: int = PAIR_TOKENS) -> float:
    """Return texts scored a second, or samples of two texts stepped on."""
    cost = encoder.operations(tokens) * (1 if what == "score" else 2 * WITH_GRADIENTS)
    return share(encoder, what) * LIMIT / cost


@cache
def tokenise_rate() -> float:
    """Return texts tokenised a second: fitted to what is left of the run of a million documents, not measured alone."""
    run = json.loads((RESULTS / "million-h200.json").read_text())
    queries = run["before"]["disjoint"]["queries"] + run["before"]["test"]["queries"] + 200
    scoring = 2 * queries * LIST / rate(ENCODERS[0], "score")
    rest = run["seconds"] - sum(run["timing"].values()) - scoring - START_SECONDS
    return float(queries * LIST / (rest - run["pairs"] * COLLECTION_SECONDS))


@dataclass(frozen=True)
class Cost:
    """The seconds of one run on one H200, by part."""

    start: float
    collection: float
    tokens: float
    measuring: float
    proxy: float
    steps: float

    @property
    def seconds(self) -> float:
        return self.start + self.collection + self.tokens + self.measuring + self.proxy + self.steps


def run_cost(encoder: Encoder, pairs: float, requests: float = 1, prepared: bool = False) -> Cost:
    """Return what one run of a cross-encoder costs that forgets these requests together."""
    documents = requests * DOCUMENTS_A_REQUEST
    forget, queries = documents * PAIRS_A_DOCUMENT, documents * QUERIES_A_DOCUMENT
    measured = queries + min(KEPT_QUERIES, queries) + 2 * KEPT_QUERIES
    steps = max(EPOCHS * LEAST_STEPS * STEP_SECONDS, EPOCHS * forget * (1 + HELD) / 2 / rate(encoder, "cocol"))
    return Cost(
        start=START_SECONDS + 2 * 4 * encoder.weights / DISK_BYTES,
        collection=pairs * COLLECTION_SECONDS,
        tokens=measured * LIST / tokenise_rate(),
        measuring=2 * measured * LIST / rate(encoder, "score"),
        proxy=0 if prepared else PROXY_EPOCHS * PROXY_PAIRS / rate(encoder, "train"),
        steps=steps,
    )


def memory(encoder: Encoder) -> tuple[float, float]:
    """Return GiB of weights: all trained (student, gradient, two moments, teacher), and with an adapter (one copy)."""
    return 20 * encoder.weights / 2**30, 4 * encoder.weights / 2**30


def encode_hours(encoder: Encoder, passages: float) -> float:
    """Return the hours of one H200 that encode all passages once."""
    return passages / rate(encoder, "score", PASSAGE_TOKENS) / 3_600


def steady_batch(encoder: Encoder, pairs: float, a_day: float = REQUESTS_A_DAY) -> float:
    """Return how many requests a run takes in the long run, if it takes all that came during the one before."""
    batch = 1.0
    for _ in range(200):
        batch = max(1.0, a_day / DAY * run_cost(encoder, pairs, batch).seconds)
        if batch > 1e6:
            return float("inf")
    return batch


@dataclass(frozen=True)
class Simulated:
    """A simulated desk: requests a run on average, its share of the time, the longest wait, and what is left open."""

    batch: float
    busy: float
    longest_wait: float
    left: int


def simulate(
    encoder: Encoder, pairs: float, together: bool, days: int = 20, a_day: float = REQUESTS_A_DAY, seed: int = 0
) -> Simulated:
    """Simulate a desk with one GPU: requests come at random, and each run takes one, or all that are open."""
    draw, clock, coming = random.Random(seed), 0.0, 0.0
    arrivals = list[float]()
    while (coming := coming + draw.expovariate(a_day / DAY)) < days * DAY:
        arrivals.append(coming)
    done, busy, batches, longest = 0, 0.0, list[int](), 0.0
    while done < len(arrivals) and clock < days * DAY:
        clock = max(clock, arrivals[done])
        taken = bisect_right(arrivals, clock) - done if together else 1
        seconds = run_cost(encoder, pairs, taken).seconds
        longest = max(longest, clock + seconds - arrivals[done])
        clock, busy, done = clock + seconds, busy + seconds, done + taken
        batches.append(taken)
    return Simulated(mean(batches), busy / max(clock, days * DAY), longest, len(arrivals) - done)


def rows_of_rates() -> list[str]:
    """Return the table of rates: measured where there is a file, modelled otherwise."""
    rows = ["| encoder | pairs scored / s | samples / s | weights, all trained, GiB | with an adapter, GiB | |"]
    rows.append("| --- | --- | --- | --- | --- | --- |")
    for each in ENCODERS:
        known = each.name in MEASURED
        scored, steps = (
            (figure(each.name, what, "a_second") if known else rate(each, what)) for what in ("score", "cocol")
        )
        whole, adapter = memory(each)
        origin = "rates measured" if known else "modelled"
        rows.append(f"| {each.name} | {scored:,.0f} | {steps:,.0f} | {whole:,.1f} | {adapter:,.1f} | {origin} |")
    return rows


def rows_of_requests() -> list[str]:
    """Return the table of requests: one alone, a day of them one by one, and one run a day. All modelled."""
    rows = [
        "| passages | encoder | one request, s | measuring | 1,000 one by one, h | one run a day, h | steady batch |"
    ]
    rows.append("| --- | --- | --- | --- | --- | --- | --- |")
    for name, (_, pairs) in COLLECTIONS.items():
        for each in ENCODERS:
            one, day = run_cost(each, pairs), run_cost(each, pairs, REQUESTS_A_DAY)
            alone = REQUESTS_A_DAY * one.seconds / 3_600
            rows.append(
                f"| {name} | {each.name} | {one.seconds:,.0f} | {one.measuring / one.seconds:.2f} | {alone:,.0f} "
                f"| {day.seconds / 3_600:,.1f} | {steady_batch(each, pairs):,.0f} |"
            )
    return rows


def rows_of_encoding() -> list[str]:
    """Return the table of encoding: hours of one H200, and the size of the vectors. All modelled."""
    rows = ["| passages | encoder | encode all, h | vectors, GiB |", "| --- | --- | --- | --- |"]
    for name, (passages, _) in COLLECTIONS.items():
        for each in ENCODERS:
            size = 4 * each.width * passages / 2**30
            rows.append(f"| {name} | {each.name} | {encode_hours(each, passages):,.2f} | {size:,.0f} |")
    return rows


def rows_of_simulation() -> list[str]:
    """Return the table of the simulation beside the formula."""
    rows = [
        "| encoder | taken | busy | requests a run: simulated, formula | longest wait, h | left open after 20 days |"
    ]
    rows.append("| --- | --- | --- | --- | --- | --- |")
    pairs = COLLECTIONS["9 million"][1]
    for each in (ENCODERS[0], ENCODERS[2], ENCODERS[3], ENCODERS[4]):
        for together in (False, True):
            found = simulate(each, pairs, together)
            formula = steady_batch(each, pairs) if together else 1
            rows.append(
                f"| {each.name} | {'all that is open' if together else 'one by one'} | {found.busy:.2f} "
                f"| {found.batch:,.1f}, {formula:,.1f} | {found.longest_wait / 3_600:,.1f} | {found.left:,} |"
            )
    return rows


TABLES = (rows_of_rates, rows_of_encoding, rows_of_requests, rows_of_simulation)

if __name__ == "__main__":
    print("\n\n".join("\n".join(table()) for table in TABLES))
