"""Served models at the wall: sums and parts by hand, and the clock of least energy."""

import dataclasses
from typing import Any

import json_keys
import pytest

from diffenergy import serving
from diffenergy.hardware import idle_power, read_gpu
from diffenergy.keys import json_text
from diffenergy.nodes import load_node
from diffenergy.report._format import digits
from diffenergy.report._tables.lines import served_wall_lines

NODE = load_node("dgx-h100")
LENGTHS: Any = {"input_len": 256, "output_len": 64}


def served(load, **more):
    result = serving.steady_state("qwen3-0.6b", "h100-sxm", load, **more)
    json_keys.check("serve", json_text(result.summary))
    return result


@pytest.fixture(scope="module")
def open_loop():
    site = dict(pue=1.2, carbon=300.0, price="0.08 EUR/kWh", spare=0.2)
    return served(serving.Load(rate=2.0, **LENGTHS), node="dgx-h100", **site)


def test_parts_of_a_request_add_up(open_loop):
    s, each = open_loop.summary, open_loop.summary["wall_energy_j_per_request"]
    parts = s["wall_energy_j_by_part"]
    assert sum(parts.values()) == pytest.approx(1.2 * each)
    assert parts["overhead"] == pytest.approx(0.2 * each)
    assert s["wall_power_w"] == pytest.approx(2.0 * each)
    assert each == pytest.approx(64 * s["wall_energy_j_per_output_token"])
    kwh = 1.2 * each / 3.6e6
    assert s["carbon_g_per_request"] == pytest.approx(300 * kwh)
    assert s["cost_per_request"] == pytest.approx(80 * kwh / 1000)
    a_day = 2.0 * 86400  # requests
    assert s["site_energy_kwh_per_day"] == pytest.approx(a_day * kwh)
    assert s["carbon_g_per_day"] == pytest.approx(a_day * s["carbon_g_per_request"])
    assert s["cost_per_day"] == pytest.approx(a_day * s["cost_per_request"])
    (line,) = (x for x in served_wall_lines(s) if x.startswith("a day"))
    assert f" {digits(a_day * kwh)} kWh, " in line and "CO2, costs " in line
    low, high = s["wall_energy_j_per_output_token_p5_p95"]
    assert low < s["wall_energy_j_per_output_token"] < high
    # the share of the host is as long as the load says: known better than the boards
    least, most = s["energy_j_per_output_token_p5_p95"]
    assert high / low < most / least
    # wall power is linear in a board's but for the supplies' square: an eighth of a
    # node at the mean power; every fifth node is spare and idles
    spec = read_gpu("h100-sxm").spec
    idle = float(idle_power(spec, spec.sm_clock_min))
    one = NODE.power(s["avg_power_w"], idle, gpus=1).wall
    spare = NODE.power(idle, idle, gpus=1).wall * 0.25
    assert s["wall_power_w"] == pytest.approx(one + spare, rel=2e-3)


def test_time_without_a_request_is_idle(open_loop):
    """Of a Poisson load of single requests; fewer requests, a larger part."""
    rare = served(serving.Load(rate=0.05, **LENGTHS), node="dgx-h100")
    parts = (x.summary["wall_energy_j_by_part"] for x in (rare, open_loop))
    shares = [x["idle"] / (x["accelerator"] + x["host"] + x["idle"]) for x in parts]
    assert shares[0] > 0.9 > shares[1]
    full = served(serving.Load(max_batch=8), node="dgx-h100").summary
    assert full["wall_energy_j_by_part"]["idle"] == 0.0


def test_the_boards_stay_as_they_are():
    load = serving.Load(concurrency=4, **LENGTHS)
    boards, wall = served(load).summary, served(load, node="dgx-h100").summary
    common = {x for x in boards if x != "assumed"}
    assert {x: wall[x] for x in common} == {x: boards[x] for x in common}
    assert "node" not in boards


@pytest.mark.slow
def test_the_clock_of_least_energy_at_the_wall():
    """A host of 1.7 kW pays for faster steps of a saturated server."""
    load = serving.Load(concurrency=16, slo_tpot=0.1, **LENGTHS)
    boards = served(load, optimize="energy").summary
    wall = served(load, optimize="energy", node="dgx-h100").summary
    clock = wall["optimized"]["sm_clock_mhz"]
    assert clock > boards["optimized"]["sm_clock_mhz"]
    best = wall["wall_energy_j_per_output_token"]
    for other in (boards["optimized"]["sm_clock_mhz"], 1980.0):
        fixed = dataclasses.replace(load, max_batch=wall["optimized"]["max_batch"])
        at = served(fixed, node="dgx-h100", sm_clock=other * 1e6).summary
        assert at["wall_energy_j_per_output_token"] >= best * (1 - 1e-6)
