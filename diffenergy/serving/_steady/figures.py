"""Figures of a server under a load, in closed form: one replica, pure and
differentiable.

Little's law holds exactly: running requests = tokens a second x mean time a token. So
does W = J a token x tokens a second.
"""

from typing import Any, Final, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from .._lengths import TAIL
from .first_token import beside_others, first_token, on_idle
from .pause import (
    away_clients,
    balanced_slots,
    fetch_time,
    pausing_requests,
    slots_beside,
)
from .queue import birth_death
from .server import Running, Server, running
from .skewed import Skewed
from .spread import (
    QUANTILES,
    Atoms,
    bursts,
    coarse,
    gaps,
    normal_tail,
    stepped,
    together,
)

Mode = Literal["saturated", "closed", "open"]
_STATES: Final = 8
"""Numbers of running requests whose gaps are distinguished in an open loop."""


class Latency(NamedTuple):
    """`mean` and `quantiles` (`QUANTILES`), s; `within_limit`: share of requests
    that keep the limit asked for."""

    mean: Array
    quantiles: Array
    within_limit: Array


class Steady(NamedTuple):
    """Figures of one replica; powers and energies of one GPU of it.

    `flow`: tokens made a second; `running`, `waiting`: requests; `saturation`: tokens a
    second that all slots make; `empty`: share of the time in which no request runs, and
    `rest`: W meanwhile; `power`: W; `energy`: J a token made; `step`: the mean one, s;
    `decode`, `parts`, `sampling`, `host`, `prefill`: of it, s; `entering`: prompts a
    step; `mixed`: share of steps with a prompt; `load`: of an open loop, rate over what
    can be served. `clock`: of the mean step, Hz; `lowest`: highest power of a
    step at the lowest clock, W; `feasible`: whether the power limit is kept. `slots`:
    most requests that run; `pausing`: mean number of those that pause; `fetch`: mean
    time until their cache is back from the host, s.
    """

    flow: Array
    running: Array
    waiting: Array
    saturation: Array
    load: Array
    empty: Array
    rest: Array
    power: Array
    energy: Array
    step: Array
    decode: Array
    parts: Array
    sampling: Array
    host: Array
    prefill: Array
    entering: Array
    mixed: Array
    clock: Array
    lowest: Array
    feasible: Array
    slots: Array
    pausing: Array
    fetch: Array
    ttft: Latency
    tpot: Latency
    itl: Latency
    e2e: Latency


class LoadArrays(NamedTuple):
    """A load of one replica: at most `slots` requests run; `clients` of a closed loop,
    `rate` of an open one (1/s), `phi`: 1 / waves of a benchmark (0: steady state);
    limits of latencies that goodput keeps, s."""

    slots: Array
    clients: Array
    rate: Array
    phi: Array
    ttft_limit: Array
    tpot_limit: Array


def load_arrays(
    slots: Any,
    clients: Any = None,
    rate: Any = None,
    phi: Any = 0.0,
    ttft_limit: Any = None,
    tpot_limit: Any = None,
) -> LoadArrays:
    """`LoadArrays` from numbers; None: no limit, or no such load."""
    numbers = (slots, clients, rate, phi, ttft_limit, tpot_limit)
    return LoadArrays(
        *(jnp.asarray(np.inf if x is None else x, float) for x in numbers)
    )


def steady(
    server: Server,
    load: LoadArrays,
    mode: Mode,
    states: int = 0,
) -> Steady:
    """Figures of one replica. `states`: of an open loop, the most requests that are
    told apart; at least as many as run."""
    if mode == "open":
        return _open(server, load, states)
    return _full(server, load, mode == "closed")


# --- saturated server and closed loop


