"""The settings of the docs site: `make docs` builds it from docs/, offline, and every warning is an error."""

from __future__ import annotations

from sphinx.application import Sphinx

import unrank

project = "unrank"
author = "The unrank authors"
copyright = "the unrank authors, Apache-2.0"
version = release = unrank.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc"]
html_theme = "furo"
html_title = f"unrank {release}"
html_show_sphinx = html_show_sourcelink = html_copy_source = False
myst_heading_anchors = 4  # the anchors that links in docs/ use
default_role = "code"  # docstrings have names in single backticks
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_default_options = {"members": True}

CONTENTS = """

```{toctree}
:hidden:

tutorial
concepts
law
```

```{toctree}
:hidden:
:glob:
:caption: How to

how-to/*
```

```{toctree}
:hidden:
:glob:
:caption: Reference

site/api
reference/*
```

```{toctree}
:hidden:
:caption: Behind it

architecture
scale
results
gallery
log
```
"""
"""The contents at the side of every page. They are not in docs/index.md, where they would be shown as code."""

DIAGRAM = "*A diagram as Mermaid's text, because this site loads no script from elsewhere:*\n\n```text"


def change_page(_: Sphinx, name: str, source: list[str]) -> None:
    """Add the contents to the start page, and show diagrams as text."""
    source[0] = source[0].replace("```mermaid", DIAGRAM) + (CONTENTS if name == "index" else "")


def setup(app: Sphinx) -> None:
    """Let Sphinx pass each page through `change_page`."""
    app.connect("source-read", change_page)
