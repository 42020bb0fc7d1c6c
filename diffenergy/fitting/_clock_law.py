"""`ClockLaw`: what kernels cost at other clocks, each known by three numbers.

A kernel is core work (cycles that follow the SM clock), DRAM bytes and core energy (J
at V0): a `Demand` like any other, so that time, power and the power limiter are those
of the model. The numbers come from readings (`clock_fit`).
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Final, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float

from ..compiling import compiler_options
from ..corrections import Corrections
from ..hardware import GpuSpec, OperatingPoint, relative_voltage
from ..physics import (
    LEAKAGE_REFERENCE,
    Demand,
    launch_energy,
    make_demand,
    secant_clock,
    static_power,
    timing,
)
from ..records import as_float

SLOW_MEMORY: Final = 0.2
"""Memory clocks below this share of the default one are idle states of the memory."""
_NEWTON: Final = 3
_BEYOND: Final = 0.05
"""ln of how far above the highest clock the limiter's clock is sought."""
_ROUNDING: Final = 0.003
"""Width, in ln clock, of the corner between the limiter's clock and the highest."""


class Points(NamedTuple):
    """Settings as the GPU applies them."""

    sm_clock: Float[Array, " setting"]  # Hz, requested; infinite: left alone
    mem_clock: Float[Array, " setting"]  # Hz
    mem_locked: Float[Array, " setting"]  # 1: locked, 0: left alone


class Cells(NamedTuple):
    """Time (s), energy (J) and applied SM clock (Hz) of kernels at settings."""

    time: Float[Array, "*kernel setting"]
    energy: Float[Array, "*kernel setting"]
    clock: Float[Array, "*kernel setting"]


class ClockLaw(eqx.Module):
    """Kernels on a GPU under a power limit.

    `corrections` hold only what a launch costs and what DRAM delivers and draws: core
    energy is in the kernels, leakage of the warm board in the GPU's idle power.
    `slow_memory`: share of the DRAM rate that is left in idle states of the memory,
    beyond what the clock takes.
    """

    gpu: GpuSpec
    corrections: Corrections
    kernels: Demand  # [kernel]
    slow_memory: Float[Array, ""]
    power_cap: Float[Array, ""]  # W


def law_corrections(c: Corrections) -> Corrections:
    """Corrections without the energies that a `ClockLaw` states per kernel."""
    ones = ("dynamic_energy", "core_energy", "idle_scale")
    zeros = ("sm_clock_energy", "energy_launch", "energy_tile", "leakage")
    fields = dict.fromkeys(ones, as_float(1.0)) | dict.fromkeys(zeros, as_float(0.0))
    return dataclasses.replace(c, **fields)


def kernel_demand(
    gpu: GpuSpec,
    cycles: Float[Array, "*k"],
    dram: Float[Array, "*k"],
    core_energy: Float[Array, "*k"],
    flow: Float[Array, "*k"],
    sharpness: Float[Array, "*k"],
) -> Demand:
    """Demand of kernels of core `cycles` on all SMs, `dram` bytes and `core_energy`
    (J at V0).

    `flow`: bytes per cycle and SM that DRAM delivers at most; `sharpness`: of the
    overlap of core and DRAM.
    """
    return make_demand(
        path_cycles=cycles,
        dram=dram,
        other_energy=core_energy,
        flow=flow,
        sharpness_memory=sharpness,
        ctas=gpu.num_sms,
        quantization=0.0,
    )


def points(
    gpu: GpuSpec,
    settings: Float[np.ndarray, "setting 2"],
    core_limit: Float[np.ndarray, " setting"] | None = None,
) -> Points:
    """Points at `settings` (SM clock, memory clock; Hz, NaN: left to the GPU).

    `core_limit`: Hz, SM clock that a memory clock allows at most (infinite: any).
    """
    sm, mem = np.asarray(settings, float).T
    limit = np.inf if core_limit is None else core_limit
    return Points(
        as_float(np.minimum(np.where(np.isnan(sm), np.inf, sm), limit)),
        jnp.where(jnp.isnan(as_float(mem)), gpu.mem_clock, as_float(mem)),
        as_float(~np.isnan(mem)),
    )


