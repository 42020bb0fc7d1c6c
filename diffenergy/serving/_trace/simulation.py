"""A server step by step: continuous batching of a trace of requests.

Between two events (a request comes or ends, a prompt is read) steps are alike, so that
one turn of the loop takes all of them: as many as until the next event, their time the
sum of a series linear in the context. Requests are admitted in order while slots and
blocks of the cache for their prompts last; prompts are read in order under the budget
of a step, beside those that decode or before them.

As in vLLM no room is kept for tokens to come: where the next tokens of those that run
find no block, the youngest are dropped until the others have theirs (preemption). Who
was dropped waits at the head of the queue and reads its prompt and the tokens that it
had made anew. Since the youngest leave first and the oldest enter first, all that run
came before all that wait, and the queue is a place in the order of arrival.
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
_BLOCK = 16
"""Tokens of a block of the cache (vLLM's `block_size`)."""


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
    of one GPU in all, `waiting` requests meanwhile, `idle` s before; `dropped` ones
    lost their memory before it, `resumed` ones went on after `away` s without a token,
    all together; `held` ones that decode waited for prompts (prompts first)."""

    steps: Array
    time: Array
    running: Array
    prompt: Array
    energy: Array
    waiting: Array
    idle: Array
    kept: Array
    parts: Array
    dropped: Array
    resumed: Array
    away: Array
    held: Array


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
    next: Array  # first request that waits, or has not come
    who: Array  # request in a slot, -1: free
    unread: Array  # tokens of its prompt
    left: Array  # tokens to make
    context: Array
    first: Array
    last: Array
    made: Array  # tokens that a request had when it was dropped
    since: Array  # time of the last of them
    finished: Array  # number of requests


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
    rows = len(requests.arrival)
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
        jnp.zeros(rows),
        jnp.zeros(rows),
        jnp.zeros((), int),
    )

    def turn(state: _State) -> tuple[_State, Turn]:
        empty = jnp.all(state.who < 0)
        here = jnp.minimum(state.next, requests.number - 1)
        left = state.next < requests.number
        coming = jnp.where(left, requests.arrival[here], jnp.inf)
        skip = empty & left
        idle = jnp.where(skip, jnp.maximum(coming - state.now, 0.0), 0.0)
        state = state._replace(now=state.now + idle)
        state, dropped = _dropped(state, requests, server)
        state = _admitted(state, requests, jnp.where(dropped > 0, 0, limit), server)
        return _stepped(state, requests, server, idle, dropped)

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


def _needed(state: _State, server: Server, steps: Array | int) -> Array:
    """Bytes of blocks of every slot after so many steps."""
    decoding = state.unread <= 0
    tokens = state.context + state.unread + jnp.where(decoding, steps, 0)
    return jnp.where(state.who >= 0, _blocks(server, tokens), 0.0)


def _blocks(server: Server, tokens: Array) -> Array:
    """Bytes of the blocks that hold so many tokens of a request."""
    return server.memory.of_request(jnp.ceil(tokens / _BLOCK) * _BLOCK)


def _dropped(state: _State, requests: Requests, server: Server) -> tuple[_State, Array]:
    """Without the youngest, if the next tokens of all do not find room; how many."""
    needed, rows = _needed(state, server, 1), len(requests.arrival)
    here, one = state.who >= 0, jnp.maximum(state.who, 0)

    def youngest(_: Array) -> Array:
        order = jnp.argsort(jnp.where(here, state.who, rows))
        fits = jnp.cumsum(needed[order]) <= server.memory.pool
        fits = fits.at[0].set(True)  # never stuck
        return here & jnp.zeros_like(fits).at[order].set(~fits)

    tight = jnp.sum(needed) > server.memory.pool
    gone = lax.cond(tight, youngest, jnp.zeros_like, here)
    made = requests.output[one] - state.left
    lost = gone & (state.unread <= 0)  # it had a token in the step before
    return state._replace(
        next=jnp.min(jnp.where(gone, state.who, state.next)),
        who=jnp.where(gone, -1, state.who),
        unread=jnp.where(gone, 0.0, state.unread),
        left=jnp.where(gone, 0.0, state.left),
        made=state.made.at[jnp.where(gone, one, rows)].set(made, mode="drop"),
        since=state.since.at[jnp.where(lost, one, rows)].set(state.now, mode="drop"),
    ), jnp.sum(gone)


def _admitted(
    state: _State, requests: Requests, limit: Array, server: Server
) -> _State:
    """Requests that have come take free slots, in order, while memory lasts."""
    slots, number = len(state.who), requests.number
    place = state.next + jnp.arange(slots)
    ahead = jnp.minimum(place, number - 1)
    over = ~jnp.isnan(state.last[ahead])  # younger than one dropped, and done
    taken = state.who >= 0
    unread = requests.prompt[ahead] + state.made[ahead]
    needed = _blocks(server, unread + server.traffic.cached)
    room = server.memory.pool - jnp.sum(_needed(state, server, 1))
    wanted = jnp.cumsum(jnp.where(over, 0.0, needed))
    rank = jnp.cumsum(~over) - 1  # among those that may be admitted
    alone = (rank == 0) & ~jnp.any(taken)  # never stuck
    ok = (requests.arrival[ahead] <= state.now) & ((wanted <= room) | alone)
    ok &= rank < jnp.minimum(limit, slots) - jnp.sum(taken)
    entered = jnp.cumprod((place < number) & (over | ok)) > 0
    # the n-th of them takes the n-th free slot
    mine = entered & ~over
    found = jnp.full(slots + 1, -1).at[jnp.where(mine, rank, slots)].set(ahead)[:slots]
    free = jnp.cumsum(~taken) - 1
    who = jnp.where(taken, -1, found[jnp.maximum(free, 0)])
    new, one = who >= 0, jnp.maximum(who, 0)
    made = state.made[one]
    return state._replace(
        next=state.next + jnp.sum(entered),
        who=jnp.where(new, who, state.who),
        unread=jnp.where(new, requests.prompt[one] + made, state.unread),
        left=jnp.where(new, requests.output[one] - made, state.left),
        context=jnp.where(new, server.traffic.cached, state.context),
    )


def _stepped(
    state: _State, requests: Requests, server: Server, idle: Array, dropped: Array
) -> tuple[_State, Turn]:
    number, rows = requests.number, len(requests.arrival)
    here = state.who >= 0
    reading = here & (state.unread > 0)
    decoding = here & (state.unread <= 0)
    first = server.first > 0
    any_reading = jnp.any(reading)
    b = jnp.sum(decoding)
    held = jnp.where(first & any_reading, b, 0)  # prompts before all decoding
    b = b - held
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
    # how many alike steps: until a request ends, one comes, memory ends, or the grain
    least = jnp.min(jnp.where(decoding, state.left, jnp.inf))
    pending = jnp.minimum(state.next, number - 1)
    coming = jnp.where(state.next < number, requests.arrival[pending], jnp.inf)
    gap = jnp.maximum(coming - state.now, 0.0)
    blocked = coming <= state.now  # waits for a slot: its coming is no event
    ahead = jnp.where(blocked, jnp.inf, jnp.ceil(gap / jnp.maximum(plain, 1e-9)))
    steps = jnp.clip(jnp.minimum(least, ahead), 1.0, _GRAIN)
    steps = _within(state, server, steps)
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
    again = done & (state.made[who] > 0)
    begun = jnp.where(done & ~again, who, beyond)
    over = jnp.where(ended, who, beyond)
    out = state._replace(
        now=now,
        who=jnp.where(ended, -1, state.who),
        unread=jnp.where(ended, 0.0, state.unread - read),
        left=jnp.where(ended, 0.0, left),
        context=state.context + read + jnp.where(decoding, made, 0.0),
        first=state.first.at[begun].set(now, mode="drop"),
        last=state.last.at[over].set(now, mode="drop"),
        finished=state.finished + jnp.sum(ended),
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
        come - state.finished - jnp.sum(here) + 0.0,
        idle,
        jnp.sum(jnp.where(here, server.memory.of_request(state.context), 0.0)),
        parts,
        dropped,
        jnp.sum(again),
        jnp.sum(jnp.where(again, now - state.since[who], 0.0)),
        held,
    )
    return out, turn


def _within(state: _State, server: Server, steps: Array) -> Array:
    """So many steps, or as many as memory lasts for."""

    def fits(steps: Array) -> Array:
        return jnp.sum(_needed(state, server, steps)) <= server.memory.pool

    def halve(_: Array, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = ends
        middle = jnp.floor((low + high) / 2)
        good = fits(middle)
        return jnp.where(good, middle, low), jnp.where(good, high, middle)

    def fewer(steps: Array) -> Array:
        ends = jnp.ones(()), steps
        return lax.fori_loop(0, _GRAIN.bit_length(), halve, ends)[0]

    return lax.cond(fits(steps), lambda x: x, fewer, steps)


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
