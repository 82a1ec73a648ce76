"""The command `list`: what there is to choose from."""

from __future__ import annotations

from dataclasses import fields
from enum import StrEnum
from typing import Annotated

import typer

from unrank.cli.show import say


class What(StrEnum):
    methods = "methods"
    rankers = "rankers"
    sources = "sources"


def list_(what: Annotated[What, typer.Argument(help="What to name.")]) -> None:
    """Name the methods with their settings, the rankers, or the sources."""
    if what is What.sources:
        from unrank.collection.sources import SOURCES

        for name, source in SOURCES.items():
            say(f"{name + (':' if source.takes_location else ''):<16}{source.summary}")
    elif what is What.rankers:
        from unrank.rankers import RANKERS

        for name, ranker in RANKERS.items():
            say(f"{name:<16}{ranker.summary}{_also(ranker.alias)}")
            for method, recipe in ranker.recipes.items():
                say(f"    {method}: {', '.join(f'{name}={value}' for name, value in recipe.items())}")
    else:
        from unrank.methods import METHODS

        for name, entry in METHODS.items():
            say(f"{name:<16}{entry.summary}{_also(entry.alias)}")
            for setting in fields(entry.method):
                say(f"    --set {setting.name}={setting.default}")


def _also(alias: str) -> str:
    return f" (also: {alias})" if alias else ""
