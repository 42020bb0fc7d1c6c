"""`unroll`: the launches behind an estimate, one after another on the GPU's stream.

A listing says how often a kernel is launched, not when. Its launches are put in the
order of `workload.loops_of` (the layers one after another), pass by pass.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ...workload import Kernel, Listing, Number, loops_of

Entries = Sequence[Mapping[str, Any]]

MOST: Final = 20_000
"""Maximum number of launches of a phase shown one by one."""
_GROWING: Final = ("count", "kv_len")
"""Rows that differ only in these keys are one place of a layer, launched in turn as the
context grows."""


class Unrolled(NamedTuple):
    """Slices in the order of their start. A slice is one launch, or all launches of a
    kernel that are not shown one by one; the host issues it before it starts."""

    row: Int[np.ndarray, " slice"]  # number of the kernel, through all listings
    launches: Float[np.ndarray, " slice"]
    phase: Int[np.ndarray, " slice"]
    turn: Int[np.ndarray, " slice"]  # pass of its phase
    start: Float[np.ndarray, " slice"]  # s
    time: Float[np.ndarray, " slice"]  # s that the GPU is busy
    host_start: Float[np.ndarray, " slice"]  # s
    host_time: Float[np.ndarray, " slice"]  # s that the host takes to issue it
    phases: Float[np.ndarray, "phase 2"]  # s, start and end

    @property
    def folded_launches(self) -> Float[np.ndarray, " phase"]:
        """Number of launches of each phase that are not shown one by one."""
        hidden = np.where(self.launches != 1, self.launches, 0.0)
        return np.bincount(self.phase, hidden, len(self.phases))


def unroll(
    listings: Sequence[Listing], kernels: Entries, phases: Entries, most: int = MOST
) -> Unrolled:
    """Return slices of the whole estimate, in which the GPU is busy or waits for its
    host.

    `kernels` are those of `summary.kernel_entries`, `phases` those of a summary in the
    order of `listings`. A phase ends when its last slice does, after the time that the
    estimate gives it; whole passes are shown launch by launch as long as they have at
    most `most` launches, the rest of the phase as one slice a kernel.
    """
    parts, spans, first, begin = [], [], 0, 0.0
    for number, (listing, phase) in enumerate(zip(listings, phases, strict=True)):
        row, launches, turn = launch_order(listing.kernels, listing.passes, most)
        row = row + first
        once = np.array([kernels[i]["time_s"] for i in row], dtype=float)
        busy, end = once * launches, begin + phase["time_s"]
        host = phase["host_time_s"] * launches / launches.sum()
        start = begin + start_times(busy, host, phase["time_s"])
        owner = np.full(len(row), number)
        parts.append((row, launches, owner, turn, start, busy, host))
        spans.append((begin, end))
        first, begin = first + len(listing.kernels), end
    row, launches, owner, turn, start, busy, host = map(
        np.concatenate, zip(*parts, strict=True)
    )
    issued = issue_times(start, host)
    ahead = max(0.0, -float(issued[0]))
    return Unrolled(
        row, launches, owner, turn, start + ahead, busy,
        issued + ahead, host, np.array(spans) + ahead,
    )  # fmt: skip


def launch_order(
    kernels: Sequence[Kernel], passes: Number, most: int
) -> tuple[
    Int[np.ndarray, " slice"], Float[np.ndarray, " slice"], Int[np.ndarray, " slice"]
]:
    """Return (row, launches, pass) of every slice of a phase; rows that are never
    launched have none.

    >>> from diffenergy.workload._listing import normalise_kernel
    >>> norm = dict(op="rmsnorm", rows=1, cols=8, dtype="bf16")
    >>> rows = [normalise_kernel({**norm, "count": n}, "here") for n in (2, 4, 4)]
    >>> launch_order(rows, 2, 100)[0]
    array([0, 1, 2, 1, 2, 0, 1, 2, 1, 2])
    """
    counts = np.array([kernel["count"] for kernel in kernels], dtype=float)
    places = _places(kernels)
    totals = np.array([counts[place].sum() for place in places])
    whole = bool((counts % 1 == 0).all() and (totals % passes == 0).all())
    turns = round(passes) if whole and passes % 1 == 0 else 1
    each = totals / turns
    shown = min(turns, int(most // each.sum())) if (counts % 1 == 0).all() else 0
    if shown == 0:
        live = np.flatnonzero(counts > 0)
        return live, counts[live], np.zeros(len(live), dtype=np.int64)
    loops = loops_of([round(n) for n in each])
    once = np.concatenate([np.tile(loop.kernels, loop.turns) for loop in loops])
    place = np.tile(once, shown).astype(np.int64)
    row = np.empty_like(place)
    row[np.argsort(place, kind="stable")] = _in_turn(places, counts, each * shown)
    rest = counts - np.bincount(row, minlength=len(counts))
    left = np.flatnonzero(rest > 0)
    turn = np.repeat(np.arange(shown), len(once))
    return (
        np.concatenate([row, left]),
        np.concatenate([np.ones(len(row)), rest[left]]),
        np.concatenate([turn, np.full(len(left), shown)]),
    )


def _in_turn(
    places: Sequence[Int[np.ndarray, "..."]],
    counts: Float[np.ndarray, " row"],
    lengths: Float[np.ndarray, " place"],
) -> Int[np.ndarray, " launch"]:
    """Rows of the first `lengths` launches of every place, place after place."""
    rows = np.concatenate(places)
    owner = np.repeat(np.arange(len(places)), [len(place) for place in places])
    repeats = np.minimum(counts[rows], lengths[owner]).astype(np.int64)
    turns, owner = np.repeat(rows, repeats), np.repeat(owner, repeats)
    first = np.searchsorted(owner, np.arange(len(places)))
    return turns[np.arange(len(turns)) - first[owner] < lengths[owner]]


def start_times(
    busy: Float[np.ndarray, " slice"], host: Float[np.ndarray, " slice"], time: float
) -> Float[np.ndarray, " slice"]:
    """Return the start times (s) of slices that run one after another and end after
    `time` (s).

    A slice waits until the host, which issues one after another, has come to it. These
    waits are scaled to the ones that the estimate knows: `time` less the busy time.
    """
    ready = np.cumsum(host)
    ends = np.cumsum(busy)
    begins = ends - busy
    waited = np.maximum.accumulate(ready - begins)
    waited -= waited[0]
    spare = max(0.0, time - float(ends[-1]))
    if waited[-1] > 0:
        return begins + waited * (spare / waited[-1])
    return begins * (1 + spare / ends[-1]) + busy * (spare / ends[-1])


def issue_times(
    start: Float[np.ndarray, " slice"], host: Float[np.ndarray, " slice"]
) -> Float[np.ndarray, " slice"]:
    """Return when the host begins to issue each slice (s): as late as possible, one at
    a time, and done before the slice starts; below 0 where the host must be ahead of
    the GPU."""
    done = np.cumsum(host)
    latest = np.minimum.accumulate((start - done)[::-1])[::-1]
    return latest + done - host


def slice_power(slices: Unrolled, kernels: Entries) -> Float[np.ndarray, " slice"]:
    """Return the mean power of each slice (W), idle and leakage included."""
    power = [
        math.nan if k["time_s"] is None else k["energy_j"] / k["time_s"]
        for k in kernels
    ]
    return np.array(power)[slices.row]


def wait_power(
    slices: Unrolled, kernels: Entries, phases: Entries
) -> Float[np.ndarray, " phase"]:
    """Return the power while the GPU waits for its host (W); NaN in a phase in which it
    never does."""
    num = len(phases)
    energy = np.bincount(slices.phase, slice_power(slices, kernels) * slices.time, num)
    busy = np.bincount(slices.phase, slices.time, num)
    whole = np.array([[p["energy_j"], p["time_s"]] for p in phases], dtype=float)
    wait = whole[:, 1] - busy
    waiting = wait > 1e-9 * whole[:, 1]
    return np.where(
        waiting, (whole[:, 0] - energy) / np.where(waiting, wait, 1.0), np.nan
    )


def _places(kernels: Sequence[Kernel]) -> list[Int[np.ndarray, "..."]]:
    """Rows that belong to one place of a layer, in turn."""
    places: dict[Any, list[int]] = {}
    for i, kernel in enumerate(kernels):
        same = tuple((k, str(v)) for k, v in kernel.items() if k not in _GROWING)
        places.setdefault(same if "kv_len" in kernel else i, []).append(i)
    return [np.array(rows) for rows in places.values()]