def _full(server: Server, load: LoadArrays, closed: bool) -> Steady:
    """As many run as may; a replica with less than one client waits in between. Of a
    client's time between two requests that of HTTP and tokeniser is not the server's.
    """
    clients = [load.clients] if closed else []
    most, *looping = balanced_slots(server, load.slots, *clients)
    slots = looping[0] if closed else most
    # Four clients on eight replicas keep half of them busy, not all eight.
    busy = jnp.where(slots < 1, slots, 1.0)
    slots = jnp.where(slots < 1, 1.0, slots)
    # of a first wave a request sees after its first token what is read later: half of
    # all prompts but those in its own step
    fit = jnp.minimum(slots, server.chunk / server.traffic.prompt)
    at = running(server, slots, 1 - load.phi * (1 + fit / slots) / 2)
    ending = busy * at.flow / server.traffic.output
    fetch = fetch_time(server, busy * at.decoding, ending)
    waiting, alone = jnp.nan * slots, jnp.zeros_like(slots)
    if closed:
        away = away_clients(server, ending)
        alone = _alone(load.clients, away)
        waiting = load.clients - slots * busy - away
        # none waits where a root left the rest
        waiting = jnp.where(waiting > 1e-6 * load.clients, waiting, 0.0 * waiting)
    itl = _gaps(at)
    # a request waits for as many steps as its tokens take (renewals)
    tokens, spread = server.burst
    each = itl.variance / tokens + at.step**2 * spread / tokens**3
    sd = jnp.sqrt(each / server.traffic.output)
    token = at.token - alone * at.prefill / tokens  # beside nobody no prompt is read
    tpot = Atoms(_about(token, normal_tail(token, sd)), jnp.asarray(TAIL))
    first = _later(_first(server, at, load.phi, alone), fetch)
    if closed:
        # departures are close to regular: as many stages as are before it
        mean = waiting / at.flow * server.traffic.output
        stages = jnp.sqrt(jnp.maximum(waiting, 1.0))
        wait = _about(mean, normal_tail(mean, mean / stages)) * (1 - load.phi / 2)
        first = together(coarse(first), Atoms(wait, jnp.asarray(TAIL)))
    power = busy * at.energy / at.step + (1 - busy) * server.idle
    return _figures(
        server, at, first,
        saturation=_saturation(server, most),
        ttft=_latency(first, load.ttft_limit),
        slots=most,
        pausing=pausing_requests(server, ending),
        fetch=fetch,
        flow=busy * at.flow,
        running=busy * at.decoding,
        waiting=waiting,
        load=jnp.ones_like(at.flow),
        empty=1 - busy,
        power=power,
        lowest=at.lowest,
        feasible=at.feasible,
        mixed=at.mixed,
        tokens=tpot,
        tpot=_latency(tpot, load.tpot_limit, token),
        itl=_latency(bursts(itl, tokens), jnp.inf),
    )  # fmt: skip


def _alone(clients: Array, away: Array) -> Array:
    """Chance that a client of a replica finds no request that runs: that each of the
    others is `away` (their mean number: pausing, or with HTTP and tokeniser), as they
    are independently of it (arrival theorem)."""
    others = jnp.where(clients >= 1, clients - 1, 0.0)
    share = jnp.clip(away / clients, 1e-12, 1.0)
    return jnp.exp(others * jnp.log(share))


def _later(atoms: Atoms, time: Array) -> Atoms:
    return Atoms(atoms.values + time, atoms.weights)


_SURE: Final = 1 - 1e-6
"""Most share of steps with a prompt."""


def _gaps(at: Running, crowding: Array | float = 0.0) -> Atoms:
    """Gaps between two steps with so many requests."""
    # a Poisson number of prompts, in as many steps as there are with one
    number = -jnp.log1p(-jnp.minimum(at.mixed, _SURE))
    added = at.added / at.pieces * (at.entries / jnp.maximum(number, 1e-12))
    return gaps(at.decode, added, number, at.mixing, crowding)


