"""Any dataset of ir_datasets, by its id; ir_datasets downloads the files that are missing.

The judgements of the id itself are the split `train`. The test split is another id over the same documents, such as
`msmarco-passage/dev/small`. A text is the default text that ir_datasets defines for a query or a document. If every id
in use has scored documents, they are the candidates, the highest score first. Documents of equal score keep their
order.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from textwrap import shorten
from typing import Any

from unrank.collection.sources.source import Judgement, Ranked, Raw, Text, best_first
from unrank.errors import UnrankError, listed

Datasets = Mapping[str, Any]


def read_irds(location: str, test_split: str | None) -> Raw:
    """Read the dataset with the id `location`, and test on the id `test_split`."""
    tests = {} if test_split is None else {test_split: _load(test_split)}
    return raw_from_dataset(location, _load(location), tests)


def raw_from_dataset(name: str, dataset: Any, tests: Datasets | None = None) -> Raw:
    """Read a dataset object of ir_datasets to train on, and others, by name, to test on."""
    tests = tests or {}
    datasets = {name: dataset, **tests}
    _check_parts(name, dataset, "docs")
    for each, its_dataset in datasets.items():
        _check_parts(each, its_dataset, "queries", "qrels")
    scored = all(each.has_scoreddocs() for each in datasets.values())
    return Raw(
        name=name,
        queries=partial(_queries, datasets),
        documents=partial(_texts, name, dataset.docs_iter, "doc_id"),
        splits={
            "train": partial(_judgements, name, dataset),
            **{each: partial(_judgements, each, test) for each, test in tests.items()},
        },
        candidates=partial(best_first, partial(_scored, datasets)) if scored else None,
    )


def _load(id: str) -> Any:
    try:
        import ir_datasets
    except ImportError as error:
        raise UnrankError("the source irds: needs ir_datasets: pip install 'unrank[irds]'") from error
    try:
        return ir_datasets.load(id)
    except KeyError as error:
        near = difflib.get_close_matches(id, list(ir_datasets.registry), n=1, cutoff=0.4)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise UnrankError(f"unknown ir_datasets id {id!r}: {hint}all are listed at https://ir-datasets.com") from error
    except Exception as error:  # some ids download their own description
        raise _failure(id, error) from error


def _check_parts(name: str, dataset: Any, *parts: str) -> None:
    missing = [part for part in parts if not dataset.has(part)]
    if missing:
        raise UnrankError(f"irds:{name} has no {' and no '.join(missing)}; name a part of it that has{_children(name)}")


def _children(name: str) -> str:
    import ir_datasets

    ids = [id for id in ir_datasets.registry if id.startswith(f"{name}/") and ir_datasets.registry[id].has_qrels()]
    return f", such as {listed(ids, most=3)}" if ids else ""


def _queries(datasets: Datasets) -> Iterator[Text]:
    """Yield the queries of all datasets, each id once."""
    seen: dict[str, int] = {}
    for name, dataset in datasets.items():
        for query in _texts(name, dataset.queries_iter, "query_id"):
            if query.id not in seen:
                yield query
            if seen.setdefault(query.id, hash(query.text)) != hash(query.text):
                raise UnrankError(f"irds:{name}: the query id {query.id!r} has two texts; ids must be unique")


def _texts(name: str, items: Callable[[], Iterable[Any]], key: str) -> Iterator[Text]:
    for item in _items(name, items):
        if hasattr(item, "default_text"):
            text = item.default_text()
        elif hasattr(item, "text"):
            text = item.text
        else:
            raise UnrankError(f"irds:{name}: ir_datasets does not say which of {', '.join(item._fields)} is the text")
        yield Text(getattr(item, key), text or "")


def _judgements(name: str, dataset: Any) -> Iterator[Judgement]:
    for qrel in _items(name, dataset.qrels_iter):
        yield Judgement(qrel.query_id, qrel.doc_id, int(qrel.relevance))


def _scored(datasets: Datasets) -> Iterator[Ranked]:
    for name, dataset in datasets.items():
        for scored in _items(name, dataset.scoreddocs_iter):
            yield Ranked(scored.query_id, scored.doc_id, -scored.score)


def _items(name: str, items: Callable[[], Iterable[Any]]) -> Iterator[Any]:
    """Yield the items; an error while ir_datasets downloads or reads them becomes one line."""
    try:
        yield from items()
    except Exception as error:
        raise _failure(name, error) from error


def _failure(name: str, error: Exception) -> UnrankError:
    reason = shorten(str(error), 200) or type(error).__name__
    if isinstance(error, ImportError):
        return UnrankError(f"irds:{name}: {reason}")
    return UnrankError(f"irds:{name} could not be downloaded or read ({reason}); check the network, then try again")
