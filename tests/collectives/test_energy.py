"""Energy of schedules by hand, and the clock to wait at."""

import dataclasses
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
    Effort,
    Energy,
    Link,
    MemoryPrice,
    Node,
    Sends,
    blocks,
    byte_prices,
    greedy,
    memory_price,
    schedule_price,
)

GB = 1e9
PJ = 1e-12


def bit(typical: float, low: float, high: float) -> Energy:
    return Energy(typical * PJ, low * PJ, high * PJ, "by hand")


def link(source: int, target: int, medium: str, energy: Energy) -> Link:
    return Link(source, target, 50 * GB, 1e-6, medium, energy)


def gpus(count: int) -> tuple[Node, ...]:
    return tuple(Node(f"gpu{n}", "gpu") for n in range(count))


def played(topology: Topology, takers: list[int], links: list[int]) -> Schedule:
    """One block over links, the one after the other."""
    wanted = blocks(topology, [(0, takers)], GB)
    took = GB / topology.rates[links] + topology.latencies[links]
    end = np.cumsum(took)
    zeros = np.zeros(len(links), int)
    sends = Sends(
        zeros, np.array(links), end - took, end, np.full(len(links), GB), zeros
    )
    return Schedule(topology, wanted, sends)


PAIR = Topology("pair", gpus(2), (link(0, 1, "wire", bit(8, 5, 12)),), 2)


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
    name = "h100-sxm"
    gpu = load_gpu(name)
    c, clock = gpu.corrections, float(gpu.sm_clock_applied_max)
    schedule = played(PAIR, [1], [0])
    result = schedule_energy(schedule, gpu)
    finish = GB / (50 * GB) + 1e-6
    assert result.finish == pytest.approx(finish)
    wire = result.links["wire"]
    joules = [wire.typical, wire.low, wire.high]
    assert joules == pytest.approx([0.064, 0.040, 0.096])  # 8e9 bits x 8, 5, 12 pJ
    dram = 2 * GB * float(c.energy_dram) * float(c.dynamic_energy)
    assert result.dram == pytest.approx(dram)
    assert dram == pytest.approx(0.1376, rel=0.01)  # 2 GB at 68.8 pJ/B
    l2 = 2 * GB * memory_price(gpu).l2
    assert result.l2 == pytest.approx(l2)
    waiting = by_hand_idle(name, clock, (dram + l2) / (2 * finish))
    assert result.idle_power == pytest.approx(waiting, rel=1e-6)
    assert result.idle == pytest.approx(2 * waiting * finish, rel=1e-6)
    total = result.total
    assert total is not None
    rest = dram + l2 + 2 * waiting * finish
    assert total.typical == pytest.approx(0.064 + rest, rel=1e-6)
    assert total.high - total.low == pytest.approx(0.056)


def test_the_l2_path_follows_the_core_voltage():
    gpu = load_gpu("h100-sxm")
    c = gpu.corrections
    low, top = memory_price(gpu, float(gpu.sm_clock_min)), memory_price(gpu)
    base = float(c.energy_l2) * float(c.core_energy) * float(c.dynamic_energy)
    assert low.l2 == pytest.approx(base, rel=1e-3)  # at V0
    assert top.l2 > 1.5 * low.l2
    assert top.dram == low.dram
    assert top.byte == top.dram + top.l2


def test_each_hop_that_stores_costs_memory_twice():
    wire = bit(1, 1, 1)
    line = Topology("line", gpus(3), (link(0, 1, "a", wire), link(1, 2, "b", wire)), 3)
    gpu = load_gpu("a100-sxm-80gb")
    price = memory_price(gpu)
    straight = schedule_energy(played(line, [2], [0, 1]), gpu)
    assert straight.dram == pytest.approx(4 * GB * price.dram)  # two hops
    relay = dataclasses.replace(
        line, nodes=(*gpus(1), Node("sw0", "switch"), gpus(2)[1])
    )
    through = schedule_energy(played(relay, [2], [0, 1]), gpu)
    assert through.dram == pytest.approx(2 * GB * price.dram)  # one hop
    assert set(through.links) == {"a", "b"}
    assert through.moved.typical == pytest.approx(2 * 8e9 * PJ)


def test_a_copy_in_a_switch_is_read_once_and_written_by_all():
    wire = bit(1, 1, 1)
    nodes = (*gpus(4), Node("sw0", "switch"))
    links = (link(0, 4, "in", wire), *(link(4, n, "out", wire) for n in (1, 2, 3)))
    star = Topology("star", nodes, links, 4)
    gpu = load_gpu("h100-sxm")
    result = schedule_energy(played(star, [1, 2, 3], [0, 1, 2, 3]), gpu)
    assert result.dram == pytest.approx(4 * GB * memory_price(gpu).dram)
    assert result.links["out"].typical == pytest.approx(3 * result.links["in"].typical)
    prices = byte_prices(star, MemoryPrice(10 * PJ, 2 * PJ))
    assert prices == pytest.approx([20 * PJ] * 4)  # 8 pJ and one end that stores


