"""Readings: start-up seconds inside the window, bursts before the limiter acts, launch
loops, and what a power sensor shows of runs shorter than its window."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from jax.flatten_util import ravel_pytree

from calibration.campaigns.formulas import (
    GOVERNOR_TIME,
    Instrument,
    data_activity,
    hot_share,
    reading,
    run_seconds,
)
from calibration.campaigns.instruments import SENSOR_CONSTANTS, Sensor
from diffenergy.estimator import _estimate as estimator
from diffenergy.physics import TimeEnergy

WIDE: dict[str, Any] = {"loop": 6.0, "loop_body": 270e-6, "unfilled": 1.0}
NARROW: dict[str, Any] = {"loop": 1.0, "loop_body": 70e-6, "narrow": 1.0}
"""Power runs of bf16 and of block-scaled fp8 GEMMs
(`calibration/campaigns/instruments.toml`)."""
PERIOD = 0.1005  # s between two samples


def run(time: float, energy: float) -> TimeEnergy:
    """One run."""
    return TimeEnergy(jnp.asarray(time), jnp.asarray(energy))


def instrument(**facts: Any) -> Instrument:
    """Facts of one reading; no facts: it shows what the GPU does."""
    return Instrument(**facts)


def shown(facts: Instrument, sampling: str, time: float, power: float) -> float:
    """Power that a sensor with its prior constants shows of a kernel, W."""
    sustained = run(time, time * power)
    read = reading(facts, Sensor(), sampling, sustained, sustained)
    assert float(read.time) == pytest.approx(time)
    return float(read.energy / read.time)


def share_by_hand(length: float, before: float) -> float:
    """Mean of min(1, before + s) over the samples s of a run, by counting them."""
    samples = [PERIOD * i for i in range(40) if PERIOD * i <= length]
    return sum(min(1.0, before + s) for s in samples) / len(samples)


# --- passes, bursts, launch loops


def test_start_up_is_divided_over_the_iterations():
    # 0.3 s at 60 W over 100 runs of 20 ms and 4 J: 3 ms and 0.18 J on top
    facts = instrument(startup_seconds=0.3, startup_power=60, iterations=100)
    got = reading(facts, None, "", run(0.01, 5.0), run(0.02, 4.0))
    assert got.time == pytest.approx(0.023)
    assert got.energy == pytest.approx(4.18)
    assert got.energy / got.time < 4 / 0.02  # the mean power reads low


def test_a_long_run_reads_what_the_gpu_does():
    facts = instrument(startup_seconds=0.3, startup_power=60)
    got = reading(facts, None, "", run(0.01, 5.0), run(0.02, 4.0))
    assert got.time == pytest.approx(0.02) and got.energy == pytest.approx(4)


@pytest.mark.parametrize(("length", "share"), [(0.0, 0), (1.0, 0.5), (3.0, 0.75)])
def test_a_burst_is_governed_in_part(length: float, share: float):
    # `length` limiter times of 1 ms kernels: x/(1 + x) of the way to the governed run
    facts = instrument(burst=length * GOVERNOR_TIME / 1e-3)
    got = reading(facts, None, "", run(1e-3, 0.9), run(1.2e-3, 0.8))
    assert got.time == pytest.approx(1e-3 + share * 0.2e-3)
    assert got.energy == pytest.approx(0.9 - share * 0.1)


@pytest.mark.parametrize(
    ("loop", "time"), [(0.0, 1e-4), (1e-4, 1e-4 * 2 ** (1 / 8)), (1e-2, 1e-2)]
)
def test_launching_is_a_floor_that_leaves_the_power(loop: float, time: float):
    got = reading(
        instrument(loop_seconds=loop), None, "", run(1e-4, 0.03), run(1e-4, 0.03)
    )
    assert got.time == pytest.approx(time, rel=1e-9)
    assert got.energy / got.time == pytest.approx(300)


def test_a_call_adds_its_host_time_and_leaves_the_power():
    facts = instrument(call_seconds=3e-5)
    got = reading(facts, None, "", run(1e-4, 0.03), run(1e-4, 0.03))
    assert got.time == pytest.approx(1.3e-4, rel=1e-12)
    assert got.energy / got.time == pytest.approx(300)


# --- the power sensor


@pytest.mark.parametrize(
    ("samples", "before", "share"),
    [
        (11, 0.0, 0.502045),
        (11, 0.3, 0.746409),
        (4, 0.1, 0.250750),
        (3, 0.0, 0.100500),
        (5, 1.0, 1.0),
    ],
)
def test_hot_share(samples: int, before: float, share: float):
    """Check values of the study of GEMM power; a run has a sample at its start."""
    length = jnp.asarray((samples - 0.5) * PERIOD)
    got = hot_share(length, jnp.asarray(before))
    assert got == pytest.approx(share, abs=1e-6)
    assert got == pytest.approx(share_by_hand(float(length), before), abs=1e-12)


@pytest.mark.parametrize(
    ("length", "gap", "share"),
    [(1.0, 1.0, 0.5), (1.0, 0.0, 1.0), (0.3, 1.0, 0.15), (0.3, 0.0, 1.0)],
)
def test_hot_share_after_a_gap(length: float, gap: float, share: float):
    """An integral of the study over the run, here a sum over its samples: half a sample
    off at most."""
    got = hot_share(jnp.asarray(length), jnp.asarray(1 - gap), leaving=True)
    assert got == pytest.approx(share, abs=PERIOD / 2)
    if gap == 0:
        assert got == pytest.approx(1, abs=1e-12)


def test_what_is_left_of_the_run_before_leaves_the_window():
    """Half a gap: the second is half hot until the run has filled the gap."""
    got = hot_share(jnp.asarray(0.45), jnp.asarray(0.5), leaving=True)
    assert got == pytest.approx(0.5)  # w - s + s at each of five samples
    assert hot_share(jnp.asarray(0.45), jnp.asarray(0.5)) > got


@pytest.mark.parametrize(
    ("kind", "time", "length", "samples"),
    [
        (WIDE, 20e-6, 0.36, 4),  # 3000 replays, as many as there are at most
        (WIDE, 100e-6, 1.0002, 10),  # 1667 replays of 600 us
        (NARROW, 150e-6, 0.45, 5),
        (NARROW, 50e-6, 0.15, 2),  # a body under 100 us is planned for 0.3 s
        (WIDE, 10.0, 360.0, None),  # six replays at least
    ],
)
def test_length_of_a_run(kind: Any, time: float, length: float, samples: int | None):
    got = float(run_seconds(instrument(**kind), jnp.asarray(time)))
    assert got == pytest.approx(length, rel=1e-9)
    assert samples is None or 1 + got // PERIOD == samples


def test_a_long_run_back_to_back_shows_its_power():
    facts = instrument(**WIDE, rows=4096.0)
    assert shown(facts, "series", 100e-6, 500) == pytest.approx(500)
    assert 138 < shown(facts, "series", 10e-6, 500) < 400  # 0.18 s: seen in part


def test_a_run_on_an_idle_board_shows_less():
    """cold_share * t/60 us of the second is hot at the first sample, limited softly."""
    before = ((0.26 * 100 / 60) ** -8 + 0.8**-8) ** (-1 / 8)
    by_hand = 138 + (500 - 138) * share_by_hand(1.0002, before)
    facts = instrument(**WIDE, rows=4096.0, cold=1.0)
    assert shown(facts, "series", 100e-6, 500) == pytest.approx(by_hand)
    few = instrument(**WIDE, rows=16.0, cold=1.0)  # (16/128)^0.4 = 0.435 of it
    assert shown(few, "series", 100e-6, 500) < by_hand
    half = instrument(**WIDE, rows=4096.0, cold=0.5)
    assert shown(half, "series", 100e-6, 500) == pytest.approx((by_hand + 500) / 2)


def test_a_run_of_a_fresh_process_shows_less():
    by_hand = 138 + (500 - 138) * share_by_hand(1.02, 0.25 * (10e-3 / 1e-3) ** 0.5)
    facts = instrument(**WIDE, rows=4096.0, fresh=1.0)
    assert shown(facts, "series", 10e-3, 500) == pytest.approx(by_hand)


@pytest.mark.parametrize("power", [400.0, 690.0])
def test_a_short_8_bit_run_shows_the_run_before(power: float):
    # five samples: 0.1005 * (0 + 1 + 2 + 3 + 4)/5 = 0.201 of the second is its own
    facts = instrument(**NARROW, rows=4096.0)
    by_hand = 0.201 * power + 0.799 * max(power, 660)
    assert shown(facts, "series", 150e-6, power) == pytest.approx(by_hand)


def test_a_gap_between_two_runs():
    """Of a run of 1 s behind a gap: prior 0.2 s, more with what the host prepares."""
    kind = {"loop": 1.0, "loop_body": 70e-6}
    near = shown(instrument(**kind), "gap", 333e-6, 500)
    # 0.8 of the second is hot at eight samples, 0.804 and 0.9045 at the last two
    assert near == pytest.approx(138 + 0.81085 * (500 - 138), rel=1e-3)
    shorter = shown(instrument(**kind, sequences=8000.0), "gap", 333e-6, 500)
    large = shown(instrument(**kind, operand_bytes=3e10), "gap", 333e-6, 500)
    assert shorter < near and large < near
    idle = 138 + (500 - 138) * share_by_hand(1.0, 0.0)  # a gap of 1 s
    for facts in ({"sequences": 1e9}, {"fresh": 1.0}):  # or the first of a series
        whole = shown(instrument(**kind, **facts), "gap", 333e-6, 500)
        assert whole == pytest.approx(idle, rel=1e-3)


@pytest.mark.parametrize(
    ("facts", "moved", "math"),
    [
        ({"rows": 1e9}, 1.0, 0.7),
        ({"rows": 0.0}, 0.7, 0.7),  # weights are all there is: they hold left-overs
        ({"rows": 100.0}, 0.85, 0.7),
        ({"rows": 300.0}, 1 - 0.3 / 4, 0.7),
        ({"rows": 1e9, "fresh": 1.0}, 1 - 0.7 * 0.25, 0.7 * (1 - 0.7 * 0.25)),
        ({"rows": 0.0, "fresh": 1.0}, 0.7 * 0.825, 0.7 * 0.825),
        ({"rows": 1e9, "operand_bytes": 1e13}, 0.65, 0.7 * 0.65),
        ({"rows": 1e9, "operand_bytes": 20e9}, 0.825, 0.7 * 0.825),
    ],
)
def test_what_weights_hold(facts: dict[str, float], moved: float, math: float):
    """Left-over data switch less: 0.3 of the weights' bytes, by their share of what is
    read, and 0.3 of the math at any number of rows; zero pages (a quarter of a fresh
    process, half of huge weights) save 0.7 of both. Random operands are 1."""
    sensor = Sensor()
    assert (sensor.weight_saving, sensor.math_saving) == (0.3, 0.3)
    seen, beyond = data_activity(instrument(**facts, unfilled=1.0), sensor)
    assert seen == pytest.approx(moved, rel=1e-6)
    assert seen * beyond == pytest.approx(math, rel=1e-6)
    filled = data_activity(instrument(**facts, unfilled=0.0), sensor)
    assert filled == (1, 1)
    half = data_activity(instrument(**facts, unfilled=0.5), sensor)
    assert half[0] == pytest.approx((1 + moved) / 2, rel=1e-6)


# --- gradients


CASES: list[tuple[str, dict[str, Any], float]] = [
    ("series", {**WIDE, "rows": 90.0, "cold": 0.3}, 37e-6),
    ("series", {**WIDE, "rows": 9000.0, "cold": 1.0}, 230e-6),
    ("series", {**WIDE, "rows": 9000.0, "fresh": 1.0, "operand_bytes": 2e10}, 2.3e-3),
    ("series", {**NARROW, "rows": 9000.0, "cold": 0.3}, 140e-6),
    ("series", {**NARROW, "rows": 9000.0, "fresh": 1.0}, 340e-6),
    ("gap", {"loop_body": 7e-5, "sequences": 90.0, "operand_bytes": 3e9}, 430e-6),
    ("gap", {"loop_body": 7e-5, "sequences": 9000.0, "fresh": 3.0}, 430e-6),
]


@pytest.mark.slow
def test_sensor_gradients_are_differences():
    """Of ln power by every constant, at a fixed time; each acts on some run."""
    flat, unravel = ravel_pytree(Sensor())

    def powers(x: Array) -> Array:
        sensor, result = unravel(flat * jnp.exp(x)), []
        for sampling, sequences, time in CASES:
            facts = instrument(**sequences)
            moved, beyond = data_activity(facts, sensor)
            watts = 150 * moved + 250 * moved * beyond
            at = TimeEnergy(jnp.asarray(time), watts * time)
            got = reading(facts, sensor, sampling, at, at)
            result.append(jnp.log(got.energy / got.time))
        return jnp.stack(result)

    step, options = 1e-5, estimator.compiler_options(once=True)
    moves = step * jnp.concatenate([jnp.eye(flat.size), -jnp.eye(flat.size)])
    gradient = jax.jit(jax.jacfwd(powers), compiler_options=options)(0 * flat)
    moved = jax.jit(jax.vmap(powers), compiler_options=options)(moves)
    up, down = np.asarray(moved).reshape(2, flat.size, -1)
    assert np.asarray(gradient) == pytest.approx(
        (up - down).T / (2 * step), rel=1e-5, abs=1e-9
    )
    strongest = np.abs(gradient).max(axis=0)
    assert all(dict(zip(SENSOR_CONSTANTS, strongest > 0, strict=True)).values())
