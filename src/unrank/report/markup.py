"""HTML and SVG in which every text from data is escaped, because there is no other way to put it in.

>>> print(element("p", {"class": "note"}, "a < b", element("br")))
<p class="note">a &lt; b<br></p>
"""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Mapping
from typing import Any

VOID = {"br", "input", "link", "meta"}


class Markup(str):
    """Text that is markup already. Only `element` and the page's own files make it."""

    __slots__ = ()


Child = str | None | Iterable["Child"]
"""A text, which is escaped; markup, which is not; several of them; or nothing."""


def element(name: str, attributes: Mapping[str, object] | None = None, *children: Child) -> Markup:
    """An attribute that is None or False is left out, one that is True stands alone."""
    given = "".join(_attribute(key, value) for key, value in (attributes or {}).items())
    end = "" if name in VOID else f"</{name}>"
    return Markup(f"<{name}{given}>{join(children)}{end}")


def join(children: Iterable[Child]) -> Markup:
    return Markup("".join(_written(child) for child in children))


def script_data(name: str, value: Any) -> Markup:
    """JSON inside a page: nothing in it can end the script it stands in.

    >>> print(script_data("data", ["</script>"]))
    <script type="application/json" id="data">["\\u003c/script>"]</script>
    """
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    safe = text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    return Markup(f'<script type="application/json" id="{html.escape(name)}">{safe}</script>')


def _attribute(key: str, value: object) -> str:
    if value is None or value is False:
        return ""
    return f" {key}" if value is True else f' {key}="{html.escape(str(value))}"'


def _written(child: Child) -> str:
    if child is None:
        return ""
    if isinstance(child, Markup):
        return child
    if isinstance(child, str):
        return html.escape(child, quote=False)
    return join(child)
