"""Constants that a second fit made are not said to be the first one's."""

import numpy as np

from diffenergy.corrections import CONSTANTS, read_corrections
from diffenergy.hardware import read_gpu
from diffenergy.report._page.parts.rests import coefficients

PLANS = {x for x in CONSTANTS if x.startswith(("training_", "plan_"))}
"""Fitted to training steps by `calibration/studies/training/left_out.py`."""


def test_the_shipped_posterior_leaves_out_what_was_fitted_apart():
    file = read_corrections(None)
    assert file.posterior is not None and len(PLANS) == 16
    assert set(file.fitted_on["apart"]) == PLANS
    names = [x.partition("/")[2] for x in file.posterior["parameters"]]
    assert not PLANS & {*names}
    size = len(names)
    assert len(file.posterior["sd"]) == size
    whole = np.zeros((size, size))
    whole[np.tril_indices(size)] = file.posterior["correlation"]
    assert (np.diag(whole) == 1).all() and np.abs(whole).max() == 1


def test_a_report_says_which_constants_were_fitted_apart():
    rows = coefficients(read_gpu("h100-sxm"), read_corrections(None))
    basis = {row["name"]: row["basis"] for row in rows}
    assert {x for x in basis if basis[x] == "fitted apart"} == PLANS
    (gemm,) = [row for row in rows if row["name"] == "training_gemm"]
    assert "(fit)" not in gemm["spread"] and "global ±0.1 (prior)" in gemm["spread"]
    assert basis["tensor_efficiency"] == "fitted"
