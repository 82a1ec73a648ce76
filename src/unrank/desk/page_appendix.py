"""The appendix of a certificate's page: settings, checks, tables, hashes and versions."""

from __future__ import annotations

from unrank.desk.predicate import Audited, Predicate, RankerPart
from unrank.report.page import Markup, Section, paragraph
from unrank.report.table import Table, facts, figure, to_html, words
from unrank.report.wording import duration


def appendix(value: Predicate, public_key: str) -> list[Section]:
    """Return the sections of the appendix."""
    rankers = value["rankers"]
    parts = [part for ranker in rankers for part in _ranker_sections(ranker, len(rankers) > 1)]
    return [*parts, _signed(value, public_key)]


def _ranker_sections(ranker: RankerPart, several: bool) -> list[Section]:
    done, id = ranker["done"], f"-{ranker['name']}" if several else ""
    whose = f" ({ranker['name']})" if several else ""
    how: dict[str, object] = {
        "run": ranker["run"],
        "requests in the run": ranker["requests"],
        "collection (fingerprint)": done["collection"],
        "references": done["references"],
        "keep at least": done["keep_at_least"] or "no limit was set",
        "strict": "yes" if done["strict"] else "no",
    }
    if "method" in done:
        number = f" ({done['target']:.4f})" if "target" in done else ""
        how |= {"target": f"{done['target_name']}{number}"}
        how |= {"method": done["method"], "seed": done["seed"], "epochs": done["epochs"], "device": done["device"]}
        stored = {None: "none", True: "still valid", False: "stale"}[done["index_valid"]]
        how |= {"took": duration(done["seconds"]), "stored document vectors": stored}
    if "places" in done:
        how |= {f"places: {name.replace('_', ' ')}": _rounded(value) for name, value in done["places"].items()}
    content = [facts("How", how), facts("Settings", done["settings"]) if "settings" in done else None, _gates(ranker)]
    return [
        Section(f"how{id}", f"Settings{whose}", f"How it was done{whose}", content),
        *([_sets(ranker, id, whose)] if ranker["measured"]["sets"] else []),
        *([_audited(ranker["audited"], ranker["alone"], id, whose)] if ranker["audited"] else []),
    ]


def _rounded(value: object) -> object:
    return f"{value:.4f}" if isinstance(value, float) else "not measured" if value is None else value


def _gates(ranker: RankerPart) -> Markup | None:
    rows = [[words(name), words("passed" if passed else "not passed")] for name, passed in ranker["gates"].items()]
    whose = "" if ranker["alone"] else ", for all its requests together"
    return to_html(Table("gates", f"What the run had to show{whose}", ["gate", "outcome"], rows, 2)) if rows else None


def _sets(ranker: RankerPart, id: str, whose: str) -> Section:
    rows = []
    for name, found in ranker["measured"]["sets"].items():
        span, kept = words(f"{found['low']:.3f} to {found['high']:.3f}"), ranker["measured"]["kept"].get(name)
        rows.append([words(name), figure(found["before"]), figure(found["after"]), span, figure(kept, ".1%")])
        rows[-1].append(figure(found.get("queries"), ","))
    head = ["set", "before", "now", "95 % interval now", "kept", "queries"]
    text = (
        "MRR (mean reciprocal rank) says how high relevant documents are ranked: 1 is the first rank. Entangled: kept "
        "pairs that share a query or a document with removed ones. Disjoint: the other kept pairs. Test: queries that "
        "were not trained on. Forget: the removed pairs."
    )
    if not ranker["alone"]:
        text += " Figures and counts that would show other requests of the run are left out."
    table = to_html(Table("sets", "MRR before and now", head, rows))
    return Section(f"sets{id}", f"Kept{whose}", f"What was kept{whose}", [paragraph(text), table])


def _audited(audited: Audited, alone: bool, id: str, whose: str) -> Section:
    rows = []
    for name, found in audited["tests"].items():
        row = [words(name.replace("_", " ")), words(found["verdict"])]
        if alone:
            span = f"{found['low']:.3f} to {found['high']:.3f}" if found["figure"] is not None else ""
            row += [words(found["words"]), figure(found["figure"]), words(span), figure(found["threshold"])]
        rows.append(row)
    head = ["test", "verdict", "why", "figure", "95 % interval", "smallest difference that counts"]
    text = f"In all: {audited['verdict']}."
    if not alone:
        text += " The audit tested everything that the run forgot, so only its verdicts are given here."
    table = to_html(Table("audit", "Tests", head if alone else head[:2], rows, 3))
    content = [paragraph(text), table, _claims(audited)]
    return Section(f"audit{id}", f"Audit{whose}", f"What the audit found{whose}", content)


def _claims(audited: Audited) -> Markup | None:
    """Show the claims that a program can check in the signed file."""
    claims = (audited.get("evaluation") or {"claims": []})["claims"]
    rows = [
        [
            words(one["test"].replace("_", " ")),
            words(one["metric"]),
            words(f"{one['comparator']} {float(one['threshold']):.4g}"),
            figure(float(one["value"])),
            words("passed" if one["passed"] else "not passed"),
            figure(one["sampleSize"], ","),
        ]
        for one in claims
    ]
    head = ["test", "figure", "asked for", "found", "outcome", "queries"]
    return (
        to_html(Table("claims", "Claims that a program can check in the signed file", head, rows, 2)) if rows else None
    )


def _signed(value: Predicate, public_key: str) -> Section:
    history = value["history"]
    hashes = {
        f"{ranker['name']}: {name} (SHA-256)" if ranker["name"] else f"{name} (SHA-256)": hashed
        for ranker in value["rankers"]
        for name, hashed in ranker["files"].items()
        if hashed
    }
    hashes |= {f"history, entry {history['entries']}": history["last_hash"], "public key (Ed25519)": public_key}
    entries = [
        [words(str(entry["number"])), words(entry["at"]), words(entry["event"]), words(entry["hash"])]
        for entry in history["of_request"]
    ]
    text = (
        "The signed file, certificate.json, is an in-toto statement in a DSSE envelope. It names every file of the "
        "ranker with its SHA-256, and the hash of this page."
    )
    versions = {name: text for ranker in value["rankers"] for name, text in ranker["done"].get("versions", {}).items()}
    content = [
        paragraph(text),
        to_html(Table("history", "History of the request", ["entry", "at", "what", "hash"], entries, 4)),
        facts("Hashes", hashes),
        facts("Versions", versions) if versions else None,
    ]
    return Section("signature", "Signature", "Hashes and signature", content)
