"""Intervals of `evaluate`: left-out errors, and what guessed numbers leave open."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from diffenergy import measurements
from diffenergy.corrections import read_corrections
from diffenergy.fitting import _predict
from diffenergy.hardware import read_gpu

ROWS = "gpu,op,m,n,k,dtype,time_us,avg_power_w\n" + "".join(
    f"l40s,gemm,{m},4096,4096,bf16,100,200\n" for m in (1, 8, 4096)
)
GUESSED = ("vf_slope", "idle_constant", "thermal_resistance")


def widths(path: Path, monkeypatch, quality: str) -> dict[str, np.ndarray]:
    """Half widths in ln of the rows, with all three numbers of that quality."""
    card = read_gpu("l40s")
    told = {x: {"quality": quality} for x in GUESSED}
    card = dataclasses.replace(card, provenance={**card.provenance, **told})
    monkeypatch.setattr("diffenergy.fitting._batches.read_gpu", lambda _: card)
    found = _predict.predict(measurements.read([str(path)]), read_corrections())
    return {
        name: np.log(getattr(found, f"{name}_p95") / getattr(found, name))
        for name in ("time_s", "avg_power_w", "energy_j")
    }


@pytest.mark.slow
def test_guessed_numbers_widen_what_is_evaluated(tmp_path: Path, monkeypatch):
    """As they widen `estimate`: power and energy below a limit, alike; three numbers
    guessed leave three times as much open as derived ones."""
    path = tmp_path / "rows.csv"
    path.write_text(ROWS)
    none, derived, guessed = (
        widths(path, monkeypatch, x) for x in ("measured", "derived", "guess")
    )
    below = guessed["avg_power_w"] > none["avg_power_w"]  # the last is at its limit
    assert below.tolist() == [True, True, False]
    for name in ("avg_power_w", "energy_j"):
        more = [np.sqrt(x[name] ** 2 - none[name] ** 2) for x in (derived, guessed)]
        assert more[1][below] == pytest.approx(3 * more[0][below])
    assert guessed["time_s"][below] == pytest.approx(none["time_s"][below])
    assert guessed["time_s"][2] > none["time_s"][2]
