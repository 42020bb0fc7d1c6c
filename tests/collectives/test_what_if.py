"""Failing links and sensitivities: by hand, symmetry, ties, closed forms."""

import json

import numpy as np
import pytest
from json_keys import check_part

from diffenergy.collectives import Demand, Schedule, Topology, demand, load_topology
from diffenergy.collectives import _what_if as room
from diffenergy.collectives._what_if import (
    Change,
    criticality,
    criticality_rows,
    cut_off,
    gathered,
    linked_pairs,
    pair_orbits,
    sensitivities,
    sensitivity_rows,
)

from .builders import (
    MB,
    Effort,
    all_gather,
    all_to_all,
    blocks,
    chain,
    disable,
    finish_time,
    gpu_nodes,
    greedy,
    jittered,
    machine,
    order_of,
    retime,
    ring,
    star,
    sums,
    timed,
    torus,
)

STEP = 20.7e-6
"""s; a block of 1 MB over a link of ring(n)."""
EFFORT = Effort(1, 2)


def to_next(topology: Topology) -> Demand:
    """1 MB from gpu0 to gpu1."""
    return blocks(topology, [(0, 1)])


def by_pair(changes: list[Change]) -> dict[tuple[str, str], Change]:
    return {change.pair: change for change in changes}


def test_way_round_and_links_of_no_use() -> None:
    """gpu0 - gpu1 fails: two steps by gpu2; gpu1 - gpu2 and gpu0 - gpu2 do not matter,
    whose plan is the base's."""
    topology = ring(3)
    result = by_pair(list(criticality(topology, to_next(topology), EFFORT)))
    assert result["gpu0", "gpu1"].finish == pytest.approx(2 * STEP)
    for pair in (("gpu0", "gpu2"), ("gpu1", "gpu2")):
        assert not result[pair].used
        assert result[pair].finish == result[pair].base == pytest.approx(STEP)
    rows = criticality_rows(result.values())
    assert rows[0]["link"] == ["gpu0", "gpu1"]
    assert [row["slowdown_pct"] for row in rows] == pytest.approx([100.0, 0.0, 0.0])


def test_chassis_that_is_cut_off_is_named() -> None:
    """Each chassis of an NDv2 pair has one way out: 8 x 8 wishes without it."""
    topology = load_topology("ndv2-2")
    wish = demand("all_to_all", topology, "1GB")
    result = list(criticality(topology, wish, EFFORT))
    assert len(result) == len(linked_pairs(topology)) == 34
    lost = by_pair([change for change in result if change.cut_off is not None])
    assert set(lost) == {("gpu0", "gpu9"), ("gpu1", "gpu8")}
    for pair, side in ((("gpu0", "gpu9"), "gpu0"), (("gpu1", "gpu8"), "gpu8")):
        cut = lost[pair].cut_off
        assert cut is not None and cut["demands"] == 64
        assert side in cut["from"] and side not in cut["to"]
    rows = criticality_rows(result)
    check_part("failure", rows)
    assert all(row["finish_s"] is row["slowdown_pct"] is None for row in rows[:2])
    assert rows[0]["cut_off"]["demands"] == 64
    # The board's own links can be gone round while 320 ms pass between the chassis.
    assert all(row["slowdown_pct"] == pytest.approx(0.0) for row in rows[2:])
    assert json.loads(json.dumps(rows, allow_nan=False)) == rows


@pytest.mark.parametrize(("topology", "orbits"), [(torus(4, 4), 1), (torus(2, 3), 2)])
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
    result = by_pair(list(criticality(topology, wish, EFFORT)))
    assert len(planned) <= 1 + orbits
    pairs = linked_pairs(topology)
    for number in range(orbits):
        names = [[f"gpu{n}" for n in pair] for pair in pairs[orbit == number].tolist()]
        alike = [result[a, b] for a, b in names]
        assert len({change.finish for change in alike}) == 1
        assert {change.alike for change in alike} == {len(alike)}


def test_a_source_of_its_own_breaks_the_symmetry() -> None:
    """Broadcast on a ring of four: links at the root are alike, so are the others."""
    topology = ring(4)
    wish = demand("broadcast", topology, 4 * MB)
    pairs = linked_pairs(topology)  # 0-1, 0-3, 1-2, 2-3
    assert pair_orbits(topology, wish, pairs).tolist() == [0, 0, 1, 1]


