"""One turn of the loop: as many steps as are alike, and what they leave behind."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from .._steady.server import Server
from .._step import cost
from .admission import needed
from .state import Requests, State, Turn

GRAIN = 64
"""Most steps of one turn: the batch is looked at again, so that gaps are told well."""


class _Step(NamedTuple):
    """The next step as it would run alone, at the clock that its power allows."""

    reading: Array  # slots whose prompts are read, or wait to be
    decoding: Array  # slots with the whole prompt, which go on unless they are `held`
    number: Array  # sequences that decode
    held: Array  # those that wait for prompts (prompts first)
    read: Array  # prompt tokens by slot
    plain: Array  # s of decoding
    prompts: Array  # s that prompts add
    energy: Array  # J of one GPU
    parts: Array  # s of decoding, by part
    growth: Array  # s that decoding takes longer for a token more of context
    clock: Array  # Hz
    lowest: Array  # W at the lowest clock


def stepped(
    state: State, requests: Requests, server: Server, dropped: Array
) -> tuple[State, Turn]:
    """The state after a turn, and what the turn was; `dropped` requests lost their
    memory before it."""
    step = _step(state, server)
    any_reading, none = jnp.any(step.reading), step.number < 1
    steps = _alike(state, requests, server, step)
    # the context grows by one a step and sequence: mean over the steps
    growth = step.growth * (steps - 1) / 2
    alone = step.plain + step.prompts
    time = alone + jnp.where(none | any_reading, 0.0, growth)
    longer = 1 + (time - alone) / jnp.maximum(step.plain, 1e-9)
    now = state.now + steps * time
    made = jnp.where(step.decoding & (step.held < 1), steps, 0.0)
    out, again = _after(state, step, now, made, len(requests.arrival))
    come = jnp.searchsorted(requests.arrival, state.now, side="right")
    come = jnp.minimum(come, requests.number)
    here, who = state.who >= 0, jnp.maximum(state.who, 0)
    tokens = jnp.sum(jnp.where(step.decoding, made, 0.0)) / jnp.maximum(steps, 1)
    turn = Turn(
        steps,
        time,
        tokens,
        jnp.sum(step.read),
        steps * step.energy * longer,
        come - state.finished - jnp.sum(here) + 0.0,
        jnp.sum(jnp.where(here, server.memory.of_request(state.context), 0.0)),
        step.parts,
        dropped,
        jnp.sum(again),
        jnp.sum(jnp.where(again, now - state.since[who], 0.0)),
        step.held,
        step.clock,
        step.lowest,
    )
    return out, turn


def _step(state: State, server: Server) -> _Step:
    """The next step: who reads and who decodes in it, and what that takes."""
    here = state.who >= 0
    reading, decoding = here & (state.unread > 0), here & (state.unread <= 0)
    any_reading, number = jnp.any(reading), jnp.sum(decoding)
    first = (server.first > 0) & any_reading  # prompts before all decoding
    held = jnp.where(first, number, 0)
    number = number - held
    read, prompts, spent = lax.cond(
        any_reading, _read, _nothing, server, state, reading, number
    )
    context = jnp.sum(jnp.where(decoding, state.context, 0.0)) / jnp.maximum(number, 1)
    least = jnp.maximum(number, 1.0)
    d = cost.decode(server.costs, server.engine, least, context, server.vocab)
    some = jnp.where(number < 1, 0.0, 1.0)
    time, energy = some * d.time + prompts, some * d.energy + spent
    busy = jnp.any(here)  # else there is no step, whose power would be 0 / 0
    at = server.governed(jnp.where(busy, time, 1.0), jnp.where(busy, energy, 1.0))
    w = at.weights
    parts = some * jnp.append(w @ d.parts, jnp.stack([d.sampling, d.host]))
    growth = w @ cost.growth(server.costs, server.engine, number)
    return _Step(
        reading, decoding, number, held, read, some * (w @ d.time), w @ prompts,
        at.power * (w @ time), parts, growth, at.clock, at.lowest,
    )  # fmt: skip


def _alike(state: State, requests: Requests, server: Server, step: _Step) -> Array:
    """How many steps are alike: until a request ends, one comes, memory ends, or the
    grain; one that reads prompts is alone."""
    least = jnp.min(jnp.where(step.decoding, state.left, jnp.inf))
    pending = jnp.minimum(state.next, requests.number - 1)
    left = state.next < requests.number
    coming = jnp.where(left, requests.arrival[pending], jnp.inf)
    gap = jnp.maximum(coming - state.now, 0.0)
    blocked = coming <= state.now  # waits for a slot: its coming is no event
    ahead = jnp.ceil(gap / jnp.maximum(step.plain, 1e-9))
    ahead = jnp.where(blocked, jnp.inf, ahead)
    steps = jnp.clip(jnp.minimum(least, ahead), 1.0, GRAIN)
    steps = _within(state, server, steps)
    steps = jnp.where(jnp.any(step.reading), 1.0, steps)
    return jnp.where(jnp.any(state.who >= 0), steps, 0.0)


def _after(
    state: State, step: _Step, now: Array, made: Array, rows: int
) -> tuple[State, Array]:
    """(state once every slot has `made` tokens, slots that go on after they had been
    dropped); of `rows` requests."""
    done = step.reading & (step.read >= state.unread)
    made = jnp.where(done, 1.0, made)  # the step that ends a prompt makes a token
    left = state.left - made
    ended = (state.who >= 0) & (left <= 0) & (made > 0)
    who = jnp.maximum(state.who, 0)
    again = done & (state.made[who] > 0)
    begun = jnp.where(done & ~again, who, rows)  # else nowhere
    over = jnp.where(ended, who, rows)
    out = state._replace(
        now=now,
        who=jnp.where(ended, -1, state.who),
        unread=jnp.where(ended, 0.0, state.unread - step.read),
        left=jnp.where(ended, 0.0, left),
        context=state.context + step.read + jnp.where(step.decoding, made, 0.0),
        first=state.first.at[begun].set(now, mode="drop"),
        last=state.last.at[over].set(now, mode="drop"),
        finished=state.finished + jnp.sum(ended),
    )
    return out, again


def _within(state: State, server: Server, steps: Array) -> Array:
    """So many steps, or as many as memory lasts for."""

    def fits(steps: Array) -> Array:
        return jnp.sum(needed(state, server, steps)) <= server.memory.pool

    def halve(_: Array, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = ends
        middle = jnp.floor((low + high) / 2)
        good = fits(middle)
        return jnp.where(good, middle, low), jnp.where(good, high, middle)

    def fewer(steps: Array) -> Array:
        ends = jnp.ones(()), steps
        return lax.fori_loop(0, GRAIN.bit_length(), halve, ends)[0]

    return lax.cond(fits(steps), lambda x: x, fewer, steps)


def _read(
    server: Server, state: State, reading: Array, batch: Array
) -> tuple[Array, Array, Array]:
    """Prompt tokens of each slot that a step reads, in the order of requests under the
    budget of tokens; the time (s) and energy (J) that they add at each clock."""
    order = jnp.where(reading, state.who, jnp.iinfo(state.who.dtype).max)
    rank = jnp.argsort(order)
    waiting = jnp.where(reading, state.unread, 0.0)[rank]
    before = jnp.cumsum(waiting) - waiting
    budget = jnp.maximum(server.chunk - batch, 1.0)
    given = jnp.clip(budget - before, 0.0, waiting)
    read = jnp.zeros_like(state.unread).at[rank].set(given)
    # as the whole prompt costs, share by share
    whole = jnp.maximum(read + state.context - server.traffic.cached, 1.0)
    whole = jnp.maximum(whole, state.unread)
    costs, engine = server.costs, server.engine
    weights = (read / whole) @ cost.prompt_weights(costs, whole)
    added = cost.prompts(costs, engine, batch + 0.0, weights, server.first)
    mixing = engine.prompt
    return read, added.time + mixing, added.energy + mixing * costs.idle


def _nothing(
    server: Server, state: State, reading: Array, batch: Array
) -> tuple[Array, Array, Array]:
    none = jnp.zeros_like(server.costs.clocks)
    return jnp.zeros_like(state.unread), none, none
