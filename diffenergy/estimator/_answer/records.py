"""Records of an estimate: the whole, its phases, its kernels."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer
from jaxtyping import Bool, Float, Int

from ...physics import COMPONENTS, STATIC
from ...records import Record


class KernelEstimate(Record):
    """One launch of every kernel: means over its candidates."""

    time: Float[Array, "*k"]  # s, launch cost included
    launch: Float[Array, "*k"]  # s, of it the launch latency
    energy: Float[Array, "*k"]  # J beyond idle and leakage
    utilization: Float[Array, "*k unit"]  # of the peak rate, in the order of UNITS
    limiter: Int[Array, "*k"]  # index in `limits.LIMITS`
    count: Float[Array, "*k"]
    row: Int[Array, "*k"]  # listing row
    phase: Int[Array, "*k"]


class PhaseEstimate(Record):
    """Totals of each phase."""

    time: Float[Array, "*p"]  # s
    energy: Float[Array, "*p"]  # J
    power: Float[Array, "*p"]  # W, mean
    sm_clock: Float[Array, "*p"]  # Hz, after the governor
    voltage: Float[Array, "*p"]  # V, of the core
    temperature: Float[Array, "*p"]  # C, given or reached
    gpu_time: Float[Array, "*p"]  # s that kernels run
    host_time: Float[Array, "*p"]  # s that the host needs to dispatch
    feasible: Bool[Array, "*p"]  # the board has the clock, and can keep the power cap
    components: Float[Array, "*p component"]  # J, in the order of COMPONENTS

    @property
    def static_energy(self) -> Float[Array | np.ndarray, "*p"]:
        """J of idle and leakage power."""
        return self.components[..., STATIC].sum(axis=-1)

    @property
    def static_power(self) -> Float[Array | np.ndarray, "*p"]:
        """Idle and leakage power, W."""
        return self.static_energy / self.time


class Estimate(eqx.Module):
    """Time, energy and power of a workload, with its phases and kernels.

    `time`: s; `energy`: J of one GPU board; `power`: W, the mean; `sm_clock`: Hz, the
    mean over time; `phases`: the same of each phase, with core voltage (V), temperature
    of the chip (C), time of GPU and host (s) and energy by component (J); `kernels`: of
    one launch of each kernel, time (s), energy (J beyond idle and leakage) and
    utilization (share of each unit's peak). `feasible`: whether the board has the
    clocks that were asked for and can keep its power limit; if not, the numbers are
    those of the clock asked for (at most the highest), or of the lowest one.
    """

    time: Float[Array, ""]  # s
    energy: Float[Array, ""]  # J
    power: Float[Array, ""]  # W, mean
    sm_clock: Float[Array, ""]  # Hz, mean over time
    phases: PhaseEstimate
    kernels: KernelEstimate

    @property
    def feasible(self) -> Bool[Array, "*points"]:
        """Whether all phases are feasible."""
        return jnp.all(self.phases.feasible, axis=-1)

    def __repr__(self) -> str:
        one = isinstance(self.time, Array) and not self.time.ndim
        if not one or isinstance(self.time, Tracer):
            return super().__repr__()
        return (
            f"Estimate(time={self.time:.4g} s, energy={self.energy:.4g} J, "
            f"power={self.power:.4g} W, sm_clock={self.sm_clock:.4g} Hz, "
            f"feasible={bool(self.feasible)})"
        )

    @property
    def energy_by_unit(self) -> dict[str, Float[Array, ""]]:
        """J of each hardware unit, and of idle, leakage, clock tree and the rest; they
        add up to `energy`."""
        parts = jnp.sum(self.phases.components, axis=-2)
        return {name: parts[..., i] for i, name in enumerate(COMPONENTS)}
