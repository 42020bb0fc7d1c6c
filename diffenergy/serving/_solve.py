"""Figures, curves and derivatives of a deployment, by cached programs."""

import dataclasses
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..compiling import call_compiled
from ..estimator import FIELD_PLACES, slopes
from ..hardware import sm_clocks, spread_clocks
from ._deployment import Deployment
from ._steady.figures import QUANTILES, LoadArrays, Mode, Steady, load_arrays, steady
from ._steady.server import Server
from ._step.table import StepCosts


class Question(eqx.Module):
    """One replica and its load; what is static makes a program of its own."""

    server: Server
    load: LoadArrays
    mode: Mode = eqx.field(static=True)
    states: int = eqx.field(static=True)


def answered(question: Question) -> Steady:
    """Figures of a replica under its load."""
    return steady(question.server, question.load, question.mode, question.states)


def solved(deployment: Deployment, costs: StepCosts) -> Steady:
    """Figures of a deployment under its load, on the host."""
    server = deployment.server(costs)
    question = Question(
        server, deployment.load_arrays(), deployment.mode, deployment.states
    )
    return jax.device_get(run_cached(answered, (question,)))


def saturated(deployment: Deployment, costs: StepCosts) -> Steady:
    """Figures of a replica that always has as much to do as it may take."""
    question = Question(
        deployment.server(costs), load_arrays(deployment.slots), "saturated", 0
    )
    return jax.device_get(run_cached(answered, (question,)))


def run_cached(function: Any, arguments: tuple[Any, ...], once: bool = True) -> Any:
    """`function(*arguments)`, pytrees of numbers, by a program that is kept; `once`: as
    in `compiler_options`."""
    arrays = jax.tree.map(
        lambda x: x if isinstance(x, Array) else jnp.asarray(x), arguments
    )
    return call_compiled(function, arrays, once)


def alone(deployment: Deployment, costs: StepCosts) -> Steady:
    """Figures of a replica with a single request after another."""
    question = Question(deployment.server(costs), load_arrays(1.0), "saturated", 0)
    return jax.device_get(run_cached(answered, (question,)))


# --- Curves of a server for pictures: latencies by rate, joules by batch and by
# clock.

_RATES: Final = 48
_CLOCKS: Final = 6
_BATCHES: Final = 24
_FULL: Final = 0.98
"""Share of the saturation up to which latencies are drawn."""
_P95: Final = QUANTILES.index(0.95)


@dataclasses.dataclass(frozen=True)
class Curves:
    """`rates` (requests/s of all replicas) with mean and 95th percentile of both
    latencies (s); `batches` with J a token at each of `clocks` (Hz); `most`: rate that
    saturates."""

    rates: np.ndarray
    ttft: np.ndarray
    tpot: np.ndarray
    most: float
    clocks: np.ndarray
    batches: np.ndarray
    energy: np.ndarray


class _Full(eqx.Module):
    """A saturated replica (`at`), and its load at some rate (`flowing`); number of
    `replicas`, and `requests` a second of all for a token a second of one."""

    at: Question
    flowing: LoadArrays
    replicas: Array
    requests: Array
    mode: Mode = eqx.field(static=True)
    states: int = eqx.field(static=True)


def curves_by_rate(full: _Full, shares: Array) -> tuple[Array, ...]:
    """Rates (requests/s of all replicas) at `shares` of the one that saturates, (mean,
    95th percentile) of both latencies (s) there, and that one."""

    def one(share: Array) -> tuple[Array, ...]:
        top = answered(full.at).saturation * full.requests
        load = full.flowing._replace(rate=share * top / full.replicas)
        x = steady(full.at.server, load, full.mode, full.states)
        pair = lambda y: jnp.stack([y.mean, y.quantiles[_P95]])  # noqa: E731
        return share * top, pair(x.ttft), pair(x.tpot), top

    return jax.vmap(one)(shares)


def energies_by_clock(full: Question, clocks: Array, batches: Array) -> Array:
    """Energy of a token (J of one GPU) by clock (Hz) and most requests at once."""

    def one(clock: Array, batch: Array) -> Array:
        server = full.server.at_clock(clock)
        slots = jnp.clip(jnp.minimum(batch, server.fits), 1.0)
        return steady(server, full.load._replace(slots=slots), full.mode).energy

    each = jax.vmap(one, in_axes=(None, 0))
    return jax.lax.map(lambda clock: each(clock, batches), clocks)


def server_curves(deployment: Deployment, costs: StepCosts) -> Curves:
    """Curves of a deployment around its load."""
    load = deployment.load
    alone = {"concurrency": None, "waves": None}
    rate = dataclasses.replace(load, rate=1.0, **alone)
    limit = dataclasses.replace(load, rate=None, max_batch=deployment.slots, **alone)
    flowing = dataclasses.replace(deployment, load=rate)
    full = dataclasses.replace(deployment, load=limit)

    def question(costs: StepCosts) -> Question:
        return Question(full.server(costs), full.load_arrays(), full.mode, 0)

    number = float(deployment.replicas)
    at = _Full(
        question(costs), flowing.load_arrays(), jnp.asarray(number),
        jnp.asarray(number / load.output.mean), flowing.mode, flowing.states,
    )  # fmt: skip
    shares = jnp.linspace(0.02, _FULL, _RATES)
    rates, ttft, tpot, most = run_cached(curves_by_rate, (at, shares))
    clocks = spread_clocks(sm_clocks(deployment.card)[::-1], _CLOCKS)
    batches = np.unique(np.round(np.geomspace(1, deployment.slots, _BATCHES)))
    top = jnp.asarray(clocks[-1])
    all_clocks = deployment.costs(
        point=eqx.tree_at(lambda x: x.sm_clock, deployment.point, top)
    )
    energy = run_cached(energies_by_clock, (question(all_clocks), clocks, batches))
    return Curves(
        np.asarray(rates), np.asarray(ttft), np.asarray(tpot), float(most[0]), clocks,
        batches, deployment.plan.tp * np.asarray(energy),
    )  # fmt: skip


