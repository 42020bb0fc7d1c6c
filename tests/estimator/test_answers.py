"""What an answer says of its temperature, its grades and its intervals."""

import dataclasses
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import pytest

import diffenergy as de
from diffenergy.corrections import (
    CorrectionsFile,
    prior_file,
    read_corrections,
    write_corrections,
)
from diffenergy.estimator import prepare
from diffenergy.estimator._asking.settings import throttling
from diffenergy.hardware import read_gpu
from diffenergy.workload import assemble, load_model

GPU = "a100-pcie-40gb"
PRODUCT = dict(op="gemm", m=8192, n=8192, k=8192, dtype="bf16")
QUANTITIES = {"time": "time_s", "power": "avg_power_w", "energy": "energy_j"}


@pytest.fixture
def listing(tmp_path: Path):
    """`listing(*kernels)`: a file of one workload."""

    def listing(*kernels: Mapping[str, Any]) -> str:
        path = tmp_path / "one.jsonl"
        work = {"name": "one", "kernels": [*kernels], "dispatch": "graph"}
        path.write_text(json.dumps(work))
        return str(path)

    return listing


# --- what is remembered between answers


def test_a_changed_answer_leaves_the_next_one_as_it_was():
    first = prepare("gpt2", GPU, batch=2)
    listings = json.dumps([x.kernels for x in first.listings])
    summary = json.dumps(first.run().summary)
    for kernel in first.listings[0].kernels:
        kernel.clear()  # pyright: ignore[reportAttributeAccessIssue]
    for record in (first.about["assumed"], first.memory, first.warnings):
        record.clear()
    again = prepare("gpt2", GPU, batch=2)
    assert json.dumps([x.kernels for x in again.listings]) == listings
    assert json.dumps(again.run().summary) == summary


def test_equal_listings_are_one_workload_and_changed_ones_another(listing: Any):
    def work(**changes: Any):
        return assemble(prepare(listing(PRODUCT | changes), GPU).listings)

    assert work() is work()
    assert work(m=4096) is not work()
    assert work(m=4096).shapes[0].m[0] == 4096  # pyright: ignore


def test_a_workload_that_a_traced_function_listed_first_is_numbers():
    model, choices = load_model("gpt2"), {"batch": 3, "input_len": 17}

    @jax.jit
    def first(x: jax.Array):
        shapes = model.workload(**choices).shapes
        return x + sum(leaf.sum() for leaf in jax.tree.leaves(shapes))

    total = first(jax.numpy.zeros(()))
    again = jax.tree.leaves(model.workload(**choices).shapes)
    assert float(total) == pytest.approx(sum(float(x.sum()) for x in again))


def test_an_answer_repeats_what_drafts_where_something_does():
    drafts: dict[str, Any] = dict(speculative="eagle", accept=0.8, draft_tokens=3)
    of_drafts = drafts | {"tokens_per_step": 1 + 0.8 + 0.8**2 + 0.8**3}
    for options, expected in (({}, {}), (drafts, of_drafts)):
        about = prepare("gpt2", GPU, phase="decode", **options).about
        repeated = {x: about[x] for x in of_drafts if x in about}
        assert repeated == pytest.approx(expected)


# --- temperature


@pytest.mark.parametrize("limit", [None, 150.0])
@pytest.mark.slow
def test_the_temperature_that_is_reached_is_a_fixed_point(listing, limit):
    """Ambient air and what the power lifts it by, also at a power limit; a temperature
    of the request stays."""
    limits, work = None if limit is None else [limit], listing(PRODUCT)
    result = prepare(work, GPU, power_limit=limits).run().summary
    card = read_gpu(GPU).values
    lifted = card["thermal_resistance"] * result["avg_power_w"]
    reached = card["ambient_temperature"] + lifted
    assert result["temperature_c"] == pytest.approx(reached, abs=0.2)
    assert result["temperature_c"] > 45
    result = prepare(work, GPU, power_limit=limits, temperature=61.5).run().summary
    assert result["temperature_c"] == 61.5
    assert [x["temperature_c"] for x in result["phases"].values()] == [61.5]


