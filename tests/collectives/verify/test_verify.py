"""Schedules that are right, and the same broken on purpose."""

import dataclasses

import numpy as np
import pytest

from diffenergy.collectives import Schedule
from diffenergy.collectives._schedule import Sends
from diffenergy.collectives._simulate import retime
from diffenergy.collectives._verify import Violation, verify

from ..machine import machines_by_hand as by_hand
from ..machine.c3_machines import blocks


@pytest.fixture
def gather() -> Schedule:
    """All-gather on a ring of four: three steps of 1.5 s (1 B at 1 B/s, 0.5 s)."""
    topology = by_hand.ring(4, latency=0.5)
    return by_hand.schedule(
        topology, by_hand.demand(topology, "all_gather"), by_hand.ring_rows(4, 0.5)
    )


@pytest.fixture
def scatter() -> Schedule:
    """Reduce-scatter on a ring of four: three steps of 1 s."""
    topology = by_hand.ring(4)
    return by_hand.schedule(
        topology, by_hand.demand(topology, "reduce_scatter"), by_hand.reducing_rows(4)
    )


def _plus(given: Schedule, *rows: by_hand.Row) -> Schedule:
    """With sends added."""
    more = by_hand.schedule(given.topology, given.demand, rows)
    return given.with_sends(Sends.joined([given.sends, more.sends]))


def test_finish_is_when_the_last_wanted_block_arrives(gather: Schedule):
    assert verify(gather) == pytest.approx(4.5)


def test_sends_after_the_last_wanted_arrival_do_not_count(gather: Schedule):
    assert verify(_plus(gather, (0, "gpu0", "gpu1", 9.0, 10.5))) == 4.5


def test_sums(scatter: Schedule):
    assert verify(scatter) == pytest.approx(3.0)


@pytest.mark.parametrize(
    ("send", "values", "says"),
    [
        (5, {"start": 1.4, "end": 2.9}, "does not hold yet"),
        (3, {"end": 1.4}, "ends before its bytes"),
        (0, {"link": 99}, "unknown link"),
        (0, {"block": 4}, "unknown block"),
        (0, {"bytes": 0.0}, "no bytes"),
        (0, {"bytes": 2.0}, "more than its block has"),
        (0, {"start": float("nan")}, "no proper times"),
        (0, {"start": -0.1}, "no proper times"),
        (11, {"link": 0}, "does not hold yet"),
    ],
)
def test_a_changed_send(gather: Schedule, send: int, values: dict, says: str):
    with pytest.raises(Violation, match=says):
        verify(by_hand.changed(gather, send, **values))


def test_every_send_of_a_ring_is_needed(gather: Schedule, scatter: Schedule):
    for whole in (gather, scatter):
        for send in range(len(whole.sends)):
            with pytest.raises(Violation):
                verify(by_hand.without(whole, send))


def test_missing_demand_names_block_and_gpu(gather: Schedule):
    last = int(
        np.flatnonzero((gather.sends.block == 2) & (gather.sends.start == 3.0))[0]
    )
    with pytest.raises(Violation, match="chunk 0 of gpu2 never comes whole to gpu1"):
        verify(by_hand.without(gather, last))


def test_one_chunk_over_capacity(gather: Schedule):
    with pytest.raises(Violation, match="send 12 .*over the capacity"):
        verify(_plus(gather, (1, "gpu1", "gpu2", 0.5, 2.0)))


def test_the_first_in_time_is_told(gather: Schedule):
    broken = by_hand.changed(gather, 9, start=2.0, end=3.5)
    broken = by_hand.changed(broken, 3, end=1.2)
    with pytest.raises(Violation, match="send 3 .*ends before"):
        verify(broken)


def test_links_share_time_as_long_as_the_sum_fits():
    """Two blocks over one link in [0, 2]: 2 B at 1 B/s fit, in [0, 1.9] they do not."""
    topology = by_hand.ring(2)
    wanted = by_hand.demand(topology, "all_gather", chunks=2)
    rows = [
        (block, a, b, 0.0, 2.0)
        for block, a, b in [
            (0, "gpu0", "gpu1"),
            (1, "gpu0", "gpu1"),
            (2, "gpu1", "gpu0"),
            (3, "gpu1", "gpu0"),
        ]
    ]
    whole = by_hand.schedule(topology, wanted, rows)
    assert verify(whole) == 2.0
    tight = by_hand.changed(by_hand.changed(whole, 0, end=1.9), 1, end=1.9)
    with pytest.raises(Violation, match="capacity"):
        verify(tight)


