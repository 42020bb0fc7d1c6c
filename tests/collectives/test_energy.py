"""Energy of schedules by hand, and the clock to wait at."""

import math

import numpy as np
import pytest

from diffenergy.collectives import Schedule, Topology, demand, load_topology
from diffenergy.collectives._energy import (
    best_wait_clock,
    energy_rows,
    feeding_clock,
    idle_power,
    schedule_energy,
    schedule_wait_clock,
    supported_clocks,
    waiting_gpus,
)
from diffenergy.hardware import load_gpu, read_gpu

from .builders import (
    GB,
    MB,
    Effort,
    MemoryPrice,
    blocks,
    byte_prices,
    greedy,
    memory_price,
    played,
    priced_machine,
    schedule_price,
)

PJ = 1e-12
H100 = load_gpu("h100-sxm")


def one_after_the_other(topology: Topology, takers: list[int]) -> Schedule:
    """1 MB from gpu0 over all links."""
    trips = [(n, n) for n in range(len(topology.links))]
    return played(topology, blocks(topology, [(0, takers)]), trips)


PAIR = one_after_the_other(priced_machine([(0, 1, 8.0)], 2), [1])


def by_hand_idle(name: str, clock: float, load: float) -> float:
    """Idle and leakage from the numbers of the GPU, in plain floats."""
    gpu, values = load_gpu(name), read_gpu(name).values
    c = gpu.corrections
    knee = values["vf_knee_clock"] * float(c.voltage_knee)
    width = 0.03e9
    h = width * math.log1p(math.exp((clock - knee) / width))
    v0 = values["vf_floor_voltage"]
    slope = values["vf_slope"] * float(c.voltage_slope)
    bend = values["vf_curvature"] * float(c.voltage_curvature)
    volts = v0 + slope * h + bend * h * h
    idle = float(c.idle_scale) * (
        values["idle_constant"]
        + values["idle_clock"] * volts**2 * clock
        + values["idle_leakage"] * volts**4
    )
    cold = float(c.leakage) * values["idle_leakage"] * volts**4  # of the table
    leakage = cold
    for _ in range(40):
        power = load + idle - cold + leakage
        heat = values["ambient_temperature"] + values["thermal_resistance"] * power
        leakage = cold * math.exp((heat - 40) / float(c.leakage_efold))
    return idle - cold + leakage


def test_two_gpus_and_one_link():
    c, clock = H100.corrections, float(H100.sm_clock_applied_max)
    result = schedule_energy(PAIR, H100)
    assert result.finish == pytest.approx(1e-5)
    wire = result.links["wire"]
    joules = [wire.typical, wire.low, wire.high]
    assert joules == pytest.approx([64e-6, 32e-6, 128e-6])  # 8e6 bits x 8, 4, 16 pJ
    dram = 2 * MB * float(c.energy_dram) * float(c.dynamic_energy)
    assert result.dram == pytest.approx(dram)
    assert dram == pytest.approx(137.6e-6, rel=0.01)  # 2 MB at 68.8 pJ/B
    l2 = 2 * MB * memory_price(H100).l2
    assert result.l2 == pytest.approx(l2)
    waiting = by_hand_idle("h100-sxm", clock, (dram + l2) / 2e-5)
    assert result.idle_power == pytest.approx(waiting, rel=1e-6)
    assert result.idle == pytest.approx(waiting * 2e-5, rel=1e-6)
    total = result.total
    assert total is not None
    rest = dram + l2 + waiting * 2e-5
    assert total.typical == pytest.approx(64e-6 + rest, rel=1e-6)
    assert total.high - total.low == pytest.approx(96e-6)
    rows = energy_rows(result)
    parts = rows["dram_j"] + rows["l2_j"] + rows["idle_j"]
    wires = rows["links_j"]["wire"]["typical"]
    assert rows["total_j"]["typical"] == pytest.approx(parts + wires)


def test_an_unknown_gpu_leaves_memory_and_idle_open():
    result = schedule_energy(PAIR, None)
    assert (result.dram, result.l2, result.idle, result.total) == (None,) * 4
    assert result.active == result.moved.typical == pytest.approx(64e-6)
    rows = energy_rows(result)
    assert rows["total_j"] is None and rows["idle_j"] is None
    assert "--gpu" in rows["covers"]


