"""Clocks of pipeline stages: by hand, against all choices, by what has to follow."""

import itertools
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from diffenergy.parallel import Replicas
from diffenergy.parallel._stage_clocks.choose import Granularity
from diffenergy.parallel._stage_clocks.hulls import hull, pareto
from diffenergy.parallel._stage_clocks.problem import Problem, hosts, latest
from diffenergy.parallel._stage_clocks.relaxed import Caps
from diffenergy.parallel._stage_clocks.result import peak_power
from diffenergy.parallel._stage_clocks.solve import solved, uniform
from diffenergy.plans import (
    Plan,
    Schedule,
    fastest_split,
    instruction_ends,
    pipeline_layout,
)
from diffenergy.plans._pipeline import ends, instructions
from diffenergy.results import Infeasible

WAIT = 10.0


def problem(
    time: Any, energy: Any, batches: int, schedule: Schedule = "1f1b", **changed: Any
) -> Problem:
    """Stages whose types take `time` s and `energy` J [clock, type: forward and
    backward of stage 0, of stage 1, ...]; a GPU that waits draws 10 W."""
    time = np.asarray(time, float)
    ways = 3 if schedule == "zb-h1" else 2
    stages = time.shape[1] // ways
    program = instructions(schedule, stages, batches)
    static = np.full((len(time), stages), WAIT)
    stage = np.repeat(np.arange(stages), ways)
    case: dict[str, Any] = dict(
        program=program,
        type=ways * program.place + program.kind,
        stage=stage,
        kind=np.tile(np.arange(ways), stages),
        clocks=1e9 * np.arange(len(time), 0.0, -1.0),
        time=time,
        dynamic=np.asarray(energy, float) - WAIT * time,
        static=static,
        wait=np.full(stages, WAIT),
        fixed=np.zeros(stages),
        after=0.0,
        stretch=1.0,
        abreast=1.0,
    )
    return Problem(**(case | changed))


def curves(
    seed: int, clocks: int, types: int, spread: float = 1.0
) -> tuple[np.ndarray, np.ndarray]:
    """Times and energies of types by clock, as of f V^2: convex."""
    random = np.random.default_rng(seed)
    f = np.linspace(1, 0.5, clocks)[:, None]
    work = np.exp(spread * random.uniform(-0.5, 0.5, types))
    share = random.uniform(0.6, 0.95, types)
    time = work * (share / f + 1 - share)
    return time, 150 * work * (0.5 + 0.5 * f**2) ** 2 + 20 * time


def test_one_micro_batch_leaves_nothing():
    """Every pass waits for the one before: no slack, and the bound says so."""
    result = solved([(problem(*curves(0, 8, 6), batches=1), 1.0)], "instruction", 0.0)
    assert result.saving == 0
    assert result.bound == pytest.approx(result.usual[1], rel=1e-8)
    assert (result.replicas[0].choice == 0).all()


HAND_TIME = [[1, 1, 2, 2], [2, 2, 4, 4], [4, 4, 8, 8], [8, 8, 16, 16]]
HAND_ENERGY = [[80, 80, 200, 200], [60, 60, 180, 180], [70, 70, 180, 180], [99] * 4]


def test_a_short_stage_takes_its_time():
    """Stage 1 is busy from 1 to 9 s; stage 0 has its second forward pass ready at 5 s
    and its first backward one behind it at 9 s at the latest: 4 s each. Beyond waiting,
    1 s costs 70 J, 2 s 40 J, 4 s 30 J."""
    one = problem(HAND_TIME, HAND_ENERGY, batches=2)
    result = solved([(one, 1.0)], "instruction", 0.0)
    assert result.usual[0] == result.best[0] == 10
    rows = {
        (one.stage_of[i], one.program.kind[i], one.program.batch[i]): choice
        for i, choice in enumerate(result.replicas[0].choice)
    }
    slow = {key for key, choice in rows.items() if choice}
    assert slow == {(0, 0, 1), (0, 1, 0)}
    assert {rows[key] for key in slow} == {2}
    # four passes of 80 J, four of 200 J, and 2 x 10 - 12 s of waiting
    assert result.usual[1] == pytest.approx(4 * 80 + 4 * 200 + 10 * (20 - 12))
    assert result.best[1] == pytest.approx(result.usual[1] - 2 * (70 - 30))
    assert result.bound == pytest.approx(result.best[1], rel=1e-8)


