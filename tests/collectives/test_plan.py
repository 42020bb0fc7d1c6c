"""The public `plan`: figures that are known to be least, records, limits of work."""

import dataclasses
import json
import time
from pathlib import Path

import numpy as np
import pytest

from diffenergy.collectives import (
    CollectiveResult,
    Search,
    Violation,
    demand,
    load_topology,
    plan,
)
from diffenergy.collectives import verify as verify_file
from diffenergy.collectives._find_schedule import find_schedule
from diffenergy.collectives._result import bandwidths
from diffenergy.hardware import read_gpu
from diffenergy.results import Infeasible

from .builders import (
    US,
    Effort,
    Plan,
    blocks,
    epoch_length,
    greedy,
    published,
    second_bound,
    unit_machine,
    verify,
)


def planned(machine: str, collective: str, size: str, chunks: int = 1, **how) -> Plan:
    topology = load_topology(machine)
    wanted = demand(collective, topology, size, chunks)
    result = find_schedule(topology, wanted, Search(**how))
    assert verify(result.schedule) == pytest.approx(result.finish, rel=1e-12)
    assert result.bound <= result.finish * (1 + 1e-9)
    return result


SLOW = pytest.mark.slow
NDV2 = "ndv2-2-published"


@pytest.mark.parametrize(
    ("machine", "collective", "size", "chunks", "epoch", "least"),
    [
        # 8 chunks pass the link into a chassis, then two hops: 8 + 2 and 8 x 4 + 3.
        (NDV2, "all_gather", "1GB", 1, "slowest", 10),
        (NDV2, "all_gather", "1GB", 1, "fastest", 35),
        pytest.param("ndv2-2", "all_gather", "1GB", 1, "fastest", 35, marks=SLOW),
        # 7 x 8 chunks pass gpu0 -> gpu9 after an epoch; 8 x 8 pass it at once.
        (NDV2, "all_to_all", "1GB", 1, "slowest", 57),
        pytest.param(NDV2, "all_to_all", "1GB", 1, "fastest", 225, marks=SLOW),
        pytest.param("ndv2-2", "all_to_all", "1GB", 1, "slowest", 64, marks=SLOW),
        # Proven by another solver.
        ("dgx1", "all_gather", "600KB", 3, "fastest", 10),
        ("dgx1", "all_to_all", "200KB", 1, "slowest", 4),
    ],
)
def test_least_epochs(machine, collective, size, chunks, epoch, least):
    result = planned(machine, collective, size, chunks, epoch=epoch)
    assert result.schedule.epochs == result.epoch_bound == least
    assert result.certified


def test_all_to_all_between_chassis_is_at_its_bound():
    result = planned("ndv2-2", "all_to_all", "1GB")
    # 64 chunks of 62.5 MB at 12.5 GB/s, and the latency of the link
    assert result.finish == pytest.approx(0.32 + 1.3 * US, rel=1e-9)
    assert result.gap <= 1e-9


def test_an_all_reduce_of_two_halves_at_their_bounds():
    """Shares of 125 MB take 2.5 ms at 50 GB/s: three epochs to add up, three to spread,
    where list scheduling takes eight and the best standard algorithm as long."""
    result = planned("dgx1", "all_reduce", "1GB")
    assert result.schedule.epochs == result.epoch_bound == 6 and result.certified
    assert 0.015 < result.finish < 0.015 + 6 * US
    assert result.method == "reduce_scatter (milp) + all_gather (milp)"
    assert result.solver == "highs" and result.standard is not None
    assert min(x.finish for x in result.standard.algorithms.values()) > 0.02


@pytest.mark.parametrize(
    ("machine", "collective"), [(NDV2, "all_gather"), ("ndv2-2", "reduce_scatter")]
)
def test_integer_search(machine: str, collective: str):
    """Reversed, ndv2-2 has the same shape, so that 10 slow epochs are least again; the
    latencies that epochs drop add at most 4.1 us."""
    result = planned(machine, collective, "1GB", method="milp", epoch="slowest")
    assert (result.method, result.solver) == ("milp", "highs")
    assert result.schedule.epochs == result.epoch_bound == 10
    assert result.finish <= 10 * 5e-3 + 4.1 * US


