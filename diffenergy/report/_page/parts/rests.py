"""The foot of the page: assumptions, the GPU's numbers, the constants, their data."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from ..._format import QUANTITIES, UNKNOWN, Entries, Entry
from ..._format import plain as shortest
from ..._tables.columns import Columns
from ..._tables.lines import assumed_line
from ..markup import escape, paragraph, sentence, tag
from .tables import table

_NUMBERS: Final = (
    ("field", "field"),
    ("value", "value", shortest),
    *((word, word) for word in ("unit", "quality", "year", "source")),
)
_CONSTANTS: Final = (
    ("constant", "name"),
    ("what it is", "what"),
    ("value", "value", "{:.4g}"),
    ("unit", "unit"),
    ("basis", "basis"),
    ("made of", "built"),
    ("sd in ln", "spread"),
)


class Basis(NamedTuple):
    """What the figures of one GPU rest on: its `gpu_summary` and its constants."""

    gpu: Entry
    constants: Entries


def rests_on(
    summary: Entry, notes: Sequence[str], bases: Sequence[Basis], fitted_on: Entry
) -> str:
    """Everything that went into the figures."""
    items = [tag("li", escape(note)) for note in notes]
    parts = [
        paragraph(sentence(assumed_line(summary)), None),
        tag("ul", *items, class_="notes") if items else "",
        *(_fit(basis.gpu, fitted_on) for basis in bases),
        _errors(bases[0].gpu),
    ]
    names = ", ".join(fitted_on.get("sources", ()))
    said = f"Fitted on: {names}." if names else "Nothing was fitted: all are priors."
    for number, (gpu, constants) in enumerate(bases):
        heading = f"Numbers of {gpu['name']}"
        values = [{**x, "field": field} for field, x in gpu["values"].items()]
        inner = _table(heading, _NUMBERS, values)
        parts.append(_folded(f"numbers-{number}", heading, len(values), inner))
        heading = f"Constants of the model for {gpu['name']}"
        inner = paragraph(said) + _table("Constants", _CONSTANTS, constants)
        parts.append(_folded(f"constants-{number}", heading, len(constants), inner))
    return "".join(parts)


def _table(caption: str, columns: Columns, entries: Entries) -> str:
    return table(None, caption, columns, entries, sortable=True, tall=True)


def _fit(gpu: Entry, fitted_on: Entry) -> str:
    levels = gpu["corrections"]["levels"]
    served = ", ".join(levels) or "unavailable"
    text = f"Corrections that serve {gpu['name']}: {served}. "
    names = [x.removeprefix("gpu:") for x in levels if x.startswith("gpu:")]
    own = {
        key.partition(":")[2]: rows
        for key, rows in fitted_on.get("rows", {}).items()
        if key.partition(":")[0] in (*names, gpu["name"])
    }
    if own:
        words = (
            f"{kind} {rows['time']} times, {rows['power']} powers"
            for kind, rows in own.items()
        )
        text += f"Measured of it in the fit: {', '.join(words)}."
    else:
        text += "No measured row of it is in the fit."
    return paragraph(text, None)


def _errors(gpu: Entry) -> str:
    """How far measurements that no fit saw lay from the model."""
    expected = gpu["corrections"]["expected"]
    if not expected:
        return ""
    columns = [
        ("kind of row", "kind"),
        ("grade of time", lambda x: x["grades"]["time"]),
        ("of power", lambda x: x["grades"]["power"]),
        ("errors of", lambda x: ", ".join(x["over"]) or UNKNOWN),
        *((f"{x}, mean", f"{x}_mape_pct", "{:.3g} %") for x in QUANTITIES),
        *((f"{x}, 95 %", f"{x}_interval_pct", "+{:.3g} %") for x in QUANTITIES),
    ]
    caption = f"Errors to expect for {gpu['name']}: mean and 95th percentile"
    note = paragraph("Of measurements that were left out of the fit, by kind.")
    made = table("errors", caption, columns, expected)
    return tag("h3", escape(caption)) + note + made


def _folded(identity: str, heading: str, rows: int, inner: str) -> str:
    """A part that opens on demand, with a field that filters its rows."""
    field = '<input type="search" autocomplete="off">'
    label = tag("label", "Filter rows ", field, class_="filter")
    summary = tag("summary", escape(f"{heading} ({rows})"))
    return tag("details", summary, label, inner, id=identity)
