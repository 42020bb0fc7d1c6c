"""What a simulated server is given, keeps between turns, and tells."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array, lax

from .._steady.server import Server
from .._step import cost


class Requests(NamedTuple):
    """A trace: arrival (s, rising), prompt tokens to compute and tokens to make; of the
    rows only the first `number` are requests; tokens of each prompt that are `cached`
    before."""

    arrival: Array
    prompt: Array
    output: Array
    number: Array
    cached: Array


class Sizes(eqx.Module):
    """Slots, and turns of the loop, at most: what makes a program of its own."""

    slots: int = eqx.field(static=True)
    turns: int = eqx.field(static=True)


class Turn(NamedTuple):
    """One turn of the loop: from `start` (s) on `steps` alike of `time` s each, with
    `running` requests that decode (and got tokens), `prompt` tokens in the first of
    them, `energy` J of one GPU in all, `waiting` requests meanwhile; `dropped` ones
    lost their memory before it, `resumed` ones went on after `away` s without a token,
    all together; `blocked` ones that decode waited for prompts (prompts first);
    `clock`, Hz; power at the `lowest` clock, W."""

    start: Array
    steps: Array
    time: Array
    running: Array
    prompt: Array
    energy: Array
    waiting: Array
    cached_bytes: Array
    parts: Array
    dropped: Array
    resumed: Array
    away: Array
    blocked: Array
    clock: Array
    lowest: Array


class Outcome(NamedTuple):
    """When each request had its first and its last token (s; NaN: not at all), every
    turn (the first `taken` rows), and the time at the end."""

    first: Array
    last: Array
    turns: Turn
    taken: Array
    end: Array


class State(NamedTuple):
    """A server between two turns; by slot unless said otherwise."""

    now: Array  # s
    next: Array  # first request that waits, or has not come
    who: Array  # request in a slot, -1: free
    unread: Array  # tokens of its prompt
    left: Array  # tokens to make
    context: Array
    first: Array  # s, by request
    last: Array  # s, by request
    generated: Array  # tokens that each request had when it was dropped
    since: Array  # time of the last of them
    finished: Array  # number of requests


# --- Who may be in the cache: requests enter while blocks last, the youngest are
# dropped where the next tokens of the others find none.

_BLOCK = 16
"""Tokens of a block of the cache (vLLM's `block_size`)."""


def needed(state: State, server: Server, steps: Array | int) -> Array:
    """Bytes of blocks of every slot after so many steps."""
    decoding = state.unread <= 0
    tokens = (
        state.context + state.unread + jnp.where(decoding, steps * server.burst[0], 0)
    )
    return jnp.where(state.who >= 0, _blocks(server, tokens), 0.0)


def _blocks(server: Server, tokens: Array) -> Array:
    """Bytes of the blocks that hold so many tokens of a request."""
    return server.memory.of_request(jnp.ceil(tokens / _BLOCK) * _BLOCK)


def dropped(state: State, requests: Requests, server: Server) -> tuple[State, Array]:
    """Without the youngest, if the next tokens of all do not find room; how many."""
    bytes_, rows = needed(state, server, 1), len(requests.arrival)
    here, one = state.who >= 0, jnp.maximum(state.who, 0)

    def youngest(_: Array) -> Array:
        # Requests are numbered by arrival: the largest is the youngest, free slots come
        # last.
        order = jnp.argsort(jnp.where(here, state.who, rows))
        fits = jnp.cumsum(bytes_[order]) <= server.memory.pool
        fits = fits.at[0].set(True)  # never stuck
        return here & jnp.zeros_like(fits).at[order].set(~fits)

    tight = jnp.sum(bytes_) > server.memory.pool
    gone = lax.cond(tight, youngest, jnp.zeros_like, here)
    generated = requests.output[one] - state.left
    lost = gone & (state.unread <= 0)  # it had a token in the step before
    return state._replace(
        next=jnp.min(jnp.where(gone, state.who, state.next)),
        who=jnp.where(gone, -1, state.who),
        unread=jnp.where(gone, 0.0, state.unread),
        left=jnp.where(gone, 0.0, state.left),
        generated=state.generated.at[jnp.where(gone, one, rows)].set(
            generated, mode="drop"
        ),
        since=state.since.at[jnp.where(lost, one, rows)].set(state.now, mode="drop"),
    ), jnp.sum(gone)


def admitted(state: State, requests: Requests, limit: Array, server: Server) -> State:
    """Requests that have come take free slots, in order, while memory lasts."""
    slots, number = len(state.who), requests.number
    place = state.next + jnp.arange(slots)
    ahead = jnp.minimum(place, number - 1)
    over = ~jnp.isnan(state.last[ahead])  # younger than one dropped, and done
    occupied = state.who >= 0
    unread = requests.prompt[ahead] + state.generated[ahead]
    needed_bytes = _blocks(server, unread + requests.cached[ahead])
    room = server.memory.pool - jnp.sum(needed(state, server, 1))
    cumulative = jnp.cumsum(jnp.where(over, 0.0, needed_bytes))
    rank = jnp.cumsum(~over) - 1  # among those that may be admitted
    alone = (rank == 0) & ~jnp.any(occupied)  # never stuck
    ok = (requests.arrival[ahead] <= state.now) & ((cumulative <= room) | alone)
    ok &= rank < jnp.minimum(limit, slots) - jnp.sum(occupied)
    entered = jnp.cumprod((place < number) & (over | ok)) > 0
    # the n-th of them takes the n-th free slot
    mine = entered & ~over
    entering = (
        jnp.full(slots + 1, -1).at[jnp.where(mine, rank, slots)].set(ahead)[:slots]
    )
    free = jnp.cumsum(~occupied) - 1
    who = jnp.where(occupied, -1, entering[jnp.maximum(free, 0)])
    new, one = who >= 0, jnp.maximum(who, 0)
    generated = state.generated[one]
    return state._replace(
        next=state.next + jnp.sum(entered),
        who=jnp.where(new, who, state.who),
        unread=jnp.where(new, requests.prompt[one] + generated, state.unread),
        left=jnp.where(new, requests.output[one] - generated, state.left),
        context=jnp.where(new, requests.cached[one], state.context),
    )


# --- One turn of the loop: as many steps as are alike, and what they leave behind.

GRAIN = 64
"""Most steps of one turn: the batch is looked at again, so that gaps are told well."""


class _Step(NamedTuple):
    """The next step as it would run alone, at the clock that its power allows."""

    reading: Array  # slots whose prompts are read, or wait to be
    decoding: (
        Array  # slots with the whole prompt, which go on unless they are `blocked`
    )
    number: Array  # sequences that decode
    blocked: Array  # those that wait for prompts (prompts first)
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
    step = _step(state, requests, server)
    any_reading, none = jnp.any(step.reading), step.number < 1
    steps = _alike(state, requests, server, step)
    # the context grows by so many tokens a step and sequence: mean over the steps
    each, _ = server.burst
    growth = step.growth * each * (steps - 1) / 2
    alone = step.plain + step.prompts
    time = alone + jnp.where(none | any_reading, 0.0, growth)
    longer = 1 + (time - alone) / jnp.maximum(step.plain, 1e-9)
    now = state.now + steps * time
    generated = jnp.where(step.decoding & (step.blocked < 1), steps * each, 0.0)
    out, again = _after(state, step, now, generated, len(requests.arrival))
    come = jnp.searchsorted(requests.arrival, state.now, side="right")
    come = jnp.minimum(come, requests.number)
    here, who = state.who >= 0, jnp.maximum(state.who, 0)
    running = jnp.sum(jnp.where(step.decoding, generated, 0.0)) / each
    turn = Turn(
        state.now,
        steps,
        time,
        running / jnp.maximum(steps, 1),
        jnp.sum(step.read),
        steps * step.energy * longer,
        come - state.finished - jnp.sum(here) + 0.0,
        jnp.sum(jnp.where(here, server.memory.of_request(state.context), 0.0)),
        step.parts,
        dropped,
        jnp.sum(again),
        jnp.sum(jnp.where(again, now - state.since[who], 0.0)),
        step.blocked,
        step.clock,
        step.lowest,
    )
    return out, turn


def _step(state: State, requests: Requests, server: Server) -> _Step:
    """The next step: who reads and who decodes in it, and what that takes."""
    here = state.who >= 0
    reading, decoding = here & (state.unread > 0), here & (state.unread <= 0)
    any_reading, number = jnp.any(reading), jnp.sum(decoding)
    first = (server.first > 0) & any_reading  # prompts before all decoding
    waiting = jnp.where(first, number, 0)
    number = number - waiting
    context = jnp.sum(jnp.where(decoding, state.context, 0.0)) / jnp.maximum(number, 1)
    least = jnp.maximum(number, 1.0)
    d = cost.decode(server.costs, server.engine, least, context, server.vocab)
    some = jnp.where(number < 1, 0.0, 1.0)
    of = server, state, requests, reading, number, some * jnp.sum(d.parts, -1)
    read, prompts, spent = lax.cond(any_reading, _read, _nothing, *of)
    time, energy = some * d.time + prompts, some * d.energy + spent
    busy = jnp.any(here)  # else there is no step, whose power would be 0 / 0
    at = server.governed(jnp.where(busy, time, 1.0), jnp.where(busy, energy, 1.0))
    w = at.weights
    parts = some * jnp.append(w @ d.parts, jnp.stack([d.sampling, d.host]))
    growth = w @ cost.growth(server.costs, server.engine, number)
    return _Step(
        reading, decoding, number, waiting, read, some * (w @ d.time), w @ prompts,
        at.power * (w @ time), parts, growth, at.clock, at.lowest,
    )  # fmt: skip


def _alike(state: State, requests: Requests, server: Server, step: _Step) -> Array:
    """How many steps are alike: until a request ends, one comes, memory ends, or the
    grain; one that reads prompts is alone."""
    least = jnp.min(jnp.where(step.decoding, state.left, jnp.inf))
    least = jnp.ceil(least / server.burst[0])
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
    state: State, step: _Step, now: Array, generated: Array, rows: int
) -> tuple[State, Array]:
    """(state once every slot has `generated` tokens, slots that go on after they had
    been dropped); of `rows` requests."""
    done = step.reading & (step.read >= state.unread)
    generated = jnp.where(
        done, 1.0, generated
    )  # the step that ends a prompt makes a token
    left = state.left - generated
    ended = (state.who >= 0) & (left <= 0) & (generated > 0)
    who = jnp.maximum(state.who, 0)
    again = done & (state.generated[who] > 0)
    begun = jnp.where(done & ~again, who, rows)  # else nowhere
    over = jnp.where(ended, who, rows)
    out = state._replace(
        now=now,
        who=jnp.where(ended, -1, state.who),
        unread=jnp.where(ended, 0.0, state.unread - step.read),
        left=jnp.where(ended, 0.0, left),
        context=state.context + step.read + jnp.where(step.decoding, generated, 0.0),
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
    server: Server,
    state: State,
    requests: Requests,
    reading: Array,
    batch: Array,
    decoding: Array,
) -> tuple[Array, Array, Array]:
    """Prompt tokens of each slot that a step reads, in the order of requests under the
    budget of tokens; the time (s) and energy (J) that they add at each clock, beside
    `decoding` (s) of its kernels."""
    order = jnp.where(reading, state.who, jnp.iinfo(state.who.dtype).max)
    rank = jnp.argsort(order)
    waiting = jnp.where(reading, state.unread, 0.0)[rank]
    before = jnp.cumsum(waiting) - waiting
    # One token at least: a prompt ends beside a full batch, too.
    budget = jnp.maximum(server.chunk - batch * server.costs.rows, 1.0)
    shares = jnp.clip(budget - before, 0.0, waiting)
    read = jnp.zeros_like(state.unread).at[rank].set(shares)
    # as the whole prompt costs, share by share
    cached = requests.cached[jnp.maximum(state.who, 0)]
    whole = jnp.maximum(read + state.context - cached, 1.0)
    whole = jnp.maximum(whole, state.unread)
    costs, engine = server.costs, server.engine
    weights = (read / whole) @ cost.prompt_weights(costs, whole)
    added = cost.prompts(costs, engine, batch + 0.0, weights, server.first)
    tokens = jnp.sum(read) + batch * costs.rows
    mixing = cost.launching(engine, decoding + added.time, tokens, server.graph)
    return read, added.time + mixing, added.energy + mixing * costs.idle


