"""A server with a given number of requests that run: its mean step."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from .._engine import Engine
from .._step import cost
from .._step.table import StepCosts


class Memory(eqx.Module):
    """What requests keep: `elements[k]` bytes a token of at most `windows[k]` tokens,
    `state` bytes whatever the length; `weights` and `aside` bytes of the `capacity` are
    not for them, and only the `fraction` of it is used."""

    capacity: Float[Array, ""]
    fraction: Float[Array, ""]
    weights: Float[Array, ""]
    aside: Float[Array, ""]
    elements: Float[Array, " k"]
    windows: Float[Array, " k"]
    state: Float[Array, ""]

    @property
    def pool(self) -> Array:
        """Bytes for requests; negative where the weights do not fit."""
        return self.fraction * self.capacity - self.weights - self.aside

    def of_request(self, tokens: Array) -> Array:
        """Bytes of a request with so many tokens."""
        kept = jnp.minimum(jnp.asarray(tokens)[..., None], self.windows)
        return jnp.sum(self.elements * kept, -1) + self.state

    def on_host(self, tokens: float) -> tuple[float, float]:
        """Bytes of a request and of the pool, without a program."""
        elements, windows = np.asarray(self.elements), np.asarray(self.windows)
        kept = elements * np.minimum(tokens, windows)
        pool = float(self.fraction) * float(self.capacity)
        pool -= float(self.weights) + float(self.aside)
        return float(kept.sum()) + float(self.state), pool


class Traffic(eqx.Module):
    """Lengths of requests in tokens: prompts to compute (mean `prompt`, 16 equally
    likely `nodes` over it, strata `TAIL` over it `prompt_tail`) behind `cached` ones,
    outputs (mean `output`, second moment over its square `spread`, strata `TAIL` over
    the mean `tail`)."""

    prompt: Float[Array, ""]
    nodes: Float[Array, " n"]
    prompt_tail: Float[Array, " t"]
    cached: Float[Array, ""]
    output: Float[Array, ""]
    spread: Float[Array, ""]
    tail: Float[Array, " t"]

    @property
    def context(self) -> Array:
        """Cached tokens of a request that runs, the mean: those who are seen running
        are the long ones (inspection paradox), half way through."""
        return self.prompt + self.cached + self.spread * self.output / 2


class Server(eqx.Module):
    """One replica: its costs, engine, memory and traffic. `vocab`: words; `chunk`: most
    tokens of a step; `first`: 1 where prompts run in steps of their own, before
    decoding, else 0."""

    costs: StepCosts
    engine: Engine
    memory: Memory
    traffic: Traffic
    vocab: Float[Array, ""]
    chunk: Float[Array, ""]
    first: Float[Array, ""]

    @property
    def fits(self) -> Array:
        """Requests whose tokens fit the memory, at the mean context."""
        return self.memory.pool / self.memory.of_request(self.traffic.context)


class Running(NamedTuple):
    """The mean step with so many requests in slots.

    `slots` of them, `decoding` ones; `step` s in the mean, of which `decode` s without
    any prompt (by `parts`: kernels, `sampling`, `host`) and `prefill` s for prompts;
    `energy` J of one GPU; `entering` prompts a step, `entries` steps that they take,
    `added[n]` s for each of them, `mixing` s once. `flow`: tokens a second.
    """

    slots: Array
    decoding: Array
    step: Array
    decode: Array
    parts: Array
    sampling: Array
    host: Array
    prefill: Array
    energy: Array
    entering: Array
    entries: Array
    added: Array
    pieces: Array
    mixing: Array

    @property
    def flow(self) -> Array:
        """Tokens made a second."""
        return self.decoding / self.step

    @property
    def queued(self) -> Array:
        """Mean time of a request that holds a slot and waits for its prompt, over the
        tokens that it makes, s."""
        return (self.slots - self.decoding) / self.flow


def running(server: Server, slots: Array, share: Array | float = 1.0) -> Running:
    """The mean step with `slots` requests; `share`: of the prompts' work that falls to
    measured steps (1 in steady state).

    Step = decode(b) + nu E[added] + (1 - exp(-nu)) mixing, nu = b / output prompts
    entering a step in balance; where their tokens exceed the chunk, fewer decode and
    others wait for their prompt.
    """
    traffic, engine = server.traffic, server.engine
    read = traffic.prompt / traffic.output  # prompt tokens for each that is made
    bound = server.chunk / (1 + read * (1 - server.first))
    b = jnp.minimum(slots, bound)
    d = cost.decode(server.costs, engine, b, traffic.context, server.vocab)
    lengths = traffic.prompt * traffic.nodes
    each = jax.vmap(
        lambda tokens: cost.prompt(server.costs, engine, b, tokens, server.first)
    )(lengths)
    entering = b / traffic.output
    entries = entering * jnp.mean(each.pieces)
    some = -jnp.expm1(-entries)
    prefill = share * (entering * jnp.mean(each.time) + some * engine.prompt)
    spent = entering * jnp.mean(each.energy) + some * engine.prompt * server.costs.idle
    return Running(
        slots, b, d.time + prefill, d.time, d.parts, d.sampling, d.host, prefill,
        d.energy + share * spent, entering, entries, each.time, each.pieces,
        engine.prompt,
    )  # fmt: skip
