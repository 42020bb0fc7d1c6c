"""Pieces of HTML and SVG as text; whatever is put in as text is escaped."""

import html
import json
from typing import Any

from .._format import si as _si


class Markup(str):
    """A block that is HTML already."""


def escape(text: Any) -> str:
    """Text that stands for itself in HTML, in attributes too."""
    return html.escape(str(text), quote=True)


def tag(name: str, *content: str, **attributes: Any) -> str:
    """An element around markup; None leaves an attribute out. `class_` is `class`,
    other underscores are hyphens.

    >>> tag("p", escape("a < b"), class_="note")
    '<p class="note">a &lt; b</p>'
    """
    words = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    return f"<{name}{words}>{''.join(content)}</{name}>"


def paragraph(text: str, style: str | None = "caption") -> str:
    """A paragraph of text in a `style` of the sheet."""
    return tag("p", escape(text), class_=style)


def number(value: int | float | None, text: str) -> str:
    """A figure as people read it, with its exact value beside it."""
    if value is None:
        return tag("span", "unavailable", class_="none")
    return tag("data", escape(text), value=repr(float(value)))


def embedded(identity: str, content: Any) -> str:
    """JSON in the page, for its script; nothing in it can end the element."""
    text = json.dumps(content, allow_nan=False, separators=(",", ":"))
    safe = text.replace("<", "\\u003c").replace("\u2028", "\\u2028")
    return f'<script type="application/json" id="{escape(identity)}">{safe}</script>'


def si(value: int | float | None, unit: str) -> str:
    """`format.si` with a real micro sign.

    >>> si(2e-6, "s")
    '2.000 µs'
    """
    return _si(value, unit).replace(f" u{unit}", f" µ{unit}")


def sentence(text: str) -> str:
    """`text` with its first letter large and a full stop."""
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."
