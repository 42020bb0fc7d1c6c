"""The fit of the costs of collectives finds a machine again."""

import numpy as np
import pytest

from calibration.studies import cost_fit
from diffenergy.physics import _links as links


def synthetic(sizes: np.ndarray) -> cost_fit.Points:
    """Points of a machine with two regimes, for 2 and 8 GPUs."""
    size, ranks = (x.ravel() for x in np.meshgrid(sizes, [2.0, 8.0]))
    x = (ranks - 1) / ranks * size / (0.7 * 3e11)
    fast, slow = 6e-6 + (ranks - 1) * 1e-6 + x / 0.35, 2e-5 + x
    one = np.ones(len(size))
    kind = list(links.LINK_KINDS).index("all_gather")
    return cost_fit.Points(
        (kind * one).astype(int),
        size,
        ranks,
        0 * one,
        3e11 * one,
        0 * one,
        np.minimum(fast, slow),
        one,
    )


@pytest.mark.slow
def test_fit_finds_a_machine_again():
    seen, unseen = 2.0 ** np.arange(10, 30, 2), 2.0 ** np.arange(11, 29, 2)
    result = cost_fit.fit(cost_fit.stack([synthetic(seen)]), 300, 2)
    points = synthetic(unseen)
    got = cost_fit.predicted({name: x[0] for name, x in result.items()}, points)
    error = np.abs(np.asarray(got / points.time) - 1)
    assert error.mean() < 0.04 and error.max() < 0.25  # at the change of regime


def test_padding_has_no_weight():
    both = cost_fit.stack([synthetic(np.array([1e6])), synthetic(np.array([1e6, 2e6]))])
    assert both.weight.tolist() == [[1, 1, 0, 0], [1, 1, 1, 1]]
