"""Readings: start-up seconds inside the window, bursts before the limiter acts."""

import jax.numpy as jnp
import pytest

from diffenergy.physics.instrument import GOVERNOR_TIME, Instrument, Run, reading

INF = float("inf")


def run(time: float, energy: float) -> Run:
    """One run."""
    return Run(jnp.asarray([time]), jnp.asarray([energy]))


def test_start_up_is_divided_over_the_iterations():
    # 0.3 s at 60 W over 100 runs of 20 ms and 4 J: 3 ms and 0.18 J on top
    instrument = Instrument(
        startup_seconds=[0.3], startup_power=[60], iterations=[100], burst=[INF]
    )
    got = reading(instrument, run(0.01, 5.0), run(0.02, 4.0))
    assert got.time[0] == pytest.approx(0.023)
    assert got.energy[0] == pytest.approx(4.18)
    assert got.energy[0] / got.time[0] < 4 / 0.02  # the mean power reads low


def test_a_long_run_reads_what_the_gpu_does():
    instrument = Instrument(
        startup_seconds=[0.3], startup_power=[60], iterations=[INF], burst=[INF]
    )
    got = reading(instrument, run(0.01, 5.0), run(0.02, 4.0))
    assert got.time[0] == pytest.approx(0.02) and got.energy[0] == pytest.approx(4)


@pytest.mark.parametrize(("length", "share"), [(0.0, 0), (1.0, 0.5), (3.0, 0.75)])
def test_a_burst_is_governed_in_part(length: float, share: float):
    # `length` limiter times of 1 ms kernels: x/(1 + x) of the way to the governed run
    burst = length * GOVERNOR_TIME / 1e-3
    instrument = Instrument(
        startup_seconds=[0.0], startup_power=[0], iterations=[INF], burst=[burst]
    )
    got = reading(instrument, run(1e-3, 0.9), run(1.2e-3, 0.8))
    assert got.time[0] == pytest.approx(1e-3 + share * 0.2e-3)
    assert got.energy[0] == pytest.approx(0.9 - share * 0.1)
