"""What the meter of public campaigns needs to know: their numbers, facts of rows, and
which rows a fit can use."""

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibration.campaigns import instruments, meter, model_of
from calibration.campaigns.instruments import SENSOR_CONSTANTS
from calibration.campaigns.reading import CampaignReading, by_row, facts_of
from diffenergy import measurements
from diffenergy.corrections import prior_file
from diffenergy.fitting._batches import batches
from diffenergy.kernels import units_dealt

README = Path(__file__).parents[2] / "calibration" / "campaigns" / "README.md"


@pytest.mark.parametrize("name", SENSOR_CONSTANTS)
def test_a_constant_has_a_closing_measurement_and_a_source(name: str):
    row = SENSOR_CONSTANTS[name]
    assert (
        row.levels == ("gpu",) and row.closes and row.what and row.sd > 0 < row.centre
    )
    assert re.search(rf"^#+ {row.source}$", README.read_text(encoding="utf-8"), re.M)


def test_an_instrument_shares_what_it_says_it_shares():
    """By hand from the file: shared numbers first, its own over them, then the sensor's
    prior centres; calls less what a reading adds, and a burst that never ends."""
    known = instruments()
    assert known["a100"] == {"startup_seconds": 1.65, "startup_power": 60.0}
    moe = known["vllm/0.22.0:moe"]
    assert (moe["loop_body"], moe["background"], moe["gap"]) == (70e-6, 140.0, 0.02)
    gemm = known["vllm/0.22.0:gemm"]
    assert (gemm["unfilled"], gemm["unfilled_fp8_block"]) == (1.0, 0.0)
    assert "unfilled" not in known["trtllm/1.0:gemm"]
    assert (gemm["weight_copies"], gemm["warm_share"]) == (6.0, 1.0)
    assert "gap" not in gemm
    calls = known["neusight:gemm@t4"]
    assert calls["call_seconds_linear"] == pytest.approx(51e-6)
    assert calls["burst"] == float("inf")
    vector = known["neusight:elementwise@mi100"]
    assert vector["loop_seconds"] == pytest.approx(4.5e-6)
    assert vector["loop_seconds_powu"] == pytest.approx(8.5e-6)


def test_host_of_the_campaign():
    """A call of `nn.Linear` costs more than one of a batched product; nothing else of
    the campaign is special to a GPU but the T4, at its cap from the start."""
    file, cards = prior_file(), ("a100-pcie-40gb", "v100-pcie-32gb", "p100-pcie-16gb")
    for card in (*cards, "h100-sxm"):
        model = model_of(file, "neusight", "gemm", card)
        assert 2e-5 < model["call_seconds"] < model["call_seconds_linear"] < 1e-4
        assert model["burst"] == 1
    assert math.isinf(model_of(file, "neusight", "gemm", "t4")["burst"])
    assert model_of(file, "neusight", "gemm", "l40s") == {"burst": 1.0}


@pytest.mark.parametrize(
    ("campaign", "bursts", "sampling"),
    [("neusight", True, ""), ("vllm/0.22.0", False, "series"), ("x", False, "")],
)
def test_how_rows_are_read(tmp_path: Path, campaign: str, bursts: bool, sampling: str):
    """By their campaign; a word that no file has reads the steady state."""
    head = "gpu,op,m,n,k,dtype,campaign,time_us,avg_power_w"
    (tmp_path / "rows.csv").write_text(
        f"{head}\na10,gemm,64,64,64,bf16,{campaign},9,100"
    )
    table = measurements.read([str(tmp_path / "rows.csv")], meter=meter)
    (batch,) = batches(table, prior_file())
    assert isinstance(batch.reading, CampaignReading)
    assert (batch.reading.bursts, batch.reading.sampling) == (bursts, sampling)
    assert bool(batch.meter_constants) is bool(sampling)


def test_rows_that_no_fit_can_use(tmp_path: Path):
    """Power of 16-bit products below 20 us and of fp8 below 100 us, and rows within the
    launch loop: 3 us, 100 us of fp8; without a time they stay."""
    head = "gpu,framework,dtype,m,n,k,time_us,avg_power_w"
    times = [("bf16", 2), ("bf16", 19), ("bf16", 21), ("fp8_block", 99)]
    times += [("fp8_block", 101), ("bf16", 19)]
    lines = [f"h200-sxm,vllm/0.22.0,{x},64,4096,4096,{t},400" for x, t in times]
    (tmp_path / "short.csv").write_text("\n".join([head, *lines]))
    table = measurements.read([f"gemm={tmp_path / 'short.csv'}"], meter=meter)
    table.time_s[5] = np.nan
    left = meter.usable(table, prior_file())
    read = np.isfinite(left.avg_power_w).tolist()
    assert read == [False, False, True, False, True, True]
    assert (left.skipped == "").tolist() == [False, True, True, False, True, True]
    assert set(table.skipped) == {""}


