"""`diffenergy codesign`: designs, mixes, limits, files, tuned tiles."""

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from json_keys import check

from diffenergy.cli.commands import codesign
from diffenergy.codesign import Effort, Part, Range, search, tune
from diffenergy.estimator import prepare
from diffenergy.hardware import read_gpu

from ...conftest import Outcome

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
    found = run(*words, "--max-area", "700", "--out", out, "--json").json
    return found, out


@pytest.mark.slow
def test_keys_are_fixed(design: tuple[dict[str, Any], Path]):
    found, _ = design
    assert found["objective"] == "energy" and found["seed"] == 0
    assert found["best"]["objective"] == pytest.approx(found["best"]["energy_j"])
    assert set(found["best"]["fields"]) == {"num_sms", "dram_bandwidth", "sm_clock"}
    assert found["grade"] == "forecast" and found["model"] == "x/prefill"
    assert found["start"]["fields"]["num_sms"] == 108
    assert found["improvement_pct"] == pytest.approx(
        100 * (1 - found["best"]["energy_j"] / found["start"]["energy_j"])
    )
    sizes = [
        abs(x["elasticity"])
        for x in found["sensitivities"]
        if x["elasticity"] != None  # noqa: E711
    ]
    assert sizes == sorted(sizes, reverse=True)
    assert found["sensitivities"][-1]["elasticity"] is None  # no fp8 on an A100


@pytest.mark.slow
def test_the_best_keeps_limits_and_legal_values(design: tuple[dict[str, Any], Path]):
    found, _ = design
    best, fields = found["best"], found["best"]["fields"]
    assert best["area_mm2"] <= 700 * (1 + 1e-9) and best["violation_pct"] == 0
    assert best["energy_j"] < found["start"]["energy_j"]
    assert (fields["num_sms"] - 108) % 16 == 0  # GPCs of 16 SMs
    assert round((1410e6 - fields["sm_clock"]) / 15e6, 6).is_integer()
    stacks = fields["dram_bandwidth"] / (2.039e12 / 5)
    assert round(stacks, 6).is_integer()


@pytest.mark.slow
def test_the_start_is_what_estimate_says(
    run: Run, listing: Path, design: tuple[dict[str, Any], Path]
):
    start = design[0]["start"]
    said = run("estimate", listing, "--workload", "x", *GPU, "--json").json
    for key in ("time_s", "energy_j", "avg_power_w", "ttft_s", "tpot_s"):
        assert start[key] == pytest.approx(said[key], rel=1e-9)
    tokens = BATCH * OUTPUT
    assert start["energy_j_per_token"] == pytest.approx(start["energy_j"] / tokens)
    assert start["area_mm2"] == pytest.approx(826)  # published, GA100


@pytest.mark.slow
def test_the_file_is_a_gpu_that_answers_like_the_best(
    run: Run, listing: Path, design: tuple[dict[str, Any], Path]
):
    found, out = design
    clock = str(found["best"]["fields"]["sm_clock"] / 1e6)
    words = ("estimate", listing, "--workload", "x", "--gpu", out)
    said = run(*words, "--sm-clock", clock, "--json").json
    for key in ("time_s", "energy_j", "avg_power_w"):
        assert said[key] == pytest.approx(found["best"][key], rel=1e-9)
    assert said["grade"] == "forecast" and said["gpu"] == "small"
    table = tomllib.loads(out.read_text())
    assert table["corrections"] == "a100-sxm-80gb" and table["aliases"] == []
    assert table["num_sms"] == found["best"]["fields"]["num_sms"]
    assert table["physical"]["die_area_mm2"] == found["best"]["area_mm2"]
    made = table["provenance"]["num_sms"]
    assert made["quality"] == "derived"
    assert made["source"] == "diffenergy codesign from a100-sxm-80gb"
    assert "on dies left out" in table["provenance"]["die_area_mm2"]["source"]
    assert table["provenance"]["warp_size"]["source"] != made["source"]
    text = out.with_suffix(".json").read_text()
    check("codesign", text)
    beside = json.loads(text)
    assert {**beside, "path": None} == {**found, "path": None}
    assert len(beside["path"]) >= 3 and beside["path"][0]["round"] == 1


@pytest.mark.slow
def test_python_answers_as_the_command(
    listing: Path, design: tuple[dict[str, Any], Path]
):
    said, out = design
    given = {
        "vary": {
            "num_sms": None,
            "dram_bandwidth": (1e12, 3e12),
            "sm_clock": (900e6, 1410e6),
        },
        "limits": {"area": 700},
        "effort": Effort(starts=6, rounds=3),
    }
    found = search(listing, "a100-sxm-80gb", workload="x", **given)
    assert {**found.summary, "schema": 1, "wall_s": 0} == {**said, "wall_s": 0}
    assert found.to_toml("small") == out.read_text()
    assert found.path == json.loads(out.with_suffix(".json").read_text())["path"]
    assert found.best.energy == said["best"]["energy_j"] < found.start.energy
    assert json.loads(found.to_json()) == {"schema": 1} | found.summary
    assert "energy" in repr(found) and "num_sms" in repr(found)
    assert f"{said['best']['fields']['num_sms']:g}" in found._repr_html_()
    task = prepare(str(listing), read_gpu("a100-sxm-80gb"), workload="x")
    again = search(task, **given)
    assert again.best == found.best


