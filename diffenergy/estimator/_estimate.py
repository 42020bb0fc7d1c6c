"""`estimate` of a workload: the one function behind everything, and how it compiles."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.core import Tracer

from .. import smooth
from ..compiling import call_compiled, compiled_whole, compiler_options
from ..corrections import Corrections
from ..hardware import GpuSpec, OperatingPoint, default_point, voltage
from ..physics import LAUNCH_COMPONENTS, TimeEnergy, capped_clock, secant_clock
from ..workload import Workload
from ._answer.limits import use_of
from ._answer.records import Estimate, KernelEstimate, PhaseEstimate
from ._running import Running, State, running


def estimate_workload(
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
        return compiled_whole(_nested(relaxed), arguments, persistent=True)
    return call_compiled(_nested(relaxed), arguments)


def estimate_once(
    workload: Workload,
    gpu: GpuSpec,
    point: OperatingPoint | None = None,
    corrections: Corrections | None = None,
) -> Estimate:
    """`estimate` without a gradient, compiled for a single call: several times faster
    to compile, a few times slower to run."""
    arguments = (workload, gpu, point, corrections)
    if _inside_jit() or _traced(arguments):
        return _estimate(*arguments, relaxed=False, differentiable=False)
    return _single()(*arguments)


def runs(
    workload: Workload,
    gpu: GpuSpec,
    point: OperatingPoint,
    corrections: Corrections,
    capped: bool,
    bursts: bool,
) -> tuple[TimeEnergy, TimeEnergy]:
    """(free, governed): time and energy of each phase at the requested clock and at the
    one that the power cap allows. `capped`: some phase may be over its cap; `bursts`:
    `free` is wanted too (else it is `governed`).

    For fits: the model is in the program once, and forward mode alone is cheap. The
    clock takes a fixed number of secant steps (`capped_clock` searches until it is
    found); its derivative is the implicit one.
    """
    model = running(workload, gpu, corrections, point)
    bottom, top = map(jnp.log, model.clocks())
    if not capped:
        free = _as_run(model.log_run(top))
        return free, free
    still, cap = lax.stop_gradient(model), jnp.log(model.cap)
    highest, lowest = lax.stop_gradient((top, bottom))
    root, slopes = secant_clock(still.log_run, highest, lowest, lax.stop_gradient(cap))
    over = (root < highest) & (root > lowest)
    root = jnp.where(root < highest, root, top)  # with `top`'s slope
    clocks = jnp.stack([top, root]) if bursts else root[None]
    runs_at = jax.vmap(model.log_run)(clocks)
    # first order in the clock: d x = -(d ln P - d ln cap) / (d ln P / d x)
    miss = runs_at[-1, 1] - cap
    miss = miss - lax.stop_gradient(miss)
    shift = jnp.where(over, -miss / slopes[1], 0.0)
    governed = _as_run(runs_at[-1] + slopes * shift)
    return (_as_run(runs_at[0]) if bursts else governed), governed


def _as_run(logs: Array) -> TimeEnergy:
    """`TimeEnergy` from (ln time, ln power)."""
    time, power = jnp.exp(logs)
    return TimeEnergy(time, time * power)


# --- compiling


def _inside_jit() -> bool:
    """Whether a caller is tracing a program (jit, scan, checkpoint)."""
    # an operation, as constants are no tracers inside a traced program
    return isinstance(jnp.zeros(()) + 0, Tracer)


def _traced(arguments: Any) -> bool:
    """Whether a caller transforms this call (grad, vmap, jit)."""
    return any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(arguments))


@functools.cache
def _nested(relaxed: bool):
    """`_estimate`, jitted, by a name that finds its programs."""

    def estimate(*arguments: Any) -> Estimate:
        return _estimate(*arguments, relaxed=relaxed)

    estimate.__module__ = __name__
    estimate.__qualname__ = f"estimate, relaxed {relaxed}"
    return jax.jit(estimate)


@functools.cache
def _single():
    """`_estimate` without a gradient, jitted for a single call."""
    function = functools.partial(_estimate, relaxed=False, differentiable=False)
    return jax.jit(function, compiler_options=compiler_options(once=True))


# --- what is compiled


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
        model = running(workload, gpu, c, point)
        lowest, requested = model.clocks()
        clock, feasible = capped_clock(
            lambda f: model.at(f).power, requested, lowest, model.cap, differentiable
        )
        return _summed(model, model.at(clock), feasible & model.settable)


def _summed(model: Running, s: State, feasible: Array) -> Estimate:
    """The estimate of a workload that runs as in the state `s`."""
    many, point = model.launches, model.point
    parts = many.per_phase(many.mean(s.weights, s.energies))
    parts = parts.at[LAUNCH_COMPONENTS.index("other")].add(s.other)
    static = jnp.stack([s.idle * s.time, s.leakage * s.time])
    utilization, limiter, launch = use_of(model, s)
    energy = s.power * s.time
    time, total = jnp.sum(s.time), jnp.sum(energy)
    phases = PhaseEstimate(
        s.time,
        energy,
        s.power,
        s.clock,
        voltage(model.gpu, s.clock, point.mem_locked),
        s.temperature,
        s.gpu_time,
        model.host(),
        feasible,
        jnp.concatenate([parts, static]).T,
    )
    kernels = KernelEstimate(
        s.kernel_time,
        launch,
        s.kernel_energy,
        utilization,
        limiter,
        many.count,
        many.row,
        many.phase,
    )
    mean_clock = jnp.sum(s.clock * s.time) / time
    return Estimate(time, total, total / time, mean_clock, phases, kernels)
