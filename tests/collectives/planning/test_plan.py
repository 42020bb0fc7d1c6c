"""The pipeline against proven figures, hand arithmetic and published epochs."""

import csv
from pathlib import Path

import numpy as np
import pytest

from diffenergy.collectives import Schedule, Search, demand, load_topology
from diffenergy.collectives import _find_schedule as attempts
from diffenergy.collectives._bounds import second_bound
from diffenergy.collectives._duals import flow_bound
from diffenergy.collectives._epoch_counts import flow_epochs
from diffenergy.collectives._find_schedule import find_schedule, halves
from diffenergy.collectives._greedy import greedy
from diffenergy.collectives._lp import lp
from diffenergy.collectives._plan import Plan
from diffenergy.collectives._routes import epoch_length, epoch_model
from diffenergy.collectives._time_reversal import reduction, spread_of
from diffenergy.collectives._verify import verify
from diffenergy.results import Infeasible

from ..machine.c3_machines import blocks
from ..machine.machines_by_hand import machine

US = 1e-6
SIZES = "1KB 4KB 16KB 64KB 256KB 1MB 4MB 16MB 64MB 256MB 1GB".split()


def planned(machine: str, collective: str, size: str, chunks: int = 1, **how) -> Plan:
    topology = load_topology(machine)
    wanted = demand(collective, topology, size, chunks)
    plan = find_schedule(topology, wanted, Search(**how))
    assert verify(plan.schedule) == pytest.approx(plan.finish, rel=1e-12)
    assert plan.bound <= plan.finish * (1 + 1e-9)
    return plan


@pytest.mark.parametrize(
    ("machine", "collective", "size", "chunks", "epoch", "least"),
    [
        # 8 chunks pass the link into a chassis, then two hops: 8 + 2 and 8 x 4 + 3.
        ("ndv2-2-published", "all_gather", "1GB", 1, "slowest", 10),
        ("ndv2-2-published", "all_gather", "1GB", 1, "fastest", 35),
        pytest.param(
            *("ndv2-2", "all_gather", "1GB", 1, "fastest", 35),
            marks=pytest.mark.slow,
        ),
        # 7 x 8 chunks pass gpu0 -> gpu9 after an epoch; 8 x 8 pass it at once.
        ("ndv2-2-published", "all_to_all", "1GB", 1, "slowest", 57),
        pytest.param(
            *("ndv2-2-published", "all_to_all", "1GB", 1, "fastest", 225),
            marks=pytest.mark.slow,
        ),
        pytest.param(
            *("ndv2-2", "all_to_all", "1GB", 1, "slowest", 64),
            marks=pytest.mark.slow,
        ),
        # Proven by another solver.
        ("dgx1", "all_gather", "200KB", 1, "slowest", 4),
        ("dgx1", "all_gather", "600KB", 3, "fastest", 10),
        ("dgx1", "all_to_all", "200KB", 1, "slowest", 4),
    ],
)
def test_least_epochs(machine, collective, size, chunks, epoch, least):
    plan = planned(machine, collective, size, chunks, epoch=epoch)
    assert plan.schedule.epochs == plan.epoch_bound == least
    assert plan.certified


def test_all_to_all_between_chassis_is_at_its_bound():
    plan = planned("ndv2-2", "all_to_all", "1GB")
    # 64 chunks of 62.5 MB at 12.5 GB/s, and the latency of the link
    assert plan.finish == pytest.approx(0.32 + 1.3 * US, rel=1e-9)
    assert plan.gap <= 1e-9


@pytest.mark.parametrize("collective", ["reduce_scatter", "reduce", "all_reduce"])
def test_sums(collective):
    plan = planned("dgx1", collective, "200KB")
    assert plan.schedule.demand.collective == collective
    assert plan.finish > 0.7 * US


@pytest.mark.slow
def test_an_all_reduce_of_two_halves_at_their_bounds():
    """Shares of 125 MB take 2.5 ms at 50 GB/s: three epochs to add up, three to spread,
    where list scheduling takes eight and the best standard algorithm as long."""
    plan = planned("dgx1", "all_reduce", "1GB")
    assert plan.schedule.epochs == plan.epoch_bound == 6 and plan.certified
    assert 0.015 < plan.finish < 0.015 + 6 * US
    assert plan.method == "reduce_scatter (milp) + all_gather (milp)"
    assert plan.solver == "highs" and plan.standard is not None
    assert min(x.finish for x in plan.standard.found.values()) > 0.02


