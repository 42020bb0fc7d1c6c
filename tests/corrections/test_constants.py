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
    TILED_RECORDS,
    generations,
)
from diffenergy.hardware import gpu_names, read_gpu

PHYSICS = Path(__file__).parents[2] / "docs" / "physics.md"
KINDS = {*ANY_ROWS, "kernel", "stream", "workload", "plan", "activity"}
FREES = {*ANY_ROWS, *TILED_RECORDS, "workload", "plan", *kernels.ops()}
LEVELS = {"global", "own", "gpu", "mma", "dies", "memory", "architecture"}


@pytest.mark.parametrize("name", CONSTANTS)
def test_a_constant_has_movers_a_closing_measurement_and_a_source(name: str):
    """Rows, levels and sections that exist: an unknown word would move nothing."""
    row = CONSTANTS[name]
    assert row.rows and {*row.rows} <= KINDS and {*row.frees} <= FREES
    assert {*row.tiles} <= {*TILED_RECORDS}
    tags = {tag for gpu in gpu_names() for tag in read_gpu(gpu).tags}
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
