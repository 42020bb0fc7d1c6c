"""Power over time against hand arithmetic, fine steps and Parseval's theorem."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from diffenergy.power_time import (
    Boards,
    Event,
    Job,
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


def behind(curve: PowerCurve, boards: int = 1, **knobs: float):
    """`curve` of `boards` boards of 500 W behind a smoothing; at 300 W they wait."""
    each = PowerCurve(curve.edges, curve.watts / boards, curve.periodic)
    return smoothed([Boards(each, boards)], Smoothing(**knobs), 500.0, 500.0, 300.0)


@pytest.mark.parametrize("periodic", [True, False])
@pytest.mark.parametrize(
    "knobs, burn, time, peak",
    [
        # 100 W/s down: 800^2 / (2 100); a hold of half a second: 800 / 2 more
        (dict(down=100.0), 3200.0, 0.0, 1100.0),
        (dict(down=100.0, hysteresis=0.5), 3600.0, 0.0, 1100.0),
        # too slow for the 20 s of the pause: 20 s of 800 W less 20 W/s
        (dict(down=20.0), 800 * 20 - 20 * 20**2 / 2, 0.0, 1100.0),
        # up: 800^2 / (2 200) J put off are done behind it, in 800 / (2 200) s
        (dict(up=200.0), 300.0 * 2.0, 2.0, 1100.0),
        # both: the fall leaves nothing to climb
        (dict(up=1e9, down=100.0), 3200.0, 0.0, 1100.0),
    ],
)
def test_ramps_cost_their_closed_form(periodic, knobs, burn, time, peak):
    """A fall by 800 W from 1,100 W for 20 s, and back."""
    edges, watts = np.array([0.0, 10.0, 30.0, 90.0]), np.array([1100.0, 300.0, 1100.0])
    result = behind(PowerCurve(edges, watts, periodic), **knobs)
    assert result.burn == pytest.approx(burn, rel=1e-5, abs=1e-2)
    assert result.time == pytest.approx(time, rel=1e-6, abs=1e-4)
    assert float(result.curve.watts.max()) == pytest.approx(peak)
    down, up = knobs.get("down", 1e9), knobs.get("up", 1e9)
    change = np.diff(result.curve.bins(0.5)) / 0.5
    assert (-change).max() <= down * 1.001 and change.max() <= up * 1.001


def test_ramps_of_short_slices_follow_small_steps():
    """Falls slower than the slices: a simulation in steps of 20 us that carries the
    power from slice to slice."""
    curve, step = drawn(3), 2e-5
    watts, power, left, burn = sampled(curve, step), 0.0, 0.0, 0.0
    for _ in range(2):
        burn = 0.0
        for demand in watts.tolist():
            if demand >= power:
                power, left = demand, 0.05
            elif left > 0:
                left -= step
            else:
                power = max(demand, power - 300 * step)
                left = 0.05 if power == demand else 0.0
            burn += (power - demand) * step
    result = behind(curve, down=300.0, hysteresis=0.05)
    assert result.burn == pytest.approx(burn, rel=2e-3)


def test_a_floor_is_each_boards():
    """Two boards that take turns need the floor all the time, though their sum never
    falls below it."""
    one = PowerCurve(np.array([0.0, 1.0, 2.0]), np.array([500.0, 100.0]), True)
    two = PowerCurve(np.array([0.0, 1.0, 2.0]), np.array([100.0, 500.0]), True)
    result = smoothed(
        [Boards(one, 1), Boards(two, 1)], Smoothing(floor=0.5), 500.0, 500.0, 0.0
    )
    assert result.burn == pytest.approx(2 * 150.0)


def test_a_job_with_events():
    """Every 60 s a pause of 6 s, every 20 s one board of four works on for 2 s: a fifth
    of the time; over a minute the mean of 700 W, 300 W and of both."""
    job = Job((Event(60.0, 6.0), Event(20.0, 2.0, "work", 0.25)))
    (boards,) = job.curves([Boards(STEP, 4)], 300.0)
    assert (boards.curve.time, boards.number) == (60.0, 4)
    paused = 0.1 + 0.1 * 0.75
    assert (job.share, job.paused) == (pytest.approx(0.2), pytest.approx(paused))
    mean = 0.8 * 700 + 0.1 * 300 + 0.1 * (0.25 * 700 + 0.75 * 300)
    assert boards.curve.mean == pytest.approx(mean)
    # between a pause of 6 s at the end and one of 2 s before it: as many waits
    assert boards.curve.means(np.array([54.0]), 6.0)[0] == pytest.approx(300.0)
    assert boards.curve.means(np.array([52.0]), 2.0)[0] == pytest.approx(
        0.25 * 700 + 0.75 * 300
    )
    # a step of 3 s: 0.375 s of each event come with it
    assert job.added(3.0) == [pytest.approx((0.375, 1.0)), pytest.approx((0.375, 0.75))]


def test_a_long_job_is_drawn_coarsely():
    """A day of steps of 30 ms: neighbours are merged, joules and pauses stay."""
    edges, watts = np.array([0.0, 0.02, 0.03]), np.array([900.0, 300.0])
    job = Job((Event(86400.0, 600.0),))
    (boards,) = job.curves([Boards(PowerCurve(edges, watts, True), 1)], 100.0)
    assert len(boards.curve.watts) <= 1_000_000
    assert boards.curve.mean == pytest.approx(700 - 600 * 600 / 86400)


def test_a_floor():
    """dE / dF is the time below it times the boards."""
    low, high = (behind(STEP, 2, floor=x) for x in (0.5, 0.502))
    assert low.burn == pytest.approx(200.0)  # 1 s of 500 - 300 W
    assert high.burn - low.burn == pytest.approx(2.0)
    assert low.to_json()["swing_w"] == 400.0


def test_storage():
    """A flat curve needs 2 s x 200 W; half of that leaves half of the swing, and what
    is given back (1 s of 200 W above the mean less the band) costs 10.8 %."""
    assert stored_joules(STEP) == pytest.approx(400.0)
    half = behind(STEP, 2, storage=100.0)
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


def test_flat_power_has_no_ramp_and_no_line():
    """Slices whose powers differ by rounding alone."""
    watts = 8326.1 * (1 + 1e-15 * np.arange(-3, 4))
    profile = power_profile(PowerCurve(np.arange(8.0), watts, periodic=True), "boards")
    assert profile["ramp_up_w_per_s"] == profile["ramp_down_w_per_s"] == 0.0
    assert profile["strongest"] is None