@pytest.mark.slow
def test_the_temperature_is_that_of_the_hottest_phase():
    result = prepare("gpt2", GPU, batch=8, input_len=512, output_len=4).run().summary
    prefill, decode = (x["temperature_c"] for x in result["phases"].values())
    assert result["temperature_c"] == prefill > decode > 30


@pytest.mark.slow
def test_a_board_that_is_too_hot_has_a_warning(listing):
    """Above 95 C, which no given temperature may be either."""
    assert throttling(95.0) == []
    (note,) = throttling(95.6)
    assert note.startswith("the chip would reach 96 C, above the 95 C at which")
    hot, work = {"thermal_resistance": 0.15}, listing(PRODUCT)

    def of_heat(result: Any) -> list[str]:
        return [x.split(",")[0] for x in result.warnings if "the chip would" in x]

    result = prepare(work, "h100-sxm", changes=hot).run()
    reached = result.summary["temperature_c"]
    assert reached > 110 and of_heat(result) == [
        f"the chip would reach {reached:.0f} C"
    ]
    assert of_heat(prepare(work, "h100-sxm").run()) == []
    swept = prepare(work, "h100-sxm", changes=hot, sm_clock=[6e8, 1.98e9]).run()
    low, top = (x["temperature_c"] for x in swept.summary["points"])
    assert low < top and f"the chip would reach {top:.0f} C" in of_heat(swept)


@pytest.mark.parametrize("name", [GPU, "v100-pcie-16gb"])
def test_leakage_at_30_c_is_above_zero(listing, name: str):
    """As it is printed, and less than at 60 C by the e-fold of the GPU's process."""
    work = listing(PRODUCT | {"m": 256, "dtype": "fp32"})
    watts = []
    for temperature in (30.0, 60.0):
        task = prepare(work, name, temperature=temperature, sm_clock=[9e8])
        result = task.run().summary
        assert result["limited_by"] != "power"
        parts = result["energy_j_by_unit"]
        assert parts["idle"] > 0
        watts.append(parts["leakage"] / result["time_s"])
    efold = float(read_corrections().serve(read_gpu(name)).leakage_efold)
    assert watts[0] > 0.1
    assert watts[1] / watts[0] == pytest.approx(math.exp(30 / efold))


# --- grades


def fitted(rows: dict[str, Any], **more: Any) -> CorrectionsFile:
    """Priors that claim these rows of Ampere GPUs; widths tell grades apart."""
    spread = {
        f"workload:{grade}": {q: [size] * 4 for q in QUANTITIES}
        for grade, size in (
            ("calibrated", 0.11), ("transferred", 0.22), ("forecast", 0.33),
            ("clock", 0.44), ("length", 0.55),
        )
    }  # fmt: skip
    names = {x.partition(":")[0] for x in rows}
    on = {"rows": rows, "architectures": dict.fromkeys(names, "architecture:Ampere")}
    return dataclasses.replace(prior_file(), fitted_on=on | more, spread=spread)


@pytest.fixture
def ask(tmp_path: Path, listing):
    """`ask(file, gpu, *ops)`: the summary of a listing of these ops."""
    kernels = {
        "gemm": PRODUCT,
        "softmax": dict(op="softmax", rows=4096, cols=4096, dtype="fp16"),
        "gather": dict(op="gather", rows=4096, cols=4096, dtype="fp16"),
    }

    def ask(file: CorrectionsFile, gpu: str, *ops: str, **questions: Any) -> Any:
        path = tmp_path / "c.json"
        path.write_text(write_corrections(file))
        work = listing(*(kernels[op] for op in ops))
        return prepare(work, gpu, corrections=str(path), **questions).run().summary

    return ask


PASSES = {"time": 50, "power": 50, "ops": ["gemm", "softmax"]}


