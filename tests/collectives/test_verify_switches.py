"""What a switch passes on, against every pairing of what comes in and goes out."""

import itertools

import numpy as np
import pytest

from diffenergy.collectives import Schedule, Violation

from .builders import (
    changed,
    only,
    schedule,
    unit_both,
    unit_demand,
    unit_machine,
    unit_star,
    verify,
    without,
)

LATENCY = 0.25


def _right(original: Schedule) -> bool:
    try:
        verify(original)
    except Violation:
        return False
    return True


def _block(topology, collective, takers, summands=()):
    """gpu0's block alone."""
    whole = unit_demand(topology, collective)
    return only(whole, 0, list(takers), list(summands))


def _times(rng, number: int) -> list[tuple[float, float]]:
    """Quarters of a second; a send takes its latency at least, and next to no more."""
    start = rng.integers(0, 8, number) / 4
    return [(s, s + LATENCY + rng.integers(1, 6) / 4) for s in start.tolist()]


def _passes(came: tuple[float, float], goes: tuple[float, float]) -> bool:
    """Begun between the first and the last byte, and ended no earlier than it came."""
    return came[0] + LATENCY <= goes[0] <= came[1] <= goes[1] - LATENCY


def _paired(into, out) -> bool:
    """Whether every send out has a send in of its own."""
    return any(
        all(_passes(a, b) for a, b in zip(chosen, out, strict=True))
        for chosen in itertools.permutations(into, len(out))
    )


@pytest.mark.parametrize("copy", [False, True])
def test_whole_blocks(copy: bool):
    """gpu0 sends its block into the switch up to three times, and it goes out to gpu1
    and gpu2; a switch that copies may take the same once for either link."""
    topology = unit_star(3, rate=1e3, latency=LATENCY, copy=copy)
    wanted, rng = _block(topology, "all_gather", [1, 2]), np.random.default_rng(0)
    right = 0
    for _ in range(150):
        into = _times(rng, int(rng.integers(1, 4)))
        out = _times(rng, int(rng.integers(2, 4)))
        to = [1, 2, *rng.integers(1, 3, len(out) - 2).tolist()]
        rows = [(0, "gpu0", "sw0", *times) for times in into]
        rows += [
            (0, "sw0", f"gpu{n}", *times) for n, times in zip(to, out, strict=True)
        ]
        groups = [[x for n, x in zip(to, out, strict=True) if n == k] for k in (1, 2)]
        expected = all(_paired(into, x) for x in (groups if copy else [out]))
        right += expected
        assert _right(schedule(topology, wanted, rows)) == expected, rows
    assert right > 5


@pytest.mark.parametrize("reduces", [False, True])
def test_sums(reduces: bool):
    """Summands of three GPUs go to gpu0 through a switch, added up there or not: each
    in one send out, and something in each of them."""
    topology = unit_star(4, rate=1e3, latency=LATENCY, reduces=reduces)
    wanted = _block(topology, "reduce_scatter", [0], range(4))
    rng, right = np.random.default_rng(1), 0
    for _ in range(150):
        into = _times(rng, 3)
        out = _times(rng, int(rng.integers(1, 4)) if reduces else 3)
        rows = [(0, f"gpu{n}", "sw0", *times) for n, times in enumerate(into, 1)]
        rows += [(0, "sw0", "gpu0", *times) for times in out]
        ways = itertools.product(range(len(out)), repeat=3)
        expected = any(
            len(set(way)) == len(out)
            and all(_passes(into[n], out[o]) for n, o in enumerate(way))
            for way in ways
        )
        right += expected
        assert _right(schedule(topology, wanted, rows)) == expected, rows
    assert right > 5


def test_a_sum_through_two_switches():
    """Two summands meet in the first switch, the third in the second; what the second
    sends on starts at the moment at which the first does, with no latency."""
    names = "gpu0 gpu1 gpu2 gpu3 sw0 sw1"
    pairs = [("gpu0", "sw1"), ("gpu1", "sw1"), ("sw0", "sw1")]
    pairs += [("gpu2", "sw0"), ("gpu3", "sw0")]
    links = [link for a, b in pairs for link in unit_both(a, b, 1.0, 0.0)]
    topology = unit_machine(names, links, reduces=True)
    wanted = _block(topology, "reduce_scatter", [0], range(4))
    hops = [("sw1", "gpu0"), ("sw0", "sw1"), ("gpu1", "sw1"), ("gpu2", "sw0")]
    hops += [("gpu3", "sw0")]
    original = schedule(topology, wanted, [(0, *hop, 0.0, 1.0) for hop in hops])
    assert verify(original) == 1.0
    for send, says in [(4, "summand of gpu3 never reaches the sum in chunk 0 of gpu0"),
                       (1, "cannot pass it on"), (0, "cannot pass it on")]:  # fmt: skip
        with pytest.raises(Violation, match=says):
            verify(without(original, send))
    twice = [(0, *hop, 0.0, 1.0) for hop in hops] + [(0, "gpu3", "sw0", 0.0, 2.0)]
    with pytest.raises(Violation):
        verify(schedule(topology, wanted, twice))


def _parts(rows: list, size: list[float], rate: float = 1.0) -> Schedule:
    topology = unit_star(3, rate)
    wanted = _block(topology, "all_gather", [1])
    return schedule(topology, wanted, rows, size=size)


def test_parts_of_several_sends_in_one():
    """Halves come in one after the other and go out as one at 1 B/s, or in quarters."""
    into = [(0, "gpu0", "sw0", 0.0, 0.5), (0, "gpu0", "sw0", 0.5, 1.0)]
    whole = [*into, (0, "sw0", "gpu1", 0.5, 1.5)]
    assert verify(_parts(whole, [0.5, 0.5, 1.0])) == 1.5
    quarters = [(0, "sw0", "gpu1", 0.25 * n, 0.25 * n + 0.25) for n in range(4)]
    original = _parts([*into, *quarters], [0.5] * 2 + [0.25] * 4)
    assert verify(original) == 1.0
    fast = _parts([*into, *quarters], [0.5] * 2 + [0.25] * 4, rate=2.0)
    with pytest.raises(Violation, match="send 3 .*carries again"):  # not there yet
        verify(changed(fast, 3, start=0.2))
    # what the last quarter takes is all there at 1 s, and gone then
    with pytest.raises(Violation, match="send 5 .*before its last byte|send 5 .*again"):
        verify(changed(original, 5, start=0.7, end=0.95))
    with pytest.raises(Violation, match="send 5 .*waits in sw0"):
        verify(changed(original, 5, start=1.05, end=1.3))
    with pytest.raises(Violation, match="send [2-5] .*sw0"):
        verify(changed(original, 3, bytes=0.35, end=0.6))


@pytest.mark.parametrize(("crumbs", "right"), [(0.9, True), (1.5, False)])
def test_crumbs_that_are_left_do_not_add_up(crumbs: float, right: bool):
    """A millionth of a block is a crumb. Two sends out leave 0.8 of one behind of each
    half that came in; a third send of less than a crumb needs nothing, of more it finds
    no half that still has as much."""
    into = [(0, "gpu0", "sw0", 0.0, 0.5), (0, "gpu0", "sw0", 0.5, 1.0)]
    out = [(0, "sw0", "gpu1", a, b) for a, b in ((0, 0.5), (0.5, 1), (1, 1.0001))]
    sizes = [0.5, 0.5, 0.5 - 0.8e-6, 0.5 - 0.8e-6, crumbs * 1e-6]
    original = _parts([*into, *out], sizes)
    assert _right(original) == right