@pytest.mark.long
@pytest.mark.slow
def test_python_mixes_and_tunes_as_the_command(run: Run, listing: Path):
    words = ("codesign", listing, "--workload", "y", *GPU, *SPACE, *QUICK)
    more = ("--workload", f"{listing} --workload z", "--weight", "3", "--json")
    said = run(*words, *more).json
    mix = [Part(listing, 1.0, {"workload": "y"}), Part(listing, 3, {"workload": "z"})]
    vary = [
        "num_sms", Range("dram_bandwidth", 1e12, 3e12), Range("sm_clock", 900e6, 1410e6)
    ]  # fmt: skip
    found = search(mix, "a100-sxm-80gb", vary=vary, effort=Effort(starts=6, rounds=3))
    assert {**found.summary, "schema": 1, "wall_s": 0} == {**said, "wall_s": 0}
    words = ("codesign", listing, "--workload", "y", *GPU, "--tune-tiles", "--json")
    tuned = tune(str(listing), "a100-sxm-80gb", workload="y")
    assert {"schema": 1} | tuned.summary == run(*words).json
    (kernel,) = tuned.listings[0].kernels
    assert kernel["tile_m"] == tuned.summary["gemms"][0]["tile_m"]
    assert "1 matrix products" in repr(tuned) and "GEMM" in tuned._repr_html_()


@pytest.mark.slow
def test_a_design_is_a_base_of_the_next(
    run: Run, words: tuple[object, ...], design: tuple[dict[str, Any], Path]
):
    found, out = design
    again = [out if word == "a100-sxm-80gb" else word for word in words]
    start = run(*again, "--json").json["start"]
    assert start["area_mm2"] == pytest.approx(found["best"]["area_mm2"], rel=1e-9)


@pytest.mark.slow
def test_limits_of_tokens_and_costs(run: Run, words: tuple[object, ...]):
    limits = ("--max-ttft", "1", "--max-tpot", "1", "--max-power", "300")
    priced = ("--price", "0.5", "--max-cost", "350")
    goal = ("--objective", "energy_per_token")
    found = run(*words, *limits, *priced, *goal, "--json").json
    best = found["best"]
    assert best["objective"] == pytest.approx(best["energy_j_per_token"])
    assert best["energy_j_per_token"] == pytest.approx(best["energy_j"] / 32)
    assert best["cost"] == pytest.approx(0.5 * best["area_mm2"]) and best["cost"] <= 350
    said = {limit["name"]: limit["limit"] for limit in found["limits"]}
    assert said == {"max_ttft": 1, "max_tpot": 1, "max_power": 300, "max_cost": 350}


@pytest.mark.slow
def test_a_latency_holds_the_design_back(
    run: Run, words: tuple[object, ...], design: tuple[dict[str, Any], Path]
):
    latency = 1.05 * design[0]["start"]["time_s"]
    limited = (*words, "--objective", "area", "--max-latency")
    found = run(*limited, "105%", "--json").json
    assert found["limits"][0]["limit"] == pytest.approx(latency, rel=1e-9)
    assert found["best"]["time_s"] <= latency * (1 + 1e-9)
    names = {x["name"]: x for x in found["active_constraints"]}
    assert names["max_latency"]["multiplier"] >= 0
    assert names["max_latency"]["unit"] == "mm2/(s)"
    shown = run(*limited, f"{1e3 * latency}ms")
    assert "of latency saves" in shown.out and "max latency" in shown.out


@pytest.mark.slow
def test_a_front_is_undominated(run: Run, words: tuple[object, ...]):
    found = run(*words, "--objective", "time,energy", "--json").json
    front = [(x["time_s"], x["energy_j"]) for x in found["pareto"]]
    assert len(front) > 2 and front == sorted(front)
    energies = [energy for _, energy in front]
    assert energies == sorted(energies, reverse=True)
    assert found["best"]["time_s"] == front[0][0]


