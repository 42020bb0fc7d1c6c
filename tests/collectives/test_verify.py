"""Schedules that are right, and the same broken on purpose."""

import dataclasses

import numpy as np
import pytest

from diffenergy.collectives import Schedule, Violation

from .builders import (
    Row,
    Sends,
    blocks,
    only,
    reducing_rows,
    retime,
    ring_rows,
    schedule,
    unit_both,
    unit_demand,
    unit_machine,
    unit_ring,
    unit_star,
    verify,
    without,
)


@pytest.fixture
def gather() -> Schedule:
    """All-gather on a ring of four: three steps of 1.5 s (1 B at 1 B/s, 0.5 s)."""
    topology = unit_ring(4, latency=0.5)
    return schedule(topology, unit_demand(topology, "all_gather"), ring_rows(4, 0.5))


@pytest.fixture
def scatter() -> Schedule:
    """Reduce-scatter on a ring of four: three steps of 1 s."""
    topology = unit_ring(4)
    return schedule(topology, unit_demand(topology, "reduce_scatter"), reducing_rows(4))


def _plus(original: Schedule, *rows: Row) -> Schedule:
    """With sends added."""
    more = schedule(original.topology, original.demand, rows)
    return original.with_sends(Sends.joined([original.sends, more.sends]))


def test_sends_after_the_last_wanted_arrival_do_not_count(gather: Schedule):
    assert verify(_plus(gather, (0, "gpu0", "gpu1", 9.0, 10.5))) == 4.5


def test_every_send_of_a_ring_is_needed(gather: Schedule, scatter: Schedule):
    for whole in (gather, scatter):
        for send in range(len(whole.sends)):
            with pytest.raises(Violation):
                verify(without(whole, send))


def test_capacity_in_every_window():
    """Blocks of 1 to 3 B with random starts and ends over one link of 1 B/s: right if
    and only if in every window the bytes that must pass fit (checked for all pairs of
    a start and an end)."""
    topology = unit_machine("gpu0 gpu1", unit_both("gpu0", "gpu1", 1.0, 0.0))
    rng = np.random.default_rng(0)
    right = 0
    for _ in range(200):
        size = rng.integers(1, 4, 4).astype(float)
        start = rng.integers(0, 6, 4).astype(float)
        end = start + size + rng.integers(0, 4, 4)
        wanted = blocks(topology, [(0, 1)] * 4, size)
        rows = [(b, "gpu0", "gpu1", start[b], end[b]) for b in range(4)]
        original = schedule(topology, wanted, rows)
        fits = all(
            size[(start >= low) & (end <= high)].sum() <= high - low
            for low in start
            for high in end
            if high > low
        )
        right += fits
        if fits:
            assert verify(original) == end.max()
        else:
            with pytest.raises(Violation, match="capacity"):
                verify(original)
    assert 20 < right < 180


def _multicast(**switch: bool) -> Schedule:
    """gpu0's block to both others through a switch at 1 B/s and 0.25 s a hop."""
    topology = unit_star(3, latency=0.25, **switch)
    wanted = blocks(topology, [(0, [1, 2])], 1.0)
    rows = [(0, "gpu0", "sw0", 0.0, 1.25)]
    rows += [(0, "sw0", f"gpu{n}", 0.25, 1.5) for n in (1, 2)]
    return schedule(topology, wanted, rows)


def test_a_switch_without_copy_sends_on_once():
    with pytest.raises(Violation, match="second way out of sw0, which cannot copy"):
        verify(_multicast(copy=False))


def test_double_reduction(scatter: Schedule):
    """gpu1's summand of block 0 goes to gpu0 directly, and round the ring again."""
    with pytest.raises(Violation, match="summand of gpu1 a second time"):
        verify(_plus(scatter, (0, "gpu1", "gpu0", 0.0, 1.0)))


def _switch_sum(reduces: bool) -> Schedule:
    """Both others' summands of gpu0's block meet in the switch."""
    topology = unit_star(3, latency=0.25, reduces=reduces)
    wanted = only(unit_demand(topology, "reduce_scatter"), 0)
    rows = [(0, f"gpu{n}", "sw0", 0.0, 1.25) for n in (1, 2)]
    return schedule(topology, wanted, [*rows, (0, "sw0", "gpu0", 0.25, 1.5)])


