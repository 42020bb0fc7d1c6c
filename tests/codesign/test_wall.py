"""Designs and tiles of least energy at the wall."""

from typing import Any

import json_keys
import pytest

from diffenergy import codesign, estimate
from diffenergy.codesign import Effort


def test_the_clock_of_least_energy_at_the_wall():
    """Of all clocks, by `estimate`; by the board a lower one is best."""
    request: dict[str, Any] = dict(phase="decode", batch=8)
    few = Effort(starts=2, rounds=3)
    walls: dict[str | None, Any] = {}
    for node in (None, "dgx-a100"):
        result = codesign.search(
            "gpt2", "a100-sxm-80gb", vary={"sm_clock": None}, effort=few, node=node,
            **request,
        )  # fmt: skip
        json_keys.check("codesign", result.to_json())
        walls[node] = result
    best = walls["dgx-a100"].summary["best"]
    clock, alone = (walls[x].best.fields["sm_clock"] for x in ("dgx-a100", None))
    assert clock > alone
    points = estimate(
        "gpt2", "a100-sxm-80gb", node="dgx-a100",
        sm_clock=[clock + 15e6 * x for x in (-1, 0, 1)], **request,
    ).summary["points"]  # fmt: skip
    at_wall = [x["wall_energy_j"] for x in points]
    assert best["wall_energy_j"] == pytest.approx(at_wall[1], rel=1e-5)
    assert min(at_wall) == at_wall[1]
    for key in ("energy_j", "avg_power_w", "wall_power_w"):
        assert best[key] == pytest.approx(points[1][key], rel=1e-5)


def test_tiles_at_the_wall():
    result = codesign.tune(
        "gpt2", "l40s", phase="decode", batch=8, goal="energy", node="default"
    )
    json_keys.check("codesign", result.to_json())
    s = result.summary
    assert s["energy_j"] < s["wall_energy_j"] <= s["default_wall_energy_j"]
