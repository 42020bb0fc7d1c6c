"""What a simulated server is given, keeps between turns, and tells."""

from typing import NamedTuple

import equinox as eqx
from jax import Array


class Requests(NamedTuple):
    """A trace: arrival (s, rising), prompt tokens to compute and tokens to make; of the
    rows only the first `number` are requests."""

    arrival: Array
    prompt: Array
    output: Array
    number: Array


class Sizes(eqx.Module):
    """Slots, and turns of the loop, at most: what makes a program of its own."""

    slots: int = eqx.field(static=True)
    turns: int = eqx.field(static=True)


class Turn(NamedTuple):
    """One turn of the loop: `steps` alike of `time` s each, with `running` requests
    that decode (and got a token each), `prompt` tokens in the first of them, `energy` J
    of one GPU in all, `waiting` requests meanwhile; `dropped` ones
    lost their memory before it, `resumed` ones went on after `away` s without a token,
    all together; `held` ones that decode waited for prompts (prompts first); `clock`,
    Hz; power at the `lowest` clock, W."""

    steps: Array
    time: Array
    running: Array
    prompt: Array
    energy: Array
    waiting: Array
    kept: Array
    parts: Array
    dropped: Array
    resumed: Array
    away: Array
    held: Array
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
    made: Array  # tokens that each request had when it was dropped
    since: Array  # time of the last of them
    finished: Array  # number of requests
