"""Automorphisms and orbits against machines whose symmetries are known."""

import dataclasses
import math

import numpy as np
import pytest

from diffenergy.collectives._symmetries import (
    automorphisms,
    block_map,
    link_map,
)

from .builders import (
    dgx1,
    dgx2_2,
    exchange_chunks,
    gather_chunks,
    ndv2_2,
    ring,
    star,
    torus,
)


def closure(makers, count):
    """Number of elements that generators make, by brute force."""
    start = tuple(range(count))
    seen, edge = {start}, [start]
    while edge:
        edge = [
            product
            for one in edge
            for maker in makers
            if (product := tuple(int(maker[n]) for n in one)) not in seen
            and not seen.add(product)
        ]
    return len(seen)


@pytest.mark.parametrize(
    ("machine", "order"),
    [
        (ring(8, 0.0), 16),  # the dihedral group
        (torus(3, 5), 6 * 10),  # product of two
        (torus(3, 3), 6 * 6 * 2),  # and the swap of the dimensions
        (torus(4, 4), 384),  # the 4-cube: 2^4 4!
        (star(5, latency=0.0), math.factorial(5)),
        (ndv2_2(published=True), 1),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_generators_make_the_whole_group(machine, order):
    demand = gather_chunks(machine, 1.0)
    makers = automorphisms(machine, demand)
    assert closure(makers, len(machine.nodes)) == order


@pytest.mark.parametrize("machine", [dgx1(), dgx2_2()], ids=lambda m: m.name)
@pytest.mark.parametrize("collective", [gather_chunks, exchange_chunks])
def test_maps_keep_links_and_demand(machine, collective):
    demand = collective(machine, 1.0)
    makers = automorphisms(machine, demand)
    assert makers
    for maker in makers:
        links, blocks = link_map(machine, maker), block_map(demand, maker)
        assert sorted(links) == list(range(len(machine.links)))
        assert sorted(blocks) == list(range(len(demand.source)))
        np.testing.assert_array_equal(machine.sources[links], maker[machine.sources])
        np.testing.assert_array_equal(machine.targets[links], maker[machine.targets])
        np.testing.assert_array_equal(machine.rates[links], machine.rates)
        np.testing.assert_array_equal(demand.source[blocks], maker[demand.source])
        for block, to in enumerate(blocks):
            moved = np.zeros_like(demand.wanted[block])
            moved[maker] = demand.wanted[block]
            np.testing.assert_array_equal(demand.wanted[to], moved)


def test_a_demand_that_is_not_symmetric_leaves_the_identity():
    machine = ring(6, 0.0)
    demand = gather_chunks(machine, 1.0)
    wanted = demand.wanted.copy()
    wanted[0, 1] = False
    wanted[1, 3] = False
    uneven = dataclasses.replace(demand, wanted=wanted)
    assert automorphisms(machine, uneven) == []
    with pytest.raises(ValueError, match="`node_map`"):
        block_map(uneven, np.roll(np.arange(6), 1))