def _first(
    server: Server,
    at: Running,
    phi: Array | float = 0.0,
    idle: Array | float = 0.0,
) -> Atoms:
    """Time to the first token without a queue: the rest of a step, the step that reads
    the prompt, prompts before it, or where the server is `idle` (the chance of that)
    its prompt alone; and of the first of 1 / phi waves, where all prompts come at once
    and `together` of them fit a step. A length has the mean over whether the server is
    idle, not the spread."""
    alone = 1 - server.first
    reading = alone * at.decode + at.mixing + at.added + (at.pieces - 1) * at.decode
    mean = jnp.mean(at.added)
    # The rest of a step is uniform; 7 is prime to 16, so that it does not rise with the
    # prompts' lengths.
    rest = at.step * jnp.asarray((np.arange(len(reading)) * 7 % 16 + 0.5) / 16)
    before = jnp.maximum(at.entering - 1, 0.0) * mean / 2 + at.queued * (
        server.traffic.output
    )
    fit = jnp.minimum(at.slots, server.chunk / server.traffic.prompt)
    place = (jnp.arange(len(reading)) + 0.5) / len(reading)
    burst = (at.slots * place + fit / 2) * mean + at.decode
    even = jnp.ones(len(reading)) / len(reading)
    quiet = on_idle(server, server.traffic.nodes, even)
    values = (1 - idle) * (rest + reading + before) + idle * quiet
    both = Atoms(jnp.append(values, burst), jnp.append((1 - phi) * even, phi * even))
    return Atoms(both.values + server.engine.request, both.weights)


# --- open loop


def open_slots(server: Server, slots: Array, rate: Array) -> Array:
    """Most of `slots` requests that run where `rate` of them come a second."""
    return jnp.maximum(slots_beside(server, slots, rate), 1.0)


def _open(server: Server, load: LoadArrays, states: int) -> Steady:
    """Poisson arrivals."""
    output = server.traffic.output
    (limit,) = balanced_slots(server, load.slots)
    most = open_slots(server, load.slots, load.rate)
    slots = jnp.minimum(jnp.arange(1.0, states + 1.0), most)
    each = jax.vmap(lambda r: running(server, r))(slots)
    reading = beside_others(server, load.rate, each)
    balance = birth_death(load.rate, each.flow, output, most)
    p = balance.weights
    # the tail behind the last listed state: there all slots run
    busy, after = p[1:], jnp.maximum(1 - jnp.sum(p), 0.0)
    busy = busy.at[-1].add(after)

    def over(x: Array) -> Array:  # means over steps, not over time
        weight = busy / each.step
        return jnp.tensordot(weight / jnp.sum(weight), x, 1)

    decoding = jnp.sum(busy * each.decoding)
    flow = jnp.sum(busy * each.flow)
    power = jnp.sum(busy * each.energy / each.step) + p[0] * server.idle
    tokens = busy * each.flow / flow
    tpot = Atoms(each.token, tokens)
    typical = jax.tree.map(over, each)
    finds = p.at[-1].add(after)  # an arriving request finds those of any time
    wait = _waiting(server) / (
        balance.drain * (1 - jnp.minimum(balance.load, 1 - 1e-9))
    )
    reading = first_token(server, load.rate, reading, finds)
    fetch = fetch_time(server, decoding, load.rate)
    reading = reading._replace(mean=reading.mean + server.engine.request + fetch)
    # who has to wait for a slot does so for a time that is exponential (a geometric
    # number ahead)
    first = Skewed(reading, balance.taken, wait)
    levels = (np.arange(_STATES) + 0.5) / _STATES
    places = jnp.searchsorted(jnp.cumsum(tokens), jnp.asarray(levels))
    # strata of every state do not depend on the rate: a map over rates shares them
    crowding = _crowding(server, each)
    itl = jax.vmap(lambda *at: stepped(_gaps(*at)))(each, crowding)
    itl = jax.tree.map(lambda x: x[jnp.minimum(places, states - 1)], itl)
    itl = Atoms(itl.values.ravel(), itl.weights.ravel() / _STATES)
    itl = bursts(itl, server.burst[0])
    mean = decoding / flow
    saturation = _busy(limit) * each.flow[-1]
    if server.pause is not None:  # else the limit is `most`
        saturation = _saturation(server, limit)
    return _figures(
        server, typical, first.atoms,
        saturation=saturation,
        ttft=Latency(first.mean, first.quantiles(), first.below(load.ttft_limit)),
        slots=most,
        pausing=pausing_requests(server, load.rate),
        fetch=fetch,
        flow=flow,
        running=decoding,
        waiting=_waiting(server) * balance.waiting,
        load=_used(server, load, limit, balance.load),
        empty=p[0],
        power=power,
        lowest=jnp.max(each.lowest),
        feasible=jnp.all(each.feasible),
        mixed=over(each.mixed),
        tokens=tpot,
        tpot=_latency(tpot, load.tpot_limit, mean),
        itl=_latency(itl, jnp.inf, mean),
    )  # fmt: skip