def test_the_l2_path_follows_the_core_voltage():
    c = H100.corrections
    low, top = memory_price(H100, float(H100.sm_clock_min)), memory_price(H100)
    base = float(c.energy_l2) * float(c.core_energy) * float(c.dynamic_energy)
    assert low.l2 == pytest.approx(base, rel=1e-3)  # at V0
    assert top.l2 > 1.5 * low.l2
    assert top.dram == low.dram and top.byte == top.dram + top.l2


def test_each_hop_that_stores_costs_memory_twice():
    """Over a GPU two hops, over a switch one; a copy there is read once and written by
    all three."""
    star = [(0, 4, 1.0), *((4, n, 1.0) for n in (1, 2, 3))]
    for topology, takers, ends in (
        (priced_machine([(0, 1, 1.0), (1, 2, 1.0)], 3), [2], 4),
        (priced_machine([(0, 2, 1.0), (2, 1, 1.0)], 2, 1), [1], 2),
        (priced_machine(star, 4, 1), [1, 2, 3], 4),
    ):
        result = schedule_energy(one_after_the_other(topology, takers), H100)
        assert result.dram == pytest.approx(ends * MB * memory_price(H100).dram)
        moved = len(topology.links) * 8 * MB * PJ
        assert result.moved.typical == pytest.approx(moved)
        prices = byte_prices(topology, MemoryPrice(10 * PJ, 2 * PJ))
        stores = np.array([node.stores for node in topology.nodes])
        memory = stores[topology.sources] + stores[topology.targets].astype(int)
        assert prices == pytest.approx((8 + 12 * memory) * PJ)


def test_sends_add_up():
    """Of an all-to-all the bytes over the network cards: 8 MB of each GPU to and from
    the leaf switch."""
    machine = load_topology("dgx-h100-2")
    wanted = demand("all_to_all", machine, "16MB")
    whole = greedy(machine, wanted, effort=Effort(batches=1, restarts=1))
    energy = schedule_energy(whole, H100)
    assert set(energy.links) == {"nvlink4-switch", "pcie5", "nic-ndr"}
    prices = byte_prices(machine, memory_price(H100))
    assert schedule_price(whole, prices) == pytest.approx(energy.active)
    bit = next(x.energy.typical for x in machine.links if x.medium == "nic-ndr")
    nic = energy.links["nic-ndr"]
    assert nic.typical == pytest.approx(2 * 16 * 8 * MB * 8 * bit)
    assert nic.low < nic.typical < nic.high


def test_relays_wait_too():
    published = load_topology("ndv2-2-published")
    assert (len(published.gpus), waiting_gpus(published)) == (15, 16)
    assert waiting_gpus(load_topology("dgx-h100-2")) == 16


def test_best_wait_clock_is_the_best_of_all_that_feed_the_links():
    result = best_wait_clock(H100, 2.0, 8, latency=0.5)
    clocks = supported_clocks(H100)
    power = idle_power(H100, clocks)
    assert result.power == pytest.approx(power.min())
    assert result.clock == clocks[power.argmin()]
    assert result.saved_power == pytest.approx(8 * (power[-1] - power.min()))
    assert result.saved_energy == pytest.approx(1.5 * result.saved_power)
    assert result.saved_power > 8 * 20  # an idle H100 draws 57 W less at its lowest
    slow = feeding_clock(H100, 450 * GB)
    assert feeding_clock(H100, 1800 * GB) == pytest.approx(4 * slow)
    fed = best_wait_clock(H100, 1.0, 8, rate=1800 * GB)
    assert fed.clock >= fed.floor == pytest.approx(4 * slow)
    assert fed.clock - fed.floor < float(H100.sm_clock_step)
    hard = best_wait_clock(H100, 1.0, 8, rate=1e6 * GB)
    assert hard.clock == clocks[-1] and hard.saved_energy == 0


def test_the_wait_clock_of_a_schedule():
    machine = load_topology("dgx-h100")
    wanted = demand("all_gather", machine, "80GB")
    schedule = greedy(machine, wanted, effort=Effort(batches=1, restarts=1))
    result = schedule_wait_clock(schedule, H100, latency=0.006)
    assert result.floor == pytest.approx(feeding_clock(H100, 450 * GB))
    at_top = schedule_energy(schedule, H100)
    assert at_top.idle is not None and at_top.dram is not None
    time = 8 * at_top.finish
    load = (at_top.dram + (at_top.l2 or 0.0)) / time
    saved = at_top.idle - time * idle_power(H100, np.array([result.clock]), load)[0]
    share = (at_top.finish - 0.006) / at_top.finish
    assert result.saved_energy == pytest.approx(saved * share, rel=0.02)
