"""The clock and the batch limit of least energy: against all that a board has."""

import dataclasses
import itertools

import numpy as np
import pytest

from diffenergy.hardware._clocks import sm_clocks
from diffenergy.results import Infeasible
from diffenergy.serving import Load, steady_state


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
