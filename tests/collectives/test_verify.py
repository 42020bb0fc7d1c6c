"""Schedules that are right, the same broken on purpose, and how far one may be off:
1e-9 of its last end, 1e-6 of a block."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from diffenergy.collectives import Schedule, Topology, Violation

from .builders import (
    Collective,
    Row,
    Sends,
    blocks,
    changed,
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

BLOCK = 4.0
"""B of a block, which links of 1 carry in a second."""


def one_block(topology: Topology, collective: Collective, *takers: int):
    """gpu0's block alone, for `takers`."""
    return only(unit_demand(topology, collective, BLOCK), 0, takers)


def gather() -> Schedule:
    """All-gather on a ring of four: three steps of 1.5 s (a block in 1 s, 0.5 s)."""
    topology = unit_ring(4, BLOCK, latency=0.5)
    rows = ring_rows(4, 0.5)
    return schedule(topology, unit_demand(topology, "all_gather", BLOCK), rows)


def scatter() -> Schedule:
    """Reduce-scatter on a ring of four: three steps of 1 s."""
    topology = unit_ring(4, BLOCK)
    wanted = unit_demand(topology, "reduce_scatter", BLOCK)
    return schedule(topology, wanted, reducing_rows(4))


def all_reduce() -> Schedule:
    """Two GPUs: gpu0 sums its block, then sends the sum back."""
    topology = unit_ring(2, BLOCK)
    rows = [(0, "gpu1", "gpu0", 0.0, 1.0), (0, "gpu0", "gpu1", 1.0, 2.0)]
    wanted = one_block(topology, "all_reduce", 0, 1)
    return schedule(topology, wanted, rows, phase=[0, 1])


def shared_link() -> Schedule:
    """Both ways two blocks over a link in [0, 2], the first of them in [0, 1]."""
    topology = unit_ring(2, BLOCK)
    wanted = unit_demand(topology, "all_gather", BLOCK, 2)
    hops = [(n, f"gpu{n // 2}", f"gpu{1 - n // 2}") for n in range(4)]
    rows = [(*hop, 0.0, 1.0 + n % 2) for n, hop in enumerate(hops)]
    return schedule(topology, wanted, rows)


def in_the_middle() -> Schedule:
    """The second block passes while the first is under way."""
    original = shared_link()
    for send, (start, end) in enumerate([(0.0, 2.0), (0.5, 1.5)] * 2):
        original = changed(original, send, start=start, end=end)
    return original


def line(*takers: int) -> Schedule:
    """gpu0's block in halves to gpu1 and on to gpu2."""
    topology = unit_ring(3, BLOCK)
    rows = [(0, "gpu0", "gpu1", 0.0, 0.5), (0, "gpu0", "gpu1", 0.5, 1.0)]
    rows += [(0, "gpu1", "gpu2", 0.5, 1.0), (0, "gpu1", "gpu2", 1.0, 1.6)]
    wanted = one_block(topology, "all_gather", *takers)
    return schedule(topology, wanted, rows, size=[BLOCK / 2] * 4)


def again(*size: float) -> Schedule:
    """gpu0's block to two others in parts, and what is sent after them to gpu1."""
    topology = unit_ring(3, BLOCK)
    rows = [(0, "gpu0", "gpu2", 0.0, 1.0)]
    rows += [(0, "gpu0", "gpu1", 2.0 * n, 2.0 * n + 2) for n in range(len(size))]
    wanted = one_block(topology, "all_gather", 1, 2)
    return schedule(topology, wanted, rows, size=[BLOCK, *(BLOCK * x for x in size)])


def switched(half: bool = False, out: float = 1.0, **switch: bool) -> Schedule:
    """gpu0's block to gpu1 (whole: and gpu2) through a switch, 0.25 s a hop, whole or
    in halves, at a block a second in and `out` out."""
    topology = unit_star(3, BLOCK, latency=0.25, **switch)
    links = tuple(
        dataclasses.replace(link, rate=out * BLOCK) if link.source == 3 else link
        for link in topology.links
    )
    topology = dataclasses.replace(topology, links=links)
    size = 0.5 if half else 1.0
    begun = [n * size for n in range(1 + half)]
    rows = [(0, "gpu0", "sw0", at, at + size + 0.25) for at in begun]
    takers = [1, 1] if half else [1, 2]
    for n, taker in enumerate(takers):
        at = n * size * half + 0.25
        rows.append((0, "sw0", f"gpu{taker}", at, at + size + 0.25))
    wanted = one_block(topology, "all_gather", *takers)
    return schedule(topology, wanted, rows, size=[BLOCK * size] * len(rows))


