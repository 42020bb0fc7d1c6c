"""Requests of one output token: the answer says why there is no time between two."""

import math
from collections.abc import Callable
from typing import Any

import json_keys
import pytest

from diffenergy import estimate, serving
from diffenergy.keys import json_text

MODEL, GPU = "qwen3-0.6b", "h100-sxm"  # programs are those of other tests
LOAD = {"rate": 4.0, "max_batch": 64, "input_len": 64, "output_len": 1, "slo_ttft": 0.5}
WHY = "no token follows the first one (`output_len` 1)"


TRACE = {"arrival_s": [0.0, 1.0], "input_len": [64.0, 64.0], "output_len": [1.0, 1.0]}
ANSWERS: dict[str, Callable[[], Any]] = {
    "open": lambda: serving.steady_state(MODEL, GPU, LOAD),
    "hits": lambda: serving.steady_state(
        MODEL, GPU, LOAD | {"prefix_hit": 0.5}, sensitivity=("sm_clock",)
    ),
    "drafts": lambda: serving.steady_state(
        MODEL, GPU, LOAD, speculative="eagle", accept=0.5
    ),
    "apart": lambda: serving.apart(MODEL, GPU, LOAD),
    "trace": lambda: serving.simulate(TRACE, MODEL, GPU, {"max_batch": 8}),
}


QUICK = ("apart", "trace")
SLOW = [pytest.param(x, marks=pytest.mark.slow) for x in ANSWERS if x not in QUICK]


@pytest.mark.parametrize("name", [*QUICK, *SLOW])
def test_no_time_between_tokens(name: str):
    result = ANSWERS[name]()
    s = result.summary
    json_keys.check("serve", json_text(s))
    assert s["tpot_s"] is s["itl_s"] is s["tpot_s_p5_p95"] is None
    assert s["unavailable"] == {"tpot_s": WHY, "itl_s": WHY}
    assert math.isnan(result.tpot)
    assert s["e2e_latency_s"]["mean"] == pytest.approx(s["ttft_s"]["mean"])
    line = f"time per output token, gap between two tokens: unavailable; {WHY}"
    assert line in [*result.blocks(charts=False)]
    assert "nan" not in result.to_html().lower().replace("nano", "")


def test_several_servers_and_a_search_have_no_fastest_token():
    result = serving.sweep(MODEL, [GPU, "l4"], LOAD)
    assert result.summary["best_tpot"] is None
    json_keys.check("serve", json_text(result.summary))
    assert not result.charts()["servers"].panels
    assert any(WHY in x for x in result.blocks() if isinstance(x, str))
    one = {"tp": 1, "num_gpus": 1, "sm_clock": 1.755e9}
    result = serving.search(MODEL, [GPU], LOAD, **one)
    json_keys.check("serve", json_text(result.summary))
    best = result.summary["best"]
    assert best["tpot_s"] is None and WHY in best["unavailable"].values()
    assert any(WHY in x for x in result.blocks() if isinstance(x, str))


def test_an_estimate_of_one_token_says_why():
    s = estimate("gpt2", GPU, output_len=1).summary
    json_keys.check("estimate", json_text(s))
    assert s["tpot_s"] is None and s["unavailable"] == {"tpot_s": WHY}
    two = estimate("gpt2", GPU, output_len=2).summary
    assert two["tpot_s"] > 0 and "unavailable" not in two
