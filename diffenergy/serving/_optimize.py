"""The clock and the batch limit of least energy, or most throughput, that keep limits
of latencies.

One table of steps, up to the requested clock and the largest batch, answers any clock
with every batch limit: first clocks spread over those of the board, then those around
the best of them. The best of all is priced by a table of its own, which has its clock
exactly and batches around its limit; where it does not keep the limits by that one, the
next best is taken.
"""

import dataclasses
import math
from typing import Any, Final, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Bool, Float

from ..hardware import sm_clocks, spread_clocks
from ..results import Infeasible
from ._deployment import Deployment
from ._load import Load
from ._solve import alone, run_cached, solved
from ._steady.figures import (
    QUANTILES,
    LoadArrays,
    Mode,
    Steady,
    steady,
)
from ._steady.server import Server
from ._step.table import StepCosts

_BATCHES: Final = 24
_CLOCKS: Final = 16
"""Clocks of a round; boards share its program."""
_FULLEST: Final = 0.95
"""Share of the saturation that an open loop may have: beyond it the queue of hours
decides, and a slip in the rate leaves none that ends."""
_P95: Final = QUANTILES.index(0.95)
_FAR: Final = 1e30
"""Beyond any energy or rate: where limits are not kept."""


class _Figures(NamedTuple):
    """Energy (J a token), tokens a second, 95th percentiles (s) of both latencies, and
    the load over what is served."""

    energy: Any
    flow: Any
    ttft: Any
    tpot: Any
    load: Any


class _Grid(NamedTuple):
    """`figures` at rising `clocks` (Hz) with each batch limit [clock, limit], and
    whether the power limit is kept."""

    clocks: Float[np.ndarray, " clock"]
    figures: _Figures
    feasible: Bool[np.ndarray, "clock limit"]

    def stable(self, load: Load) -> Bool[np.ndarray, "clock limit"]:
        """Where the power limit is kept, and the rate with room to spare."""
        calm = (self.figures.load <= _FULLEST) | (load.rate is None)
        return calm & self.feasible


def best(
    deployment: Deployment, costs: StepCosts, objective: str
) -> tuple[Deployment, dict[str, Any]]:
    """The deployment at the best point, and its clock and batch limit as JSON; `costs`:
    of the deployment as it is given.

    Raises `Infeasible` with what can be reached if no point keeps the limits.
    """
    requested = deployment.setting.sm_clock
    clocks = sm_clocks(deployment.card)[::-1]
    clocks = clocks[clocks <= requested]
    # a clock that the user sets stays; only the batch limit is searched
    if "sm_clock_mhz" not in deployment.assumed:
        clocks = np.array([requested])
    limits = _limits(deployment)
    server = deployment.server(costs)
    grid = _grid(deployment, server, spread_clocks(clocks, _CLOCKS), limits)
    scores = _scores(deployment, objective, grid)
    around = _around(clocks, grid.clocks, int(scores.min(axis=1).argmin()))
    if len(around):
        grid = _joined(grid, _grid(deployment, server, around, limits))
        scores = _scores(deployment, objective, grid)
    while True:
        # of equals the higher clock
        row = len(grid.clocks) - 1 - int(scores.min(axis=1)[::-1].argmin())
        column = int(scores[row].argmin())
        if scores[row, column] >= _FAR:
            _refuse(deployment.load, grid)
        clock, limit = float(grid.clocks[row]), float(limits[column])
        better = _at(deployment, clock, limit)
        figures = solved(better, better.costs())
        for values, value in zip(grid.figures, _figures(figures), strict=True):
            values[row, column] = value  # as it is answered
        grid.feasible[row, column] = figures.feasible
        scores[row, column] = _scores(deployment, objective, grid)[row, column]
        if scores[row, column] < _FAR:
            break
    summary = {"objective": objective, "sm_clock_mhz": clock / 1e6, "max_batch": limit}
    return better, {"optimized": summary}


def _at(deployment: Deployment, clock: float, limit: float) -> Deployment:
    """The deployment at a clock (Hz) with a batch limit."""
    setting = deployment.setting._replace(sm_clock=clock)
    load = dataclasses.replace(deployment.load, max_batch=limit)
    chosen = ("sm_clock_mhz", "max_batch")
    assumed = {k: v for k, v in deployment.assumed.items() if k not in chosen}
    return dataclasses.replace(deployment, setting=setting, load=load, assumed=assumed)


def _figures(x: Steady) -> _Figures:
    high = x.ttft.quantiles[_P95], x.tpot.quantiles[_P95]
    return _Figures(x.energy, x.flow, *high, x.load)


def _limits(deployment: Deployment) -> np.ndarray:
    """Batch limits that are tried: whole numbers, geometric."""
    top = max(math.floor(deployment.most), 1)
    return np.unique(np.round(np.geomspace(1, top, _BATCHES)))


class _Question(eqx.Module):
    """One replica, its load, and the clocks (Hz) and batch limits to be looked at."""

    server: Server
    load: LoadArrays
    clocks: Float[Array, " clock"]
    limits: Float[Array, " limit"]
    mode: Mode = eqx.field(static=True)
    states: int = eqx.field(static=True)


