"""Birth-death chain and compound Poisson gaps against published check values."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from diffenergy.serving import birth_death
from diffenergy.serving._lengths import lognormal, of_values, read_lengths
from diffenergy.serving._steady.spread import Atoms, gaps, stepped

LENGTH = jnp.asarray(200.0)


def step(r):
    return 0.010 + 1e-4 * r


def balance(rate, limit, states=256):
    slots = jnp.minimum(jnp.arange(1.0, states + 1), limit)
    return birth_death(jnp.asarray(rate), slots / step(slots), LENGTH, slots[-1])


@pytest.mark.parametrize(
    "rate, limit, running, taken, wait",
    [
        (5.0, 1e9, 11.222, 0.0, 0.0),
        (5.0, 16, 11.206, 0.146, 0.0770),
        (6.0, 16, 13.708, 0.4715, 0.526),
    ],
)
def test_birth_death(rate, limit, running, taken, wait):
    result = balance(rate, limit)
    assert float(result.running) == pytest.approx(running, abs=5e-4)
    assert float(result.taken) == pytest.approx(taken, abs=5e-4)
    assert float(result.wait) == pytest.approx(wait, abs=5e-4)
    assert float(result.flow) == pytest.approx(rate * 200, rel=1e-9)


def test_an_empty_server_and_its_slope():
    """16 states and 256 of them say the same where 16 run."""
    few, many = balance(6.0, 16, 16), balance(6.0, 16, 256)
    for name in ("running", "flow", "taken", "waiting", "wait"):
        assert float(getattr(few, name)) == pytest.approx(float(getattr(many, name)))
    free = balance(5.0, 1e9)
    assert float(free.weights[0]) == pytest.approx(2.39e-5, rel=2e-3)
    assert float(free.running / free.flow) == pytest.approx(11.222e-3, rel=1e-4)

    def tpot(rate):
        result = balance(rate, 16)
        return result.running / result.flow

    assert float(jax.grad(tpot)(5.0)) == pytest.approx(2.262e-4, rel=1e-3)


def test_gaps_of_unequal_prompts_keep_their_moments():
    """Mean and variance of a compound Poisson sum: nu E[d], nu E[d^2]."""
    times = jnp.asarray(lognormal(5e3, 1.0).nodes) * 5e-3
    result = gaps(jnp.asarray(0.01), times, jnp.asarray(0.7), jnp.asarray(0.0))
    assert float(result.mean) == pytest.approx(0.01 + 0.7 * float(times.mean()))
    assert float(result.variance) == pytest.approx(
        0.7 * float((times**2).mean()), rel=0.05
    )
    assert float(result.below(jnp.asarray(0.01))) == pytest.approx(np.exp(-0.7))


def test_lengths_have_their_moments():
    for text, mean, spread in (
        ("512", 512, 1.0),
        ("uniform:100:300", 200, (100**2 + 100 * 300 + 300**2) / 3 / 200**2),
        ("exponential:128", 128, 2.0),
        ("lognormal:256:0.8", 256, 1.64),
    ):
        result = read_lengths("output_len", text)
        assert (result.mean, result.spread) == (mean, pytest.approx(spread))
        assert np.mean(result.nodes) == pytest.approx(1.0)
    uniform = read_lengths("output_len", "uniform:100:300")
    assert uniform.nodes[0] * 200 == pytest.approx(100 + 200 / 32)
    # who is seen running is long: mean age 758,587 / (2 x 641.4) tokens
    result = lognormal(641.4, np.sqrt(758_587 / 641.4**2 - 1))
    assert result.spread * result.mean / 2 == pytest.approx(591.3, abs=0.1)
    trace = of_values(np.arange(1.0, 1601.0))
    assert trace.mean == pytest.approx(800.5)
    assert trace.nodes[0] * trace.mean == pytest.approx(50.5)


def test_what_never_occurs_moves_no_quantile():
    """Sixteen strata beside values of no weight, as first waves of a steady state."""
    values, levels = jnp.linspace(0.1, 0.4, 16), (0.01, 0.5, 0.95, 0.99)
    even = Atoms(values, jnp.ones(16) / 16)
    for never in (0.01, 0.25, 9.0):
        beside = jnp.append(values, jnp.full(16, never))
        both = Atoms(beside, jnp.append(even.weights, jnp.zeros(16)))
        np.testing.assert_allclose(both.between(levels), even.between(levels))
    # middles at 29/32 and 31/32: 0.95 is 0.7 of the way from 0.38 to 0.4
    assert float(even.between((0.95,))[0]) == pytest.approx(0.394)


def test_strata_keep_jumps():
    """93 % at 10 ms, the rest at 30: strata have no value between them."""
    atoms = Atoms(jnp.asarray([0.03, 0.01]), jnp.asarray([0.07, 0.93]))
    result = stepped(atoms)
    assert set(np.asarray(result.values).tolist()) == {0.01, 0.03}
    assert float(result.weights.sum()) == pytest.approx(1)
    np.testing.assert_allclose(result.quantiles(), [0.01, 0.01, 0.03, 0.03])
