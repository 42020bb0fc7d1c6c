"""Integer search against hand arithmetic, proven figures, and a naive model by loops
solved with SciPy's HiGHS."""

import dataclasses

import numpy as np
import pytest
from scipy import sparse

from diffenergy.collectives import Demand
from diffenergy.collectives._epoch_schedule import (
    epoch_schedule,
    least_horizon,
    reach,
)
from diffenergy.collectives._milp import least_finish, milp
from diffenergy.collectives._simulate import run_epochs
from diffenergy.collectives._verify import verify
from diffenergy.search import LinearModel, Solving, solve

from ..machine.c3_machines import blocks, dgx2_2, ndv2_2, torus
from ..machine.c4_machines import (
    GBPS,
    all_gather,
    both,
    dgx1,
    link,
    made,
    ndv2_2_published,
    replay_epochs,
    ring,
    scipy_least,
    star,
)
from ..schedule.seeds import seeds
from .models import CHUNK, early, epochs_of


def broadcast(machine, root=0, chunk=CHUNK):
    whole = all_gather(machine, chunk)
    keep = whole.source == root
    return Demand(
        "broadcast", *(column[keep] for column in dataclasses.astuple(whole)[1:])
    )


@pytest.mark.parametrize(
    ("latency", "kind", "chunks", "least"),
    [
        (0.0, "slowest", 2, 3),
        (0.7e-6, "slowest", 1, 4),
        (0.7e-6, "slowest", 4, 6),
        (0.0, "fastest", 2, 5),
        (0.7e-6, "fastest", 3, 10),
        pytest.param(0.0, "slowest", 1, 2, marks=pytest.mark.slow),
        pytest.param(0.0, "slowest", 6, 7, marks=pytest.mark.slow),
        pytest.param(0.7e-6, "slowest", 2, 5, marks=pytest.mark.slow),
        pytest.param(0.7e-6, "slowest", 3, 6, marks=pytest.mark.slow),
        pytest.param(0.0, "fastest", 1, 3, marks=pytest.mark.slow),
        pytest.param(0.7e-6, "fastest", 1, 7, marks=pytest.mark.slow),
        pytest.param(0.7e-6, "fastest", 2, 9, marks=pytest.mark.slow),
        pytest.param(0.0, "slowest", 3, 4, marks=pytest.mark.slow),
        pytest.param(0.0, "slowest", 4, 5, marks=pytest.mark.slow),
        pytest.param(0.0, "slowest", 5, 6, marks=pytest.mark.slow),
        pytest.param(0.7e-6, "slowest", 5, 7, marks=pytest.mark.slow),
        pytest.param(0.7e-6, "slowest", 6, 8, marks=pytest.mark.slow),
    ],
)
def test_dgx1_all_gather_has_its_least_epochs(latency, kind, chunks, least):
    # Proven figures of another solver run for this machine.
    machine = dgx1(latency)
    model = epochs_of(machine, kind)
    demand = all_gather(machine, CHUNK, chunks)
    # 7 chunks for each of ours must come in over 6 lanes.
    lanes = 6 if kind == "slowest" else 3
    low = int(np.ceil(7 * chunks / lanes)) + int(model.delay.min())
    found = least_finish(machine, demand, model, low=low, how=Solving(time_limit=60.0))
    assert found.status == "optimal"
    assert made(found).epochs == least
    below = max(low, least_horizon(machine, demand, model.hop)) - 1
    assert max(found.infeasible_at, below) == least - 1
    replay_epochs(made(found), model, least)


@pytest.mark.slow
def test_dgx1_fast_three_chunks_in_eight_epochs():
    # In seven, two double lanes bring 7 chunks each and two single ones 3: 20 of 21.
    machine = dgx1(0.0)
    model = epochs_of(machine, "fastest")
    found = milp(
        machine, all_gather(machine, CHUNK, 3), model, 8, how=Solving(time_limit=200.0)
    )
    assert made(found).epochs == 8
    replay_epochs(made(found), model, 8)