# --- Derivatives of a server's means, per SI unit.

METRICS: Final = ("energy_j_per_output_token", "tpot_s", "ttft_s")
_PLACES: Final = FIELD_PLACES | {
    "rate": ("load", "rate"),
    "concurrency": ("load", "concurrency"),
    "input_len": ("traffic", "prompt"),
    "output_len": ("traffic", "output"),
    "accept": ("traffic", "accept"),
}
"""What of a deployment each field is, and its name there."""


def check_fields(deployment: Deployment, fields: Sequence[str]):
    """Raises `ValueError` for what cannot be differentiated by."""
    for name in fields:
        if name == "prefix_hit" and deployment.load.prefix_hit is not None:
            continue
        if name not in _PLACES:
            raise ValueError(
                f"`sensitivity` has '{name}'; allowed are rate, concurrency, "
                "input_len, output_len, accept, prefix_hit (where given), sm_clock, "
                "power_limit and fields of the GPU "
                "such as dram_bandwidth (`diffenergy gpus show`)."
            )
        of, field = _PLACES[name]
        missing = of == "load" and getattr(deployment.load, field) is None
        if missing or (name == "accept" and not deployment.request.speculative):
            raise ValueError(
                f"`sensitivity` has '{name}', but the load has none; leave it out."
            )


_NEARBY: Final = 0.05
"""Hits beside which prompts are priced for a derivative by hits."""


class _Hits(eqx.Module):
    """One replica and its load; `slope` of its costs by hits, `sent` tokens of a
    prompt."""

    question: Question
    slope: StepCosts
    sent: Array


def hit_derivatives(hits: _Hits) -> Array:
    """d / d hit of power (W) and energy (J) of one GPU, and of mean latencies (s)."""

    server = hits.question.server

    def figures(more: Array) -> Array:
        of = (server.costs, server.traffic.prompt, server.traffic.cached)
        slopes = (hits.slope, -hits.sent, hits.sent)
        moved = jax.tree.map(lambda x, y: x + more * y, of, slopes)
        places = lambda q: (  # noqa: E731
            q.server.costs, q.server.traffic.prompt, q.server.traffic.cached,
        )  # fmt: skip
        x = answered(eqx.tree_at(places, hits.question, moved))
        return jnp.stack([x.power, x.energy, x.tpot.mean, x.ttft.mean])

    return jax.jacfwd(figures)(jnp.zeros(()))


def hit_slopes(deployment: Deployment, costs: StepCosts) -> dict[str, Any]:
    """Derivatives by the share of prompt tokens that are cached, the others being sent
    as they are: power of all GPUs (W), energy of an output token (J), and both mean
    latencies (s; None where no token follows the first).

    A prompt has less to compute, behind more cached tokens. What these cost is known of
    the table alone, so that prompts are priced beside others with slightly more hits.
    """
    load, n = deployment.load, deployment.replicas
    sent = load.sent.mean
    near = deployment.costs_behind(load.cached + _NEARBY * sent)
    slope = jax.tree.map(lambda x, y: (y - x) / _NEARBY, costs, near)
    of = (deployment.load_arrays(), deployment.mode, deployment.states)
    hits = _Hits(Question(deployment.server(costs), *of), slope, jnp.asarray(sent))
    power, energy, tpot, ttft = jax.device_get(run_cached(hit_derivatives, (hits,)))
    return {
        "avg_power_w": deployment.plan.tp * n * float(power),
        "energy_j_per_output_token": deployment.plan.tp * float(energy),
        "tpot_s": float(tpot) if load.decodes else None,
        "ttft_s": float(ttft),
    }


class _Flow(NamedTuple):
    """What of a load can be moved."""

    rate: Any
    concurrency: Any


def sensitivities(
    deployment: Deployment, fields: Sequence[str]
) -> dict[str, dict[str, float]]:
    """d metric / d field for each of `METRICS` that there is, of all GPUs: the metric's
    unit per SI unit (J a token by B/s, s by Hz, ...); at a batch limit of 128 rows or a
    power limit that of the side on which the load is."""
    there = [x for x in METRICS if x != "tpot_s" or deployment.load.decodes]

    def metrics(moved: dict[str, Any]) -> Array:
        gpu, point, load = (moved[x] for x in ("gpu", "point", "load"))
        figures = deployment.steady(
            deployment.costs(gpu, point),
            sm_clock=point.sm_clock,
            power_limit=point.power_cap,
            gpu=gpu,
            traffic=moved["traffic"],
            rate=load.rate,
            concurrency=load.concurrency,
        )
        energy = deployment.plan.tp * figures.energy
        return jnp.stack([energy, figures.tpot.mean, figures.ttft.mean])

    if "prefix_hit" in fields:
        hits = hit_slopes(deployment, deployment.costs())
        others = [x for x in fields if x != "prefix_hit"]
        slopes_ = sensitivities(deployment, others) if others else {}
        return {
            metric: {
                x: hits[metric] if x == "prefix_hit" else slopes_[metric][x]
                for x in fields
            }
            for metric in there
        }
    load = _Flow(deployment.load.rate, deployment.load.concurrency)
    parts = {x: getattr(deployment, x) for x in ("gpu", "point", "traffic")} | {
        "load": load
    }
    _, table = slopes(metrics, parts, {name: _PLACES[name] for name in fields})
    return {
        metric: dict(zip(fields, row, strict=True))
        for metric, row in zip(METRICS, table.tolist(), strict=True)
        if metric in there
    }