@pytest.mark.parametrize(
    ("collective", "horizon"), [("all_gather", 9), ("all_to_all", 56)]
)
def test_a_horizon_below_the_bound_is_out_of_reach(collective, horizon):
    with pytest.raises(Infeasible, match=rf"{horizon} epochs.*at least \d+ are needed"):
        planned("ndv2-2-published", collective, "1GB", epoch="slowest", horizon=horizon)


def test_the_bound_knows_that_blocks_may_be_cut():
    """1 GB over three links of 1 GB/s: 3 s in one piece, little over 1 s in parts."""
    links = [("gpu0", "gpu1", 1e9, 0.0), ("gpu1", "gpu2", 1e9, 0.0)]
    line = unit_machine("gpu0 gpu1 gpu2 gpu3", [*links, ("gpu2", "gpu3", 1e9, 0.0)])
    wanted = blocks(line, [(0, 3)], 1e9)
    parts = find_schedule(line, wanted, Search("lp", epoch=0.25))
    assert parts.finish == pytest.approx(1.5, rel=1e-3)
    result = find_schedule(line, wanted, Search())
    assert result.bound == pytest.approx(1.0, rel=1e-3)


def test_a_cut_inside_raises_the_bound():
    # Two groups of four, all linked, and one link between: 4 blocks of 1 MB pass it at
    # 1 GB/s, while into each GPU lead three or four links of the same rate.
    clique = [(a, b) for a in range(4) for b in range(a)]
    pairs = [*clique, *((a + 4, b + 4) for a, b in clique), (0, 4)]
    both = [*pairs, *((b, a) for a, b in pairs)]
    links = [(f"gpu{a}", f"gpu{b}", 1e9, 1e-6) for a, b in both]
    topology = unit_machine(" ".join(f"gpu{n}" for n in range(8)), links)
    wanted = demand("all_gather", topology, "8MB")
    assert second_bound(wanted, topology) < 3.1e-3
    result = find_schedule(topology, wanted, Search(time_limit=5.0))
    assert result.bound == pytest.approx(4e-3)


@pytest.fixture(scope="module")
def board() -> CollectiveResult:
    return plan("dgx1", "all_gather", "200KB")


def steady(summary: dict) -> dict:
    """Without the wall time."""
    return {name: x for name, x in summary.items() if name != "solver_s"}


def test_names_are_records(board: CollectiveResult):
    """A machine of its own latency, a size in bytes and the card give the same."""
    same = plan(load_topology("dgx1"), "AllGather", 2e5, gpu=read_gpu("v100-sxm-32gb"))
    assert steady(same.summary) == steady(board.summary)
    listed = plan("dgx1", demand=demand("all_gather", "dgx1", 2e5))
    assert listed.finish == board.finish
    assert listed.summary["demand"] and listed.summary["size_bytes"] is None
    sizes = plan("ring-4", "all_gather", ["8KB", 8e6])
    assert [x["size_bytes"] for x in sizes.summary] == [8e3, 8e6]
    assert "8.000 kB, 8.000 MB a GPU" in repr(sizes)
    assert sizes.results[0].finish < sizes.results[1].finish


def test_what_is_in_it(board: CollectiveResult):
    """200 KB in eight parts: seven of 25 KB into each GPU, over six NVLinks."""
    into = 6 * 25e9  # B/s
    assert 7 * 25e3 / into <= board.bound <= board.finish
    assert board.gap == pytest.approx(board.finish / board.bound - 1, abs=1e-9)
    ring = board.baselines.algorithms["ring"]
    assert ring.finish > board.finish
    energy = board.baseline_energy("ring")
    assert energy.idle_power is not None and energy.total and board.energy.total
    assert energy.idle == pytest.approx(8 * energy.idle_power * ring.finish)
    assert energy.total.typical > board.energy.total.typical  # it waits longer
    with pytest.raises(ValueError, match="allowed are ring"):
        board.baseline_energy("none")
    checked = board.verify()
    assert checked.finish == board.finish and checked.summary["file"] is None