def log_costs(
    law: ClockLaw, kernel: Demand, log_clock: Array, point: Points
) -> Float[Array, "2"]:
    """(ln time, ln power) of one kernel at one setting and SM clock e^`log_clock`."""
    gpu, c, clock = law.gpu, law.corrections, jnp.exp(log_clock)
    slow = point.mem_clock < SLOW_MEMORY * gpu.mem_clock
    delivered = point.mem_clock * jnp.where(slow, law.slow_memory, 1.0)
    times = timing(kernel, gpu, c, clock, delivered)
    core = relative_voltage(gpu, clock, point.mem_locked) ** 2
    load = sum(launch_energy(kernel, times, c, clock, core)) / times.time
    where = OperatingPoint(
        clock, point.mem_clock, law.power_cap, LEAKAGE_REFERENCE, point.mem_locked
    )
    idle, leakage, _ = static_power(gpu, c, clock, load, where)
    return jnp.log(jnp.stack([times.time, load + idle + leakage]))


def highest_clock(law: ClockLaw, point: Points) -> Float[Array, " setting"]:
    """ln of the SM clock (Hz) that the GPU applies without a power limit."""
    return jnp.log(jnp.minimum(point.sm_clock, law.gpu.sm_clock_applied_max))


def governed(
    log_run: Callable[[Array], Array],
    still_run: Callable[[Array], Array],
    law: ClockLaw,
    top: Array,
) -> tuple[Array, Array]:
    """(ln time, ln power) and ln clock of settings under the power limiter.

    `log_run` gives (ln time, ln power) at ln clocks, `still_run` the same without a
    gradient; `top`: ln of the clocks without a limiter. First order in the limit:
    d ln f = (d ln cap - d ln P)/(d ln P/d ln f). The lower of the two clocks, rounded:
    0.2 % less where they are equal, without which a fit stops at the corner.
    """
    cap = jnp.log(law.power_cap * law.gpu.cap_fraction)
    still_top = lax.stop_gradient(top)
    highest = still_top + _BEYOND
    lowest = jnp.minimum(lax.stop_gradient(jnp.log(law.gpu.sm_clock_min)), still_top)
    still_cap = jnp.broadcast_to(lax.stop_gradient(cap), top.shape)
    root, _ = secant_clock(still_run, highest, lowest, still_cap)
    for _ in range(_NEWTON):  # secants alone may stop short below the knee
        values, slopes = jax.jvp(still_run, (root,), (jnp.ones_like(root),))
        root = jnp.clip(root - (values[1] - still_cap) / slopes[1], lowest, highest)
    inside = (root < highest) & (root > lowest)
    slopes = jax.jvp(still_run, (root,), (jnp.ones_like(root),))[1]
    miss = log_run(root)[1] - cap
    miss = miss - lax.stop_gradient(miss)
    limited = root + jnp.where(inside, -miss / slopes[1], 0.0)
    clock = limited - _ROUNDING * jax.nn.softplus((limited - top) / _ROUNDING)
    return log_run(clock), clock


def kernel_cells(law: ClockLaw, kernel: Demand, point: Points) -> Cells:
    """Time, energy and clock of one kernel at every setting under the power limit."""

    def run(law, kernel):
        each = jax.vmap(lambda x, p: log_costs(law, kernel, x, p), out_axes=1)
        return lambda x: each(x, point)

    still = run(*lax.stop_gradient((law, kernel)))
    logs, clock = governed(run(law, kernel), still, law, highest_clock(law, point))
    return Cells(jnp.exp(logs[0]), jnp.exp(logs[0] + logs[1]), jnp.exp(clock))


def cells(law: ClockLaw, point: Points) -> Cells:
    """Time, energy and clock of every kernel at every setting under the power limit."""
    each = jax.vmap(kernel_cells, in_axes=(None, 0, None))
    return each(law, law.kernels, point)


@functools.cache
def compiled_cells() -> Callable[[ClockLaw, Points], Cells]:
    """`cells`, compiled once for a fit and for the table of its law."""
    return jax.jit(cells, compiler_options=compiler_options(True))


def law_table(
    law: ClockLaw,
    settings: Float[np.ndarray, "setting 2"],
    core_limit: Float[np.ndarray, " setting"] | None = None,
) -> tuple[Float[np.ndarray, "kernel setting"], Float[np.ndarray, "kernel setting"]]:
    """Time (s) and energy (J) of one launch of every kernel by a `law` at `settings`
    (SM clock, memory clock; Hz), each setting under the power limiter, which holds core
    clocks below `core_limit` (Hz; None: no limit)."""
    table = compiled_cells()(law, points(law.gpu, settings, core_limit))
    return np.asarray(table.time), np.asarray(table.energy)