def facts(op: str, model: dict[str, Any], **cells: object) -> dict[str, list[float]]:
    """Facts of the rows 2 and 0 of three."""
    pick = [2, 0]
    values = {name: np.array(column, object)[pick] for name, column in cells.items()}
    result = facts_of(model, op, values, len(pick))
    return {name: x.tolist() for name, x in result.items()}


LOOP = {"loop_seconds": [0, 0], "call_seconds": [0, 0], "loop": [1, 1],
        "loop_body": [0, 0], "unfilled": [0, 0]}  # fmt: skip
"""What is assumed where a model says nothing."""


def test_facts_of_products():
    """All sets of weights are 12 bytes for each of n x k; fp8 is narrow; the largest
    operands, and shapes in cold blocks, are told."""
    sizes = dict(m=[64, 1, 32768], n=[8192, 1, 1024], k=[65536, 1, 2048])
    cells = sizes | {"dtype": ["bf16", "bf16", "fp8_block"]}
    model: dict[str, Any] = {"warm_share": 1.0, "loop_fp8_block": 3.0, "loop": 6.0}
    model["cold_blocks"] = [(64.0, 8192.0, 9000.0)]
    sets = {
        "rows": [32768, 64], "operand_bytes": [12 * 1024 * 2048, 12 * 8192 * 65536],
    }  # fmt: skip
    assert facts("gemm", model, **cells) == LOOP | sets | {
        "loop": [3, 6],
        "narrow": [1, 0],
        "fresh": [1, 1],
        "cold": [0, 1],
    }
    del model["cold_blocks"]
    assert facts("gemm", model, **cells)["cold"] == [0, 0]
    assert facts("gemm", {"loop": 2.0}, **cells) == LOOP | sets | {"loop": [2, 2]}
    left = {"unfilled": 1.0, "unfilled_fp8_block": 0.0}  # blocks have random weights
    assert facts("gemm", left, **cells) == LOOP | sets | {"unfilled": [0, 1]}
    assert facts("linear", model, **cells) == LOOP | {"loop": [3, 6]}


def test_facts_of_attention():
    """Two bytes a value of queries, keys and values; from a length on runs are
    fresh."""
    cells = dict(
        batch=[2, 1, 3], q_len=[100, 1, 99], kv_len=[200, 1, 50], num_heads=[8, 1, 16],
        num_kv_heads=[2, 1, 4], head_dim=[64, 1, 128],
    )  # fmt: skip
    long, short = (
        2 * 2 * (100 * 8 + 2 * 200 * 2) * 64,
        2 * 3 * (99 * 16 + 2 * 50 * 4) * 128,
    )
    both = LOOP | {"sequences": [3, 2], "operand_bytes": [short, long]}
    gap = {"gap": 0.3}
    assert facts("context_attention", gap, **cells) == both
    first = gap | {"first_q_len": 100}
    assert facts("context_attention", first, **cells) == both | {"fresh": [0, 1]}
    assert facts("context_attention", {}, **cells) == LOOP


def test_facts_of_experts():
    """Units that the host deals out first; other ops of such a campaign have none."""
    cells = dict(
        num_tokens=[64, 1, 64], num_experts=[8, 1, 8], topk=[2, 1, 2],
        distribution=["power_law_1.2", "balanced", "balanced"],
    )  # fmt: skip
    dealt = units_dealt(64, 8, 2, "power_law_1.2")
    assert dealt > 0
    assert facts("moe", {"gap": 0.02}, **cells) == LOOP | {"sequences": [0, dealt]}
    assert facts("moe", {}, **cells) == LOOP
    assert facts("softmax", {"gap": 0.02}, rows=[1, 2, 3]) == LOOP


def test_a_number_of_a_meter_by_dtype_or_family():
    """Looked up with what the row has behind its name, else alone."""
    words = np.array(["fp8", "bf16"], object)
    model = {"warm": 1.0, "warm_fp8": 2.0, "cold_wide": 5.0}
    assert by_row(model, "warm", {}, 2).tolist() == [1, 1]
    assert by_row(model, "warm", {"dtype": words}, 2).tolist() == [2, 1]
    assert by_row(model, "cold", {"dtype": words}, 2, 0.5).tolist() == [0.5, 0.5]
    model["warm_bf16x"] = 7.0
    kinds = {"dtype": words, "family": np.array(["x", "bf16x"], object)}
    assert by_row(model, "warm", kinds, 2).tolist() == [2, 7]
