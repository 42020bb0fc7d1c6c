"""The best plan: all of them ranked, those near the best and on the frontier priced
exactly, under a limit of memory and of the power of all GPUs."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from jaxtyping import Bool, Float, Int

from ..estimator import Setting
from ..hardware import GpuSpec, OperatingPoint, sm_clocks
from ..plans import Plan
from ..results import Infeasible
from ..search import pareto_front
from ..workload import Workload
from ._pieces import Key, Maker, key_of, price
from ._pricing import Pricing, price_plans
from ._ranking import Ranked, ranked, state_bytes_of, wall_energy
from ._space import Space

_PRICED: Final = 12
"""Plans at the top of the ranking that are priced as `estimate` prices them: the best
of the first 120 was among them in twelve searches (docs/plans.md)."""
_LEAST: Final = 40
"""Plans with the least state that are looked at where none fits."""
_FRONTIER: Final = 20
"""Plans of a frontier at most."""
_CLOCKS: Final = 8
"""Clocks at which all plans are ranked where a limit of power may lower them."""
_STEPS: Final = 3
"""Steps of a board's clock, on both sides of the ranked one, that are priced."""
_WALKED: Final = 100
"""Times `_PRICED` plans of the ranking, at most, that are priced until one keeps the
limits of power over time, of which the ranking says nothing."""
_TIE: Final = 1e-9


@dataclasses.dataclass(frozen=True)
class Limits:
    """Bytes of a GPU, W of all boards; over a step W between peak and trough, W/s
    (infinity: none)."""

    memory: float
    power: float = np.inf
    swing: float = np.inf
    ramp: float = np.inf

    @property
    def over_time(self) -> bool:
        """Whether power over time is limited."""
        return bool(np.isfinite(self.swing) or np.isfinite(self.ramp))

    def excess(self, figures: Pricing) -> Float[np.ndarray, "plan clock"]:
        """Largest ratio of power over time to its limit."""
        assert figures.swing is not None and figures.ramp is not None
        return np.maximum(figures.swing / self.swing, figures.ramp / self.ramp)


@dataclasses.dataclass(frozen=True)
class Priced:
    """A plan at an SM clock (Hz): time (s) and energy (J of all GPUs) of a step, bytes
    of the fullest GPU; `exact`: as `estimate` has them, else as the ranking has. Where
    they are known: `wall`, J at the wall; `swing` (W), `ramp` (W/s) of its power."""

    plan: Plan
    sm_clock: float
    time: float
    energy: float
    memory: float
    exact: bool
    wall: float | None = None
    swing: float | None = None
    ramp: float | None = None

    @property
    def power(self) -> float:
        """W of all GPUs."""
        return self.energy / self.time

    def value(self, objective: str) -> float:
        """What an objective makes small: s, or J, at the wall where that is known."""
        if objective == "time":
            return self.time
        return self.energy if self.wall is None else self.wall


@dataclasses.dataclass(frozen=True)
class SearchOutcome:
    """The best plan with the next one whose figure differs, plans that nothing beats in
    time, energy and memory at once, how many there are, and how many keep the limit of
    memory."""

    best: Priced
    second: Priced | None
    frontier: list[Priced]
    considered: int
    fitting: int
    priced: int
    """Plans that were priced exactly, the first of the ranking."""
    error: float
    """Largest share by which the ranking was wrong on them, the best one's as 0."""
    behind: float | None
    """Share by which the next of the ranking is behind the best; None: there is none.
    Above `error` no plan that was not priced is likely to be better."""
    about: Ranked
    """All that keep the limit of memory, at the highest clock."""
    like: Workload
    """All pieces, whose program has room for one plan."""


