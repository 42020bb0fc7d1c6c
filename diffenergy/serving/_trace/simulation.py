"""A server step by step: continuous batching of a trace of requests.

Between two events (a request comes or ends, a prompt is read) steps are alike, so that
one turn of the loop takes all of them: as many as until the next event, their time the
sum of a series linear in the context. Requests are admitted in order while slots and
memory last (vLLM reserves no room for tokens to come; here a request keeps room for its
whole length, so that none is dropped); prompts are read in order under the budget of a
step, beside those that decode or before them.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from .._steady.server import Server
from .._step import cost
from .._step.rows import PARTS

_ATTENTION = PARTS.index("attention")
_TURNS = 6
"""Turns of the loop for each request, at most (it comes, is read, ends; each may be
cut by another's event), and for each piece of a prompt one more."""
_GRAIN = 64
"""Most steps of one turn: the batch is looked at again, so that gaps are told well."""


class Requests(NamedTuple):
    """A trace: arrival (s, rising), prompt tokens to compute and tokens to make; of the
    rows only the first `number` are requests."""

    arrival: Array
    prompt: Array
    output: Array
    number: Array


class Turn(NamedTuple):
    """One turn of the loop: `steps` alike of `time` s each, with `running` requests
    that decode (and got a token each), `prompt` tokens in the first of them, `energy` J
    of one GPU in all, `waiting` requests meanwhile, `idle` s before."""

    steps: Array
    time: Array
    running: Array
    prompt: Array
    energy: Array
    waiting: Array
    idle: Array
    kept: Array
    parts: Array


class Outcome(NamedTuple):
    """When each request had its first and its last token (s; NaN: not at all), every
    turn (the first `taken` rows), and the time at the end."""

    first: Array
    last: Array
    turns: Turn
    taken: Array
    end: Array


class _State(NamedTuple):
    now: Array
    next: Array  # first request that has not been admitted
    who: Array  # request in a slot, -1: free
    unread: Array  # tokens of its prompt
    left: Array  # tokens to make
    context: Array
    first: Array
    last: Array


def most_turns(requests: int, pieces: float, tokens: float) -> int:
    """Turns that a trace takes at most: a power of two, so that alike traces share a
    program."""
    need = requests * (_TURNS + pieces) + tokens / _GRAIN
    return 1 << max(int(need) - 1, 1).bit_length()


def simulate(
    server: Server, requests: Requests, limit: Array, slots: int, turns: int
) -> Outcome:
    """Runs a trace through one replica with `slots` slots, at most `limit` of them
    used; `turns`: of the loop, at most."""
    pool, traffic = server.memory.pool, server.traffic
    rows = len(requests.arrival)
    whole = server.memory.of_request(requests.prompt + traffic.cached + requests.output)
    zeros = jnp.zeros(slots)
    start = _State(
        jnp.zeros(()),
        jnp.zeros((), int),
        jnp.full(slots, -1),
        zeros,
        zeros,
        zeros,
        jnp.full(rows, jnp.nan),
        jnp.full(rows, jnp.nan),
    )

    def turn(state: _State) -> tuple[_State, Turn]:
        empty = jnp.all(state.who < 0)
        here = jnp.minimum(state.next, requests.number - 1)
        left = state.next < requests.number
        coming = jnp.where(left, requests.arrival[here], jnp.inf)
        skip = empty & left
        idle = jnp.where(skip, jnp.maximum(coming - state.now, 0.0), 0.0)
        state = state._replace(now=state.now + idle)
        state = _admitted(state, requests, whole, pool, limit, server)
        return _stepped(state, requests, server, idle)

    shape = jax.eval_shape(lambda: turn(start)[1])
    empty = jax.tree.map(lambda x: jnp.zeros((turns, *x.shape), x.dtype), shape)

    def more(carried: tuple[Array, _State, Turn]) -> Array:
        number, state, _ = carried
        busy = (state.next < requests.number) | jnp.any(state.who >= 0)
        return busy & (number < turns)

    def go(carried: tuple[Array, _State, Turn]) -> tuple[Array, _State, Turn]:
        number, state, kept = carried
        state, one = turn(state)
        kept = jax.tree.map(lambda x, y: x.at[number].set(y), kept, one)
        return number + 1, state, kept

    taken, end, kept = lax.while_loop(more, go, (jnp.zeros((), int), start, empty))
    return Outcome(end.first, end.last, kept, taken, end.now)


def _admitted(
    state: _State,
    requests: Requests,
    whole: Array,
    pool: Array,
    limit: Array,
    server: Server,
) -> _State:
    """Requests that have come take free slots, in order, while memory lasts."""
    slots, number = len(state.who), requests.number
    ahead = jnp.minimum(state.next + jnp.arange(slots), number - 1)
    fresh = state.next + jnp.arange(slots) < number
    taken = state.who >= 0
    room = pool - jnp.sum(jnp.where(taken, whole[jnp.maximum(state.who, 0)], 0.0))
    needed = jnp.cumsum(whole[ahead])
    free = jnp.minimum(limit, slots) - jnp.sum(taken)
    alone = (jnp.arange(slots) == 0) & ~jnp.any(taken)  # never stuck
    ok = fresh & (requests.arrival[ahead] <= state.now)
    ok &= ((needed <= room) | alone) & (jnp.arange(slots) < free)
    count = jnp.sum(jnp.cumprod(ok))
    rank = jnp.cumsum(~taken) - 1  # of a free slot
    mine = ~taken & (rank < count)
    who = jnp.minimum(state.next + jnp.maximum(rank, 0), number - 1)
    return state._replace(
        next=state.next + count,
        who=jnp.where(mine, who, state.who),
        unread=jnp.where(mine, requests.prompt[who], state.unread),
        left=jnp.where(mine, requests.output[who], state.left),
        context=jnp.where(mine, server.traffic.cached, state.context),
    )


def _stepped(
    state: _State, requests: Requests, server: Server, idle: Array
) -> tuple[_State, Turn]:
    number, rows = requests.number, len(requests.arrival)
    here = state.who >= 0
    reading = here & (state.unread > 0)
    decoding = here & (state.unread <= 0)
    first = server.first > 0
    any_reading = jnp.any(reading)
    b = jnp.sum(decoding)
    b = jnp.where(first & any_reading, 0, b)  # prompts before all decoding
    read, more, prompt_energy = lax.cond(
        any_reading, _read, _nothing, server, state, reading, b
    )
    done = reading & (read >= state.unread)
    context = jnp.sum(jnp.where(decoding, state.context, 0.0)) / jnp.maximum(b, 1)
    d = cost.decode(
        server.costs, server.engine, jnp.maximum(b, 1.0), context, server.vocab
    )
    none = b < 1
    plain = jnp.where(none, 0.0, d.time)
    energy = jnp.where(none, 0.0, d.energy) + prompt_energy
    # how many alike steps: until a request ends, one comes, or the grain
    least = jnp.min(jnp.where(decoding, state.left, jnp.inf))
    pending = jnp.minimum(state.next, number - 1)
    coming = jnp.where(state.next < number, requests.arrival[pending], jnp.inf)
    gap = jnp.maximum(coming - state.now, 0.0)
    blocked = coming <= state.now  # waits for a slot: its coming is no event
    ahead = jnp.where(blocked, jnp.inf, jnp.ceil(gap / jnp.maximum(plain, 1e-9)))
    steps = jnp.clip(jnp.minimum(least, ahead), 1.0, _GRAIN)
    steps = jnp.where(any_reading, 1.0, steps)
    alive = jnp.any(here)
    steps = jnp.where(alive, steps, 0.0)
    # the context grows by one a step and sequence: mean over the steps
    growth = jnp.sum(_slope(server, b)) * (steps - 1) / 2
    time = plain + more + jnp.where(none | any_reading, 0.0, growth)
    longer = 1 + (time - plain - more) / jnp.maximum(plain, 1e-9)
    spent = steps * energy * longer
    now = state.now + steps * time
    made = jnp.where(decoding & ~(first & any_reading), steps, 0.0)
    made = jnp.where(done, 1.0, made)  # the step that ends a prompt makes a token
    left = state.left - made
    ended = here & (left <= 0) & (made > 0)
    who = jnp.maximum(state.who, 0)
    beyond = rows  # nowhere
    begun = jnp.where(done, who, beyond)
    over = jnp.where(ended, who, beyond)
    out = state._replace(
        now=now,
        who=jnp.where(ended, -1, state.who),
        unread=jnp.where(ended, 0.0, state.unread - read),
        left=jnp.where(ended, 0.0, left),
        context=state.context + read + jnp.where(decoding, made, 0.0),
        first=state.first.at[begun].set(now, mode="drop"),
        last=state.last.at[over].set(now, mode="drop"),
    )
    come = jnp.searchsorted(requests.arrival, state.now, side="right")
    come = jnp.minimum(come, number)
    tokens = jnp.sum(jnp.where(decoding, made, 0.0)) / jnp.maximum(steps, 1)
    parts = jnp.where(none, 0.0, jnp.append(d.parts, jnp.stack([d.sampling, d.host])))
    turn = Turn(
        steps,
        time,
        tokens,
        jnp.sum(read),
        spent,
        jnp.maximum(come - state.next, 0) + 0.0,
        idle,
        jnp.sum(jnp.where(here, server.memory.of_request(state.context), 0.0)),
        parts,
    )
    return out, turn


def _read(
    server: Server, state: _State, reading: Array, batch: Array
) -> tuple[Array, Array, Array]:
    """Prompt tokens of each slot that a step reads, in the order of requests under the
    budget of tokens; the time (s) and energy (J) that they add."""
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
    b = jnp.broadcast_to(batch + 0.0, whole.shape)
    added = cost.prompt(server.costs, server.engine, b, whole, server.first)
    share = read / whole
    time = jnp.sum(share * added.time) + server.engine.prompt
    return read, time, jnp.sum(share * added.energy)


def _nothing(
    server: Server, state: _State, reading: Array, batch: Array
) -> tuple[Array, Array, Array]:
    zero = jnp.zeros(())
    return jnp.zeros_like(state.unread), zero, zero


def _slope(server: Server, batch: Array) -> Array:
    """How much longer a step takes for a token more of context, s, by part."""
    knots = server.costs.batches
    each = jax.vmap(lambda x: jnp.interp(batch, knots, x), 1)(server.costs.slope)
    return each.at[_ATTENTION].multiply(server.engine.attention)
