"""Two pools in closed form: workers that read prompts, workers that make the tokens.

Pure functions of `Server`s; powers and energies are of one GPU. A prompt waits for a
prefill worker (M/G/c), its KV cache crosses the link, and a decode worker, whose steps
never have a prompt, makes its tokens (birth-death, `queue.birth_death`).
"""

from typing import Any, Final, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.special import gammaincc, gammaln

from .._lengths import TAIL
from .._steady.figures import (
    Latency,
    LoadArrays,
    Mode,
    Steady,
    _figures,
    _latency,
    _saturation,
    _waiting,
)
from .._steady.queue import birth_death
from .._steady.server import Running, Server, running
from .._steady.spread import (
    QUANTILES,
    Atoms,
    bursts,
    coarse,
    exponential_tail,
    together,
)
from .._step import cost

_RESTS: Final = (0.125, 0.375, 0.625, 0.875)
"""Share of a running step that is left when a request comes."""
_FULL: Final = 1 - 1e-9


class Prompts(NamedTuple):
    """Work of one prefill worker: `times` of prompts in the strata `TAIL`, s; `energy`
    of a prompt, J; `idle` power, W; `clock`, Hz; `lowest`: power at the lowest clock,
    W; `feasible`: whether the power limit is kept."""

    times: Array
    energy: Array
    idle: Array
    clock: Array
    lowest: Array
    feasible: Array

    @property
    def mean(self) -> Array:
        """Mean time of a prompt, s."""
        return self.times @ jnp.asarray(TAIL)

    @property
    def second(self) -> Array:
        """Second moment of the time of a prompt, s^2."""
        return self.times**2 @ jnp.asarray(TAIL)

    def power(self, rate: Array, workers: Array) -> Array:
        """W of one GPU where `workers` share `rate` prompts a second."""
        each = rate / workers
        return each * self.energy + (1 - each * self.mean) * self.idle


def read_prompts(server: Server) -> Prompts:
    """Prompts one after another on a worker that does nothing else: kernels beside no
    decoding sequence, and in each of their steps what the host and the missing graph
    take. One clock for all lengths, that of the mean prompt."""
    engine, costs, weights = server.engine, server.costs, jnp.asarray(TAIL)
    lengths = server.traffic.prompt * server.traffic.prompt_tail
    shares = cost.prompt_weights(costs, lengths)
    one = jnp.ones_like(server.chunk)
    x = cost.prompts(costs, engine, 0 * one, shares, one)
    pieces = shares @ costs.pieces
    of = lengths, jnp.zeros_like(one), pieces  # graphs are for a few short prompts
    waiting = cost.launching(engine, x.time, *of) + pieces * engine.host_time(one)
    spent = x.energy + waiting * costs.idle[:, None]
    at = server.governed((x.time + waiting) @ weights, spent @ weights)
    times = at.weights @ (x.time + waiting)
    energy = at.power * (times @ weights)
    return Prompts(times, energy, server.idle, at.clock, at.lowest, at.feasible)


class Wait(NamedTuple):
    """Wait for a worker: probability that there is one (`taken`), its mean then (s),
    and the `load` of the workers."""

    taken: Array
    mean: Array
    load: Array


def queue_wait(rate: Array, workers: Array, mean: Array, second: Array) -> Wait:
    """Wait of an M/G/c queue: Erlang's C, and the exponential wait of Allen and
    Cunneen, (1 + cv^2) / 2 times that of M/M/c (Allen, Probability, Statistics and
    Queueing Theory, 1990, section 5.3).

    `rate` (1/s) of requests that take `mean` s, second moment `second`. Beyond a load
    of 1 numbers mean nothing.

    >>> x = queue_wait(*(jnp.asarray(x) for x in (8.0, 10.0, 1.0, 2.0)))
    >>> round(float(x.taken), 4), round(float(x.mean), 3)  # Erlang C of 8 on 10
    (0.4092, 0.5)
    """
    busy = jnp.minimum(rate * mean, workers * _FULL)
    # Erlang's B: the Poisson term over the sum up to it
    logs = workers * jnp.log(busy) - busy - gammaln(workers + 1)
    blocked = jnp.exp(logs) / gammaincc(workers + 1, busy)
    load = busy / workers
    taken = blocked / (1 - load * (1 - blocked))
    spread = second / (2 * mean**2)
    return Wait(taken, spread * mean / (workers - busy), rate * mean / workers)


