"""The best deployment: all points ranked, those that matter priced as `serve` does."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

from ...hardware import sm_clocks, spread_clocks
from ...results import Infeasible
from ...search import pareto_front
from ...units import MHz, kWh
from .._apart.answer import to_json as pools_json
from .._apart.sizes import LINK, Side, transfer_of
from .._apart.sizes import price as pools_figures
from .._deployment import Deployment
from .._load import Load
from .._result import to_json
from .._solve import Question, answered, run_cached
from .._steady.figures import load_arrays
from .._step.table import StepCosts
from .pairs import pairs_that_matter, pool_points
from .points import Table, joined, score, wall_power
from .rank import FULLEST, MOST_BATCH, Points, Ranked, rank, replica_numbers
from .request import Objective, SearchRequest
from .space import BEYOND, CLOCKS, Candidate

_NEAR_BEST: Final = 3
"""Deployments of each GPU whose clocks are ranked closer: at nine clocks the best may
not be the first of them."""
_TRIES: Final = 6
"""Points of a deployment that are priced until one keeps the limits."""
_LOOSE: Final = {"slo_ttft": 1.05, "slo_tpot": 1.01, "power_budget": 1.02}
"""Factors on limits in the ranking, by how far that is from the exact figures."""
_ROUNDS: Final = 2
"""Rounds around the best points: every clock of a board between its nine."""
_MOST_FRONT: Final = 8
_MOST_REPLICAS: Final = 1e9
"""More replicas than any deployment has."""
_HOUR: Final = 3600.0
_Tried = tuple[int, np.ndarray, np.ndarray]
"""Number of a candidate, clocks (Hz) and batch limits."""


@dataclasses.dataclass(frozen=True)
class Priced:
    """A point priced exactly: the JSON of `serve`, its figures over the limits, and its
    score (`points.score`)."""

    candidate: Candidate
    deployment: Deployment
    costs: StepCosts
    summary: dict[str, Any]
    limit: float
    score: float
    cost_per_hour: float | None
    over: dict[str, float]

    @property
    def power(self) -> float:
        """W of all GPUs, with a node at the wall."""
        return self.summary.get("wall_power_w", self.summary["avg_power_w"])

    @property
    def energy(self) -> float:
        """J of an output token, with a node at the wall."""
        wall = self.summary.get("wall_energy_j_per_output_token")
        return wall or self.summary["energy_j_per_output_token"]

    @property
    def gpus(self) -> int:
        """GPUs in all."""
        return self.summary["num_gpus"]

    @property
    def apart(self) -> bool:
        """Whether prefill and decode are apart; then `deployment` is that of decode."""
        return "pools" in self.summary

    @property
    def feasible(self) -> bool:
        """Whether all limits are kept."""
        return max(self.over.values(), default=0.0) <= 1


@dataclasses.dataclass(frozen=True)
class Choice:
    """What a search gives: deployments `priced` exactly, the best first; the ranked
    `table` of the `candidates`; relative change of the objective when a limit is
    loosened, over that of the limit, by its name; `costs`: tables of the candidates."""

    priced: list[Priced]
    table: Table
    elasticities: dict[str, float]
    candidates: Sequence[Candidate]
    costs: Sequence[StepCosts]

    def best_rows(self) -> np.ndarray:
        """Rows of the table with the point of least energy of each deployment of
        servers that do both."""
        rows = self.table.best_rows("energy", _LOOSE)
        return rows[~self.table.apart[rows]]


class Search:
    """One search: its request, load and candidates."""

    def __init__(
        self, request: SearchRequest, load: Load, candidates: Sequence[Candidate]
    ):
        self.request, self.load, self.candidates = request, load, candidates
        self.objective: Objective = request.objective
        limits = {
            "slo_ttft": load.slo_ttft,
            "slo_tpot": load.slo_tpot,
            "power_budget": request.power_budget,
        }
        self.limits = {name: x for name, x in limits.items() if x is not None}
        self.costs = []
        for done, x in enumerate(candidates):
            if request.progress:
                request.progress(done, len(candidates))
            self.costs.append(x.deployment.costs())

    def run(self) -> Choice:
        """The best deployments.

        Raises `Infeasible` if none keeps the limits, with what can be had.
        """
        table = self._points([(i, x.clocks, x.limits) for i, x in self.numbered])
        if not table.keeps(_LOOSE).any():
            self.refuse(table)
        for _ in range(_ROUNDS if self.request.sm_clock is None else 0):
            if more := self._between(table):
                table = joined([table, self._points(more, pools=False)])
        rows, chosen = self._chosen(table)
        # all start before the first is read
        started = [self.price(table, row) for row in chosen]
        exact = [
            self.settle(table, row, first)
            for row, first in zip(chosen, started, strict=True)
        ]
        priced = [x for x in exact if x is not None]
        only = self.request.apart == "only"
        if only and not any(x.apart for x in priced):
            raise Infeasible(
                "`apart` is only, but no prefill and decode pools apart keep the "
                "limits; give auto."
            )
        if not priced:
            self.refuse(table)
        # of equals the one of least energy; `only`: pools before all others
        priced.sort(key=lambda x: (only and not x.apart, x.score, x.energy))
        slopes = self.elasticities(table, rows)
        return Choice(priced, table, slopes, self.candidates, self.costs)

    def _chosen(self, table: Table, each: int = 1) -> tuple[np.ndarray, list[int]]:
        """Rows with the best point of each deployment, the best first, and those of
        them that matter: the first, the front of GPUs and power, the best of each
        GPU (`each` of them) and of either kind."""
        rows = table.best_rows(self.objective, _LOOSE)
        order = np.argsort(table.score(self.objective)[rows], kind="stable")
        rows = rows[order]
        names = np.array([x.gpu for x in self.candidates])[table.candidate[rows]]
        first = [np.flatnonzero(names == x)[:each] for x in np.unique(names)]
        first.append(np.unique(table.apart[rows], return_index=True)[1])
        front = rows[pareto_front(table.gpus[rows], table.power[rows])]
        front = front[np.argsort(table.gpus[front])][:_MOST_FRONT]
        chosen = [*rows[: self.request.top], *front, *rows[np.concatenate(first)]]
        return rows, list(dict.fromkeys(map(int, chosen)))

    @property
    def numbered(self) -> list[tuple[int, Candidate]]:
        """Candidates with their numbers."""
        return list(enumerate(self.candidates))

    # --- Points

    def _points(
        self, tried: Sequence[_Tried], pools: bool = True, slower: float = 1.0
    ) -> Table:
        """Points of servers that do both, and of pools apart if they are searched;
        `slower`: factor on the load."""
        # all run before the first is read
        ranked = [(*x, *self._ranked(*x, slower)) for x in tried]
        tables = [self._table(*x) for x in ranked]
        if pools and self.request.apart != "no":
            tables += self._pairs(slower)
        return joined(tables)

    def _ranked(
        self, number: int, clocks: np.ndarray, limits: np.ndarray, slower: float
    ) -> tuple[Points, Ranked]:
        one, clients, rate = (
            self.candidates[number], self.load.concurrency, self.load.rate
        )  # fmt: skip
        points = Points(
            one.deployment.server(self.costs[number]),
            load_arrays(1.0, clients and clients * slower, rate and rate * slower),
            # repeats fill up to one shape, so that candidates share a program
            jnp.asarray(np.resize(clocks, CLOCKS * math.ceil(len(clocks) / CLOCKS))),
            jnp.asarray(limits),
            jnp.asarray(replica_numbers(clients, one.most_gpus / one.tp)),
            rate is not None,
        )
        return points, run_cached(rank, (points,), once=False)

    def _table(
        self, number: int, _: Any, limits: np.ndarray, points: Points, ranked: Ranked
    ) -> Table:
        x: Any = jax.tree.map(np.asarray, ranked)
        one = self.candidates[number]
        gpus, flow = x.replicas * one.tp, x.replicas * x.flow
        power = wall_power(one.deployment, gpus, x.power)
        limit = np.broadcast_to(limits[:, None], gpus.shape)
        over = {"num_gpus": gpus / one.most_gpus, "memory": limit / one.fits}
        table = Table(
            np.full(gpus.shape, number),
            np.broadcast_to(np.asarray(points.clocks)[:, None, None], gpus.shape),
            limit,
            x.replicas,
            np.full(gpus.shape, -1),
            np.zeros(gpus.shape),
            np.zeros(gpus.shape),
            number * _MOST_REPLICAS + np.asarray(x.replicas, np.float64),
            gpus,
            power,
            power / flow,
            self._cost(number, gpus, power) / flow,
            # a figure without a value (no balance) keeps no limit
            x.feasible & (x.load <= FULLEST + 1e-9) & np.isfinite(power / flow),
            self._over(x.ttft, x.tpot, power) | over,
        )
        return jax.tree.map(np.ravel, table)

    def _pairs(self, slower: float) -> list[Table]:
        """Points of pools apart, for each type that both pools have in common."""
        load = dataclasses.replace(self.load, rate=(self.load.rate or 0.0) * slower)
        flow = (load.rate or 0.0) * load.output.mean
        most = np.array([x.most_gpus for x in self.candidates])
        names = np.array([x.gpu for x in self.candidates])
        plain = [
            x for x in self.numbered if x[1].deployment.request.speculative is None
        ]
        tables = []
        for group, kind in enumerate(dict.fromkeys(x.pool_type for _, x in plain)):
            sides = [(i, x, self.costs[i]) for i, x in plain if x.pool_type == kind]
            pools = pool_points(load, sides)
            scores = [lambda x: x.gpus, lambda x: x.power]
            if self.objective == "cost":
                scores.append(lambda x: self._cost(x.of, x.gpus, x.power))
            factors = (_LOOSE["slo_ttft"], BEYOND)
            rows, others = pairs_that_matter(pools, load, factors, scores)
            p, d = pools[0].take(rows), pools[1].take(others)
            gpus, power = p.gpus + d.gpus, p.power + d.power
            costs = (self._cost(x.of, x.gpus, x.power) for x in (p, d))
            same = names[p.of] == names[d.of]
            taken = ((x.gpus + same * y.gpus) / most[x.of] for x, y in ((p, d), (d, p)))
            fits = np.array([x.fits for x in self.candidates])[d.of]
            over = {"num_gpus": np.maximum(*taken), "memory": d.limit / fits}
            tables.append(
                Table(
                    d.of, d.clock, d.limit, d.workers, p.of, p.clock, p.workers,
                    np.full(gpus.shape, -1.0 - group), gpus, power, power / flow,
                    np.add(*costs) / flow, np.full(gpus.shape, True),
                    self._over(p.ttft + d.ttft + pools[2], d.tpot, power) | over,
                )
            )  # fmt: skip
        return tables

    def _cost(self, numbers: Any, gpus: Any, power: Any) -> Any:
        """Price of GPUs of candidates, and of the energy of their site where it has
        one, a second; without a value where no price of the GPU is given. `power`: W
        at the wall."""
        prices, energies = self.request.gpu_price or {}, []
        for x in self.candidates:
            site = x.deployment.site
            price = 0.0 if site is None else site.pue * (site.price or 0.0)
            energies.append(price / (1e3 * kWh))
        each = np.array([prices.get(x.gpu, math.nan) for x in self.candidates])
        return each[numbers] / _HOUR * gpus + np.array(energies)[numbers] * power

    def _over(self, ttft: Any, tpot: Any, power: Any) -> dict[str, Any]:
        """Figures over their limits; infinite where there is no figure."""
        over = {"slo_ttft": ttft, "slo_tpot": tpot, "power_budget": power}
        return {
            name: np.where(np.isnan(over[name]), np.inf, over[name] / limit)
            for name, limit in self.limits.items()
        }

    def _between(self, table: Table) -> list[_Tried]:
        """Clocks between the neighbours of the best ones, of servers that matter. Batch
        limits stay those between which steps are linear: just above one a tile more
        would be ranked too short."""
        own = table.take(~table.apart)
        if not own.keeps(_LOOSE).any():
            return []
        more = dict[Any, _Tried]()
        for row in self._chosen(own, _NEAR_BEST)[1]:
            number = int(own.candidate[row])
            one, tried = self.candidates[number], own.candidate == number
            board = sm_clocks(one.deployment.card)[::-1]
            near = _neighbours(own.clock[tried], own.clock[row], board)
            key = number, tuple(near)
            more[key] = number, spread_clocks(near, CLOCKS), one.limits
        return list(more.values())

    # --- Exact prices

    def settle(
        self, table: Table, row: int, first: Callable[[], Priced]
    ) -> Priced | None:
        """The best point of the deployment of `row` that keeps the limits exactly; None
        if there is none near. Where a point does not keep them, the ranking of the
        deployment is corrected by its exact figures. `first`: the price of `row`."""
        group, priced = table.group == table.group[row], first()
        for _ in range(_TRIES):
            if priced.feasible:
                return priced
            factors = {
                name: priced.over[name] / table.over[name][row] * _LOOSE[name]
                for name in self.limits
            }
            table = table.scaled(group, factors)
            left = np.flatnonzero(group & table.keeps(_LOOSE))
            if not left.size:
                return None
            row = int(table.ranked(self.objective, left)[0])
            priced = self.price(table, row)()
        return None

    def price(self, table: Table, row: int) -> Callable[[], Priced]:
        """Starts to price a point as `serve` does, and returns what waits for it."""
        number, limit = int(table.candidate[row]), float(table.limit[row])
        one, replicas = self.candidates[number], int(table.replicas[row])
        clock, reader = float(table.clock[row]), int(table.prefill[row])
        if reader >= 0:
            prefill = self.candidates[reader].at(
                self.load, float(table.prefill_clock[row]), 1.0,
                int(table.prefill_workers[row]),
            )  # fmt: skip
            decode = one.at(self.load, clock, limit, replicas)
            sides = Side(prefill, prefill.costs()), Side(decode, decode.costs())

            def pools() -> Priced:
                transfer = transfer_of(prefill, decode, LINK)
                figures = pools_figures(*sides, transfer)
                summary = pools_json(*sides, figures, transfer, {})
                stable = bool(figures.feasible) and bool(figures.steady.feasible)
                numbers = (reader, number), (prefill.plan.gpus, decode.plan.gpus)
                return self._priced(number, sides[1], summary, limit, stable, *numbers)

            return pools
        deployment = one.at(self.load, clock, limit, replicas)
        side = Side(deployment, deployment.costs())
        question = Question(
            side.server,
            deployment.load_arrays(),
            deployment.mode,
            # as many for all limits: one program
            MOST_BATCH if deployment.mode == "open" else 0,
        )
        figures = run_cached(answered, (question,))

        def servers() -> Priced:
            x = jax.device_get(figures)
            stable = bool(x.feasible) and (
                self.load.rate is None or float(x.load) <= FULLEST * 1.01
            )
            numbers = (number,), (deployment.plan.gpus,)
            summary = to_json(deployment, x)
            return self._priced(number, side, summary, limit, stable, *numbers)

        return servers

    def _priced(
        self,
        number: int,
        side: Side,
        summary: dict[str, Any],
        limit: float,
        stable: bool,
        numbers: Sequence[int],
        gpus: Sequence[int],
    ) -> Priced:
        """A priced point with its score; `gpus` of each of the candidates `numbers`."""
        power = summary.get("wall_power_w", summary["avg_power_w"])
        tpot = summary["tpot_s"] or {"p95": 0.0}  # no token follows the first one
        over = self._over(summary["ttft_s"]["p95"], tpot["p95"], power)
        over = {name: float(x) for name, x in over.items()}
        over["stable"] = 0.0 if stable else math.inf
        flow = summary["output_token_throughput_per_s"]
        watts = [power, *(0.0 for _ in gpus[1:])]
        cost = sum(map(self._cost, numbers, gpus, watts))
        energy = summary.get(
            "wall_energy_j_per_output_token", summary["energy_j_per_output_token"]
        )
        value = score(self.objective, sum(gpus), energy, cost / flow)
        hourly = None if math.isnan(cost) else float(_HOUR * cost)
        one = self.candidates[number]
        return Priced(one, *side, summary, limit, float(value), hourly, over)

    # --- What binds

    def elasticities(self, table: Table, rows: np.ndarray) -> dict[str, float]:
        """Relative change of the best score when a limit is loosened by 10 %, over
        that; `rate`: with a lower rate, of candidates at the top."""
        numbers = set(table.candidate[rows[: self.request.top]].tolist())
        own = self.request.apart == "only"  # of pools apart alone
        table = table.take(table.apart | (not own))
        base = table.least(self.objective, {})
        if not math.isfinite(base):
            return {}
        names = [x for x in table.over if x != "num_gpus" or np.any(table.over[x] > 0)]
        least = {name: table.least(self.objective, {name: BEYOND}) for name in names}
        if self.load.rate is not None:
            tried = [(i, x.clocks, x.limits) for i, x in self.numbered if i in numbers]
            slower = self._points(tried, slower=1 / BEYOND)
            slower = slower.take(slower.apart | (not own))
            least["rate"] = slower.least(self.objective, {})
        return {
            name: math.log(x / base) / math.log(BEYOND) for name, x in least.items()
        }

    def refuse(self, table: Table):
        """Raises `Infeasible` with the nearest limit and what can be had."""
        table = table.take(~table.apart)
        if not table.stable.any():
            raise Infeasible(
                "`power_limit` cannot be kept by any deployment, not even at the "
                "lowest clock; give a higher one."
            )
        table = dataclasses.replace(
            table, stable=table.stable & (table.over["memory"] <= 1)
        )
        names = [x for x in table.over if x != "memory"]
        reach = {
            name: np.where(table.keeps({}, but=name), table.over[name], np.inf)
            for name in names
        }
        nearest = min(names, key=lambda x: reach[x].min())
        together = bool(np.isfinite(reach[nearest].min()))
        if not together:  # several limits at once: the one that is farthest away
            stable = {x: np.where(table.stable, table.over[x], np.inf) for x in names}
            nearest = max(names, key=lambda x: stable[x].min())
            reach = stable
        row = int(reach[nearest].argmin())
        one = self.candidates[int(table.candidate[row])]
        words = f"{table.gpus[row]:g} x {one.gpu} (tp {one.tp})"
        limit, share = self.limits.get(nearest, one.most_gpus), reach[nearest][row]
        reached = limit * share
        beside = "" if together else ", and other limits are not kept there, either"
        clock = f"{words} at {table.clock[row] / MHz:.0f} MHz{beside}"
        if nearest == "num_gpus":
            sentence = (
                f"`num_gpus` is {limit:g}, with which no deployment keeps the limits; "
                f"the least is {clock}."
            )
        elif nearest == "power_budget":
            sentence = (
                f"`power_budget` is {limit:g} W, which no deployment on offer keeps; "
                f"the least is {reached:.4g} W, with {clock}."
            )
        else:
            sentence = (
                f"`{nearest}` is {1e3 * limit:g} ms, which no deployment on offer "
                f"keeps; the least 95th percentile is {1e3 * reached:.4g} ms, with "
                f"{clock}."
            )
        raise Infeasible(sentence, **{nearest: float(reached)})


def _neighbours(values: np.ndarray, value: float, every: np.ndarray) -> np.ndarray:
    """Those of `every` from the neighbour of `value` below to the one above, among
    `values`."""
    rising = np.unique(values)
    place = int(np.searchsorted(rising, value))
    low, high = (rising[min(max(place + i, 0), len(rising) - 1)] for i in (-1, 1))
    return every[(every >= low) & (every <= high)]