def figures_on_grid(question: _Question) -> tuple[_Figures, Array]:
    """Figures [clock, limit], and whether the power limit is kept."""
    q = question
    slots = jnp.clip(jnp.minimum(q.limits, q.server.fits), 1.0)

    def at(clock: Array) -> tuple[_Figures, Array]:
        server = q.server.at_clock(clock)

        def one(limit: Array, slots: Array) -> tuple[_Figures, Array]:
            load = q.load._replace(slots=slots)
            x = steady(server.limited(limit), load, q.mode, q.states)
            return _figures(x), x.feasible

        return jax.vmap(one)(q.limits, slots)

    return lax.map(at, q.clocks)


def _grid(
    deployment: Deployment, server: Server, clocks: np.ndarray, limits: np.ndarray
) -> _Grid:
    """Figures of up to `_CLOCKS` clocks with all limits, by one kept program."""
    # repeats fill up to one shape, so that all boards share a compiled program
    padded = jnp.asarray(np.resize(clocks, _CLOCKS))
    at = (
        deployment.load_arrays(),
        padded,
        jnp.asarray(limits),
        deployment.mode,
        deployment.states,
    )
    figures, feasible = jax.tree.map(
        lambda x: np.array(x[: len(clocks)]),
        run_cached(figures_on_grid, (_Question(server, *at),)),
    )
    return _Grid(clocks, figures, feasible)


def _around(clocks: np.ndarray, evaluated: np.ndarray, best: int) -> np.ndarray:
    """Clocks between the neighbours of the best of the `evaluated` ones, these left
    out."""
    low, high = (
        evaluated[max(best - 1, 0)],
        evaluated[min(best + 1, len(evaluated) - 1)],
    )
    near = np.setdiff1d(clocks[(clocks > low) & (clocks < high)], evaluated)
    return spread_clocks(near, _CLOCKS) if len(near) else near


def _joined(a: _Grid, b: _Grid) -> _Grid:
    """Both, by rising clock."""
    order = np.argsort(np.append(a.clocks, b.clocks))
    return jax.tree.map(lambda x, y: np.concatenate([x, y])[order], a, b)


def _scores(
    deployment: Deployment, objective: str, grid: _Grid
) -> Float[np.ndarray, "c l"]:
    """What is to be least: of points that keep the limits the objective (energy with a
    node: at the wall), of others how far they are from them, beyond `_FAR`."""
    x, load, site = grid.figures, deployment.load, deployment.site
    value = -x.flow if objective == "throughput" else x.energy
    if objective == "energy" and site is not None:
        power = (x.energy * x.flow)[..., None]  # W of a GPU
        second = site.energies(np.ones_like(power), power, deployment.plan.gpus)
        value = second.wall / (deployment.replicas * x.flow)
    over = np.ones_like(value)
    for figure, limit in ((x.ttft, load.slo_ttft), (x.tpot, load.slo_tpot)):
        if limit is not None:
            # a latency without a value (no balance) keeps no limit
            over = np.fmax(over, np.where(np.isnan(figure), np.inf, figure / limit))
    stable = grid.stable(load)
    valid = stable & (over <= 1) & np.isfinite(value)
    return np.where(valid, value, np.where(stable, _FAR * over, np.inf))


def _refuse(load: Load, grid: _Grid):
    """Raises `Infeasible` with what can be had."""
    stable = grid.stable(load)
    if not stable.any():
        raise Infeasible(
            f"`optimize`: no clock and batch limit sustain the rate at "
            f"{100 * _FULLEST:g} % of saturation; give a lower `rate` or more GPUs."
        )
    x = grid.figures
    reachable = [
        (name, float(np.nanmin(figure[stable])), limit)
        for name, figure, limit in (
            ("slo_ttft", x.ttft, load.slo_ttft),
            ("slo_tpot", x.tpot, load.slo_tpot),
        )
        if limit is not None
    ]
    name, reached, limit = max(reachable, key=lambda x: x[1] / x[2])
    both = "" if reached > limit else ", but not together with the other limit"
    raise Infeasible(
        f"`{name}` is {1e3 * limit:g} ms, which no clock and batch limit keep; the "
        f"least 95th percentile is {1e3 * reached:.4g} ms{both}.",
        **{name: reached},
    )


# --- Limits of latencies that no server can keep: below one step of it.

_LIMITS: Final = ("slo_ttft", "slo_tpot")


def check_limits(deployment: Deployment, costs: StepCosts) -> None:
    """Raises `Infeasible` for a limit of the load below the decode step of one request
    alone, which every token takes at least: mostly seconds that are read as ms."""
    limits = {name: getattr(deployment.load, name) for name in _LIMITS}
    limits = {name: limit for name, limit in limits.items() if limit is not None}
    if not limits:
        return
    single = alone(deployment, costs)
    for name, limit in limits.items():
        step, what = float(single.decode), "one step of the server"
        if name == "slo_tpot" and deployment.request.speculative:
            step *= float(single.tpot.mean / single.step)
            what = "a token's share of one step of the server"
        if math.isfinite(step) and limit < step:
            raise Infeasible(
                f"`{name}` is {1e3 * limit:g} ms, less than {what} "
                f"with a single request, {1e3 * step:.4g} ms; raise it (on the command "
                f"line a bare number is in ms: `{1e3 * limit:g}s` is seconds).",
                **{name: step},
            )