def switch_sum(reduces: bool = True) -> Schedule:
    """Both others' summands of gpu0's block meet in the switch."""
    topology = unit_star(3, BLOCK, latency=0.25, reduces=reduces)
    wanted = only(unit_demand(topology, "reduce_scatter", BLOCK), 0)
    rows = [(0, f"gpu{n}", "sw0", 0.0, 1.25) for n in (1, 2)]
    return schedule(topology, wanted, [*rows, (0, "sw0", "gpu0", 0.25, 1.5)])


def plus(original: Schedule, *rows: Row) -> Schedule:
    """With sends added."""
    more = schedule(original.topology, original.demand, rows)
    return original.with_sends(Sends.joined([original.sends, more.sends]))


# --- right and wrong


@pytest.mark.parametrize(
    ("make", "finish"),
    [
        (gather, 4.5),
        (scatter, 3.0),
        (switched, 1.5),
        (switch_sum, 1.5),
        (all_reduce, 2.0),
    ],
)
def test_finishes_by_hand_and_again_after_stretching(make, finish: float):
    """Stretched to double time, a schedule runs back to its first times."""
    whole = make()
    assert verify(whole) == finish
    start, end = 2 * whole.sends.start + 0.1, 2 * whole.sends.end + 0.1
    stretched = whole.with_sends(dataclasses.replace(whole.sends, start=start, end=end))
    assert verify(stretched) == pytest.approx(2 * finish + 0.1)
    early = retime(stretched)
    assert early.sends.start == pytest.approx(whole.sends.start, abs=1e-12)
    assert verify(early) == pytest.approx(finish)


def test_every_send_of_a_ring_is_needed():
    for whole in (gather(), scatter()):
        for send in range(len(whole.sends)):
            with pytest.raises(Violation):
                verify(without(whole, send))


def test_sends_after_the_last_wanted_arrival_do_not_count():
    assert verify(plus(gather(), (0, "gpu0", "gpu1", 9.0, 10.5))) == 4.5


def test_wrong_sends_by_hand():
    """gpu1's summand of block 0 goes to gpu0 directly, and round the ring again; both
    hops of two blocks start before the block is there, the later send in the list the
    earlier in time."""
    for wrong, says in (
        (switched(copy=False), "second way out of sw0, which cannot copy"),
        (switch_sum(False), "cannot pass it on or add it up"),
        (
            plus(scatter(), (0, "gpu1", "gpu0", 0.0, 1.0)),
            "summand of gpu1 a second time",
        ),
        (
            changed(changed(gather(), 5, start=1.4), 6, start=1.3),
            r"send 6 \(chunk 0 of gpu1 over gpu2->gpu3",
        ),
    ):
        with pytest.raises(Violation, match=says):
            verify(wrong)


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


def test_two_sums_leave_a_switch_at_once():
    """gpu0 and gpu1 send to gpu2 and gpu3 through the switch, each pair at once; the
    summands are added up there and then by gpu2."""
    topology = unit_star(4, reduces=True)
    wanted = only(unit_demand(topology, "reduce_scatter"), 2)
    hops = [("gpu0", "sw0"), ("gpu1", "sw0"), ("sw0", "gpu2"), ("sw0", "gpu3")]
    rows = [(0, *hop, 0.0, 1.0) for hop in hops]
    rows += [(0, "gpu3", "sw0", 1.0, 2.0), (0, "sw0", "gpu2", 1.0, 2.0)]
    original = schedule(topology, wanted, rows)
    assert verify(original) == 2.0
    assert verify(retime(original)) == 2.0


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


def test_sums_where_no_summand_is():
    """gpu1 and gpu2 send theirs to gpu0, gpu2 by way of gpu3: neither has one."""
    topology = unit_ring(4)
    wanted = only(unit_demand(topology, "reduce_scatter"), 0, [0], [1, 2])
    rows = [(0, "gpu1", "gpu0", 0.0, 1.0), (0, "gpu2", "gpu3", 0.0, 1.0)]
    original = schedule(topology, wanted, [*rows, (0, "gpu3", "gpu0", 1.0, 2.0)])
    assert verify(original) == 2.0
    for send, says in enumerate(("of gpu1 never", "no summand", "of gpu2 never")):
        with pytest.raises(Violation, match=says):
            verify(without(original, send))


