"""`StepCosts`: time and energy of steps on a grid of batches and prompts, made by one
estimate; every load interpolates in it."""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float, Int

from ...estimator import Estimate
from ...estimator._estimate import estimate_once
from ...hardware import GpuSpec, OperatingPoint
from ...physics import waiting_power, with_corrections
from ...workload import Workload
from ...workload._workload import assemble
from ...workload.models import Request
from ...workload.models._shared.language_model import LanguageModel
from .rows import PARTS, Step, listing

_BESIDE: Final = (0, 1, 16, 64, 256, 1024)
"""Batches beside which prompts are priced; 0: a prompt alone."""
_PROMPTS: Final = 10
_ENOUGH: Final = 1024
"""Sequences up to which every table goes."""
_HALVES: Final = tuple(
    x for i in range(24) for x in ((2**i, 3 * 2 ** (i - 1)) if i else (1,))
)
"""1, 2, 3, 4, 6, 8, 12, ...: knots that do not move with a load, so that differences
between loads are those of the model, and agree with derivatives."""
_LADDERS: Final = (
    _HALVES,
    tuple(2**i for i in range(24)),
    tuple(4**i for i in range(12)),
)


def _batches(numbers: Sequence[float]) -> list[int]:
    """Numbers of sequences: those in `numbers`, and others up to these and beyond; as
    many of the former as there are, whether or not they are among the latter."""
    found = {x for x in _HALVES if x <= 1.5 * max([*numbers, _ENOUGH])}
    more = (*map(round, numbers), 5, 7, 9, 10)
    new = [x for x in dict.fromkeys(more) if x not in found]
    return sorted({*found, *new[: len(numbers)]})


def _prompts(shortest: float, longest: float) -> tuple[int, ...]:
    """Tokens of prompts: the finest ladder that reaches `longest`, from its last knot
    that is no longer than `shortest`."""
    tried = []
    for ladder in _LADDERS:
        start = max(i for i, x in enumerate(ladder) if x <= max(shortest, 1.0))
        tried.append(ladder[start : start + _PROMPTS])
    return next((x for x in tried if x[-1] >= longest), tried[-1])


class StepCosts(eqx.Module):
    """Time (s) and energy (J) of one GPU's steps on a grid.

    `time[b, part]`: kernels of a decoding step at `context`; `slope`: more for a token
    more of it, s; `energy`, `energy_slope`: the same beyond idle and leakage;
    `static`: idle and leakage power meanwhile, W. Of a prompt of so many tokens beside
    so many decoding sequences: `added_time[m, q]`, `added_energy` (beyond idle), which
    its `pieces[q]` steps take longer; `idle`: W of a board that waits at
    its clock.
    """

    batches: Float[Array, " b"]
    context: Float[Array, ""]
    time: Float[Array, "b part"]
    slope: Float[Array, "b part"]
    energy: Float[Array, "b part"]
    energy_slope: Float[Array, "b part"]
    static: Float[Array, " b"]
    beside: Float[Array, " m"]
    prompts: Float[Array, " q"]
    pieces: Float[Array, " q"]
    added_time: Float[Array, "m q"]
    added_energy: Float[Array, "m q"]
    idle: Float[Array, ""]
    feasible: Bool[Array, ""]
    """Whether the power limit can be kept everywhere."""
    least_power: Float[Array, ""]
    """Most power of a step at the clock that was reached, W."""


class Knots(eqx.Module):
    """Where steps are priced: decoding sequences, cached tokens of each, sequences
    beside a prompt, tokens of it and the steps that it takes; and the part of each row
    of the workload (`PARTS`)."""

    batches: Float[Array, " b"]
    contexts: Float[Array, " c"]
    beside: Float[Array, " m"]
    base: Int[Array, " m"]
    """Place of each of `beside` among `batches`; 0 for none at all."""
    prompts: Float[Array, " q"]
    pieces: Float[Array, " q"]
    parts: Int[Array, " row"]


class Program(NamedTuple):
    """The steps of a server as one workload: a phase each."""

    workload: Workload
    knots: Knots


