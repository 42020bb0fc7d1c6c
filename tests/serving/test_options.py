"""What a load or a server is given: numbers, limits of latencies, `optimize`."""

import dataclasses
import functools
import itertools
from typing import Any

import numpy as np
import pytest

from diffenergy.hardware import read_gpu
from diffenergy.hardware._clocks import sm_clocks
from diffenergy.results import Infeasible
from diffenergy.serving import Load, deploy, steady_state

MODEL = "qwen3-0.6b"


@pytest.mark.parametrize("case", [400, 400.0, [400], np.array(400.0)])
def test_a_clock_and_a_limit_are_numbers(case: Any):
    result = deploy(MODEL, power_limit=case, sm_clock=1.305e9, mem_clock=2.619e9)
    expected = (1.305e9, 2.619e9, 400.0, None, True)
    assert result.setting == expected


@pytest.mark.slow
def test_nobody_waits_at_a_server_with_room():
    """A mean of 1e-200 requests that wait is nobody."""
    result = steady_state(MODEL, "h100-sxm", Load(rate=0.1)).summary
    assert result["waiting_requests"] == 0.0


@pytest.mark.slow
def test_a_server_saturates_at_one_rate():
    """Whichever way requests come. Between batches a step is interpolated, so that the
    table has the number of slots even where fewer clients come (64 of 211)."""
    lengths: dict[str, Any] = {"input_len": 1000, "output_len": 250}
    loads = ({"rate": 2}, {"concurrency": 64}, {"max_batch": 10_000})
    run = functools.partial(steady_state, "llama-3.1-70b", "h100-sxm")
    results = [run(load | lengths, tp=2, dtype="fp8").summary for load in loads]
    most = [x["saturation_request_rate_per_s"] for x in results]
    assert most == pytest.approx([most[0]] * 3, rel=1e-6)


def test_a_clock_that_the_board_lacks_is_a_remark():
    load = Load(max_batch=4, input_len=64, output_len=32)
    odd, even = (
        steady_state("qwen3-0.6b", "h100-sxm", load, sm_clock=clock).warnings
        for clock in (1.234e9, 1.23e9)
    )
    assert [x for x in odd if "SM clock to 1234 MHz; nearest: 1230, 1245" in x]
    assert not [x for x in even if "SM clock" in x]


@pytest.mark.slow
def test_less_than_a_step_is_refused():
    """A step reads every weight once, 7.5 G parameters of 2 bytes, and is no longer
    than the mean token of a client alone: half a millisecond is neither, though half a
    second is a limit."""
    run = functools.partial(steady_state, "qwen3-8b", "h100-sxm")
    lengths = {"input_len": 64, "output_len": 32}
    alone = run({"concurrency": 1, **lengths})
    least = 2 * 7.5e9 / read_gpu("h100-sxm").values["dram_bandwidth"]
    for name, optimize in itertools.product(("slo_ttft", "slo_tpot"), (None, "energy")):
        with pytest.raises(Infeasible, match=f"`{name}` is 0.5 ms") as refusal:
            run({"rate": 2.0, **lengths, name: 0.0005}, optimize=optimize)
        assert "`0.5s` is seconds" in str(refusal.value)
        assert least < refusal.value.least[name] <= alone.tpot * (1 + 1e-6)
        assert run({"rate": 2.0, **lengths, name: 0.5}).tpot < 0.5


@pytest.mark.slow
def test_it_is_the_best_of_all_clocks():
    """Every third clock of the board, each with a table of its own."""
    load = Load(rate=8, slo_tpot=0.03, slo_ttft=0.1)
    best = steady_state("qwen3-0.6b", "a100-sxm-80gb", load, optimize="energy")
    limit = best.summary["optimized"]["max_batch"]
    clocks = np.sort(np.asarray(sm_clocks(best.deployment.card), float))[::3]
    assert len(clocks) > 20
    tried, batches = [], (0.8 * limit, limit, 1.25 * limit)
    for clock, batch in itertools.product(clocks, batches):
        own = dataclasses.replace(load, max_batch=max(batch, 1.0))
        try:
            x = steady_state("qwen3-0.6b", "a100-sxm-80gb", own, sm_clock=[clock])
        except Infeasible:  # slower than requests come
            continue
        if x.summary["tpot_s"]["p95"] <= 0.03 and x.summary["ttft_s"]["p95"] <= 0.1:
            tried.append(x.energy)
    assert best.energy <= 1.001 * min(tried)
    assert best.summary["ttft_s"]["p95"] <= 0.1
