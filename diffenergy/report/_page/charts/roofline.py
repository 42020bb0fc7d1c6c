"""The roofline with every kernel on it."""

from collections.abc import Mapping, Sequence
from typing import Final

from ....estimator import Roof
from ....workload import kernel_name
from ..._format import Entries, Entry, longest, percent
from ..markup import si
from .figures import (
    MARKS,
    WIDE,
    Drawn,
    Panel,
    figure,
    line,
    logarithmic,
    mark,
    swatch,
    unavailable,
    words,
)

_LEAST: Final = 3.0
_MOST: Final = 15.0
"""Radius of a kernel that takes no time, and of one that takes all, px."""
_EDGE: Final = 20.0
"""Room below the DRAM roof at the left edge, as a factor."""
_DEEPEST: Final = 1e-6
"""FLOP/s relative to the highest roof below which marks lie on the lower edge."""
_REACH: Final = (1e-4, 50.0)
"""Intensities drawn, relative to the ridges; kernels beyond lie on the edges."""


def roofline(
    kernels: Entries,
    roofs: Sequence[Roof],
    dram_bandwidth: float,
    colours: Mapping[str, int],
) -> str:
    """FLOP a byte of DRAM against FLOP/s of every kernel that does FLOP or moves bytes,
    if there is one and something to hold it against."""
    identity, title = "roofline-chart", "Roofline"
    live, rest = longest(kernels)  # small ones on top
    shown = [k for k in live if k["flop"] or k["dram_bytes"]]
    if not shown or not roofs:
        why = "no kernel has FLOP and a peak to hold them against."
        return unavailable(identity, title, why)
    phases = list(dict.fromkeys(k["phase"] for k in kernels))
    whole = sum(k["count"] * k["time_s"] for k in kernels if k["time_s"])
    left = len(live) - len(shown)
    present = [name for name in colours if name in {k["class"] for k in shown}]
    keys = [(swatch(colours[name]), name) for name in present]
    if len(phases) > 1:
        keys += list(zip(MARKS, phases, strict=False))
    caption = (
        "Each mark is a kernel, its area the share of the GPU's time. FLOP count "
        "padding; bytes are those that reach DRAM. Marks on the left edge do no FLOP "
        "(their height below the roof is the DRAM bandwidth they reach), marks on the "
        "right edge read next to nothing from DRAM."
    )
    caption += rest
    if left:
        caption += f" {left} kernels do neither and are not shown."

    def draw(width: float) -> Drawn:
        wide = width == WIDE
        height = 420.0 if wide else 320.0
        panel = _panel(shown, roofs, dram_bandwidth, width - 66, height - 82)
        lines = _roofs(panel, roofs, dram_bandwidth, wide)
        marks, points = [], []
        for kernel in shown:
            share = kernel["count"] * kernel["time_s"] / whole
            radius = _LEAST + (_MOST - _LEAST) * share**0.5 * (1 if wide else 0.7)
            shape, style = phases.index(kernel["phase"]), colours[kernel["class"]]
            place = _place(panel, kernel)
            marks.append(mark(*place, radius, shape, f"dot c{style}"))
            points.append(place)
        return Drawn(height, [panel.frame(), *lines, *marks], points)

    texts = [_text(kernel, whole, len(phases) > 1) for kernel in shown]
    return figure(identity, title, caption, draw, texts, keys=keys)


def _text(kernel: Entry, whole: float, several: bool) -> str:
    flop, moved, time = kernel["flop"], kernel["dram_bytes"], kernel["time_s"]
    words = [
        f"{si(flop / time, 'FLOP/s')}" if flop else "no FLOP",
        f"{si(moved / time, 'B/s')} of DRAM" if moved else "nothing from DRAM",
        f"{flop / moved:.3g} FLOP/B" if flop and moved else "",
        f"limited by {kernel['limited_by']}",
        f"{percent(kernel['count'] * time / whole)} of the GPU's time",
    ]
    name = kernel_name(kernel) + (f" ({kernel['phase']})" if several else "")
    return f"{name}: {', '.join(filter(None, words))}"


def _panel(
    kernels: Entries,
    roofs: Sequence[Roof],
    dram_bandwidth: float,
    width: float,
    height: float,
) -> Panel:
    """Axes that hold the ridges and, as far as it is of interest, the kernels."""
    ridge = [roof.flop_per_s / dram_bandwidth for roof in roofs]
    ends = _REACH[0] * min(ridge), _REACH[1] * max(ridge)
    both = [k for k in kernels if k["flop"] and k["dram_bytes"]]
    intensity = [min(max(k["flop"] / k["dram_bytes"], ends[0]), ends[1]) for k in both]
    x = logarithmic([*intensity, *ridge, min(ridge) / 30], "FLOP per byte of DRAM", "")
    reached = [k["flop"] / k["time_s"] for k in kernels if k["flop"]]
    top = max(roof.flop_per_s for roof in roofs)
    values = [top, *reached, dram_bandwidth * x.low / _EDGE]
    y = logarithmic([v for v in values if v > top * _DEEPEST], "FLOP/s", "")
    return Panel(46.0, 34.0, width, height, x, y)


def _place(panel: Panel, kernel: Entry) -> tuple[float, float]:
    """Of a kernel; on an edge if it does no FLOP or moves no bytes."""
    flop, moved, time = kernel["flop"], kernel["dram_bytes"], kernel["time_s"]
    if not flop:
        return panel.at(panel.x.low, moved / time * panel.x.low)
    return panel.at(flop / moved if moved else panel.x.high, flop / time)


def _roofs(
    panel: Panel, roofs: Sequence[Roof], bandwidth: float, wide: bool
) -> list[str]:
    """The slope of DRAM up to the highest ceiling, and the ceilings right of it."""
    found = []
    top = roofs[0].flop_per_s
    begin = max(panel.x.low, panel.y.low / bandwidth)
    found.append(
        line(
            *panel.at(begin, begin * bandwidth), *panel.at(top / bandwidth, top), "roof"
        )
    )
    middle = (begin * top / bandwidth) ** 0.5
    x, y = panel.at(middle, middle * bandwidth)
    found.append(words(x - 8, y - 8, f"DRAM {si(bandwidth, 'B/s')}", "tick halo end"))
    last = -100.0
    for roof in roofs:
        start = panel.at(roof.flop_per_s / bandwidth, roof.flop_per_s)
        end = panel.at(panel.x.high, roof.flop_per_s)
        found.append(line(*start, *end, "roof"))
        if abs(start[1] - last) < 15:
            continue
        last = start[1]
        text = si(roof.flop_per_s, "FLOP/s")
        name = roof.name if wide else roof.name.split(",")[0]
        found.append(words(end[0], end[1] - 6, f"{name} {text}", "tick halo end"))
    return found
