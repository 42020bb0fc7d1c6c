"""Costs of any step, from the table of `StepCosts` and the constants of an engine."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from .._engine import Engine
from .rows import PARTS
from .table import StepCosts

_LINEAR, _ATTENTION = PARTS.index("linear"), PARTS.index("attention")


class Decode(NamedTuple):
    """Steps without a prompt: time (s) by part (`PARTS`), of sampling and of the host;
    energy (J) of one GPU, all included."""

    parts: Array
    sampling: Array
    host: Array
    energy: Array

    @property
    def time(self) -> Array:
        """All of it, s."""
        return jnp.sum(self.parts, -1) + self.sampling + self.host


def decode(
    costs: StepCosts, engine: Engine, batch: Array, context: Array, vocab: Array
) -> Decode:
    """Steps of `batch` sequences with `context` tokens cached in the mean.

    Between batches of the table linear interpolation; below its least one (1) as that.
    """
    here = _weights(costs.batches, batch)

    def at(x: Array) -> Array:
        return here @ x

    more = (context - costs.context)[..., None]
    parts = at(costs.time) + more * at(costs.slope)
    energy = at(costs.energy) + more * at(costs.energy_slope)
    ones = jnp.ones(len(PARTS))
    parts = parts * ones.at[_LINEAR].set(engine.linear).at[_ATTENTION].set(
        engine.attention
    )
    factor = ones * engine.linear_energy
    factor = factor.at[_ATTENTION].set(engine.attention_energy)
    static, sampled = at(costs.static), engine.sampled(batch, vocab)
    host = engine.host_time(batch)
    spent = (
        jnp.sum(energy * factor, -1)
        + static * jnp.sum(parts, -1)
        + engine.sampling_power(batch) * sampled
        + costs.idle * host
    )
    return Decode(parts, sampled, host, spent)


class Prompt(NamedTuple):
    """What a prompt adds to its steps: their number, time (s), energy (J) of one
    GPU."""

    pieces: Array
    time: Array
    energy: Array


def prompt(
    costs: StepCosts, engine: Engine, batch: Array, tokens: Array, first: Array
) -> Prompt:
    """A prompt of `tokens` beside `batch` decoding sequences; `first`: 1 in steps of
    its own, while they wait."""
    beside = batch * (1 - first)
    row, column = _weights(costs.beside, beside, 1), _weights(costs.prompts, tokens)

    def at(x: Array) -> Array:
        return jnp.sum((row @ x) * column, -1)

    pieces = column @ costs.pieces
    time = at(costs.added_time) * engine.linear
    own = static_at(costs, beside)
    energy = at(costs.added_energy) * engine.prefill_energy + own * time
    return Prompt(pieces, time, energy)


def static_at(costs: StepCosts, batch: Array) -> Array:
    """Idle and leakage power beside a batch, W."""
    return _weights(costs.batches, batch) @ costs.static


def _weights(knots: Array, x: Array, start: int = 0) -> Array:
    """Weights of the knots in the linear interpolation at `x`: beyond the last knot the
    last interval goes on, below the first one nothing changes. On a knot the mean of
    both intervals, so that derivatives there are those of central differences; but on
    the one of number `start` those of the interval after it."""

    def within(side: str) -> Array:
        lower = jnp.searchsorted(knots, x, side=side) - 1
        first = jnp.where(x < knots[start], 0, start)
        lower = jnp.clip(lower, first, len(knots) - 2)
        share = (x - knots[lower]) / (knots[lower + 1] - knots[lower])
        share = jnp.where(share >= 0, share, 0.0)[..., None]
        place = jnp.arange(len(knots)) - lower[..., None]
        return jnp.where(place == 0, 1 - share, jnp.where(place == 1, share, 0.0))

    return (within("left") + within("right")) / 2
