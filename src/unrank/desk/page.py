"""The page of a certificate, on paper or on a screen."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter

from unrank.audit.verdict import Verdict
from unrank.desk.gates import UNTOUCHED
from unrank.desk.history_index import Json
from unrank.errors import count
from unrank.parse import parse
from unrank.record import SETS, PreviousMrr
from unrank.report.page import Card, Markup, Page, Section, element, paragraph
from unrank.report.table import Table, facts, figure, to_html, words
from unrank.report.wording import duration

PAIRS_SHOWN = 20
ONE = {"queries": "query", "documents": "document", "pairs": "pair"}


def _heading(request: Json, run: Json) -> str:
    """Return the first sentence. Earlier versions fulfilled requests without these checks; it says so."""
    if run["audit"]["verdict"] == Verdict.UNKNOWN:
        return "was run, but whether it is forgotten cannot be known."
    if not request.get("result"):
        return "was run by an earlier version of unrank, which did not measure it by itself."
    return "was fulfilled."


def _is_late(request: Json) -> bool:
    return bool(request["fulfilled"][:10] > request["due"])


def certificate_page(value: Json, public_key: str) -> Page:
    request, run = value["request"], value["run"]
    record = run["record"]
    named = ", ".join(count(number, kind) for kind, number in request["named"].items() if number)
    target, own = f"target {record['target']:.3f}", request.get("result")
    whole = "Forget MRR" if run["requests"] == 1 else f"Forget MRR of all {run['requests']:,} requests"
    cards = [
        Card("Named", named),
        *([Card("MRR of this request", f"{own['mrr_before']:.3f} → {own['mrr_after']:.3f}", target)] if own else []),
        Card(whole, f"{_mrr(record, 'before')} → {_mrr(record, 'after')}", target),
        Card("Audit, in all", Verdict(run["audit"]["verdict"]).short),
        Card("Fulfilled", request["fulfilled"][:10], f"{'late: ' * _is_late(request)}due {request['due']}"),
    ]
    together = "It was the only request of its run."
    if run["requests"] > 1:
        others = count(run["requests"] - 1, "other request")
        left = f", {run['still_open']} of which stayed open" if run.get("still_open") else ""
        together = f"It was run together with {others}{left}. Figures are of all of them, unless stated otherwise."
    if not record["epochs"]:
        together += f" The new ranker is the old one: {UNTOUCHED}."
    sections = [
        _asked(request),
        _done(run, own),
        _measured(run, own),
        _audited(run),
        _deleted(value),
        _not_claimed(value),
    ]
    return Page(
        f"Certificate of forgetting, made on {value['made'][:10]} by {value['made_by']}",
        f"Request {request['id']} {_heading(request, run)}",
        together,
        cards,
        [*sections, _signed(value, public_key)],
    )


def _asked(request: Json) -> Section:
    rows = {name: request[name] for name in ("id", "received", "due", "basis", "state")}
    rows |= {"keyed hash of its items": request["keyed_hashes"]}
    text = "The items that the request named are not written here."
    return Section("asked", "Asked", "What was asked", [paragraph(text), facts("The request", rows)])


def _done(run: Json, own: Json | None) -> Section:
    record = run["record"]
    how = {
        "method": record["method"],
        "ranker": record["ranker"],
        "collection": f"{record['collection']['name']} ({record['collection']['fingerprint']})",
        "removed in all": ", ".join(count(number, ONE[kind]) for kind, number in run["removed"].items() if number),
        "target": f"{record['target_name']} ({record['target']:.4f})",
        "seed": record["seed"],
        "epochs": record["epochs"],
        "took": duration(record["seconds"]),
        "device": record["device"],
        "stored document vectors": {None: "none", True: "still valid", False: "stale"}[record["index_valid"]],
    }
    gates = [
        [words(gate["name"]), words("passed" if gate["passed"] else "failed"), words(gate["words"])]
        for gate in run["gates"]
    ]
    if own:
        gates.append([words("this request by itself"), words("passed"), words(_own_words(own))])
    content = [
        facts("How", how),
        facts("Settings", record["settings"]),
        to_html(Table("gates", "What the run had to show", ["gate", "", "found"], gates, 3)),
    ]
    return Section("done", "Done", "What was done", content)


def _measured(run: Json, own: Json | None) -> Section:
    rows = []
    for name in SETS:
        before, after = (run["record"][when].get(name) for when in ("before", "after"))
        if before and after:
            span = words(f"{after['low']:.3f} to {after['high']:.3f}")
            kept = figure(run["kept"].get(name), ".1%")
            rows.append(
                [words(name), figure(before["mrr"]), figure(after["mrr"]), span, kept, figure(after["queries"], ",")]
            )
    head = ["set", "before", "after", "95 % interval after", "kept", "queries"]
    text = (
        "MRR says how high relevant documents are ranked: 1 is the first rank. Forget: the removed pairs. Entangled: "
        "kept pairs that share a query or a document with them. Disjoint: the other kept pairs. Test: queries that "
        "were not trained on."
    )
    content: list[Markup] = [paragraph(_own_result(own))] if own else []
    content += [paragraph(text), to_html(Table("measured", "MRR before and after", head, rows))]
    if earlier := run["record"].get("earlier"):
        content.append(paragraph(f"Earlier requests: {parse(PreviousMrr, earlier)}."))
    return Section("measured", "Measured", "What was measured", content)


def _own_words(own: Json) -> str:
    """Say how far this request moved. Earlier versions wrote no words."""
    if "words" in own:
        return str(own["words"])
    change = f"MRR {own['mrr_before']:.3f} before, {own['mrr_after']:.3f} after"
    if own["retrained"]:
        return f"{change}; retrained without it, to no target"
    if own["mrr_before"] <= own["target"]:
        return f"{change}; it was at or below the target of {own['target']:.3f} before the run"
    if own["mrr_after"] <= own["target"]:
        return f"{change}; the target was {own['target']:.3f}"
    return f"{change}; it fell, but is still above the target of {own['target']:.3f}"


def _own_result(own: Json) -> str:
    """List the ranks of this request's own pairs; of many pairs, only those that are ranked highest now."""
    ranks = sorted(zip(own["ranks_before"], own["ranks_after"], strict=True), key=itemgetter(1))
    shown = ", ".join(f"{before} → {after}" for before, after in ranks[:PAIRS_SHOWN])
    some = "" if len(ranks) <= PAIRS_SHOWN else f" (the {PAIRS_SHOWN} of {len(ranks):,} that are ranked highest now)"
    return (
        f"This request by itself, over {count(own['queries'], 'query')}: {_own_words(own)}. "
        f"The rank of each of its pairs before and after{some}: {shown}."
    )


