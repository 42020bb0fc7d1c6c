"""Two estimates side by side, from the dict that `compare --json` prints."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from .._format import digits, si
from .estimates import BOARD_ONLY, assumed_line, title_line
from .tables import table

if TYPE_CHECKING:
    from rich.console import RenderableType
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


def comparison(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, Any]:
    """`{a, b, ratio}` of two summaries; the ratios are B / A."""
    return {"a": a, "b": b, "ratio": {key: b[key] / a[key] for key in _COMPARED}}


def comparison_parts(both: Mapping[str, Any]) -> list["RenderableType"]:
    """What `compare` prints."""
    a, b = both["a"], both["b"]
    parts: list[RenderableType] = []
    for name, summary in (("A", a), ("B", b)):
        parts.append(f"{name}: {title_line(summary)}")
        parts.append(f"   {assumed_line(summary)}")
    return [*parts, comparison_table(both), BOARD_ONLY]


def comparison_table(both: Mapping[str, Any]) -> "Table":
    """Time, energy, power and, where both have them, figures per token."""
    a, b = both["a"], both["b"]
    rows = [
        [name, si(a[key], unit), si(b[key], unit), digits(both["ratio"][key])]
        for key, (name, unit) in _COMPARED.items()
    ]
    rows += [
        [name, _value(a[key], unit), _value(b[key], unit), digits(b[key] / a[key])]
        for key, (name, unit) in _TOKENS.items()
        if a.get(key) and b.get(key)
    ]
    words = [("SM clock", "sm_clock_mhz"), ("limited by", "limited_by")]
    rows += [
        [name, _text(a.get(key)), _text(b.get(key)), ""]
        for name, key in [*words, ("grade", "grade")]
    ]
    return table(["", "A", "B", "B / A"], rows)


def _value(value: int | float, unit: str) -> str:
    return si(value, unit) if unit else digits(value)


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.0f} MHz"
    return "-" if value is None else str(value)
