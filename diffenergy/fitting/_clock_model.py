"""Model of a `ClockLaw` fit: readings, priors, unknowns, residuals.

Unknowns are factors of a few numbers of the GPU (voltage, idle power, limiter), the
centres of the kinds of kernels, and three numbers of every kernel; all have priors, in
logarithms. A kernel's residuals depend on the shared unknowns and its own three.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree
from jaxtyping import Float, Int

from ..compiling import compiler_options
from ..corrections import Corrections
from ..hardware import GpuSpec
from ..records import as_float
from ..smooth import robust
from ._clock_law import (
    Cells,
    ClockLaw,
    compiled_cells,
    kernel_cells,
    kernel_demand,
    law_corrections,
)

GPU_WIDTHS: Final[Mapping[str, float]] = {
    "vf_knee_clock": 0.1,
    "vf_slope": 0.4,
    "vf_curvature": 0.5,
    "vf_unlocked_slope": 0.4,
    "idle_constant": 0.2,
    "idle_clock": 0.4,
    "idle_leakage": 0.5,
    "cap_fraction": 0.01,
    "sm_clock_applied_share": 0.015,
}
"""Prior sd of ln of the GPU's numbers that are fitted (study of arXiv 2601.08539)."""
LAW_WIDTHS: Final[Mapping[str, float]] = {
    "memory_idle": 0.1,
    "energy_dram": 0.3,
    "flow": 0.3,
    "slow_memory": 0.1,
}
"""The same of the numbers that are no field of a GPU."""
LATENTS: Final = 3
"""Numbers of a kernel: ln of core work, DRAM bytes, core energy."""


@dataclasses.dataclass(frozen=True)
class Kind:
    """Kernels that share prior centres: what is known of each is its ratio to them.

    Widths are of ln (core work, DRAM bytes, core energy): `own` of a kernel within its
    kind, `centre` of the kind.
    """

    own: tuple[float, float, float]
    centre: tuple[float, float, float]
    sharpness: float = 6.0
    sharpness_width: float = 0.3


@dataclasses.dataclass(frozen=True)
class KernelPriors:
    """Expected core work (cycles) and DRAM bytes of each kernel, and its core energy at
    V0 as `energy_cycle` J per cycle + `energy_byte` J per byte."""

    kinds: tuple[Kind, ...]
    kind: Int[np.ndarray, " kernel"]
    cycles: Float[np.ndarray, " kernel"]
    dram: Float[np.ndarray, " kernel"]
    energy_cycle: Float[np.ndarray, " kernel"]
    energy_byte: Float[np.ndarray, " kernel"]


PLAIN: Final = Kind((1.0, 1.0, 0.7), (0.3, 0.3, 0.3), 4.0, 0.4)
"""Kernels of which nothing but readings is known."""
_PLAIN_CORE: Final = 0.8
_PLAIN_DRAM: Final = 0.4
"""Core and DRAM parts / time of such a kernel."""
_PLAIN_POWER: Final = 0.3
"""Core power of such a kernel at V0 and the top clock / TDP."""


def plain_priors(gpu: GpuSpec, time: Float[np.ndarray, " kernel"]) -> KernelPriors:
    """Priors of kernels known only by a `time` (s) near the highest clocks; wide."""
    top = float(gpu.sm_clock_applied_max)
    ones = np.ones_like(time)
    return KernelPriors(
        (PLAIN,),
        np.zeros(len(time), int),
        _PLAIN_CORE * time * top,
        _PLAIN_DRAM * time * float(gpu.dram_bandwidth),
        _PLAIN_POWER * float(gpu.tdp) / top * ones,
        0 * ones,
    )


@dataclasses.dataclass(frozen=True)
class Readings:
    """Measured times and energies, NaN where missing; `*_sd`: std of the logarithms."""

    time: Float[np.ndarray, "kernel setting"]  # s
    energy: Float[np.ndarray, "kernel setting"]  # J
    time_sd: float = 0.01
    energy_sd: float = 0.02

    def rows(self) -> tuple[Float[np.ndarray, "kernel r"], np.ndarray]:
        """(ln readings, their errors), in the order of `log_cells`."""
        logs = np.log(np.concatenate([self.time, self.energy], 1))
        sd = np.repeat([self.time_sd, self.energy_sd], self.time.shape[1])
        return logs, np.broadcast_to(sd, logs.shape)


class Base(NamedTuple):
    """Fixed numbers of a clock-law fit."""

    gpu: GpuSpec
    corrections: Corrections
    power_cap: Array
    flow: Array
    slow_memory: Array
    kind: Int[Array, " kernel"]
    cycles: Array
    dram: Array
    energy_cycle: Array
    energy_byte: Array
    sharpness: Float[Array, " kind"]


class Shared(NamedTuple):
    """Unknowns that all kernels share (ln of factors)."""

    gpu: Float[Array, " field"]
    law: Float[Array, " number"]
    kinds: Float[Array, "kind 4"]  # centres of the latents, ln of the sharpness