def test_halves_are_the_collectives_that_they_are_called():
    machine = load_topology("dgx1")
    found = halves(demand("all_reduce", machine, "1MB", 2))
    for half in found:
        same = demand(half.collective, machine, "1MB", 2)
        for name in ("source", "chunk", "size", "parts"):
            np.testing.assert_array_equal(getattr(half, name), getattr(same, name))
        away = np.arange(len(machine.nodes)) != same.source[:, None]
        np.testing.assert_array_equal(half.wanted & away, same.wanted & away)
    assert [half.collective for half in found] == ["reduce_scatter", "all_gather"]


def test_ctrl_c_in_a_half_keeps_the_best_so_far():
    machine = load_topology("dgx1")

    def stop(stage: str, progress: object) -> None:
        if stage.startswith("integer search"):
            raise KeyboardInterrupt

    plan = find_schedule(machine, demand("all_reduce", machine, "1GB"), watch=stop)
    assert plan.interrupted and plan.finish == pytest.approx(0.02, rel=1e-3)
    assert verify(plan.schedule) == pytest.approx(plan.finish)


def test_integer_search_of_a_reduction_is_turned_round():
    # Reversed, ndv2-2 has the same shape, so that 10 slow epochs are least again.
    plan = planned("ndv2-2", "reduce_scatter", "1GB", method="milp", epoch="slowest")
    assert (plan.method, plan.solver) == ("milp", "highs")
    assert plan.schedule.epochs == plan.epoch_bound == 10


def test_methods_agree_on_what_is_least():
    for method in ("auto", "greedy", "milp"):
        plan = planned("dgx1", "all_gather", "200KB", method=method, epoch="slowest")
        assert plan.schedule.epochs == 4, method


def test_rounds_end_somewhere_above():
    plan = planned("dgx1", "all_gather", "200KB", method="rounds", epoch="slowest")
    assert plan.method == "rounds" and plan.schedule.epochs in (4, 5, 6)


@pytest.mark.parametrize(
    ("collective", "horizon"), [("all_gather", 9), ("all_to_all", 56)]
)
def test_a_horizon_below_the_bound_is_out_of_reach(collective, horizon):
    with pytest.raises(Infeasible, match=rf"{horizon} epochs.*at least \d+ are needed"):
        planned("ndv2-2-published", collective, "1GB", epoch="slowest", horizon=horizon)


def test_one_seed_gives_one_schedule():
    first, again = (planned("dgx1", "all_reduce", "200KB", seed=3) for _ in range(2))
    for name in ("block", "link", "start"):
        one, other = (getattr(p.schedule.sends, name) for p in (first, again))
        np.testing.assert_array_equal(one, other)


@pytest.mark.slow
def test_flow_epochs_are_no_fewer_than_those_of_the_linear_program():
    machine = load_topology("dgx1")
    wanted = demand("all_to_all", machine, "200KB")
    model = epoch_model(machine, 25e3, epoch_length(machine, 25e3, "slowest"))
    least = lp(machine, wanted, model).schedule
    assert isinstance(least, Schedule) and least.epochs == 4
    assert flow_epochs(greedy(machine, wanted), model) >= 4


def test_flow_epochs_of_a_chain_by_hand():
    # ring-4, 8 MB: 2 MB take 40 us a hop; 1.7 us of latency are below a tenth of it.
    machine = load_topology("ring-4")
    wanted = demand("scatter", machine, "8MB")
    model = epoch_model(machine, 2e6, 40 * US)
    assert flow_epochs(greedy(machine, wanted), model) == 2


def test_a_spread_turned_round_is_a_reduction():
    machine = load_topology("ring-4")
    wanted = demand("reduce_scatter", machine, "8MB")
    reverse, spread = spread_of(machine, wanted)
    found = greedy(reverse, spread)
    turned = reduction(machine, wanted, found)
    finish = verify(found)
    assert verify(turned) == pytest.approx(finish, rel=1e-9)


@pytest.mark.slow
def test_prices_of_the_links_raise_the_bound():
    """Cuts and in-links alone leave dgx1 all-to-all a third below what flows can do."""
    machine = load_topology("dgx1")
    wanted = demand("all_to_all", machine, "8MB")
    stages: list[str] = []
    plan = find_schedule(
        machine, wanted, Search(), lambda stage, _: stages.append(stage)
    )
    cuts, flows = second_bound(wanted, machine), flow_bound(wanted, machine)
    assert plan.bound == pytest.approx(flows, rel=1e-9) and flows > 1.4 * cuts
    assert stages.index("list scheduling") < stages.index("bound by link prices")
    assert flows <= plan.finish == verify(plan.schedule)
    assert plan.gap == pytest.approx(plan.finish / flows - 1)


