"""Costs of any step, from the table of `StepCosts` and the constants of an engine."""

from typing import Any, Final, NamedTuple

import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from .._engine import Engine
from .rows import LINEAR, PARTS
from .table import StepCosts

_ATTENTION, _EXPERTS = PARTS.index("attention"), PARTS.index("experts")
_PRODUCTS: Final = PARTS.index("linear")


def _factors(engine: Engine) -> Float[Array, " part"]:
    """Time of decoding kernels over the predicted one, by part."""
    linear = jnp.stack([engine.linear, engine.experts, engine.small])
    return (
        jnp.ones(len(PARTS))
        .at[jnp.array(LINEAR)]
        .set(linear)
        .at[_ATTENTION]
        .set(engine.attention)
    )


class Decode(NamedTuple):
    """Steps without a prompt at each clock of the table: time (s) of kernels by part
    (`PARTS`), of sampling and of the host; energy (J) of one GPU."""

    parts: Float[Array, "k part"]
    sampling: Float[Array, ""]
    host: Float[Array, ""]
    energy: Float[Array, " k"]

    @property
    def time(self) -> Float[Array, " k"]:
        """Time of the whole step (s)."""
        return jnp.sum(self.parts, -1) + self.sampling + self.host


def decode(
    costs: StepCosts, engine: Engine, batch: Array, context: Array, vocab: Array
) -> Decode:
    """Steps of `batch` sequences with `context` tokens cached in the mean.

    Between batches of the table linear interpolation; below its least one (1) as that.
    Power while sampling lies between idle and TDP by a `share` (of rows that products
    pad to: 1), and follows the clock as that of the products does:

        P = idle + share (TDP - idle) P_products(f) / P_products(highest)
    """
    here = _weights(costs.batches, batch)

    def at(x: Array) -> Array:
        return jnp.tensordot(here, x, (0, 1))

    more = context - costs.context
    spent = jnp.full(len(PARTS), engine.linear_energy)
    spent = spent.at[_ATTENTION].set(engine.attention_energy)
    time = at(costs.time) + more * at(costs.slope)
    energy = at(costs.energy) + more * at(costs.energy_slope)
    rows = batch * costs.rows
    # such tiles compute rows that are empty, and draw what other products do
    bare = jnp.where(rows > engine.tiles_rows, engine.tiles_many, engine.tiles_few)
    power = energy[:, _PRODUCTS] / time[:, _PRODUCTS]
    energy = energy.at[:, _EXPERTS].add(bare * power)
    parts = (_factors(engine) * time).at[:, _EXPERTS].add(bare + engine.padded)
    sampled, host = engine.sampled(rows, vocab), engine.host_time(batch)

    def drawn(share: Array | float) -> Array:
        return costs.idle + share * (engine.tdp - costs.idle) * at(costs.products)

    total = (
        energy @ spent
        + at(costs.static) * jnp.sum(parts, -1)
        + drawn(engine.sampling_power(rows)) * sampled
        + (drawn(1.0) - at(costs.static)) * engine.padded
        # no kernel runs while the host prepares a step
        + costs.idle * host
    )
    return Decode(parts, sampled, host, total)


def growth(costs: StepCosts, engine: Engine, batch: Array) -> Float[Array, " k"]:
    """Increase of a decoding step for one token more of context (s) at each clock."""
    slope = jnp.tensordot(_weights(costs.batches, batch), costs.slope, (0, 1))
    return jnp.sum(slope.at[:, _ATTENTION].multiply(engine.attention), -1)


_WITH_LINEAR: Final = tuple(i for i in range(len(PARTS)) if i not in LINEAR)


class Prompts(NamedTuple):
    """What prompts add to their steps at each clock of the table: time (s), energy (J)
    of one GPU."""

    time: Float[Array, " k *n"]
    energy: Float[Array, " k *n"]


def prompts(
    costs: StepCosts,
    engine: Engine,
    batch: Array,
    weights: Float[Array, "*n q"],
    first: Array,
) -> Prompts:
    """Prompts beside `batch` decoding sequences; `weights` (`prompt_weights`): their
    tokens; `first`: 1 in steps of their own, while the sequences wait."""
    beside = batch * (1 - first)
    row = _weights(costs.beside, beside, 1)

    def at(x: Array) -> Array:
        return jnp.tensordot(jnp.tensordot(row, x, (0, 1)), weights, (-1, -1))

    # attention of prompts and exchanges follow the linear layers
    factors = _factors(engine).at[jnp.array(_WITH_LINEAR)].set(engine.linear)
    # Larger products of a mixed step may have faster tiles than the few rows alone.
    time = jnp.maximum(at(costs.added_time @ factors), 0.0)
    static = jnp.tensordot(_weights(costs.batches, beside), costs.static, (0, 1))
    static = jnp.expand_dims(static, range(1, time.ndim))
    return Prompts(time, at(costs.added_energy) * engine.prefill_energy + static * time)


_RAMP: Final = 0.25
"""Share of a graph's tokens below and above it where some steps are captured: how many
tokens meet in one varies."""


def launching(
    engine: Engine, kernels: Array, tokens: Array, graph: Array, pieces: Any = 1.0
) -> Array:
    """Time (s) by which launches outlast the `kernels` (s) of steps with a prompt, so
    many `pieces` of it: the host launches those of a step of more `tokens` than its
    `graph` has one after another."""
    bare = 0.5 + (tokens - graph) / (2 * _RAMP * graph + 1)
    return jnp.clip(bare, 0, 1) * jnp.maximum(pieces * engine.prompt - kernels, 0.0)


def prompt_weights(costs: StepCosts, tokens: Array) -> Float[Array, "*n q"]:
    """Weights of the table's prompts for prompts of `tokens`."""
    return _weights(costs.prompts, tokens)


def _weights(knots: Array, x: Array, start: int = 0) -> Array:
    """Weights of the knots in the linear interpolation at `x`: beyond the last knot the
    last interval goes on, below the first one nothing changes. On a knot the mean of
    both intervals, so that derivatives there are those of central differences; but on
    the one of number `start` those of the interval after it."""

    def within(side: str) -> Array:
        # `compare_all`: for few knots, and compiled without a loop
        lower = jnp.searchsorted(knots, x, side=side, method="compare_all") - 1
        first = jnp.where(x < knots[start], 0, start)
        lower = jnp.clip(lower, first, len(knots) - 2)
        share = (x - knots[lower]) / (knots[lower + 1] - knots[lower])
        share = jnp.where(share >= 0, share, 0.0)[..., None]
        place = jnp.arange(len(knots)) - lower[..., None]
        return jnp.where(place == 0, 1 - share, jnp.where(place == 1, share, 0.0))

    return (within("left") + within("right")) / 2
