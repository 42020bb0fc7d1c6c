"""How far a schedule may be off: 1e-9 of its last end, 1e-6 of a block."""

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from diffenergy.collectives import Schedule, Violation

from .builders import (
    changed,
    only,
    reducing_rows,
    ring_rows,
    schedule,
    unit_demand,
    unit_ring,
    unit_star,
    verify,
)

INSIDE, OUTSIDE = 0.95, 1.05
BLOCK = 4.0
"""B of a block, which links of 1 carry in a second."""
Change = Callable[[float], dict[str, Any]]
"""What is changed of a send, given by how much (s, or share of a block)."""


def _wanted(topology: Any, collective: Any, *takers: int) -> Any:
    """gpu0's block alone, for `takers`."""
    whole = unit_demand(topology, collective, BLOCK)
    return only(whole, 0, takers)


def _gather() -> Schedule:
    """Three steps of 1.5 s around a ring of four."""
    topology = unit_ring(4, BLOCK, latency=0.5)
    rows = ring_rows(4, 0.5)
    return schedule(topology, unit_demand(topology, "all_gather", BLOCK), rows)


def _scatter() -> Schedule:
    topology = unit_ring(4, BLOCK)
    wanted = unit_demand(topology, "reduce_scatter", BLOCK)
    return schedule(topology, wanted, reducing_rows(4))


def _all_reduce() -> Schedule:
    topology = unit_ring(2, BLOCK)
    rows = [(0, "gpu1", "gpu0", 0.0, 1.0), (0, "gpu0", "gpu1", 1.0, 2.0)]
    wanted = _wanted(topology, "all_reduce", 0, 1)
    return schedule(topology, wanted, rows, phase=[0, 1])


def _shared_link() -> Schedule:
    """Both ways two blocks over a link in [0, 2], the first of them in [0, 1]."""
    topology = unit_ring(2, BLOCK)
    wanted = unit_demand(topology, "all_gather", BLOCK, 2)
    blocks = [(0, "gpu0", "gpu1"), (1, "gpu0", "gpu1"), (2, "gpu1", "gpu0")]
    blocks.append((3, "gpu1", "gpu0"))
    rows = [(*row, 0.0, 1.0 + n % 2) for n, row in enumerate(blocks)]
    return schedule(topology, wanted, rows)


def _in_the_middle() -> Schedule:
    """The second block passes while the first is under way."""
    original = _shared_link()
    for send, (start, end) in enumerate([(0.0, 2.0), (0.5, 1.5)] * 2):
        original = changed(original, send, start=start, end=end)
    return original


def _line(*takers: int) -> Schedule:
    """gpu0's block in halves to gpu1 and on to gpu2."""
    topology = unit_ring(3, BLOCK)
    hops = [("gpu0", "gpu1", 0.0), ("gpu0", "gpu1", 0.5)]
    hops += [("gpu1", "gpu2", 0.5), ("gpu1", "gpu2", 1.0)]
    rows = [(0, *hop, end) for hop, end in zip(hops, (0.5, 1.0, 1.0, 1.6), strict=True)]
    wanted = _wanted(topology, "all_gather", *takers)
    return schedule(topology, wanted, rows, size=[BLOCK / 2] * 4)


def _again(*size: float) -> Schedule:
    """gpu0's block to two others in parts, and what is sent after them to gpu1."""
    topology = unit_ring(3, BLOCK)
    rows = [(0, "gpu0", "gpu2", 0.0, 1.0)]
    rows += [(0, "gpu0", "gpu1", 2.0 * n, 2.0 * n + 2) for n in range(len(size))]
    wanted = _wanted(topology, "all_gather", 1, 2)
    return schedule(topology, wanted, rows, size=[BLOCK, *(BLOCK * x for x in size)])