def test_the_bound_goes_between_clocks():
    """With clocks of 1, 3 and 6 s, 4 s cost a third of the way from 3 to 6 s."""
    time = [[1, 1, 2, 2], [3, 3, 6, 6], [6, 6, 12, 12]]
    energy = [[80, 80, 200, 200], [70, 70, 500, 500], [70, 70, 500, 500]]
    one = problem(time, energy, batches=2)
    result = solved([(one, 1.0)], "instruction", 0.0)
    between = 40 - (40 - 10) / 3  # J beyond waiting; 70 at 1 s
    assert result.bound == pytest.approx(result.usual[1] - 2 * (70 - between), rel=1e-8)
    assert result.best[1] == pytest.approx(result.usual[1] - 2 * (70 - 40))


def every(one: Problem, units: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """All choices with one clock a unit, and the energy of each without slow-down;
    infinite of those that are late."""
    clocks, count = len(one.clocks), int(units.max()) + 1
    digits = np.array(list(itertools.product(range(clocks), repeat=count)))
    choice = digits[:, units]
    time = one.pipeline(choice)
    usual = float(one.pipeline(one.usual))
    cost = one.cost[choice, one.type].sum(axis=1)
    energy = cost + one.wait.sum() * time + one.fixed.sum()
    return choice, np.where(time <= usual * (1 + 1e-9), energy, np.inf)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("stages", "clocks"), [(2, 3), (3, 2)])
def test_against_all_choices(stages: int, clocks: int, seed: int):
    one = problem(*curves(seed, clocks, 2 * stages), batches=2)
    _, energy = every(one, np.arange(len(one.type)))
    result = solved([(one, 1.0)], "instruction", 0.0)
    least = energy.min()
    assert result.bound <= least * (1 + 1e-9)
    assert least * (1 - 1e-9) <= result.best[1] <= 1.02 * least
    assert result.best[0] <= result.usual[0] * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("granularity", ["kind", "stage"])
def test_shared_clocks_against_all_choices(granularity: Granularity, seed: int):
    """A slow-down of 10 % of 3 stages, 4 clocks."""
    one = problem(*curves(seed, 4, 6, 2.0), batches=3)
    units = one.type if granularity == "kind" else one.stage_of
    slower = solved([(one, 1.0)], granularity, 0.1)
    choice, _ = every(one, units)
    time = one.pipeline(choice)
    energy = one.cost[choice, one.type].sum(axis=1) + one.wait.sum() * time
    least = energy[time <= 1.1 * float(one.pipeline(one.usual))].min()
    assert slower.best[1] == pytest.approx(least, rel=5e-3)
    assert slower.best[1] >= least * (1 - 1e-9)
    assert slower.bound <= least


@pytest.mark.parametrize("granularity", ["instruction", "kind", "stage"])
def test_more_time_never_costs_energy(granularity: Granularity):
    one = problem(*curves(3, 24, 8), batches=6)
    result = [solved([(one, 1.0)], granularity, x) for x in (0.0, 0.01, 0.05, 0.2, 3.0)]
    for before, after in itertools.pairwise(result):
        assert after.bound <= before.bound * (1 + 1e-9)
        assert after.best[1] <= before.best[1] * (1 + 2e-3)
    assert all(x.bound <= x.best[1] * (1 + 1e-9) for x in result)


