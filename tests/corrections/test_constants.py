"""The table of constants: one row says all that fits and reports need of a constant."""

import re
from pathlib import Path

import pytest

from diffenergy import kernels
from diffenergy.corrections import (
    ACTIVITY_CONSTANTS,
    ANY_ROWS,
    CONSTANTS,
    PRIOR_FACTORS,
    SENSOR_CONSTANTS,
    TILED_RECORDS,
    instruments,
)
from diffenergy.corrections._generations import generations
from diffenergy.hardware import gpu_names, read_gpu

PHYSICS = Path(__file__).parents[2] / "docs" / "physics.md"
KINDS = {*ANY_ROWS, "kernel", "stream", "workload", "plan", "activity"}
FREES = {*ANY_ROWS, *TILED_RECORDS, "workload", "plan", *kernels.ops()}
LEVELS = {"global", "own", "gpu", "mma", "dies", "memory", "architecture"}
EVERY = {**CONSTANTS, **SENSOR_CONSTANTS}


@pytest.mark.parametrize("name", EVERY)
def test_a_constant_has_movers_a_closing_measurement_and_a_source(name: str):
    """Rows, levels and sections that exist: an unknown word would move nothing."""
    row = EVERY[name]
    assert row.rows and {*row.rows} <= KINDS and {*row.frees} <= FREES
    assert {*row.tiles} <= {*TILED_RECORDS}
    tags = {tag for gpu in gpu_names() for tag in read_gpu(gpu).tags}
    if name in SENSOR_CONSTANTS:
        assert row.levels == ("gpu",)
    else:
        assert {*row.levels} <= LEVELS | tags
    if row.rows == ("activity",):
        assert name in ACTIVITY_CONSTANTS
    sections = re.findall(r"^##+ (.*)$", PHYSICS.read_text(encoding="utf-8"), re.M)
    assert row.source in sections
    assert row.closes and row.what and row.sd > 0
    assert 0 < row.centre and (row.centre < 1 or not row.share)


def test_prior_factors_are_of_constants_and_tags():
    """Of nodes and generations also those that no bundled GPU has."""
    tags = {tag for gpu in gpu_names() for tag in read_gpu(gpu).tags}
    tags |= {f"architecture:{name}" for name in generations()}
    assert {tag for tag in PRIOR_FACTORS if tag.partition(":")[0] != "node"} <= tags
    assert {*ACTIVITY_CONSTANTS} <= {*CONSTANTS}
    for factors in PRIOR_FACTORS.values():
        assert {*factors} <= {*CONSTANTS}


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
