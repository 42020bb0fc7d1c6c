"""Linear programs against hand arithmetic, published figures, and a naive program by
loops solved with SciPy's HiGHS."""

import dataclasses

import numpy as np
import pytest
from scipy.optimize import linprog

from diffenergy.collectives import Demand
from diffenergy.collectives._lp import flow_model, lp, static_bound
from diffenergy.collectives._routes import epoch_length, epoch_model
from diffenergy.collectives._simulate import run_epochs
from diffenergy.collectives._verify import verify
from diffenergy.search import Solving

from ..machine.c3_machines import ndv2_2
from ..machine.c4_machines import (
    GBPS,
    all_gather,
    all_to_all,
    both,
    dgx1,
    made,
    ndv2_2_published,
    replay_parts,
    ring,
    scipy_least,
    star,
)
from ..schedule.seeds import seeds

CHUNK = 25e3


def epochs_of(machine, kind="slowest", chunk=CHUNK):
    return epoch_model(machine, chunk, epoch_length(machine, chunk, kind))


def test_dgx1_all_to_all_needs_four_epochs_and_eighty_hops():
    machine = dgx1()
    model = epochs_of(machine)
    found = lp(machine, all_to_all(machine, CHUNK), model)
    assert found.status == "optimal"
    assert made(found).epochs == 4
    assert found.objective == pytest.approx(80)
    assert made(found).sends.bytes.sum() == pytest.approx(80 * CHUNK)
    replay_parts(made(found), model, 4)
    short = lp(machine, all_to_all(machine, CHUNK), model, high=3)
    assert short.status == "infeasible"
    assert short.schedule is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("machine", "least"),
    [
        (ndv2_2_published(), 57),  # 7 x 8 chunks through gpu0, from epoch 1 on
        # 8 x 8 through each of the two links
        (ndv2_2(), 64),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_ndv2_slow_epochs(machine, least):
    chunk = 1e9 / 16
    model = epochs_of(machine, chunk=chunk)
    demand = all_to_all(machine, chunk)
    assert static_bound(machine, demand, model) == least
    found = lp(machine, demand, model, how=Solving(time_limit=300.0))
    assert made(found).epochs == least
    replay_parts(made(found), model, least)
    timed = run_epochs(made(found), model, parts=True)
    assert verify(timed) <= least * 5e-3 + 4.1e-6


@pytest.mark.slow
def test_ndv2_fast_epochs():
    machine = ndv2_2_published()
    chunk = 1e9 / 16
    model = epochs_of(machine, "fastest", chunk)
    found = lp(
        machine, all_to_all(machine, chunk), model, how=Solving(time_limit=400.0)
    )
    assert made(found).epochs == 225  # 1 + 56 x 4
    assert found.objective == pytest.approx(544)
    replay_parts(made(found), model, 225)


@pytest.mark.parametrize(
    ("machine", "least", "volume"),
    [
        # Paths of 1, 1 and 2 hops from each of four: two chunks a link.
        (ring(4), 2, 16),
        # Paths of 1, 1, 2, 2 from each of five: three chunks a link.
        (ring(5), 3, 30),
        # Three chunks on each link, the way out one epoch later.
        (star(4, False), 4, 24),
        (star(4, True), 4, 24),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_small_machines(machine, least, volume):
    model = epochs_of(machine)
    found = lp(machine, all_to_all(machine, CHUNK), model)
    assert made(found).epochs == least
    assert found.objective == pytest.approx(volume)
    replay_parts(made(found), model, least)


def test_least_volume_is_as_small_as_scipy_finds():
    machine = dgx1(0.0)
    model = epochs_of(machine, "fastest")
    demand = all_to_all(machine, CHUNK)
    linear = flow_model(machine, demand, model, 9).linear
    found = lp(machine, demand, model, low=9)
    assert found.objective == pytest.approx(scipy_least(linear))


def naive_feasible(machine, demand, model, horizon):
    """Whether a program of every block, link and epoch has a solution (GPUs alone)."""
    blocks, links = range(len(demand.source)), range(len(machine.links))
    number = {}
    for c in blocks:
        for one in links:
            for k in range(horizon):
                number["send", c, one, k] = len(number)
        for n in range(len(machine.nodes)):
            for k in range(horizon + 1):
                number["wait", c, n, k] = len(number)
    equal, given, under, limit = [], [], [], []
    for c in blocks:
        for n in range(len(machine.nodes)):
            for k in range(horizon + 1):
                line = np.zeros(len(number))
                line[number["wait", c, n, k]] = 1
                if k:
                    line[number["wait", c, n, k - 1]] = -1
                for one in links:
                    came = k - 1 - model.delay[one]
                    if machine.targets[one] == n and came >= 0:
                        line[number["send", c, one, came]] -= 1
                    if machine.sources[one] == n and k < horizon:
                        line[number["send", c, one, k]] += 1
                equal.append(line)
                own = k == 0 and n == demand.source[c]
                given.append(demand.size[c] / model.chunk if own else 0.0)
            line = np.zeros(len(number))
            line[number["wait", c, n, horizon]] = 1
            equal.append(line)
            given.append(demand.wanted[c, n] * demand.size[c] / model.chunk)
    for one in links:
        for k in range(horizon):
            line = np.zeros(len(number))
            line[[number["send", c, one, k] for c in blocks]] = 1
            under.append(line)
            limit.append(model.capacity[one])
    answer = linprog(
        np.zeros(len(number)),
        np.array(under),
        np.array(limit),
        np.array(equal),
        np.array(given),
    )
    return answer.status == 0


@pytest.mark.parametrize("seed", seeds(6, quick=3))
def test_least_horizon_is_that_of_a_naive_program(seed):
    chance = np.random.default_rng(seed)
    links = [
        dataclasses.replace(
            one,
            rate=float(chance.choice([10, 25, 50])) * GBPS,
            latency=float(chance.choice([0.0, 1e-6])),
        )
        for n in range(4)
        for one in both(n, (n + 1) % 4, 1.0, 0.0)
    ]
    machine = dataclasses.replace(ring(4), links=tuple(links))
    demand = all_to_all(machine, CHUNK)
    size = demand.size * chance.choice([0.5, 1.0, 1.7], len(demand.size))
    demand = dataclasses.replace(demand, size=size)
    model = epochs_of(machine, "fastest")
    found = lp(machine, demand, model)
    least = made(found).epochs or 0
    replay_parts(made(found), model, least)
    assert naive_feasible(machine, demand, model, least)
    assert not naive_feasible(machine, demand, model, least - 1)


def test_what_stays_needs_no_send():
    machine = ring(4)
    model = epochs_of(machine)
    demand = all_to_all(machine, CHUNK)
    kept = np.zeros((4, 4), bool)
    kept[[0, 1], [0, 1]] = True  # blocks for oneself, and blocks for nobody
    columns = (np.arange(4), np.arange(4), np.full(4, CHUNK), kept, np.zeros_like(kept))
    both_kinds = [
        np.concatenate([old, new])
        for old, new in zip(
            (demand.source, demand.chunk, demand.size, demand.wanted, demand.parts),
            columns,
            strict=True,
        )
    ]
    whole = Demand("all_to_all", *both_kinds)
    found = lp(machine, whole, model)
    assert made(found).epochs == 2
    assert found.objective == pytest.approx(16)
    assert set(made(found).sends.block.tolist()) == set(range(12))


def test_bad_input_has_one_line():
    machine = dgx1()
    model = epochs_of(machine)
    with pytest.raises(ValueError, match="take milp or greedy"):
        lp(machine, all_gather(machine, CHUNK), model)