@pytest.mark.long
@pytest.mark.slow
def test_weights_count_runs(run: Run, listing: Path):
    space = ("--vary", "num_sms", *GPU, *QUICK, "--json")
    single = {
        name: run("estimate", listing, "--workload", name, *GPU, "--json").json
        for name in "yz"
    }
    mixed = run(
        *("codesign", "--workload", f"{listing} --workload y", "--weight", "2"),
        *("--workload", f"{listing} --workload z", "--weight", "3", *space),
    ).json
    for key in ("time_s", "energy_j"):
        expected = 2 * single["y"][key] + 3 * single["z"][key]
        assert mixed["start"][key] == pytest.approx(expected, rel=1e-9)
    assert [member["weight"] for member in mixed["workloads"]] == [2, 3]
    own = run(
        *("codesign", listing, "--workload", "y", "--weight", "2", "--weight", "3"),
        *("--workload", f"{listing} --workload z", *space),
    ).json
    assert own["start"] == mixed["start"] and own["best"] == mixed["best"]


@pytest.mark.slow
def test_what_cannot_be_met_is_said(
    run: Run, words: tuple[object, ...], tmp_path: Path
):
    out = tmp_path / "never.toml"
    done = run(*words, "--max-latency", "1e-6", "--out", out)
    assert done.code == 3 and done.out == "" and not any(tmp_path.iterdir())
    *progress, line = done.err.splitlines()
    assert all(x.startswith("diffenergy: search: ") for x in progress)
    assert "`--max-latency` (allowed 1.000 us" in line and "cannot be met;" in line
    assert "its fields: num_sms " in line


@pytest.mark.slow
def test_ctrl_c_keeps_the_best_so_far(
    run: Run,
    words: tuple[object, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    import contextlib

    @contextlib.contextmanager
    def impatient(*_: object):
        def tell(done: int, cost: float):
            if done == 2:
                raise KeyboardInterrupt

        yield tell

    monkeypatch.setattr(codesign, "progress", impatient)
    out = tmp_path / "kept.toml"
    done = run(*words, "--out", out, "--json")
    assert done.code == 130 and "interrupted" in done.err
    found = json.loads(done.out)
    assert found["interrupted"] and found["best"]["violation_pct"] == 0
    table = tomllib.loads(out.read_text())
    assert table["num_sms"] == found["best"]["fields"]["num_sms"]


@pytest.mark.slow
def test_tiles_and_tables(run: Run, listing: Path, tmp_path: Path):
    out = tmp_path / "tiles.json"
    words = ("codesign", listing, "--workload", "y", *GPU, "--vary", "tiles", *QUICK)
    done = run(*words, "--out", out)
    assert done.code == 0, done.err
    found = json.loads(out.read_text())
    (tile,) = found["best"]["fields"]["tiles"]
    assert (tile["m"], tile["n"], tile["k"], tile["count"]) == (1024, 4096, 2048, 8)
    text = "x".join(str(tile[x]) for x in ("tile_m", "tile_n", "tile_k", "stages"))
    assert text in done.out and "tile x stages" in done.out
    assert found["start"]["fields"]["tiles"] == []  # the library chooses


@pytest.mark.slow
def test_tuned_tiles_are_a_listing(run: Run, listing: Path, tmp_path: Path):
    out = tmp_path / "tuned.jsonl"
    words = ("codesign", listing, "--workload", "y", *GPU, "--tune-tiles")
    found = run(*words, "--out", out, "--json").json
    (gemm,) = found["gemms"]
    assert gemm["default_costs_more_pct"] >= 0 and found["goal"] == "time"
    (line,) = map(json.loads, out.read_text().splitlines())
    assert line["kernels"][0]["tile_m"] == gemm["tile_m"]
    said = run("estimate", out, *GPU, "--json").json
    assert said["time_s"] == pytest.approx(found["time_s"], rel=1e-6)


def test_words_are_choices(run: Run, tmp_path: Path):
    """One table of the processes, best first; the file holds the words of the best."""
    path = tmp_path / "next.toml"
    words = ("codesign", "gpt2", "--gpu", "h100-sxm", "--phase", "decode")
    vary = ("--vary", "process_node=4N,N3P,memory=HBM3,HBM4", "--out", path)
    answer = run(*words, *vary, "--json").json
    found = [x["words"]["process_node"] for x in answer["choices"]]
    assert sorted(found) == ["4N", "4N", "N3P", "N3P"] and found[0] == "N3P"
    energies = [x["energy_j"] for x in answer["choices"]]
    assert energies == sorted(energies) and answer["best"]["energy_j"] == energies[0]
    assert answer["start"]["energy_j"] == max(energies)  # an H100 as it is
    assert 'process_node = "N3P"' in path.read_text()


def test_inputs_are_never_overwritten(run: Run, tmp_path: Path, listing: Path):
    out = tmp_path / "base.toml"
    out.write_text(run("gpus", "show", "a10", "--toml").out)
    before = out.read_text()
    words = ("codesign", listing, "--workload", "x", "--gpu", out, "--vary", "num_sms")
    done = run(*words, "--out", out)
    assert done.code == 2 and "never overwritten" in done.err
    assert out.read_text() == before