def prompt_atoms(prompts: Prompts, wait: Wait) -> Atoms:
    """Time of a prompt from its arrival until it is read, in the strata `TAIL`."""
    weights = jnp.asarray(TAIL)
    waits = Atoms(
        jnp.append(exponential_tail(wait.mean), 0.0),
        jnp.append(wait.taken * weights, 1 - wait.taken),
    )
    return coarse(together(Atoms(prompts.times, weights), waits))


def without_prompts(server: Server) -> Server:
    """The server as a decode worker: prompts come with their KV cache, so that no step
    reads any, and nothing but the context remembers them."""
    costs, traffic = server.costs, server.traffic
    none = jnp.zeros_like(traffic.prompt)
    return eqx.tree_at(
        lambda x: (
            x.costs.added_time, x.costs.added_energy, x.engine.prompt, x.first,
            x.traffic.prompt, x.traffic.cached,
        ),
        server,
        (
            0 * costs.added_time, 0 * costs.added_energy, none, none, none,
            traffic.prompt + traffic.cached,
        ),
    )  # fmt: skip


class Pools(NamedTuple):
    """Figures of both pools: `steady` of one decode worker, latencies those of requests
    through both; of the prefill pool `load`, `power` of one GPU (W), its W when it
    waits (`rest`), `clock` (Hz), prompts that wait for it; `most`: requests a second
    that each pool can serve, prefill first."""

    steady: Steady
    load: Array
    power: Array
    rest: Array
    clock: Array
    waiting: Array
    most: Array
    lowest: Array
    feasible: Array


class Question(eqx.Module):
    """Both pools and their load: `workers` of each; `delay`: s of a request between the
    pools and outside of them; `load.rate` and `load.clients` are of all."""

    prefill: Server
    decode: Server
    prefill_workers: Array
    decode_workers: Array
    delay: Array
    load: LoadArrays
    mode: Mode = eqx.field(static=True)
    states: int = eqx.field(static=True)


class _Decoding(NamedTuple):
    """The decode pool: states `each` of a worker, `share` of its time in each; time
    from the KV cache's arrival to the first token; requests a worker keeps waiting;
    load; time of a prompt until it is read; prompts that wait; load of that pool."""

    share: Array
    first: Atoms
    waiting: Array
    load: Array
    read: Atoms
    unread: Array
    rate: Array


def pools(q: Question) -> Pools:
    """Figures of two pools under a load."""
    server = without_prompts(q.decode)
    prompts = read_prompts(q.prefill)
    output, slots = server.traffic.output, q.load.slots
    if q.mode == "open":
        number = jnp.minimum(jnp.arange(1.0, q.states + 1.0), slots)
        each = jax.vmap(lambda r: running(server, r))(number)
        x = _open(q, server, prompts, each)
    else:
        # state j: requests with the decode pool, the others are with the prefill pool
        number = jnp.arange(q.states) / q.decode_workers
        number = jnp.clip(jnp.minimum(number, slots), 1.0)
        each = jax.vmap(lambda r: running(server, r))(number)
        x = _closed(q, server, prompts, each)
    flow = x.share @ each.flow
    tokens = x.share * each.flow / flow
    tpot = Atoms(each.token, tokens)
    steps = x.share / each.step
    typical = jax.tree.map(lambda y: jnp.tensordot(steps / jnp.sum(steps), y, 1), each)
    typical = typical._replace(entering=0 * flow, entries=0 * flow)
    empty = jnp.maximum(1 - jnp.sum(x.share), 0.0)
    decoding = x.share @ each.decoding
    first = together(x.read, x.first)
    first = first._replace(values=first.values + q.delay + server.engine.request)
    mean = decoding / flow
    latency = _latency(tpot, q.load.tpot_limit, mean)
    figures = _figures(
        server, typical, first,
        ttft=Latency(
            first.mean, first.between(QUANTILES), first.below(q.load.ttft_limit)
        ),
        flow=flow,
        saturation=_saturation(server, q.load.slots),
        slots=slots,
        pausing=0 * flow,
        fetch=0 * flow,
        running=decoding,
        waiting=x.waiting,
        load=x.load,
        empty=empty,
        power=x.share @ (each.energy / each.step) + empty * server.idle,
        lowest=jnp.max(each.lowest),
        feasible=jnp.all(each.feasible),
        mixed=0 * flow,
        tokens=tpot,
        tpot=latency,
        itl=_latency(bursts(Atoms(each.step, tokens), server.burst[0]), jnp.inf),
    )  # fmt: skip
    workers = q.prefill_workers
    most = jnp.stack(
        [workers / prompts.mean, q.decode_workers * figures.saturation / output]
    )
    return Pools(
        figures, x.rate * prompts.mean / workers, prompts.power(x.rate, workers),
        prompts.idle, prompts.clock, x.unread, most, prompts.lowest, prompts.feasible,
    )  # fmt: skip


