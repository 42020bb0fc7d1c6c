"""A server with a given number of requests that run: its mean step."""

from typing import Final, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from ...workload import MOST_DRAFTED
from .._engine import A_REQUEST, Engine
from .._step import cost
from .._step.power import Governed, governed, power_at
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
        cached = jnp.minimum(jnp.asarray(tokens)[..., None], self.windows)
        return jnp.sum(self.elements * cached, -1) + self.state

    def on_host(self, tokens: float) -> tuple[float, float]:
        """Bytes of a request and of the pool, without a program."""
        elements, windows = np.asarray(self.elements), np.asarray(self.windows)
        cached = elements * np.minimum(tokens, windows)
        pool = float(self.fraction) * float(self.capacity)
        pool -= float(self.weights) + float(self.aside)
        return float(cached.sum()) + float(self.state), pool


class Traffic(eqx.Module):
    """Lengths of requests in tokens: prompts to compute (mean `prompt`, 16 equally
    likely `nodes` over it, strata `TAIL` over it `prompt_tail`) behind `cached` ones,
    outputs (mean `output`, second moment over its square `spread`, strata `TAIL` over
    the mean `tail`); `accept`: chance that a drafted token is right where all before it
    are."""

    prompt: Float[Array, ""]
    nodes: Float[Array, " n"]
    prompt_tail: Float[Array, " t"]
    cached: Float[Array, ""]
    output: Float[Array, ""]
    spread: Float[Array, ""]
    tail: Float[Array, " t"]
    accept: Float[Array, ""] = eqx.field(default=0.0, converter=jnp.asarray)

    @property
    def context(self) -> Array:
        """Cached tokens of a request that runs, the mean: those who are seen running
        are the long ones (inspection paradox), half way through."""
        return self.prompt + self.cached + self.spread * self.output / 2


class Pause(eqx.Module):
    """How long requests keep their cache after their last token: `time` s, of which
    `offload` bytes of one GPU may be on the host; `fetch`: s to bring a byte back."""

    time: Float[Array, ""]
    offload: Float[Array, ""]
    fetch: Float[Array, ""]


class Groups(eqx.Module):
    """Groups of GPUs with sequences of their own: their `number`, `fullest` as z of
    `Server.group`, work of a prompt on the mean GPU over that on those of its group
    (`prompts`)."""

    number: Float[Array, ""]
    fullest: Float[Array, ""]
    prompts: Float[Array, ""]


class Server(eqx.Module):
    """One replica: its costs, engine, memory and traffic. `vocab`: words; `chunk`: most
    tokens of a step; `graph`: most that run as a graph with prompts among them;
    `first`: 1 where prompts run in steps of their own, before
    decoding, else 0; `sm_clock`: requested clock, Hz; `cap`: power that the limiter of
    one GPU holds, W; `pause`: of its requests, if they do; `groups`: of its
    GPUs, if attention is not shared by all."""

    costs: StepCosts
    engine: Engine
    memory: Memory
    traffic: Traffic
    vocab: Float[Array, ""]
    chunk: Float[Array, ""]
    graph: Float[Array, ""]
    first: Float[Array, ""]
    sm_clock: Float[Array, ""]
    cap: Float[Array, ""]
    pause: Pause | None = None
    groups: Groups | None = None

    @property
    def fits(self) -> Array:
        """Requests whose tokens fit the memory, at the mean context."""
        return self.memory.pool / self.memory.of_request(self.traffic.context)

    @property
    def idle(self) -> Array:
        """Power of one GPU that waits, W."""
        return power_at(self.costs.clocks, self.costs.idle, self.sm_clock)

    def at_clock(self, clock: Array) -> "Server":
        """The same at another clock (Hz)."""
        return eqx.tree_at(lambda x: x.sm_clock, self, clock)

    def limited(self, max_batch: Array) -> "Server":
        """The same with at most so many requests, which lowers its `graph`."""
        graph = jnp.minimum(A_REQUEST * max_batch, self.graph)
        return eqx.tree_at(lambda x: x.graph, self, graph)

    def group(self, number: Array) -> Array:
        """Of a number of sequences or prompts those of the fullest group."""
        groups = self.groups
        if groups is None:
            return number
        mean = number / groups.number
        # the square root has no derivative at 0
        spread = groups.fullest * jnp.sqrt(jnp.maximum(mean, 1e-12))
        return jnp.minimum(number, mean + spread)

    def decode(self, batch: Array) -> cost.Decode:
        """Decoding steps of `batch` sequences: as long as those of the fullest group,
        with the energy of the mean one and waiting for the other."""
        of = self.costs, self.engine
        full = cost.decode(*of, self.group(batch), self.traffic.context, self.vocab)
        if self.groups is None:
            return full
        mean = batch / self.groups.number
        even = cost.decode(*of, mean, self.traffic.context, self.vocab)
        waiting = (full.time - even.time) * self.costs.idle
        return full._replace(energy=even.energy + waiting)

    @property
    def burst(self) -> tuple[Array, Array]:
        """Mean and variance of the tokens that a step makes of a sequence: N is at
        least j with the chance accept^(j - 1), for j up to all that it verifies (arXiv
        2211.17192, equation 1)."""
        more = jnp.arange(MOST_DRAFTED + 1.0)
        reached = jnp.where(more < self.costs.rows, self.traffic.accept**more, 0.0)
        mean = jnp.sum(reached)
        return mean, jnp.sum((2 * more + 1) * reached) - mean**2

    def governed(self, time: Array, energy: Array) -> Governed:
        """A step of `time` (s) and `energy` (J) at the clocks of the table, held to the
        power limit."""
        return governed(self.costs.clocks, time, energy, self.sm_clock, self.cap)


