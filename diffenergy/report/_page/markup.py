"""Pieces of HTML as text; whatever is put in as text is escaped."""

from ...charts import embedded as embedded
from ...charts import escape as escape
from ...charts import tag as tag
from .._format import si as _si


def paragraph(text: str, style: str | None = "caption") -> str:
    """A paragraph of text in a `style` of the sheet."""
    return tag("p", escape(text), class_=style)


def number(value: int | float | None, text: str) -> str:
    """A figure as people read it, with its exact value beside it."""
    if value is None:
        return tag("span", "unavailable", class_="none")
    return tag("data", escape(text), value=repr(float(value)))


def si(value: int | float | None, unit: str) -> str:
    """`format.si` with a real micro sign.

    >>> si(2e-6, "s")
    '2.000 µs'
    """
    return _si(value, unit).replace(f" u{unit}", f" µ{unit}")


def sentence(text: str) -> str:
    """`text` with its first letter large and a full stop."""
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."
