"""The pure estimate at clocks and limits that a board does not have."""

import dataclasses

import jax
import jax.numpy as jnp
import pytest

import diffenergy as de
from diffenergy.compiling import _programs
from diffenergy.hardware import default_point

H100 = de.load_gpu("h100-sxm")
"""345 to 1980 MHz."""


@pytest.fixture(scope="module")
def work(sample, phases):
    return phases([sample("gather", rows=4096, cols=4096)])


@pytest.mark.parametrize(
    ("options", "feasible"),
    [
        ({}, True), ({"sm_clock": 345e6}, True), ({"sm_clock": 210e6}, False),
        ({"sm_clock": 2.5e9}, False), ({"power_cap": 50.0}, False),
        ({"power_cap": 400.0}, True),
    ],
)  # fmt: skip
def test_an_estimate_says_whether_the_board_can(work, options, feasible):
    point = dataclasses.replace(default_point(H100), **options)
    result = de.estimate(work, H100, point)
    assert result.phases.feasible.tolist() == [feasible]
    assert bool(result.feasible) is feasible
    assert f"feasible={feasible}" in repr(result)
    assert f"power={result.power:.4g} W" in repr(result)


def test_the_flag_changes_no_number_and_compiles_nothing(work):
    """Above the highest clock the board runs at it; slopes are those of the clock."""
    point = default_point(H100)
    top = de.estimate(work, H100, point)
    before = len(_programs._LOADED)
    above = de.estimate(work, H100, dataclasses.replace(point, sm_clock=2.5e9))
    assert len(_programs._LOADED) == before
    assert above.time == top.time and above.energy == top.energy

    def time(clock):
        return de.estimate(work, H100, dataclasses.replace(point, sm_clock=clock)).time

    value, slope = jax.value_and_grad(time)(300e6)
    step = 1e6
    change = (time(300e6 + step) - time(300e6 - step)) / (2 * step)
    assert float(slope) == pytest.approx(float(change), rel=1e-3) and slope < 0
    assert float(value) == pytest.approx(float(time(300e6)), rel=1e-6)


def test_many_estimates_at_once_have_a_flag_each(work):
    clocks = jnp.array([210e6, 345e6, 1980e6, 2500e6])
    point = default_point(H100)
    result = jax.vmap(
        lambda x: de.estimate(work, H100, dataclasses.replace(point, sm_clock=x))
    )(clocks)
    assert result.feasible.tolist() == [False, True, True, False]
    assert repr(result).startswith("Estimate(\n")
