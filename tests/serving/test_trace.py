"""The step simulator: by hand on a few requests, and beside the closed form."""

import gzip
from typing import Any

import json_keys
import numpy as np
import pytest

from diffenergy.keys import json_text
from diffenergy.power_time import power_rows
from diffenergy.serving import Load, deploy, simulate, steady_state
from diffenergy.serving._lengths import of_values
from diffenergy.serving._trace.trace import checked, read_trace

MODEL = "qwen3-0.6b"
EAGLE: dict[str, Any] = dict(speculative="eagle", accept=0.7, sampling="random")


def poisson(seed: int, rate: float, number: int, prompt: float, output: float):
    """A trace of so many requests, their lengths lognormal (cv 1 and 0.8)."""
    random = np.random.default_rng(seed)
    trace = {"arrival_s": np.cumsum(random.exponential(1 / rate, number))}
    for name, mean, cv in (("input_len", prompt, 1), ("output_len", output, 0.8)):
        sigma = np.sqrt(np.log1p(cv**2))
        drawn = random.lognormal(np.log(mean) - sigma**2 / 2, sigma, number)
        trace[name] = np.maximum(np.round(drawn), 1)
    return trace


ALONE = {"arrival_s": [0.0, 20.0, 40.0], "input_len": [256.0] * 3,
         "output_len": [101.0] * 3}  # fmt: skip
"""Requests so far apart that none meets another."""


@pytest.mark.slow
def test_requests_that_never_meet():
    alone = simulate(ALONE, MODEL, "h100-sxm", Load(max_batch=8)).summary
    assert alone["mode"] == "trace"
    for key in ("ttft_s", "e2e_latency_s"):
        assert alone[key]["p99"] == pytest.approx(alone[key]["p50"], rel=1e-9)
    rest = alone["e2e_latency_s"]["mean"] - alone["ttft_s"]["mean"]
    assert rest == pytest.approx(100 * alone["tpot_s"]["mean"], rel=1e-9)
    assert alone["waiting_requests"] == 0
    spent = alone["avg_power_w"] / alone["output_token_throughput_per_s"]
    assert spent == pytest.approx(alone["energy_j_per_output_token"], rel=1e-9)
    parts = alone["step_s"]["parts"]
    assert sum(parts.values()) == pytest.approx(alone["step_s"]["mean"], rel=1e-9)
    # 303 tokens and 3 steps that read a prompt, which make the first of them
    assert alone["steps_with_prefill_share"] == pytest.approx(3 / 303)
    assert alone["prefill_tokens_per_step"] == pytest.approx(3 * 256 / 303)


def test_the_longest_prompt_need_not_have_the_longest_output():
    """Each row fits the 40,960 positions, the longest of both columns would not."""
    prompts, outputs = np.array([20_000.0, 10.0]), np.array([4.0, 30_000.0])
    load = Load(
        max_batch=4, input_len=of_values(prompts), output_len=of_values(outputs)
    )
    assert deploy(MODEL, "h100-sxm", load).load.output.mean == 15_002


AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,374,44
2023-11-16 18:15:50.9951690,396,0
2023-11-16 18:15:51,879,55
"""
AZURE_2024 = """TIMESTAMP,ContextTokens,GeneratedTokens
2024-05-10 00:00:00.009930+00:00,2162,5
2024-05-10 00:00:01+00:00,2399,6
"""
MOONCAKE = """{"timestamp":0, "input_length": 6758, "output_length": 500, "hash_ids":[]}
{"timestamp": 3052, "input_length": 7234, "output_length": 794, "hash_ids": [0, 1]}
"""


def test_traces_are_read(tmp_path):
    """Azure's of 2023 (100 ns ticks, without a zone), where who made no token counts
    with one, and of 2024; a plain table; Mooncake's."""
    path = tmp_path / "azure.csv"
    path.write_text(AZURE)
    result = read_trace(path)
    np.testing.assert_allclose(result.arrival, [0, 4.314579, 4.31941], atol=2e-6)
    assert result.prompt.tolist() == [374, 396, 879]
    assert result.output.tolist() == [44, 1, 55]
    assert result.notes == ("1 of 3 requests made no token; each counts with one.",)
    path = tmp_path / "azure.csv.gz"
    path.write_bytes(gzip.compress(AZURE_2024.encode()))
    result = read_trace(path)
    np.testing.assert_allclose(result.arrival, [0, 0.99007], atol=1e-9)
    assert result.output.tolist() == [5, 6] and not result.notes
    path = tmp_path / "trace.csv"
    path.write_text("arrival_s,input_len,output_len,note\n0,8,4,a\n0.5,9,1,b\n")
    result = read_trace(path)
    assert result.prompt.tolist() == [8, 9] and result.arrival.tolist() == [0, 0.5]
    path = tmp_path / "conversation_trace.jsonl"
    path.write_text(MOONCAKE)
    result = read_trace(path)
    assert result.arrival.tolist() == [0, 3.052]
    assert result.prompt.tolist() == [6758, 7234]
    assert result.output.tolist() == [500, 794]
    assert "`hash_ids` of the trace is not used" in result.notes[0]


