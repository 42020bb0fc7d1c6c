"""`estimate`: the one function that composes demand, timeline, power and governor."""

import copy
import dataclasses
import functools
from typing import Any, Final, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.core import Tracer
from jaxtyping import Float

from .. import smooth
from ..compiling import compiled_whole, compiler_options
from ..corrections import Corrections
from ..hardware._spec import (
    GpuSpec,
    OperatingPoint,
    default_point,
    relative_voltage,
    voltage,
)
from ..kernels import formulas
from ..physics._demand import Demand
from ..physics._governor import capped_clock, secant_clock
from ..physics._instrument import Run
from ..physics._phase import phase_time, static_power
from ..physics._power import LAUNCH_COMPONENTS, launch_energy, with_corrections
from ..physics._timeline import sm_side_cycles, timing
from ..workload._workload import Workload
from ._answer.limits import limiter
from ._answer.records import Estimate, KernelEstimate, PhaseEstimate

_ILLEGAL: Final = 1e3
"""Factor on the time of candidates that cannot run."""
_FEW_PHASES: Final = 8


def estimate(
    workload: Workload,
    gpu: GpuSpec,
    point: OperatingPoint | None = None,
    corrections: Corrections | None = None,
) -> Estimate:
    """The public `estimate` of a `Workload` (see `_ask.estimate`)."""
    arguments = (workload, gpu, point, corrections)
    relaxed = smooth.is_relaxed()
    if _inside_jit():  # the outermost `jit` chooses the compiler options
        return _nested(relaxed)(*arguments)
    if _traced(arguments):
        return compiled_whole(_nested(relaxed), arguments)
    return _compiled(False)(*arguments, relaxed)


def _inside_jit() -> bool:
    """Whether a caller is tracing a program (jit, scan, checkpoint)."""
    return isinstance(jnp.zeros(()) + 0, Tracer)


def _traced(arguments: Any) -> bool:
    """Whether a caller transforms this call (grad, vmap, jit)."""
    return any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(arguments))


def estimate_once(
    workload: Workload,
    gpu: GpuSpec,
    point: OperatingPoint | None = None,
    corrections: Corrections | None = None,
) -> Estimate:
    """`estimate` without a gradient, compiled for a single call: several times faster
    to compile, a few times slower to run."""
    arguments = (workload, gpu, point, corrections, False)
    if _inside_jit() or _traced(arguments):
        return _estimate(*arguments, differentiable=False)
    return _compiled(True)(*arguments)


@functools.cache
def _compiled(once: bool):
    """`_estimate`, jitted; `once`: for a single call, not differentiable."""
    function = functools.partial(_estimate, differentiable=not once)
    return jax.jit(function, static_argnums=4, compiler_options=compiler_options(once))


@functools.cache
def _nested(relaxed: bool):
    """`_estimate`, jitted, inside somebody else's transformation."""
    return jax.jit(functools.partial(_estimate, relaxed=relaxed))


def _estimate(
    workload: Workload,
    gpu: GpuSpec,
    point: OperatingPoint | None,
    corrections: Corrections | None,
    relaxed: bool,
    differentiable: bool = True,
) -> Estimate:
    point = default_point(gpu) if point is None else point
    c = gpu.corrections if corrections is None else corrections
    with smooth.relaxed(relaxed):
        return _Run(workload, gpu, c, point).estimate(differentiable)


def runs(
    workload: Workload,
    gpu: GpuSpec,
    point: OperatingPoint,
    corrections: Corrections,
    capped: bool,
    bursts: bool,
) -> tuple[Run, Run]:
    """(free, governed): time and energy of each phase at the requested clock and at the
    one that the power cap allows. `capped`: some phase may be over its cap; `bursts`:
    `free` is wanted too (else it is `governed`).

    For fits: the model is in the program once, and forward mode alone is cheap. The
    clock takes a fixed number of secant steps (`capped_clock` searches until it is
    found); its derivative is the implicit one.
    """
    return _Run(workload, gpu, corrections, point).runs(capped, bursts)


