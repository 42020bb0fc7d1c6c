"""The roofline with every kernel on it."""

import functools
from collections.abc import Mapping, Sequence
from typing import Final

from ....workload import kernel_name
from ..._format import Entries, Entry, percent
from ..._kernel_work import Roof, longest
from ..markup import si
from .figures import (
    MARKS,
    WIDE,
    Chart,
    Drawn,
    Panel,
    drawing,
    figure,
    legend,
    line,
    logarithmic,
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
    entries = [(swatch(colours[name]), name) for name in present]
    if len(phases) > 1:
        entries += list(zip(MARKS, phases, strict=False))
    caption = (
        "Each mark is a kernel, its area the share of the GPU's time. FLOP count "
        "padding; bytes are those that reach DRAM. Marks on the left edge do no FLOP "
        "(their height below the roof is the DRAM bandwidth they reach), marks on the "
        "right edge read next to nothing from DRAM."
    )
    caption += rest
    if left:
        caption += f" {left} kernels do neither and are not shown."

    chart = Chart(
        identity,
        title,
        caption,
        functools.partial(_draw, shown, roofs, dram_bandwidth, phases, colours, whole),
        [_text(kernel, whole, len(phases) > 1) for kernel in shown],
        width=WIDE,
        legend=legend(entries),
    )
    return figure(chart)


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


def _draw(
    kernels: Entries,
    roofs: Sequence[Roof],
    dram_bandwidth: float,
    phases: Sequence[str],
    colours: Mapping[str, int],
    whole: float,
    width: float,
    screen: str,
) -> Drawn:
    height = 420.0 if screen == "wide" else 320.0
    ridge = [roof.flop_per_s / dram_bandwidth for roof in roofs]
    both = [k for k in kernels if k["flop"] and k["dram_bytes"]]
    intensity = [k["flop"] / k["dram_bytes"] for k in both]
    ends = _REACH[0] * min(ridge), _REACH[1] * max(ridge)
    intensity = [min(max(x, ends[0]), ends[1]) for x in intensity]
    x = logarithmic([*intensity, *ridge, min(ridge) / 30], "FLOP per byte of DRAM", "")
    reached = [k["flop"] / k["time_s"] for k in kernels if k["flop"]]
    top = max(roof.flop_per_s for roof in roofs)
    values = [top, *reached, dram_bandwidth * x.low / _EDGE]
    y = logarithmic([v for v in values if v > top * _DEEPEST], "FLOP/s", "")
    panel = Panel(46.0, 34.0, width - 66, height - 82, x, y)
    lines = _roofs(panel, roofs, dram_bandwidth, screen)
    marks, points = [], []
    for kernel in kernels:
        flop, moved, time = kernel["flop"], kernel["dram_bytes"], kernel["time_s"]
        if not flop:
            place = panel.at(x.low, moved / time * x.low)
        elif not moved:
            place = panel.at(x.high, flop / time)
        else:
            place = panel.at(flop / moved, flop / time)
        share = kernel["count"] * time / whole
        radius = _LEAST + (_MOST - _LEAST) * share**0.5 * (
            0.7 if screen == "narrow" else 1
        )
        shape = phases.index(kernel["phase"])
        marks.append(mark(*place, radius, shape, f"dot c{colours[kernel['class']]}"))
        points.append(place)
    svg = drawing(width, height, panel.frame(), *lines, *marks, shown=screen)
    return Drawn(svg, points)


def _roofs(
    panel: Panel, roofs: Sequence[Roof], bandwidth: float, screen: str
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
        name = roof.name if screen == "wide" else roof.name.split(",")[0]
        found.append(words(end[0], end[1] - 6, f"{name} {text}", "tick halo end"))
    return found


def mark(x: float, y: float, radius: float, shape: int, style: str) -> str:
    """A circle, square, triangle or diamond of about the same area."""
    if shape == 0:
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}" class="{style}"/>'
    r = radius * (0.89, 1.25, 1.25)[min(shape, 3) - 1]
    corners = {
        1: ((-r, -r), (r, -r), (r, r), (-r, r)),
        2: ((0, -r), (r, 0.8 * r), (-r, 0.8 * r)),
        3: ((0, -r), (r, 0), (0, r), (-r, 0)),
    }[min(shape, 3)]
    path = "L".join(f"{x + a:.1f} {y + b:.1f}" for a, b in corners)
    return f'<path d="M{path}Z" class="{style}"/>'
