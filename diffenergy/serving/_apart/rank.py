"""Pools on a grid of clocks, batch limits and numbers of workers, and the best pairs of
them: arrays throughout, for sizes of pools and for searches."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float

from .._engine import SORTED_AT_ONCE
from .._steady.queue import birth_death
from .._steady.server import Server, running
from .pools import (
    Prompts,
    prompt_atoms,
    queue_wait,
    read_prompts,
    slot_wait,
    without_prompts,
)

_HIGH: Final = 0.95
"""Quantile of the latencies that limits are for."""


class PrefillGrid(NamedTuple):
    """Prefill pools [clock, workers]: `power` of one GPU, W; 95th percentile and mean
    of the time until a prompt is read, s; `load`; whether the power limit is kept."""

    power: Any
    high: Any
    mean: Any
    load: Any
    feasible: Any


class DecodeGrid(NamedTuple):
    """Decode pools [clock, limit, workers]: `power` of one GPU, W; 95th percentile of
    the time of a token, s; of the time from the KV cache's arrival to the first token
    (`first`: its mean, or what its wait for a slot has as 95th percentile beyond that),
    s; `load`; whether the power limit is kept."""

    power: Any
    high: Any
    first: Any
    load: Any
    feasible: Any


class PrefillQuestion(eqx.Module):
    """A prefill worker, `rate` of all prompts (1/s), clocks (Hz) and workers."""

    server: Server
    rate: Array
    clocks: Float[Array, " f"]
    workers: Float[Array, " n"]


class DecodeQuestion(eqx.Module):
    """A decode worker, `rate` of all requests (1/s), clocks (Hz), batch limits,
    workers; `states` of a worker that are told apart, above each limit."""

    server: Server
    rate: Array
    clocks: Float[Array, " f"]
    limits: Float[Array, " m"]
    workers: Float[Array, " n"]
    states: int = eqx.field(static=True)


def prompts_at(question: PrefillQuestion) -> Prompts:
    """Prompts of a worker at the first clock."""
    return read_prompts(question.server.at_clock(question.clocks[0]))


def prefill_grid(q: PrefillQuestion) -> PrefillGrid:
    """Prefill pools at each clock with each number of workers."""

    def at(clock: Array) -> PrefillGrid:
        x = read_prompts(q.server.at_clock(clock))

        def with_workers(n: Array) -> PrefillGrid:
            wait = queue_wait(q.rate, n, x.mean, x.second)
            atoms = prompt_atoms(x, wait)
            high = atoms.between((_HIGH,))[0]
            return PrefillGrid(
                x.power(q.rate, n), high, atoms.mean, wait.load, x.feasible
            )

        return jax.vmap(with_workers)(q.workers)

    return jax.vmap(at)(q.clocks)


def _knots(states: int) -> np.ndarray:
    """Requests between which steps are linear: those of the table, and where sampling
    changes its kind."""
    halves = [x for i in range(24) for x in (2**i, 3 * 2**i)]
    return np.unique(
        [*(x for x in halves if x < states), SORTED_AT_ONCE - 1.0, float(states)]
    )


def decode_grid(q: DecodeQuestion) -> DecodeGrid:
    """Decode pools at each clock, batch limit and number of workers."""
    server = without_prompts(q.server)
    output, number = server.traffic.output, jnp.arange(1.0, q.states + 1.0)
    fits = jnp.clip(jnp.minimum(q.limits, server.fits), 1.0)

    def at(clock: Array) -> DecodeGrid:
        here = server.at_clock(clock)
        knots = jnp.asarray(_knots(q.states))
        each = jax.vmap(lambda r: running(here, r))(knots)

        def one(limit: Array, n: Array) -> DecodeGrid:
            slots = jnp.minimum(number, limit)
            step, token, joules = (
                jnp.interp(slots, knots, x)
                for x in (each.step, each.token, each.energy)
            )
            flow, power = slots / token, joules / step
            balance = birth_death(q.rate / n, flow, output, limit)
            p = balance.weights
            share = p[1:].at[-1].add(jnp.maximum(1 - jnp.sum(p), 0.0))
            tokens = jnp.cumsum(share * flow)
            high = token[jnp.searchsorted(tokens, _HIGH * tokens[-1])]
            wait = slot_wait(here, balance)
            late = jnp.log(jnp.maximum(wait.taken / (1 - _HIGH), 1.0)) * wait.mean
            first = p[0] * step[0] + 1.5 * (share @ step) + late
            return DecodeGrid(
                share @ power + p[0] * here.idle, high, first, balance.load,
                jnp.all(each.feasible | (knots > limit + 1)),
            )  # fmt: skip

        by_workers = jax.vmap(one, (None, 0))
        return jax.vmap(by_workers, (0, None))(fits, q.workers)

    return lax.map(at, q.clocks)


class Points(NamedTuple):
    """Pools as flat arrays: `of`: number of the candidate, `clock` (Hz), batch `limit`
    (prefill: 1), `workers`, `gpus`, `power` of all of them (W), 95th percentile of the
    time of a token (prefill: 0), s of the time to the first token that pass in it."""

    of: np.ndarray
    clock: np.ndarray
    limit: np.ndarray
    workers: np.ndarray
    gpus: np.ndarray
    power: np.ndarray
    tpot: np.ndarray
    ttft: np.ndarray

    def take(self, rows: Any) -> "Points":
        """Those of so many `rows`."""
        return Points(*(x[rows] for x in self))


def joined(points: Sequence[Points]) -> Points:
    """All of them."""
    return Points(*(np.concatenate(x) for x in zip(*points, strict=True)))


def best_pairs(
    prefill: Points,
    decode: Points,
    score: Any,
    slo_ttft: float | None = None,
    slo_tpot: float | None = None,
    more: Any = 0.0,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For each decode pool that keeps its limit the prefill pool of least score with
    which it keeps that of the first token: (rows of `prefill`, rows of `decode`,
    scores), best first.

    `score(points)`: what adds up over pools and is to be least, such as W or GPUs;
    `more`: s of the time to the first token outside of both, one number or one for each
    row of `decode`.
    """
    order = np.argsort(prefill.ttft, kind="stable")
    scores = np.asarray(score(prefill), float)[order]
    # least score among the prefill pools that are as fast, and where it is
    least = np.minimum.accumulate(scores)
    new = np.append(True, least[1:] < least[:-1])
    where = order[np.maximum.accumulate(np.where(new, np.arange(len(order)), 0))]
    left = (np.inf if slo_ttft is None else slo_ttft) - decode.ttft - more
    place = np.searchsorted(prefill.ttft[order], left, side="right") - 1
    keeps = (place >= 0) & (decode.tpot <= (np.inf if slo_tpot is None else slo_tpot))
    rows = np.flatnonzero(keeps)
    place = place[rows]
    total = least[place] + np.asarray(score(decode), float)[rows]
    best = np.argsort(total, kind="stable")
    return where[place][best], rows[best], total[best]
