"""The best plan: all of them ranked, those near the best and on the frontier priced
exactly, under a limit of memory and of the power of all GPUs."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Final

import jax
import numpy as np
from jaxtyping import Bool, Float

from ...estimator import Setting, operating_points
from ...hardware import GpuSpec, OperatingPoint, sm_clocks
from ...plans import Plan
from ...results import Infeasible
from ...search import pareto_front
from ...workload import Workload
from .exact import Exact, exact
from .pieces import Key, Maker, key_of, price
from .ranking import Ranked, ranked, state_bytes_of
from .space import Space

_NEAREST: Final = (12, 40)
"""Plans at the top of the ranking that are priced exactly, at least and at most: those
within `_MARGIN` of the best."""
_MARGIN: Final = 0.08
_LEAST: Final = 40
"""Plans with the least state that are looked at where none fits."""
_FRONTIER: Final = 20
"""The same of its frontier."""
_CLOCKS: Final = 8
"""Clocks at which all plans are ranked where a limit of power may lower them."""
_STEPS: Final = 3
"""Steps of a board's clock, on both sides of the ranked one, that are priced."""
_TIE: Final = 1e-9


@dataclasses.dataclass(frozen=True)
class Limits:
    """Bytes of a GPU, W of all (infinity: none)."""

    memory: float
    power: float = np.inf


@dataclasses.dataclass(frozen=True)
class Found:
    """The best plan with the next one whose figure differs, plans that nothing beats in
    time, energy and memory at once, how many there are, and how many keep the limit of
    memory."""

    best: Exact
    second: Exact | None
    frontier: list[Exact]
    considered: int
    fitting: int
    about: Ranked
    """All that keep the limit of memory, at the highest clock."""
    like: Workload
    """All pieces, whose program has room for one plan."""


def search(
    space: Space,
    gpu: GpuSpec,
    setting: Setting,
    limits: Limits,
    objective: str,
    told: Callable[[int, int, str], None] = lambda *_: None,
) -> Found:
    """Searches `space` at the clocks of `setting`; SM clocks are lowered to those of
    the board where the limit of power asks for it.

    Raises `ValueError` if there is no plan, `Infeasible` if none keeps the limits.
    """
    maker = Maker(space)
    every = _legal(space, maker)
    plans, made = _roomy(maker, every, limits.memory)
    told(0, len(every), f"{len(made)} sets of kernels")
    ladder, clocks = _clocks(space, setting.sm_clock, limits.power)
    points = [_point(setting, float(x)) for x in clocks]
    pieces, like = price(space, made, gpu, points)
    all_ranked = [ranked(space, x, plans, gpu.corrections) for x in pieces]
    top = all_ranked[0]
    keeps = top.memory <= limits.memory
    if not keeps.any():
        raise _too_small(space, top, limits)
    rows = np.flatnonzero(keeps)
    series = [x.take(rows) for x in all_ranked]
    clock, time, energy = _under(clocks, series, limits.power)
    able = np.flatnonzero(np.isfinite(clock))
    own = series[0].take(able)
    own = dataclasses.replace(own, time=time[able], energy=energy[able])
    chosen = _chosen(own, objective) if able.size else []
    told(len(every), len(every), f"the best {len(chosen)} exactly")
    asked = [
        (own.plans[i], float(x))
        for i in chosen
        for x in _near(float(clock[able[i]]), setting.sm_clock, ladder)
    ]
    priced = exact(space, asked, gpu, points[0], like)
    kept = _highest([x for x in priced if _within(x, limits)])
    if not kept:  # those that draw least
        drawn = series[-1].energy / series[-1].time
        least = np.argsort(drawn)[: _NEAREST[0]]
        asked = [(series[-1].plans[i], float(clocks[-1])) for i in least]
        priced = exact(space, asked, gpu, points[0], like)
        kept = [x for x in priced if _within(x, limits)]
    if not kept:
        raise _too_weak(space, min(priced, key=lambda x: x.power), limits)
    kept.sort(key=lambda x: (getattr(x, objective), len(x.plan.text)))
    best = kept[0]
    lowest = getattr(best, objective)
    others = (x for x in kept if abs(getattr(x, objective) - lowest) > _TIE * lowest)
    second = next(others, None)
    edge = _frontier(kept)
    return Found(best, second, edge, len(every), len(rows), series[0], like)