@pytest.mark.parametrize(
    "machine",
    [ndv2_2_published(), pytest.param(ndv2_2(), marks=pytest.mark.slow)],
    ids=lambda m: m.name,
)
def test_ndv2_slow_epochs(machine):
    chunk = 1e9 / 16
    model = epochs_of(machine, chunk=chunk)
    demand = all_gather(machine, chunk)
    # 8 chunks pass the link into chassis 0, then two hops.
    found = milp(machine, demand, model, 10, how=Solving(time_limit=60.0))
    assert made(found).epochs == 10
    replay_epochs(made(found), model, 10)
    # The latencies that epochs drop add at most 4.1 us.
    assert verify(run_epochs(made(found), model)) <= 10 * 5e-3 + 4.1e-6
    assert (
        milp(machine, demand, model, 9, how=Solving(time_limit=60.0)).status
        == "infeasible"
    )


@pytest.mark.slow
@pytest.mark.long
def test_ndv2_fast_epochs():
    machine = ndv2_2_published()
    chunk = 1e9 / 16
    model = epochs_of(machine, "fastest", chunk)
    demand = all_gather(machine, chunk)
    found = milp(machine, demand, model, 35, how=Solving(time_limit=900.0))  # 8 x 4 + 3
    replay_epochs(made(found), model, 35)
    assert (
        milp(machine, demand, model, 34, how=Solving(time_limit=900.0)).status
        == "infeasible"
    )


@pytest.mark.parametrize(
    ("copy", "free_exit", "kind", "least"),
    [
        (True, False, "broadcast", 2),  # in, out
        (False, False, "broadcast", 4),  # in three times, the last one out
        (True, True, "broadcast", 1),  # in; the way out is free
        (False, True, "broadcast", 2),  # the second GPU sends too
        (True, False, "all_gather", 4),  # three chunks on the last link, one before it
        (False, True, "all_gather", 3),
    ],
)
def test_switch(copy, free_exit, kind, least):
    machine = star(4, copy, free_exit)
    model = epochs_of(machine)
    make = broadcast if kind == "broadcast" else all_gather
    demand = make(machine, chunk=CHUNK)
    found = least_finish(machine, demand, model, how=Solving(time_limit=30.0))
    assert made(found).epochs == least
    replay_epochs(made(found), model, least)


@pytest.mark.parametrize(("count", "least"), [(4, 2), (5, 2), (7, 3)])
def test_ring(count, least):
    machine = ring(count)  # N - 1 chunks come in over two links
    model = epochs_of(machine)
    found = least_finish(machine, all_gather(machine, CHUNK), model)
    assert made(found).epochs == least


def naive_least(machine, demand, model, most):
    """Least horizon by a model of all blocks, links and epochs (no switches)."""
    for horizon in range(1, most + 1):
        blocks, links = range(len(demand.source)), range(len(machine.links))
        number = {}
        for c in blocks:
            for one in links:
                for k in range(horizon):
                    number["send", c, one, k] = len(number)
            for n in range(len(machine.nodes)):
                for k in range(horizon + 1):
                    number["have", c, n, k] = len(number)
        rows, high = [], []

        def row(cells, at_most, rows=rows, high=high, number=number):
            line = np.zeros(len(number))
            for cell, value in cells:
                line[number[cell]] += value
            rows.append(line)
            high.append(at_most)

        low = np.zeros(len(number))
        for c in blocks:
            for n in range(len(machine.nodes)):
                own = n == demand.source[c]
                for k in range(horizon + 1):
                    come = [
                        (("send", c, one, k - model.hop[one]), -1)
                        for one in links
                        if machine.targets[one] == n and k >= model.hop[one]
                    ]
                    if k:
                        come.append((("have", c, n, k - 1), -1))
                    row([(("have", c, n, k), 1), *come], 1.0 if own else 0.0)
                low[number["have", c, n, horizon]] = demand.wanted[c, n]
            for one in links:
                for k in range(horizon):
                    have = ("have", c, int(machine.sources[one]), k)
                    row([(("send", c, one, k), 1), (have, -1)], 0.0)
        for one in links:
            for k in range(horizon):
                span = range(max(0, k - model.window[one] + 1), k + 1)
                cells = [(("send", c, one, j), 1) for c in blocks for j in span]
                row(cells, float(model.most[one]))
        naive = LinearModel(
            sparse.csr_array(np.array(rows)),
            np.full(len(rows), -np.inf),
            np.array(high),
            low,
            np.ones(len(number)),
            np.zeros(len(number)),
            True,
        )
        if scipy_least(naive) is not None:
            return horizon
    return None


