"""Answers of many GPUs against those of one."""

from typing import Any

import pytest

import diffenergy as de
from diffenergy.estimator import prepare

NEW = {
    "plan", "num_gpus", "topology", "tokens_per_s_per_gpu", "power_per_gpu_w",
    "power_total_w", "memory_per_gpu_bytes", "exposed_communication", "communication",
    "stages",
}  # fmt: skip
REQUEST: dict[str, Any] = dict(batch=8, input_len=64, phase="decode")


def summary(model: str = "llama-3.1-8b", **more: Any) -> dict[str, Any]:
    return de.estimate(model, "h100-sxm", **REQUEST | more).summary


@pytest.fixture(scope="module")
def alone() -> dict[str, Any]:
    return summary()


def test_a_plan_of_one_gpu_is_the_answer_of_today(alone: dict[str, Any]):
    planned = summary(plan="tp=1,pp=1,ep=1,dp=1")
    assert set(planned) - set(alone) == NEW
    assert planned["assumed"].pop("topology") == "dgx-h100"
    assert {key: planned[key] for key in alone} == alone
    assert planned["power_per_gpu_w"] == alone["avg_power_w"]
    assert planned["exposed_communication"] == 0


def test_replicas_take_as_long_and_twice_the_energy():
    one, two = summary(batch=4), summary(plan="dp=2")
    assert two["time_s"] == pytest.approx(one["time_s"], rel=1e-12)
    assert two["energy_j"] == pytest.approx(2 * one["energy_j"], rel=1e-12)
    assert two["tokens_per_s"] == pytest.approx(2 * one["tokens_per_s"], rel=1e-12)
    assert two["energy_j_per_token"] == pytest.approx(one["energy_j_per_token"])
    assert two["memory"] == one["memory"]


@pytest.mark.slow
def test_figures_of_many_gpus_fit_together():
    result = summary(plan={"tp": 2, "dp": 2})
    assert result["num_gpus"] == 4
    assert result["power_total_w"] == result["avg_power_w"]
    assert result["power_per_gpu_w"] == pytest.approx(result["avg_power_w"] / 4)
    assert result["energy_j"] == pytest.approx(result["avg_power_w"] * result["time_s"])
    assert sum(result["energy_j_by_unit"].values()) == pytest.approx(result["energy_j"])
    phases = result["phases"].values()
    assert sum(x["energy_j"] for x in phases) == pytest.approx(result["energy_j"])
    assert result["tokens_per_s_per_gpu"] == pytest.approx(result["tokens_per_s"] / 4)
    assert result["memory_per_gpu_bytes"] == result["memory"]["total"]
    low, high = result["energy_j_p5_p95"]
    assert low < result["energy_j"] < high
    assert result["grade"] == "forecast"


@pytest.mark.slow
def test_communication_is_that_of_its_kernels():
    result = de.estimate("qwen3-30b-a3b", "h100-sxm", plan="tp=2,pp=2,dp=2,ep=4",
                         **REQUEST)  # fmt: skip
    spent: dict[str, float] = {"tp": 0.0, "pp": 0.0, "ep": 0.0}
    kinds = {"send_recv": "pp", "all_to_all": "ep"}
    for kernel in result.kernels or []:
        if kernel["op"] == "collective":
            kind = kinds.get(kernel["collective"], "tp")
            spent[kind] += kernel["time_s"] * kernel["count"]
    exchange = result.summary["communication"]
    assert {k: exchange[k]["total_s"] for k in exchange} == pytest.approx(spent)
    assert min(spent.values()) > 0
    share = sum(spent.values()) / result.time
    assert result.summary["exposed_communication"] == pytest.approx(share)


@pytest.mark.slow
def test_stages_add_sends_and_waiting_alone(alone: dict[str, Any]):
    """Two stages: the same kernels, a send between; each GPU waits half of the time at
    the power of idle and leakage."""
    two = summary(plan="pp=2")
    sent = two["communication"]["pp"]["total_s"]
    assert two["time_s"] == pytest.approx(alone["time_s"] + sent, rel=1e-6)
    static = sum(alone["energy_j_by_unit"][x] for x in ("idle", "leakage"))
    assert two["energy_j"] == pytest.approx(alone["energy_j"] + static, rel=0.01)
    assert [stage["layers"] for stage in two["stages"]] == [16, 16]
    assert two["memory"]["total"] == max(x["memory_bytes"] for x in two["stages"])


@pytest.mark.slow
def test_links_of_a_topology_hold():
    """An H200 in a machine with faster links exchanges sooner."""
    usual, faster = (
        de.estimate("llama-3.1-8b", "h200-sxm", tp=2, topology=name, phase="prefill",
                    input_len=2048)
        for name in (None, "gb200-nvl72")
    )  # fmt: skip
    exchange = [x.summary["communication"]["tp"]["total_s"] for x in (usual, faster)]
    assert exchange[1] < exchange[0]
    assert usual.summary["assumed"]["topology"] == "dgx-h100"
    assert "topology" not in faster.summary["assumed"]


@pytest.mark.slow
def test_a_network_is_slower_than_a_link():
    """Two stages, 8,192 tokens of 8,192 values: near the bytes over the NIC's rate."""
    request: dict[str, Any] = dict(phase="prefill", input_len=8192)
    near = de.estimate("llama-3.1-70b", "h100-sxm", plan="tp=4,pp=2", **request)
    far = de.estimate("llama-3.1-70b", "h100-sxm", plan="tp=8,pp=2", **request)
    sent = [x.summary["communication"]["pp"]["total_s"] for x in (near, far)]
    assert sent[1] > 5 * sent[0]
    assert 1 < sent[1] / (8192 * 8192 * 2 / 50e9) < 2


@pytest.mark.parametrize(
    ("gpu", "model", "words"),
    [
        ("h100-sxm", "llama-3.1-405b", "it fits with tp=8,pp=2."),
        ("h200-sxm", "llama-3.1-405b", "it fits with tp=8."),
        ("l4", "llama-3.1-405b", "a GPU with enough."),
    ],
)
def test_the_least_plan_that_fits(gpu: str, model: str, words: str):
    (warning,) = prepare(model, gpu).warnings
    assert warning.endswith(words)
    if "fits with" in warning:
        plan = words.removeprefix("it fits with ").removesuffix(".")
        assert prepare(model, gpu, plan=plan, require_fit=True).memory["fits"]
