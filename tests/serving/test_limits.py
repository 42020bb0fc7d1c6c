"""Limits of latencies below one step of a server."""

import pytest

from diffenergy import serving
from diffenergy.hardware import read_gpu
from diffenergy.results import Infeasible
from diffenergy.workload import load_model


@pytest.mark.slow
@pytest.mark.parametrize("name", ["slo_ttft", "slo_tpot"])
def test_less_than_a_step_is_refused(name: str):
    """A step reads every weight once, and is no longer than the mean token of a client
    alone: half a millisecond is neither, though half a second is a limit."""
    ask = {"rate": 2.0, "input_len": 64, "output_len": 32}
    for optimize in (None, "energy"):
        with pytest.raises(Infeasible, match=f"`{name}` is 0.5 ms") as refusal:
            serving.steady_state(
                "qwen3-8b", "h100-sxm", {**ask, name: 0.0005}, optimize=optimize
            )
        assert "`0.5s` is seconds" in str(refusal.value)
        step = refusal.value.least[name]
        bandwidth = read_gpu("h100-sxm").values["dram_bandwidth"]
        assert step > 2 * 7.5e9 / bandwidth  # 7.5 G parameters of 2 bytes
        ask_alone = {"concurrency": 1, "input_len": 64, "output_len": 32}
        alone = serving.steady_state("qwen3-8b", "h100-sxm", ask_alone)
        assert step <= alone.tpot * (1 + 1e-6)
    result = serving.steady_state("qwen3-8b", "h100-sxm", {**ask, name: 0.5})
    assert result.tpot < 0.5
    assert load_model("qwen3-8b").weight_bytes("bf16") > 2 * 7.5e9