def test_files(board: CollectiveResult, tmp_path: Path):
    paths = [tmp_path / f"a.{end}" for end in ("json", "csv", "xml")]
    texts = [board.to_json(paths[0]), board.to_csv(paths[1]), board.to_xml(paths[2])]
    assert [path.read_text() for path in paths] == texts
    assert verify_file(paths[0]).finish == pytest.approx(board.finish)
    late = json.loads(texts[0])
    late["sends"][-1]["start_s"] = 0.0
    paths[0].write_text(json.dumps(late))
    with pytest.raises(Violation):
        verify_file(paths[0])


@pytest.fixture
def busy(monkeypatch: pytest.MonkeyPatch):
    """`busy(times)`: the clock runs so much faster, as if the machine were slower."""
    real, start = time.monotonic, time.monotonic()

    def busy(times: float) -> None:
        monkeypatch.setattr(time, "monotonic", lambda: start + times * (real() - start))

    return busy


@pytest.mark.parametrize(
    ("name", "collective", "size", "search"),
    [
        ("dgx1", "all_gather", "200KB", Search(epoch="slowest")),
        pytest.param("dgx-h100", "all_reduce", "64MB", Search(), marks=SLOW),
        pytest.param(
            "ndv2-2", "all_gather", "64KB", Search("milp", "fastest", time_limit=20),
            marks=SLOW,
        ),
    ],
)  # fmt: skip
def test_a_busy_machine_answers_as_an_idle_one(name, collective, size, search, busy):
    idle = plan(name, collective, size, search=search).summary
    busy(8.0)
    again = plan(name, collective, size, search=search).summary
    assert steady(again) == steady(idle) and idle["out_of_time"] is False


def test_wall_time_is_the_last_resort_and_is_reported(busy):
    """Ten limits, at least a minute, pass before the first schedule is there."""
    assert Search(time_limit=2.0).wall_limit == 60.0
    assert Search("milp").wall_limit == 3000.0
    busy(1e6)
    result = plan("ndv2-2", "all_gather", "64KB", search=Search(epoch="fastest"))
    assert result.summary["out_of_time"] is True
    assert "--time-limit" in result.notes[0] and "wall time" in result.notes[0]


def test_list_scheduling_counts_what_it_sends(busy):
    """Batches as the work allows, the first in any case; one more may end sooner."""
    machine = load_topology("dgx-h100")
    wanted = demand("all_gather", machine, 16e3)
    tau = epoch_length(machine, float(wanted.size.max()), "fastest")
    wishes = int(wanted.wanted.sum())
    assert wishes == 8 * 7
    one = greedy(machine, wanted, tau, 0.0, Effort(batches=1))
    few = greedy(machine, wanted, tau, 0.0, Effort(work=1e-9))
    np.testing.assert_array_equal(few.sends.start, one.sends.start)
    busy(50.0)
    full = greedy(machine, wanted, tau, 0.0, Effort(batches=8))
    more = greedy(machine, wanted, tau, 0.0, Effort(work=8 * wishes * 1.4e-4))
    np.testing.assert_array_equal(more.sends.start, full.sends.start)
    late = greedy(machine, wanted, tau, 0.0, Effort(ends=time.monotonic()))
    np.testing.assert_array_equal(late.sends.start, one.sends.start)