_SURE: Final = 0.999
"""Most chance that a sequence ends with a step: the share has no derivative at 1."""


class Running(NamedTuple):
    """The mean step with so many requests in slots, at the clocks that the power limit
    allows.

    `slots` of them, `decoding` ones; `step` s in the mean: `parts` of kernels,
    `sampling`, `host`, and `prefill` s for prompts; `decode`: of a step without any
    prompt, s; `energy` J of one GPU; `entering` prompts a step, `entries` steps that
    they take, each with `mixing` s more and `added[n]` s for each prompt; `reading`:
    weights of the table's clocks for times of such steps. `clock`: mean
    over time, Hz; `lowest`: power at the lowest clock, W; `feasible`: whether the limit
    is kept. `tokens` of a sequence that a step makes. `flow`: tokens a second.
    """

    slots: Array
    decoding: Array
    tokens: Array
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
    reading: Array
    clock: Array
    lowest: Array
    feasible: Array

    @property
    def mixed(self) -> Array:
        """Share of steps with a prompt."""
        return _some(self.entries, self.decoding)

    @property
    def flow(self) -> Array:
        """Output tokens a second."""
        return self.decoding * self.tokens / self.step

    @property
    def token(self) -> Array:
        """Mean time of a token of one sequence, s."""
        return self.step / self.tokens

    @property
    def queued(self) -> Array:
        """Mean time of a request that holds a slot and waits for its prompt, over the
        tokens that it makes, s."""
        return (self.slots - self.decoding) / self.flow


def _some(entries: Array, number: Array) -> Array:
    """Chance that one of a `number` of sequences at least makes room for a prompt in a
    step, where `entries` do in the mean."""
    return -jnp.expm1(number * jnp.log1p(-jnp.minimum(entries / number, _SURE)))


def running(server: Server, slots: Array, share: Array | float = 1.0) -> Running:
    """The mean step with `slots` requests; `share`: of the prompts' work that falls to
    measured steps (1 in steady state).

    Steps with a prompt and steps without one run at clocks of their own, since the
    limiter is as fast as they are long; each kind is composed of all its work at every
    clock of the table, and then governed:

        nu    = b g / output                   prompts that enter a step in balance
        p     = 1 - (1 - nu / b)^b             share of steps with a prompt
        plain = decode(b)
        mixed = decode(b) + mixing + nu E[added] / p
        mixing = what launches take beyond these kernels (`cost.launching`)
        step  = (1 - p) plain + p mixed

    with g tokens of a sequence a step (`burst`). `first`: prompts have steps of their
    own, beside which nothing decodes. Where the tokens of prompts exceed the chunk,
    fewer decode and others wait for their prompt.
    """
    traffic, engine, costs = server.traffic, server.engine, server.costs
    tokens, _ = server.burst
    # prompt tokens of a step for each sequence that decodes in it
    read = tokens * traffic.prompt / traffic.output
    # In balance these share the budget of a step with the sequence's own tokens, unless
    # prompts have steps of their own.
    groups = 1.0 if server.groups is None else server.groups.number
    bound = groups * server.chunk / (costs.rows + read * (1 - server.first))
    b = jnp.minimum(slots, bound)
    d = server.decode(b)
    weights = cost.prompt_weights(costs, traffic.prompt * traffic.nodes)
    each = cost.prompts(costs, engine, server.group(b), weights, server.first)
    pieces = weights @ costs.pieces
    entering = b * tokens / traffic.output
    entries = entering * jnp.mean(pieces)
    some = _some(entries, b)
    beside = 1 - server.first  # decoding beside prompts
    # `/ some`: means over the steps that have a prompt, not over all
    one_after_other, work = server.group(entering), entering
    if server.groups is not None:
        work = entering * server.groups.prompts
    # prompts with more pieces are in more of these steps
    part = pieces / jnp.mean(pieces)
    met = one_after_other / some / part  # of a prompt of each length
    kernels = beside * jnp.sum(d.parts, -1)[:, None] + met * each.time
    together = beside * b * costs.rows + met * traffic.prompt * traffic.nodes
    waiting = cost.launching(engine, kernels, together, server.graph)
    mixing = jnp.mean(part * waiting, -1)
    read_time = one_after_other / some * jnp.mean(each.time, -1) + mixing
    read_energy = work / some * jnp.mean(each.energy, -1) + mixing * costs.idle
    plain = server.governed(d.time, d.energy)
    mixed = server.governed(
        beside * d.time + read_time, beside * d.energy + read_energy
    )
    w, m = plain.weights, mixed.weights
    p = share * some  # of the measured steps
    alone, with_prompt = 1 - p * beside, p * beside
    decode_time, mixed_time = w @ d.time, m @ (beside * d.time + read_time)
    step = alone * decode_time + p * mixed_time
    energy = alone * plain.power * decode_time + p * mixed.power * mixed_time
    clock = alone * decode_time * plain.clock + p * mixed_time * mixed.clock
    parts = alone * (w @ d.parts) + with_prompt * (m @ d.parts)
    return Running(
        slots, b, tokens, step, decode_time, parts, d.sampling, d.host,
        p * (m @ read_time), energy, entering, entries, m @ each.time, pieces,
        m @ mixing + beside * (m @ d.time - decode_time), m, clock / step,
        jnp.maximum(plain.lowest, mixed.lowest), plain.feasible & mixed.feasible,
    )  # fmt: skip