def test_a_short_send_may_pass_in_the_middle_of_a_long_one():
    """1 B in [1, 2] inside 2 B in [0, 3]: first in first out would be late."""
    topology = by_hand.machine("gpu0 gpu1", by_hand.both("gpu0", "gpu1", 1.0, 0.0))
    wanted = blocks(topology, [(0, 1)] * 2, [2.0, 1.0])
    rows = [(0, "gpu0", "gpu1", 0.0, 3.0), (1, "gpu0", "gpu1", 1.0, 2.0)]
    whole = by_hand.schedule(topology, wanted, rows)
    assert verify(whole) == 3.0
    with pytest.raises(Violation, match="capacity"):
        verify(by_hand.changed(whole, 0, end=2.9))


def test_capacity_in_every_window():
    """Blocks of 1 to 3 B with random starts and ends over one link of 1 B/s: right if
    and only if in every window the bytes that must pass fit (checked for all pairs of
    a start and an end)."""
    topology = by_hand.machine("gpu0 gpu1", by_hand.both("gpu0", "gpu1", 1.0, 0.0))
    rng = np.random.default_rng(0)
    right = 0
    for _ in range(200):
        size = rng.integers(1, 4, 4).astype(float)
        start = rng.integers(0, 6, 4).astype(float)
        end = start + size + rng.integers(0, 4, 4)
        wanted = blocks(topology, [(0, 1)] * 4, size)
        rows = [(b, "gpu0", "gpu1", start[b], end[b]) for b in range(4)]
        given = by_hand.schedule(topology, wanted, rows)
        fits = all(
            size[(start >= low) & (end <= high)].sum() <= high - low
            for low in start
            for high in end
            if high > low
        )
        right += fits
        if fits:
            assert verify(given) == end.max()
        else:
            with pytest.raises(Violation, match="capacity"):
                verify(given)
    assert 20 < right < 180


def _multicast(**switch: bool) -> Schedule:
    """gpu0's block to both others through a switch at 1 B/s and 0.25 s a hop."""
    topology = by_hand.star(3, latency=0.25, **switch)
    wanted = blocks(topology, [(0, [1, 2])], 1.0)
    rows = [(0, "gpu0", "sw0", 0.0, 1.25)]
    rows += [(0, "sw0", f"gpu{n}", 0.25, 1.5) for n in (1, 2)]
    return by_hand.schedule(topology, wanted, rows)


def test_switches_cut_through_and_copy():
    assert verify(_multicast()) == 1.5


@pytest.mark.parametrize(
    ("start", "says"),
    [(0.2, "does not hold yet"), (1.3, "cannot store"), (1.25, None)],
)
def test_switches_pass_on_at_once(start: float, says: str | None):
    moved = by_hand.changed(_multicast(), 1, start=start, end=start + 1.25)
    if says is None:
        assert verify(moved) == 2.5
        return
    with pytest.raises(Violation, match=says):
        verify(moved)


def test_a_switch_without_copy_sends_on_once():
    with pytest.raises(Violation, match="second way out of sw0, which cannot copy"):
        verify(_multicast(copy=False))


def test_the_last_byte_leaves_no_earlier_than_it_came_in():
    """In at 1 B/s, out at 2 B/s: begun with the first byte, it would end too early."""
    given = _multicast()
    links = tuple(
        dataclasses.replace(link, rate=2.0) if link.source == 3 else link
        for link in given.topology.links
    )
    fast = dataclasses.replace(
        given, topology=dataclasses.replace(given.topology, links=links)
    )
    assert verify(fast) == 1.5
    with pytest.raises(Violation, match="before its last byte has come in"):
        verify(by_hand.changed(fast, 1, end=1.25))


def test_a_switch_does_not_send_twice_what_came_once():
    with pytest.raises(Violation, match="carries again"):
        verify(_plus(_multicast(), (0, "sw0", "gpu1", 1.25, 3.0)))


def test_double_reduction(scatter: Schedule):
    """gpu1's summand of block 0 goes to gpu0 directly, and round the ring again."""
    with pytest.raises(Violation, match="summand of gpu1 a second time"):
        verify(_plus(scatter, (0, "gpu1", "gpu0", 0.0, 1.0)))