def _nothing(server: Server, state: State, *_: Any) -> tuple[Array, Array, Array]:
    none = jnp.zeros_like(server.costs.clocks)
    return jnp.zeros_like(state.unread), none, none


# --- A server step by step: continuous batching of a trace of requests.
#
# Between two events (a request comes or ends, a prompt is read) steps are alike, so
# that one turn of the loop takes all of them: as many as until the next event, their
# time the sum of a series linear in the context. Requests are admitted in order while
# slots and blocks of the cache for their prompts last; prompts are read in order under
# the budget of a step, beside those that decode or before them.
#
# As in vLLM no room is kept for tokens to come: where the next tokens of those that run
# find no block, the youngest are dropped until the others have theirs (preemption). Who
# was dropped waits at the head of the queue and reads its prompt and the tokens that it
# had made anew. Since the youngest leave first and the oldest enter first, all that run
# came before all that wait, and the queue is a place in the order of arrival.

SLOTS = 1024
"""Most slots that are simulated: the state of all is looked at in every step."""
_TURNS = 6
"""Turns of the loop for each request, at most (it comes, is read, ends; each may be
cut by another's event), and for each piece of a prompt one more."""


def most_turns(requests: int, pieces: float, tokens: float) -> int:
    """Turns that a trace takes at most: a power of two, so that alike traces share a
    program."""
    need = requests * (_TURNS + pieces) + tokens / GRAIN
    return 1 << max(int(need) - 1, 1).bit_length()


