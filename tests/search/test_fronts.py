"""Fronts, hulls and the best within limits, against their definitions."""

import numpy as np
import pytest

from diffenergy.search import best_within, lower_hull, pareto_front


def random_columns(seed: int, number: int) -> tuple[np.ndarray, np.ndarray]:
    """Columns [column, point] with ties and equal points, some infinite; groups."""
    draw = np.random.default_rng(seed)
    points = int(draw.integers(1, 60))
    table = (
        draw.integers(1, 9, (number, points)).astype(float),
        draw.integers(1, 60, (number, points)) / 3.0,
        draw.uniform(1, 2, (number, points)),
    )[seed % 3]
    gone = np.nan if seed % 2 else np.inf
    table[draw.integers(number), draw.random(points) < 0.05] = gone
    return table, draw.integers(0, 3, points)


@pytest.mark.parametrize("seed", range(36))
def test_front_is_that_of_all_pairs(seed: int):
    table, group = random_columns(seed, 1 + seed % 4)
    usable = np.isfinite(table).all(axis=0)
    wanted = []
    for i in np.flatnonzero(usable):
        same = usable & (group == group[i]) & (table <= table[:, [i]]).all(axis=0)
        better = same & (table < table[:, [i]]).any(axis=0)
        if not better.any() and i == np.flatnonzero(same)[0]:
            wanted.append((group[i], *table[:, i], i))
    result = pareto_front(*table, group=group)
    assert result.tolist() == [key[-1] for key in sorted(wanted)]
    for each in range(3):  # a group alone is its part of the whole
        own = np.flatnonzero(group == each)
        alone = own[pareto_front(*table[:, own])]
        assert alone.tolist() == result[group[result] == each].tolist()


@pytest.mark.parametrize("seed", range(36))
def test_hull_is_convex_below_all_and_of_points_alone(seed: int):
    (x, y), group = random_columns(seed, 2)
    usable = np.isfinite(x + y)
    result = lower_hull(x, y, group)
    assert (np.diff(group[result]) >= 0).all()
    for each in range(3):
        own = np.flatnonzero(usable & (group == each))
        hull = result[group[result] == each]
        assert set(hull) <= set(own) and bool(len(hull)) == bool(len(own))
        if not len(own):
            continue
        assert (np.diff(x[hull]) > 0).all()
        assert (np.diff(np.diff(y[hull]) / np.diff(x[hull])) > 0).all()
        assert x[hull[[0, -1]]].tolist() == [x[own].min(), x[own].max()]
        assert (np.interp(x[own], x[hull], y[hull]) <= y[own] + 1e-12).all()
        for vertex in hull:  # of equal points the first
            equal = own[(x[own] == x[vertex]) & (y[own] == y[vertex])]
            assert vertex == equal[0]
        assert hull.tolist() == own[lower_hull(x[own], y[own])].tolist()


@pytest.mark.parametrize("seed", range(12))
def test_best_within_is_that_of_all(seed: int):
    (x, y), _ = random_columns(seed, 2)
    limits = np.append(np.linspace(0.5, 20, 40), x[np.isfinite(x)])
    for limit, result in zip(limits, best_within(x, y, limits), strict=True):
        inside = np.flatnonzero(np.isfinite(x + y) & (x <= limit))
        wanted = min(((y[i], x[i], i) for i in inside), default=(0, 0, -1))
        assert result == wanted[-1]


def test_nothing_has_no_front():
    none = np.empty(0)
    assert pareto_front(none, none).tolist() == pareto_front(none).tolist() == []
    assert lower_hull(none, none, none).tolist() == []
    assert best_within(none, none, np.ones(2)).tolist() == [-1, -1]
