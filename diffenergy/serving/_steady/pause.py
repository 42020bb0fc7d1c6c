"""Requests that pause: they keep their cache for a while after their last token, such
as those of an agent that waits for its tools.

By Little's law X T requests pause where X end a second and each pauses for T, so that
n run beside them if (bytes of one GPU)

    n kv(c) + max(X T kv(P + C + L) - offload, 0) <= pool

and of a closed loop n + X (T + request) are all clients (`away_clients`), with the time
of HTTP and tokeniser (`Engine.request`). X grows with n, so that the most of n is one
root, found by halving; its derivative is that of the implicit function.
"""

import jax
import jax.numpy as jnp
from jax import Array, lax

from .server import Server, running

_HALVINGS = 40
_KNOTS = 48
"""Numbers of requests between which time a token is interpolated."""
_ROUNDS = 6
"""Steps of Newton's method for the requests of a closed loop without pauses."""


def pausing_requests(server: Server, ending: Array) -> Array:
    """Requests that pause where so many end a second (1/s)."""
    return 0.0 * ending if server.pause is None else ending * server.pause.time


def away_clients(server: Server, ending: Array) -> Array:
    """Clients of a closed loop without a request at the server where so many end a
    second (1/s): those that pause, and those with HTTP and tokeniser."""
    return pausing_requests(server, ending) + server.engine.request * ending


def paused_bytes(server: Server, ending: Array) -> Array:
    """Bytes of requests that pause where so many end a second (1/s); 0 without
    pauses."""
    traffic = server.traffic
    if server.pause is None:
        return 0.0 * ending
    whole = traffic.prompt + traffic.cached + traffic.output
    return pausing_requests(server, ending) * server.memory.of_request(whole)


def slots_beside(server: Server, slots: Array, ending: Array) -> Array:
    """Most of `slots` requests that run beside those that pause where so many end a
    second (1/s)."""
    if server.pause is None:
        return slots
    paused = jnp.maximum(paused_bytes(server, ending) - server.pause.offload, 0.0)
    room = server.memory.pool - paused
    one = server.memory.of_request(server.traffic.context)
    return jnp.minimum(slots, room / one)


def balanced_slots(server: Server, slots: Array, *clients: Array) -> tuple[Array, ...]:
    """Most of `slots` requests that run beside those that pause at the rate at which
    these end: of any number of requests, and of so many `clients` of a closed loop."""
    pause = server.pause
    if pause is None:
        return (slots, *(_looping(server, slots, x) for x in clients))
    number = jnp.stack([jnp.full_like(slots, jnp.inf), *clients])
    one = server.memory.of_request(server.traffic.context)
    top = jnp.log(jnp.maximum(slots, 2.0))
    batches = jnp.exp(jnp.linspace(0.0, 1.0, _KNOTS) * top)
    token = batches / jax.vmap(lambda b: running(server, b))(batches).flow

    def over(slots: Array) -> Array:
        """How far numbers are beyond the memory or the clients; 0: just not."""
        busy = jnp.minimum(slots, 1.0)  # below one request the server waits in between
        least = jnp.maximum(slots, 1.0)
        ending = busy * least / jnp.interp(least, batches, token)
        ending = ending / server.traffic.output
        paused = paused_bytes(server, ending) - pause.offload
        memory = (slots * one + jnp.maximum(paused, 0.0)) / server.memory.pool
        away = away_clients(server, ending)
        return jnp.maximum(memory, (slots + away) / number) - 1

    def halve(_: Array, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = ends
        middle = 0.5 * (low + high)
        beyond = over(middle) > 0
        return jnp.where(beyond, low, middle), jnp.where(beyond, middle, high)

    highest = jnp.full_like(number, lax.stop_gradient(slots))
    low, _ = lax.fori_loop(0, _HALVINGS, halve, (0.0 * highest, highest))
    root = lax.stop_gradient(low)
    value, slope = jax.jvp(over, (root,), (jnp.ones_like(root),))
    # one step of Newton's method carries the derivative of the root
    root = root - value / lax.stop_gradient(slope)
    return tuple(jnp.where(over(highest) > 0, root, slots))


def _looping(server: Server, slots: Array, clients: Array) -> Array:
    """Most of `slots` requests that run of so many `clients` without pauses: n with
    n (1 + request / time) = clients, where a request takes `time` (s) beside n."""

    def beyond(number: Array) -> Array:
        least = jnp.maximum(number, 1.0)
        ending = running(server, least).flow * (number / least) / server.traffic.output
        return number + away_clients(server, ending) - clients

    def newton(number: Array) -> Array:
        value, slope = jax.jvp(beyond, (number,), (jnp.ones_like(number),))
        better = number - value / lax.stop_gradient(slope)
        return jnp.minimum(jnp.maximum(better, 1e-3 * clients), slots)

    def settle(_: Array, number: Array) -> Array:
        return lax.stop_gradient(newton(number))

    start = lax.stop_gradient(jnp.minimum(clients, slots))
    # one step more carries the derivative of the root
    return newton(lax.fori_loop(0, _ROUNDS, settle, start))


def fetch_time(server: Server, decoding: Array, ending: Array) -> Array:
    """Mean time (s) to bring the cached tokens of a prompt back from the host.

    The GPU keeps the caches of as many that pause as find room beside the `decoding`
    requests, where `ending` ones end a second (1/s); the others are on the host.
    """
    pause, memory, traffic = server.pause, server.memory, server.traffic
    if pause is None:
        return 0.0 * decoding
    paused = paused_bytes(server, ending)
    room = memory.pool - decoding * memory.of_request(traffic.context)
    share = jnp.clip((paused - room) / paused, 0.0, 1.0)
    return share * pause.fetch * memory.of_request(traffic.cached)
