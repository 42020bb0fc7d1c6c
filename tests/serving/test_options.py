"""What a load or a server is given by name: one number or a list of one; slips are
refused by the name that was meant."""

import functools
from typing import Any

import numpy as np
import pytest

from diffenergy.serving import Load, deploy, steady_state

MODEL = "qwen3-0.6b"


@pytest.mark.parametrize("case", [400, 400.0, [400], np.array(400.0)])
def test_a_clock_and_a_limit_are_numbers(case: Any):
    result = deploy(MODEL, power_limit=case, sm_clock=1.305e9, mem_clock=2.619e9)
    expected = (1.305e9, 2.619e9, 400.0, None, True)
    assert result.setting == expected


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
    assert results[0]["waiting_requests"] == 0.0  # a mean of 1e-200 of them is nobody


def test_a_clock_that_the_board_lacks_is_a_remark():
    load = Load(max_batch=4, input_len=64, output_len=32)
    odd, even = (
        steady_state("qwen3-0.6b", "h100-sxm", load, sm_clock=clock).warnings
        for clock in (1.234e9, 1.23e9)
    )
    assert [x for x in odd if "SM clock to 1234 MHz; nearest: 1230, 1245" in x]
    assert not [x for x in even if "SM clock" in x]
