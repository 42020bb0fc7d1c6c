"""A workload on a GPU at any clocks: times, loads and power of its phases."""

import dataclasses
from typing import Final, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float

from ..corrections import Corrections
from ..hardware import GpuSpec, OperatingPoint, relative_voltage
from ..physics import launch_energy, phase_time, static_power, timing, with_corrections
from ..workload import Phases, Workload
from ._launches import Launches, launches

_ROUNDING: Final = 1e-5
"""Relative; clocks in fp32 may lie that far beyond the ends of a range."""


class State(NamedTuple):
    """A workload at given clocks: launches (candidates mixed) and phases."""

    clock: Float[Array, " p"]  # Hz
    weights: list[Float[Array, "n c"]]  # of the candidates, by group
    energies: Float[Array, "component flat"]  # of every candidate, J
    launch: Float[Array, " flat"]  # launch cost of every candidate, s
    kernel_time: Float[Array, " k"]  # of one launch, s
    kernel_energy: Float[Array, " k"]  # of one launch, beyond idle, J
    gpu_time: Float[Array, " p"]  # s
    time: Float[Array, " p"]  # s
    load: Float[Array, " p"]  # W beyond idle and leakage
    idle: Float[Array, " p"]  # W
    leakage: Float[Array, " p"]  # W
    temperature: Float[Array, " p"]  # C
    other: Float[Array, " p"]  # J

    @property
    def power(self) -> Float[Array, " p"]:
        """Mean power of each phase, W."""
        return self.load + self.idle + self.leakage


class Running(eqx.Module):
    """A workload on a GPU: what no clock changes, to be evaluated at any clocks."""

    launches: Launches
    phases: Phases
    gpu: GpuSpec
    c: Corrections
    point: OperatingPoint  # one row a phase

    def at(self, clock: Float[Array, " p"]) -> State:
        """Everything at one `clock` (Hz) per phase."""
        many, gpu, c = self.launches, self.gpu, self.c
        of_candidate = many.per_candidate(clock)
        mem_clock = many.per_candidate(self.point.mem_clock)
        times = timing(many.demand, gpu, c, of_candidate, mem_clock)
        # Older programs take longer in their kernels, not in launching them; before the
        # governor, which sees the power of the longer run.
        longer = times.launch + many.pace * (times.time - times.launch)
        times = dataclasses.replace(times, time=longer)
        volts = relative_voltage(gpu, clock, self.point.mem_locked)
        core = volts**2 * c.core_energy
        of_core = many.per_candidate(core)
        energies = launch_energy(many.demand, times, c, of_candidate, of_core)
        weights = many.mixture(times.time)
        both = jnp.stack([times.time, jnp.sum(energies, axis=0)])
        kernel_time, kernel_energy = many.mean(weights, both)
        gpu_time, kernels_energy = many.per_phase(
            jnp.stack([kernel_time, kernel_energy])
        )
        time = phase_time(gpu_time, self.host())
        other = self.phases.other_core_work * core
        load = (kernels_energy + other) / time
        static = static_power(gpu, c, clock, load, self.point)
        return State(
            clock, weights, energies, times.launch, kernel_time, kernel_energy,
            gpu_time, time, load, *static, other,
        )  # fmt: skip

    def log_run(self, x: Float[Array, " p"]) -> Float[Array, "2 p"]:
        """(ln time, ln power) of every phase at clocks exp(x)."""
        s = self.at(jnp.exp(x))
        return jnp.log(jnp.stack([s.time, s.power]))

    def host(self) -> Float[Array, " p"]:
        """Time that the host needs for each phase, s."""
        p, c = self.phases, self.c
        needed = (
            c.dispatch_stream * p.stream_ops
            + c.dispatch_matrix * p.matrix_ops
            + c.dispatch_module * p.module_calls
            + c.dispatch_pass * p.passes
        )
        return p.eager * needed

    def clocks(self) -> tuple[Float[Array, " p"], Float[Array, " p"]]:
        """(lowest, requested) clock, Hz: that which is asked for, at most the highest
        one that is applied."""
        # the default request is the highest clock: no tie, whose slope would be halved
        highest, requested = self.gpu.sm_clock_applied_max, self.point.sm_clock
        requested = jnp.where(requested > highest, highest, requested)
        return jnp.minimum(self.gpu.sm_clock_min, requested), requested

    @property
    def settable(self) -> Bool[Array, " p"]:
        """Whether the board has the clock that is asked for; one that is not given
        (NaN) is."""
        clock, slack = self.point.sm_clock, 1 + _ROUNDING
        low, high = self.gpu.sm_clock_min, self.gpu.sm_clock_max
        return ~((clock * slack < low) | (clock > high * slack))

    @property
    def cap(self) -> Float[Array, " p"]:
        """Mean power that the limiter holds each phase to, W."""
        return self.point.power_cap * self.gpu.cap_fraction


def running(
    workload: Workload, gpu: GpuSpec, c: Corrections, point: OperatingPoint
) -> Running:
    """`workload` on `gpu` with the constants `c`; leaves of `point` are one number or
    one for each phase."""
    gpu, num_phases = with_corrections(gpu, c), len(workload.names)
    point = jax.tree.map(lambda x: jnp.broadcast_to(x, (num_phases,)), point)
    return Running(launches(workload, gpu, c), workload.phases, gpu, c, point)