def _used(server: Server, load: LoadArrays, limit: Array, used: Array) -> Array:
    """Rate over what can be served: with pauses beside those that pause at most."""
    if server.pause is None:
        return used
    most = _saturation(server, limit) / server.traffic.output
    return jnp.maximum(used, load.rate / most)


def _crowding(server: Server, at: Running) -> Array:
    """How much prompts of an open loop meet in a gap, from the share r of the time in
    which they are read: more come while some are read. Where all of them go first a
    gap has a busy period of them (Borel and Tanner), else the generation after a long
    one is long, with a variance of prompts 1 / (1 - r^2) times the mean."""
    share = at.prefill / at.step
    return jnp.where(server.first > 0, share, 1 - jnp.sqrt(1 - share**2))


def _waiting(server: Server) -> Array:
    """Wait for a slot over that of exponential outputs: (1 + cv^2) / 2, as of one
    server (Pollaczek and Khinchine) and in heavy traffic of many."""
    return server.traffic.spread / 2


# --- both


def _busy(slots: Array) -> Array:
    """Share of the time in which a server with so many slots, all taken, runs."""
    return jnp.minimum(slots, 1.0)


def _saturation(server: Server, slots: Array) -> Array:
    """Tokens a second with every slot taken."""
    return _busy(slots) * running(server, jnp.maximum(slots, 1.0)).flow


_STEP: Final = (
    "step", "decode", "parts", "sampling", "host", "prefill", "entering", "clock",
)  # fmt: skip


def _figures(
    server: Server,
    at: Running,
    first: Atoms,
    tokens: Atoms,
    **more: Any,
) -> Steady:
    """Figures with the mean step `at`, times to the first token and of the others."""
    return Steady(
        rest=server.idle,
        energy=more["power"] / more["flow"],
        e2e=_end_to_end(server, first, tokens),
        **{name: getattr(at, name) for name in _STEP},
        **more,
    )


def _about(mean: Array, values: Array) -> Array:
    """Strata of `TAIL`, moved so that their mean is exact."""
    return values + mean - jnp.sum(values * jnp.asarray(TAIL))


def _latency(atoms: Atoms, limit: Array | float, mean: Array | None = None) -> Latency:
    exact = atoms.mean if mean is None else mean
    return Latency(exact, atoms.quantiles(QUANTILES), atoms.below(jnp.asarray(limit)))


def _end_to_end(server: Server, first: Atoms, tokens: Atoms) -> Latency:
    """First token and all others, each request at its own mean time of a token."""
    lengths = server.traffic.output * server.traffic.tail
    rest = Atoms(jnp.maximum(lengths - 1, 0.0), jnp.asarray(TAIL))
    rest = coarse(together(rest, coarse(tokens), jnp.multiply))
    both = coarse(together(coarse(first), rest))
    return Latency(both.mean, both.between(QUANTILES), jnp.ones(()))