@dataclasses.dataclass(frozen=True)
class _First:
    """Plans of a ranking, which says `about` them what they take at the middle one of
    their SM `clocks` (Hz, falling), with their figures at all of these."""

    about: Ranked
    clocks: Float[np.ndarray, "plan clock"]
    figures: Pricing
    limits: Limits

    @property
    def cool(self) -> Bool[np.ndarray, "plan clock"]:
        """Where the limits of mean power are kept."""
        return self.figures.feasible & (self.figures.power <= self.limits.power)

    @property
    def keeps(self) -> Bool[np.ndarray, "plan clock"]:
        """Where all limits of power are kept."""
        if not self.limits.over_time:
            return self.cool
        return self.cool & (self.limits.excess(self.figures) <= 1)

    def joined(self, other: "_First") -> "_First":
        """These plans, then those of another one."""
        plans = [*self.about.plans, *other.about.plans]
        columns = {
            x: np.append(getattr(self.about, x), getattr(other.about, x))
            for x in ("time", "energy", "memory")
        }
        return _First(
            dataclasses.replace(self.about, plans=plans, **columns),
            np.concatenate([self.clocks, other.clocks]),
            self.figures.joined(other.figures),
            self.limits,
        )

    def plans(self) -> list[Priced]:
        """Those that keep the limits, each at its highest clock."""
        rows = np.flatnonzero(self.keeps.any(axis=1))
        at = rows, self.keeps.argmax(axis=1)[rows]
        ranked_plans = self.about.take(rows)
        time, energy = self.figures.time[at], self.figures.energy[at]
        ranked_plans = dataclasses.replace(ranked_plans, time=time, energy=energy)
        plans = _entries(ranked_plans, self.clocks[at], exact=True)
        swing, ramp = self.figures.swing, self.figures.ramp
        if swing is None or ramp is None:
            return plans
        return [
            dataclasses.replace(x, swing=float(s), ramp=float(r))
            for x, s, r in zip(plans, swing[at], ramp[at], strict=True)
        ]

    def middle(self) -> Ranked:
        """Figures at the clocks of the ranking."""
        middle, x = self.clocks.shape[1] // 2, self.figures
        return dataclasses.replace(
            self.about, time=x.time[:, middle], energy=x.energy[:, middle]
        )

    def ratio(self, name: str) -> Float[np.ndarray, " plan"]:
        """Figures over what the ranking says: "boards" (energy), or of an objective."""
        exact = self.middle()
        if name == "boards":
            return exact.energy / self.about.energy
        return exact.values(name) / self.about.values(name)


def _entries(
    about: Ranked, clocks: Float[np.ndarray, " n"], exact: bool
) -> list[Priced]:
    wall = wall_energy(about.site, about.plans, about.time, about.energy)
    at_wall = [None] * len(about.plans) if wall is None else wall.tolist()
    columns = zip(clocks, about.time, about.energy, about.memory, at_wall, strict=True)
    return [
        Priced(plan, float(f), float(t), float(e), float(m), exact, w)
        for plan, (f, t, e, m, w) in zip(about.plans, columns, strict=True)
    ]


def search(
    space: Space,
    gpu: GpuSpec,
    setting: Setting,
    limits: Limits,
    objective: str,
    progress: Callable[[int, int, str], None] = lambda *_: None,
) -> SearchOutcome:
    """Searches `space` at the clocks of `setting`; SM clocks are lowered to those of
    the board where the limit of power asks for it.

    Raises `ValueError` if there is no plan, `Infeasible` if none keeps the limits.
    """
    maker = Maker(space)
    every = _legal(space, maker)
    plans, pieces_of = _roomy(maker, every, limits.memory)
    progress(0, len(every), f"{len(pieces_of)} sets of kernels")
    ladder, clocks = _clocks(space, setting.sm_clock, limits.power)
    points = [point_at(setting, float(x)) for x in clocks]
    pieces, like = price(maker, pieces_of, gpu, points)
    all_ranked = [ranked(maker, x, plans, gpu.corrections) for x in pieces]
    fits = np.flatnonzero(all_ranked[0].memory <= limits.memory)
    if not fits.size:
        raise _too_small(space, all_ranked[0], limits)
    series = [x.take(fits) for x in all_ranked]

    def priced(about: Ranked, rungs: Int[np.ndarray, "plan clock"]) -> _First:
        progress(len(every), len(every), f"the best {len(rungs)} exactly")
        at, shape = ladder[rungs], about.shape
        parts = space, about.plans, at, gpu, points[0], like, shape
        pricing = price_plans(*parts, limits.over_time)
        return _First(about, at, pricing, limits)

    within, rung = _under(ladder, clocks, series, limits.power)
    size = np.array([len(plan.text) for plan in within.plans])
    # of plans with equal figures the shortest text: what sets least
    order = np.lexsort((size, within.values(objective).round(9)))
    top, rest = order[:_PRICED], order[_PRICED:]
    steps = np.arange(-_STEPS, _STEPS + 1) if np.isfinite(limits.power) else [0]

    def near(rows: Int[np.ndarray, " plan"]) -> _First:
        around = (rung[rows, None] + steps).clip(0, len(ladder) - 1)
        return priced(within.take(rows), around)

    first = near(top) if top.size else None
    for _ in range(_WALKED - 1 if limits.over_time else 0):
        if first is None or first.keeps.any() or not rest.size:
            break
        top, rest = rest[:_PRICED], rest[_PRICED:]
        first = first.joined(near(top))
    if first is not None and first.cool.any() and not first.keeps.any():
        raise _too_wild(space, first, rest.size)
    if first is None or not first.keeps.any():  # those that draw least
        last, rest = series[-1], order[:0]
        least = np.argsort(last.energy / last.time)[:_PRICED]
        first = priced(last.take(least), np.full((len(least), 1), len(ladder) - 1))
    if not first.cool.any():
        raise _too_weak(space, first)
    if not first.keeps.any():
        raise _too_wild(space, first, rest.size)
    exact = first.plans()
    exact.sort(key=lambda x: (x.value(objective), len(x.plan.text)))
    row = first.about.plans.index(exact[0].plan)
    time, energy = (first.ratio(x)[row] for x in ("time", "boards"))
    # Beyond the priced ones the ranking's figures, scaled by its error on the best
    # plan.
    if rest.size and np.isfinite(limits.power):
        # their clocks, too, are those of the scaled power
        within, rung = _under(ladder, clocks, series, limits.power * time / energy)
        known = {x.text for x in first.about.plans}
        rest = np.argsort(within.values(objective), kind="stable")
        rest = np.array([i for i in rest if within.plans[i].text not in known], int)
    others = within.take(rest)
    others = dataclasses.replace(
        others, time=others.time * time, energy=others.energy * energy
    )
    lowest, ratio = exact[0].value(objective), first.ratio(objective)
    different = (x for x in exact if x.value(objective) > (1 + _TIE) * lowest)
    frontier = exact  # of power over time the ranking says nothing
    if not limits.over_time:
        frontier = [*exact, *_entries(others, ladder[rung[rest]], False)]
    return SearchOutcome(
        best=exact[0],
        second=next(different, None),
        frontier=_frontier(frontier),
        considered=len(every),
        fitting=len(fits),
        priced=len(first.about.plans),
        error=float(abs(ratio / ratio[row] - 1).max()),
        behind=float(others.values(objective)[0] / lowest - 1) if rest.size else None,
        about=series[0],
        like=like,
    )


