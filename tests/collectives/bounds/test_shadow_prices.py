"""Prices of rates: closed forms, differences of the bound, symmetry, errors."""

import dataclasses

import numpy as np
import pytest

from diffenergy.collectives import Demand, Topology, demand, load_topology
from diffenergy.collectives._bounds.duals import RatePrices, price_rows, rate_prices

from ..machine.c3_machines import (
    all_gather,
    all_to_all,
    gpu_nodes,
    machine,
    ring,
    star,
    sums,
    torus,
)

MB = 1e6


def by_link(prices: RatePrices, topology: Topology) -> dict[tuple[str, str], float]:
    rows = price_rows(prices, topology)
    return {(r["link"][0], r["link"][1]): r["bound_rate_sensitivity"] for r in rows}


def test_bottleneck_of_a_line() -> None:
    """Scatter over gpu0 -> gpu1 (50 GB/s) -> gpu2 (10 GB/s): 1 MB passes the second,
    2 MB the first, 100 us and 40 us."""
    edges = [(0, 1, 50.0, 1.0), (1, 2, 10.0, 1.0)]
    topology = machine("line", gpu_nodes(3, 3), edges, 3)
    wanted = np.array([[False, True, False], [False, False, True]])
    zero, size = np.zeros(2, int), np.full(2, MB)
    wish = Demand("scatter", zero, np.arange(2), size, wanted, np.zeros_like(wanted))
    found = rate_prices(wish, topology)
    assert found.kind == "flow"
    assert found.bound == pytest.approx(100e-6)
    assert by_link(found, topology) == {("gpu1", "gpu2"): pytest.approx(-1.0)}


@pytest.mark.parametrize(
    ("topology", "hops"), [(ring(8), 16.0), (torus(4, 4), 32.0), (torus(3, 3), 12.0)]
)
def test_volume_times_distance_where_all_links_are_alike(
    topology: Topology, hops: float
) -> None:
    """`hops`: links between a GPU and all others. All links are busy all the time."""
    gpus, links = len(topology.gpus), len(topology.links)
    found = rate_prices(all_to_all(topology, gpus * MB), topology)
    assert found.bound == pytest.approx(gpus * hops * MB / (links * 50e9))
    np.testing.assert_allclose(found.rate, -1 / links, rtol=1e-6)


@pytest.mark.parametrize("name", ["all_gather", "reduce_scatter", "all_reduce"])
def test_copies_and_sums_at_the_only_way_in(name: str) -> None:
    """Eight blocks of 62.5 MB pass one link of 12.5 GB/s each way: half of the price
    each, since neither helps alone."""
    topology = load_topology("ndv2-2")
    found = rate_prices(demand(name, topology, "1GB"), topology)
    assert found.kind == "cut"
    assert found.bound == pytest.approx(40e-3)
    half = pytest.approx(-0.5)
    assert by_link(found, topology) == {("gpu0", "gpu9"): half, ("gpu8", "gpu1"): half}


def test_blocks_with_one_taker_at_the_only_way_in() -> None:
    """64 of 62.5 MB each way: 320 ms."""
    topology = load_topology("ndv2-2")
    found = rate_prices(demand("all_to_all", topology, "1GB"), topology)
    assert found.kind == "flow"
    assert found.bound == pytest.approx(320e-3)
    assert found.rate.sum() == pytest.approx(-1.0)
    assert len(price_rows(found, topology)) == 2


def test_a_ring_shares_the_price_out() -> None:
    """Each GPU's three blocks come in over two links."""
    topology = ring(4)
    found = rate_prices(all_gather(topology, 4 * MB), topology)
    assert found.bound == pytest.approx(3 * MB / 100e9)
    np.testing.assert_allclose(found.rate, -1 / 8, rtol=1e-6)


def uneven(topology: Topology) -> Topology:
    """Links all a little different, so that best prices are unique."""
    rng = np.random.default_rng(5)
    rates = topology.rates * rng.uniform(0.5, 1.5, len(topology.links))
    return faster(topology, rates)


def faster(topology: Topology, rates: np.ndarray) -> Topology:
    links = tuple(
        dataclasses.replace(link, rate=rate)
        for link, rate in zip(topology.links, rates.tolist(), strict=True)
    )
    return dataclasses.replace(topology, links=links)


@pytest.mark.parametrize("base", [torus(3, 3), star(4), load_topology("dgx1")])
@pytest.mark.parametrize("kind", ["all_to_all", "all_gather", "reduce_scatter"])
def test_prices_are_slopes_of_the_bound(base: Topology, kind: str) -> None:
    topology = uneven(base)
    how = {
        "all_to_all": all_to_all,
        "all_gather": all_gather,
        "reduce_scatter": lambda machine, size: sums(machine, size, False),
    }[kind]
    wish = how(topology, 9 * MB)
    found = rate_prices(wish, topology)
    assert found.rate.sum() == pytest.approx(-1.0, abs=1e-6)
    assert (found.rate <= 0).all()
    step = 1e-4
    for link in np.argsort(found.rate)[:: max(1, len(found.rate) // 3)]:
        rates = topology.rates.copy()
        rates[link] *= 1 + step
        changed = rate_prices(wish, faster(topology, rates)).bound
        slope = (changed / found.bound - 1) / step
        assert slope == pytest.approx(found.rate[link], abs=1e-3)


def test_rows_have_most_first_and_no_zeros() -> None:
    topology = uneven(torus(3, 3))
    found = rate_prices(all_to_all(topology, 9 * MB), topology)
    values = [row["bound_rate_sensitivity"] for row in price_rows(found, topology)]
    assert values == sorted(values)
    assert values[-1] < 0


def test_bad_input_is_named() -> None:
    topology = ring(2)
    wish = all_to_all(topology, 2 * MB)
    nothing = dataclasses.replace(wish, wanted=np.zeros_like(wish.wanted))
    with pytest.raises(ValueError, match="`demand` moves nothing"):
        rate_prices(nothing, topology)
