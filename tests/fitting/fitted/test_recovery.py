"""A fit of a GPU finds what clear readings say, wherever the shipped file begins."""

import dataclasses

import numpy as np
import pytest

from diffenergy import measurements
from diffenergy.corrections import read_corrections
from diffenergy.fitting import fit
from diffenergy.fitting._predict import predict

ROWS, NOISE = 240, 0.01


@pytest.mark.slow
def test_one_constant_far_off_comes_back(tmp_path):
    """240 GEMMs of an H100 with 0.74 times the shipped tensor efficiency, 1 % of noise:
    times within 2 % on noise-free rows, and power too."""
    rng, path = np.random.default_rng(0), tmp_path / "gemm.csv"
    m, n, k = (2 ** rng.integers(low, 14, ROWS) for low in (5, 9, 9))
    sizes = np.stack([m, n, k], axis=1)
    head = "gpu,op,m,n,k,dtype,time_us,avg_power_w"
    lines = [f"h100-sxm,gemm,{a},{b},{c},bf16,100,300" for a, b, c in sizes]
    path.write_text("\n".join([head, *lines]))
    blank, shipped = measurements.read([str(path)]), read_corrections()
    levels = {tag: dict(values) for tag, values in shipped.levels.items()}
    levels["global"]["tensor_efficiency"] *= 0.74
    true = predict(blank, dataclasses.replace(shipped, levels=levels))
    noise = np.exp(NOISE * rng.normal(size=(2, ROWS)))
    table = dataclasses.replace(
        blank, time_s=true.time_s * noise[0], avg_power_w=true.avg_power_w * noise[1]
    )

    def error(found) -> float:
        return float(np.mean(np.abs(found.time_s / true.time_s - 1)))

    assert error(predict(blank, shipped)) > 0.05
    made = predict(blank, fit(table).corrections)
    assert error(made) < 0.02
    assert np.mean(np.abs(made.avg_power_w / true.avg_power_w - 1)) < 0.02
