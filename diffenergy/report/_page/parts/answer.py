"""The head of the page: what it costs, how sure that is, what would cost less."""

from collections.abc import Sequence
from typing import Final

from ..._charts.curves import Side
from ..._format import Entries, Entry, digits, percent, unit_words
from ..._tables.lines import grade_words, memory_lines, warning_lines
from ..markup import escape, number, paragraph, sentence, si, tag
from .tables import table

_GRADES: Final = {
    "calibrated": "measurements of this very GPU and kind of work were fitted",
    "transferred": "such measurements of a GPU of its architecture were fitted",
    "forecast": "measurements of other GPUs were fitted, none of this very case",
    "datasheet": "nothing was fitted: data sheets and priors, assumed widths",
}
_TOKENS: Final = (
    ("Energy per token", "energy_j_per_token", "J"),
    ("Tokens per second", "tokens_per_s", ""),
    ("Time to first token", "ttft_s", "s"),
    ("Time per output token", "tpot_s", "s"),
)
_SLOWER: Final = 1.05
"""Time that is worth saving energy for, against the estimate's."""
_WORTH: Final = 0.005
"""Least share of the energy that is worth a line."""


def answer(summary: Entry, side: Side) -> str:
    """Sentence, figures, phases, and what would cost less."""
    large = [
        tile("Energy", summary["energy_j"], "J", summary["energy_j_p5_p95"]),
        tile("Time", summary["time_s"], "s", summary["time_s_p5_p95"]),
        tile("Mean power", summary["avg_power_w"], "W", summary["avg_power_w_p5_p95"]),
    ]
    small = [
        tile(name, summary[key], unit, None)
        for name, key, unit in _TOKENS
        if summary.get(key) is not None
    ]
    parts = [
        tag("p", _sentence(summary), class_="lead"),
        tag("dl", *large, class_="tiles large"),
        tag("dl", *small, class_="tiles small") if small else "",
        *(paragraph(sentence(line)) for line in memory_lines(summary)),
        *(paragraph(sentence(line)) for line in warning_lines(summary)),
        _grade(summary),
        _phases(summary),
        _advice(side),
    ]
    return "".join(parts)


def _grade(summary: Entry) -> str:
    """How far the figures can be trusted."""
    grades = summary["grades"]
    words = dict.fromkeys((grades["time"], grades["power"]))
    told = "; ".join(f"{grade}: {_GRADES[grade]}" for grade in words)
    text = (
        f" {sentence(told)} Ranges reach from the 5th to the 95th "
        "percentile, by measurements that no fit saw."
    )
    word = tag("strong", escape(f"Grade: {grade_words(summary)}."), class_="grade")
    return tag("p", word, escape(text), class_="caption")


def _sentence(summary: Entry) -> str:
    energy = summary["energy_j"]
    unit, most = max(summary["energy_j_by_unit"].items(), key=lambda item: item[1])
    text = (
        f" in {si(summary['time_s'], 's')}; {percent(most / energy, 0)} of the energy "
        f"goes to {unit_words(unit)}. "
        f"{_LIMITS.get(summary['limited_by'], summary['limited_by'])} sets the pace."
    )
    return tag("strong", escape(si(energy, "J"))) + escape(text)


_LIMITS: Final = {
    "host": "The host, which cannot launch fast enough,",
    "power": "The power limit",
    "dram": "DRAM bandwidth",
    "tensor": "The tensor cores' rate",
    "fma": "The CUDA cores' rate",
    "latency": "Latency (too little work in flight)",
    "occupancy": "Occupancy (too few CTAs for the SMs)",
    "launch": "Launching kernels",
    "smem": "Shared-memory bandwidth",
    "l2": "L2 bandwidth",
    "issue": "Instruction issue",
    "sfu": "The special-function rate",
    "link": "Link bandwidth",
    "exchange": "Waiting for other GPUs",
}


def tile(name: str, value: float, unit: str, interval: Sequence[float] | None) -> str:
    """A figure in large, with its range."""
    text = si(value, unit) if unit else digits(value)
    shown = tag("dd", number(value, text), class_="figure")
    if interval is None:
        return tag("div", tag("dt", escape(name)), shown)
    low, high = interval
    left, width, dot = (100 * x / (high * 1.08) for x in (low, high - low, value))
    drawn = tag(
        "span",
        tag("span", class_="range", style=f"left:{left:.1f}%;width:{width:.1f}%"),
        tag("span", class_="centre", style=f"left:{dot:.1f}%"),
        class_="interval",
        aria_hidden="true",
    )
    between = number(low, si(low, unit)) + " to " + number(high, si(high, unit))
    note = tag("span", "5 to 95 %: ", between, class_="between")
    return tag("div", tag("dt", escape(name)), shown, tag("dd", drawn, note))


def _phases(summary: Entry) -> str:
    entries = [{**phase, "name": name} for name, phase in summary["phases"].items()]
    columns = (
        ("phase", "name"),
        ("time", "time_s", "s"),
        ("energy", "energy_j", "J"),
        ("mean power", "avg_power_w", "{:.1f} W"),
        ("SM clock", "sm_clock_mhz", "{:.0f} MHz"),
        ("chip", "temperature_c", "{:.0f} C"),
        ("GPU waits for host", _waiting, percent),
        ("limited by", "limited_by"),
    )
    return table("phases", "Phases", columns, entries)


def _waiting(phase: Entry) -> float | None:
    if phase["gpu_time_s"] is None:
        return None
    return max(0.0, 1 - phase["gpu_time_s"] / phase["time_s"])


def _advice(side: Side) -> str:
    """Clocks and limits that would cost less, as a list."""
    chosen = side.chosen
    near = [p for p in side.clocks if p["time_s"] <= _SLOWER * chosen["time_s"]]
    within = f"the least energy within {100 * (_SLOWER - 1):.0f} % of the time"
    clock = "SM clock {sm_clock_set_mhz:.0f} MHz"
    options = {
        f"{clock}, {within}": _least(near),
        f"{clock}, the least energy of all clocks": _least(side.clocks),
        "Power limit {power_limit_w:.0f} W, the least energy": _least(side.limits),
    }
    items: dict[int, str] = {}  # once where two options are one point
    for words, point in options.items():
        if point is None or point["energy_j"] > (1 - _WORTH) * chosen["energy_j"]:
            continue
        change = tag("strong", escape(_change(point, chosen)))
        item = tag("li", escape(f"{words.format(**point)}: "), change)
        items.setdefault(id(point), item)
    if not items:
        text = "No other SM clock or power limit saves more than 0.5 % of the energy."
        return paragraph(text, "advice")
    head, points = tag("p", "What would cost less"), tag("ul", *items.values())
    return tag("div", head, points, class_="advice")


def _least(points: Entries) -> Entry | None:
    return min(points, key=lambda p: p["energy_j"]) if points else None


def _change(point: Entry, chosen: Entry) -> str:
    keys = ("energy_j", "time_s")
    energy, time = (100 * (point[key] / chosen[key] - 1) for key in keys)
    signs = f"energy {energy:+.1f} %, time {time:+.1f} %"
    return signs.replace("-", "\N{MINUS SIGN}")
