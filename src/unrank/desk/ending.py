"""Ending a request: what still remembers it is looked for; it is closed if nothing does, or if there is a reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from unrank.desk.closing import Ending, Leave, also_named_by, close
from unrank.desk.ledger import Ledger
from unrank.desk.remains import Remains, counted, delete_proxies, find_remains
from unrank.desk.request import SETTLED, State


@dataclass(frozen=True)
class Ended:
    """What came of the wish to end a request."""

    closed: bool
    """Whether it is ended; otherwise something still remembers it."""
    before: State
    state: State
    remains: Remains | None
    """What still remembers it; `None` if nobody looked, because it is not settled."""
    also_named_by: list[int]


@dataclass(frozen=True)
class EndOptions:
    """How a request is ended."""

    instead: Ending | None = None
    """For a request that is not forgotten."""
    look: Sequence[Path] = ()
    """More places to look for what still remembers it."""
    leave: Leave | None = None
    """The reason to close it though something still remembers it."""
    delete_proxies: bool = False


def end_request(ledger: Ledger, id: int, options: EndOptions) -> Ended:
    """End a request, unless something still remembers it and there is no reason to leave that."""
    ledger.verify()
    state, delete = ledger.request(id).state, options.delete_proxies
    looked = state in SETTLED and options.instead is None
    remains = find_remains(ledger, id, options.look) if looked else None
    others = also_named_by(ledger, id)
    blocks = [copy for copy in remains.there if not (delete and copy.kind == "proxy")] if remains else []
    if remains and blocks and options.leave is None:
        return Ended(False, state, state, remains, others)
    remains = delete_proxies(remains) if remains and delete else remains
    instead = State(options.instead.value) if options.instead else None
    ended = close(ledger, id, instead, **_recorded(remains, options.leave))
    return Ended(True, state, ended, remains, others)


def _recorded(remains: Remains | None, leave: Leave | None) -> dict[str, object]:
    """Return what the history records of a closing, without paths."""
    if remains is None:
        return {}
    left = {"left": counted(remains.there), "reason": leave} if remains.there else {}
    return {"deleted": counted(remains.gone), "not_checked": counted(remains.unchecked), **left}
