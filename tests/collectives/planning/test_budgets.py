"""A search does the same work on a busy machine as on an idle one."""

import dataclasses
import time

import numpy as np
import pytest

from diffenergy.collectives import Search, demand, load_topology, plan
from diffenergy.collectives import _plan as search
from diffenergy.collectives._find_schedule import find_schedule
from diffenergy.collectives._greedy import Effort, greedy
from diffenergy.collectives._lp import flow_model
from diffenergy.collectives._milp import integer_model
from diffenergy.collectives._routes import epoch_length, epoch_model
from diffenergy.search import Solving, solve

CASES = (
    ("dgx1", "all_gather", "200KB", Search(epoch="slowest")),
    ("ndv2-2-published", "all_to_all", "16KB", Search()),
    ("dgx-h100", "all_reduce", "64MB", Search()),
    pytest.param(
        *("dgx2-2", "all_gather", "4KB", Search(epoch="fastest")),
        marks=pytest.mark.slow,
    ),
    pytest.param(
        *("ndv2-2", "all_gather", "64KB", Search("milp", "fastest", time_limit=20)),
        marks=pytest.mark.slow,
    ),
)


@pytest.fixture
def busy(monkeypatch: pytest.MonkeyPatch):
    """`busy(times)`: the clock runs so much faster, as if the machine were slower."""
    real, start = time.monotonic, time.monotonic()

    def busy(times: float) -> None:
        monkeypatch.setattr(time, "monotonic", lambda: start + times * (real() - start))

    return busy


def answer(name: str, collective: str, size: str, how: Search) -> dict:
    """What the machine's load must not change."""
    found = plan(name, collective, size, search=how).summary
    return {key: x for key, x in found.items() if key != "solver_s"}


@pytest.mark.parametrize(("name", "collective", "size", "how"), CASES)
def test_a_busy_machine_answers_as_an_idle_one(name, collective, size, how, busy):
    idle = answer(name, collective, size, how)
    busy(8.0)
    assert answer(name, collective, size, how) == idle
    assert idle["out_of_time"] is False


def test_wall_time_is_the_last_resort_and_is_reported(busy):
    """Ten limits, at least a minute, pass before the first schedule is there."""
    assert Search(time_limit=2.0).wall_limit == 60.0
    assert Search("milp").wall_limit == 3000.0
    busy(1e6)
    found = plan("ndv2-2", "all_gather", "64KB", search=Search(epoch="fastest"))
    assert found.summary["out_of_time"] is True
    assert "--time-limit" in found.notes[0] and "wall time" in found.notes[0]


def test_list_scheduling_counts_what_it_sends(busy):
    """Batches as the work allows, the first in any case; one more may end sooner."""
    machine = load_topology("ndv2-2-published")
    wanted = demand("all_gather", machine, 16e3)
    tau = epoch_length(machine, float(wanted.size.max()), "fastest")
    wishes = int(wanted.wanted.sum())
    assert wishes == 15 * 14
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
@pytest.mark.parametrize(
    ("kind", "epoch", "proven"),
    [("all_gather", 9, "infeasible"), ("all_to_all", 57, "optimal")],
)
def test_solvers_stop_after_the_same_steps(kind, epoch, proven):
    """A little of the work of a proof, twice: the same end, and nothing proven."""
    machine = load_topology("ndv2-2-published")
    wanted = demand(kind, machine, 1e9)
    chunk = float(wanted.size.max())
    model = epoch_model(machine, chunk, epoch_length(machine, chunk, "slowest"))
    if kind == "all_gather":
        built, _ = integer_model(machine, wanted, model, epoch)
    else:
        built = flow_model(machine, wanted, model, epoch).linear
    ends = {work: solve(built, Solving(work=work)) for work in (0.2, 60.0)}
    again = solve(built, Solving(work=0.2))
    assert (ends[0.2].status, ends[60.0].status) == ("unknown", proven)
    assert (again.status, again.work) == (ends[0.2].status, ends[0.2].work)
    assert 0 < again.work <= ends[60.0].work


def test_the_work_of_a_search_is_shared():
    """What a solver did is taken from what the next may do."""
    machine = load_topology("dgx1")
    task = search.Task(machine, demand("all_gather", machine, 2e5), Search())
    assert task.solving().work == pytest.approx(10.0)
    task.work += 4.0
    assert task.solving().work == pytest.approx(6.0)
    left = dataclasses.replace(task.solving(), time_limit=9.0).less(4.0, 5.5)
    assert (left.time_limit, left.work) == (5.0, pytest.approx(0.5))
    found = find_schedule(machine, task.demand, Search(epoch="slowest", time_limit=5.0))
    assert not found.out_of_time
