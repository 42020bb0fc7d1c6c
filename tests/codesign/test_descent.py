"""The descent alone, on one convex limit: every number by hand.

One axis x between 1 and 16; minus ln x is to be small, and x may reach 4. With u = ln x
the Lagrangian is -u + m (x / 4 - 1), least at x = 4 with the multiplier m = 1.
"""

import dataclasses

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

from diffenergy.codesign import Range
from diffenergy.codesign._search import descent
from diffenergy.codesign._search.descent import STIFFNESS, Aim, advance, begin
from diffenergy.codesign._space.task import METRICS, Measured, Task
from tests.codesign.builders import problem

LOW, HIGH, LIMIT = 1.0, 16.0, 4.0
NUM = len(METRICS)
AIM = Aim(
    powers=jnp.zeros((1, NUM)).at[0, METRICS.index("time")].set(1.0),
    inverse=jnp.zeros((1, NUM)).at[0, METRICS.index("area")].set(1 / LIMIT),
    custom=jnp.zeros(1),
    free=jnp.ones((1, 1)),
)


@pytest.fixture
def task(monkeypatch) -> Task:
    """A task whose time is 1 / x and whose area is x times the first number of the
    GPU."""

    def measured(task: Task, values, nudge, exact: bool) -> Measured:
        assert not exact
        x, ones = values[0], jnp.ones(NUM)
        metrics = ones.at[METRICS.index("time")].set(1 / x)
        metrics = metrics.at[METRICS.index("area")].set(x * jnp.exp(nudge[0]))
        return Measured(metrics, jnp.ones(()), jnp.zeros(0), jnp.array(True))

    monkeypatch.setattr(descent, "measured", measured)
    base = problem(["streams"], [Range("l2_capacity")]).task
    return dataclasses.replace(base, low=jnp.full(1, LOW), high=jnp.full(1, HIGH))


def argument(x: float) -> np.ndarray:
    """The sigmoid's argument at x, one start."""
    share = np.log(x / LOW) / np.log(HIGH / LOW)
    return np.array([[np.log(share / (1 - share))]])


def value(z) -> float:
    """x at the sigmoid's argument."""
    return float(LOW * (HIGH / LOW) ** (1 / (1 + np.exp(-float(z[0, 0])))))


def multipliers(m: float) -> np.ndarray:
    """Of the limits of all metrics, one start; that of the area is m."""
    return np.where(np.arange(NUM) == METRICS.index("area"), m, 0.0)[None]


@pytest.mark.parametrize(("x", "m"), [(2.0, 0.0), (6.0, 0.0), (2.0, 0.7), (14.0, 0.7)])
def test_one_update_by_hand(task: Task, x: float, m: float):
    """Rates of zero stay: the slope is -1 + pushed x / 4 per ln x, wherever x lies
    between its bounds, pushed x / 4 per ln of the GPU's number; the multiplier becomes
    what pushed."""
    state = begin(argument(x), multipliers(m))
    moved, slopes = advance(task, state, AIM, jnp.zeros(1), jnp.array([STIFFNESS]))
    pushed = max(m + STIFFNESS * (x / LIMIT - 1), 0.0)
    assert value(moved.x[0]) == pytest.approx(x)
    assert moved.multipliers[0] == pytest.approx(multipliers(pushed)[0])
    assert slopes.axes[0, 0] == pytest.approx(-1 + pushed * x / LIMIT)
    assert slopes.fields[0, 0] == pytest.approx(pushed * x / LIMIT)


@pytest.mark.parametrize("x", [1.5, 12.0])
def test_the_limit_is_reached_with_its_multiplier(task: Task, x: float):
    """From both sides: x = 4 and m = 1."""
    state, further = begin(argument(x), multipliers(0.0)), eqx.filter_jit(advance)
    for rate in (*[0.2] * 10, *[0.02] * 20):
        rates = jnp.full(descent.STEPS, rate)
        state, _ = further(task, state, AIM, rates, jnp.array([STIFFNESS]))
    assert value(state.x[0]) == pytest.approx(LIMIT, rel=0.01)
    assert state.multipliers[0] == pytest.approx(multipliers(1.0)[0], abs=0.1)
