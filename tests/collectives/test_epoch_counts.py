"""Epochs of schedules in continuous time: by hand, and those of list scheduling."""

import pytest

from diffenergy.collectives import Demand, Topology, demand, load_topology
from diffenergy.collectives._epoch_counts import whole_epochs
from diffenergy.collectives._plan import in_epochs

from .builders import (
    QUICK,
    Row,
    blocks,
    epoch_bound,
    epoch_length,
    epoch_model,
    greedy,
    reducing_rows,
    schedule,
    spread_of,
    unit_demand,
    unit_machine,
    unit_ring,
    verify,
)


def wishes(topology: Topology, takers: list[str], chunks: int = 1) -> Demand:
    """Blocks of 1 B from the first node to all of `takers`."""
    nodes = [topology.index[name] for name in takers]
    return blocks(topology, [(0, nodes)] * chunks, 1.0)


def line(rate: float, latency: float) -> Topology:
    """gpu0 to gpu1 at 1 B/s, on to gpu2 at `rate`, each after `latency` s."""
    links = [("gpu0", "gpu1", 1.0, latency), ("gpu1", "gpu2", rate, latency)]
    return unit_machine("gpu0 gpu1 gpu2", links)


@pytest.mark.parametrize(
    ("rate", "latency", "chunks", "epochs"),
    [
        (1.0, 0.0, 3, 4),  # one an epoch, two links: the third enters in epoch 2
        (1.0, 0.1, 1, 2),  # a tenth of an epoch counts as none
        (1.0, 0.11, 1, 4),  # more is a whole epoch on each link
        (0.5, 0.0, 3, 7),  # three of two epochs after the first
        (0.75, 0.0, 2, 5),  # one in any two epochs, so that 4/3 s become 2
        (2.0, 0.0, 2, 3),  # no sooner than they come
    ],
)
def test_a_line(rate: float, latency: float, chunks: int, epochs: int) -> None:
    topology = line(rate, latency)
    wanted = wishes(topology, ["gpu2"], chunks)
    result = greedy(topology, wanted, effort=QUICK)
    assert whole_epochs(result, epoch_model(topology, 1.0, 1.0)) == epochs


def test_the_order_of_a_link_is_kept() -> None:
    """Block 1 leaves first and is wanted next door, block 0 has to go on; or the other
    way round."""
    topology = line(1.0, 0.0)
    wanted = wishes(topology, ["gpu1"], 2)
    wanted.wanted[0] = [False, False, True]
    model = epoch_model(topology, 1.0, 1.0)
    for first in (1, 0):
        rows: list[Row] = [
            (first, "gpu0", "gpu1", 0.0, 1.0),
            (1 - first, "gpu0", "gpu1", 1.0, 2.0),
            (0, "gpu1", "gpu2", 1.0 + first, 2.0 + first),
        ]
        assert whole_epochs(schedule(topology, wanted, rows), model) == 2 + first


@pytest.mark.parametrize("free_exit", [False, True])
@pytest.mark.parametrize("copy", [False, True])
def test_switches(copy: bool, free_exit: bool) -> None:
    """In in an epoch and out in the next, at no cost where the exit is free; once for
    both takers only if the switch copies."""
    ends = [("gpu0", "sw0"), ("sw0", "gpu1"), ("sw0", "gpu2")]
    topology = unit_machine(
        "gpu0 gpu1 gpu2 sw0", [(*x, 1.0, 0.0) for x in ends], copy, free_exit=free_exit
    )
    result = greedy(topology, wishes(topology, ["gpu1", "gpu2"]), effort=QUICK)
    assert len(result.sends) == 4 - copy
    epochs = whole_epochs(result, epoch_model(topology, 1.0, 1.0))
    assert epochs == (1 if copy else 2) + (not free_exit)


def test_sums_by_hand() -> None:
    """Around a ring of four one way: three steps, as the spread on its reverse."""
    topology = unit_ring(4)
    wanted = unit_demand(topology, "reduce_scatter")
    result = schedule(topology, wanted, reducing_rows(4))
    reverse, _ = spread_of(topology, wanted)
    assert whole_epochs(result, epoch_model(reverse, 1.0, 1.0)) == 3
    both = unit_demand(topology, "all_reduce")
    assert whole_epochs(greedy(topology, both), epoch_model(reverse, 1.0, 1.0)) is None


@pytest.mark.parametrize("kind", ["fastest", "slowest"])
@pytest.mark.parametrize(
    ("name", "collective", "size", "chunks"),
    [
        ("ndv2-2-published", "all_gather", "1KB", 1),
        ("ndv2-2-published", "all_gather", "1GB", 1),
        ("dgx1", "all_gather", "600KB", 3),
        ("ndv2-2", "reduce_scatter", "1GB", 1),
    ],
)
def test_epochs_of_list_scheduling(
    name: str, collective: str, size: str, chunks: int, kind: str
) -> None:
    """Run as early as its order allows a schedule takes the epochs it was made in."""
    topology = load_topology(name)
    wanted = demand(collective, topology, size, chunks)
    chunk = float(wanted.size[0])
    tau = epoch_length(topology, chunk, kind)
    machine = spread_of(topology, wanted)[0] if wanted.reduces else topology
    model = epoch_model(machine, chunk, tau)
    least = epoch_bound(wanted, topology, model, whole=True)
    result = greedy(topology, wanted, tau, least)
    assert (
        result.epochs == whole_epochs(result, model) == in_epochs(result, model).epochs
    )
    assert result.epochs is not None and result.epochs >= least
    # An epoch model leaves out no more than latencies below a tenth of an epoch.
    assert verify(result) <= 1.1 * result.epochs * tau