@pytest.mark.slow
@pytest.mark.shared_data
@pytest.mark.parametrize("kind", ["Fast", "Slow"])
@pytest.mark.parametrize("name", ["AllGather", "AlltoAll"])
def test_no_published_row_is_better(shared: Path, name: str, kind: str):
    rows = [row for row in published(shared, name) if row["epoch_type"] == kind]
    assert len(rows) == 11
    collective = {"AllGather": "all_gather", "AlltoAll": "all_to_all"}[name]
    epoch = {"Fast": "fastest", "Slow": "slowest"}[kind]
    for row in rows:
        size = row["size_label"]
        result = planned("ndv2-2-published", collective, size, epoch=epoch)
        epochs = result.schedule.epochs
        assert epochs is not None and epochs <= int(row["epochs"]), size
        assert result.schedule.epoch == pytest.approx(float(row["epoch_s"]), rel=1e-9)
        # published runs dropped latencies, at most 4.1 us on the longest path
        assert result.finish <= float(row["finish_s"]) + 4.1 * US, size
        if collective == "all_gather":
            assert result.certified and epochs == int(row["epochs"]), size


@pytest.mark.parametrize("method", ["auto", "greedy", "milp", "rounds"])
def test_methods_come_to_the_same_epochs(method: str):
    """Four are least; rounds of a few epochs each need at most six."""
    result = planned("dgx1", "all_gather", "200KB", method=method, epoch="slowest")
    epochs = result.schedule.epochs
    assert epochs == 4 or (method == "rounds" and epochs in (5, 6))
    with pytest.raises(Infeasible, match="3 epochs.*at least 4 are needed"):
        planned("dgx1", "all_gather", "200KB", method=method, epoch="slowest",
                horizon=3)  # fmt: skip


@pytest.mark.parametrize("stage", ["integer search", "standard algorithms"])
def test_ctrl_c_keeps_the_best_so_far(stage: str):
    """While a half of an all-reduce is planned: shares of 125 MB at 50 GB/s in eight
    epochs of 2.5 ms; before the first standard algorithm; before anything."""
    wanted = demand("all_reduce", "dgx1", "1GB")

    def stop(at: str, _: object) -> None:
        if at.startswith(stage):
            raise KeyboardInterrupt

    result = find_schedule(load_topology("dgx1"), wanted, watch=stop)
    assert result.interrupted and 0 < result.bound <= result.finish
    assert verify(result.schedule) == result.finish
    if stage == "integer search":
        assert result.finish == pytest.approx(0.02, rel=1e-3)
    else:
        assert result.method == "greedy" and result.standard is None
    stage = "list scheduling"
    with pytest.raises(KeyboardInterrupt):  # nothing to keep
        find_schedule(load_topology("dgx1"), wanted, watch=stop)


@pytest.mark.parametrize(
    ("collective", "size", "sharing", "buffer", "share"),
    [
        *((x, 1e9, None, 1e9, 7 / 8) for x in
          ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter")),
        ("all_reduce", 1e9, None, 1e9, 2 * 7 / 8),
        *((x, 1e9, None, 1e9, 1.0) for x in ("broadcast", "reduce")),
        ("all_gather", 1e9, 4, 1e9, 3 / 4),  # tenants of four
        # Without a size the most that a GPU receives.
        ("broadcast", None, None, 1e9, 1.0),
        ("all_gather", None, None, 7 / 8 * 1e9, 7 / 8),
        ("custom", 1e6, None, 1e6, None),
    ],
)  # fmt: skip
def test_bandwidths_by_hand(collective, size, sharing, buffer, share) -> None:
    """In half a second; 15 GPUs of the published machine share a buffer of 16."""
    topology = load_topology("dgx-h100")
    base = "broadcast" if collective == "custom" else collective
    wanted = demand(base, topology, "1GB")
    wanted = dataclasses.replace(wanted, collective=collective)
    result = bandwidths(wanted, topology, 0.5, size, sharing)
    bus = None if share is None else pytest.approx(2 * buffer * share)
    assert result == (pytest.approx(buffer), pytest.approx(2 * buffer), bus)
    pair = load_topology(NDV2)
    *_, bus = bandwidths(demand("all_gather", pair, "1GB"), pair, 0.5, 1e9)
    assert bus == pytest.approx(2e9 * 15 / 16)
