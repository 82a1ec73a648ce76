"""The list of seeded faults follows the code: `make faults` tries them."""

from __future__ import annotations

from tests.seeded_faults import FAULTS, ROOT, Fault


def snippets_found(fault: Fault) -> str:
    try:
        fault.place(ROOT)
    except LookupError as error:
        return str(error)
    return ""


def test_every_snippet_is_in_the_code_once() -> None:
    assert [found for fault in FAULTS if (found := snippets_found(fault))] == []


def test_every_named_test_exists() -> None:
    assert [test for fault in FAULTS for test in fault.tests if not (ROOT / test).exists()] == []


def test_there_are_thirty_different_ones() -> None:
    assert len({fault.name for fault in FAULTS}) == len({(fault.old, fault.new) for fault in FAULTS}) == 30
    assert all(fault.old != fault.new for fault in FAULTS)
