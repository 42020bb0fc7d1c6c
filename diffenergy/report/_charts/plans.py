"""Time and energy of a step of every plan, and sweeps of crossed settings."""

from typing import TYPE_CHECKING, Final

import numpy as np

from ...charts import (
    Axis,
    Chart,
    Label,
    Line,
    Mark,
    Panel,
    Points,
    Reading,
    colours,
    ramp,
)
from .._format import Entries, Entry, plain
from .._page.markup import si

if TYPE_CHECKING:
    from ...parallel import PlanResult

_SLOWER: Final = 4.0
"""Step time relative to the fastest above which plans are not drawn."""
_MOST_LABELS: Final = 12
_STAR: Final = 7


def plans_chart(result: "PlanResult", title: str) -> Chart:
    """Return a scatter chart of step time and energy of every plan that fits, coloured
    by memory, with the front of time and energy and the best plan as a star."""
    s, about = result.summary, result.outcome.about
    shown = about.time <= _SLOWER * about.time.min()
    time, energy = about.time[shown].tolist(), about.energy[shown].tolist()
    memory = about.memory[shown] / 1e9
    scale, shade = ramp("memory of a GPU, GB", float(memory.min()), float(memory.max()))
    edge = sorted((x["step_time_s"], x["energy_j"]) for x in s["frontier"])
    least = np.minimum.accumulate([y for _, y in edge])
    front = [(x, y) for (x, y), most in zip(edge, least, strict=True) if y <= most]
    x, y = (list(values) for values in zip(*front, strict=True))
    best = s["best"]
    marks = [
        Line(x, y, "Pareto front", "soft", 1.3),
        Points(time, energy, "", shade(memory.tolist()), 0, 2.6),
        Points([best["time_s"]], [best["energy_j"]], s["plan"], 1, _STAR, 8.0),
    ]
    readings = [
        Reading(entry["step_time_s"], entry["energy_j"], _plan_text(entry))
        for entry in sorted(s["frontier"], key=lambda x: x["step_time_s"])
    ]
    readings += [
        Reading(a, b, f"{si(a, 's')}, {si(b, 'J')} a step, {gb:.1f} GB a GPU")
        for a, b, gb in zip(time, energy, memory.tolist(), strict=True)
    ]
    readings.append(Reading(best["time_s"], best["energy_j"], f"best: {s['plan']}"))
    panel = Panel(
        Axis("time of a step", "s", log=True),
        Axis("energy of a step, all GPUs", "J", log=True),
        marks, readings, scale=scale,
        height=320.0,
    )  # fmt: skip
    caption = (
        f"Every plan that fits the memory, as far as its step takes at most "
        f"{_SLOWER:g} times as long as the fastest; plans on the Pareto front of time, "
        "energy and memory are named."
    )
    return Chart(title, [panel], caption)


def _plan_text(entry: Entry) -> str:
    time, energy = si(entry["step_time_s"], "s"), si(entry["energy_j"], "J")
    memory = f"{entry['memory_per_gpu_bytes'] / 1e9:.1f} GB a GPU"
    return f"{entry['plan']}: {time}, {energy} a step, {memory}"


def crossed_chart(
    points: Entries, across: str | None, word: str, lines: dict[str, list[Entry]],
    title: str,
) -> Chart:  # fmt: skip
    """Return a chart of energy per token over time per token (totals where there are no
    tokens), one line for each combination in `lines`. The values of `across` (`word`)
    label the points of the first line."""
    tokens = all(point.get("energy_j_per_token") is not None for point in points)
    paced = all(point.get("tpot_s") is not None for point in points)
    keys = (
        "tpot_s" if paced else "time_s",
        "energy_j_per_token" if tokens else "energy_j",
    )
    marks: list[Mark] = []
    readings = []
    looks = zip(lines.items(), colours(len(lines)), strict=True)
    for number, ((name, rows), colour) in enumerate(looks):
        x, y = ([row[key] for row in rows] for key in keys)
        shown = name if len(lines) > 1 else ""
        marks.append(Line(x, y, shown, colour, shape=number % _STAR))
        for row, a, b in zip(rows, x, y, strict=True):
            value = "" if across is None else plain(row[across])
            if across and len(rows) <= _MOST_LABELS and number == 0:
                marks.append(Label(a, b, value, "above"))
            at = ", ".join(filter(None, (name, value and f"{word} {value}")))
            readings.append(Reading(a, b, f"{at}: {si(a, 's')}, {si(b, 'J')}"))
    panel = Panel(
        Axis("time per output token" if paced else "time", "s", log=True),
        Axis("energy per token" if tokens else "energy", "J", log=True),
        marks, readings, height=330.0,
    )  # fmt: skip
    along = f"; numbers: {word}" if across else ""
    return Chart(f"{title}{along}", [panel])
