"""The options of a run. The flags of `unrank forget` are made from these fields, without torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args

from unrank.collection.options import check_names, check_seed, check_whole, flag, seed_flag
from unrank.errors import UnknownName, UnrankError
from unrank.methods import make_method, read_settings

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from unrank.methods.base import Method
else:  # the flags are made from types that can be read without torch
    Method = str

Options = TypeVar("Options", bound="DataclassInstance")
Freeze = Literal["documents"]
DeviceName = Literal["auto", "cpu", "cuda"]
SavedAs = Literal["merged", "adapter"]
METHOD = "cocol"
RENAMED = {"check_recovery": "recovery"}
"""Old names of keywords, and their names today."""

TARGET = (
    "Where to stop: places, so that each forget pair comes to where a ranker that never saw it puts it; or beyond:10, "
    "so that none is among the first 10 of its list. Or a forget MRR: test-mrr, half-unseen, a share such as 50%, a "
    "number; with --reference also destination-1, -2 or -3."
)
BASE = "The encoder, or the word vectors, that the ranker was trained from."
PROXIES = "The folder of prepared proxies; see 'unrank proxies'. By default those that are remembered, or one made now."
PROXY_EPOCHS = (
    "Epochs that a proxy is trained for; by default 2, and 4 if at most a twentieth of the training pairs is removed."
)
LAYERS = "The layers that are trained: a number of last layers, 'head', or 'all-but-embeddings'."
FREEZE = "Train the query side alone: stored document vectors stay valid."
RANK, MOST_RANK = 8, 256
ADAPTER_RATE = 10
"""The learning rate of an adapter if none is given, in units of the method's own (docs/log.md)."""
ADAPT = "Train a new LoRA adapter alone, of this rank (by default 8), and leave all other weights."
SAVED_AS = (
    "What is written: a whole ranker (merged), or the adapter of --adapt alone, which forgets only while it is on."
)
WATCH = (
    "Queries of each kept set to measure at every check; by default 100 on a GPU, and none if the request has fewer "
    "than 100 queries."
)
MEASURE = (
    "Maximal number of queries of each kept set to measure, sampled; 0 for all. By default 3,000; if every pair must "
    "be read with an encoder, 1,000 on a GPU and 100 on a CPU."
)
KEEP_AT_LEAST = (
    "The share of its MRR that each kept set must keep; exit code 3 if one does not. A run to beyond:K stops before "
    "a set falls below it."
)
CHECKPOINTS = "Seconds between checkpoints; a stopped run resumes from the last one."
FOLLOW = "The id of a query whose list 'unrank watch' shows; by default those of a few of each set. Repeatable."
SETTINGS = {
    "help": "A setting of the method; see 'unrank list methods'. Repeatable.",
    "flag": "--set",
    "metavar": "NAME=VALUE",
    "type": list[str] | None,
    "read": lambda given: read_settings(given or ()),
}


def check_share(share: float | None) -> float | None:
    """Return the share that must be kept; refuse a number outside (0, 1]."""
    if share is not None and not (isinstance(share, int | float) and 0 < share <= 1):
        raise UnrankError(f"--keep-at-least {share} is outside (0, 1]")
    return share


def adapter_rank(text: str) -> int:
    """Return the rank of an adapter.

    >>> adapter_rank("lora"), adapter_rank("lora:4")
    (8, 4)
    """
    name, colon, rank = text.partition(":")
    if name != "lora" or (colon and not (rank.isdecimal() and 1 <= int(rank) <= MOST_RANK)):
        raise UnrankError(f"--adapt {text}: expected lora, or lora:RANK with a rank from 1 to {MOST_RANK}")
    return int(rank) if colon else RANK


def change(options: Options, changes: Mapping[str, Any], function: str) -> Options:
    """Return options with some fields changed; refuse a keyword of `function` that is not a field."""
    known = [each.name for each in fields(options)]
    for name in changes:
        if name not in known:
            raise UnknownName(f"option of {function}", name, known)
    return replace(options, **changes)