class _State(NamedTuple):
    """A workload at given clocks: launches (candidates mixed) and phases."""

    clock: Array  # per phase from here on unless said otherwise
    weights: list[Array]  # of the candidates, by group
    energies: tuple[Array, ...]  # of every candidate, in the order of COMPONENTS
    launch: Array  # launch cost of every candidate, s
    kernel_time: Array  # per launch
    kernel_energy: Array  # per launch, beyond idle
    gpu_time: Array
    time: Array
    load: Array  # W beyond idle and leakage
    idle: Array
    leakage: Array
    temperature: Array  # C
    other: Array  # J

    @property
    def power(self) -> Array:
        """Mean power of each phase, W."""
        return self.load + self.idle + self.leakage


def _as_run(logs: Array) -> Run:
    """`Run` from (ln time, ln power)."""
    time, power = jnp.exp(logs)
    return Run(time, time * power)


class _Run:
    """One evaluation: holds the demand, which no clock changes, while clocks vary."""

    def __init__(
        self, workload: Workload, gpu: GpuSpec, c: Corrections, point: OperatingPoint
    ):
        self.workload, self.gpu, self.c = workload, with_corrections(gpu, c), c
        self.num_phases = len(workload.names)
        self.point = jax.tree.map(
            lambda x: jnp.broadcast_to(x, (self.num_phases,)), point
        )
        found = demands(workload, self.gpu, c)
        self.sizes = [demand.ctas.shape for demand in found]
        flat = [jax.tree.map(jnp.ravel, demand) for demand in found]
        joined: Demand = jax.tree.map(lambda *x: jnp.concatenate(x), *flat)
        groups = workload.groups
        self.count, self.row, self.phase = (
            jnp.concatenate([getattr(group, name) for group in groups])
            for name in ("count", "row", "phase")
        )
        self.phase_of_candidate = jnp.concatenate(
            [
                jnp.repeat(group.phase, size[1], total_repeat_length=size[0] * size[1])
                for group, size in zip(groups, self.sizes, strict=True)
            ]
        )
        self.demand = joined  # `per_candidate` needs its shape
        bytes_, math = (
            self.per_candidate(getattr(workload.phases, name))
            for name in ("data_activity", "math_activity")
        )
        self.demand = dataclasses.replace(
            joined,
            activity=joined.activity * bytes_,
            math_activity=joined.math_activity * math,
        )
        phases = workload.phases
        trains, age = map(self.per_candidate, (phases.training, phases.age))
        older = joined.training * jnp.exp(joined.aging * age)
        self.pace = jnp.where(trains > 0, older, 1.0)

    def per_candidate(self, x: Float[Array, " p"]) -> Float[Array, " flat"]:
        """A phase quantity for every candidate."""
        if self.num_phases == 1:
            return jnp.broadcast_to(x, self.demand.ctas.shape)  # no gather
        return x[self.phase_of_candidate]

    def per_phase(self, x: Float[Array, "q k"]) -> Float[Array, "q p"]:
        """Sums of launch quantities over phases, counts included."""
        x = x * self.count
        if self.num_phases <= _FEW_PHASES:
            member = self.phase[:, None] == jnp.arange(self.num_phases)
            return x @ member.astype(x.dtype)
        return jax.ops.segment_sum(x.T, self.phase, self.num_phases).T

    def groups(self, x: Float[Array, "*q flat"]) -> list[Float[Array, "*q n k"]]:
        """Candidate quantities cut into (kernels, candidates) by group."""
        parts, start = [], 0
        for n, k in self.sizes:
            part = x[..., start : start + n * k]
            parts.append(part.reshape(*x.shape[:-1], n, k))
            start += n * k
        return parts

    def mixture(self, time: Array) -> list[Array]:
        """Weights of the candidates of each group."""
        stacked = jnp.stack([time, self.demand.choice, self.demand.tau])
        return [smooth.choice_weights(*x) for x in self.groups(stacked)]

    def mean(self, weights: list[Array], *x: Array) -> Array:
        """Means of candidate quantities under the mixture: (quantities, launches)."""
        parts = zip(self.groups(jnp.stack(x)), weights, strict=True)
        return jnp.concatenate([jnp.sum(w * part, axis=-1) for part, w in parts], -1)

    def host(self) -> Array:
        """Time that the host needs for each phase, s."""
        p, c = self.workload.phases, self.c
        needed = (
            c.dispatch_stream * p.stream_ops
            + c.dispatch_matrix * p.matrix_ops
            + c.dispatch_module * p.module_calls
            + c.dispatch_pass * p.passes
        )
        return p.eager * needed

    def at(self, clock: Array) -> "_State":
        """Everything at one `clock` (Hz) per phase."""
        of_candidate = self.per_candidate(clock)
        mem_clock = self.per_candidate(self.point.mem_clock)
        times = timing(self.demand, self.gpu, self.c, of_candidate, mem_clock)
        longer = times.launch + self.pace * (times.time - times.launch)
        times = dataclasses.replace(times, time=longer)
        volts = relative_voltage(self.gpu, clock, self.point.mem_locked)
        core = volts**2 * self.c.core_energy
        energies = launch_energy(
            self.demand, times, self.c, of_candidate, self.per_candidate(core)
        )
        weights = self.mixture(times.time * (1 + (_ILLEGAL - 1) * self.demand.illegal))
        kernel_time, kernel_energy = self.mean(
            weights, times.time, jnp.sum(jnp.stack(energies), axis=0)
        )
        gpu_time, kernels_energy = self.per_phase(
            jnp.stack([kernel_time, kernel_energy])
        )
        time = phase_time(gpu_time, self.host())
        other = self.workload.phases.other_core_work * core
        load = (kernels_energy + other) / time
        static = static_power(self.gpu, self.c, clock, load, self.point)
        return _State(
            clock, weights, energies, times.launch, kernel_time, kernel_energy,
            gpu_time, time, load, *static, other,
        )  # fmt: skip

    def log_run(self, x: Array) -> Array:
        """(ln time, ln power) of every phase at clocks exp(x)."""
        s = self.at(jnp.exp(x))
        return jnp.log(jnp.stack([s.time, s.power]))

    def runs(self, capped: bool, bursts: bool) -> tuple[Run, Run]:
        requested = self.requested()
        top = jnp.log(requested)
        if not capped:
            free = _as_run(self.log_run(top))
            return free, free
        still = self.without_gradient()
        lowest = jnp.log(jnp.minimum(self.gpu.sm_clock_min, requested))
        cap = jnp.log(self.point.power_cap * self.gpu.cap_fraction)
        root, slopes = secant_clock(
            still.log_run, *(lax.stop_gradient(x) for x in (top, lowest, cap))
        )
        over = (root < lax.stop_gradient(top)) & (root > lax.stop_gradient(lowest))
        root = jnp.where(root < lax.stop_gradient(top), root, top)  # with `top`'s slope
        clocks = jnp.stack([top, root]) if bursts else root[None]
        found = jax.vmap(self.log_run)(clocks)
        # first order in the clock: d x = -(d ln P - d ln cap) / (d ln P / d x)
        miss = found[-1, 1] - cap
        miss = miss - lax.stop_gradient(miss)
        shift = jnp.where(over, -miss / slopes[1], 0.0)
        governed = _as_run(found[-1] + slopes * shift)
        return (_as_run(found[0]) if bursts else governed), governed

    def without_gradient(self) -> "_Run":
        """The same evaluation as a constant."""
        still = copy.copy(self)
        for name in ("workload", "gpu", "c", "point", "demand", "pace"):
            setattr(still, name, lax.stop_gradient(getattr(self, name)))
        return still

    def requested(self) -> Array:
        """Clock that is asked for, Hz, at most the highest one that is applied."""
        # the default request is the highest clock: no tie, whose slope would be halved
        highest, requested = self.gpu.sm_clock_applied_max, self.point.sm_clock
        return jnp.where(requested > highest, highest, requested)

    def estimate(self, differentiable: bool) -> Estimate:
        requested = self.requested()
        lowest = jnp.minimum(self.gpu.sm_clock_min, requested)
        clock, feasible = capped_clock(
            lambda f: self.at(f).power,
            requested,
            lowest,
            self.point.power_cap * self.gpu.cap_fraction,
            differentiable,
        )
        s = self.at(clock)
        parts = self.per_phase(self.mean(s.weights, *s.energies))
        parts = parts.at[LAUNCH_COMPONENTS.index("other")].add(s.other)
        static = jnp.stack([s.idle * s.time, s.leakage * s.time])
        utilization, limiter, launch = self._usage(s)
        energy = s.power * s.time
        total_time, total_energy = jnp.sum(s.time), jnp.sum(energy)
        return Estimate(
            total_time,
            total_energy,
            total_energy / total_time,
            jnp.sum(clock * s.time) / total_time,
            PhaseEstimate(
                s.time,
                energy,
                s.power,
                clock,
                voltage(self.gpu, clock, self.point.mem_locked),
                s.temperature,
                s.gpu_time,
                self.host(),
                feasible,
                jnp.concatenate([parts, static]).T,
            ),
            KernelEstimate(
                s.kernel_time,
                launch,
                s.kernel_energy,
                utilization,
                limiter,
                self.count,
                self.row,
                self.phase,
            ),
        )

    def _usage(self, s: "_State") -> tuple[Array, Array, Array]:
        """(utilization of each unit, limiter, launch latency in s) of every launch."""
        d, gpu, c = self.demand, self.gpu, self.c
        busy, reached = sm_side_cycles(d, gpu, c)
        means = self.mean(
            s.weights, *busy, *reached, d.dram + d.store_dram, d.link, s.launch,
            d.ctas, d.launches, _has_path(d),
        )  # fmt: skip
        time, clock = s.kernel_time, s.clock[self.phase]
        of_units = means[:12] / (clock * time)
        dram_rate = (
            gpu.dram_bandwidth * self.point.mem_clock[self.phase] / gpu.mem_clock
        )
        dram = means[12] / (dram_rate * time)
        link = means[13] / (gpu.link_bandwidth * time)
        share = jnp.minimum(jnp.stack([*of_units[:6], dram, link], -1), 1.0)
        near = jnp.stack([*of_units[6:], dram / c.dram_efficiency, link], -1)
        # transfers over links need few CTAs
        filled = jnp.where(means[13] > 0, jnp.inf, means[15] / gpu.num_sms)
        latency = means[16] * (c.launch_seconds + means[17] * c.launch_cycles / clock)
        latency -= means[16] * (1 - means[17]) * _ramp(gpu, c)
        return share, limiter(share, near, means[14] / time, filled), latency


def _has_path(d: Demand) -> Array:
    """1 for launches with a critical path of their own, 0 for those that stream: their
    first load and last store are part of what fits call launching."""
    own = d.path_cycles + d.own_cycles + d.fixed_cycles
    return jnp.where(own + d.path_seconds > 0, 1.0, 0.0)


def _ramp(gpu: GpuSpec, c: Corrections) -> Array:
    """s of a streaming kernel's first load and last store, at most all of launching
    that no clock moves."""
    return jnp.minimum(2 * gpu.dram_latency, c.launch_seconds)


def demands(workload: Workload, gpu: GpuSpec, corrections: Corrections) -> list[Demand]:
    """What the launches of each group of `workload` ask of `gpu`, with all candidates:
    axes (launch, candidate). No clock changes it."""
    by_shape = formulas()
    return [by_shape[type(s)](s, gpu, corrections) for s in workload.shapes]
