"""Schedules where a node is given: least energy at the wall."""

import math
from pathlib import Path
from typing import Any

import json_keys
import numpy as np
import pytest

from diffenergy import dvfs, estimate
from diffenergy.dvfs import Objective, Rules, solve
from diffenergy.dvfs._meter import Boards, Meter, tangent, wall_energy
from diffenergy.dvfs._problem import default_total
from diffenergy.hardware import idle_power, read_gpu
from diffenergy.nodes import Site, load_node
from diffenergy.physics import stage_time

from .builders import KINDS, all_choices, random_problem

NODE = load_node("dgx-h100")
SITE = Boards(Site(NODE, 71.0, whole=False))


@pytest.mark.parametrize("goal", ["energy", "edp"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("slowdown", [2.0, math.inf])
def test_no_schedule_takes_less_at_the_wall(goal: Any, kind: str, slowdown: float):
    """Within the tangent's error of the best of every choice, the bound below."""
    objective, differs = Objective(goal, slowdown), 0
    for seed in range(4):
        problem = random_problem(seed, kind)
        meter = tangent(SITE, default_total(problem))
        plan = solve(meter.problem(problem), objective)
        boards = (~meter).plan(plan)
        own = wall_energy(SITE, problem, boards)
        value = own * boards.time if goal == "edp" else own
        every, most = [value], objective.most_time(default_total(problem))
        for choice in all_choices(len(problem.kernels), len(problem.settings)):
            time, wall = _schedule(problem, choice)
            if time <= most:
                every.append(wall * time if goal == "edp" else wall)
        assert plan.bound <= min(every) * (1 + 1e-9)
        assert value <= min(every) * (1 + 5e-4)
        differs += solve(problem, objective).energy < boards.energy * (1 - 1e-6)
    if math.isinf(slowdown) and goal == "energy":  # by the board other clocks are best
        assert differs


def _schedule(problem: Any, choice: np.ndarray) -> tuple[float, float]:
    """(s, J at the wall) by hand; inf s where a stage draws more than its cap."""
    kernels, time, wall = np.arange(len(choice)), 0.0, 0.0
    for stage in range(len(problem.stages)):
        rows = kernels[problem.stage == stage]
        at = rows, choice[rows]
        busy = float(problem.count[rows] @ problem.time[at])
        if not np.isfinite(busy):
            return math.inf, math.inf
        whole = float(stage_time(np.array(busy), problem.host_time[stage]))
        joules = float(problem.count[rows] @ problem.energy[at])
        joules += float(problem.wait_power[stage]) * (whole - busy)
        if joules > problem.power_cap[stage] * whole * (1 + 1e-9):
            return math.inf, math.inf
        time += whole
        wall += whole * NODE.power(joules / whole, 71.0, 1).wall
    return time, wall


def test_changes_of_clocks_cost_what_the_wall_takes():
    """A stall of 0.1 s at the coolest launch's power, with its share of the host."""
    problem, meter = random_problem(1), Meter(200.0, 1.1)
    rules = Rules(switching=dvfs.Switching(latency=0.01, energy=0.5))
    plan = solve(meter.problem(problem), Objective(), meter.rules(rules))
    own = (~meter).plan(plan)
    launches = float(own.spent(problem).energy.sum())
    stall = 0.5 + 0.01 * float(problem.power.min())
    assert own.energy == pytest.approx(launches + own.switches * stall)
    assert own.time == pytest.approx(plan.time)


@pytest.fixture(scope="module")
def both():
    request: dict[str, Any] = dict(phase="decode", batch=8, max_slowdown=math.inf)
    request |= dict(granularity="iteration")
    node: dict[str, Any] = dict(node="dgx-a100", pue=1.1)
    results = [dvfs.plan("gpt2", "a100-sxm-80gb", **request, **x) for x in (node, {})]
    for x in results:
        json_keys.check("dvfs", x.to_json())
        words = " ".join(b for b in x.blocks() if isinstance(b, str))
        assert ("at the wall" in words) == ("node" in x.summary)
    return results


def test_the_clock_of_a_model_at_the_wall(both):
    """One clock: of all clocks the one of least energy at the wall by `estimate`."""
    s, alone = (x.summary for x in both)
    clock = s["baselines"]["iteration"]["sm_clock_mhz"]
    assert clock > alone["baselines"]["iteration"]["sm_clock_mhz"]
    assert {*alone} < {*s}
    points = estimate(
        "gpt2", "a100-sxm-80gb", phase="decode", batch=8, node="dgx-a100", pue=1.1,
        sm_clock=[1e6 * (clock + x) for x in (-15, 0, 15)],
    ).summary["points"]  # fmt: skip
    wall = [x["wall_energy_j"] for x in points]
    assert s["wall_energy_j"] == pytest.approx(wall[1], rel=1e-5) == min(wall)
    assert s["energy_j"] == pytest.approx(points[1]["energy_j"], rel=1e-5)
    assert s["site_energy_j"] == pytest.approx(1.1 * s["wall_energy_j"])
    change = 100 * (s["wall_energy_j"] / s["default"]["wall_energy_j"] - 1)
    assert s["wall_energy_change_pct"] == pytest.approx(change)
    assert s["bound_wall_energy_change_pct"] <= change
    assert s["gap_pct"] < 0.05
    for (slower, boards), (same, wall) in zip(
        s["frontier"], s["wall_frontier"], strict=True
    ):
        assert slower == same and boards <= wall + 1e-6  # slower costs the host more


def test_a_table_at_the_wall(tmp_path: Path):
    """Two clocks by hand: 100 W for 2 s or 150 W for 1.5 s, and the host."""
    path = tmp_path / "table.csv"
    rows = "stage,instruction,frequency,time,energy\nf,k,auto,1.4,280\nf,k,900,2,200\n"
    path.write_text(f"{rows}f,k,1200,1.5,225\n")
    request: dict[str, Any] = dict(gpu="h100-sxm", max_slowdown=math.inf)
    assert dvfs.plan(table=path, **request).energy == pytest.approx(200)
    result = dvfs.plan(table=path, node="dgx-h100", **request)
    json_keys.check("dvfs", result.to_json())
    s = result.summary
    assert s["energy_j"] == pytest.approx(225)
    spec = read_gpu("h100-sxm").spec
    idle = float(idle_power(spec, spec.sm_clock_min))
    by_hand = 1.5 * NODE.power(150.0, idle, 1).wall
    assert s["wall_energy_j"] == pytest.approx(by_hand, rel=1e-9)
    assert 2 * NODE.power(100.0, idle, 1).wall > by_hand
