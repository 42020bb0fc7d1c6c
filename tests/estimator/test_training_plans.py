"""Training steps on the GPUs of a plan, as they are answered."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from json_keys import check_part

import diffenergy as de
from diffenergy.corrections import CONSTANTS
from diffenergy.estimator import prepare
from diffenergy.estimator._answer.steps import dense_peak
from diffenergy.hardware import default_point, read_gpu
from diffenergy.parallel import training_step
from diffenergy.plans import EXCHANGE_AXES

SMALL: dict[str, Any] = dict(phase="train", input_len=1024)


def step(model: str, plan: str | None = None, **options: Any) -> dict[str, Any]:
    return de.estimate(model, "h100-sxm", plan=plan, **(SMALL | options)).summary


@pytest.mark.slow
def test_a_published_step_of_long_sequences():
    """arXiv 2407.21783, table 4: 380 TFLOP/s a GPU on 16,384 H100; 989.4 are dense."""
    plan = "tp=8,cp=16,pp=16,dp=8,vp=8,software=2024.5"
    result = step("llama-3.1-405b", plan, global_batch=128, input_len=131_072)
    assert result["mfu"] * 989.4 == pytest.approx(380, rel=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("part", [{}, {"lora": 8}, {"frozen_layers": 5}])
def test_a_plan_of_one_gpu_is_a_training_step(part: dict[str, Any]):
    plan = step("gpt2", "tp=1", global_batch=4, **part)
    alone = step("gpt2", batch=1, accumulation=4, **part)
    for key in ("time_s", "energy_j", "avg_power_w", "sm_clock_mhz", "tokens_per_s"):
        assert plan[key] == pytest.approx(alone[key], rel=1e-13)
    for key in ("limited_by", "memory", "grades", "batch", "accumulation"):
        assert plan[key] == alone[key]
    assert plan["phases"].keys() == alone["phases"].keys()
    assert plan["num_gpus"] == 1 and plan["bubble"] == 0
    assert plan["exposed_communication"] == 0


@pytest.mark.parametrize(
    "plan",
    [
        "tp=2,pp=2,dp=2",
        *(
            pytest.param(x, marks=pytest.mark.slow)
            for x in ("pp=4,vp=3,dp=2", "dp=16,zero=3", "tp=2,cp=2")
        ),
    ],
)
def test_what_an_answer_says_adds_up(plan: str):
    result = step("gpt2", plan, global_batch=32)
    gpus, time = result["num_gpus"], result["time_s"]
    assert result["step_time_s"] == time
    tokens = 32 * 1024
    assert result["tokens_per_s"] == pytest.approx(tokens / time)
    assert result["tokens_per_s_per_gpu"] == pytest.approx(tokens / time / gpus)
    assert result["power_total_w"] == pytest.approx(result["energy_j"] / time)
    assert result["power_per_gpu_w"] == pytest.approx(result["power_total_w"] / gpus)
    assert result["energy_j_per_token"] == pytest.approx(result["energy_j"] / tokens)
    assert sum(result["energy_j_by_unit"].values()) == pytest.approx(result["energy_j"])
    phases = result["phases"].values()
    assert sum(x["time_s"] for x in phases) == pytest.approx(time)
    assert sum(x["energy_j"] for x in phases) == pytest.approx(result["energy_j"])
    flop = result["model_flops"] / (time * gpus * 9.894e14)
    assert result["mfu"] == pytest.approx(flop)
    assert len(result["stages"]) == result["plan"]["pp"]
    assert sum(x["layers"] for x in result["stages"]) == 12
    assert result["power_total_w"] < result["peak_power_w"] < 700 * gpus
    power = sum(x["power_w"] for x in result["stages"]) * gpus / result["plan"]["pp"]
    assert power == pytest.approx(result["power_total_w"])
    assert result["communication"].keys() == {*EXCHANGE_AXES}
    shown = sum(x["exposed_s"] for x in result["communication"].values())
    assert result["exposed_communication"] == pytest.approx(shown / time)
    assert result["memory_per_gpu_bytes"] == result["memory"]["total"]


@pytest.mark.parametrize(
    ("gpu", "dtype", "flop"),
    [("h100-sxm", "fp32", 494.7e12), ("h100-sxm", "fp16", 989.4e12),
     ("h100-sxm", "int8", 1978.9e12), ("h100-sxm", "fp8_block", 1978.9e12),
     ("b200-sxm", "mxfp8", 4500e12), ("b200-sxm", "nvfp4", 9000e12),
     # 512 FLOP a cycle of each of 80 SMs at 2.1 GHz: of bf16 nothing is published
     ("rtx-3080-ti", "bf16", 512 * 80 * 2.1e9), ("v100-sxm-32gb", "bf16", 0.0)],
)  # fmt: skip
def test_the_peak_of_mfu_is_the_published_one(gpu: str, dtype: str, flop: float):
    assert dense_peak(read_gpu(gpu), dtype) == pytest.approx(flop)


@pytest.mark.slow
@pytest.mark.parametrize("part", [{"lora": 8}, {"frozen_layers": 5}])
def test_a_replica_is_one_gpu_and_what_it_exchanges(part: dict[str, Any]):
    """Without overlap and ZeRO two replicas take a GPU's step, the exchange of trained
    parameters, and what a step of two GPUs takes beyond its parts; idle and leakage all
    along and what kernels draw beyond them are theirs twice."""
    plan = "dp=2,zero=0,overlap=none"
    result = step("gpt2", plan, global_batch=8, detail=True, **part)
    alone = step("gpt2", batch=1, accumulation=4, detail=True, **part)
    sent = [k for k in result["kernels"] if k["op"] == "collective"]
    layer, adapters = 12 * 768**2 + 13 * 768, 12 * 8 * 16 * 768
    number = adapters if "lora" in part else 7 * layer + 2 * 768
    assert [k["bytes"] for k in sent] == [2 * number, 4 * number]
    exchanged = sum(k["time_s"] for k in sent)
    assert result["communication"]["dp"]["total_s"] == pytest.approx(exchanged)
    c = de.load_gpu("h100-sxm").corrections
    rest = 1 + float(c.plan_fixed) + float(c.plan_straggle) * np.log2(2 / 8)
    wanted = (alone["time_s"] + exchanged) * rest
    assert result["time_s"] == pytest.approx(wanted, rel=1e-12)
    still = sum(result["energy_j_by_unit"][x] for x in ("idle", "leakage"))
    drawn = sum(k["count"] * k["gpus"] * k["dynamic_j"] for k in result["kernels"])
    check_part("kernel", result["kernels"])
    assert result["energy_j"] == pytest.approx(still + drawn)
    own = sum(alone["energy_j_by_unit"][x] for x in ("idle", "leakage"))
    beyond = sum(k["count"] * 2 * k["dynamic_j"] for k in sent)
    assert drawn == pytest.approx(2 * (alone["energy_j"] - own) + beyond)


@pytest.mark.slow
def test_gradients_of_a_step_agree_with_differences():
    """Time and energy by network, link, DRAM bandwidth and clock."""
    work = training_step(
        "gpt2", "h100-sxm", "tp=2,pp=2,dp=16", global_batch=64, input_len=1024
    )
    gpu = de.load_gpu("h100-sxm")
    point = default_point(gpu)

    def of(x: jax.Array) -> jax.Array:
        steps = dataclasses.replace(work.steps, network=x[0] * work.steps.network)
        board = dataclasses.replace(
            gpu,
            link_bandwidth=x[1] * gpu.link_bandwidth,
            dram_bandwidth=x[2] * gpu.dram_bandwidth,
        )
        at = dataclasses.replace(point, sm_clock=x[3] * 0.7 * point.sm_clock)
        result = de.estimate(dataclasses.replace(work, steps=steps), board, at)
        return jnp.log(jnp.stack([result.time, result.energy]))

    x, e = jnp.ones(4), 1e-5
    slopes = np.asarray(jax.jit(jax.jacfwd(of))(x))
    run = jax.jit(of)
    for i in range(4):
        d = jnp.zeros(4).at[i].set(e)
        difference = np.asarray(run(x + d) - run(x - d)) / (2 * e)
        assert slopes[:, i] == pytest.approx(difference, rel=1e-4, abs=1e-6)
    assert slopes[0, 0] < 0 and slopes[0, 3] < 0


@pytest.mark.long
@pytest.mark.slow
def test_every_constant_of_plans_moves_a_step():
    gpu = de.load_gpu("b200-sxm")
    plans = {
        "tp=2,pp=2,dp=16,overlap=dp,software=2023.5": {},
        "tp=2,dp=16,zero=3": {"dtype": "fp8"},
        "dp=8": {"dtype": "nvfp4"},
    }
    works = [
        training_step("gpt2", "b200-sxm", plan, input_len=1024, **options)
        for plan, options in plans.items()
    ]
    plan = "ep=8,dp=8,overlap=ep+dp,graphs=all"
    works.append(
        training_step("mixtral-8x7b", "b200-sxm", plan, input_len=512, global_batch=16)
    )

    def total(c: de.Corrections) -> jax.Array:
        return sum(jnp.log(de.estimate(x, gpu, None, c).time) for x in works)  # pyright: ignore[reportReturnType]

    slopes = jax.grad(total)(gpu.corrections)
    own = {name for name, c in CONSTANTS.items() if c.rows == ("plan",)}
    still = {name for name in own if float(getattr(slopes, name)) == 0}
    assert still == {"training_attention_torch"}  # of torch's own kernels


@pytest.mark.slow
def test_a_step_of_layers_of_several_kinds():
    """DeepSeek-V3 on 128 B200: layers and MTP of every stage, and what fits."""
    answer = de.estimate(
        "deepseek-v3", "b200-sxm", phase="train", plan="pp=16,ep=8,dp=8",
        global_batch=128, input_len=1024, dtype="fp8",
    ).summary  # fmt: skip
    assert answer["assumed"]["mtp_layers"] == 1
    assert [x["layers"] for x in answer["stages"]] == [3, *14 * [4], 2]
    busy = [x["forward_s"] for x in answer["stages"]]
    assert busy[0] < busy[1] and max(busy) == busy[-1]  # two heads
    fullest = max(x["memory_bytes"] for x in answer["stages"])
    assert answer["memory_per_gpu_bytes"] == pytest.approx(fullest)
    assert answer["grade"] == "forecast"


@pytest.mark.parametrize("plan", [None, "dp=2,ep=2"])
def test_the_type_that_is_trained_is_assumed(plan: str | None):
    """Not that of the checkpoint (mxfp4), which is not run."""
    task = prepare("gpt-oss-20b", "h100-sxm", phase="train", plan=plan)
    assert task.about["dtype"] == task.about["assumed"]["dtype"] == "bf16"
    assert "checkpoint" not in task.about["assumed"]
    served = prepare("gpt-oss-20b", "h100-sxm", phase="decode")
    assert "mxfp4" in served.about["assumed"]["checkpoint"]
