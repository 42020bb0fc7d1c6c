"""Power over time against hand arithmetic, fine steps and Parseval's theorem."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from diffenergy.power_time import (
    PowerCurve,
    Smoothing,
    power_profile,
    ramps,
    series,
    smoothed,
    stored_joules,
)

STEP = PowerCurve(np.array([0.0, 2.0, 3.0]), np.array([900.0, 300.0]), periodic=True)
"""2 s of 900 W, 1 s of 300 W: 700 W on the mean."""


def drawn(seed: int, periodic: bool = True) -> PowerCurve:
    rng = np.random.default_rng(seed)
    edges = np.append(0.0, np.cumsum(rng.uniform(0.01, 0.8, 40)))
    return PowerCurve(edges, rng.uniform(100, 700, 40), periodic)


def sampled(curve: PowerCurve, step: float) -> np.ndarray:
    """W in the middle of every step."""
    at = curve.edges[0] + step * (np.arange(round(curve.time / step)) + 0.5)
    return curve.watts[np.searchsorted(curve.edges, at) - 1]


def test_by_hand():
    assert (STEP.time, STEP.energy, STEP.mean) == (3.0, 2100.0, 700.0)
    assert STEP.joules(np.array([1.0, 3.0, 3.5, -1.0])).tolist() == [
        900.0, 2100.0, 2550.0, -300.0,
    ]  # fmt: skip
    assert STEP.bins(1.5).tolist() == [900.0, 500.0]


@pytest.mark.parametrize("seed", range(3))
def test_bins_have_no_sampling_error(seed: int):
    curve = drawn(seed, periodic=False)
    bins = curve.bins(0.25)
    fine = sampled(curve, 1e-4)[: len(bins) * 2500].reshape(len(bins), -1)
    assert bins == pytest.approx(fine.mean(axis=1), abs=0.3)
    assert 0.25 * bins.sum() == pytest.approx(
        float(curve.joules(np.array([0.25 * len(bins)]))[0])
    )


@pytest.mark.parametrize("seed", range(3))
def test_parseval(seed: int):
    """The lines of a curve hold its variance."""
    curve = drawn(seed)
    c = np.asarray(series(curve.edges, curve.watts, np.arange(1.0, 20_000)))
    width = np.diff(curve.edges)
    variance = float(((curve.watts - curve.mean) ** 2) @ width) / curve.time
    assert 2 * float((np.abs(c) ** 2).sum()) == pytest.approx(variance, rel=2e-3)


def test_a_square_wave_has_its_series():
    """Half of the time on: c_k = -i (1 - (-1)^k) / (2 pi k) of the swing; JAX
    differentiates it by the watts."""
    edges, watts = np.array([0.0, 1.0, 2.0]), np.array([1.0, 0.0])
    c = np.asarray(series(edges, watts, np.array([1.0, 2.0, 3.0])))
    assert c == pytest.approx(np.array([-1j / np.pi, 0, -1j / (3 * np.pi)]), abs=1e-6)

    def first(w):
        return jnp.abs(series(edges, w, np.array([1.0]))[0])

    assert jax.grad(first)(jnp.array([1.0, 0.0])).tolist() == pytest.approx(
        [1 / np.pi, -1 / np.pi], abs=1e-6
    )


@pytest.mark.parametrize("lag", [0.02, 0.3])
def test_a_filter_is_that_of_small_steps(lag: float):
    """y' = (w - y) / lag over many periods; variance and extremes are exact."""
    curve, step = drawn(1), 2e-5
    watts = sampled(curve, step)
    share = np.exp(-step / lag)
    value, values = curve.mean, np.empty(len(watts))
    for _ in range(4):
        for i, power in enumerate(watts):
            value = power + (value - power) * share
            values[i] = value
    behind = curve.filtered(lag)
    assert behind.values[-1] == pytest.approx(behind.values[0])
    assert behind.values.max() == pytest.approx(values.max(), rel=2e-3)
    assert behind.values.min() == pytest.approx(values.min(), rel=2e-3)
    assert behind.variance == pytest.approx(values.var(), rel=5e-3)


