"""`Task`: everything a search computes with, and the metrics of one design."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Int

from ...corrections import Corrections
from ...estimator import (
    Estimate,
    StepEstimate,
    estimate_workload,
    from_phases,
    of_all,
    runs,
)
from ...hardware import FIELDS, GpuSpec, OperatingPoint
from ...plans import NETWORK_FIELD, Pipeline, Plan, Steps
from ...workload import Workload
from .._tiles.tiles import FIELDS as TILE_FIELDS
from .._tiles.tiles import Shapes, Tiles, crowding, legal, place
from .axes import POINT
from .silicon import Silicon

METRICS: Final = (
    "time",
    "energy",
    "power",
    "area",
    "cost",
    "ttft",
    "tpot",
    "energy_per_token",
    "memory",
    "board_energy",
)
"""Numbers of a design that goals and limits are made of: s, J (of `energy` and
`energy_per_token` at the wall, where a node is given), W (mean), mm2, the price of the
silicon, s, s, J, bytes needed / DRAM capacity, J of the boards. 1 where a design has
none."""

_STATIC: Final = ("idle_constant", "idle_clock", "idle_leakage")

_TENSOR_RATES: Final = tuple(
    f"tensor_flop_per_cycle_{dtype}"
    for dtype in ("bf16", "fp16", "tf32", "fp8", "int8", "fp4")
)
_FOLLOWERS: Final = {
    "num_sms": ("l2_bytes_per_cycle",),
    "smem_per_sm": ("l1_capacity",),
    "dram_bandwidth": ("dram_capacity",),
    "tdp": ("power_limit_max",),
    **{rate: _TENSOR_RATES for rate in _TENSOR_RATES},
}
"""Numbers that change in proportion with another one unless they are varied themselves:
every SM brings its port to L2 (A100 35.6, H100 34.5 B/cycle a SM), shared memory and L1
are one array, a stack or channel of DRAM brings its capacity, and a tensor core of
twice the rate has it in every type (the first varied type leads)."""

Objective = Callable[[Estimate | StepEstimate], Array]
"""A caller's own objective, of the estimate of one workload."""


class Member(eqx.Module):
    """One workload of a mix.

    `owner`: for every listing row the number of its product among the mix's, -1 for
    rows whose tile is not free. `memory`: bytes that it keeps in DRAM (0: not known);
    `tokens`: that it puts out; `plan`: GPUs that share it; `steps`, `order`: how its
    phases make a step of training on them; `wall`: coefficients of 1, P and P^2 of the
    power at the wall (W) where all boards draw P.
    """

    workload: Workload
    owner: Int[Array, " row"]
    weight: Float[Array, ""]
    memory: Float[Array, ""]
    tokens: Float[Array, ""]
    prefill: Float[Array, " phase"]  # 1 for a prefill phase
    decode: Float[Array, " phase"]  # 1 / passes for a decode phase
    steps: Steps | None = None
    order: Pipeline | None = eqx.field(static=True, default=None)
    plan: Plan | None = eqx.field(static=True, default=None)
    wall: Float[Array, "3"] | None = None

    def counted(self, time: Array, energy: Array) -> Array:
        """Energy that counts (J), from time and energy of the boards by phase, each at
        its own power."""
        if self.wall is None:
            return jnp.sum(energy)
        spent = jnp.where(time > 0, time, 1.0)
        constant, linear, square = self.wall
        wall = constant * time + linear * energy + square * energy**2 / spent
        return jnp.sum(jnp.where(time > 0, wall, 0.0))

    def connected(self, network: Array) -> "Member":
        """The member with network cards of `network` B/s, where it has any."""
        if self.steps is None:
            return self
        rate = self.steps.network
        connected = jnp.where(jnp.isinf(rate), rate, network)
        return eqx.tree_at(lambda member: member.steps.network, self, connected)


class Task(eqx.Module):
    """A design space over a mix of workloads, as arrays; `names` are its axes.

    The last axes belong to tiles: the fields of `Tiles`, each for all products.
    """

    members: tuple[Member, ...]
    gpu: GpuSpec
    point: OperatingPoint  # NaN: what the design has by default
    corrections: Corrections
    silicon: Silicon
    price: Float[Array, ""]  # per mm2
    low: Float[Array, " axis"]
    high: Float[Array, " axis"]
    shapes: Shapes  # of the products
    names: tuple[str, ...] = eqx.field(static=True)
    custom: Objective | None = eqx.field(static=True, default=None)


class Measured(NamedTuple):
    """Metrics of one design, and whether it is legal."""

    metrics: Float[Array, " metric"]  # in the order of METRICS
    custom: Float[Array, ""]  # the caller's objective, else 1
    crowding: Float[Array, " rule"]  # of tiles: above 0 does not fit
    feasible: Array  # tiles are legal, the power cap can be kept


def values_at(task: Task, z: Float[Array, " axis"]) -> Float[Array, " axis"]:
    """Values of the axes, SI: between the bounds, on a logarithmic scale."""
    share = jnp.asarray(1 / (1 + jnp.exp(-z)))
    low, high = jnp.log(task.low), jnp.log(task.high)
    return jnp.exp(low + (high - low) * share)


def grown(base: GpuSpec, values: Mapping[str, Array]) -> GpuSpec:
    """`base` with `values` (SI) and what follows them; without static power."""
    changes = dict(values)
    for lead, value in values.items():
        for name in _FOLLOWERS.get(lead, ()):
            if name not in changes:
                changes[name] = getattr(base, name) * value / getattr(base, lead)
    return dataclasses.replace(base, **changes)


