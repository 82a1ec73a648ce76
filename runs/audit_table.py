"""A test of the audit on rankers of which it is known what they remember.

For one collection × some rankers × some removals: the original, which remembers; a retrained ranker, which never saw
the removed pairs; the results of forgetting for some targets; and one pushed far below them, to the end of the lists.
All are compared with two further retrained rankers. Prints a Markdown table, writes one audit a line.

    python runs/audit_table.py COLLECTION --out FOLDER [--base MODEL] [--rankers cross-encoder bi-encoder]
        [--removals documents queries] [--share 0.25] [--targets destination-1 unseen] [--bottom 0.02]
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from shared import Lines, base_of, keep, markdown, parser, show

import unrank
from unrank.audit.audit import OF_MEMORY, TESTS
from unrank.audit.verdict import DIFFERENT, Finding, Verdict
from unrank.forgetting.options import Pace
from unrank.forgetting.train import Trained

BOTTOM = "bottom"
HEAD = ["ranker", "removed", "audited", *TESTS, "in all"]

Key = tuple[str, str, str]
"""Ranker, removal, and the name of the audited ranker."""


def audit_all(collection: unrank.Collection, kind: str, arguments: argparse.Namespace) -> dict[Key, unrank.Audit]:
    """Train the original, and for each removal retrain three times, forget twice, and audit all."""
    base, where = base_of(kind, arguments), {"device": arguments.device, "progress": Lines()}
    original = _trained(collection, kind, base, None, arguments, arguments.seed)
    audits: dict[Key, unrank.Audit] = {}
    for removal in arguments.removals:
        removed = unrank.Removal.sample(collection, removal, arguments.share)
        retrained, *references = (
            _trained(collection, kind, base, removed, arguments, arguments.seed + number).ranker for number in range(3)
        )
        audited = {"original": original.ranker, "retrained": retrained}
        for name, target in {**{target: target for target in arguments.targets}, BOTTOM: arguments.bottom}.items():
            audited[name] = _forgotten(collection, original, removed, references[0], target, arguments)
        for name, ranker in audited.items():
            print(f"{kind}, {removal}: audit of {name}", flush=True)
            found = unrank.audit_ranker(
                ranker,
                collection,
                removed,
                original=original.ranker,
                references=references,
                seed=arguments.seed,
                **where,
            )
            audits[kind, removal, name] = found
            with (arguments.out / "audits.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps({"removal": removal, "heard": name, **found.to_json()}) + "\n")
    return audits


def _trained(
    collection: unrank.Collection,
    kind: str,
    base: str | None,
    removed: unrank.Removal | None,
    arguments: argparse.Namespace,
    seed: int,
) -> Trained:
    print(f"{kind}: {'original' if removed is None else f'retrained, seed {seed}'}", flush=True)
    trained = unrank.train(collection, kind, base, removed, seed=seed, device=arguments.device, progress=Lines())
    keep(arguments.out, trained.record)
    return trained


def _forgotten(
    collection: unrank.Collection,
    original: Trained,
    removed: unrank.Removal,
    reference: Any,
    target: str,
    arguments: argparse.Namespace,
) -> Any:
    print(f"{original.ranker.kind}: cocol to {target}", flush=True)
    result = unrank.forget(
        original.ranker,
        collection,
        removed,
        target=target,
        reference=reference,
        record=original.record,
        pace=Pace(watch=0),
        seed=arguments.seed,
        device=arguments.device,
        progress=Lines(),
    )
    keep(arguments.out, result.record)
    return result.ranker


def cell(found: Finding) -> str:
    figure = f"{found.figure.value:.3f} " if found.figure else ""
    return f"{figure}{found.verdict}"


def references_row(key: Key, audit: unrank.Audit) -> list[str]:
    """Return a row with the mean of the references, and their difference."""
    compared = [audit.findings[name].compared for name in TESTS]
    cells = [
        f"{of.reference.value:.3f} ± {abs(of.noise.value):.3f}" if of and of.reference and of.noise else ""
        for of in compared
    ]
    return [*key[:2], "references", *cells, ""]


def summary(audits: dict[Key, unrank.Audit]) -> list[str]:
    rows = [
        [*key, *(cell(audit.findings[name]) for name in TESTS), str(audit.verdict)] for key, audit in audits.items()
    ]
    rows += [references_row(key, audit) for key, audit in audits.items() if key[2] == "original"]
    lines = markdown(HEAD, rows)
    for kind, removal, _ in [key for key in audits if key[2] == "original"]:
        original, retrained, bottom = (audits[kind, removal, who].findings for who in ("original", "retrained", BOTTOM))
        separating = [
            name
            for name in OF_MEMORY
            if original[name].verdict is Verdict.REMEMBERED and retrained[name].verdict not in DIFFERENT
        ]
        caught = [name for name in OF_MEMORY if bottom[name].verdict is Verdict.SUPPRESSED]
        lines.append(
            f"\n{kind}, {removal}: {len(separating)} of {len(OF_MEMORY)} tests separate the original from retrained "
            f"({', '.join(separating) or 'none'}); the bottom is found by {', '.join(caught) or 'none'}"
        )
    return lines


def main() -> None:
    options = parser(__doc__, ["cross-encoder", "bi-encoder"])
    options.add_argument("--removals", nargs="+", default=["documents"])
    options.add_argument("--share", type=float, default=0.25)
    options.add_argument("--targets", nargs="+", default=["destination-1", "unseen"], help="where forgetting is to end")
    options.add_argument("--bottom", default="0.02", help="the target of the ranker that only hides")
    arguments = options.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    collection = unrank.open_collection(arguments.collection)
    print(collection, flush=True)
    audits: dict[Key, unrank.Audit] = {}
    for kind in arguments.rankers:
        audits |= audit_all(collection, kind, arguments)
        show(summary(audits), arguments.out)


if __name__ == "__main__":
    main()