def test_nothing_to_send():
    """Blocks where they are wanted, and sums of one summand, need no send."""
    topology = unit_ring(2)
    gathered = unit_demand(topology, "all_gather")
    for demand, summands in (
        (gathered, ()),
        (unit_demand(topology, "reduce_scatter"), (0,)),
    ):
        wanted = only(demand, 0, [0], summands)
        assert verify(schedule(topology, wanted, [])) == 0.0
    missing = only(gathered, 0, [0, 1])
    with pytest.raises(Violation, match="never comes whole to gpu1.*1 demands"):
        verify(schedule(topology, missing, []))


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"link": -1}, "send 1 uses an unknown link; ring-2 has 4."),
        ({"link": 4}, "send 1 uses an unknown link; ring-2 has 4."),
        ({"block": -1}, "send 1 carries an unknown block; the demand has 2."),
        ({"block": 2}, "send 1 carries an unknown block; the demand has 2."),
        ({"start": np.inf}, "send 1 has no proper times"),
        ({"end": np.nan}, "send 1 has no proper times"),
        ({"start": -0.1}, "send 1 has no proper times"),
        ({"bytes": 0.0}, "send 1 carries no bytes"),
        ({"bytes": 2.0}, "send 1 carries no bytes or more than its block has"),
        ({"bytes": np.nan}, "send 1 carries no bytes"),
    ],
)
def test_sends_that_cannot_be_read(values: dict, says: str):
    topology = unit_ring(2)
    rows = [(0, "gpu0", "gpu1", 0.0, 1.0), (1, "gpu1", "gpu0", 0.0, 1.0)]
    original = schedule(topology, unit_demand(topology, "all_gather"), rows)
    assert verify(original) == 1.0
    with pytest.raises(Violation, match=f"^{says}"):
        verify(changed(original, 1, **values))


# --- tolerances

Change = Callable[[float], dict[str, Any]]
"""What is changed of a send, given by how much (s, or share of a block)."""
TIMES: list[tuple[Callable[[], Schedule], int, Change, str]] = [
    (gather, 3, lambda s: {"end": 1.5 - s}, "ends before its bytes"),
    (gather, 5, lambda s: {"start": 1.5 - s}, "does not hold yet"),
    (shared_link, 1, lambda s: {"end": 2 - s}, "over the capacity"),
    (in_the_middle, 0, lambda s: {"end": 2 - s}, "over the capacity"),
    (scatter, 5, lambda s: {"start": 1 - s}, "never reaches the sum"),
    (all_reduce, 1, lambda s: {"start": 1 - s}, "does not hold yet"),
    (lambda: line(2), 2, lambda s: {"start": 0.5 - s}, "more of its block"),
    (lambda: line(1, 2), 2, lambda s: {"start": 0.5 - s}, "a part of its block"),
    (switched, 1, lambda s: {"start": 0.25 - s}, "not hold yet"),
    (switched, 1, lambda s: {"start": 1.25 + s, "end": 2.5 + s},
     "waits in sw0, which cannot store"),
    (lambda: switched(False, 2.0), 1, lambda s: {"end": 1.5 - s},
     "before its last byte has come in"),
    (lambda: switched(True), 3, lambda s: {"start": 0.75 - s}, "send 3 .*again"),
    (lambda: switched(True), 3, lambda s: {"start": 1.25 + s, "end": 2.0 + s},
     "waits in sw0, which cannot store"),
    (lambda: switched(True, 2.0), 3, lambda s: {"end": 1.5 - s},
     "before its last byte has come in"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "send", "change", "says"), TIMES)
def test_times(make, send: int, change: Change, says: str):
    """Shifted by a share of 1e-9 of the last end."""
    original = make()
    last = max(original.sends.end.max(), change(0.0).get("end", 0.0))
    verify(changed(original, send, **change(0.95e-9 * last)))
    with pytest.raises(Violation, match=says):
        verify(changed(original, send, **change(1.05e-9 * last)))


def moved(share: float, sign: int, **more: float) -> Change:
    """Carries a share of the block, and more or less."""
    return lambda b: {"bytes": BLOCK * (share + sign * b), **more}


BYTES: list[tuple[Callable[[], Schedule], int, Change, str]] = [
    (gather, 11, moved(1, +1, end=5.0), "more than its block has"),
    (gather, 11, moved(1, -1), "never comes whole to gpu0"),
    (scatter, 11, moved(1, -1), "sums move whole"),
    (lambda: line(2), 3, moved(0.5, -1), "never comes whole to gpu2"),
    (lambda: line(2), 2, moved(0.5, +1, end=1.1), "more of its"),
    (lambda: line(1, 2), 3, moved(0.5, -1), "never comes whole to gpu2"),
    (lambda: line(1, 2), 1, moved(0.5, -1), "a part of its block"),
    (lambda: again(0.5, 1.0), 2, moved(1, -1), "send 2 .*a part of"),
    (lambda: again(0.5, 0.5, 0.5), 2, moved(0.5, -1), "send 3 .*a part"),
    (lambda: switched(True, 2.0), 2, moved(0.5, +1), "send [23] .*sw0"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "send", "change", "says"), BYTES)
def test_bytes(make, send: int, change: Change, says: str):
    """More or less by a share of 1e-6 of the block."""
    original = make()
    verify(changed(original, send, **change(0.95e-6)))
    with pytest.raises(Violation, match=says):
        verify(changed(original, send, **change(1.05e-6)))
