"""Failing links: finishes by hand, symmetry, who is cut off, and being stopped."""

import dataclasses
import json

import pytest
from json_keys import check_part

from diffenergy.collectives import Demand, Schedule, Topology, demand, load_topology
from diffenergy.collectives import _what_if as room
from diffenergy.collectives._greedy import Effort, greedy
from diffenergy.collectives._what_if import (
    Change,
    criticality,
    criticality_rows,
    cut_off,
    disable,
    gathered,
    linked_pairs,
    pair_orbits,
)

from ..machine.c3_machines import (
    all_gather,
    blocks,
    gpu_nodes,
    machine,
    ring,
    sums,
    torus,
)

MB = 1e6
STEP = 20.0 + 0.7  # us, a block of 1 MB over a link of ring(n)
QUICK = Effort(1, 2)


def to_next(topology: Topology) -> Demand:
    """1 MB from gpu0 to gpu1."""
    return blocks(topology, [(0, 1)])


def by_pair(changes: list[Change]) -> dict[tuple[str, str], Change]:
    return {change.pair: change for change in changes}


def test_ring_of_three_becomes_a_line() -> None:
    """All at once over six links; on the line the ends get two blocks over one link,
    the second a step after the first."""
    topology = ring(3)
    found = list(criticality(topology, all_gather(topology, 3 * MB), QUICK))
    assert len(found) == 3
    for change in found:
        assert change.base == pytest.approx(STEP * 1e-6)
        assert change.finish is not None
        assert change.bound is not None
        assert change.finish == pytest.approx(2 * STEP * 1e-6)
        assert change.bound <= change.finish * (1 + 1e-9)
        assert change.alike == 3
        assert change.used
    rows = criticality_rows(found)
    assert [row["slowdown_pct"] for row in rows] == pytest.approx([100.0] * 3)


def test_way_round_and_links_of_no_use() -> None:
    """gpu0 - gpu1 fails: two steps by gpu2; gpu1 - gpu2 and gpu0 - gpu2 do not matter,
    whose plan is the base's."""
    topology = ring(3)
    found = by_pair(list(criticality(topology, to_next(topology), QUICK)))
    failed = found["gpu0", "gpu1"]
    assert failed.finish == pytest.approx(2 * STEP * 1e-6)
    for pair in (("gpu0", "gpu2"), ("gpu1", "gpu2")):
        assert not found[pair].used
        assert found[pair].finish == found[pair].base == pytest.approx(STEP * 1e-6)
    rows = criticality_rows(found.values())
    assert rows[0]["link"] == ["gpu0", "gpu1"]
    assert [row["slowdown_pct"] for row in rows] == pytest.approx([100.0, 0.0, 0.0])


@pytest.mark.slow
def test_chassis_that_is_cut_off_is_named() -> None:
    """Each chassis of an NDv2 pair has one way out: 8 x 8 wishes without it."""
    topology = load_topology("ndv2-2")
    wish = demand("all_to_all", topology, "1GB")
    found = list(criticality(topology, wish, QUICK))
    assert len(found) == len(linked_pairs(topology)) == 34
    lost = [change for change in found if change.cut_off is not None]
    assert {change.pair for change in lost} == {("gpu0", "gpu9"), ("gpu1", "gpu8")}
    for pair, side in ((("gpu0", "gpu9"), "gpu0"), (("gpu1", "gpu8"), "gpu8")):
        cut = by_pair(lost)[pair].cut_off
        assert cut is not None
        assert cut["demands"] == 64
        assert side in cut["from"]
        assert side not in cut["to"]
    rows = criticality_rows(found)
    check_part("failure", rows)
    assert all(row["finish_s"] is None for row in rows[:2])
    assert all(row["slowdown_pct"] is None for row in rows[:2])
    assert rows[0]["cut_off"]["demands"] == 64
    # The board's own links can be gone round while 320 ms pass between the chassis.
    assert all(row["slowdown_pct"] == pytest.approx(0.0) for row in rows[2:])
    assert json.loads(json.dumps(rows, allow_nan=False)) == rows


