"""Colours that the colour-blind can tell apart, and a sign and a dash with each, so that nothing rests on colour."""

from __future__ import annotations

from dataclasses import dataclass

from unrank.report.figure.shape import OUTLINES

LIGHT = {"ink": "#1c2430", "muted": "#5f6b7a", "grid": "#dde2e8", "paper": "#ffffff"}
DARK = {"ink": "#e6eaf0", "muted": "#9aa7b6", "grid": "#333d4a", "paper": "#161b22"}
SERIES_LIGHT = ("#0069a8", "#c74e00", "#007d5c", "#b0508f", "#7d6a00", "#2a8fcb", "#4d4d4d")
SERIES_DARK = ("#5ab4f2", "#ff955c", "#43cfa1", "#ee98cb", "#ddc84e", "#a9dcff", "#c9ced6")
SIGNS = ("circle", *OUTLINES)
DASHES = ("", "7 3", "2 3", "9 3 2 3", "12 4")
"""As many signs and dashes as have no divisor in common with the colours: 280 series differ."""


@dataclass(frozen=True)
class Style:
    """How a series is told from the others."""

    role: str
    sign: str
    dash: str

    @classmethod
    def of(cls, number: int) -> Style:
        return cls(f"series-{number % len(SERIES_LIGHT)}", SIGNS[number % len(SIGNS)], DASHES[number % len(DASHES)])


def colours(dark: bool = False) -> dict[str, str]:
    """The colour of each role."""
    series = SERIES_DARK if dark else SERIES_LIGHT
    return (DARK if dark else LIGHT) | {f"series-{number}": colour for number, colour in enumerate(series)}


def stylesheet(dark: bool = False) -> str:
    """The roles as custom properties of a style sheet."""
    return "".join(f"--{role}:{colour};" for role, colour in colours(dark).items())
