"""Algorithm and bus bandwidth by hand."""

import dataclasses

import pytest

from diffenergy.collectives import demand, load_topology
from diffenergy.collectives._result import bandwidths

HALF = 0.5  # s


@pytest.mark.parametrize(
    ("collective", "share"),
    [
        ("all_gather", 7 / 8),
        ("reduce_scatter", 7 / 8),
        ("all_to_all", 7 / 8),
        ("gather", 7 / 8),
        ("scatter", 7 / 8),
        ("all_reduce", 2 * 7 / 8),
        ("broadcast", 1.0),
        ("reduce", 1.0),
    ],
)
def test_eight_gpus(collective: str, share: float) -> None:
    machine = load_topology("dgx-h100")
    *known, bus = bandwidths(demand(collective, machine, "1GB"), machine, HALF, 1e9)
    assert known == [1e9, 2e9]
    assert bus == pytest.approx(2e9 * share, rel=1e-12)


def test_the_published_machine_shares_among_sixteen() -> None:
    """15 GPUs take part, but buffers are cut into 16."""
    machine = load_topology("ndv2-2-published")
    wanted = demand("all_gather", machine, "1GB")
    *_, bus = bandwidths(wanted, machine, HALF, 1e9)
    assert bus == pytest.approx(2e9 * 15 / 16)
    *_, fewer = bandwidths(wanted, machine, HALF, 1e9, sharing=4)
    assert fewer == pytest.approx(2e9 * 3 / 4)


def test_without_a_size_the_buffer_is_the_most_received() -> None:
    machine = load_topology("dgx-h100")
    found = bandwidths(demand("broadcast", machine, "1GB"), machine, HALF)
    assert found == (1e9, 2e9, 2e9)
    # Seven of eight parts come from others.
    buffer, *_ = bandwidths(demand("all_gather", machine, "1GB"), machine, HALF)
    assert buffer == pytest.approx(7e9 / 8)


def test_of_any_demand_no_bus_bandwidth_is_known() -> None:
    machine = load_topology("ring-4")
    wanted = demand("broadcast", machine, "1MB")
    custom = dataclasses.replace(wanted, collective="custom")
    found = bandwidths(custom, machine, HALF, 1e6)
    assert found == (1e6, 2e6, None)