def _clocks(
    space: Space, highest: float, power: float
) -> tuple[Float[np.ndarray, " l"], Float[np.ndarray, " c"]]:
    """(clocks of the board up to the `highest`, those at which all plans are ranked
    under a limit of `power`, W), Hz, falling."""
    ladder = sm_clocks(space.card)
    ladder = ladder[ladder <= highest * (1 + 1e-9)]
    if not np.isfinite(power) or len(ladder) < 2:
        return ladder, np.array([highest])
    at = np.linspace(0, len(ladder) - 1, _CLOCKS).round().astype(int)
    return ladder, np.unique([highest, *ladder[at]])[::-1]


def _point(setting: Setting, clock: float) -> OperatingPoint:
    """A setting at another clock (Hz)."""
    points = operating_points([setting._replace(sm_clock=clock)])
    return jax.tree.map(lambda x: x[0], points)


def _legal(space: Space, maker: Maker) -> list[Plan]:
    """Plans into which the model can be divided.

    Raises `ValueError` with the last reason if there is none."""
    kept, reason = [], ""
    for plan in space.plans():
        try:
            space.host.check_training(plan)
            maker.sizes(key_of(plan))
        except ValueError as error:
            reason = str(error)
        else:
            kept.append(plan)
    if not kept:
        numbers = ", ".join(map(str, space.num_gpus))
        held = Plan(**space.held).text if space.held else ""
        raise ValueError(
            reason
            or f"`num_gpus` is {numbers} and `global_batch` {space.global_batch}"
            + (f" with `plan` {held}" if held else "")
            + f", which no plan of {space.model.name} divides; change one of them."
        )
    return kept


def _roomy(
    maker: Maker, plans: Sequence[Plan], memory: float
) -> tuple[list[Plan], dict[Key, Any]]:
    """Plans whose weights and optimizer alone leave room in `memory` (bytes), and their
    pieces; where none does, those that need least.

    Raises `ValueError` with the last reason if no tokens can be divided so."""
    state = np.array([state_bytes_of(maker, x) for x in plans])
    rows = np.flatnonzero(state <= memory)
    if not rows.size:
        rows = np.argsort(state)[:_LEAST]
    kept = [plans[i] for i in rows.tolist()]
    made, reason = {}, None
    for key in dict.fromkeys(map(key_of, kept)):
        try:
            made[key] = maker.made(key)
        except ValueError as error:  # tokens that the GPUs cannot share
            reason = error
    kept = [x for x in kept if key_of(x) in made]
    if not kept and reason is not None:
        raise reason
    return kept, made


