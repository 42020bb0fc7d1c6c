"""The clock and the batch limit of least energy, or most throughput, that keep limits
of latencies.

Clocks that the board has are enumerated, first coarsely and then around the best one;
batch limits too. Every pair is a point of one mapped program, so that a search takes as
long as two tables of steps.
"""

import dataclasses
import math
from typing import Any, Final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ...compiling import compiler_options
from ...hardware import OperatingPoint
from ...hardware._clocks import sm_clocks
from ...results import Infeasible
from .._deployment import Deployment
from .._steady.figures import LEVELS, Steady
from .._step.table import costs_once

_CLOCKS: Final = 8
"""Clocks that are looked at in each of two rounds."""
_BATCHES: Final = 24
_FULLEST: Final = 0.95
"""Share of the saturation that an open loop may have: beyond it the queue of hours
decides, and a slip in the rate leaves none that ends."""
_P95: Final = LEVELS.index(0.95)


def best(found: Deployment, objective: str) -> tuple[Deployment, dict[str, Any]]:
    """The deployment at the best point, and what is told of it.

    Raises `Infeasible` with what can be reached if no point keeps the limits.
    """
    given = found.setting.sm_clock
    steps = np.sort(np.asarray(sm_clocks(found.card), float))
    steps = steps[steps <= given]
    asked = "sm_clock_mhz" not in found.assumed
    limits = _limits(found)
    tried: dict[float, Any] = {}
    clocks = np.array([given]) if asked else _some(steps, _CLOCKS)
    while len(new := [float(x) for x in clocks if x not in tried]):
        for clock, row in zip(new, _tried(found, new, limits), strict=True):
            tried[clock] = row
        if asked or len(tried) > _CLOCKS:
            break
        clocks = _around(steps, _pick(tried, objective, found)[0], tried)
    clock, row = _pick(tried, objective, found)
    point = tried[clock][row]
    if not point["kept"]:
        _refuse(found, tried)
    limit = float(point["max_batch"])
    setting = found.setting._replace(sm_clock=float(clock))
    load = dataclasses.replace(found.load, max_batch=limit)
    told = {
        "objective": objective,
        "sm_clock_mhz": float(clock) / 1e6,
        "max_batch": limit,
    }
    assumed = {k: v for k, v in found.assumed.items() if k != "sm_clock_mhz"}
    better = dataclasses.replace(found, setting=setting, load=load, assumed=assumed)
    return better, {"optimized": told}


def _some(steps: np.ndarray, number: int) -> np.ndarray:
    places = np.unique(np.linspace(0, len(steps) - 1, number).round().astype(int))
    return steps[places]


def _around(steps: np.ndarray, clock: float, tried: dict[float, Any]) -> np.ndarray:
    """Clocks between the neighbours that were tried."""
    known = np.array(sorted(tried))
    below, above = known[known < clock], known[known > clock]
    low = below[-1] if len(below) else clock
    high = above[0] if len(above) else clock
    return _some(steps[(steps >= low) & (steps <= high)], _CLOCKS)


def _limits(found: Deployment) -> np.ndarray:
    """Batch limits that are tried: whole numbers, geometric."""
    top = max(math.floor(found.most), 1)
    return np.unique(np.round(np.geomspace(1, top, _BATCHES)))


def _tried(
    found: Deployment, clocks: list[float], limits: np.ndarray
) -> list[list[dict[str, Any]]]:
    """Figures of every clock and limit; the power limit has to be kept."""

    def at(clock: jax.Array) -> tuple[Steady, jax.Array]:
        point: OperatingPoint = eqx.tree_at(lambda x: x.sm_clock, found.point, clock)
        costs = costs_once(
            found.program.workload, found.program.knots, found.gpu, point
        )
        each = jax.vmap(lambda limit: found.steady(costs, max_batch=limit))
        return each(jnp.asarray(limits)), costs.feasible

    run = jax.jit(lambda x: jax.lax.map(at, x), compiler_options=compiler_options(True))
    padded = np.resize(np.array(clocks), _CLOCKS)  # one program for both rounds
    figures, feasible = jax.device_get(run(jnp.asarray(padded)))
    return [
        [
            _entry(found, figures, bool(feasible[i]), i, j, float(limit))
            for j, limit in enumerate(limits)
        ]
        for i in range(len(clocks))
    ]


def _entry(
    found: Deployment, figures: Steady, feasible: bool, i: int, j: int, limit: float
) -> dict[str, Any]:
    load = found.load
    ttft = float(figures.ttft.quantiles[i, j, _P95])
    tpot = float(figures.tpot.quantiles[i, j, _P95])
    stable = float(figures.load[i, j]) <= _FULLEST or load.rate is None
    kept = feasible and stable
    kept &= ttft <= (math.inf if load.slo_ttft is None else load.slo_ttft)
    kept &= tpot <= (math.inf if load.slo_tpot is None else load.slo_tpot)
    return {
        "max_batch": limit,
        "kept": kept,
        "stable": stable and feasible,
        "ttft": ttft,
        "tpot": tpot,
        "energy": float(figures.energy[i, j]),
        "throughput": float(figures.flow[i, j]),
    }


def _pick(
    tried: dict[float, Any], objective: str, found: Deployment
) -> tuple[float, int]:
    """Clock and row of the best point that keeps the limits; of the one that is nearest
    to them if none does."""

    def rank(x: dict[str, Any]) -> tuple[float, float]:
        value = -x["throughput"] if objective == "throughput" else x["energy"]
        return (0.0, value) if x["kept"] else (1.0, _excess(found, x))

    points = [
        (rank(x), -clock, j) for clock, row in tried.items() for j, x in enumerate(row)
    ]
    _, clock, row = min(points)
    return -clock, row


def _excess(found: Deployment, x: dict[str, Any]) -> float:
    """How far a point is from the limits: the largest ratio."""
    if not x["stable"]:
        return math.inf
    load = found.load
    return max(
        x["ttft"] / load.slo_ttft if load.slo_ttft else 0.0,
        x["tpot"] / load.slo_tpot if load.slo_tpot else 0.0,
    )


def _refuse(found: Deployment, tried: dict[float, Any]):
    every = [x for row in tried.values() for x in row if x["stable"]]
    if not every:
        raise Infeasible(
            f"`optimize`: no clock and batch limit sustain the rate at "
            f"{100 * _FULLEST:g} % of saturation; give a lower `rate` or more GPUs."
        )
    least = {name: min(x[name] for x in every) for name in ("ttft", "tpot")}
    words = {
        "ttft": ("slo_ttft", found.load.slo_ttft),
        "tpot": ("slo_tpot", found.load.slo_tpot),
    }
    asked = [(name, least[key], limit) for key, (name, limit) in words.items() if limit]
    name, reached, limit = max(asked, key=lambda x: x[1] / x[2])
    both = "" if reached > limit else ", but not together with the other limit"
    raise Infeasible(
        f"`{name}` is {1e3 * limit:g} ms, which no clock and batch limit keep; the "
        f"least 95th percentile is {1e3 * reached:.4g} ms{both}.",
        **{name: reached},
    )