def _open(q: Question, server: Server, prompts: Prompts, each: Running) -> _Decoding:
    """Poisson arrivals, which leave a queue as they come to it, for either pool."""
    rate = q.load.rate
    wait = queue_wait(rate, q.prefill_workers, prompts.mean, prompts.second)
    output, slots = server.traffic.output, q.load.slots
    balance = birth_death(rate / q.decode_workers, each.flow, output, slots)
    p = balance.weights
    after = jnp.maximum(1 - jnp.sum(p), 0.0)
    return _Decoding(
        p[1:].at[-1].add(after),
        _first_step(server, balance, each, p.at[-1].add(after)),
        _waiting(server) * balance.waiting,
        balance.load,
        prompt_atoms(prompts, wait),
        rate * wait.taken * wait.mean,
        rate,
    )


def slot_wait(server: Server, balance: Any) -> Wait:
    """Wait for a slot of a decode worker."""
    drain = balance.drain * (1 - jnp.minimum(balance.load, _FULL))
    return Wait(balance.taken, _waiting(server) / drain, balance.load)


def _first_step(server: Server, balance: Any, each: Running, finds: Array) -> Atoms:
    """From the KV cache's arrival to the first token: the wait for a slot, the rest of
    the step that runs, and a step with the newcomer. `finds`: chance to come upon 0, 1,
    2, ... requests."""
    steps = jnp.append(each.step, each.step[-1])  # with the newcomer
    rest = jnp.append(0.0, each.step)[:, None] * jnp.asarray(_RESTS)
    values = (rest + steps[:, None]).ravel()
    weights = jnp.repeat(finds / len(_RESTS), len(_RESTS))
    wait = slot_wait(server, balance)
    tail = jnp.asarray(TAIL)
    waits = Atoms(
        jnp.append(exponential_tail(wait.mean), 0.0),
        jnp.append(wait.taken * tail, 1 - wait.taken),
    )
    return coarse(together(coarse(Atoms(values, weights)), waits))


def _closed(q: Question, server: Server, prompts: Prompts, each: Running) -> _Decoding:
    """Clients that send the next request when the last one ends: a closed network of
    two stations (Gordon and Newell, 1967), j requests with the decode pool and the rest
    with the prefill pool:

        p(j) / p(j - 1) = prefill(C - j + 1) / decode(j)         requests a second

    A new prompt finds what C - 1 clients leave (arrival theorem). Exact for
    exponential times; with one client exact for any.
    """
    clients, workers = q.load.clients, q.decode_workers
    output = server.traffic.output
    away = q.delay + server.engine.request
    j = jnp.arange(float(q.states))
    most = workers * each.flow / output
    # with j/workers requests a worker or less all of them run, but for those on the way
    ends = jnp.minimum(j / (away + output * each.token), most)
    reads = lambda i: jnp.clip(i, 0.0, q.prefill_workers) / prompts.mean  # noqa: E731

    def chances(number: Array) -> Array:
        ratio = reads(number - j[1:] + 1) / ends[1:]
        logs = jnp.cumsum(jnp.log(jnp.maximum(ratio, 1e-300)))
        logs = jnp.where(j <= number, jnp.append(0.0, logs), -jnp.inf)
        return jax.nn.softmax(logs)

    p, seen = chances(clients), chances(clients - 1)
    rate = p @ ends
    decoding = ends * output * each.token  # requests that run
    waits = jnp.maximum(j - decoding - ends * away, 0.0)
    ahead = jnp.maximum(clients - 1 - j - q.prefill_workers + 1, 0.0)
    before = Atoms(ahead * prompts.mean / q.prefill_workers, seen)
    read = coarse(together(coarse(before), Atoms(prompts.times, jnp.asarray(TAIL))))
    # With the newcomer there are j + 1: its wait for a slot, the rest of a step if one
    # runs, and a step.
    busy = jnp.minimum(decoding / workers, 1.0)
    rest = (busy * each.step)[:, None] * jnp.asarray(_RESTS)
    stay = jnp.append(waits[1:] / ends[1:], 0.0) + jnp.append(each.step[1:], 0.0)
    values = (rest + stay[:, None]).ravel()
    first = Atoms(values, jnp.repeat(seen / len(_RESTS), len(_RESTS)))
    unread = p @ jnp.maximum(clients - j - q.prefill_workers, 0.0)
    return _Decoding(
        p * decoding / (workers * each.decoding),
        coarse(first),
        p @ waits / workers,
        jnp.ones_like(rate),
        read,
        unread,
        rate,
    )
