"""Designs and tiles of least energy at the wall."""

import json
from pathlib import Path
from typing import Any

import json_keys
import pytest

from diffenergy import codesign, estimate
from diffenergy.codesign import Effort


def test_the_clock_of_least_energy_at_the_wall():
    """Of its neighbours, by `estimate`; by the board a lower one is best."""
    request: dict[str, Any] = dict(phase="decode", batch=8, node="dgx-a100")
    result = codesign.search(
        "gpt2", "a100-sxm-80gb", vary={"sm_clock": None},
        effort=Effort(starts=2, rounds=3), **request,
    )  # fmt: skip
    json_keys.check("codesign", result.to_json())
    best, clock = result.summary["best"], result.best.fields["sm_clock"]
    points = estimate(
        "gpt2", "a100-sxm-80gb", sm_clock=[clock + 15e6 * x for x in (-1, 0, 1)],
        **request,
    ).summary["points"]  # fmt: skip
    at_wall = [x["wall_energy_j"] for x in points]
    assert best["wall_energy_j"] == pytest.approx(at_wall[1], rel=1e-5)
    assert min(at_wall) == at_wall[1]
    assert points[0]["energy_j"] < points[1]["energy_j"]
    for key in ("energy_j", "avg_power_w", "wall_power_w"):
        assert best[key] == pytest.approx(points[1][key], rel=1e-5)


def test_tiles_at_the_wall(tmp_path: Path):
    kernel = {"op": "gemm", "m": 8, "n": 768, "k": 3072, "dtype": "bf16", "count": 12}
    path = tmp_path / "product.jsonl"
    listing = {"name": "product", "mode": "forward", "dispatch": "graph"}
    path.write_text(json.dumps(listing | {"kernels": [kernel]}))
    result = codesign.tune(str(path), "l40s", goal="energy", node="default")
    json_keys.check("codesign", result.to_json())
    s = result.summary
    assert s["energy_j"] < s["wall_energy_j"] <= s["default_wall_energy_j"]
