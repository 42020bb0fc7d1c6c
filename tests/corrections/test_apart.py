"""Constants that a second fit made are not said to be the first one's."""

import numpy as np

from diffenergy.corrections import CONSTANTS, constant_rows, read_corrections
from diffenergy.hardware import read_gpu

PLANS = {x for x in CONSTANTS if x.startswith(("training_", "plan_"))}
PLANS -= {"plan_experts_contention"}  # a prior: one published pair has it alone
"""Fitted to training steps by `calibration/studies/training/left_out.py`."""
APART = PLANS | {"energy_fp8_block"}  # the latter by `calibration/energies.py`


def test_the_shipped_posterior_leaves_out_what_was_fitted_apart():
    file = read_corrections(None)
    assert file.posterior is not None and len(PLANS) == 16
    apart = set(file.fitted_on["apart"])
    assert {x for x in apart if "/" not in x} == APART
    assert "architecture:CDNA4/fp8_block_efficiency" in apart
    assert not apart & {*file.posterior["parameters"]}
    names = [x.partition("/")[2] for x in file.posterior["parameters"]]
    assert not APART & {*names}
    size = len(names)
    assert len(file.posterior["sd"]) == size
    whole = np.zeros((size, size))
    whole[np.tril_indices(size)] = file.posterior["correlation"]
    assert (np.diag(whole) == 1).all() and np.abs(whole).max() == 1


def test_a_report_says_which_constants_were_fitted_apart():
    rows = constant_rows(read_gpu("h100-sxm"), read_corrections(None))
    basis = {row["name"]: row["basis"] for row in rows}
    assert {x for x in basis if basis[x] == "fitted apart"} == APART
    (gemm,) = [row for row in rows if row["name"] == "training_gemm"]
    assert "(fit)" not in gemm["spread"] and "global ±0.1 (prior)" in gemm["spread"]
    assert basis["tensor_efficiency"] == "fitted"


def test_a_level_fitted_apart_counts_as_fitted():
    """Rates of CDNA4 by tuned tables, on top of a fitted global value."""
    rows = constant_rows(read_gpu("mi355x"), read_corrections(None))
    basis = {row["name"]: row["basis"] for row in rows}
    assert basis["fp8_block_efficiency"] == "fitted"
    assert basis["idle_scale"] != "fitted"  # its global value is a prior