def run_through(
    server: Server, requests: Requests, limit: Array, sizes: Sizes
) -> Outcome:
    """Runs a trace through one replica, of whose slots at most `limit` are used."""
    rows, slots, turns = len(requests.arrival), sizes.slots, sizes.turns
    zeros, none = jnp.zeros(slots), jnp.zeros((), int)
    unknown, nothing = jnp.full(rows, jnp.nan), jnp.zeros(rows)
    start = State(
        now=jnp.zeros(()), next=none, who=jnp.full(slots, -1), unread=zeros, left=zeros,
        context=zeros, first=unknown, last=unknown, generated=nothing, since=nothing,
        finished=none,
    )  # fmt: skip

    def turn(state: State) -> tuple[State, Turn]:
        empty = jnp.all(state.who < 0)
        here = jnp.minimum(state.next, requests.number - 1)
        left = state.next < requests.number
        coming = jnp.where(left, requests.arrival[here], jnp.inf)
        idle = jnp.maximum(coming - state.now, 0.0)
        # an empty server waits for the next request
        state = state._replace(now=state.now + jnp.where(empty & left, idle, 0.0))
        state, gone = dropped(state, requests, server)
        # Who was just dropped does not enter again at once: memory is what is missing.
        state = admitted(state, requests, jnp.where(gone > 0, 0, limit), server)
        return stepped(state, requests, server, gone)

    shape = jax.eval_shape(lambda: turn(start)[1])
    empty = jax.tree.map(lambda x: jnp.zeros((turns, *x.shape), x.dtype), shape)

    def more(carried: tuple[Array, State, Turn]) -> Array:
        number, state, _ = carried
        busy = (state.next < requests.number) | jnp.any(state.who >= 0)
        return busy & (number < turns)

    def go(carried: tuple[Array, State, Turn]) -> tuple[Array, State, Turn]:
        number, state, turns_so_far = carried
        state, one = turn(state)
        turns_so_far = jax.tree.map(lambda x, y: x.at[number].set(y), turns_so_far, one)
        return number + 1, state, turns_so_far

    taken, end, turns_so_far = lax.while_loop(
        more, go, (jnp.zeros((), int), start, empty)
    )
    return Outcome(end.first, end.last, turns_so_far, taken, end.now)
