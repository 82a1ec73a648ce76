"""A desk to look at: a small town's search, a toy ranker that is trained on the spot, and some requests.

The ranker begins from random weights and is tiny, so that all of it takes less than a minute. Its run and its
certificate are real; its quality is not that of a ranker in use.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import chain
from pathlib import Path

from unrank.collection.build import build_collection
from unrank.collection.collection import Collection
from unrank.collection.options import ImportOptions
from unrank.collection.removal import Removal
from unrank.collection.sources.source import Judgement, Raw, Text
from unrank.desk.certificate import write_certificate
from unrank.desk.intake import add_request, touched
from unrank.desk.key import key_file
from unrank.desk.ledger import Ledger
from unrank.desk.request import Basis, month_after
from unrank.desk.run import run_open
from unrank.desk.run_options import RunOptions
from unrank.desk.service import Role as RankerRole
from unrank.desk.service import ServiceRanker, add_ranker
from unrank.engine.runtime import Silence
from unrank.forgetting.options import ForgetOptions
from unrank.forgetting.train import TrainOptions, recipe_of, train
from unrank.rankers.random_encoder import write_random_encoder
from unrank.report.wording import listing
from unrank.serve.office import Place
from unrank.serve.people import Role, make_token

PEOPLE = ("Quixote", "Dulcinea", "Sancho", "Rosalind", "Orlando", "Viola", "Hermia", "Prospero", "Perdita", "Lear")
STREETS = ("Mill Street", "Harbour Road", "Castle Lane", "Orchard Row", "Station Square")
NOUNS = (
    "amber", "anchor", "apple", "arrow", "basket", "beacon", "bell", "bicycle", "blanket", "bottle", "bridge",
    "brush", "bucket", "button", "cabin", "candle", "canvas", "carpet", "castle", "cherry", "chimney", "clock",
    "cloud", "copper", "cradle", "crown", "curtain", "daisy", "drum", "falcon", "feather", "fiddle", "flute",
    "forest", "fountain", "garden", "glove", "hammer", "harbour", "hedge", "honey", "island", "ivory", "kettle",
    "ladder", "lantern", "lemon", "linen", "lion", "marble", "meadow", "mirror", "needle", "oak", "orchard", "otter",
    "oven", "paper", "pearl", "pepper", "pillow", "pine", "plum", "pocket", "pony", "rabbit", "raven", "ribbon",
    "river", "rope", "saddle", "sail", "salt", "shell", "silver", "spade", "sparrow", "spoon", "stone", "stove",
    "sugar", "table", "thistle", "thunder", "tiger", "tower", "trumpet", "tulip", "tunnel", "velvet", "violin",
    "wagon", "walnut", "whistle", "willow", "window", "winter", "wool",
)  # fmt: skip
ARTICLES, QUERIES, TESTS = 3, 18, 6
"""Articles of each person, and searches to train and to test on."""
SETTINGS = {"learning_rate": "1e-3", "epochs": "30"}
RUN_WORDS = ("--set", "learning_rate=1e-3", "--set", "epochs=30", "--queries", "50", "--device", "cpu")
Say = Callable[[str], None]


@dataclass(frozen=True)
class Demo:
    """A desk that is ready to be served."""

    place: Place
    tokens: Path


def make_demo(folder: Path, say: Say) -> Demo:
    """Make a collection, a ranker, and a ledger with requests in several states."""
    say(f"making a desk to look at in {folder}, which takes about a minute")
    collection = build_collection(_town(), folder / "collection", ImportOptions(candidates=10))
    write_random_encoder(folder / "encoder", collection)
    recipe = recipe_of("bi-encoder", {"learning_rate": "1e-3", "epochs": "4", "batch": "48"})
    options = TrainOptions(recipe, device="cpu")
    train(collection, "bi-encoder", str(folder / "encoder"), options=options, progress=Silence()).save(
        folder / "ranker"
    )
    ledger = folder / "desk.ledger"
    place = Place(ledger, key_file(ledger), folder / "certificates", RUN_WORDS)
    _fill(place, folder, collection)
    tokens = folder / "desk.tokens"
    for role in Role:
        say(f"sign in as {role.value}: {make_token(tokens, role.value, [role])}")
    say(f"sign in with all roles: {make_token(tokens, 'chief', list(Role))}")
    return Demo(place, tokens)


def _fill(place: Place, folder: Path, collection: Collection) -> None:
    """Add a request and run it; then add two more, of which one is overdue."""
    today = date.today()
    ranker = ServiceRanker("search", RankerRole.retriever, str(folder / "ranker"), str(collection.folder))
    with Ledger.open(place.ledger, make_with=place.key, by="demo") as ledger:
        key = ledger.key(place.key)
        add_ranker(ledger, ranker)

        def add(documents: Sequence[str], received: date, basis: Basis) -> None:
            found = touched(collection, Removal([], list(documents)), leave_copies=False)
            add_request(ledger, key, collection, found, (received, month_after(received)), basis)

        add(["dulcinea-3"], today - timedelta(days=20), Basis.objection)
        forget = ForgetOptions(settings=SETTINGS, device="cpu")
        run_open(
            ledger, place.key, RunOptions(ranker.ranker, collection.folder, forget, audit_queries=50), None, Silence()
        )
        if ledger.request(1).state not in ("open", "not forgotten"):
            write_certificate(ledger, key, 1, place.certificates / "certificate-1")
        add(["viola-2"], today - timedelta(days=40), Basis.consent)
        add(["orlando-3"], today, Basis.licence)


def _town() -> Raw:
    """Return articles by the people of a small town, and searches that somebody judged."""
    choose = random.Random(12)
    documents = [
        Text(
            f"{person.lower()}-{number + 1}",
            f"{person} of {STREETS[place % len(STREETS)]} writes about {listing(choose.sample(NOUNS, 6))}",
        )
        for place, person in enumerate(PEOPLE)
        for number in range(ARTICLES)
    ]
    queries = [Text(f"search-{number + 1}", " ".join(choose.sample(NOUNS, 4))) for number in range(QUERIES + TESTS)]
    found = [
        [Judgement(query.id, document.id, 1) for document in choose.sample(documents, 3 if place < QUERIES else 1)]
        for place, query in enumerate(queries)
    ]
    splits = {"train": lambda: chain(*found[:QUERIES]), "test": lambda: chain(*found[QUERIES:])}
    return Raw("town", lambda: queries, lambda: documents, splits)
