"""A desk to look at: a small town's search, a toy ranker that is trained on the spot, and some requests.

The ranker begins from random weights and is tiny, so that all of it takes less than a minute. Its run and its
certificate are real; its quality is not that of a ranker in use.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
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
ARTICLES, SEARCHES, TESTS = 4, 3, 12
"""The articles of each person, the searches to train on for each article, and all those to test on."""
CANDIDATES = 30
SIZES = {"hidden_size": 128, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 256}
TRAINING = {"learning_rate": "3e-4", "epochs": "12", "batch": "32"}
RATE = "2e-3"
"""With a lower learning rate the pairs do not always come to their places (docs/log.md)."""
AUDITED = 50
"""The number of queries of an audit."""
RUN_WORDS = ("--set", f"learning_rate={RATE}", "--queries", str(AUDITED), "--device", "cpu")
Say = Callable[[str], None]


@dataclass(frozen=True)
class Demo:
    """A desk that is ready to be served."""

    place: Place
    tokens: Path


def make_demo(folder: Path, say: Say) -> Demo:
    """Make a collection, a ranker, and a ledger with requests in several states."""
    say(f"making a desk to look at in {folder}, which takes about a minute")
    collection = build_collection(_town(), folder / "collection", ImportOptions(candidates=CANDIDATES))
    write_random_encoder(folder / "encoder", collection, SIZES)
    options = TrainOptions(recipe_of("bi-encoder", TRAINING), device="cpu")
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
        forget = ForgetOptions(settings={"learning_rate": RATE}, device="cpu")
        options = RunOptions(ranker.ranker, collection.folder, forget, audit_queries=AUDITED)
        run_open(ledger, place.key, options, None, Silence())
        if ledger.request(1).state not in ("open", "not forgotten"):
            write_certificate(ledger, key, 1, place.certificates / "certificate-1")
        add(["viola-2"], today - timedelta(days=40), Basis.consent)
        add(["orlando-3"], today, Basis.licence)


def _town() -> Raw:
    """Return articles by the people of a small town, and searches of four words: one of the article, three of any."""
    choose = random.Random(12)
    author = {
        f"{person.lower()}-{number}": f"{person} of {STREETS[place % len(STREETS)]}"
        for place, person in enumerate(PEOPLE)
        for number in range(1, ARTICLES + 1)
    }
    words = {id: choose.sample(NOUNS, 6) for id in author}
    documents = [Text(id, f"{author[id]} writes about {listing(own)}") for id, own in words.items()]
    asked = [*words] * SEARCHES + choose.sample([*words], TESTS)
    queries = [
        Text(f"search-{number}", " ".join([choose.choice(words[id]), *choose.sample(NOUNS, 3)]))
        for number, id in enumerate(asked, 1)
    ]
    found = [Judgement(query.id, id, 1) for query, id in zip(queries, asked, strict=True)]
    splits = {"train": lambda: found[:-TESTS], "test": lambda: found[-TESTS:]}
    return Raw("town", lambda: queries, lambda: documents, splits)
