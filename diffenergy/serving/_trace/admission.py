"""Who may be in the cache: requests enter while blocks last, the youngest are dropped
where the next tokens of the others find none."""

import jax.numpy as jnp
from jax import Array, lax

from .._steady.server import Server
from .state import Requests, State

_BLOCK = 16
"""Tokens of a block of the cache (vLLM's `block_size`)."""


def needed(state: State, server: Server, steps: Array | int) -> Array:
    """Bytes of blocks of every slot after so many steps."""
    decoding = state.unread <= 0
    tokens = state.context + state.unread + jnp.where(decoding, steps, 0)
    return jnp.where(state.who >= 0, _blocks(server, tokens), 0.0)


def _blocks(server: Server, tokens: Array) -> Array:
    """Bytes of the blocks that hold so many tokens of a request."""
    return server.memory.of_request(jnp.ceil(tokens / _BLOCK) * _BLOCK)


def dropped(state: State, requests: Requests, server: Server) -> tuple[State, Array]:
    """Without the youngest, if the next tokens of all do not find room; how many."""
    bytes_, rows = needed(state, server, 1), len(requests.arrival)
    here, one = state.who >= 0, jnp.maximum(state.who, 0)

    def youngest(_: Array) -> Array:
        order = jnp.argsort(jnp.where(here, state.who, rows))
        fits = jnp.cumsum(bytes_[order]) <= server.memory.pool
        fits = fits.at[0].set(True)  # never stuck
        return here & jnp.zeros_like(fits).at[order].set(~fits)

    tight = jnp.sum(bytes_) > server.memory.pool
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


def admitted(state: State, requests: Requests, limit: Array, server: Server) -> State:
    """Requests that have come take free slots, in order, while memory lasts."""
    slots, number = len(state.who), requests.number
    place = state.next + jnp.arange(slots)
    ahead = jnp.minimum(place, number - 1)
    over = ~jnp.isnan(state.last[ahead])  # younger than one dropped, and done
    taken = state.who >= 0
    unread = requests.prompt[ahead] + state.made[ahead]
    asked = _blocks(server, unread + server.traffic.cached)
    room = server.memory.pool - jnp.sum(needed(state, server, 1))
    wanted = jnp.cumsum(jnp.where(over, 0.0, asked))
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
