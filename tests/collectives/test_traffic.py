"""Hops that share links: who goes when, by hand."""

from typing import Any

import numpy as np
import pytest

from diffenergy.collectives import Topology
from diffenergy.collectives._traffic import Leg, Traffic, leg_over

from .builders import (
    unit_machine,
)

LINE = unit_machine(
    "gpu0 sw0 gpu1",
    [("gpu0", "sw0", 2.0, 0.5), ("sw0", "gpu1", 1.0, 0.25), ("gpu0", "gpu1", 1.0, 0.5)],
)
"""Through a switch at 2 and 1 B/s, or straight at 1 B/s."""


class Hops(Traffic):
    """Single hops with their ranks; `later`: ranks that rise when a hop has set out."""

    def __init__(self, hops: list[tuple[list[int], float, int]], later: Any = None):
        super().__init__(LINE, 1e-9)
        self.hops, self.later = hops, later or {}
        self.ranks = [rank for _, _, rank in hops]

    def leg_of(self, hop: int, now: float) -> Leg:
        return leg_over(self.topology, self.hops[hop][0], self.hops[hop][1])

    def rank(self, hop: int) -> int:
        return self.ranks[hop]

    def sent(self, hop: int, leg: Leg, there: float) -> None:
        for other, rank in self.later.get(hop, {}).items():
            self.ranks[other] = rank

    def starts(self, *there: float, give_up: float = np.inf) -> dict[int, float]:
        """First start of each hop, whose data is `there`."""
        for hop, at in enumerate(there):
            self.bring(hop, at)
        self.run(give_up)
        hop, _, start, _ = self.passed()
        return {int(h): float(s) for h, s in zip(hop[::-1], start[::-1], strict=True)}


def straight(*ranks: int) -> list[tuple[list[int], float, int]]:
    return [([2], 1.0, rank) for rank in ranks]


def test_the_lowest_rank_that_is_there_goes_first() -> None:
    """1 s a hop: the third comes as the first is through, the second later."""
    hops = Hops(straight(2, 0, 1))
    assert hops.starts(0.0, 1.5, 1.0) == pytest.approx({0: 0.0, 2: 1.0, 1: 2.0})
    assert hops.finish == pytest.approx(3.5)  # and the latency


def test_a_rank_may_rise_while_a_hop_waits() -> None:
    hops = Hops(straight(0, 1, 2, 3), later={1: {2: 5}})
    starts = hops.starts(0.0, 0.0, 0.0, 0.0)
    assert starts == pytest.approx({0: 0.0, 1: 1.0, 3: 2.0, 2: 3.0})


def test_bytes_pass_a_switch_as_they_come() -> None:
    """2 B: 1 s into the switch, 2 s out of it, from 0.5 s on. The next sets out when
    the way out is free as its bytes come by; 2.5 - 0.5. Whoever goes straight need not
    wait."""
    hops = Hops([([0, 1], 2.0, 0), ([0, 1], 2.0, 1), ([2], 2.0, 2)])
    assert hops.starts(0.0, 0.0, 0.0) == pytest.approx({0: 0.0, 1: 2.0, 2: 0.0})
    assert hops.finish == pytest.approx(2.0 + 0.5 + 2.0 + 0.25)
    # From a slow link into a fast one: the last byte leaves no earlier than it came.
    fast: Topology = unit_machine(
        "gpu0 sw0 gpu1", [("gpu0", "sw0", 1.0, 0.5), ("sw0", "gpu1", 2.0, 0.25)]
    )
    use, lag = leg_over(fast, [0, 1], 2.0).use, leg_over(fast, [0, 1], 2.0).lag
    assert use == ((0, 0.0, 2.0), (1, 1.5, 2.5)) and lag == 2.75


def test_nobody_goes_on_after_the_limit() -> None:
    hops = Hops(straight(0, 1))
    hops.starts(0.0, 0.0, give_up=0.5)
    assert np.isinf(hops.finish)
