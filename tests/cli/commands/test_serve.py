"""`diffenergy serve`: keys, tables, traces, bad input, what cannot be."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from diffenergy.report._format import digits

from ..conftest import Outcome

Run = Callable[..., Outcome]
SERVER = ("serve", "qwen3-0.6b", "--gpu", "h100-sxm", "--max-batch", "32")
OPEN = (*SERVER, "--input-len", "uniform:100:300", "--output-len", "64")
PARTS = "linear attention head sampling communication host prefill".split()


@pytest.fixture(scope="module")
def answer(run: Run) -> Outcome:
    return run(*OPEN, "--rate", "20", "--slo-tpot", "30ms", "--json")


def test_the_contract(answer: Outcome):
    result = answer.json
    for key in ("ttft_s", "tpot_s", "itl_s", "e2e_latency_s"):
        assert set(result[key]) == {"mean", "p50", "p90", "p95", "p99"}
    assert list(result["step_s"]["parts"]) == PARTS
    assert result["sensitivities"] is None
    # no request comes near 30 ms a token
    assert result["goodput_per_s"] == pytest.approx(result["request_throughput_per_s"])
    assumed = result["assumed"]
    assert (assumed["engine"], assumed["sampling"]) == ("vllm", "top-p")
    assert "input_len" not in assumed and "rate" not in assumed
    assert "max_batch" not in assumed and (assumed["num_gpus"], assumed["tp"]) == (1, 1)
    low, high = result["energy_j_per_output_token_p5_p95"]
    assert low < result["energy_j_per_output_token"] < high


def test_the_most_requests_are_those_of_the_largest_batch(run: Run, answer: Outcome):
    words = run(*OPEN, "--rate", "20", "--slo-tpot", "30ms").out.split()
    assert words[words.index("most") :][:3] == ["most", "requests/s", digits(
        answer.json["saturation_request_rate_per_s"])]  # fmt: skip
    assert "most running 32" in " ".join(words)


def test_a_rate_beyond_what_is_served(run: Run, answer: Outcome):
    done = run(*OPEN, "--rate", "100000")
    assert (done.code, done.out) == (3, "")
    assert done.err.count("\n") == 1
    most = answer.json["saturation_request_rate_per_s"]
    named = float(done.err.partition("sustains less than ")[2].partition(";")[0])
    assert named == pytest.approx(most, rel=1e-5) and named <= most


@pytest.mark.slow
def test_a_public_trace_with_requests_that_are_too_long(run: Run, tmp_path: Path):
    """The answer is that of the trace without them; table, JSON and a warning say how
    many there were."""
    public, own = tmp_path / "trace.jsonl", tmp_path / "trace.csv"
    rows = [(100 * i, 90_000 if i % 4 == 0 else 128, 32) for i in range(20)]
    names = ("timestamp", "input_length", "output_length")
    public.write_text(
        "".join(f"{json.dumps(dict(zip(names, x, strict=True)))}\n" for x in rows)
    )
    early = "".join(f"{x / 1e3},{y},{z}\n" for x, y, z in rows if y < 1e4)
    own.write_text("arrival_s,input_len,output_len\n" + early)
    done = run(*SERVER, "--trace", public, "--skip-too-long", "--json")
    same = run(*SERVER, "--trace", own, "--json").json
    assert done.json == same | {"skipped_requests": 5}
    assert same["skipped_requests"] == 0
    assert "note: 5 of 20 requests are left out" in done.err
    table = " ".join(run(*SERVER, "--trace", public, "--skip-too-long").out.split())
    assert "left out, too long 5" in table and "5 of 20 requests are left" in table
    refused = run(*SERVER, "--trace", public)
    assert refused.code == 2 and "(`--skip-too-long`)" in refused.err


@pytest.mark.slow
def test_a_search_and_its_points_for_a_fleet(run: Run, tmp_path: Path):
    points, fleet = tmp_path / "points.csv", tmp_path / "fleet.toml"
    search = ("serve", "qwen3-0.6b", "--rate", "60", "--slo-tpot", "6ms")
    search += ("--gpu", "h100-sxm@2,l40s", "--search", "cost", "--tp", "1")
    search += ("--gpu-price", "h100-sxm=3,l40s=1", "--node", "default", "--price", "90")
    result = run(*search, "--json", "--out", points).json
    best = result["best"]
    wall = best["wall_power_w"] * 90 / 1e6  # W x price of a MWh
    price = {"h100-sxm": 3, "l40s": 1}[best["gpu"]] * best["num_gpus"]
    assert best["cost_per_hour"] == pytest.approx(price + wall)
    per_token = best["cost_per_hour"] / best["output_token_throughput_per_s"] / 3600
    assert best["cost_per_million_output_tokens"] == pytest.approx(1e6 * per_token)
    table = " ".join(run(*search).out.split())
    assert "least cost" in table and "best of each GPU" in table
    day = best["site_energy_kwh_per_day"]
    assert day == pytest.approx(24 * best["site_power_w"] / 1e3)
    assert best["cost_per_day"] == pytest.approx(24 * wall)
    assert f"a day under this load: {digits(day)} kWh, costs " in table
    fleet.write_text(
        'slot_s = 3600\npoints = "points.csv"\ndemand = "demand.csv"\n'
        '[[sites]]\nname = "one"\n'
        f'[[pools]]\nname = "all"\nsite = "one"\ngpu = "{best["gpu"]}"\n'
        f"count = {best['num_gpus']}\n"
        '[[models]]\nname = "qwen3-0.6b"\n'
    )
    (tmp_path / "demand.csv").write_text("slot,model,requests_per_s\n0,qwen3-0.6b,50\n")
    assert run("fleet", fleet, "--json").code == 0


def test_lists_are_a_table(run: Run):
    # every key of a combination without a result is printed
    lists = (*SERVER, "--tp", "1,3", "--sm-clock", "1200,1755", "--num-gpus", "3")
    lists += ("--dtype", "bf16", "--engine", "vllm", "--ep", "1")
    lists += ("--mem-clock", "2619", "--power-limit", "700")
    result = run(*lists, "--json").json
    assert result["axes"] == ["tp", "sm_clock_set_mhz"]
    assert ["error" in x for x in result["points"]] == [False, False, True, True]
    assert "`--tp` is 3" in result["points"][2]["error"]
    assert result["best_tpot"] == 1
    table = run(*lists).out
    assert "least energy per output token: tp 1, SM MHz 1200" in table
