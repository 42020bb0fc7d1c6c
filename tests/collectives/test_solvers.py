"""Searches in epochs against proven figures and naive programs solved with SciPy."""

import dataclasses
import itertools

import numpy as np
import pytest
from scipy import sparse

from diffenergy.collectives import Topology, demand
from diffenergy.collectives._epoch_schedule import least_horizon
from diffenergy.search import LinearModel, Solving

from .builders import (
    CHUNK,
    DGX1_LEAST,
    dgx1,
    epochs_of,
    exchange_chunks,
    gather_chunks,
    least_finish,
    lp,
    ndv2_2,
    one_to_all,
    random_ring,
    replay_epochs,
    replay_parts,
    ring,
    rounds,
    schedule_of,
    scipy_least,
    seeds,
    star,
    torus,
)


@pytest.mark.parametrize(
    ("latency", "kind", "chunks", "least"),
    [
        pytest.param(*key, n, least, marks=[] if n == 2 else pytest.mark.slow)
        for key, row in DGX1_LEAST.items()
        for n, least in enumerate(row, 1)
    ],
)
def test_dgx1_all_gather_has_its_least_epochs(latency, kind, chunks, least):
    machine = dgx1(latency)
    model = epochs_of(machine, kind)
    demand = gather_chunks(machine, CHUNK, chunks)
    # 7 chunks for each of ours must come in over 6 lanes.
    lanes = 6 if kind == "slowest" else 3
    low = int(np.ceil(7 * chunks / lanes)) + int(model.delay.min())
    result = least_finish(machine, demand, model, low=low, how=Solving(time_limit=60.0))
    assert result.status == "optimal"
    assert schedule_of(result).epochs == least
    below = max(low, least_horizon(machine, demand, model.hop)) - 1
    assert max(result.infeasible_at, below) == least - 1
    replay_epochs(schedule_of(result), model, least)


def naive_least(topology, demand, model, parts: bool, most: int = 14) -> int | None:
    """Least horizon by a program of every block, link and epoch on a machine of GPUs,
    written out: whole blocks that are copied, or `parts` that are passed on."""
    blocks, links = range(len(demand.source)), range(len(topology.links))
    nodes = range(len(topology.nodes))
    hop = 1 + model.delay if parts else model.hop
    for horizon in range(1, most + 1):
        sends = [
            ("send", c, n, k) for c in blocks for n in links for k in range(horizon)
        ]
        holds = [
            ("have", c, n, k) for c in blocks for n in nodes for k in range(horizon + 1)
        ]
        number = {key: n for n, key in enumerate([*sends, *holds])}
        rows, low, high = [], [], []

        def row(cells, least, at_most, rows=rows, low=low, high=high, number=number):
            line = np.zeros(len(number))
            for cell, value in cells:
                line[number[cell]] += value
            rows.append(line)
            low.append(least)
            high.append(at_most)

        for c, n, k in itertools.product(blocks, nodes, range(horizon + 1)):
            come = [
                (("send", c, one, k - hop[one]), -1)
                for one in links
                if topology.targets[one] == n and k >= hop[one]
            ]
            out = [one for one in links if topology.sources[one] == n and k < horizon]
            before = [(("have", c, n, k - 1), -1)] if k else []
            own = float(n == demand.source[c]) * (demand.size[c] / model.chunk)
            terms = [(("have", c, n, k), 1), *before, *come]
            if parts:  # what leaves is gone
                gone = [(("send", c, one, k), 1) for one in out]
                row([*terms, *gone], own * (k == 0), own * (k == 0))
            else:
                row(terms, -np.inf, own)
                for one in out:
                    row([(("send", c, one, k), 1), (("have", c, n, k), -1)], -np.inf, 0)
            if k == horizon:
                wish = demand.wanted[c, n] * demand.size[c] / model.chunk
                row([(("have", c, n, k), 1)], wish, wish if parts else np.inf)
        for one, k in itertools.product(links, range(horizon)):
            span = range(k if parts else max(0, k - model.window[one] + 1), k + 1)
            cells = [(("send", c, one, j), 1) for c in blocks for j in span]
            row(cells, -np.inf, (model.capacity if parts else model.most)[one])
        columns = len(number)
        top = np.full(columns, np.inf if parts else 1.0)
        naive = LinearModel(
            sparse.csr_array(np.array(rows)), np.array(low, float),
            np.array(high, float), np.zeros(columns), top, np.zeros(columns), not parts,
        )  # fmt: skip
        if scipy_least(naive) is not None:
            return horizon
    return None