def law_of(
    base: Base, shared: Shared, latents: Float[Array, "*k 3"], kernel: Int[Array, "*k"]
) -> ClockLaw:
    """`ClockLaw` of the kernels with indices `kernel`."""
    factors = dict(zip(GPU_WIDTHS, jnp.exp(shared.gpu), strict=True))
    gpu = dataclasses.replace(
        base.gpu, **{n: getattr(base.gpu, n) * x for n, x in factors.items()}
    )
    memory_idle, energy_dram, flow, slow = jnp.exp(shared.law)
    corrections = dataclasses.replace(
        base.corrections,
        memory_idle=base.corrections.memory_idle * memory_idle,
        energy_dram=base.corrections.energy_dram * energy_dram,
    )
    kind = base.kind[kernel]
    scale = jnp.exp(latents + shared.kinds[kind, :LATENTS])
    cycles = base.cycles[kernel] * scale[..., 0]
    dram = base.dram[kernel] * scale[..., 1]
    energy = base.energy_cycle[kernel] * cycles + base.energy_byte[kernel] * dram
    kernels = kernel_demand(
        gpu,
        cycles,
        dram,
        energy * scale[..., 2],
        base.flow * flow + jnp.zeros_like(cycles),
        base.sharpness[kind] * jnp.exp(shared.kinds[kind, LATENTS]),
    )
    return ClockLaw(gpu, corrections, kernels, base.slow_memory * slow, base.power_cap)


def law_of_all(base: Base, shared: Shared, latents: Float[Array, "k 3"]) -> ClockLaw:
    """`ClockLaw` of all kernels, compiled: one by one its steps take longer."""
    return _compiled_law()(base, shared, latents, jnp.arange(len(latents)))


@functools.cache
def _compiled_law() -> Callable[..., ClockLaw]:
    return jax.jit(law_of, compiler_options=compiler_options(True))


def log_cells(c: Cells) -> Float[Array, " r"]:
    """ln of the times, then of the energies of one kernel."""
    return jnp.concatenate([jnp.log(c.time), jnp.log(c.energy)])


class Flat(NamedTuple):
    """Layout of the vector of unknowns: shared, latents, then any others."""

    shared: tuple[int, int, int]  # sizes of the leaves of `Shared`
    kernels: int

    def split(self, z: Array) -> tuple[Shared, Array, Array]:
        """(shared, latents of each kernel, others) of the vector `z`."""
        a, b, c = np.cumsum(self.shared)
        shared = Shared(z[:a], z[a:b], z[b:c].reshape(-1, LATENTS + 1))
        return shared, z[c : self.size].reshape(self.kernels, LATENTS), z[self.size :]

    @property
    def size(self) -> int:
        """Number of unknowns without the others."""
        return sum(self.shared) + self.kernels * LATENTS


def base_of(
    gpu: GpuSpec,
    corrections: Corrections,
    priors: KernelPriors,
    power_cap: float,
    flow: float,
    slow_memory: float = 1.0,
) -> Base:
    """Collects the fixed numbers of a clock-law fit.

    `power_cap`: W. `flow`: B/cycle/SM that DRAM delivers at low SM clocks.
    `slow_memory`: prior of `ClockLaw.slow_memory`.
    """
    return Base(
        gpu,
        law_corrections(corrections),
        as_float(power_cap),
        as_float(flow),
        as_float(slow_memory),
        jnp.asarray(priors.kind),
        as_float(priors.cycles),
        as_float(priors.dram),
        as_float(priors.energy_cycle),
        as_float(priors.energy_byte),
        as_float([kind.sharpness for kind in priors.kinds]),
    )


@functools.cache
def kernel_rows(read: Callable[..., Array]) -> Callable:
    """Robust residuals of what `read` takes from the cells of every kernel.

    The cells are those of `law_table`: most of the time of a first fit is compiling.
    """

    @functools.partial(jax.jit, compiler_options=compiler_options(True))
    def residuals(cells: Cells, values: Array, sd: Array, *extra: Array) -> Array:
        return robust((jax.vmap(read)(cells, *extra) - values) / sd)

    def rows(base, shared, latents, point, *inputs):
        law = law_of_all(base, shared, latents)
        return residuals(compiled_cells()(law, point), *inputs)

    return rows


@functools.cache
def kernel_slopes(read: Callable[..., Array]) -> Callable:
    """Jacobian of each kernel's residuals: (shared unknowns, its latents)."""

    def of_kernel(base, shared, latents, kernel, point, values, sd, *extra):
        flat, unravel = ravel_pytree(shared)

        def residuals(z: Array) -> Array:
            law = law_of(base, unravel(z[: flat.size]), z[flat.size :], kernel)
            predicted = read(kernel_cells(law, law.kernels, point), *extra)
            return robust((predicted - values) / sd)

        columns = jax.jacfwd(residuals)(jnp.concatenate([flat, latents]))
        return columns[:, : flat.size], columns[:, flat.size :]

    def slopes(base, shared, latents, point, *inputs):
        axes = (None, None, 0, 0, None, *(0 for _ in inputs))
        kernels = jnp.arange(len(latents))
        each = jax.vmap(of_kernel, in_axes=axes)
        return each(base, shared, latents, kernels, point, *inputs)

    return jax.jit(slopes, compiler_options=compiler_options(True))
