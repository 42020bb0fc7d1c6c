"""`StepCosts`: time and energy of steps on a grid of clocks, batches and prompts; every
load, clock and power limit interpolates in it.

Steps are priced without a power limit: the limiter holds the mean of 10 to 100 ms,
which is that of whole steps, decoding and prompts and sampling together. So these are
composed first, at every clock of the grid, and then governed (`power.governed`). That
is why the table is no list of estimates (`at_points`): those are governed alone.
"""

import functools
from collections.abc import Sequence
from typing import Final, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float, Int

from ...estimator import running
from ...hardware import GpuSpec, OperatingPoint
from ...physics import waiting_power
from ...records import Keyed
from ...workload import LanguageModel, Listing, Workload, assemble
from ...workload.models import Request
from .rows import LINEAR, PARTS, Step, listing

_BESIDE: Final = (0, 1, 16, 64, 256, 1024)
"""Batches beside which prompts are priced; 0: a prompt alone."""
_PROMPTS: Final = 10
_CLOCKS: Final = 13
"""Clocks of a table, odd: between them a step is within 0.3 % of its own price in time
and 1 % in power (`tests/serving/test_power.py`)."""
_BEND: Final = 0.97
"""Where V(f) begins to bend, over its knee."""
_BELOW: Final = 0.98
"""Lowest clock of a table over the requested one, at most: a board that is asked for
its lowest clock has a table, too."""
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


def batch_knots(numbers: Sequence[float]) -> tuple[int, ...]:
    """Numbers of sequences: those in `numbers`, and others up to these and beyond; as
    many of the former as there are, whether or not they are among the latter."""
    batches = {x for x in _HALVES if x <= 1.5 * max([*numbers, _ENOUGH])}
    more = (*map(round, numbers), 5, 7, 9, 10)
    # As many as `numbers`, whatever the load: equal shapes share a compiled program.
    new = [x for x in dict.fromkeys(more) if x not in batches]
    return tuple(sorted({*batches, *new[: len(numbers)]}))


def _prompts(shortest: float, longest: float) -> tuple[int, ...]:
    """Tokens of prompts: the finest ladder that reaches `longest`, from its last knot
    that is no longer than `shortest`."""
    tried = []
    for ladder in _LADDERS:
        start = max(i for i, x in enumerate(ladder) if x <= max(shortest, 1.0))
        tried.append(ladder[start : start + _PROMPTS])
    return next((x for x in tried if x[-1] >= longest), tried[-1])


class StepCosts(eqx.Module):
    """Time (s) and energy (J) of one GPU's steps on a grid, without a power limit.

    `clocks[k]`: rising SM clocks, Hz; the last one is the requested clock. Each leaf
    below leads with that axis. `time[k, b, part]`: kernels of a decoding step at
    `context` cached tokens; `slope`: increase for one token more, s; `energy`,
    `energy_slope`: the same beyond idle and leakage; `static[k, b]`: idle and leakage
    power meanwhile, W; `products[k, b]`: dynamic power of the linear layers over that
    at the highest clock of the board. For a prompt of so many tokens beside so many
    decoding sequences: `added_time[k, m, q, part]`, `added_energy[k, m, q]` (beyond
    idle), which its `pieces[q]` steps take longer. `idle[k]`: power of a board that
    waits, W. `rows`: tokens of a sequence in a decoding step, one and those that it
    verifies.
    """

    clocks: Float[Array, " k"]
    batches: Float[Array, " b"]
    context: Float[Array, ""]
    time: Float[Array, "k b part"]
    slope: Float[Array, "k b part"]
    energy: Float[Array, "k b part"]
    energy_slope: Float[Array, "k b part"]
    static: Float[Array, "k b"]
    products: Float[Array, "k b"]
    beside: Float[Array, " m"]
    prompts: Float[Array, " q"]
    pieces: Float[Array, " q"]
    added_time: Float[Array, "k m q part"]
    added_energy: Float[Array, "k m q"]
    idle: Float[Array, " k"]
    rows: Float[Array, ""] = eqx.field(default=1.0, converter=jnp.asarray)