@pytest.mark.parametrize("seed", seeds(6, quick=3))
@pytest.mark.parametrize("parts", [False, True], ids=["whole", "parts"])
def test_least_epochs_are_those_of_a_naive_program(seed: int, parts: bool):
    rates = [10.0, 25.0, 50.0] if parts else [20.0, 40.0, 80.0]
    topology = random_ring(seed, rates, [0.0, 1.0])
    model = epochs_of(topology, "fastest")
    if parts:
        demand = exchange_chunks(topology, CHUNK)
        chance = np.random.default_rng(seed)
        size = demand.size * chance.choice([0.5, 1.0, 1.7], len(demand.size))
        demand = dataclasses.replace(demand, size=size)
        result = schedule_of(lp(topology, demand, model))
        replay_parts(result, model, result.epochs)
    else:
        demand = gather_chunks(topology, CHUNK)
        result = schedule_of(least_finish(topology, demand, model))
        replay_epochs(result, model, result.epochs)
    assert result.epochs == naive_least(topology, demand, model, parts)


def star_of(copy: bool, free_exit: bool = False) -> Topology:
    return star(4, copy, latency=0.0, free_exit=free_exit)


@pytest.mark.parametrize(
    ("topology", "kind", "least", "volume"),
    [
        # N - 1 chunks come in over two links
        *((ring(n, 0.0), "all_gather", k, None) for n, k in ((4, 2), (5, 2), (7, 3))),
        # In, out; in three times, the last one out; in, and the way out is free;
        # without copy the second GPU sends, too.
        (star_of(True), "broadcast", 2, None),
        (star_of(False), "broadcast", 4, None),
        (star_of(True, True), "broadcast", 1, None),
        (star_of(False, True), "broadcast", 2, None),
        # Three chunks on the last link, one before it.
        (star_of(True), "all_gather", 4, None),
        (star_of(False, True), "all_gather", 3, None),
        # 15 chunks over four links, after latencies.
        (torus(4, 4), "all_gather", None, None),
        # Paths of 1, 1 and 2 hops from each of four: two chunks a link; of 1, 1, 2, 2
        # from each of five: three; three chunks on each link, out an epoch later.
        (ring(4, 0.0), "all_to_all", 2, 16),
        (ring(5, 0.0), "all_to_all", 3, 30),
        (star_of(False), "all_to_all", 4, 24),
        (star_of(True), "all_to_all", 4, 24),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_small_machines_by_hand(topology, kind, least, volume):
    model = epochs_of(topology)
    if kind == "all_to_all":
        result = lp(topology, exchange_chunks(topology, CHUNK), model)
        assert result.objective == pytest.approx(volume)
        replay_parts(schedule_of(result), model, least)
    else:
        whole = demand(kind, topology, CHUNK * len(topology.gpus))
        if kind == "broadcast":
            whole = one_to_all(topology, CHUNK * len(topology.gpus), 1)
        result = least_finish(topology, whole, model, how=Solving(time_limit=60.0))
        replay_epochs(schedule_of(result), model, schedule_of(result).epochs)
    assert least is None or schedule_of(result).epochs == least


@pytest.mark.parametrize(
    ("machine", "chunk", "length", "most"),
    [
        (dgx1(), CHUNK, None, 6),
        (star(4, False, latency=0.0), CHUNK, 1, 6),
        (ndv2_2(published=True), 1e9 / 16, 3, 12),
    ],
    ids=str,
)
def test_rounds_make_true_schedules(machine, chunk, length, most):
    model = epochs_of(machine, chunk=chunk)
    demand = gather_chunks(machine, chunk)
    result = rounds(machine, demand, model, length=length, how=Solving(time_limit=60.0))
    assert result.status == "feasible"
    assert schedule_of(result).epochs <= most
    replay_epochs(schedule_of(result), model, schedule_of(result).epochs)


def test_rounds_carry_what_is_in_flight():
    # Hops of 2 epochs in rounds of 1: every arrival falls in a later round.
    machine = ring(5, 0.5, 25.0)
    model = epochs_of(machine)
    assert set(model.hop.tolist()) == {2}
    result = rounds(machine, gather_chunks(machine, CHUNK), model, length=1)
    assert schedule_of(result).epochs == 4  # two hops, two chunks a link