def test_the_bound_knows_that_blocks_may_be_cut():
    """1 GB over three links of 1 GB/s: 3 s in one piece, little over 1 s in parts."""
    links = [("gpu0", "gpu1", 1e9, 0.0), ("gpu1", "gpu2", 1e9, 0.0)]
    line = machine("gpu0 gpu1 gpu2 gpu3", [*links, ("gpu2", "gpu3", 1e9, 0.0)])
    wanted = blocks(line, [(0, 3)], 1e9)
    parts = find_schedule(line, wanted, Search("lp", epoch=0.25))
    assert parts.finish == pytest.approx(1.5, rel=1e-3)
    found = find_schedule(line, wanted, Search())
    assert found.bound == pytest.approx(1.0, rel=1e-3)


def stopped(*_: object, **__: object) -> object:
    raise KeyboardInterrupt


@pytest.mark.slow
def test_ctrl_c_keeps_the_best(monkeypatch: pytest.MonkeyPatch):
    machine = load_topology("dgx1")
    wanted = demand("all_to_all", machine, "8MB")
    whole = find_schedule(machine, wanted, Search(method="greedy"))
    monkeypatch.setattr(attempts, "baselines", stopped)
    plan = find_schedule(machine, wanted)
    assert plan.interrupted and not whole.interrupted
    assert plan.method == "greedy" and plan.standard is None
    assert verify(plan.schedule) == plan.finish == whole.finish
    assert 0 < plan.bound <= plan.finish
    monkeypatch.setattr(attempts, "greedy", stopped)
    with pytest.raises(KeyboardInterrupt):  # nothing to keep
        find_schedule(machine, wanted)


def test_a_cut_inside_raises_the_bound():
    # Two groups of four, all linked, and one link between: 4 blocks of 1 MB pass it at
    # 1 GB/s, while into each GPU lead three or four links of the same rate.
    clique = [(a, b) for a in range(4) for b in range(a)]
    pairs = [*clique, *((a + 4, b + 4) for a, b in clique), (0, 4)]
    both = [*pairs, *((b, a) for a, b in pairs)]
    links = [(f"gpu{a}", f"gpu{b}", 1e9, 1e-6) for a, b in both]
    topology = machine(" ".join(f"gpu{n}" for n in range(8)), links)
    wanted = demand("all_gather", topology, "8MB")
    assert second_bound(wanted, topology) < 3.1e-3
    plan = find_schedule(topology, wanted, Search(time_limit=5.0))
    assert plan.bound == pytest.approx(4e-3)


def published(shared: Path) -> dict[tuple[str, str, str], dict[str, str]]:
    path = shared / "data" / "teccl" / "goldens_ndv2_2chassis.csv"
    with path.open(newline="") as file:
        return {
            (row["collective"], row["epoch_type"], row["size_label"]): row
            for row in csv.DictReader(file)
        }


@pytest.mark.slow
@pytest.mark.shared_data
@pytest.mark.parametrize("kind", ["Fast", "Slow"])
@pytest.mark.parametrize(
    ("collective", "name", "sizes"),
    [
        ("all_gather", "AllGather", SIZES),
        ("all_to_all", "AlltoAll", SIZES[3:]),
        ("all_to_all", "AlltoAll", SIZES[:3]),
    ],
    ids=["all_gather", "all_to_all", "small_all_to_all"],
)
def test_no_published_row_is_better(shared, collective, name, sizes, kind):
    epoch = {"Fast": "fastest", "Slow": "slowest"}[kind]
    rows = published(shared)
    for size in sizes:
        row = rows[name, kind, size]
        plan = planned("ndv2-2-published", collective, size, epoch=epoch)
        epochs = plan.schedule.epochs
        assert epochs is not None and epochs <= int(row["epochs"]), size
        assert plan.schedule.epoch == pytest.approx(float(row["epoch_s"]), rel=1e-9)
        # published runs dropped latencies, at most 4.1 us on the longest path
        assert plan.finish <= float(row["finish_s"]) + 4.1 * US, size
        if collective == "all_gather":
            assert plan.certified and epochs == int(row["epochs"]), size
