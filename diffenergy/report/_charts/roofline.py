"""The roofline with every kernel on it."""

from collections.abc import Mapping, Sequence
from typing import Final

from ...charts import Axis, Boxes, Chart, Label, Line, Mark, Panel, Points, Reading
from ...estimator import Roof
from ...workload import kernel_name
from .._format import Entries, Entry, longest, percent
from .._page.markup import si

_LEAST: Final = 3.0
_MOST: Final = 15.0
"""Radius (px) of a kernel that takes no time, and of one that takes all."""
_EDGE: Final = 20.0
"""Factor between the DRAM roof at the left edge and the lower end of the axis."""
_DEEPEST: Final = 1e-6
"""Rate relative to the highest roof below which kernels are drawn on the lower edge."""
_REACH: Final = (1e-4, 50.0)
"""Intensities drawn, relative to the ridge points; kernels beyond are drawn on the
edges."""
_ROOM: Final = 2.0
"""Factor between the data and the axes' ends."""
_APART: Final = 1.5
"""Ratio of two roofs above which both are labelled."""


def roofline(
    kernels: Entries,
    roofs: Sequence[Roof],
    dram_bandwidth: float,
    looks: Mapping[str, int],
) -> Chart:
    """Return a roofline chart: compute rate (FLOP/s) against intensity (FLOP/B of DRAM)
    of every kernel that does FLOP or moves bytes; without kernels or roofs, a chart
    that says why it is empty. `looks`: colours of classes."""
    title = "Roofline"
    live, rest = longest(kernels)  # small ones on top
    shown = [k for k in live if k["flop"] or k["dram_bytes"]]
    if not shown or not roofs:
        why = "no kernel has FLOP and a peak to hold them against."
        return Chart(title, [], why)
    phases = list(dict.fromkeys(k["phase"] for k in kernels))
    whole = sum(k["count"] * k["time_s"] for k in kernels if k["time_s"])
    caption = (
        "Each mark is a kernel, its area the share of the GPU's time. FLOP count "
        "padding; bytes are those that reach DRAM. Marks on the left edge do no FLOP "
        "(their height below the roof is the DRAM bandwidth they reach), marks on the "
        "right edge read almost nothing from DRAM." + rest
    )
    if left := len(live) - len(shown):
        caption += f" {left} kernels do neither and are not shown."
    x, y = _axes(shown, roofs, dram_bandwidth)
    places = [_place(kernel, x, y) for kernel in shown]
    shares = [kernel["count"] * kernel["time_s"] / whole for kernel in shown]
    dots = Points(
        [place[0] for place in places],
        [place[1] for place in places],
        colour=[looks[kernel["class"]] for kernel in shown],
        shape=[phases.index(kernel["phase"]) % 7 for kernel in shown],
        size=[_LEAST + (_MOST - _LEAST) * share**0.5 for share in shares],
    )
    readings = [
        Reading(*place, _text(kernel, share, len(phases) > 1))
        for place, kernel, share in zip(places, shown, shares, strict=True)
    ]
    present = {k["class"] for k in shown}
    legend: list[Mark] = [
        Boxes((), (), (), (), name, colour)
        for name, colour in looks.items()
        if name in present
    ]
    if len(phases) > 1:
        legend += [Points((), (), x, "ink", i % 7) for i, x in enumerate(phases)]
    marks = [*legend, *_roofs(x, y, roofs, dram_bandwidth), dots]
    return Chart(title, [Panel(x, y, marks, readings, height=340.0)], caption)


def _text(kernel: Entry, share: float, several: bool) -> str:
    flop, moved, time = kernel["flop"], kernel["dram_bytes"], kernel["time_s"]
    words = [
        f"{si(flop / time, 'FLOP/s')}" if flop else "no FLOP",
        f"{si(moved / time, 'B/s')} of DRAM" if moved else "nothing from DRAM",
        f"{flop / moved:.3g} FLOP/B" if flop and moved else "",
        f"limited by {kernel['limited_by']}",
        f"{percent(share)} of the GPU's time",
    ]
    name = kernel_name(kernel) + (f" ({kernel['phase']})" if several else "")
    return f"{name}: {', '.join(filter(None, words))}"


def _axes(
    kernels: Entries, roofs: Sequence[Roof], dram_bandwidth: float
) -> tuple[Axis, Axis]:
    """Axes that cover the ridge points and the kernels within `_REACH`."""
    ridge = [roof.flop_per_s / dram_bandwidth for roof in roofs]
    ends = _REACH[0] * min(ridge), _REACH[1] * max(ridge)
    both = [k for k in kernels if k["flop"] and k["dram_bytes"]]
    intensity = [min(max(k["flop"] / k["dram_bytes"], ends[0]), ends[1]) for k in both]
    across = [*intensity, *ridge, min(ridge) / 30]
    low, high = min(across) / _ROOM, max(across) * _ROOM
    x = Axis("arithmetic intensity", "FLOP per byte of DRAM", True, low=low, high=high)
    reached = [k["flop"] / k["time_s"] for k in kernels if k["flop"]]
    top = max(roof.flop_per_s for roof in roofs)
    up = [
        v for v in (top, *reached, dram_bandwidth * low / _EDGE) if v > top * _DEEPEST
    ]
    y = Axis("compute rate", "FLOP/s", True, low=min(up) / _ROOM, high=max(up) * _ROOM)
    return x, y


def _place(kernel: Entry, x: Axis, y: Axis) -> tuple[float, float]:
    """Coordinates of a kernel; on an edge if it does no FLOP, moves no bytes or lies
    outside."""
    flop, moved, time = kernel["flop"], kernel["dram_bytes"], kernel["time_s"]
    low, high, bottom = x.low or 0.0, x.high or 0.0, y.low or 0.0
    if not flop:
        return low, max(moved / time * low, bottom)
    across = min(max(flop / moved, low), high) if moved else high
    return across, max(flop / time, bottom)


def _roofs(x: Axis, y: Axis, roofs: Sequence[Roof], bandwidth: float) -> list[Mark]:
    """Lines of the DRAM slope up to the highest compute roof, and of all compute
    roofs."""
    low, high, bottom = x.low or 0.0, x.high or 0.0, y.low or 0.0
    top, begin = roofs[0].flop_per_s, max(low, bottom / bandwidth)
    look = {"colour": "ink", "width": 1.5}
    slope = (begin, top / bandwidth)
    marks: list[Mark] = [Line(slope, [a * bandwidth for a in slope], **look)]
    middle = (slope[0] * slope[1]) ** 0.5
    marks.append(
        Label(middle, middle * bandwidth, f"DRAM {si(bandwidth, 'B/s')}", "left")
    )
    last = float("inf")
    for roof in roofs:
        rate = roof.flop_per_s
        marks.append(Line((rate / bandwidth, high), (rate, rate), **look))
        if last > _APART * rate:
            last = rate
            text = f"{roof.name} {si(rate, 'FLOP/s')}"
            marks.append(Label(high, rate, text, "above"))
    return marks