def _audited(run: Json) -> Section:
    rows = []
    for name, found in run["audit"]["tests"].items():
        span = f"{found['low']:.3f} to {found['high']:.3f}" if found["figure"] is not None else ""
        row = [words(name.replace("_", " ")), words(found["verdict"]), figure(found["figure"]), words(span)]
        rows.append([*row, figure(found["threshold"]), words(found["words"])])
    head = ["test", "verdict", "figure", "95 % interval", "smallest difference that counts", "why"]
    compared = f"It was compared with {count(run['references'], 'reference')}, given as retrained without it."
    if not run["references"]:
        compared = "There was no retrained ranker to compare with, so the audit can at best find that it is remembered."
    text = f"In all: {run['audit']['verdict']}. {compared}"
    return Section(
        "audit", "Audit", "What the audit found", [paragraph(text), to_html(Table("audit", "Tests", head, rows, 2))]
    )


def _deleted(value: Json) -> Section:
    also = value["also_delete"]
    rows = [[words(copy["kind"]), words(copy["path"]), words(copy["why"])] for copy in also["found"]]
    found = to_html(Table("found", "Found on disk when the request was fulfilled", ["what", "where", "why"], rows, 3))
    return Section(
        "delete", "Also delete", "What else must be deleted", [found if rows else None, _bullets(also["in_general"])]
    )


def _not_claimed(value: Json) -> Section:
    return Section("limits", "Not claimed", "What is not claimed", [_bullets(value["not_claimed"])])


def _signed(value: Json, public_key: str) -> Section:
    run, history = value["run"], value["history"]
    hashes = {f"{name} (SHA-256)": hashed for name, hashed in run["files"].items()}
    hashes |= {f"ranker: {name}": hashed for name, hashed in run["record"]["hashes"].items()}
    hashes |= {f"history, entry {history['entries']}": history["last_hash"], "public key (Ed25519)": public_key}
    entries = [
        [words(str(entry["number"])), words(entry["at"]), words(entry["event"]), words(entry["hash"])]
        for entry in history["of_request"]
    ]
    text = "'unrank desk verify' on the folder of this page finds any change of its two files."
    content = [
        paragraph(text),
        to_html(Table("history", "History of the request", ["entry", "at", "what", "hash"], entries, 4)),
        facts("Hashes", hashes),
        facts("Versions", run["record"]["versions"]),
    ]
    return Section("signature", "Signature", "Hashes and signature", content)


def _bullets(lines: Sequence[str]) -> Markup:
    return element("ul", {}, [element("li", {}, line) for line in lines])


def _mrr(record: Json, when: str) -> str:
    return f"{record[when]['forget']['mrr']:.3f}"
