"""One pass of each phase over time: power of every launch, one colour a class."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from ....estimator import one_gpu_phases
from ....workload import Listing, kernel_name
from ..._format import Entries, Entry
from ..._traces.unrolled import Unrolled, slice_power, unrolled, wait_power
from ..markup import si
from .figures import (
    NARROW,
    Drawn,
    Panel,
    figure,
    linear,
    swatch,
    time_axis,
    unavailable,
)

_DRAWN: Final = 4000
"""Launches of a pass that are drawn one by one."""
_PASSES: Final = 200_000
"""Launches of a phase among whose passes the middle one is taken."""


class Pass(NamedTuple):
    """Slices of one pass from left to right; -1 as a row: waiting for the host.
    `folded`: a slice is all launches of a kernel."""

    row: Int[np.ndarray, " slice"]
    edge: Float[np.ndarray, " edge"]  # s, one more than slices
    power: Float[np.ndarray, " slice"]  # W
    folded: bool


def timelines(
    listings: Sequence[Listing],
    kernels: Entries,
    summary: Entry,
    colours: Mapping[str, int],
    cap: float,
) -> str:
    """A chart of each phase that has not too many kernels. `cap`: power that the
    limiter holds, W; `colours`: by class."""
    phases = list(one_gpu_phases(summary).values())
    one_by_one = unrolled(listings, kernels, phases, _PASSES)
    by_kernel = unrolled(listings, kernels, phases, 0)
    idle = wait_power(by_kernel, kernels, phases)
    charts = []
    for number, name in enumerate(summary["phases"]):
        found = one_by_one
        shown, turn = _middle_pass(found, number)
        if shown.sum() > _DRAWN:
            found = by_kernel
            shown, turn = _middle_pass(found, number)
        if shown.sum() > _DRAWN:
            why = "it has too many kernels to draw."
            charts.append(unavailable(f"timeline-{number}", f"Timeline of {name}", why))
            continue
        one = _pass(found, shown, slice_power(found, kernels), float(idle[number]))
        several = found.turn[found.phase == number].any()
        passes = f"pass {turn + 1} of {listings[number].passes:g}"
        which = passes if several and not one.folded else "all"
        charts.append(_chart(number, name, which, one, kernels, colours, cap))
    return "".join(charts)


def _middle_pass(found: Unrolled, phase: int) -> tuple[Bool[np.ndarray, " slice"], int]:
    """Slices of the middle one of the passes that are shown launch by launch, and its
    number."""
    own = (found.phase == phase) & (found.launches == 1)
    if not own.any():
        own = found.phase == phase
    turns = np.unique(found.turn[own])
    turn = int(turns[len(turns) // 2])
    return (found.phase == phase) & (found.turn == turn), turn


def _pass(
    found: Unrolled,
    shown: Bool[np.ndarray, " slice"],
    power: Float[np.ndarray, " slice"],
    idle: float,
) -> Pass:
    """`shown` slices and the waits between them; one for all if they are folded."""
    start, time = found.start[shown], found.time[shown]
    slices, waits = (found.row[shown], power[shown]), (-1, idle)
    folded = bool((found.launches[shown] > 1).any())
    if folded:
        edges = np.append(0.0, np.cumsum(time))
        row, heights = map(np.append, slices, waits)
    else:
        edges = np.column_stack([start, start + time]).ravel() - start[0]
        pairs = (np.broadcast_arrays(*both) for both in zip(slices, waits, strict=True))
        row, heights = (np.column_stack(both).ravel() for both in pairs)
    last = np.flatnonzero(shown)[-1] + 1
    end = found.start[last] if last < len(found.start) else found.phases[-1, 1]
    ends = max(end, start[-1] + time[-1]) - start[0]
    edges = np.append(edges, ends)
    kept = (row >= 0) | (np.diff(edges) > 1e-4 * ends) & np.isfinite(heights)
    return Pass(row[kept], np.append(edges[:-1][kept], ends), heights[kept], folded)


def _chart(
    number: int,
    phase: str,
    which: str,
    one: Pass,
    kernels: Entries,
    colours: Mapping[str, int],
    cap: float,
) -> str:
    classes = [kernels[i]["class"] if i >= 0 else "" for i in one.row.tolist()]
    present = [name for name in colours if name in set(classes)]
    keys = [(swatch(colours[name]), name) for name in present]
    if "" in classes:
        keys.append((swatch("wait"), "waiting for the host"))
    whole = f"{si(float(one.edge[-1]), 's')} in all"
    how = (
        "A slice is all launches of a kernel (they are too many to draw, or passes "
        f"differ), {whole}."
        if one.folded
        else f"Every launch of {'the pass' if which == 'all' else which}, one after "
        f"another, {whole}."
    )
    how += (
        " Height is mean power, idle and leakage included; what the limiter holds is "
        "the mean of the phase."
    )
    rows = [-1, *range(len(kernels))]
    texts = [_text(kernels[i]) if i >= 0 else "waiting for the host" for i in rows]
    return figure(
        f"timeline-{number}",
        f"Timeline of {phase}" + ("" if which == "all" else f", {which}"),
        how,
        lambda width: _draw(one, classes, colours, cap, width),
        texts,
        which=(one.row + 1).tolist(),
        read="span",
        keys=keys,
    )


def _text(kernel: Entry) -> str:
    if kernel["time_s"] is None:
        return f"{kernel_name(kernel)}: never launched"
    power = kernel["energy_j"] / kernel["time_s"]
    return (
        f"{kernel_name(kernel)}: {si(kernel['time_s'], 's')}, {power:.0f} W, "
        f"{si(kernel['energy_j'], 'J')} a launch, limited by {kernel['limited_by']}"
    )


def _draw(
    one: Pass,
    classes: Sequence[str],
    colours: Mapping[str, int],
    cap: float,
    width: float,
) -> Drawn:
    height = 250.0 if width == NARROW else 280.0
    power = linear([0.0, cap, float(one.power.max())], "power", "W", 5, zero=True)
    time = time_axis(float(one.edge[-1]), width)
    panel = Panel(46.0, 34.0, width - 60, height - 80, time, power)
    shapes: dict[str, list[str]] = {}
    base = panel.top + panel.height
    points = []
    for a, b, watts, name in zip(
        one.edge[:-1].tolist(), one.edge[1:].tolist(), one.power.tolist(), classes,
        strict=True,
    ):  # fmt: skip
        left, top = panel.at(a, watts)
        right = panel.at(b, watts)[0]
        shapes.setdefault(name, []).append(
            f"M{left:.2f} {base:.0f}V{top:.1f}H{right:.2f}V{base:.0f}"
        )
        points.append((left, top))
    styles = {name: f"c{colours[name]}" if name else "wait" for name in shapes}
    paths = [
        f'<path d="{"".join(parts)}" class="slice {styles[name]}"/>'
        for name, parts in shapes.items()
    ]
    limit = panel.level(cap, f"limit that is held: {cap:.0f} W")
    return Drawn(height, [panel.frame(), *paths, limit], points)
