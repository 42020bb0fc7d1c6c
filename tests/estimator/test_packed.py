"""Many listings by one program answer as each alone."""

from typing import Any

import jax
import numpy as np
import pytest

from diffenergy.estimator import operating_points, packed, packed_alike, prepare, run


@pytest.fixture(scope="module")
def tasks():
    """Requests of different sizes."""
    request: list[dict[str, Any]] = [
        {"phase": "prefill"}, {"phase": "decode", "batch": 4},
        {"phase": "decode", "input_len": 96}, {"phase": "decode", "batch": 9},
    ]  # fmt: skip
    return [prepare("gpt2", "a100-sxm-80gb", **x) for x in request]


@pytest.mark.slow
def test_listings_dealt_in_turn_have_the_figures_of_each(tasks):
    listings = [task.listings[0] for task in tasks]
    works = packed_alike(listings, 3)
    shapes = [[x.shape for x in jax.tree.leaves(work)] for work in works]
    assert len(works) == 2 and shapes[0] == shapes[1]
    point = operating_points(tasks[0].settings)
    for start, work in enumerate(works):
        result = run(work, tasks[0].gpu, point, 2)
        alone = [task.estimates() for task in tasks[start::2]]
        for name in ("time", "energy", "sm_clock", "feasible", "components"):
            each = np.concatenate([getattr(x.phases, name) for x in alone])
            assert getattr(result.phases, name) == pytest.approx(each, rel=1e-9)
        total = sum(float(x.energy) for x in alone)
        assert float(result.energy) == pytest.approx(total, rel=1e-9)
        assert float(result.time) == pytest.approx(sum(float(x.time) for x in alone))


def test_what_has_no_room_is_not_packed(tasks):
    (one,) = packed_alike(tasks[1].listings, 8)
    assert packed(tasks[2].listings, one) is not None
    assert packed(tasks[1].listings * 99, one) is None
    other = prepare("resnet-50", "a100-sxm-80gb", phase="forward")
    assert packed(other.listings, one) is None  # classes that it lacks