def test_a_demand_that_was_never_possible_is_an_error() -> None:
    topology = machine("pair", gpu_nodes(2, 2), [(1, 0, 50.0, 0.7)], 2)
    with pytest.raises(ValueError, match="`demand` has a block that cannot reach"):
        list(criticality(topology, to_next(topology), EFFORT))


def fork(second: float = 10.0) -> Schedule:
    """Two blocks to gpu1 and two to gpu2, each 100 us at 10 GB/s, then 2 us."""
    edges = [(0, 1, 10.0, 2.0), (0, 2, second, 2.0)]
    topology = machine("fork", gpu_nodes(3, 3), edges, 1)
    rows = [(n, n // 2, n % 2, n % 2 + 1) for n in range(4)]
    wanted = blocks(topology, [(0, 1), (0, 1), (0, 2), (0, 2)])
    return retime(timed(topology, wanted, rows))


def one_way_ring(latency: float) -> Schedule:
    """All-gather of 1 MB blocks of four GPUs, each passing on what came last: three
    rounds of 100 us (10 GB/s) and `latency` us."""
    edges = [(n, (n + 1) % 4, 10.0, latency) for n in range(4)]
    topology = machine("one-way", gpu_nodes(4, 4), edges, 4)
    rows = [((n - k) % 4, n, k, k + 1) for n in range(4) for k in range(3)]
    return retime(timed(topology, all_gather(topology, 4 * MB), rows))


@pytest.mark.parametrize(
    ("schedule", "finish", "path", "faster", "slower", "shorter", "longer"),
    [
        # Two links in series.
        (retime(chain()), 258, 250, [-200, -50], [-200, -50], [1, 1], [1, 1]),
        # A tie: one alone has nothing to gain, all of its share to lose.
        (fork(), 202, 200, [0, 0], [-200, -200], [0, 0], [1, 1]),
        # At 20 GB/s the second link is done after 102 us.
        (fork(20.0), 202, 200, [-200, 0], [-200, 0], [1, 0], [1, 0]),
        # Blocks pass three of the four links once, so some longest path leaves any
        # link out; a slower link costs its 100 us once, or thrice if a link's three
        # blocks in a row take no less time than a block's three links.
        (one_way_ring(2.0), 306, 300, [0] * 4, [-100] * 4, None, [1] * 4),
        (one_way_ring(0.0), 300, 300, [0] * 4, [-300] * 4, None, [1] * 4),
    ],
    ids=["series", "tie", "spare", "ring", "ring without latency"],
)
def test_links_by_hand(schedule, finish, path, faster, slower, shorter, longer) -> None:
    """In us: seconds of rates on any one longest path, and what one link's rate or
    latency makes of the finish."""
    result = sensitivities(schedule, "link")
    assert result.finish == pytest.approx(finish * 1e-6, rel=1e-12)
    assert result.rate.sum() == pytest.approx(-path / finish)
    exact = result.exact
    assert exact is not None
    np.testing.assert_allclose(exact.faster, np.array(faster) / finish, rtol=1e-6)
    np.testing.assert_allclose(exact.slower, np.array(slower) / finish, rtol=1e-6)
    np.testing.assert_allclose(exact.longer, longer, rtol=1e-9)
    if shorter:
        np.testing.assert_allclose(exact.shorter, shorter, rtol=1e-9)
    if faster == slower:
        np.testing.assert_allclose(result.rate, exact.slower, rtol=1e-9)
        np.testing.assert_allclose(result.rise, longer, rtol=1e-9)


def test_rows_of_two_links_in_series() -> None:
    result = sensitivities(retime(chain()), "link")
    np.testing.assert_allclose(result.latency, [3 / 258, 5 / 258], rtol=1e-12)
    rows = sensitivity_rows(result)
    assert json.loads(json.dumps(rows, allow_nan=False)) == rows
    assert [row["link"] for row in rows] == [["gpu0", "gpu1"], ["gpu1", "gpu2"]]
    assert rows[0]["rate_bytes_per_s"] == 10e9
    assert rows[0]["latency_s"] == pytest.approx(3e-6)
    assert rows[0]["latency_sensitivity_s_per_us"] == pytest.approx(1e-6)
    both = sensitivities(fork(), "medium").exact
    assert both is not None
    np.testing.assert_allclose(both.faster, [-200 / 202], rtol=1e-6)


def test_link_between_chassis_is_the_finish() -> None:
    """64 of 62.5 MB at 12.5 GB/s each way; then 1.3 us."""
    topology = load_topology("ndv2-2")
    schedule = greedy(topology, all_to_all(topology, 1e9), bound=0.3200013)
    rows = sensitivity_rows(sensitivities(schedule, "link"))
    ends = [tuple(row["link"]) for row in rows[:2]]
    assert sorted(ends) == [("gpu0", "gpu9"), ("gpu8", "gpu1")]
    for row in rows[:2]:
        assert -1 < row["rate_sensitivity_if_slower"] < -0.99999
    assert rows[0]["rate_sensitivity"] < -0.99
    assert all(abs(row["rate_sensitivity"]) < 1e-3 for row in rows[2:])
    network, nvlink = sensitivity_rows(sensitivities(schedule, "medium"))
    assert network["links"] == 2
    assert network["rate_sensitivity"] < -0.99
    assert nvlink["rate_bytes_per_s"] is None  # 25 and 50 GB/s


MACHINES = {
    "gather": (load_topology("dgx1"), all_gather),
    "switch": (star(4, copy=False), all_to_all),
    "sums": (star(4, reduces=True), lambda machine, size: sums(machine, size, True)),
}


@pytest.mark.parametrize("kind", MACHINES)
def test_shares_add_up_and_halves_agree(kind: str) -> None:
    """sum(latency) - sum(rate) = 1; without ties both sides are the gradient; and it is
    what a small change of rates makes."""
    topology, how = MACHINES[kind]
    topology = jittered(topology)
    schedule = greedy(topology, how(topology, 4 * MB), effort=EFFORT)
    result = sensitivities(schedule, "link")
    assert result.latency.sum() - result.rate.sum() == pytest.approx(1.0, abs=1e-9)
    assert result.exact is not None
    np.testing.assert_allclose(result.exact.faster, result.rate, atol=1e-6)
    np.testing.assert_allclose(result.exact.slower, result.rate, atol=1e-6)
    step, order = 1e-5, order_of(schedule)
    for link, slope in enumerate(result.rate):
        rates = topology.rates.copy()
        rates[link] *= 1 + step
        change = finish_time(order, rates, topology.latencies).time / result.finish - 1
        assert change / step == pytest.approx(slope, abs=1e-3)


def test_a_medium_is_the_sum_of_its_links(monkeypatch: pytest.MonkeyPatch) -> None:
    """A block there and one back, 100 us and 50 us."""
    edges = [(0, 1, 10.0, 2.0), (1, 0, 20.0, 2.0), (1, 2, 10.0, 2.0)]
    topology = machine("pairs", gpu_nodes(3, 3), edges, 1)
    rows = [(0, 0, 0, 1), (1, 0, 1, 2), (2, 1, 0, 1), (3, 2, 0, 1)]
    wanted = blocks(topology, [(0, 1), (0, 1), (1, 0), (1, 2)])
    schedule = retime(timed(topology, wanted, rows))
    monkeypatch.setattr(room, "_MOST", 0)
    result = sensitivities(schedule, "medium")
    assert result.names == ((topology.links[0].medium,),)
    np.testing.assert_allclose(result.rate, [-200 / 202])
    assert result.exact is None
    row = sensitivity_rows(result)[0]
    assert row["links"] == 3
    assert row["rate_bytes_per_s"] is None  # one way faster than the other
    assert row["rate_sensitivity_if_faster"] is None


def test_a_schedule_without_sends_is_an_error() -> None:
    empty = chain().with_sends(chain().sends.take(np.zeros(0, int)))
    with pytest.raises(ValueError, match="`schedule` has no sends"):
        sensitivities(empty, "link")


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


def test_what_came_before_the_stop_is_kept() -> None:
    topology = load_topology("ndv2-2")
    wish = demand("all_to_all", topology, "1GB")
    seen: list[tuple[int, int]] = []

    def stop(done: int, total: int) -> None:
        seen.append((done, total))
        if done >= 6:
            raise KeyboardInterrupt

    result, complete = gathered(criticality(topology, wish, EFFORT, progress=stop))
    assert not complete
    assert len(result) == len(criticality_rows(result)) == seen[-1][0] == 6
    assert seen[-1][1] == 34
    whole, complete = gathered(criticality(ring(3), to_next(ring(3)), EFFORT))
    assert complete and len(whole) == 3
