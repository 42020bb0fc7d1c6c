"""The rule of `limited_by`, by hand and on every kernel of a model; launch latency,
curves."""

import json
from pathlib import Path

import jax.numpy as jnp
import pytest

from diffenergy.estimator import prepare
from diffenergy.estimator._answer.limits import LIMITS, limiter
from diffenergy.estimator._details import num_points
from diffenergy.hardware import load_gpu
from diffenergy.physics import UNITS

L2, DRAM = UNITS.index("l2"), UNITS.index("dram")


@pytest.mark.parametrize(
    "used, reached, launch, filled, limit",
    [
        ({L2: 0.34}, {L2: 0.95}, 0.1, 3.0, "latency"),
        ({L2: 0.34}, {L2: 0.95}, 0.1, 0.4, "occupancy"),
        ({L2: 0.34}, {L2: 0.95}, 0.6, 0.4, "launch"),
        ({L2: 0.55}, {L2: 0.95}, 0.1, 0.4, "l2"),
        ({L2: 0.55, DRAM: 0.6}, {L2: 0.95, DRAM: 0.7}, 0.1, 3.0, "l2"),
        ({L2: 0.45, DRAM: 0.6}, {L2: 0.95, DRAM: 0.7}, 0.1, 3.0, "dram"),
        ({DRAM: 0.5}, {DRAM: 0.55}, 0.5, 1.0, "dram"),
    ],
)
def test_by_hand(used, reached, launch, filled, limit):
    def share(result):
        return jnp.array([result.get(n, 0.0) for n in range(len(UNITS))])

    scalars = jnp.array(launch), jnp.array(filled)
    result = limiter(share(used), share(reached), *scalars)
    assert LIMITS[int(result)] == limit


@pytest.mark.slow
def test_a_unit_that_limits_works_at_half_of_its_peak():
    task = prepare("gpt2", "h100-sxm", phase="train", batch=1, detail=True)
    kernels = task.run().summary["kernels"]
    limits = {kernel["limited_by"] for kernel in kernels}
    assert {"dram", "launch", "latency"} <= limits
    for kernel in kernels:
        limit = kernel["limited_by"]
        assert limit not in UNITS or kernel["utilization"][limit] >= 0.5


def test_the_latency_of_a_launch(tmp_path: Path):
    """A kernel with a critical path waits for all of it; beside one that streams its
    first load and its last store fit."""
    gpu, path = load_gpu("a100-sxm-80gb"), tmp_path / "one.jsonl"
    stream = dict(op="elementwise", fn="add", elements=1e6, dtype="bf16")
    steps = dict(op="softmax", rows=4096, cols=4096, dtype="bf16")
    path.write_text(json.dumps({"dispatch": "graph", "kernels": [stream, steps]}))
    kernels = prepare(str(path), "a100-sxm-80gb", sm_clock=[1.2e9]).run().kernels
    whole = float(gpu.corrections.launch_seconds)
    latencies = [
        whole - 2 * float(gpu.dram_latency),
        whole + float(gpu.corrections.launch_cycles) / 1.2e9,
    ]
    waits = [x["time_s"] - x["kernel_s"] for x in kernels or ()]
    assert waits == pytest.approx(latencies, rel=1e-3)


def test_large_workloads_have_fewer_points():
    assert num_points(1000) == 32 and num_points(1001) == 8