def _switched(half: bool, out: float = 1.0, **switch: bool) -> Schedule:
    """gpu0's block to gpu1 (whole: and gpu2) through a switch, 0.25 s a hop, whole or
    in halves, at a block a second in and `out` out."""
    topology = unit_star(3, BLOCK, latency=0.25, **switch)
    links = tuple(
        dataclasses.replace(link, rate=out * BLOCK) if link.source == 3 else link
        for link in topology.links
    )
    topology = dataclasses.replace(topology, links=links)
    size = 0.5 if half else 1.0
    rows = [
        (0, "gpu0", "sw0", n * size, (n + 1) * size + 0.25) for n in range(1 + half)
    ]
    for n in range(2):
        begun = n * size + 0.25 if half else 0.25
        rows.append(
            (0, "sw0", f"gpu{1 if half else n + 1}", begun, begun + size + 0.25)
        )
    wanted = _wanted(topology, "all_gather", *([1] if half else [1, 2]))
    return schedule(topology, wanted, rows, size=[BLOCK * size] * len(rows))


TIMES: list[tuple[Callable[[], Schedule], int, Change, str]] = [
    (_gather, 3, lambda s: {"end": 1.5 - s}, "ends before its bytes"),
    (_gather, 5, lambda s: {"start": 1.5 - s}, "does not hold yet"),
    (_shared_link, 1, lambda s: {"end": 2 - s}, "over the capacity"),
    (_in_the_middle, 0, lambda s: {"end": 2 - s}, "over the capacity"),
    (_scatter, 5, lambda s: {"start": 1 - s}, "never reaches the sum"),
    (_all_reduce, 1, lambda s: {"start": 1 - s}, "does not hold yet"),
    (lambda: _line(2), 2, lambda s: {"start": 0.5 - s}, "more of its block"),
    (lambda: _line(1, 2), 2, lambda s: {"start": 0.5 - s}, "a part of its block"),
    (lambda: _switched(False), 1, lambda s: {"start": 0.25 - s}, "not hold yet"),
    (lambda: _switched(False), 1, lambda s: {"start": 1.25 + s, "end": 2.5 + s},
     "waits in sw0, which cannot store"),
    (lambda: _switched(False, 2.0), 1, lambda s: {"end": 1.5 - s},
     "before its last byte has come in"),
    (lambda: _switched(True), 3, lambda s: {"start": 0.75 - s}, "send 3 .*again"),
    (lambda: _switched(True), 3, lambda s: {"start": 1.25 + s, "end": 2.0 + s},
     "waits in sw0, which cannot store"),
    (lambda: _switched(True, 2.0), 3, lambda s: {"end": 1.5 - s},
     "before its last byte has come in"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "send", "change", "says"), TIMES)
def test_times(make, send: int, change: Change, says: str):
    """Shifted by a share of 1e-9 of the last end."""
    original = make()
    last = max(original.sends.end.max(), change(0.0).get("end", 0.0))
    verify(changed(original, send, **change(INSIDE * 1e-9 * last)))
    with pytest.raises(Violation, match=says):
        verify(changed(original, send, **change(OUTSIDE * 1e-9 * last)))


def _moved(share: float, sign: int, **more: float) -> Change:
    """Carries a share of the block, and more or less."""
    return lambda b: {"bytes": BLOCK * (share + sign * b), **more}


BYTES: list[tuple[Callable[[], Schedule], int, Change, str]] = [
    (_gather, 11, _moved(1, +1, end=5.0), "more than its block has"),
    (_gather, 11, _moved(1, -1), "never comes whole to gpu0"),
    (_scatter, 11, _moved(1, -1), "sums move whole"),
    (lambda: _line(2), 3, _moved(0.5, -1), "never comes whole to gpu2"),
    (lambda: _line(2), 2, _moved(0.5, +1, end=1.1), "more of its"),
    (lambda: _line(1, 2), 3, _moved(0.5, -1), "never comes whole to gpu2"),
    (lambda: _line(1, 2), 1, _moved(0.5, -1), "a part of its block"),
    (lambda: _again(0.5, 1.0), 2, _moved(1, -1), "send 2 .*a part of"),
    (lambda: _again(0.5, 0.5, 0.5), 2, _moved(0.5, -1), "send 3 .*a part"),
    (lambda: _switched(True, 2.0), 2, _moved(0.5, +1), "send [23] .*sw0"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "send", "change", "says"), BYTES)
def test_bytes(make, send: int, change: Change, says: str):
    """More or less by a share of 1e-6 of the block."""
    original = make()
    verify(changed(original, send, **change(INSIDE * 1e-6)))
    with pytest.raises(Violation, match=says):
        verify(changed(original, send, **change(OUTSIDE * 1e-6)))