def program(
    model: LanguageModel,
    request: Request,
    numbers: Sequence[float],
    context: float,
    lengths: Sequence[float],
    cached: float,
    chunk: int,
) -> Program:
    """Steps of a model, one GPU's share of it, with knots at fixed places.

    Decoding ones of any of `numbers` of sequences, and others around them, with two
    numbers of cached tokens around `context`, attention being linear in them. Then
    those with a prompt beside: as long as any of `lengths` (tokens to compute, behind
    `cached` ones), or the mean piece of what takes several steps of `chunk` tokens.
    """
    batches, prompts = _batches(numbers), _prompts(min(lengths), max(lengths))
    lower = max(x for x in _LADDERS[1] if x <= max(context, 2.0))
    contexts = lower, 2 * lower
    # a share of the last piece counts as such
    pieces = np.maximum(np.array(prompts) / chunk, 1.0)
    steps = [Step(b, c) for b in batches for c in contexts]
    for beside in _BESIDE:
        for prompt, number in zip(prompts, pieces, strict=True):
            tokens = round(prompt / number)
            behind = round(cached) + round((prompt - tokens) / 2)
            steps.append(Step(beside, lower, tokens, behind))
    listed = [listing(model, request, step) for step in steps]
    names = [part for _, parts in listed for part in parts]
    base = [0 if m == 0 else batches.index(m) for m in _BESIDE]
    knots = Knots(
        jnp.asarray(batches, float),
        jnp.asarray(contexts, float),
        jnp.asarray(_BESIDE, float),
        jnp.asarray(base),
        jnp.asarray(prompts, float),
        jnp.asarray(pieces),
        jnp.asarray([PARTS.index(name) for name in names]),
    )
    return Program(assemble([x for x, _ in listed]), knots)


def step_costs(
    workload: Workload,
    knots: Knots,
    gpu: GpuSpec,
    point: OperatingPoint,
    run: Callable[[Workload, GpuSpec, OperatingPoint], Estimate] = estimate_once,
) -> StepCosts:
    """The table on a GPU at a point (one row, no axes): pure, and `jax.vmap` maps over
    both; differentiable in every number of them where `run` is."""
    found = run(workload, gpu, point)
    k, p = found.kernels, found.phases
    index = k.phase * len(PARTS) + knots.parts[k.row]

    def summed(x: Array) -> Array:
        size = len(p.time) * len(PARTS)
        flat = jax.ops.segment_sum(k.count * x, index, size)
        return flat.reshape(-1, len(PARTS))

    time, energy = summed(k.time), summed(k.energy)
    static = (p.energy - jnp.sum(energy, -1)) / p.time
    clock = jnp.minimum(point.sm_clock, gpu.sm_clock_applied_max)
    board = with_corrections(gpu, gpu.corrections)
    idle = waiting_power(board, gpu.corrections, clock, point)
    plain, mixed = _cut(knots, time)
    spent, mixed_spent = _cut(knots, energy)
    standing, _ = _cut(knots, static[:, None])
    far = knots.contexts[-1] - knots.contexts[0]

    def added(mixed: Array, plain: Array) -> Array:
        """What a prompt adds to the step without it."""
        alone = jnp.where(knots.beside > 0, jnp.sum(plain, -1)[knots.base], 0.0)
        return knots.pieces * (jnp.sum(mixed, -1) - alone[:, None])

    return StepCosts(
        knots.batches,
        knots.contexts[0],
        plain[:, 0],
        (plain[:, 1] - plain[:, 0]) / far,
        spent[:, 0],
        (spent[:, 1] - spent[:, 0]) / far,
        jnp.mean(standing[:, :, 0], axis=1),
        knots.beside,
        knots.prompts,
        knots.pieces,
        added(mixed, plain[:, 0]),
        added(mixed_spent, spent[:, 0]),
        idle,
        jnp.all(p.feasible),
        jnp.max(p.power),
    )


def _cut(knots: Knots, x: Array) -> tuple[Array, Array]:
    """Rows of all steps, as `program` has them -> (batch, context, ...) and (batch
    beside, prompt, ...)."""
    b, c, m = len(knots.batches), len(knots.contexts), len(knots.beside)
    return (
        x[: b * c].reshape(b, c, *x.shape[1:]),
        x[b * c :].reshape(m, -1, *x.shape[1:]),
    )
