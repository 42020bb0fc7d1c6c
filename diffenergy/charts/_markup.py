"""Pieces of HTML and SVG as text; whatever is put in as text is escaped."""

import html
import json
from typing import Any


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


def embedded(identity: str, content: Any) -> str:
    """JSON in the page, for its script; nothing in it can end the element."""
    text = json.dumps(content, allow_nan=False, separators=(",", ":"))
    for character in "<&\u2028":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return f'<script type="application/json" id="{escape(identity)}">{text}</script>'
