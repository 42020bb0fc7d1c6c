"""Sums and parts of blocks: all of a block, in order, from who holds it."""

import dataclasses

import numpy as np
import pytest

from diffenergy.collectives import Schedule
from diffenergy.collectives._simulate import retime
from diffenergy.collectives._verify import Violation, verify

from ..machine import machines_by_hand as by_hand
from ..machine.c3_machines import blocks


def _sums_in_halves(takers: list[bool]) -> Schedule:
    """gpu0 adds up two blocks, whole at 1 s and at 2 s, and sends the first back whole,
    then the second in halves; `takers`: which GPUs want them."""
    topology = by_hand.ring(2)
    whole = by_hand.demand(topology, "all_reduce", chunks=2)
    wanted = dataclasses.replace(
        whole,
        source=whole.source[:2],
        chunk=whole.chunk[:2],
        size=whole.size[:2],
        wanted=np.array([takers] * 2),
        parts=whole.parts[:2],
    )
    rows = [
        (0, "gpu1", "gpu0", 0.0, 1.0),
        (1, "gpu1", "gpu0", 1.0, 2.0),
        (0, "gpu0", "gpu1", 1.0, 2.0),
        (1, "gpu0", "gpu1", 2.0, 2.5),
        (1, "gpu0", "gpu1", 2.5, 3.0),
    ]
    size = [1.0, 1.0, 1.0, 0.5, 0.5]
    return by_hand.schedule(topology, wanted, rows, size=size, phase=[0, 0, 1, 1, 1])


@pytest.mark.parametrize(
    ("takers", "says"),
    [
        ([True, True], "send 3 .*a part of its block that its sender does not hold"),
        ([False, True], "send 3 .*more of its block than its sender holds yet"),
    ],
)
def test_half_of_a_sum_waits_for_the_whole_sum(takers: list[bool], says: str):
    """The first half of the second sum, sent at 1.5 s: the first sum is whole then (at
    1 s), the second is not; the link has room until the stated end."""
    given = _sums_in_halves(takers)
    assert verify(given) == 3.0
    with pytest.raises(Violation, match=says):
        verify(by_hand.changed(given, 3, start=1.5))


def _halves() -> Schedule:
    """gpu0's block for gpu3 in halves over gpu1 and gpu2."""
    links = [
        link
        for a, b in [(0, 1), (0, 2), (1, 3), (2, 3)]
        for link in by_hand.both(f"gpu{a}", f"gpu{b}", 1.0, 0.0)
    ]
    topology = by_hand.machine("gpu0 gpu1 gpu2 gpu3", links)
    rows = [
        (0, "gpu0", "gpu1", 0.0, 0.5),
        (0, "gpu0", "gpu2", 0.0, 0.5),
        (0, "gpu1", "gpu3", 0.5, 1.0),
        (0, "gpu2", "gpu3", 0.5, 1.0),
    ]
    wanted = blocks(topology, [(0, 3)], 1.0)
    return by_hand.schedule(topology, wanted, rows, size=[0.5] * 4)


def test_parts_take_two_ways():
    assert verify(_halves()) == 1.0
    with pytest.raises(Violation, match="more of its block than its sender holds"):
        verify(by_hand.changed(_halves(), 2, bytes=1.0, end=1.5))
    with pytest.raises(Violation, match="never comes whole to gpu3"):
        verify(by_hand.without(_halves(), 3))


def test_parts_for_several_go_in_order():
    """A ring of three where gpu0's block moves in halves: the second hop of a half
    starts when that half is there."""
    topology = by_hand.ring(3)
    wanted = blocks(topology, [(0, [1, 2])], 1.0)
    rows = [
        (0, "gpu0", "gpu1", 0.0, 0.5),
        (0, "gpu0", "gpu1", 0.5, 1.0),
        (0, "gpu1", "gpu2", 0.5, 1.0),
        (0, "gpu1", "gpu2", 1.0, 1.5),
    ]
    given = by_hand.schedule(topology, wanted, rows, size=[0.5] * 4)
    assert verify(given) == 1.5
    assert verify(retime(given)) == 1.5
    with pytest.raises(Violation, match="a part of its block"):
        verify(by_hand.changed(given, 3, start=0.9))
