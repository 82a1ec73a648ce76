"""The noise floor: what two rankers that were both retrained differ by. No difference smaller than that counts."""

from __future__ import annotations

from collections.abc import Mapping

from unrank.audit.verdict import Finding, Verdict, unknown

MEASURES = "the largest difference between two retrained rankers"


def noise_floor(findings: Mapping[str, Finding], margin: float) -> Finding:
    """Over the figures of all tests; each test goes by its own."""
    noise = {name: found.compared.noise for name, found in findings.items() if found.compared}
    measured = {name: gap for name, gap in noise.items() if gap}
    if not measured:
        return unknown(MEASURES, f"it takes two retrained rankers; no difference below {margin:g} is counted")
    name, gap = max(measured.items(), key=lambda item: abs(item[1].value))
    words = f"up to {abs(gap.value):.3f} ({name}); each test counts no less than its own"
    details = {name: abs(gap.value) for name, gap in measured.items()}
    return Finding(MEASURES, Verdict.MEASURED, words, gap, margin, None, details)
