"""A program read at a few power limits: its time and power at the others.

What a cap does to a program depends on three numbers of it: power while it is busy at
the highest clock, share of DRAM in its time, share of the time that it is busy at all
(the rest waits for the host). No counter is needed: the readings weigh every
combination, and the model's governor says what each would do elsewhere.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Final, NamedTuple

import jax
import numpy as np
from jaxtyping import Float

from diffenergy.compiling import compiler_options
from diffenergy.corrections import Corrections
from diffenergy.estimator import runs
from diffenergy.hardware import GpuCard, default_point, idle_power
from diffenergy.records import as_float
from diffenergy.workload import (
    PhaseColumns,
    Workload,
    build_workload,
    normalise_kernel,
    op_rows,
)

Numbers = Sequence[float] | np.ndarray

BUSY_POWER: Final = np.geomspace(0.3, 2.2, 40)
"""Power while busy at the highest clock / TDP; above 1 it is always capped."""
DRAM_SHARE: Final = np.linspace(0.0, 0.95, 12)
"""Share of the reference time that DRAM is busy."""
BUSY_SHARE: Final = np.linspace(0.4, 1.0, 25)
"""Share of the time at the highest clock that the board is busy."""
READING_SD: Final = (0.01, 0.02)
"""Error of ln time and ln power of one reading and of the model together."""
_REFERENCE: Final = 1.0
"""s that a program of the grid takes at the highest clock."""


class AtLimits(NamedTuple):
    """Time (the unit of the readings) and mean power (W) at every limit asked for."""

    time: Float[np.ndarray, " limit"]
    power: Float[np.ndarray, " limit"]


def at_limits(
    card: GpuCard,
    corrections: Corrections,
    limits: Numbers,
    times: Numbers,
    powers: Numbers,
    targets: Numbers,
) -> AtLimits:
    """Time and mean power at power limits `targets` (W) of a program that took
    `times` at mean `powers` (W) under `limits` (W); mean over all programs of
    the grid that agree with the readings.

    One reading does not tell a busy program from a waiting one: read two limits, far
    apart. Raises `ValueError` for readings that are no positive numbers.
    """
    same = len(limits) == len(times) == len(powers)
    read = np.array([limits, times, powers], dtype=float) if same else np.empty(0)
    if read.size == 0 or not (np.isfinite(read) & (read > 0)).all():
        raise ValueError(
            "`limits`, `times` and `powers` must be positive numbers, one of each for "
            f"every reading; they are {limits}, {times}, {powers}."
        )
    time, power = responses(card, corrections, [*limits, *targets])
    possible = np.all((time > 0) & (power > 0), axis=-1)  # not below idle power
    time, power = np.log(time[possible]), np.log(power[possible])
    known, (_, log_times, log_powers) = len(limits), np.log(read)
    length = np.mean(log_times - time[:, :known], axis=-1, keepdims=True)
    time = time + length  # how long the program is says nothing
    late = (time[:, :known] - log_times) / READING_SD[0]
    high = (power[:, :known] - log_powers) / READING_SD[1]
    distance = np.sum(late**2 + high**2, axis=-1)
    weight = np.exp(-0.5 * (distance - distance.min()))
    weight /= weight.sum()
    return AtLimits(*(np.exp(weight @ x[:, known:]) for x in (time, power)))


def responses(
    card: GpuCard, corrections: Corrections, limits: Numbers
) -> tuple[np.ndarray, np.ndarray]:
    """(time, mean power) of every program of the grid under each limit, of shape (busy
    power, DRAM share, busy share, limit); time is 1 at the highest clock."""
    spec = card.spec
    workload = _programs(card.values["tdp"], card.values["sm_clock_max"])
    time, power = [], []
    for limit in limits:
        point = dataclasses.replace(default_point(spec), power_cap=as_float(limit))
        _, limited = _compiled()(workload, spec, point, corrections)
        shape = (len(BUSY_POWER), len(DRAM_SHARE))
        time.append(np.asarray(limited.time).reshape(shape) / _REFERENCE)
        power.append(np.asarray(limited.energy / limited.time).reshape(shape))
    slow, busy = (np.stack(x, -1)[:, :, None] for x in (time, power))
    share = BUSY_SHARE[:, None]
    waiting = float(idle_power(spec, as_float(spec.sm_clock_max)))
    total = share * slow + 1 - share
    energy = share * slow * busy + (1 - share) * waiting
    return total, energy / total


@functools.cache
def _compiled():
    """Runs under a cap, jitted."""

    def respond(workload, spec, point, corrections):
        return runs(workload, spec, point, corrections, capped=True, bursts=False)

    return jax.jit(respond, compiler_options=compiler_options(True))


@functools.lru_cache(maxsize=16)
def _programs(tdp: float, clock: float) -> Workload:
    """The busy parts of the grid's programs at `clock` (Hz), one a phase."""
    programs = [
        {
            "op": "activity",
            "dram_active": float(dram),
            "time_ref_us": 1e6 * _REFERENCE,
            "avg_power_ref_w": float(tdp * power),
            "sm_clock_ref_mhz": clock / 1e6,
        }
        for power in BUSY_POWER
        for dram in DRAM_SHARE
    ]
    kernels = [normalise_kernel(x, "grid") for x in programs]
    rows = op_rows([(kernel, i) for i, kernel in enumerate(kernels)])
    return build_workload(rows, PhaseColumns.single(len(kernels)))