def hardware(
    task: Task, values: Float[Array, " axis"], nudge: Float[Array, " field"]
) -> tuple[GpuSpec, OperatingPoint, Tiles | None]:
    """GPU, operating point and tiles of a design; every number of the GPU multiplied by
    exp(`nudge`) (in the order of `FIELDS`)."""
    named = dict(zip(task.names, values, strict=False))
    factors = dict(zip(FIELDS, jnp.exp(nudge), strict=True))
    varied = {name: named[name] for name in task.names if name in FIELDS}
    gpu = _scaled(grown(task.gpu, varied), factors, static=False)
    gpu = task.silicon.with_static_power(gpu)
    # static power that is varied itself follows nothing
    static = {name: value for name, value in varied.items() if name in _STATIC}
    gpu = _scaled(dataclasses.replace(gpu, **static), factors, static=True)
    point = _point(task, gpu, named)
    start = len(task.names)
    if values.shape[0] == start:
        return gpu, point, None
    return gpu, point, Tiles(*values[start:].reshape(len(TILE_FIELDS), -1))


def _scaled(gpu: GpuSpec, factors: dict[str, Array], static: bool) -> GpuSpec:
    """Numbers of static power (or all others) times their factors."""
    changes = {
        name: getattr(gpu, name) * factor
        for name, factor in factors.items()
        if (name in _STATIC) == static
    }
    return dataclasses.replace(gpu, **changes)


def _point(task: Task, gpu: GpuSpec, named: dict[str, Array]) -> OperatingPoint:
    """Operating point of the design: varied, requested, or its own default."""
    fixed_point, default = task.point, (gpu.sm_clock_max, gpu.mem_clock, gpu.tdp)
    requested = (fixed_point.sm_clock, fixed_point.mem_clock, fixed_point.power_cap)
    fixed = [
        named[name] if name in named else jnp.where(jnp.isnan(x), of_design, x)
        for name, x, of_design in zip(POINT, requested, default, strict=True)
    ]
    clock, memory, cap = fixed
    return OperatingPoint(
        clock, memory, cap, fixed_point.temperature, fixed_point.mem_locked
    )


def measured(
    task: Task,
    values: Float[Array, " axis"],
    nudge: Float[Array, " field"],
    exact: bool,
) -> Measured:
    """Metrics of the design `values`; `nudge` as in `hardware`.

    `exact`: by `estimate_workload`; else by its short form for gradients (`runs`),
    whose clock under a power cap is within a per cent and which does not see whether
    the cap can be kept; work of several GPUs is always by the whole, which alone tells
    static power apart, drawn by those that wait.
    """
    gpu, point, tiles = hardware(task, values, nudge)
    members = task.members
    if NETWORK_FIELD in task.names:
        network = values[task.names.index(NETWORK_FIELD)]
        members = tuple(member.connected(network) for member in members)
    results = [_run(task, member, gpu, point, tiles, exact) for member in members]
    pairs = list(zip(members, results, strict=True))
    time = sum(m.weight * jnp.sum(r.time) for m, r in pairs)
    board = sum(m.weight * jnp.sum(r.energy) for m, r in pairs)
    energy = sum(m.weight * m.counted(r.time, r.energy) for m, r in pairs)
    tokens = sum(m.weight * m.tokens for m in task.members)
    area = task.silicon.area(gpu)
    need = jnp.max(jnp.stack([m.memory for m in task.members]))
    metrics = (
        time,
        energy,
        board / time,
        area,
        task.price * area,
        jnp.max(jnp.stack([m.prefill @ r.time for m, r in pairs])),
        jnp.max(jnp.stack([m.decode @ r.time for m, r in pairs])),
        jnp.where(tokens > 0, energy / jnp.where(tokens > 0, tokens, 1.0), 0.0),
        need / gpu.dram_capacity,
        board,
    )
    metrics = jnp.stack([jnp.asarray(x) for x in metrics])
    rules = jnp.zeros(0)
    feasible = jnp.all(jnp.stack([r.feasible for r in results]))
    if tiles is not None:
        rules = crowding(gpu, task.shapes, tiles)
        feasible &= jnp.all(legal(gpu, task.shapes, tiles))
    return Measured(
        jnp.where(metrics > 0, metrics, 1.0),
        jnp.asarray(sum(m.weight * r.custom for m, r in pairs)),
        rules,
        feasible,
    )


class _Phases(NamedTuple):
    """Time and energy of one workload on one design."""

    time: Array  # per phase, s
    energy: Array  # per phase, J
    custom: Array  # the caller's objective, else 1
    feasible: Array


def _run(
    task: Task,
    member: Member,
    gpu: GpuSpec,
    point: OperatingPoint,
    tiles: Tiles | None,
    exact: bool,
) -> _Phases:
    workload = member.workload
    if tiles is not None:
        workload = place(workload, member.owner, tiles)
    several = member.plan is not None and member.plan.gpus > 1
    if exact or several or task.custom is not None:
        one = estimate_workload(workload, gpu, point, task.corrections)
        feasible = jnp.all(one.phases.feasible)
        if member.steps is None:
            whole = of_all(one, member.plan)
            time, energy = whole.phases.time, whole.phases.energy
        else:
            whole = from_phases(one, member.steps, task.corrections, member.order)
            time, energy = whole.time[None], whole.energy[None]
        custom = jnp.ones(()) if task.custom is None else task.custom(whole)
        return _Phases(time, energy, custom, feasible)
    _, run = runs(workload, gpu, point, task.corrections, capped=True, bursts=False)
    return _Phases(run.time, run.energy, jnp.ones(()), jnp.array(True))
