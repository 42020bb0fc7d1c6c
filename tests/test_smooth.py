"""Steps with a backward rule: closed forms, brute force, differences, single width."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from diffenergy import smooth

WIDTHS = [jnp.float32, jnp.float64]


def difference(function, x: float, step: float = 1e-6) -> float:
    """Central difference of a scalar function."""
    return float((function(x + step) - function(x - step)) / (2 * step))


# p-norm -------------------------------------------------------------------------


@pytest.mark.parametrize("p", [1, 2, 6.0, 20, 400.0])
def test_pnorm_by_hand(p: float):
    for n in (1, 2, 5):
        got = smooth.pnorm([jnp.asarray(3.0)] * n, p)
        assert got == pytest.approx(3 * n ** (1 / p), rel=1e-12)
    got = float(smooth.pnorm((jnp.asarray(3.0), jnp.asarray(4.0)), p))
    assert got == pytest.approx((3**p + 4**p) ** (1 / p))


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("scale", [1e-12, 1e-6, 1.0, 1e9])
def test_pnorm_does_not_depend_on_the_scale(width: type, scale: float):
    values = [jnp.asarray(x * scale, width) for x in (3.0, 4.0)]
    assert smooth.pnorm(values, 2) / scale == pytest.approx(5, rel=1e-5)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("p", [2, 6.0, 20])
@pytest.mark.parametrize("values", [(0.0, 0.0), (0.0, 2.0), (1e-30, 2.0)])
def test_pnorm_at_zero_is_finite(width: type, p: float, values: tuple[float, float]):
    def norm(x: Array, p: Array) -> Array:
        return smooth.pnorm((x[0], x[1]), p)

    x = jnp.asarray(values, width)
    value, slopes = jax.value_and_grad(norm, argnums=(0, 1))(x, jnp.asarray(p, width))
    assert value == pytest.approx(max(values), abs=1e-20)
    assert all(jnp.all(jnp.isfinite(slope)) for slope in slopes)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("p", [1.2, 1.7, 3.0, 20.0, 3])
def test_second_derivatives_of_pnorm_are_finite(width: type, p: float):
    """Units without work, and units with next to none, beside microseconds."""
    second = jax.hessian(lambda v: smooth.pnorm((v[0], v[1]), p))
    few = [0.0, 1e-25, 1e-12, 1e-6, 1.0, 1e9]
    pairs = jnp.asarray(
        [(a, b) for a in few for b in few if a + b == 0 or a + b > 1e-24]
    )
    result = jax.jit(jax.vmap(second))(pairs.astype(width))
    assert np.isfinite(result).all()


@pytest.mark.parametrize("p", [1.7, 3.0, 8.0])
@pytest.mark.slow
def test_second_derivatives_of_pnorm(p: float):
    # N'' in x, of N = (x^p + y^p)^(1/p): (p - 1) x^(p-2) y^p N^(1-2p); in x and y minus
    # (p - 1) (x y)^(p-1) N^(1-2p)
    x, y = 3.0, 4.0
    norm = (x**p + y**p) ** (1 / p)
    both = (p - 1) * norm ** (1 - 2 * p)
    expected = [
        [both * x ** (p - 2) * y**p, -both * (x * y) ** (p - 1)],
        [-both * (x * y) ** (p - 1), both * y ** (p - 2) * x**p],
    ]
    for way in (jax.hessian, lambda f: jax.jacrev(jax.jacrev(f))):
        result = way(lambda v: smooth.pnorm((v[0], v[1]), p))(jnp.asarray([x, y]))
        assert np.asarray(result) == pytest.approx(np.asarray(expected), rel=1e-10)


def test_pnorm_gradient():
    def norm(x: Array) -> Array:
        return smooth.pnorm((x[0], x[1], x[2]), x[3])

    x = jnp.asarray([1.0, 1.7, 1.2, 3.3])
    got = jax.grad(norm)(x)
    # (sum x^p)^(1/p - 1) x^(p - 1)
    total = float(jnp.sum(x[:3] ** 3.3))
    assert got[:3] == pytest.approx(
        np.asarray(total ** (1 / 3.3 - 1) * x[:3] ** 2.3), rel=1e-9
    )
    along = difference(lambda p: norm(x.at[3].set(p)), 3.3)
    assert got[3] == pytest.approx(along, rel=1e-6)


# misses, softplus, choice -------------------------------------------------------


@pytest.mark.parametrize("z", [0.1, 0.5, 1.0, 3.0])
@pytest.mark.parametrize("p", [1.0, 2.5, 6.0])
def test_miss_closed_form(z: float, p: float):
    got = smooth.miss(jnp.asarray(z * 40e6), jnp.asarray(40e6), p)
    assert got == pytest.approx(z**p / (1 + z**p), rel=1e-7)


def test_miss_at_zero_distance():
    value, slope = jax.value_and_grad(smooth.miss)(0.0, jnp.asarray(4e7), 2.5)
    assert value == pytest.approx(0, abs=1e-12) and jnp.isfinite(slope)


def test_softplus():
    assert smooth.softplus(jnp.asarray(0.0), 3.0) == pytest.approx(3 * math.log(2))
    assert smooth.softplus(jnp.asarray(90.0), 3.0) == pytest.approx(90)
    assert smooth.softplus(jnp.asarray(-90.0), 3.0) == pytest.approx(0, abs=1e-9)


def test_choice_weights():
    time = jnp.asarray([[1.0, 1.0, 2.0], [1.0, 1e3, 1e3]]) * 1e-6
    choice = jnp.asarray([[0.0, math.log(3), 0.0], [0.0, 0.0, 0.0]])
    got = smooth.choice_weights(time, choice, jnp.full((2, 3), 0.5))
    # t^(-1/0.5): 1 : 3 : 1/4, whatever the unit of time
    assert got[0] == pytest.approx(np.array([4, 12, 1]) / 17)
    assert got[1] == pytest.approx([1, 0, 0], abs=1e-5)


def test_a_mixture_does_not_undercut_its_best_candidate():
    time = jnp.asarray(np.random.default_rng(0).uniform(1, 2, (100, 7)))
    weights = smooth.choice_weights(
        time, jnp.zeros_like(time), jnp.full_like(time, 0.05)
    )
    assert weights.sum(-1) == pytest.approx(np.ones(100))
    assert jnp.all(jnp.sum(weights * time, -1) >= time.min(-1))


# steps --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("step", "exact"), [(smooth.ceil, math.ceil), (smooth.floor, math.floor)]
)
@pytest.mark.parametrize("x", [0.0, 2.0, 2.3, 1e6 + 0.5])
def test_steps_are_exact_with_slope_one(step, exact, x: float):
    value, slope = jax.value_and_grad(step)(x)
    assert value == exact(x) and slope == 1
    with smooth.relaxed():
        value, slope = jax.value_and_grad(step)(x)
    assert value == x and slope == 1


def test_relaxed_ends_with_its_block():
    assert not smooth.is_relaxed()
    with smooth.relaxed():
        assert smooth.is_relaxed()
        with smooth.relaxed(False):
            assert not smooth.is_relaxed()
    with pytest.raises(KeyError), smooth.relaxed():
        raise KeyError
    assert not smooth.is_relaxed()


def test_with_slope_of():
    def value(x: Array) -> Array:
        return smooth.with_slope_of(jnp.round(x**2), 3 * x)

    assert jax.value_and_grad(value)(2.1) == (4.0, 3.0)
    with smooth.relaxed():
        assert jax.value_and_grad(value)(2.0) == (6.0, 3.0)
    assert smooth.at_least_one(jnp.asarray([0.2, 1.0, 3.5])).tolist() == [1, 1, 3.5]


def test_floor_sum_against_brute_force():
    rng = np.random.default_rng(1)
    n = rng.integers(0, 200, 400)
    n[:20] = 0
    slope, offset = rng.integers(0, 5000, 400), rng.integers(0, 5000, 400)
    divisor = rng.integers(1, 3000, 400)
    slope[20:30], divisor[30:40] = 0, 1
    # neighbouring Fibonacci numbers: the slowest pair for Euclid below 10^5
    n[40], slope[40], offset[40], divisor[40] = 1000, 46368, 0, 75025
    exact = [
        sum((a * i + b) // m for i in range(int(k)))
        for k, a, b, m in zip(n, slope, offset, divisor, strict=True)
    ]
    got = smooth.floor_sum(
        *(jnp.asarray(x, float) for x in (n, slope, offset, divisor))
    )
    assert got.tolist() == exact