def test_ramps():
    """From 900 to 300 W within a second, and back; a slope of hours is none."""
    assert ramps(STEP) == (600.0, 600.0)
    long = PowerCurve(
        np.array([0.0, 10.0, 20.0, 30.0]), np.array([100.0, 500.0, 200.0])
    )
    assert ramps(long) == (400.0, 300.0)
    assert ramps(PowerCurve(np.array([0.0, 1.0]), np.array([100.0]))) == (0.0, 0.0)


def test_the_profile_of_a_square_wave():
    """1 Hz, half of the time on: swing 1,000 W but for the supplies, whose filter takes
    1 / (1 + (2 pi 0.02)^2) of the square of the first line."""
    edges, watts = np.array([0.0, 0.5, 1.0]), np.array([1500.0, 500.0])
    profile = power_profile(PowerCurve(edges, watts, periodic=True), "boards")
    assert profile["mean_w"] == 1000.0
    assert profile["peak_w"] == pytest.approx(1500.0, abs=0.01)
    assert profile["crest"] == pytest.approx(1.5, abs=1e-4)
    line = 2 * (1000 / np.pi) ** 2 / (1 + (2 * np.pi * 0.02) ** 2)
    assert profile["strongest"]["hz"] == 1.0
    assert profile["strongest"]["share"] == pytest.approx(line**0.5 / 1000, rel=1e-5)
    assert profile["rms_share"]["0.1-2hz"] == pytest.approx(line**0.5 / 1000, rel=1e-5)
    assert profile["rms_share"]["total"] < 0.5
    assert profile["ramp_up_w_per_s"] == 0.0  # windows of 1 s see no change


def test_the_same_wave_once_and_periodic():
    """Bins of a long piece have the lines of the periodic curve."""
    curve = drawn(2)
    starts = curve.time * np.arange(40)[:, None]
    edges = np.append((curve.edges[:-1] + starts).ravel(), 40 * curve.time)
    once = power_profile(PowerCurve(edges, np.tile(curve.watts, 40)), "boards")
    periodic = power_profile(curve, "boards")
    assert once["rms_share"]["0.1-2hz"] == pytest.approx(
        periodic["rms_share"]["0.1-2hz"], rel=0.02
    )
    assert once["strongest"]["hz"] == pytest.approx(
        periodic["strongest"]["hz"], rel=0.01
    )


def test_a_floor():
    """dE / dF is the time below it times the boards."""
    low, high = (smoothed(STEP, Smoothing(floor=x), 2, 500.0) for x in (0.5, 0.502))
    assert low.burn == pytest.approx(200.0)  # 1 s of 500 - 300 W
    assert high.burn - low.burn == pytest.approx(2.0)
    assert low.to_json()["swing_w"] == 400.0


def test_storage():
    """A flat curve needs 2 s x 200 W; half of that leaves half of the swing, and what
    is given back (1 s of 200 W above the mean less the band) costs 10.8 %."""
    assert stored_joules(STEP) == pytest.approx(400.0)
    half = smoothed(STEP, Smoothing(storage=100.0), 2, 500.0)
    assert half.curve.watts.min() == pytest.approx(500.0, abs=0.1)
    assert half.curve.watts.max() == pytest.approx(800.0, abs=0.1)
    assert half.burn == pytest.approx(200 * (1 / 0.95**2 - 1), rel=1e-3)


@pytest.mark.parametrize(
    ("edges", "watts", "sentence"),
    [
        ([0.0, 1.0], [1.0, 2.0], "`edges` has 2 numbers for 2 of `watts`"),
        ([0.0, 2.0, 1.0], [1.0, 2.0], "`edges` must rise"),
        ([0.0, np.nan], [1.0], "not finite"),
    ],
)
def test_refusals(edges, watts, sentence):
    with pytest.raises(ValueError, match=sentence):
        PowerCurve(np.array(edges), np.array(watts))