def _clocks(
    space: Space, highest: float, power: float
) -> tuple[Float[np.ndarray, " l"], Float[np.ndarray, " c"]]:
    """(clocks of the board up to the `highest`, which leads, those at which all plans
    are ranked under a limit of `power`, W), Hz, falling."""
    ladder = sm_clocks(space.card)
    ladder = np.array([highest, *ladder[ladder < highest * (1 - 1e-9)]])
    if not np.isfinite(power):
        return ladder, ladder[:1]
    at = np.linspace(0, len(ladder) - 1, _CLOCKS).round().astype(int)
    return ladder, ladder[np.unique(at)]


def point_at(setting: Setting, clock: float) -> OperatingPoint:
    """A setting at another clock (Hz)."""
    return OperatingPoint(*np.array(setting._replace(sm_clock=clock), float))


def _legal(space: Space, maker: Maker) -> list[Plan]:
    """Plans into which the model can be divided.

    Raises `ValueError` with the last reason if there is none."""
    legal, reason, plan = [], "", None
    for plan in space.plans():
        try:
            space.host.check_training(plan)
            maker.sizes(key_of(plan))
        except ValueError as error:
            reason = str(error)
        else:
            legal.append(plan)
    if not legal:
        if reason and space.fixed:
            raise ValueError(reason)
        numbers = ", ".join(map(str, space.num_gpus))
        fixed = Plan(**space.fixed).text if space.fixed else ""
        # the reason names a size that the search chose, not the user
        last = f" (the last one tried, {plan.text}: {reason[:-1]})" if plan else ""
        raise ValueError(
            f"`num_gpus` is {numbers} and `global_batch` {space.global_batch}"
            + (f" with `plan` {fixed}" if fixed else "")
            + f", which no plan of {space.model.name} divides{last}; change one of "
            "them."
        )
    return legal


def _roomy(
    maker: Maker, plans: Sequence[Plan], memory: float
) -> tuple[list[Plan], dict[Key, Any]]:
    """Plans whose weights and optimizer alone leave room in `memory` (bytes), and their
    pieces; where none does, those that need least.

    Raises `ValueError` with the last reason if no tokens can be divided so."""
    state = np.array([max(state_bytes_of(maker, x)) for x in plans])
    rows = np.flatnonzero(state <= memory)
    if not rows.size:
        rows = np.argsort(state)[:_LEAST]
    roomy = [plans[i] for i in rows.tolist()]
    pieces, reason = {}, None
    for key in dict.fromkeys(map(key_of, roomy)):
        try:
            pieces[key] = maker.pieces(key)
        except ValueError as error:  # tokens that the GPUs cannot share
            reason = error
    roomy = [x for x in roomy if key_of(x) in pieces]
    if not roomy and reason is not None:
        raise reason
    return roomy, pieces


