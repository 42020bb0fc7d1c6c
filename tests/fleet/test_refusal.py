"""What is said to be lacking, against a list of all additions."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import diffenergy as de
from diffenergy.fleet import NoPlan

from .builders import write_fleet


def two_pools(draw: np.random.Generator) -> tuple[Any, ...]:
    """Points, demand by slot, and GPUs of two pools that are about too few."""
    points = [
        (model, gpu, int(draw.integers(1, 4)), float(draw.uniform(2, 9)), 300.0 * n)
        for model, gpu in itertools.product(("a", "b"), ("x", "y"))
        for n in range(1, 3)
        if draw.random() < 0.8
    ]
    demand = [
        {m: float(draw.uniform(1, 25)) for m in ("a", "b")}
        for _ in range(int(draw.integers(1, 4)))
    ]
    return points, demand, draw.integers(1, 7, 2).tolist()


def carries(points: Any, wanted: dict[str, float], gpus: list[int]) -> bool:
    """Whether whole replicas on so many GPUs carry a slot, by listing them."""
    left = {tuple(gpus)}
    for model, rate in wanted.items():
        rows = [(g, n, r) for m, g, n, r, _ in points if m == model]
        after: set[tuple[int, ...]] = set()
        for free in left:
            stack = [(0, rate, free)]
            while stack:
                row, missing, (x, y) = stack.pop()
                if missing <= 1e-9:
                    after.add((x, y))
                elif row < len(rows):
                    gpu, n, each = rows[row]
                    stack.append((row + 1, missing, (x, y)))
                    rest = (x - n, y) if gpu == "x" else (x, y - n)
                    if min(rest) >= 0:
                        stack.append((row, missing - each, rest))
        left = after
    return bool(left)


def fewest(points: Any, demand: Any, gpus: list[int], pool: int) -> int | None:
    """GPUs more of one pool with which every slot can be carried; None: never."""
    for more in range(40):
        tried = [x + more * (i == pool) for i, x in enumerate(gpus)]
        if all(carries(points, wanted, tried) for wanted in demand):
            return more
    return None


@pytest.mark.parametrize("seed", range(30))
def test_the_least_addition_is_that_of_a_list(tmp_path: Path, seed: int):
    points, demand, gpus = two_pools(np.random.default_rng(seed))
    known = {(m, g) for m, g, *_ in points}
    if {m for m, _ in known} != {"a", "b"} or {g for _, g in known} != {"x", "y"}:
        pytest.skip("a model or a pool without a point")
    pools = [
        {"name": f"p{x}", "gpu": x, "count": n, "site": "main", "parked_w": 10}
        for x, n in zip("xy", gpus, strict=True)
    ]
    path = write_fleet(tmp_path, points, demand, pools)
    if all(carries(points, wanted, gpus) for wanted in demand):
        de.fleet.plan(path)
        return
    with pytest.raises(NoPlan) as refusal:
        de.fleet.plan(path)
    least = {f"p{x}": fewest(points, demand, gpus, i) for i, x in enumerate("xy")}
    assert refusal.value.reason["limit"] == "gpus"
    assert refusal.value.reason["add_gpus"] == {
        name: more for name, more in least.items() if more is not None
    }