@pytest.mark.parametrize(
    ("gpu", "ops", "power", "grades"),
    [
        (GPU, ("gemm", "softmax"), 50, ("calibrated", "calibrated")),
        (GPU, ("gemm", "gather"), 50, ("forecast", "forecast")),
        (GPU, ("gemm",), 0, ("calibrated", "forecast")),
        ("a10", ("gemm",), 50, ("transferred", "transferred")),
        ("h100-sxm", ("gemm",), 50, ("forecast", "forecast")),
    ],
)
def test_grades_of_an_answer(ask, gpu: str, ops, power: int, grades):
    """Rows of the GPU, the kernels and the quantity; the least is the grade."""
    file = fitted({f"{GPU}:workload": PASSES | {"power": power}})
    result = ask(file, gpu, *ops)
    time, drawn = grades
    assert result["grades"] == {"time": time, "power": drawn, "energy": drawn}
    assert result["grade"] == drawn


def test_intervals_are_those_of_each_quantity(ask):
    """Power that was never read is known as that of GPUs that were left out, and all
    are wider by what the file of the GPU guesses."""
    result = ask(fitted({f"{GPU}:workload": PASSES | {"power": 0}}), GPU, "softmax")
    for quantity, least in (("time", 0.11), ("power", 0.33), ("energy", 0.45)):
        name = QUANTITIES[quantity]
        low, high = result[f"{name}_p5_p95"]
        assert low * high == pytest.approx(result[name] ** 2)
        assert least <= math.log(high / low) / 2 + 1e-9 < least + 0.1


@pytest.mark.parametrize(
    ("options", "size"),
    [
        ({"sm_clock": [9e8]}, 0.11),
        ({"sm_clock": [0.98 * 9e8]}, 0.11),  # as near as measured clocks are
        ({"sm_clock": [6e8]}, 0.44),
    ],
)
def test_clocks_below_the_fitted_ones_are_known_less(ask, options, size: float):
    file = fitted({f"{GPU}:workload": PASSES}, sm_clock_min={GPU: 9e8})
    result = ask(file, GPU, "softmax", **options)
    low, high = result["time_s_p5_p95"]
    assert math.log(high / low) / 2 == pytest.approx(size)
    assert result["grades"]["time"] == "calibrated"


# --- clocks and limits that a board has not


def test_clocks_between_the_steps_are_a_warning():
    """Steps of 15 MHz down from 2040; memory locks 405 or 6251 MHz."""

    def warnings(**point) -> list[str]:
        return prepare("gpt2", "l4", phase="prefill", input_len=64, **point).warnings

    assert warnings(sm_clock=[2.04e9, 9.9e8], mem_clock=[4.05e8]) == []
    assert warnings(sm_clock=[9.9e8, 1e9, 1.001e9]) == [
        "l4 cannot set its SM clock to 1000 MHz; nearest: 990, 1005 MHz.",
        "l4 cannot set its SM clock to 1001 MHz; nearest: 990, 1005 MHz.",
    ]
    (memory,) = warnings(mem_clock=[5e9])
    assert memory == (
        "l4 cannot set its memory clock to 5000 MHz; nearest: 405, 6251 MHz."
    )


def test_an_l4_reaches_the_published_share_of_its_fp32_peak(tmp_path: Path):
    """NeuSight's products in fp32: 43 % of 31.33 TFLOP/s, under its 72 W."""
    size = dict(op="gemm", dtype="fp32", m=8192, n=8192, k=8192, count=1)
    run = {"name": "product", "phase": "forward", "kernels": [size]}
    (tmp_path / "product.jsonl").write_text(json.dumps(run))
    answer = de.estimate(str(tmp_path / "product.jsonl"), "l4").summary
    rate = 2 * 8192**3 / answer["time_s"]
    assert rate == pytest.approx(0.43 * 31.334e12, rel=0.01)
    assert answer["avg_power_w"] > 70 and answer["sm_clock_mhz"] < 2040
