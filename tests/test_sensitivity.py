"""`de.sensitivity` against estimates of changed GPUs, shares of energy, published
figures; gradients by a GPU as text."""

import json
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import diffenergy as de
from diffenergy import parallel
from diffenergy.corrections import CONSTANTS
from diffenergy.hardware import FIELDS, read_gpu

GPU = "h100-sxm"
PRODUCTS = [
    {"op": "gemm", "m": 4096, "n": 8192, "k": 8192, "dtype": "bf16", "count": 4},
    {"op": "gemm", "m": 8, "n": 8192, "k": 8192, "dtype": "bf16", "count": 100},
]
"""One of tensor cores, one of DRAM; at the top clock the first is at the limit."""
COUNTED = {
    "num_sms", "smem_per_sm", "registers_per_sm", "max_threads_per_sm",
    "max_ctas_per_sm",
}  # fmt: skip
"""What acts through whole waves and resident CTAs."""
BELOW: dict[str, Any] = {"sm_clock": 1.2e9, "temperature": 50.0}
"""No limit binds, and leakage follows no power."""


@pytest.fixture(scope="module")
def listing(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("listing") / "two.jsonl"
    path.write_text(json.dumps({"name": "two", "kernels": PRODUCTS}))
    return str(path)


def effects(*args: Any, **request: Any) -> dict[str, tuple[float, float]]:
    """(% of time, % of energy) of every row by field."""
    rows = de.sensitivity(*args, **request).rows
    return {x["field"]: (x["time_pct"], x["energy_pct"]) for x in rows}


@pytest.mark.slow
def test_steps_at_the_power_limit(listing: str):
    """Figures of a prototype on another code path, in % of time and energy."""
    expected = {
        "dram_bandwidth": (-1.43, -1.43),
        "tensor_flop_per_cycle_bf16": (-1.08, -1.08),
        "vf_slope": (-0.33, -0.33),
        "core_energy": (-0.18, -0.18),
        "smem_per_sm": (-0.11, -0.11),
        "energy_dram": (-0.06, -0.06),
        "num_sms": (0.02, 0.02),
        "tdp": (-0.39, 1.03),
    }
    result = effects(listing, GPU)
    for field, percent in expected.items():
        assert result[field] == pytest.approx(percent, abs=0.006), field


def test_largest_effects_come_first_and_counted_numbers_by_difference(listing: str):
    rows = de.sensitivity(listing, GPU).rows
    sizes = [max(abs(x["time_pct"]), abs(x["energy_pct"])) for x in rows]
    assert sizes == sorted(sizes, reverse=True) and sizes[-1] >= 0.005
    by = {x["field"]: x["by"] for x in rows}
    assert {x for x, how in by.items() if how == "difference"} == COUNTED & set(by)
    assert {x for x, rule in FIELDS.items() if rule.counted} == COUNTED
    assert by["num_sms"] == by["smem_per_sm"] == "difference"
    bandwidth = next(x for x in rows if x["field"] == "dram_bandwidth")
    assert (bandwidth["step"], bandwidth["unit"]) == (100.0, "GB/s")
    # steps are small beside the number; of fewer SMs one whole SM is added
    small = {"num_sms": 3.0, "tensor_flop_per_cycle_bf16": 512.0}
    rows = de.sensitivity(listing, GPU, changes=small).rows
    steps = {x["field"]: x["step"] for x in rows}
    assert steps["num_sms"] == 1 and steps["tensor_flop_per_cycle_bf16"] == 64


def test_prices_below_the_limit_are_shares_of_the_energy(listing: str):
    """E is a sum of prices x work: 1 % off a price takes off 1 % of its part."""
    summary = de.estimate(listing, GPU, **BELOW).summary
    joules, total = summary["energy_j_by_unit"], summary["energy_j"]
    result = effects(listing, GPU, **BELOW)
    units = {f"energy_{x}": x for x in ("tensor", "dram", "l2", "smem")}
    for field, unit in (units | {"sm_clock_energy": "clock_tree"}).items():
        assert result[field] == pytest.approx((0.0, -joules[unit] / total)), field
    core = sum(joules[x] for x in ("tensor", "l2", "smem", "clock_tree", "launch"))
    share = -core / total
    assert result["core_energy"] == pytest.approx((0.0, share), rel=1e-4)
    node = 100 * 0.55 * 0.27 * share  # GPUs take 55 % of a claim, in ln
    assert result["process_node"] == pytest.approx((0.0, node), rel=1e-4)


@pytest.mark.parametrize("point", [{}, BELOW], ids=["at the limit", "below"])
def test_effects_are_those_of_changed_gpus(listing: str, point: Any):
    """As `--set` would: slopes by a hundredth of a step to both sides."""
    result = effects(listing, GPU, **point)

    def at(field: str, steps: float) -> np.ndarray:
        value = read_gpu(GPU).values[field] + steps * FIELDS[field].stepped[2]
        changed = {field: value, "power_limit_max": 800.0}
        summary = de.estimate(listing, GPU, changes=changed, **point).summary
        return np.array([summary["time_s"], summary["energy_j"]])

    for field in ("dram_bandwidth", "tensor_flop_per_cycle_bf16", "vf_slope", "tdp"):
        slopes = 100 * np.log(at(field, 0.01) / at(field, -0.01)) / 0.02
        got = np.array(result.get(field, (0.0, 0.0)))
        assert got == pytest.approx(slopes, rel=2e-3, abs=5e-3), field
    for field in ("num_sms", "smem_per_sm") if not point else ():
        percent = 100 * (at(field, 1) / at(field, 0) - 1)
        assert np.array(result[field]) == pytest.approx(percent, rel=1e-9), field


def test_changes_clocks_and_limits_are_followed(listing: str):
    """What was given is a row of its own; what was not follows the GPU."""
    there = effects(listing, GPU, sm_clock=1.2e9, power_limit=650)
    assert {"sm_clock"} <= set(there) and not {"sm_clock_max", "tdp"} & set(there)
    faster = [
        de.estimate(listing, GPU, sm_clock=x, power_limit=650).energy
        for x in (1.199e9, 1.201e9)
    ]
    slope = 100 * math.log(faster[1] / faster[0]) * 100 / 2  # a step is 100 MHz
    assert there["sm_clock"][1] == pytest.approx(slope, rel=1e-3)
    wide = effects(listing, GPU, changes={"dram_bandwidth": 6.7e12})["dram_bandwidth"]
    assert -0.5 < wide[0] < 0  # of twice the rate; -1.43 % of the board's own


def test_a_workload_answers_as_its_name(listing: str):
    work = de.load_workload(listing)
    by_name = de.sensitivity(listing, GPU)
    assert de.sensitivity(work, GPU).rows == by_name.rows
    assert by_name.summary["gpu"] == GPU and by_name.summary["time_s"] > 0
    rows = de.sensitivity(work, de.load_gpu(GPU), of="energy").rows
    assert all("time_pct" not in x for x in rows)
    sizes = [abs(x["energy_pct"]) for x in rows]
    assert sizes == sorted(sizes, reverse=True)
    text = repr(by_name)
    assert text.startswith("<SensitivityResult: process_node +1 node: time -2.6")
    assert "+100 GB/s" in by_name._repr_html_()
    with pytest.raises(TypeError, match="`sensitivity` is differentiated"):
        jax.grad(lambda gpu: len(de.sensitivity(work, gpu).rows) * gpu.tdp)(
            de.load_gpu(GPU)
        )


@pytest.mark.slow
def test_training_on_many_gpus():
    """Two hosts: the network is a number, too; by name and as a record."""
    sizes: Any = dict(plan={"dp": 16}, input_len=512, global_batch=16)
    result = effects("gpt2", GPU, phase="train", **sizes)
    step = parallel.training_step("gpt2", GPU, **sizes)
    of_record = effects(step, GPU)
    assert set(of_record) == set(result)
    assert all(of_record[x] == pytest.approx(y, abs=1e-6) for x, y in result.items())

    def at(share: float) -> float:
        network = step.steps.network + share * 10e9
        moved = eqx.tree_at(lambda x: x.steps.network, step, network)
        return math.log(float(de.estimate(moved, GPU).time))

    slope = 100 * (at(0.01) - at(-0.01)) / 0.02
    assert result["network"][0] == pytest.approx(slope, rel=1e-3) and slope < -0.05


# --- gradients as text


def test_a_gradient_reads_as_its_largest_entries():
    """10 W x 0.02 before 100 GB/s x 1e-12, before 1 % of a price."""
    gpu = de.load_gpu(GPU)
    none = jax.tree.map(jnp.zeros_like, gpu)
    gradient = eqx.tree_at(
        lambda x: (x.tdp, x.dram_bandwidth, x.num_sms, x.corrections.energy_dram),
        none,
        tuple(jnp.asarray(x) for x in (0.02, -1e-12, 1e-4, 1e9)),
    )
    head, _, *rows = repr(gradient).splitlines()
    assert head == "<gradient by GpuSpec, 0 smaller entries left out>"
    assert [row.split()[0] for row in rows] == [
        "tdp", "dram_bandwidth", "corrections.energy_dram", "num_sms",
    ]  # fmt: skip
    assert rows[0].split() == ["tdp", "0.02", "+10", "W", "+0.2"]
    assert rows[1].split()[1:] == ["-1e-12", "+100", "GB/s", "-0.1"]
    assert "+2 SMs (smoothed)" in rows[3]
    price = 0.01 * CONSTANTS["energy_dram"].centre * 1e9
    inner = repr(gradient.corrections).splitlines()
    assert inner[0].startswith("<gradient by Corrections, 0 smaller")
    assert len(inner) == 3 and inner[2].endswith(f"{price:+.3g}")


def test_gradients_of_several_outputs_and_without_numbers():
    gpu = de.load_gpu(GPU)
    both = jax.tree.map(lambda x: jnp.stack([0 * x + 1, -3 * (0 * x + 1)]), gpu)
    assert " -3 " in repr(both)  # the larger of two
    broken = jax.tree.map(lambda x: x * jnp.nan, gpu)
    assert "nan" in repr(broken)
    assert len(repr(broken).splitlines()) < 20


def test_what_is_no_gradient_reads_as_before():
    gpu, seen = de.load_gpu(GPU), []
    plain = "GpuSpec(\n  num_sms="
    assert repr(gpu).startswith(plain)
    for record in (gpu, gpu.corrections):
        assert repr(record) == eqx.tree_pformat(record)
    jax.jit(lambda x: seen.append(repr(jax.grad(lambda y: y.tdp * y.tdp)(x))))(gpu)
    assert seen[0].startswith(plain)  # a gradient that is traced
    gradient = jax.tree.map(jnp.zeros_like, gpu)
    assert repr(eqx.filter(gradient, lambda _: False)).startswith(plain)
    assert eqx.tree_pformat(gradient).startswith(plain)
