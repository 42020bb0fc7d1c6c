"""Rows priced by the product are what `steady_state` answers at their rate."""

import numpy as np
import pytest

from diffenergy import serving
from diffenergy.fleet._priced.points import serving_points
from diffenergy.hardware import read_gpu


@pytest.mark.slow
def test_points_are_those_of_the_server_in_balance():
    clock, model = 1095e6, "qwen3-0.6b"
    found = serving_points(
        model, read_gpu("h100-sxm"), 1, np.array([600e6, clock]),
        np.array([8.0, 32.0]), 512, 64,
    )  # fmt: skip
    for place in (0, 1):
        load = serving.Load(
            rate=float(found.rate[1, place]), max_batch=64, input_len=512, output_len=64
        )
        asked = serving.steady_state(model, "h100-sxm", load, sm_clock=[clock]).summary
        pairs = (
            (found.ttft, asked["ttft_s"]["p95"]),
            (found.tpot, asked["tpot_s"]["p95"]),
            (found.power, asked["avg_power_w"]),
            (found.max_batch, 64.0),
        )
        for mine, theirs in pairs:
            assert mine[1, place] == pytest.approx(theirs, rel=1e-5)
    assert (np.diff(found.rate, axis=0) > 0).all()  # a higher clock carries more
