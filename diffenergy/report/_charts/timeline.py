"""One pass of each phase over time: power of every launch, one colour a class."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from ...charts import Axis, Boxes, Chart, Colour, Mark, Panel, Reading, Rule
from ...estimator import Unrolled, one_gpu_phases, slice_power, unroll, wait_power
from ...workload import Listing, kernel_name
from .._format import Entries, Entry
from .._page.markup import si

_DRAWN: Final = 4000
"""Maximum number of launches of a pass drawn one by one."""
_PASSES: Final = 200_000
"""Maximum number of launches of a phase from whose passes the middle one is taken."""


class Pass(NamedTuple):
    """Slices of one pass from left to right; row -1: waiting for the host. `folded`: a
    slice is all launches of a kernel."""

    row: Int[np.ndarray, " slice"]
    edge: Float[np.ndarray, " edge"]  # s, one more than slices
    power: Float[np.ndarray, " slice"]  # W
    folded: bool


def timelines(
    listings: Sequence[Listing],
    kernels: Entries,
    summary: Entry,
    looks: Mapping[str, int],
    power_limit: float,
) -> dict[str, Chart]:
    """Return a chart of each phase. `power_limit`: power limit (W); `looks`: colours of
    classes."""
    phases = list(one_gpu_phases(summary).values())
    one_by_one = unroll(listings, kernels, phases, _PASSES)
    by_kernel = unroll(listings, kernels, phases, 0)
    idle = wait_power(by_kernel, kernels, phases)
    charts = {}
    for number, name in enumerate(summary["phases"]):
        chosen = one_by_one
        shown, turn = _middle_pass(chosen, number)
        if shown.sum() > _DRAWN:
            chosen = by_kernel
            shown, turn = _middle_pass(chosen, number)
        if shown.sum() > _DRAWN:
            why = "it has too many kernels to draw."
            charts[f"timeline-{name}"] = Chart(f"Timeline of {name}", [], why)
            continue
        one = _pass(chosen, shown, slice_power(chosen, kernels), float(idle[number]))
        several = chosen.turn[chosen.phase == number].any()
        passes = f"pass {turn + 1} of {listings[number].passes:g}"
        which = passes if several and not one.folded else "all"
        chart = _chart(name, which, one, kernels, looks, power_limit)
        charts[f"timeline-{name}"] = chart
    return charts


def _middle_pass(
    slices: Unrolled, phase: int
) -> tuple[Bool[np.ndarray, " slice"], int]:
    """Slices of the middle pass among those shown launch by launch, and its number."""
    in_phase = (slices.phase == phase) & (slices.launches == 1)
    if not in_phase.any():
        in_phase = slices.phase == phase
    turns = np.unique(slices.turn[in_phase])
    turn = int(turns[len(turns) // 2])
    return (slices.phase == phase) & (slices.turn == turn), turn


def _pass(
    whole: Unrolled,
    shown: Bool[np.ndarray, " slice"],
    power: Float[np.ndarray, " slice"],
    idle: float,
) -> Pass:
    """`shown` slices and the waits between them; folded slices have one wait at the
    end."""
    start, time = whole.start[shown], whole.time[shown]
    slices, waits = (whole.row[shown], power[shown]), (-1, idle)
    folded = bool((whole.launches[shown] > 1).any())
    if folded:
        edges = np.append(0.0, np.cumsum(time))
        row, heights = map(np.append, slices, waits)
    else:
        edges = np.column_stack([start, start + time]).ravel() - start[0]
        pairs = (np.broadcast_arrays(*both) for both in zip(slices, waits, strict=True))
        row, heights = (np.column_stack(both).ravel() for both in pairs)
    last = np.flatnonzero(shown)[-1] + 1
    end = whole.start[last] if last < len(whole.start) else whole.phases[-1, 1]
    ends = max(end, start[-1] + time[-1]) - start[0]
    edges = np.append(edges, ends)
    visible = (row >= 0) | (np.diff(edges) > 1e-4 * ends) & np.isfinite(heights)
    return Pass(
        row[visible], np.append(edges[:-1][visible], ends), heights[visible], folded
    )


def _chart(
    phase: str,
    which: str,
    one: Pass,
    kernels: Entries,
    looks: Mapping[str, int],
    power_limit: float,
) -> Chart:
    classes = np.array(
        [kernels[i]["class"] if i >= 0 else "" for i in one.row.tolist()]
    )
    groups: list[tuple[str, str, Colour]]
    groups = [(name, name, colour) for name, colour in looks.items()]
    groups.append(("", "waiting for the host", "light"))
    marks: list[Mark] = []
    for key, name, colour in groups:
        mine = classes == key
        if mine.any():
            left, right = one.edge[:-1][mine].tolist(), one.edge[1:][mine].tolist()
            low, high = [0.0] * len(left), one.power[mine].tolist()
            marks.append(Boxes(left, right, low, high, name, colour))
    marks.append(Rule(power_limit, f"power limit: {power_limit:.0f} W"))
    whole = f"{si(float(one.edge[-1]), 's')} in all"
    how = (
        "A slice is all launches of a kernel (they are too many to draw, or passes "
        f"differ), {whole}."
        if one.folded
        else f"Every launch of {'the pass' if which == 'all' else which}, one after "
        f"another, {whole}."
    )
    how += (
        " Height is mean power, idle and leakage included; the power limit applies to "
        "the mean of the phase."
    )
    rows = [-1, *range(len(kernels))]
    texts = [_text(kernels[i]) if i >= 0 else "waiting for the host" for i in rows]
    points = zip(
        one.edge[:-1].tolist(), one.power.tolist(), one.row.tolist(), strict=True
    )
    x = Axis("time", "s", zero=True, high=float(one.edge[-1]))
    panel = Panel(
        x, Axis("power", "W", zero=True), marks,
        [Reading(start, watts, texts[row + 1]) for start, watts, row in points],
        spans=True,
    )  # fmt: skip
    of = "" if which == "all" else f", {which}"
    return Chart(f"Timeline of {phase}{of}", [panel], how)


def _text(kernel: Entry) -> str:
    if kernel["time_s"] is None:
        return f"{kernel_name(kernel)}: never launched"
    power = kernel["energy_j"] / kernel["time_s"]
    return (
        f"{kernel_name(kernel)}: {si(kernel['time_s'], 's')}, {power:.0f} W, "
        f"{si(kernel['energy_j'], 'J')} a launch, limited by {kernel['limited_by']}"
    )
