"""`diffenergy codesign`: files for other commands, exit statuses, mixes, tiles."""

import contextlib
import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from json_keys import check

from diffenergy.cli.commands import codesign

from ..conftest import Outcome

Run = Callable[..., Outcome]
BATCH, OUTPUT = 4, 8
GEMM = {"op": "gemm", "m": 512, "n": 4096, "k": 2048, "dtype": "bf16", "count": 8}
LISTING = (
    {"name": "x/prefill", "mode": "prefill", "kernels": [GEMM]},
    {"name": "x/decode", "mode": "decode", "kernels": [{**GEMM, "m": BATCH}]},
    {"name": "y", "mode": "forward", "kernels": [{**GEMM, "m": 1024}]},
    {"name": "z", "mode": "forward", "kernels": [{**GEMM, "m": 64}]},
)
GPU = ("--gpu", "a100-sxm-80gb")
QUICK = ("--starts", "6", "--rounds", "3")
SPACE = ("--vary", "num_sms,dram_bandwidth=1e12:3e12,sm_clock=900e6:1410e6")
"""A small space; variants that change numbers alone share its compilation."""


@pytest.fixture(scope="module")
def listing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A generation `x` of 8 tokens for 4 sequences; passes `y` and `z`."""
    path = tmp_path_factory.mktemp("listing") / "two.jsonl"
    common = {"batch": BATCH, "seq_len": 128, "precision": "bf16", "dispatch": "graph"}
    lines = [{**common, **line} for line in LISTING]
    lines[1]["passes"] = OUTPUT - 1
    path.write_text("\n".join(map(json.dumps, lines)) + "\n")
    return path


@pytest.fixture(scope="module")
def words(listing: Path) -> tuple[object, ...]:
    """The search that most tests vary."""
    return ("codesign", listing, "--workload", "x", *GPU, *SPACE, *QUICK)


@pytest.fixture(scope="module")
def design(
    run: Run, words: tuple[object, ...], tmp_path_factory: pytest.TempPathFactory
) -> tuple[dict[str, Any], Path]:
    """The search with a limit on the area, and the GPU file that it writes."""
    out = tmp_path_factory.mktemp("out") / "small.toml"
    result = run(*words, "--max-area", "700", "--out", out, "--json").json
    return result, out


@pytest.mark.slow
def test_the_file_is_a_gpu_that_answers_like_the_best(
    run: Run,
    listing: Path,
    words: tuple[object, ...],
    design: tuple[dict[str, Any], Path],
):
    """To `estimate`, and as the base of the next search; the start is an estimate."""
    result, out = design
    best, start, fields = result["best"], result["start"], result["best"]["fields"]
    assert best["objective"] == pytest.approx(best["energy_j"], rel=1e-12)
    assert best["energy_j"] < start["energy_j"]
    assert best["area_mm2"] <= 700 * (1 + 1e-9) and best["violation_pct"] == 0
    assert start["area_mm2"] == pytest.approx(826)  # published, GA100
    sizes = [x["elasticity"] for x in result["sensitivities"]]
    assert sizes[-1] is None  # no fp8 on an A100
    known = [x for x in sizes if x is not None]
    assert known == sorted(known, key=abs, reverse=True)
    again = ("estimate", listing, "--workload", "x", "--json", "--gpu")
    before = run(*again, GPU[1]).json
    after = run(*again, out, "--sm-clock", str(fields["sm_clock"] / 1e6)).json
    for key in ("time_s", "energy_j", "avg_power_w"):
        assert start[key] == pytest.approx(before[key], rel=1e-9)
        assert best[key] == pytest.approx(after[key], rel=1e-9)
    for key in ("ttft_s", "tpot_s"):
        assert start[key] == pytest.approx(before[key], rel=1e-9)
    joules = start["energy_j_per_token"] * BATCH * OUTPUT
    assert joules == pytest.approx(start["energy_j"])
    assert after["grade"] == "forecast" and after["gpu"] == "small"
    table = tomllib.loads(out.read_text())
    assert table["corrections"] == "a100-sxm-80gb" and table["aliases"] == []
    assert table["num_sms"] == fields["num_sms"]
    assert table["physical"]["die_area_mm2"] == best["area_mm2"]
    source = table["provenance"]["num_sms"]
    assert source["quality"] == "derived"
    assert source["source"] == "diffenergy codesign from a100-sxm-80gb"
    assert table["provenance"]["warp_size"]["source"] != source["source"]
    text = out.with_suffix(".json").read_text()
    check("codesign", text)
    beside = json.loads(text)
    assert {**beside, "path": None} == {**result, "path": None}
    assert len(beside["path"]) >= 3 and beside["path"][0]["round"] == 1
    based = [out if word == "a100-sxm-80gb" else word for word in words]
    start = run(*based, "--json").json["start"]
    assert start["area_mm2"] == pytest.approx(best["area_mm2"], rel=1e-9)


@pytest.mark.long
@pytest.mark.slow
def test_the_start_of_a_mix_is_its_sum(run: Run, listing: Path):
    """Weights count runs."""
    words = ("codesign", listing, "--workload", "y", *GPU, *SPACE, *QUICK)
    more = ("--workload", f"{listing} --workload z", "--weight", "3", "--json")
    start = run(*words, *more).json["start"]
    one, other = (
        run("estimate", listing, "--workload", name, *GPU, "--json").json
        for name in "yz"
    )
    for key in ("time_s", "energy_j"):
        assert start[key] == pytest.approx(one[key] + 3 * other[key], rel=1e-9)


@pytest.mark.slow
def test_limits_of_tokens_costs_and_latency(
    run: Run, words: tuple[object, ...], design: tuple[dict[str, Any], Path]
):
    limits = ("--max-ttft", "1", "--max-tpot", "1", "--max-power", "300")
    priced = ("--price", "0.5", "--max-cost", "350")
    goal = ("--objective", "energy_per_token")
    result = run(*words, *limits, *priced, *goal, "--json").json
    best = result["best"]
    assert best["objective"] == pytest.approx(best["energy_j_per_token"])
    assert best["cost"] == pytest.approx(0.5 * best["area_mm2"]) and best["cost"] <= 350
    most = {limit["name"]: limit["limit"] for limit in result["limits"]}
    assert most == {"max_ttft": 1, "max_tpot": 1, "max_power": 300, "max_cost": 350}
    latency = 1.05 * design[0]["start"]["time_s"]
    limited = (*words, "--objective", "area", "--max-latency")
    result = run(*limited, "105%", "--json").json
    assert result["limits"][0]["limit"] == pytest.approx(latency, rel=1e-9)
    assert result["best"]["time_s"] <= latency * (1 + 1e-9)
    active = {x["name"]: x for x in result["active_constraints"]}["max_latency"]
    assert active["multiplier"] >= 0 and active["unit"] == "mm2/(s)"
    assert "of latency saves" in run(*limited, f"{1e3 * latency}ms").out


@pytest.mark.slow
def test_exit_statuses_of_searches_without_an_end(
    run: Run, words: tuple[object, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """3 where nothing meets a limit, with no file; 130 after Ctrl-C, with the best."""
    out = tmp_path / "kept.toml"
    done = run(*words, "--max-latency", "1e-6", "--out", out)
    assert done.code == 3 and done.out == "" and not any(tmp_path.iterdir())
    line = done.err.splitlines()[-1]
    assert "`--max-latency` (allowed 1.000 us" in line and "cannot be met;" in line
    assert "its fields: num_sms " in line

    @contextlib.contextmanager
    def impatient(*_: object):
        def tell(done: int, cost: float):
            if done == 2:
                raise KeyboardInterrupt

        yield tell

    monkeypatch.setattr(codesign, "progress", impatient)
    done = run(*words, "--out", out, "--json")
    assert done.code == 130 and "interrupted" in done.err
    result = json.loads(done.out)
    assert result["interrupted"] and result["best"]["violation_pct"] == 0
    assert len(result["pareto"]) == 0
    table = tomllib.loads(out.read_text())
    assert table["num_sms"] == result["best"]["fields"]["num_sms"]


@pytest.mark.slow
def test_tiles_of_designs_and_of_a_gpu(run: Run, listing: Path, tmp_path: Path):
    out = tmp_path / "tiles.json"
    words = ("codesign", listing, "--workload", "y", *GPU)
    done = run(*words, "--vary", "tiles", *QUICK, "--out", out)
    assert done.code == 0, done.err
    result = json.loads(out.read_text())
    (tile,) = result["best"]["fields"]["tiles"]
    assert (tile["m"], tile["n"], tile["k"], tile["count"]) == (1024, 4096, 2048, 8)
    text = "x".join(str(tile[x]) for x in ("tile_m", "tile_n", "tile_k", "stages"))
    assert text in done.out
    assert result["start"]["fields"]["tiles"] == []  # the library chooses
    out = tmp_path / "tuned.jsonl"
    result = run(*words, "--tune-tiles", "--out", out, "--json").json
    (gemm,) = result["gemms"]
    assert gemm["default_costs_more_pct"] >= 0 and result["goal"] == "time"
    (line,) = map(json.loads, out.read_text().splitlines())
    assert line["kernels"][0]["tile_m"] == gemm["tile_m"]
    estimate = run("estimate", out, *GPU, "--json").json
    assert estimate["time_s"] == pytest.approx(result["time_s"], rel=1e-6)


@pytest.mark.slow
def test_words_are_choices(run: Run, tmp_path: Path):
    """One table of the processes, best first; the file holds the words of the best."""
    path = tmp_path / "next.toml"
    words = ("codesign", "gpt2", "--gpu", "h100-sxm", "--phase", "decode")
    vary = ("--vary", "process_node=4N,N3P,memory=HBM3,HBM4", "--out", path)
    answer = run(*words, *vary, "--json").json
    result = [x["words"]["process_node"] for x in answer["choices"]]
    assert sorted(result) == ["4N", "4N", "N3P", "N3P"] and result[0] == "N3P"
    energies = [x["energy_j"] for x in answer["choices"]]
    assert energies == sorted(energies) and answer["best"]["energy_j"] == energies[0]
    assert answer["start"]["energy_j"] == max(energies)  # an H100 as it is
    assert 'process_node = "N3P"' in path.read_text()
