"""Limits of latencies below one step of a server."""

import functools
import itertools

import pytest

from diffenergy import serving
from diffenergy.hardware import read_gpu
from diffenergy.results import Infeasible


@pytest.mark.slow
def test_less_than_a_step_is_refused():
    """A step reads every weight once, 7.5 G parameters of 2 bytes, and is no longer
    than the mean token of a client alone: half a millisecond is neither, though half a
    second is a limit."""
    run = functools.partial(serving.steady_state, "qwen3-8b", "h100-sxm")
    lengths = {"input_len": 64, "output_len": 32}
    alone = run({"concurrency": 1, **lengths})
    least = 2 * 7.5e9 / read_gpu("h100-sxm").values["dram_bandwidth"]
    for name, optimize in itertools.product(("slo_ttft", "slo_tpot"), (None, "energy")):
        with pytest.raises(Infeasible, match=f"`{name}` is 0.5 ms") as refusal:
            run({"rate": 2.0, **lengths, name: 0.0005}, optimize=optimize)
        assert "`0.5s` is seconds" in str(refusal.value)
        assert least < refusal.value.least[name] <= alone.tpot * (1 + 1e-6)
        assert run({"rate": 2.0, **lengths, name: 0.5}).tpot < 0.5