def test_a_sum_sent_too_early_lacks_a_summand(scatter: Schedule):
    early = int(
        np.flatnonzero((scatter.sends.block == 0) & (scatter.sends.start == 1))[0]
    )
    with pytest.raises(Violation):
        verify(by_hand.changed(scatter, early, start=0.5, end=1.5))


def _switch_sum(reduces: bool) -> Schedule:
    """Both others' summands of gpu0's block meet in the switch."""
    topology = by_hand.star(3, latency=0.25, reduces=reduces)
    wanted = by_hand.only(by_hand.demand(topology, "reduce_scatter"), 0)
    rows = [(0, f"gpu{n}", "sw0", 0.0, 1.25) for n in (1, 2)]
    return by_hand.schedule(topology, wanted, [*rows, (0, "sw0", "gpu0", 0.25, 1.5)])


def test_sums_in_switches_only_where_they_reduce():
    assert verify(_switch_sum(True)) == 1.5
    with pytest.raises(Violation, match="cannot pass it on or add it up"):
        verify(_switch_sum(False))


def test_two_sums_leave_a_switch_at_once():
    """gpu0 and gpu1 send to gpu2 and gpu3 through the switch, each pair at once; the
    summands are added up there and then by gpu2."""
    topology = by_hand.star(4, reduces=True)
    wanted = by_hand.only(by_hand.demand(topology, "reduce_scatter"), 2)
    rows = [
        (0, "gpu0", "sw0", 0.0, 1.0),
        (0, "gpu1", "sw0", 0.0, 1.0),
        (0, "sw0", "gpu2", 0.0, 1.0),
        (0, "sw0", "gpu3", 0.0, 1.0),
        (0, "gpu3", "sw0", 1.0, 2.0),
        (0, "sw0", "gpu2", 1.0, 2.0),
    ]
    given = by_hand.schedule(topology, wanted, rows)
    assert verify(given) == 2.0
    assert verify(retime(given)) == 2.0


def _all_reduce() -> Schedule:
    """Two GPUs: each sums its block, then sends the sum back."""
    topology = by_hand.ring(2)
    rows = [
        (0, "gpu1", "gpu0", 0.0, 1.0),
        (1, "gpu0", "gpu1", 0.0, 1.0),
        (0, "gpu0", "gpu1", 1.0, 2.0),
        (1, "gpu1", "gpu0", 1.0, 2.0),
    ]
    wanted = by_hand.demand(topology, "all_reduce")
    return by_hand.schedule(topology, wanted, rows, phase=[0, 0, 1, 1])


def test_all_reduce_hands_out_whole_sums_only():
    assert verify(_all_reduce()) == 2.0
    with pytest.raises(Violation, match="does not hold yet"):
        verify(by_hand.changed(_all_reduce(), 2, start=0.9, end=1.9))


def test_retimed_as_early_as_possible(gather: Schedule, scatter: Schedule):
    """Stretched to double time, a schedule runs back to its first times."""
    for whole in (gather, scatter, _multicast(), _switch_sum(True), _all_reduce()):
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
    topology = by_hand.star(3, latency=0.25)
    wanted = blocks(topology, [(0, 2), (1, 2)], 1.0)
    rows = [
        (0, "gpu0", "sw0", 0.0, 1.25),
        (0, "sw0", "gpu2", 0.25, 1.5),
        (1, "gpu1", "sw0", 5.0, 6.25),
        (1, "sw0", "gpu2", 6.25, 7.5),
    ]
    early = retime(by_hand.schedule(topology, wanted, rows))
    assert verify(early) == pytest.approx(2.5)
    assert early.sends.start == pytest.approx([0.0, 0.25, 0.0, 1.25])


def test_512_gpus_take_seconds():
    """A ring around 512 GPUs: 261,632 sends."""
    topology = by_hand.ring(512)
    block, step = np.divmod(np.arange(512 * 511), 511)
    at = (block + step) % 512
    link = np.array([topology.between[n, (n + 1) % 512] for n in range(512)])
    size, phase = np.ones(len(block)), np.zeros(len(block), int)
    sends = Sends(block, link[at], step.astype(float), step + 1.0, size, phase)
    wanted = by_hand.demand(topology, "all_gather")
    assert verify(Schedule(topology, wanted, sends)) == 511.0
