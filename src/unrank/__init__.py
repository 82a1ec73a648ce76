"""Make a trained neural ranker forget chosen queries or documents, leave the rest alone, and show that it did."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unrank.audit.audit import Audit, audit_ranker
    from unrank.collection.build import import_collection
    from unrank.collection.collection import Collection, open_collection
    from unrank.collection.options import ImportOptions
    from unrank.collection.partition import Partition
    from unrank.collection.partition import make_partition as partition
    from unrank.collection.removal import Removal
    from unrank.errors import UnrankError
    from unrank.evaluation.scorecard import Scorecard
    from unrank.forgetting.evaluate import evaluate
    from unrank.forgetting.forget import Forgotten, forget
    from unrank.forgetting.options import ForgetOptions, Pace
    from unrank.forgetting.train import train
    from unrank.methods import METHODS, make_method
    from unrank.rankers import RANKERS, load_ranker
    from unrank.record import read_record

__version__ = "0.2.0"

# Where each public name lives: torch is imported when a name that needs it is first used.
_HOMES = {
    "Audit": "audit.audit",
    "Collection": "collection.collection",
    "ForgetOptions": "forgetting.options",
    "Forgotten": "forgetting.forget",
    "ImportOptions": "collection.options",
    "METHODS": "methods",
    "Pace": "forgetting.options",
    "Partition": "collection.partition",
    "RANKERS": "rankers",
    "Removal": "collection.removal",
    "Scorecard": "evaluation.scorecard",
    "UnrankError": "errors",
    "audit_ranker": "audit.audit",
    "evaluate": "forgetting.evaluate",
    "forget": "forgetting.forget",
    "import_collection": "collection.build",
    "load_ranker": "rankers",
    "make_method": "methods",
    "open_collection": "collection.collection",
    "partition": "collection.partition",
    "read_record": "record",
    "train": "forgetting.train",
}

_RENAMED = {"partition": "make_partition"}

__all__ = [
    "METHODS",
    "RANKERS",
    "Audit",
    "Collection",
    "ForgetOptions",
    "Forgotten",
    "ImportOptions",
    "Pace",
    "Partition",
    "Removal",
    "Scorecard",
    "UnrankError",
    "audit_ranker",
    "evaluate",
    "forget",
    "import_collection",
    "load_ranker",
    "make_method",
    "open_collection",
    "partition",
    "read_record",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'unrank' has no attribute {name!r}")
    home = importlib.import_module(f"unrank.{_HOMES[name]}")
    return getattr(home, _RENAMED.get(name, name))


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
