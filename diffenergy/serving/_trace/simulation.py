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

import jax
import jax.numpy as jnp
from jax import Array, lax

from .._steady.server import Server
from .admission import admitted, dropped
from .state import Outcome, Requests, Sizes, State, Turn
from .turn import GRAIN, stepped

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
        context=zeros, first=unknown, last=unknown, made=nothing, since=nothing,
        finished=none,
    )  # fmt: skip

    def turn(state: State) -> tuple[State, Turn]:
        empty = jnp.all(state.who < 0)
        here = jnp.minimum(state.next, requests.number - 1)
        left = state.next < requests.number
        coming = jnp.where(left, requests.arrival[here], jnp.inf)
        idle = jnp.maximum(coming - state.now, 0.0)
        state = state._replace(now=state.now + jnp.where(empty & left, idle, 0.0))
        state, gone = dropped(state, requests, server)
        state = admitted(state, requests, jnp.where(gone > 0, 0, limit), server)
        return stepped(state, requests, server, gone)

    shape = jax.eval_shape(lambda: turn(start)[1])
    empty = jax.tree.map(lambda x: jnp.zeros((turns, *x.shape), x.dtype), shape)

    def more(carried: tuple[Array, State, Turn]) -> Array:
        number, state, _ = carried
        busy = (state.next < requests.number) | jnp.any(state.who >= 0)
        return busy & (number < turns)

    def go(carried: tuple[Array, State, Turn]) -> tuple[Array, State, Turn]:
        number, state, kept = carried
        state, one = turn(state)
        kept = jax.tree.map(lambda x, y: x.at[number].set(y), kept, one)
        return number + 1, state, kept

    taken, end, kept = lax.while_loop(more, go, (jnp.zeros((), int), start, empty))
    return Outcome(end.first, end.last, kept, taken, end.now)
