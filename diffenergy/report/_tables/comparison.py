"""Two estimates side by side, from the dict that `compare --json` prints."""

from typing import TYPE_CHECKING, Any, Final

from .._format import UNKNOWN, Entry, digits, si
from .._views.estimate import BOARD_ONLY, assumed_line, title_line
from .columns import table

if TYPE_CHECKING:
    from rich.table import Table

_COMPARED: Final = {
    "time_s": ("time", "s"),
    "energy_j": ("energy", "J"),
    "avg_power_w": ("power", "W"),
}
_TOKENS: Final = {
    "ttft_s": ("TTFT", "s"),
    "tpot_s": ("TPOT", "s"),
    "tokens_per_s": ("tokens/s", ""),
    "energy_j_per_token": ("energy per token", "J"),
}
_WORDS: Final = {
    "sm_clock_mhz": "SM clock",
    "limited_by": "limited by",
    "grade": "grade",
}


def comparison(a: Entry, b: Entry) -> dict[str, Any]:
    """`{a, b, ratio}` of two summaries; the ratios are B / A."""
    return {"a": a, "b": b, "ratio": {key: b[key] / a[key] for key in _COMPARED}}


def comparison_parts(both: Entry) -> list[Any]:
    """What `compare` prints."""
    parts: list[Any] = []
    for name, summary in (("A", both["a"]), ("B", both["b"])):
        parts.append(f"{name}: {title_line(summary)}")
        parts.append(f"   {assumed_line(summary)}")
    return [*parts, _table(both), BOARD_ONLY]


def _table(both: Entry) -> "Table":
    """Time, energy, power and, where both have them, figures per token."""
    a, b = both["a"], both["b"]
    rows = []
    for key, (name, unit) in (_COMPARED | _TOKENS).items():
        if a.get(key) and b.get(key):
            values = (si(x[key], unit) if unit else digits(x[key]) for x in (a, b))
            rows.append((name, *values, digits(b[key] / a[key])))
    for key, name in _WORDS.items():
        rows.append((name, _text(a.get(key)), _text(b.get(key)), ""))
    return table(("", "A", "B", "B / A"), rows)


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.0f} MHz"
    return UNKNOWN if value is None else str(value)
