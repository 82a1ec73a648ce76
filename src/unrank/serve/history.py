"""The page of the history: every entry with who wrote it, and whether the whole is unbroken."""

from __future__ import annotations

from unrank.desk.history_index import BrokenChain, Entry
from unrank.desk.trust import is_own
from unrank.errors import count
from unrank.report.page import paragraph
from unrank.serve.layout import View, link, notice, section, shown
from unrank.serve.messages import Answer, Call
from unrank.serve.office import Office
from unrank.serve.requests import history_table

A_PAGE = 25


def show_history(office: Office, call: Call) -> Answer:
    """Show some entries, the last ones first. The whole history is verified only if that is asked for."""
    before = call.query.get("before", "")
    last = int(before) if before.isascii() and before.isdigit() and len(before) < 19 else 2**62
    with office.reading() as ledger:
        rows = ledger.ask("SELECT * FROM history WHERE number < ? ORDER BY number DESC LIMIT ?", [last, A_PAGE])
        number = ledger.head()[0]
        checked = None
        if call.query.get("check") == "yes":
            try:
                own = is_own(ledger, office.place.key)
                ledger.verify()
                whole = "complete" if own else "unbroken; only its owner can know if it is complete"
                checked = notice(f"The history of {count(number, 'entry')} is {whole}.", "good")
            except BrokenChain as error:
                checked = notice(str(error), "bad")
    entries = [Entry(*row) for row in rows]
    older = entries and entries[-1].number > 1
    return shown(
        call,
        View(
            "History",
            f"{count(number, 'entry')}, only ever added to. Each holds the hash of the one before.",
            [
                checked,
                section(
                    "entries",
                    "Entries",
                    paragraph(link("/history?check=yes", "Check the whole history")),
                    history_table(entries),
                    paragraph(link(f"/history?before={entries[-1].number}", "Older entries")) if older else None,
                ),
            ],
            "/history",
        ),
    )
