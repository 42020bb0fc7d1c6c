"""Time from a free slot to the first token in an open loop: a gated queue of prompts.

Prompts are read in generations. Those that come during a generation, which takes S
seconds, make the next one; their number K is Poisson of mean rate S, so that

    S' = a + the times of K prompts,  or a decoding step where K = 0

with `a` the step that the prompts share. The moments of S follow one from another. A
request comes in a generation of length-biased S (E[S^(k + 1)] / E[S]) at a uniform
place in it, waits for the rest, and is read with those that came before it and with
those that come behind it and fit its step. All cumulants of this time are closed forms
(compound Poisson sums), and so is their mixture over the number of requests that run,
which moves slowly beside the steps.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from .._lengths import TAIL
from .._step import cost
from .server import Running, Server

_MOST_READING = 0.95
"""Most share of the time in which prompts are read: beyond it generations do not end
before the number of requests that run has changed."""
_ROUNDS = 3
"""Rounds until the chance of a generation without a prompt is settled."""


class Cumulants(NamedTuple):
    """Mean (s), variance (s^2) and third central moment (s^3) of a time."""

    mean: Array
    variance: Array
    third: Array


def first_token(
    server: Server, rate: Array, busy: Cumulants, arriving: Array
) -> Cumulants:
    """Time from a free slot to the first token, without HTTP.

    Args:
        server: one replica.
        rate: requests a second, Poisson.
        busy: this time beside each number of requests (`beside_others`).
        arriving: probability that an arriving request finds none, and each of them.
    """
    alone = on_idle(server, server.traffic.prompt_tail, jnp.asarray(TAIL))
    idle = _cumulants(jnp.zeros_like(rate), *_moments(alone)[:3])
    return _mixture(
        Cumulants(*(jnp.append(x, y) for x, y in zip(idle, busy, strict=True))),
        arriving,
    )


def on_idle(server: Server, relative: Array, weights: Array) -> Array:
    """Time to the first token of a prompt alone (s), without HTTP, by its length
    `relative` to the mean; `weights`: shares of the lengths."""
    lengths = server.traffic.prompt * relative
    x = _prompts(server, jnp.zeros_like(lengths[0]), lengths)
    pieces = jnp.maximum(lengths / server.chunk, 1.0)
    of = lengths / pieces, server.graph, pieces
    waiting = cost.launching(server.engine, x.time, *of)
    energy = x.energy + waiting * server.costs.idle[:, None]
    time = x.time + waiting
    return server.governed(time @ weights, energy @ weights).weights @ time


def beside_others(server: Server, rate: Array, states: Running) -> Cumulants:
    """The same beside each number of requests that run (`states`: their steps), 1, 2,
    ... or some of these numbers."""
    lengths = server.traffic.prompt * server.traffic.prompt_tail

    def time(batch: Array, weights: Array) -> Array:
        return weights @ _prompts(server, batch, lengths).time

    beside = jax.vmap(time)(server.group(states.decoding), states.reading)
    return _busy(server, rate, states, beside, lengths)  # of [state, length]


def _prompts(server: Server, batch: Array, lengths: Array) -> cost.Prompts:
    """Prompts of such lengths (tokens) beside so many sequences."""
    weights = cost.prompt_weights(server.costs, lengths)
    return cost.prompts(server.costs, server.engine, batch, weights, server.first)


def _busy(
    server: Server, rate: Array, states: Running, beside: Array, lengths: Array
) -> Cumulants:
    """Time to the first token beside each number of requests; `beside`: times of
    prompts of such `lengths` [state, length]."""
    own = 1 - server.first
    shared = states.mixing + own * states.decode
    # tokens of prompts in a step
    room = server.chunk - own * server.group(states.decoding) * server.costs.rows
    steps = lengths / room[:, None]
    # how many of those behind fit the step, from the tokens of a generation over room
    d1, d2, *_ = _moments(beside)
    read = jnp.minimum(rate * d1, _MOST_READING)
    long = shared / (1 - read) + rate * d2 / (1 - read**2)
    fitting = 1 / (1 + ((1 + rate * long) * server.traffic.prompt / room) ** 2)
    # steps beyond the first; where generations take several, half a step is lost
    more, part = jnp.maximum(steps - 1, 0.0), jnp.minimum(steps, 1.0) / 2
    each, spilt = beside + shared[:, None] * more, shared[:, None] * part
    d1, d2, d3, d4 = d = _moments(each, spilt, 1 - fitting)
    rate = jnp.minimum(rate, _MOST_READING / d1)
    s1, s2, s3, s4 = _generation(rate, states.decode, shared, d)
    b1, b2, b3 = s2 / s1, s3 / s1, s4 / s1  # of the one that a request comes in
    # given S and the place V of the request before its end, uniform: the mean wait is
    # (late V + read (1 - V)) S, and the rate of prompts before it (fitting V + 1 - V) S
    read, ahead = rate * d1, rate * (1 + fitting) / 2
    late = 1 + read * fitting
    both = rate * ((late * fitting + read) / 3 + (late + read * fitting) / 6)
    w1 = (late + read) / 2 * b1
    w2 = (late**2 + late * read + read**2) / 3 * b2 + ahead * d2 * b1
    cube = late**3 + late**2 * read + late * read**2 + read**3
    w3 = cube / 4 * b3 + 3 * both * d2 * b2 + ahead * d3 * b1
    wait, alone = _cumulants(jnp.zeros_like(w1), w1, w2, w3), _cumulants(shared, *d[:3])
    return Cumulants(*(x + y for x, y in zip(wait, alone, strict=True)))


def _generation(
    rate: Array, decode: Array, shared: Array, d: tuple[Array, ...]
) -> tuple[Array, ...]:
    """Moments E[S] to E[S^4] of a generation; `decode`: s of one without a prompt,
    `shared`: s of one with prompts beside theirs, of moments `d`."""
    d1, d2, d3, d4 = d
    r = rate * d1

    def moments(none: Array) -> tuple[Array, ...]:
        """From the chance of a generation without a prompt."""
        a1, a2, a3, a4 = (
            shared**k + none * (decode**k - shared**k) for k in (1, 2, 3, 4)
        )
        # x: moments of the times of all prompts; y: of these what S^k does not give
        s1 = a1 / (1 - r)
        x1, y2 = r * s1, rate * s1 * d2
        s2 = (a2 + 2 * shared * x1 + y2) / (1 - r**2)
        x2, y3 = y2 + r**2 * s2, rate * (s1 * d3 + 3 * r * s2 * d2)
        s3 = (a3 + 3 * shared**2 * x1 + 3 * shared * x2 + y3) / (1 - r**3)
        x3 = y3 + r**3 * s3
        y4 = rate * (
            s1 * d4 + rate * s2 * (4 * d1 * d3 + 3 * d2**2) + 6 * r**2 * s3 * d2
        )
        a4 = a4 + 4 * shared**3 * x1 + 6 * shared**2 * x2 + 4 * shared * x3
        return s1, s2, s3, (a4 + y4) / (1 - r**4)

    # E[exp(-rate S)], S beyond its least value being close to gamma distributed
    least, none = jnp.minimum(decode, shared), jnp.exp(-rate * decode)
    for _ in range(_ROUNDS):
        s1, s2, *_ = moments(none)
        mean = jnp.maximum(s1 - least, 1e-12)
        scale = jnp.maximum(s2 - s1**2, 1e-24) / mean
        none = jnp.exp(-rate * least - mean / scale * jnp.log1p(rate * scale))
    return moments(none)


def _moments(
    times: Array, more: Array | float = 0.0, share: Array | float = 0.0
) -> tuple[Array, ...]:
    """E[x] to E[x^4] of x = `times` + `share` `more` over the strata `TAIL` on the last
    axis; `share` without it. Written out, so that a map over rates, which only `share`
    depends on, does not repeat the sums over strata."""
    weights = jnp.asarray(TAIL)

    def moment(k: int) -> Array:
        terms = [
            math.comb(k, j) * share**j * (times ** (k - j) * more**j @ weights)
            for j in range(k + 1)
        ]
        return jnp.sum(jnp.stack(terms), 0)

    return tuple(moment(k) for k in (1, 2, 3, 4))


def _cumulants(start: Array, m1: Array, m2: Array, m3: Array) -> Cumulants:
    """Cumulants of `start` plus a time with such moments."""
    return Cumulants(start + m1, m2 - m1**2, m3 - 3 * m1 * m2 + 2 * m1**3)


def _mixture(each: Cumulants, weights: Array) -> Cumulants:
    """Cumulants of a mixture of times with `weights`."""
    mean = weights @ each.mean
    off = each.mean - mean
    return Cumulants(
        mean,
        weights @ (each.variance + off**2),
        weights @ (each.third + 3 * each.variance * off + off**3),
    )