def test_an_unknown_gpu_leaves_memory_and_idle_open():
    result = schedule_energy(played(PAIR, [1], [0]), None)
    assert (result.dram, result.l2, result.idle, result.total) == (None,) * 4
    assert result.active == result.moved.typical == pytest.approx(0.064)
    rows = energy_rows(result)
    assert rows["total_j"] is None and rows["idle_j"] is None
    assert "--gpu" in rows["covers"]
    known = energy_rows(schedule_energy(played(PAIR, [1], [0]), load_gpu("h100-sxm")))
    parts = known["dram_j"] + known["l2_j"] + known["idle_j"]
    assert known["total_j"]["typical"] == pytest.approx(
        parts + known["links_j"]["wire"]["typical"]
    )


def test_sends_add_up():
    machine = load_topology("dgx-h100-2")
    wanted = demand("all_to_all", machine, "16MB")
    whole = greedy(machine, wanted, effort=Effort(batches=1, restarts=1))
    gpu = load_gpu("h100-sxm")
    energy = schedule_energy(whole, gpu)
    assert set(energy.links) == {"nvlink4-switch", "pcie5", "nic-ndr"}
    prices = byte_prices(machine, memory_price(gpu))
    assert schedule_price(whole, prices) == pytest.approx(energy.active)
    # All bytes over the links of one kind at its middle: NIC to leaf and back.
    nics = sum(node.kind == "nic" for node in machine.nodes)
    assert nics == 16
    far = 16 * 8 * 1e6  # each GPU to the 8 of the other box, 1 MB each
    nic = energy.links["nic-ndr"]
    assert nic.typical == pytest.approx(2 * far * 8 * machine_bit(machine, "nic-ndr"))
    assert nic.low < nic.typical < nic.high


def machine_bit(machine: Topology, medium: str) -> float:
    return next(x.energy.typical for x in machine.links if x.medium == medium)


def test_relays_wait_too():
    published = load_topology("ndv2-2-published")
    assert len(published.gpus) == 15
    assert waiting_gpus(published) == 16
    assert waiting_gpus(load_topology("dgx-h100-2")) == 16


def test_best_wait_clock_is_the_best_of_all():
    gpu = load_gpu("h100-sxm")
    result = best_wait_clock(gpu, 2.0, 8, latency=0.5)
    clocks = supported_clocks(gpu)
    power = idle_power(gpu, clocks)
    assert result.power == pytest.approx(power.min())
    assert result.clock == clocks[power.argmin()]
    assert result.saved_power == pytest.approx(8 * (power[-1] - power.min()))
    assert result.saved_energy == pytest.approx(1.5 * result.saved_power)
    assert result.saved_power > 8 * 20  # an idle H100 draws 57 W less at its lowest


def test_the_clock_to_wait_at_feeds_the_links():
    gpu = load_gpu("h100-sxm")
    slow = feeding_clock(gpu, 450 * GB)
    assert feeding_clock(gpu, 1800 * GB) == pytest.approx(4 * slow)
    result = best_wait_clock(gpu, 1.0, 8, rate=1800 * GB)
    assert result.clock >= result.floor == pytest.approx(4 * slow)
    assert result.clock - result.floor < float(gpu.sm_clock_step)
    hard = best_wait_clock(gpu, 1.0, 8, rate=1e6 * GB)
    assert hard.clock == supported_clocks(gpu)[-1] and hard.saved_energy == 0


def test_the_wait_clock_of_a_schedule():
    machine = load_topology("dgx-h100")
    wanted = demand("all_gather", machine, "80GB")
    schedule = greedy(machine, wanted, effort=Effort(batches=1, restarts=1))
    gpu = load_gpu("h100-sxm")
    result = schedule_wait_clock(schedule, gpu, latency=0.006)
    assert result.floor == pytest.approx(feeding_clock(gpu, 450 * GB))
    at_top = schedule_energy(schedule, gpu)
    assert at_top.idle is not None and at_top.dram is not None
    time = 8 * at_top.finish
    load = (at_top.dram + (at_top.l2 or 0.0)) / time
    saved = at_top.idle - time * idle_power(gpu, np.array([result.clock]), load)[0]
    share = (at_top.finish - 0.006) / at_top.finish
    assert result.saved_energy == pytest.approx(saved * share, rel=0.02)