def test_requests_that_are_too_long_are_left_out_and_counted():
    trace = checked([0, 1, 2, 3], [10, 30, 5, 20], [10, 1, 5, 1])
    short = trace.up_to(20, "tiny")
    assert short.arrival.tolist() == [0, 2] and short.prompt.tolist() == [10, 5]
    assert short.skipped == 2
    assert short.notes == (
        "2 of 4 requests are left out: they are longer than the positions of tiny.",
    )
    assert trace.up_to(31, "tiny").notes == ()
    with pytest.raises(ValueError, match="no request within the positions of tiny"):
        trace.up_to(9, "tiny")


@pytest.mark.slow
@pytest.mark.parametrize("schedule", ["chunked", "prefill-first"])
def test_gaps_add_up_to_the_time_between_tokens(schedule):
    """Those that decode wait for prompts that go first: their gap holds both steps."""
    trace = poisson(1, 28, 500, 1024, 64)
    load = Load(max_batch=32)
    result = simulate(trace, MODEL, "h100-sxm", load, schedule=schedule).summary
    assert result["itl_s"]["mean"] == pytest.approx(result["tpot_s"]["mean"], rel=1e-6)
    most = Load(
        max_batch=32, rate=result["request_rate_per_s"], input_len="lognormal:1024:1",
        output_len="lognormal:64:0.8",
    )  # fmt: skip
    form = steady_state(MODEL, "h100-sxm", most, schedule=schedule).summary
    for level in ("p50", "p95"):
        expected = result["itl_s"][level]
        assert form["itl_s"][level] == pytest.approx(expected, rel=0.2)


@pytest.mark.slow
@pytest.mark.parametrize("share, more", [(0.75, {}), (0.6, EAGLE)])
def test_the_closed_form_beside_the_simulator(share, more):
    """The issue's bounds: TPOT 8, running 10, median TTFT 35 %."""
    rate = share * 18.9
    trace = poisson(3, rate, 4000, 512, 256)
    many = simulate(trace, "qwen3-8b", "h100-sxm", Load(max_batch=128), **more).summary
    load = Load(
        rate=rate, max_batch=128, input_len="lognormal:512:1",
        output_len="lognormal:256:0.8",
    )  # fmt: skip
    form = steady_state("qwen3-8b", "h100-sxm", load, **more).summary
    assert form["tpot_s"]["mean"] == pytest.approx(many["tpot_s"]["mean"], rel=0.08)
    assert form["running_requests"] == pytest.approx(many["running_requests"], rel=0.1)
    assert form["ttft_s"]["p50"] == pytest.approx(many["ttft_s"]["p50"], rel=0.35)
    each = "energy_j_per_output_token"
    assert form[each] == pytest.approx(many[each], rel=0.08)
    assert form["itl_s"]["p95"] == pytest.approx(many["itl_s"]["p95"], rel=0.2)


@pytest.mark.slow
def test_power_over_time():
    """Two replicas of which one at a time is busy: the joules of the answer; between
    requests both wait, at 121 W as an H100 with a context was read; the power of a step
    while one runs. A fall at 100 W/s burns dP^2 / 200 at least on the board that
    falls."""
    setting: Any = dict(num_gpus=2, tp=1, power_step=0.5)
    smoothing: Any = "down=100"
    ask = (ALONE, MODEL, "h100-sxm", Load(max_batch=8))
    result = simulate(*ask, **setting, node="dgx-h100")
    s, curve = result.summary, result.curves["boards"]
    assert curve.mean == pytest.approx(s["avg_power_w"], rel=1e-6)
    assert curve.time == pytest.approx(3 / s["request_throughput_per_s"], rel=1e-9)
    waits = curve.means(np.array([15.0, 35.0]), 4.0)
    assert waits == pytest.approx(2 * 121, rel=0.08)
    peak = float(curve.watts.max())
    assert peak == pytest.approx(s["peak_step_power_w"] + waits[0] / 2, rel=1e-6)
    profile = s["power_profile"]
    # fans of an air-cooled node follow after 100 s
    assert profile["mean_w"] == pytest.approx(s["wall_power_w"], rel=0.02)
    assert (profile["of"], profile["period_s"]) == ("wall", None)
    json_keys.check("serve", json_text(s))
    smooth = simulate(*ask, **setting, smooth=smoothing).summary
    json_keys.check("serve", json_text(smooth))
    falls = -np.diff(curve.watts)[curve.watts[1:] < waits[0] + 1]
    assert len(falls) == 2  # the last one ends with the trace
    assert smooth["smoothing"]["burn_j"] >= 0.99 * (falls**2 / 200).sum()
    assert smooth["smoothing"]["peak_w"] == pytest.approx(peak)
    rows = power_rows(result.curves, 0.5)
    assert rows[30]["boards_w"] == pytest.approx(waits[0])