class Knots(eqx.Module):
    """Where steps are priced: clocks (`clock_knots`), decoding sequences, cached tokens
    of each, sequences beside a prompt, tokens of it and the steps that it takes; the
    part of each row of the workload (`PARTS`), and `rows` as in `StepCosts`."""

    places: Float[Array, " k"]
    batches: Float[Array, " b"]
    contexts: Float[Array, " c"]
    beside: Float[Array, " m"]
    base: Int[Array, " m"]
    """Place of each of `beside` among `batches`; 0 for none at all."""
    prompts: Float[Array, " q"]
    pieces: Float[Array, " q"]
    parts: Int[Array, " row"]
    rows: Float[Array, ""]


class Program(NamedTuple):
    """The steps of a server as one workload: a phase each. Equal to itself alone."""

    workload: Workload
    knots: Knots

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = object.__hash__


def program(
    model: LanguageModel,
    request: Request,
    batches: Sequence[int],
    context: float,
    lengths: Sequence[float],
    cached: float,
    chunk: int,
    like: Program | None = None,
) -> Program:
    """Steps of a model, one GPU's share of it, with knots at fixed places.

    Decoding ones of `batches` of sequences (`batch_knots`) with two numbers of cached
    tokens around `context`, attention being linear in them. Then
    those with a prompt beside: as long as any of `lengths` (tokens to compute, behind
    `cached` ones), or the mean piece of what takes several steps of `chunk` tokens.
    `like`: steps of which one compiled program serves, too, as far as possible.
    """
    prompts = _prompts(min(lengths), max(lengths))
    lower = max(x for x in _LADDERS[1] if x <= max(context, 2.0))
    contexts = lower, 2 * lower
    # a share of the last piece counts as such
    pieces = np.maximum(np.array(prompts) / chunk, 1.0)
    drafted = request.draft_tokens or 0
    steps = [Step(b, c, drafted=drafted) for b in batches for c in contexts]
    for beside in _BESIDE:
        for prompt, number in zip(prompts, pieces, strict=True):
            tokens = round(prompt / number)
            behind = round(cached) + round((prompt - tokens) / 2)
            # The request that is read has one of the places of those beside it; one
            # that decodes alone keeps its attention.
            others = beside - (beside > 1 and not drafted)
            steps.append(Step(others, lower, tokens, behind, drafted))
    own = Keyed(id(model), model)
    listed = [_listing(own, request, step) for step in steps]
    names = [part for _, parts in listed for part in parts]
    base = [0 if m == 0 else batches.index(m) for m in _BESIDE]
    workload = assemble([x for x, _ in listed], like and like.workload)
    if like is not None:  # as many rows: those beyond are nobody's
        names += [PARTS[0]] * (len(like.knots.parts) - len(names))
    knots = Knots(
        jnp.linspace(0.0, 1.0, _CLOCKS),
        jnp.asarray(batches, float),
        jnp.asarray(contexts, float),
        jnp.asarray(_BESIDE, float),
        jnp.asarray(base),
        jnp.asarray(prompts, float),
        jnp.asarray(pieces),
        jnp.asarray([PARTS.index(name) for name in names]),
        jnp.asarray(1.0 + drafted),
    )
    return Program(workload, knots)


@functools.lru_cache(maxsize=4096)
def _listing(model: Keyed, request: Request, step: Step) -> tuple[Listing, list[str]]:
    """The kernels of a step: programs differ in few of their steps."""
    return listing(model.value, request, step)