@pytest.mark.parametrize("seed", seeds(6, quick=3))
def test_least_finish_is_that_of_a_naive_model(seed):
    chance = np.random.default_rng(seed)
    count = 4
    links = [
        dataclasses.replace(
            one,
            rate=chance.choice([20, 40, 80]) * GBPS,
            latency=chance.choice([0, 1e-6]),
        )
        for n in range(count)
        for one in both(n, (n + 1) % count, 1.0, 0.0)
    ]
    machine = dataclasses.replace(ring(count), links=tuple(links))
    model = epochs_of(machine, "fastest", 40e3)
    demand = all_gather(machine, 40e3)
    found = least_finish(machine, demand, model, how=Solving(time_limit=60.0))
    assert made(found).epochs == naive_least(machine, demand, model, 14)
    replay_epochs(made(found), model, made(found).epochs)


def test_early_delivery_is_as_good_as_scipy_finds():
    machine = dgx1(0.0)
    model = epochs_of(machine)
    demand = all_gather(machine, CHUNK)
    built, rows = early(machine, demand, model, 3)
    found = solve(built, Solving(time_limit=60.0))
    assert found.status == "optimal"
    assert found.incumbent == pytest.approx(scipy_least(built), rel=1e-6)
    assert found.values is not None
    made = epoch_schedule(machine, demand, model, rows.chosen(found.values))
    replay_epochs(made, model, 3)


def test_least_cost_sends_every_wish_once():
    machine = dgx1()
    model = epochs_of(machine)
    found = milp(
        machine,
        all_gather(machine, CHUNK),
        model,
        6,
        link_cost=np.ones(32),
        how=Solving(time_limit=60.0),
    )
    assert found.status == "optimal"
    assert found.objective == 56  # 8 blocks, 7 takers
    assert len(made(found).sends) == 56


@pytest.mark.slow
@pytest.mark.parametrize("free_exit", [True, False])
def test_machines_with_switches_that_copy_nothing(free_exit):
    """31 chunks come to an odd GPU of 32 over its switch, 10 an epoch, from epoch 1 on;
    a free exit takes no epoch."""
    machine, chunk = dgx2_2(free_exit), 1e9 / 32
    model = epochs_of(machine, chunk=chunk)
    demand = all_gather(machine, chunk)
    found = least_finish(machine, demand, model, how=Solving(time_limit=120.0))
    assert made(found).epochs == (4 if free_exit else 5)
    replay_epochs(made(found), model, made(found).epochs)
    verify(run_epochs(made(found), model))


def test_torus():
    machine = torus(4, 4)
    model = epochs_of(machine)
    demand = all_gather(machine, CHUNK)
    low = int(np.ceil(15 / 4))  # 15 chunks over four links, after latencies
    found = least_finish(machine, demand, model, low=low, how=Solving(time_limit=60.0))
    replay_epochs(made(found), model, made(found).epochs)


def test_reach_by_hand_on_a_line():
    links = (link(0, 1, 50 * GBPS, 0.0), link(1, 2, 50 * GBPS, 0.0))
    machine = dataclasses.replace(ring(3), links=links)
    demand = blocks(machine, [(0, [1, 2])], CHUNK)
    found = reach(machine, demand.source, demand.wanted, np.array([1, 1]), 4)
    np.testing.assert_array_equal(found.earliest, [[0, 1, 2]])
    np.testing.assert_array_equal(found.first, [[0, 1]])
    np.testing.assert_array_equal(found.last, [[3, 3]])