def test_sums_in_switches_only_where_they_reduce():
    assert verify(_switch_sum(True)) == 1.5
    with pytest.raises(Violation, match="cannot pass it on or add it up"):
        verify(_switch_sum(False))


def test_two_sums_leave_a_switch_at_once():
    """gpu0 and gpu1 send to gpu2 and gpu3 through the switch, each pair at once; the
    summands are added up there and then by gpu2."""
    topology = unit_star(4, reduces=True)
    wanted = only(unit_demand(topology, "reduce_scatter"), 2)
    rows = [
        (0, "gpu0", "sw0", 0.0, 1.0),
        (0, "gpu1", "sw0", 0.0, 1.0),
        (0, "sw0", "gpu2", 0.0, 1.0),
        (0, "sw0", "gpu3", 0.0, 1.0),
        (0, "gpu3", "sw0", 1.0, 2.0),
        (0, "sw0", "gpu2", 1.0, 2.0),
    ]
    original = schedule(topology, wanted, rows)
    assert verify(original) == 2.0
    assert verify(retime(original)) == 2.0


def _all_reduce() -> Schedule:
    """Two GPUs: each sums its block, then sends the sum back."""
    topology = unit_ring(2)
    rows = [
        (0, "gpu1", "gpu0", 0.0, 1.0),
        (1, "gpu0", "gpu1", 0.0, 1.0),
        (0, "gpu0", "gpu1", 1.0, 2.0),
        (1, "gpu1", "gpu0", 1.0, 2.0),
    ]
    wanted = unit_demand(topology, "all_reduce")
    return schedule(topology, wanted, rows, phase=[0, 0, 1, 1])


def test_finishes_by_hand_and_again_after_stretching(
    gather: Schedule, scatter: Schedule
):
    """Stretched to double time, a schedule runs back to its first times."""
    cases = gather, scatter, _multicast(), _switch_sum(True), _all_reduce()
    for whole, finish in zip(cases, (4.5, 3.0, 1.5, 1.5, 2.0), strict=True):
        assert verify(whole) == finish
        late = dataclasses.replace(
            whole.sends,
            start=2 * whole.sends.start + 0.1,
            end=2 * whole.sends.end + 0.1,
        )
        stretched = whole.with_sends(late)
        assert verify(stretched) == pytest.approx(2 * verify(whole) + 0.1)
        early = retime(stretched)
        assert early.sends.start == pytest.approx(whole.sends.start, abs=1e-12)
        assert verify(retime(stretched)) == pytest.approx(verify(whole))


def test_what_cannot_leave_a_switch_at_once_comes_in_later():
    """Two blocks to one GPU through a switch: the second must wait at its GPU until
    the link out of the switch is free, 1 s, and arrives at 2.5 s."""
    topology = unit_star(3, latency=0.25)
    wanted = blocks(topology, [(0, 2), (1, 2)], 1.0)
    rows = [
        (0, "gpu0", "sw0", 0.0, 1.25),
        (0, "sw0", "gpu2", 0.25, 1.5),
        (1, "gpu1", "sw0", 5.0, 6.25),
        (1, "sw0", "gpu2", 6.25, 7.5),
    ]
    early = retime(schedule(topology, wanted, rows))
    assert verify(early) == pytest.approx(2.5)
    assert early.sends.start == pytest.approx([0.0, 0.25, 0.0, 1.25])


def test_512_gpus_take_seconds():
    """A ring around 512 GPUs: 261,632 sends."""
    topology = unit_ring(512)
    block, step = np.divmod(np.arange(512 * 511), 511)
    at = (block + step) % 512
    link = np.array([topology.between[n, (n + 1) % 512] for n in range(512)])
    size, phase = np.ones(len(block)), np.zeros(len(block), int)
    sends = Sends(block, link[at], step.astype(float), step + 1.0, size, phase)
    wanted = unit_demand(topology, "all_gather")
    assert verify(Schedule(topology, wanted, sends)) == 511.0
