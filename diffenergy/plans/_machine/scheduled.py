"""Collectives on machines whose GPUs are not all behind one switch (rings, grids,
DGX-1): as long as the schedules that `collectives` finds for them, all groups at once.
"""

import functools
from typing import Any, Final

import numpy as np

from ... import collectives

Teams = tuple[tuple[int, ...], ...]
"""GPUs of each group that runs a collective by itself, all at the same time."""

_CHUNKS: Final = 4
"""Parts that a GPU's share is sent in: with one, double links of a DGX-1 idle."""
_SMALL, _LARGE = 2.0**10, 2.0**24
"""B of such a part, between which time is a line."""
_GATHERS: Final = {"reduce_scatter": 1, "all_reduce": 2, "custom_all_reduce": 2}
"""All-gathers that take as long: a reduce-scatter is one run backwards."""


def gpus_of(machine: str) -> int:
    """GPUs of a machine: a name or file that `diffenergy collective` takes.

    Raises `ValueError` if there is none.
    """
    return len(collectives.load_topology(machine).gpus)


@functools.lru_cache(maxsize=256)
def line(machine: str, kind: str, teams: Teams) -> tuple[float, float]:
    """s, and s of a byte, that a collective takes: the line through two sizes of the
    greedy schedule, links at their published rates. "send_recv": every team is a
    (source, target), and the buffer what passes between them. Links are taken to be as
    fast in both directions.

    Raises `ValueError` for GPUs that cannot reach each other.
    """
    if kind in _GATHERS:
        latency, each = line(machine, "all_gather", teams)
        return _GATHERS[kind] * latency, _GATHERS[kind] * each
    parts = _CHUNKS * (1 if kind == "send_recv" else len(teams[0]))
    sizes = [parts * part for part in (_SMALL, _LARGE)]
    short, long = (_seconds(machine, kind, teams, size) for size in sizes)
    each = (long - short) / (sizes[1] - sizes[0])
    return max(short - each * sizes[0], 0.0), each


def _seconds(machine: str, kind: str, teams: Teams, size: float) -> float:
    asked: dict[str, Any] = dict(
        chunks=_CHUNKS, search=collectives.Search(method="greedy")
    )
    if kind == "send_recv":
        number = gpus_of(machine)
        matrix = np.zeros((number, number))
        matrix[tuple(np.transpose(teams))] = size
        found = collectives.plan(machine, "all_to_all", matrix=matrix, **asked)
    else:
        groups = [list(team) for team in teams]
        found = collectives.plan(machine, kind, size, groups=groups, **asked)
    return float(found.finish)


def teams(gpus: int, ranks: int, stride: int) -> Teams:
    """Groups of `ranks` GPUs, one every `stride`, among the first `gpus`.

    >>> teams(8, 2, 2)
    ((0, 2), (1, 3), (4, 6), (5, 7))
    """
    across = ranks * stride
    return tuple(
        tuple(range(first, first + across, stride))
        for start in range(0, gpus, across)
        for first in range(start, start + stride)
    )


def pairs(gpus: int, stride: int) -> Teams:
    """GPUs and those that have the next stage."""
    return tuple((i, i + stride) for i in range(gpus - stride))