def step_costs(
    workload: Workload, knots: Knots, gpu: GpuSpec, point: OperatingPoint
) -> StepCosts:
    """The table on a GPU up to the SM clock of a point (one row, no axes), whatever its
    power limit: pure and differentiable; `jax.vmap` maps over both."""
    model = running(workload, gpu, gpu.corrections, point)
    index = model.launches.phase * len(PARTS) + knots.parts[model.launches.row]
    number = len(workload.names)
    far = knots.contexts[-1] - knots.contexts[0]

    def at(clock: Array) -> _Sums:
        """Sums over kernels at one clock."""
        s = model.at(jnp.broadcast_to(clock, (number,)))

        def summed(x: Array) -> tuple[Array, Array]:
            size = number * len(PARTS)
            flat = jax.ops.segment_sum(model.launches.count * x, index, size)
            return _cut(knots, flat.reshape(number, len(PARTS)))

        def added(mixed: Array, plain: Array) -> Array:
            """What a prompt adds to the step without it."""
            some = (knots.beside > 0)[:, None]
            alone = jnp.where(some, plain[knots.base], 0.0)
            return knots.pieces[:, None] * (mixed - alone[:, None])

        plain, mixed = summed(s.kernel_time)
        spent, mixed_spent = summed(s.kernel_energy)
        static, _ = _cut(knots, s.idle + s.leakage + s.other / s.time)
        return _Sums(
            plain[:, 0],
            (plain[:, 1] - plain[:, 0]) / far,
            spent[:, 0],
            (spent[:, 1] - spent[:, 0]) / far,
            jnp.mean(static, axis=1),
            added(mixed, plain[:, 0]),
            jnp.sum(added(mixed_spent, spent[:, 0]), -1),
            waiting_power(model.gpu, model.c, clock, point),
        )

    lowest, requested = (x[0] for x in model.clocks())
    lowest = jnp.minimum(lowest, _BELOW * requested)
    clocks = clock_knots(knots.places, lowest, requested, model.gpu.vf_knee_clock)
    # The board's highest clock is only the reference of `products`; its row is cut off.
    highest = gpu.sm_clock_applied_max
    sums = lax.map(at, jnp.append(clocks, highest))
    power = sums.energy[..., LINEAR].sum(-1) / sums.time[..., LINEAR].sum(-1)
    time, slope, energy, energy_slope, static, added_time, added_energy, idle = (
        x[:-1] for x in sums
    )
    return StepCosts(
        clocks, knots.batches, knots.contexts[0], time, slope, energy, energy_slope,
        static, power[:-1] / power[-1], knots.beside, knots.prompts, knots.pieces,
        added_time, added_energy, idle, knots.rows,
    )  # fmt: skip


class _Sums(NamedTuple):
    """Leaves of `StepCosts` at one clock."""

    time: Array
    slope: Array
    energy: Array
    energy_slope: Array
    static: Array
    added_time: Array
    added_energy: Array
    idle: Array


def clock_knots(places: Array, lowest: Array, highest: Array, knee: Array) -> Array:
    """Rising clocks (Hz) from the lowest to the highest one: evenly spaced logarithms
    on either side of the knee of V(f), where power bends; `places` from 0 to 1, at 0.5
    the beginning of the bend."""
    low, high = jnp.log(lowest), jnp.log(highest)
    # Both sides keep knots where the knee lies near an end or beyond.
    middle = jnp.clip((jnp.log(_BEND * knee) - low) / (high - low), 0.2, 0.8)
    share = jnp.interp(places, jnp.array([0.0, 0.5, 1.0]), jnp.stack([0, middle, 1]))
    return jnp.exp(low + share * (high - low)).at[-1].set(highest)


def _cut(knots: Knots, x: Array) -> tuple[Array, Array]:
    """Rows of all steps, in the order of `program`, by (batch, context, ...) and (batch
    beside, prompt, ...)."""
    b, c, m = len(knots.batches), len(knots.contexts), len(knots.beside)
    return (
        x[: b * c].reshape(b, c, *x.shape[1:]),
        x[b * c :].reshape(m, -1, *x.shape[1:]),
    )
