"""Plans where a node is given, and under limits of power over time."""

import dataclasses
from functools import partial
from typing import Any

import json_keys
import numpy as np
import pytest

from diffenergy import estimate, parallel
from diffenergy.hardware import idle_power, read_gpu
from diffenergy.nodes import load_node
from diffenergy.results import Infeasible

from .test_search import figures, legal, space_of

CASE = ("gpt2-medium", "h100-sxm", 2, 2, 1024)
SIZES: dict[str, Any] = dict(global_batch=8, input_len=256)


def test_the_plan_of_least_energy_at_the_wall():
    """Of all plans of one and two GPUs, with the whole host, priced one by one."""
    model, gpu, _, batch, length = CASE
    result = parallel.plan(
        model, gpu, num_gpus=(1, 2), global_batch=batch, input_len=length,
        objective="energy", node="dgx-h100", node_share="whole", pue=1.2,
        sensitivity=["sm_clock"],
    )  # fmt: skip
    card = read_gpu(gpu)
    space = dataclasses.replace(space_of(*CASE), num_gpus=(1, 2))
    plans = legal(space)
    _, each = figures(space, plans)
    gpus = np.array([[x.gpus] for x in plans])
    idle = float(idle_power(card.spec, card.spec.sm_clock_min))
    power, node = each.power / gpus, load_node("dgx-h100")
    rows = zip(each.time, power, gpus.ravel(), strict=True)
    wall = np.array([t * node.power(p, idle, n, True).wall for t, p, n in rows])
    json_keys.check("plan", result.to_json())
    best = result.summary["best"]
    assert best["wall_energy_j"] == pytest.approx(wall.min(), rel=1e-6)
    assert best["site_energy_j"] == pytest.approx(1.2 * wall.min(), rel=1e-6)
    # by the boards another plan is best: the host pays for time
    assert each.time[wall.argmin()] < each.time[each.energy.argmin()]
    # E_wall = A T + B E_boards, by the tangent at the mean power
    slopes = result.summary["sensitivities"]
    time, boards, at_wall = (
        slopes[x]["sm_clock"]["per_unit"]
        for x in ("step_time_s", "energy_j", "wall_energy_j")
    )
    number = result.summary["num_gpus"]
    a, b = node.line(best["avg_power_w"] / number, idle, number, True)
    assert at_wall == pytest.approx(a * time + b * boards, rel=1e-5)


@pytest.mark.parametrize("node", [None, "dgx-h100"])
def test_limits_of_power_over_time(node: str | None):
    """The plan keeps them by the figures of `estimate`; what the refusal calls nearest
    is within reach, and what is below is not."""
    plan = partial(parallel.plan, "gpt2", "h100-sxm", num_gpus=2, node=node, **SIZES)
    free = plan()

    def profile(text: str) -> dict[str, Any]:
        options: dict[str, Any] = dict(power_step=1e-3, node=node) | SIZES
        task = estimate("gpt2", "h100-sxm", phase="train", plan=text, **options)
        return task.summary["power_profile"]

    limit = 0.9 * profile(free.summary["plan"])["swing_w"]
    result = plan(max_swing=limit, max_ramp=1e6)
    json_keys.check("plan", result.to_json())
    calm = result.summary
    own = profile(calm["plan"])
    assert calm["best"]["power_profile"]["peak_w"] == pytest.approx(own["peak_w"])
    assert own["swing_w"] == pytest.approx(calm["frontier"][0]["swing_w"])
    assert own["swing_w"] <= limit
    assert calm["best"]["time_s"] > free.summary["best"]["time_s"]
    with pytest.raises(Infeasible, match=r"`max_swing` is 0.1 W .* with ") as refused:
        plan(max_swing=0.1)
    least = refused.value.least["max_swing"]
    assert all(x["swing_w"] >= least * 0.999 for x in calm["frontier"])
    best = plan(max_swing=1.001 * least, max_ramp=1e6).outcome.best
    assert np.isclose(best.swing or 0, least, rtol=1e-3)
    with pytest.raises(Infeasible, match=r"`max_ramp` is 1e-06 W/s"):
        plan(max_ramp=1e-6)


@pytest.mark.slow
def test_the_best_limit_of_lora_moves():
    """LoRA on 8 H100: the boards take least energy at 300 W, the wall at 400 W."""
    points = estimate(
        "llama-3.1-70b", "h100-sxm", phase="train", lora=16, plan="tp=4,dp=2",
        dtype="fp8", global_batch=8, input_len=8192, node="dgx-h100",
        power_limit=[300, 400, 700],
    ).summary["points"]  # fmt: skip
    boards, wall = ([x[y] for x in points] for y in ("energy_j", "wall_energy_j"))
    assert boards == sorted(boards)
    assert wall[1] < min(wall[0], wall[2])