def test_cut_off_says_from_whom_to_whom() -> None:
    topology = load_topology("ndv2-2")
    eight = [f"gpu{n}" for n in range(8)], [f"gpu{n}" for n in range(8, 16)]
    wish = demand("all_gather", topology, "1GB")
    assert cut_off(topology, wish) is None
    there = cut_off(disable(topology, "gpu0-gpu9"), wish)
    assert there == {"demands": 64, "from": eight[0], "to": eight[1]}
    # Of sums: who cannot add to whose.
    adds = cut_off(disable(topology, "gpu8-gpu1"), sums(topology, 1e9, False))
    assert adds == {"demands": 64, "from": eight[1], "to": eight[0]}


def test_a_base_is_the_least(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan of a machine without a link is one with it."""
    topology = load_topology("dgx1")
    wish = demand("all_gather", topology, "8MB")

    def late(given: Topology, *rest: object, **named: object) -> Schedule:
        found = greedy(given, *rest, **named)  # pyright: ignore[reportArgumentType]
        wait = 1e-3 * (given is topology)
        sends = dataclasses.replace(found.sends, end=found.sends.end + wait)
        return dataclasses.replace(found, sends=sends)

    monkeypatch.setattr(room, "greedy", late)
    rows = criticality_rows(criticality(topology, wish, QUICK))
    assert all(row["slowdown_pct"] >= 0 for row in rows)
    assert rows[0]["base_s"] == min(row["finish_s"] for row in rows)


@pytest.mark.parametrize(
    ("topology", "orbits"), [(torus(4, 4), 1), (ring(5), 1), (torus(2, 3), 2)]
)
def test_alike_links_are_planned_once(
    topology: Topology, orbits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Links of a square torus are all alike; of 2 x 3 those of each direction."""
    wish = all_gather(topology, len(topology.gpus) * MB)
    orbit = pair_orbits(topology, wish, linked_pairs(topology))
    assert orbit.max() + 1 == orbits
    planned: list[str] = []

    def counted(topology: Topology, *rest: object, **named: object) -> object:
        planned.append(topology.name)
        return greedy(topology, *rest, **named)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(room, "greedy", counted)
    found = by_pair(list(criticality(topology, wish, QUICK)))
    assert len(planned) <= 1 + orbits
    pairs = linked_pairs(topology)
    for number in range(orbits):
        names = [[f"gpu{n}" for n in pair] for pair in pairs[orbit == number].tolist()]
        alike = [found[a, b] for a, b in names]
        assert len({change.finish for change in alike}) == 1
        assert {change.alike for change in alike} == {len(alike)}


def test_a_source_of_its_own_breaks_the_symmetry() -> None:
    """Broadcast on a ring of four: links at the root are alike, so are the others."""
    topology = ring(4)
    wish = demand("broadcast", topology, 4 * MB)
    pairs = linked_pairs(topology)  # 0-1, 0-3, 1-2, 2-3
    assert pair_orbits(topology, wish, pairs).tolist() == [0, 0, 1, 1]


def test_what_came_before_the_stop_is_kept() -> None:
    topology = load_topology("ndv2-2")
    wish = demand("all_to_all", topology, "1GB")
    seen: list[tuple[int, int]] = []

    def stop(done: int, total: int) -> None:
        seen.append((done, total))
        if done >= 6:
            raise KeyboardInterrupt

    found, complete = gathered(criticality(topology, wish, QUICK, progress=stop))
    assert not complete
    assert len(found) == seen[-1][0] == 6
    assert seen[-1][1] == 34
    assert len(criticality_rows(found)) == 6
    whole, complete = gathered(criticality(ring(3), to_next(ring(3)), QUICK))
    assert complete
    assert len(whole) == 3


def test_no_plan_is_said_and_not_a_finish(monkeypatch: pytest.MonkeyPatch) -> None:
    topology = ring(3)
    wish = all_gather(topology, 3 * MB)

    def failing(given: Topology, *rest: object, **named: object) -> Schedule:
        if given is not topology:
            raise ValueError("`demand` was not met.")
        return greedy(given, *rest, **named)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(room, "greedy", failing)
    rows = criticality_rows(criticality(topology, wish, QUICK))
    assert {row["problem"] for row in rows} == {"`demand` was not met."}
    assert all(row["finish_s"] is None and row["cut_off"] is None for row in rows)


def test_a_demand_that_was_never_possible_is_an_error() -> None:
    topology = machine("pair", gpu_nodes(2, 2), [(1, 0, 50.0, 0.7)], 2)
    with pytest.raises(ValueError, match="`demand` has a block that cannot reach"):
        list(criticality(topology, to_next(topology), QUICK))
