"""The augmented Lagrangian on programs whose least points are known by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from diffenergy.search import begin, descend, raised

STIFFNESS = 2.0
RATES = 0.1 * 0.01 ** (np.arange(4000) / 4000)


def disc(x):
    """Least x + 2 y in the disc of radius 1: at -(1, 2) / sqrt 5, where the slopes
    (1, 2) + m 2 (x, y) = 0 give m = sqrt 5 / 2."""
    return x[0] + 2 * x[1], (x @ x - 1)[None]


def nearest(x):
    """Nearest to (2, 1) with x + y <= 2 and x <= 5: (1.5, 0.5), and slopes 2 (x - 2) +
    m = 0 give m = 1; the other limit does not bind."""
    away = x - jnp.array([2.0, 1.0])
    return away @ away, jnp.array([x.sum() - 2, x[0] - 5])


def inside(x):
    """The limit does not bind: the least is that of the parabola."""
    return (x[0] - 3) ** 2 + x[1] ** 2, (x[0] - 4)[None]


def result(score, limits, starts, stiffness=STIFFNESS):
    """Where every start ends, and its multipliers, after 100 rounds of 40 steps."""

    def one(x):
        def turn(state, rates):
            state, last = descend(score, state, rates, stiffness)
            moved = raised(state.multipliers, last.excess, stiffness)
            return state._replace(multipliers=moved), None

        begun = begin(x, jnp.zeros(limits))
        rates = jnp.asarray(RATES.reshape(100, 40))
        state, _ = jax.lax.scan(turn, begun, rates)
        return state.x, state.multipliers

    return jax.jit(jax.vmap(one))(jnp.asarray(starts))


@pytest.mark.parametrize(
    ("score", "least", "multipliers"),
    [
        (disc, np.array([-1, -2]) / 5**0.5, [5**0.5 / 2]),
        (nearest, [1.5, 0.5], [1.0, 0.0]),
        (inside, [3.0, 0.0], [0.0]),
    ],
)
def test_all_starts_come_to_the_least_point_and_its_multipliers(
    score, least, multipliers
):
    starts = np.random.default_rng(0).normal(0, 2, (8, 2))
    x, m = result(score, len(multipliers), starts)
    np.testing.assert_allclose(x, np.broadcast_to(least, x.shape), atol=2e-3)
    np.testing.assert_allclose(m, np.broadcast_to(multipliers, m.shape), atol=2e-2)


def test_without_stiffness_limits_are_left_out():
    x, m = result(nearest, 2, np.array([[0.0, 0.0]]), stiffness=0.0)
    np.testing.assert_allclose(x[0], [2.0, 1.0], atol=1e-3)
    np.testing.assert_array_equal(m, 0.0)


def test_the_slope_at_a_point_by_hand():
    """Rates of 0 stay. At (2, 2): x + y passes 2 by 2, pushed = 0.5 + 2 x 2 = 4.5;
    the slope is (2 (2 - 2) + 4.5, 2 (2 - 1) + 4.5)."""
    state = begin(jnp.array([2.0, 2.0]), jnp.array([0.5, 0.0]))
    after, last = descend(nearest, state, jnp.zeros(3), STIFFNESS)
    np.testing.assert_array_equal(after.x, [2.0, 2.0])
    np.testing.assert_allclose(last.slope, [4.5, 6.5])
    np.testing.assert_allclose(last.excess, [2.0, -3.0])
    np.testing.assert_allclose(
        raised(state.multipliers, last.excess, STIFFNESS), [4.5, 0.0]
    )


def test_what_is_not_free_stays_and_tells_its_slope():
    """Of two leaves one moves; the slope of the other is that of x y at its place."""

    def score(x):
        one, two = x
        return (one - 1) ** 2 + one * two, jnp.zeros(0)

    state = begin((jnp.array(0.0), jnp.array(0.5)), jnp.zeros(0))
    state, last = descend(score, state, jnp.asarray(RATES), STIFFNESS, free=(1.0, 0.0))
    assert state.x[0] == pytest.approx(0.75, abs=1e-3)  # 2 (x - 1) + 0.5 = 0
    assert state.x[1] == 0.5
    assert last.slope[1] == pytest.approx(0.75, abs=1e-3)