def _under(
    ladder: Float[np.ndarray, " l"],
    clocks: Float[np.ndarray, " c"],
    series: Sequence[Ranked],
    power: float,
) -> tuple[Ranked, Int[np.ndarray, " n"]]:
    """Plans of which all GPUs draw at most `power` (W) at some clock of the `ladder`
    (Hz), with their figures at the highest such one, and its place there: by lines
    between `clocks`, some of the ladder, at which `series` has them. Both fall."""
    time, energy = (
        np.stack([getattr(x, n) for x in series]) for n in ("time", "energy")
    )
    keeps = energy / time <= power
    able = np.flatnonzero(keeps.any(axis=0))
    j = keeps[:, able].argmax(axis=0)  # the first that keeps it; i the one before
    i = np.maximum(j - 1, 0)
    above, below = ((time[x, able], energy[x, able]) for x in (i, j))
    high, low = (e / t for t, e in (above, below))
    share = np.where(j > 0, (power - low) / np.where(j > 0, high - low, 1.0), 0.0)
    wide = clocks[i] - clocks[j]
    # A clock that meets the limit exactly stays: rounding must not take the next lower.
    hertz = (clocks[j] + share * wide) * (1 + 1e-9)
    rung = np.searchsorted(-ladder, -hertz)
    share = (ladder[rung] - clocks[j]) / np.where(j > 0, wide, 1.0)
    at = [y + share * (x - y) for x, y in zip(above, below, strict=True)]
    within = series[0].take(able)
    return dataclasses.replace(within, time=at[0], energy=at[1]), rung


def _undominated(
    size: Float[np.ndarray, " n"], *columns: Float[np.ndarray, " n"]
) -> Bool[np.ndarray, " n"]:
    """Rows that no other beats in one column and matches in the rest; of equal rows
    those of least `size`."""
    # figures that differ by rounding alone count as equal
    scaled = np.stack([x / np.abs(x).max() for x in columns], axis=1).round(6)
    table, place = np.unique(scaled, axis=0, return_inverse=True)
    least = np.full(len(table), np.inf)
    np.minimum.at(least, place, size)
    return np.isin(place, pareto_front(*table.T)) & (size == least[place])


def _frontier(plans: Sequence[Priced]) -> list[Priced]:
    columns = [np.array([x.value(n) for x in plans]) for n in ("time", "energy")] + [
        np.array([x.memory for x in plans])
    ]
    size = np.array([len(x.plan.text) for x in plans], float)
    edge = [plans[i] for i in np.flatnonzero(_undominated(size, *columns)).tolist()]
    return sorted(edge, key=lambda x: x.time)


def _too_small(space: Space, all_ranked: Ranked, limits: Limits) -> Infeasible:
    """That no plan fits, with the one that needs least."""
    i = int(np.argmin(all_ranked.memory))
    least = float(all_ranked.memory[i])
    numbers = ", ".join(map(str, space.num_gpus))
    return Infeasible(
        f"No plan of {numbers} GPUs keeps {limits.memory / 1e9:.4g} GB a GPU "
        f"(`max_memory`); the least is {least / 1e9:.4g} GB, with "
        f"{all_ranked.plans[i].text}: give more GPUs, or larger ones.",
        max_memory=least,
    )


def _too_weak(space: Space, first: _First) -> Infeasible:
    """That no plan keeps the power, with the one that needs least."""
    drawn = first.figures.power
    i, j = np.unravel_index(drawn.argmin(), drawn.shape)
    least = float(drawn[i, j])
    numbers = ", ".join(map(str, space.num_gpus))
    return Infeasible(
        f"`max_power` is {first.limits.power:g} W, which no plan of {numbers} GPUs "
        f"keeps; the least is {np.ceil(least):g} W, with {first.about.plans[i].text} "
        f"at {first.clocks[i, j] / 1e6:g} MHz.",
        max_power=least,
    )


def _too_wild(space: Space, first: _First, rest: int) -> Infeasible:
    """That power varies too much in all plans that were priced, with the one that comes
    nearest to the limits; `rest`: plans that were not."""
    limits, figures = first.limits, first.figures
    assert figures.swing is not None and figures.ramp is not None
    excess = np.where(first.cool, limits.excess(figures), np.inf)
    i, j = np.unravel_index(excess.argmin(), excess.shape)
    names = {
        "max_swing": (limits.swing, float(figures.swing[i, j]), "W"),
        "max_ramp": (limits.ramp, float(figures.ramp[i, j]), "W/s"),
    }
    passed = {x: y for x, y in names.items() if y[1] > y[0]}
    words = " and ".join(f"`{x}` is {y[0]:g} {y[2]}" for x, y in passed.items())
    least = " and ".join(f"{np.ceil(y[1]):g} {y[2]}" for y in passed.values())
    number = f"{len(first.about.plans)} plans"
    if rest:
        number = f"the first {number} of the ranking"
    where = "boards" if space.site is None else "wall"
    return Infeasible(
        f"{words} ({where}), which none of {number} keeps; the nearest is {least}, "
        f"with {first.about.plans[i].text}: give that or more.",
        **{x: y[1] for x, y in passed.items()},
    )