def test_savings_grow_with_finer_choices_and_with_bubbles():
    """p equal stages save in the bubble alone: m (f + b) of (m + p - 1) (f + b) are
    work; the more micro-batches the less of a step is slack."""
    one = problem(*curves(5, 24, 8), batches=8)
    kinds: tuple[Granularity, ...] = ("stage", "kind", "instruction")
    saved = [solved([(one, 1.0)], x, 0.02).saving for x in kinds]
    assert 0 < saved[0] <= saved[1] + 1e-3 < saved[2]
    time, energy = curves(1, 24, 2)
    equal = [problem(np.tile(time, 4), np.tile(energy, 4), m) for m in (4, 16, 64)]
    saved = [solved([(x, 1.0)], "instruction", 0.0).saving for x in equal]
    assert saved[0] > saved[1] > saved[2] > 0


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe", "zb-h1"])
def test_ends_of_many_at_once(schedule: Schedule):
    """By the recursion of every training step, for each of some schedules."""
    ways = 3 if schedule == "zb-h1" else 2
    one = problem(*curves(2, 5, 4 * ways), batches=6, schedule=schedule)
    choice = np.random.default_rng(0).integers(0, 5, (3, len(one.type)))
    durations = one.durations(choice)
    result = instruction_ends(one.program, durations)
    for row, each in zip(result, durations, strict=True):
        np.testing.assert_allclose(row, ends(one.program, jnp.asarray(each)), 1e-12)
    late = latest(one.program, durations[0], result[0].max())
    assert (late >= result[0] - 1e-9).all()
    assert np.isclose(late, result[0]).any()  # the critical path has no slack
    saved = solved([(one, 1.0)], "instruction", 0.0)
    assert saved.bound <= saved.best[1] < saved.usual[1]


def test_hulls():
    time, cost = np.array([1.0, 1, 2, 3, 4, 5]), np.array([9.0, 9, 8, 4, 3.5, 6])
    assert pareto(time, cost).tolist() == [1, 2, 3, 4]
    # equal to the fastest, not each to the one before
    near = 1 + 0.8e-9 * np.arange(4)
    assert pareto(near, np.array([4.0, 3.0, 2.0, 1.0])).tolist() == [1, 3]
    assert hull(time, cost).tolist() == [1, 3, 4]


# --- what others make of a step


def test_a_later_deadline_is_used():
    """Others take twice as long: usual clocks wait 10 W x 2 stages x 10 s longer."""
    one = problem(HAND_TIME, HAND_ENERGY, batches=2)
    plain = solved([(one, 1.0)], "instruction", 0.0)
    late = solved([(one, 1.0)], "instruction", 0.0, least=20.0)
    assert late.usual == pytest.approx((20.0, plain.usual[1] + 200))
    assert late.best[0] == 20
    assert late.bound <= late.best[1] < plain.best[1] + 200


def test_a_slow_replica_and_the_others():
    """A stage of one of three replicas is slower and does the same work: the others are
    slowed to its step."""
    one = problem(*curves(7, 24, 4), batches=4)
    slow = one.slowed(1, 0.5)
    assert slow.time[:, 2:] == pytest.approx(1.5 * one.time[:, 2:])
    more = slow.energy - one.energy
    assert more[:, 2:] == pytest.approx(WAIT * 0.5 * one.time[:, 2:])
    assert (more[:, :2] == 0).all()
    result = solved([(slow, 1.0), (one, 2.0)], "instruction", 0.0)
    step = float(slow.pipeline(slow.usual))
    usual = [x.step_energy(x.usual, step) for x in (slow, one)]
    assert result.usual == pytest.approx((step, usual[0] + 2 * usual[1]))
    assert result.best[0] == pytest.approx(step)
    alone = solved([(one, 1.0)], "instruction", 0.0, least=step)
    assert result.replicas[1].energy(step) == pytest.approx(2 * alone.best[1], rel=1e-6)


# --- caps of power