def _under(
    clocks: Float[np.ndarray, " c"], series: Sequence[Ranked], power: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(Hz, s, J) of every plan at the highest clock at which all GPUs draw at most
    `power` (W); NaN where none does. `clocks` fall, as `series` does."""
    time, energy = (
        np.stack([getattr(x, n) for x in series]) for n in ("time", "energy")
    )
    drawn, plan = energy / time, np.arange(time.shape[1])
    keeps = drawn <= power
    j = keeps.argmax(axis=0)  # the first that keeps it; i the one before
    i = np.maximum(j - 1, 0)
    fall = np.where(j > 0, drawn[i, plan] - drawn[j, plan], 1.0)
    share = np.where(j > 0, (power - drawn[j, plan]) / fall, 0.0)
    share[~keeps.any(axis=0)] = np.nan

    def between(x: np.ndarray) -> np.ndarray:
        return x[j, plan] + share * (x[i, plan] - x[j, plan])

    hertz = np.broadcast_to(clocks[:, None], time.shape)
    return between(hertz), between(time), between(energy)


def _near(clock: float, top: float, ladder: Float[np.ndarray, " c"]) -> Sequence[float]:
    """Clocks of the board around one that a limit of power asks for."""
    if clock >= top:
        return [top]
    at = int(np.searchsorted(-ladder, -clock))
    return ladder[max(at - _STEPS, 0) : at + _STEPS].tolist()


def _chosen(own: Ranked, objective: str) -> list[int]:
    """Rows that are priced exactly: the first by `objective`, and along the frontier of
    time, energy and memory."""
    size = np.array([len(plan.text) for plan in own.plans], float)
    order = np.lexsort((size, getattr(own, objective).round(9)))
    edge = np.flatnonzero(_undominated(size, own.time, own.energy, own.memory))
    edge = edge[np.argsort(own.time[edge])]
    if len(edge) > _FRONTIER:
        edge = edge[np.linspace(0, len(edge) - 1, _FRONTIER).round().astype(int)]
    near = getattr(own, objective) <= (1 + _MARGIN) * getattr(own, objective).min()
    number = int(np.clip(near.sum(), *_NEAREST))
    return list(dict.fromkeys([*order[:number].tolist(), *edge.tolist()]))


def _undominated(
    size: Float[np.ndarray, " n"], *columns: Float[np.ndarray, " n"]
) -> Bool[np.ndarray, " n"]:
    """Rows that no other beats in one column and matches in the rest; of equal rows
    those of least `size`."""
    scaled = np.stack([x / np.abs(x).max() for x in columns], axis=1).round(6)
    table, place = np.unique(scaled, axis=0, return_inverse=True)
    least = np.full(len(table), np.inf)
    np.minimum.at(least, place, size)
    return np.isin(place, pareto_front(*table.T)) & (size == least[place])


def _frontier(kept: Sequence[Exact]) -> list[Exact]:
    columns = [
        np.array([getattr(x, n) for x in kept]) for n in ("time", "energy", "memory")
    ]
    size = np.array([len(x.plan.text) for x in kept], float)
    edge = [kept[i] for i in np.flatnonzero(_undominated(size, *columns)).tolist()]
    return sorted(edge, key=lambda x: x.time)


def _within(x: Exact, limits: Limits) -> bool:
    return x.feasible and x.memory <= limits.memory and x.power <= limits.power


def _highest(kept: Sequence[Exact]) -> list[Exact]:
    """Every plan at its highest clock."""
    found: dict[Plan, Exact] = {}
    for x in kept:
        if x.plan not in found or x.sm_clock > found[x.plan].sm_clock:
            found[x.plan] = x
    return list(found.values())


def _too_small(space: Space, found: Ranked, limits: Limits) -> Infeasible:
    """That no plan fits, with the one that needs least."""
    i = int(np.argmin(found.memory))
    least = float(found.memory[i])
    numbers = ", ".join(map(str, space.num_gpus))
    return Infeasible(
        f"No plan of {numbers} GPUs keeps {limits.memory / 1e9:.4g} GB a GPU "
        f"(`max_memory`); the least is {least / 1e9:.4g} GB, with "
        f"{found.plans[i].text}: give more GPUs, or larger ones.",
        max_memory=least,
    )


def _too_weak(space: Space, one: Exact, limits: Limits) -> Infeasible:
    """That no plan keeps the power, with the one that needs least."""
    numbers = ", ".join(map(str, space.num_gpus))
    return Infeasible(
        f"`max_power` is {limits.power:g} W, which no plan of {numbers} GPUs keeps; "
        f"the least is {np.ceil(one.power):g} W, with {one.plan.text} at "
        f"{one.sm_clock / 1e6:g} MHz.",
        max_power=one.power,
    )