@dataclass(frozen=True)
class Pace:
    """How often a run is checked, and the longest time that it may take."""

    check_every: int | None = None
    minutes: float | None = None
    watch: int | None = None

    def __post_init__(self) -> None:
        for name, value in (("check_every", self.check_every), ("minutes", self.minutes)):
            if value is not None and not value > 0:
                raise UnrankError(f"{name.replace('_', '-')} must be more than 0, not {value:g}")


@dataclass(frozen=True)
class ForgetOptions:
    """How a ranker is made to forget."""

    method: str | Method = flag(METHOD, "How to forget; see 'unrank list methods'.", type=str)
    preset: str | None = flag(None, "Settings by name: 'paper' is cocol as printed, 'released' as its authors ran it.")
    settings: Mapping[str, str] = field(default_factory=dict, metadata=SETTINGS)
    target: float | str = flag("places", TARGET, type=str)
    base: str | None = flag(None, BASE)
    proxies: str | None = flag(None, PROXIES)
    proxy_epochs: int | None = flag(None, PROXY_EPOCHS, min=1)
    train_layers: int | str | None = flag(None, LAYERS, type=str | None)
    freeze: Freeze | None = flag(None, FREEZE)
    adapt: str | None = flag(None, ADAPT, metavar="lora[:RANK]")
    saved_as: SavedAs = flag("merged", SAVED_AS, flag="--as")
    check_every: int | None = flag(None, "Steps between checks; by default one check each epoch.")
    minutes: float | None = flag(None, "The longest time that the run may take.")
    watch: int | None = flag(None, WATCH, min=0)
    measure: int | None = flag(None, MEASURE, min=0)
    keep_at_least: float | None = flag(None, KEEP_AT_LEAST, callback=check_share)
    recovery: bool = flag(False, "Measure what comes back after one epoch on the kept data.")
    checkpoint_every: float = flag(60.0, CHECKPOINTS, min=0)
    resume: bool = flag(True, "Resume an unfinished run, or start again.", flag="--resume/--no-resume")
    follow: Sequence[str] = flag((), FOLLOW, metavar="ID", type=list[str] | None, read=lambda ids: tuple(ids or ()))
    seed: int = seed_flag()
    device: DeviceName = flag("auto", "The device to compute on.")
    deterministic: bool = flag(False, "Give bit-equal results on a GPU too; slower.")

    def __post_init__(self) -> None:
        Pace(self.check_every, self.minutes, self.watch)  # refuses what is not above 0
        check_seed(self.seed)
        check_share(self.keep_at_least)
        check_names("follow", self.follow)
        if self.measure is not None:
            check_whole("measure", self.measure, 0)
        if not (isinstance(self.method, str) or hasattr(self.method, "run_kind")):
            raise UnrankError(f"a method is a name, or one that make_method returned, not {self.method!r}")
        if self.saved_as not in get_args(SavedAs):
            raise UnknownName("form of a ranker", self.saved_as, get_args(SavedAs))
        if self.rank is None and self.saved_as == "adapter":
            raise UnrankError("--as adapter needs --adapt lora: without it there is no adapter to write")
        if self.target == "unseen":  # another name for it
            object.__setattr__(self, "target", "places")

    @property
    def rank(self) -> int | None:
        """The rank of the adapter that is trained; `None` if there is none."""
        return None if self.adapt is None else adapter_rank(self.adapt)

    def changed(self, **changes: Any) -> ForgetOptions:
        """Return these options with some changed; `pace` replaces its three fields."""
        pace = changes.pop("pace", None)
        given = {**(asdict(pace) if pace is not None else {}), **changes}
        return change(self, {RENAMED.get(name, name): value for name, value in given.items()}, "forget")

    def method_for(self, ranker: str | None) -> Method:
        """Return the method with its settings; those that are not given suit the kind of ranker, and an adapter."""
        if not isinstance(self.method, str):
            return self.method
        method = make_method(self.method, self.settings, ranker, self.preset)
        if self.rank is None or "learning_rate" in self.settings:
            return method
        return replace(method, learning_rate=ADAPTER_RATE * method.learning_rate)