@pytest.mark.parametrize(
    "granularity", ["instruction", pytest.param("stage", marks=pytest.mark.slow)]
)
def test_caps_are_kept_and_cost_time(granularity: Granularity):
    one = problem(*curves(4, 24, 8), batches=6)
    free = solved([(one, 1.0)], granularity, 0.0)
    steps, power = [], free.best[1] / free.best[0]
    for share in (1.05, 0.9, 0.75):
        caps = Caps(np.ones((1, 4)), share * power)
        result = solved([(one, 1.0)], granularity, None, 0.0, caps)
        drawn = result.best[1] / result.best[0]
        assert drawn <= caps.limit * (1 + 1e-9)
        assert result.bound <= result.best[1]
        steps.append(result.best[0])
        same = uniform(one, caps)
        assert same is not None
        assert same[2] / same[1] <= caps.limit
        assert result.best[0] <= same[1] * (1 + 2e-3)  # no worse than one clock for all
    assert steps[0] == free.best[0] < steps[1] < steps[2]


def test_each_of_several_hosts_keeps_its_cap():
    one = problem(*curves(4, 24, 8), batches=6)
    members = np.array([[1.0, 1, 0, 0], [0, 0, 1, 1]])
    free = solved([(one, 1.0)], "instruction", 0.0)
    drawn = Caps(members, 1.0).power(one, free.replicas[0].choice, free.best[0])
    caps = Caps(members, 0.85 * drawn.max())
    result = solved([(one, 1.0)], "instruction", None, 0.0, caps)
    limited = caps.power(one, result.replicas[0].choice, result.best[0])
    assert (limited <= caps.limit * (1 + 1e-9)).all()
    assert result.best[0] > free.best[0]


def test_caps_that_cannot_be_kept_say_what_can():
    one = problem(*curves(4, 24, 8), batches=6)
    members = np.ones((1, 4))
    with pytest.raises(Infeasible, match="`node_power` is 50 W") as refused:
        solved([(one, 1.0)], "instruction", None, 0.0, Caps(members, 50.0))
    least = refused.value.least["node_power"]
    result = solved([(one, 1.0)], "instruction", None, 0.0, Caps(members, least))
    assert result.best[1] / result.best[0] <= least * (1 + 1e-9)
    free = solved([(one, 1.0)], "instruction", 0.0)
    caps = Caps(members, 0.8 * free.best[1] / free.best[0])
    with pytest.raises(Infeasible, match="`max_slowdown` of 1 %") as refused:
        solved([(one, 1.0)], "instruction", 0.01, 0.0, caps)
    needed = refused.value.least["max_slowdown"] / 100
    result = solved([(one, 1.0)], "instruction", needed, 0.0, caps)
    assert result.best[1] / result.best[0] <= caps.limit * (1 + 1e-9)


def test_peak_power_by_hand():
    """Two stages, one micro-batch: at any time one works (80 J/s or 100 W) and the
    other waits."""
    one = problem(HAND_TIME, HAND_ENERGY, batches=1)
    for members, watts in (([1.0, 1.0], 110), ([1.0, 0.0], 80)):
        peak = peak_power(Replicas(one, one.usual), np.array([members]))
        assert peak == pytest.approx(watts)


def test_hosts_hold_gpus_stage_by_stage():
    assert hosts(Plan(pp=8), 8).tolist() == [[1] * 8]
    assert hosts(Plan(pp=2, dp=2), 2).tolist() == [[0, 2], [2, 0]]
    assert hosts(Plan(tp=4, pp=4), 8).tolist() == [[0, 0, 4, 4], [4, 4, 0, 0]]


# --- layers of stages


@pytest.mark.parametrize("head", [0.0, 0.7, 5.0])
@pytest.mark.parametrize(("layers", "places"), [(9, 4), (5, 2)])
def test_the_slowest_stage_is_as_fast_as_can_be(layers: int, places: int, head: float):
    result = fastest_split(1.0, (0.2, head), layers, places)
    beside = np.r_[0.2, np.zeros(places - 2), head]
    assert sum(result) == layers
    least = min(
        (np.array(x) + beside).max()
        for x in itertools.product(range(layers + 1), repeat=places)
        if sum(x) == layers and all(x[1:-1])
    )
    assert (np.array(result) + beside).max() == pytest.approx(least)


def test_a_split_is_taken_as_it_is():
    layout = pipeline_layout((0,) * 5, Plan(pp=2), "x", split=(4, 1))
    assert layout.spans == ((0, 4), (4, 5))
