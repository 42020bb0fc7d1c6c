"""The best deployment: all points ranked, those that matter priced as `serve` does."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

from ...hardware import sm_clocks, spread_clocks
from ...results import Infeasible
from ...search import pareto_front
from ...units import MHz, kWh
from .._deployment import Deployment
from .._load import Load
from .._result import to_json
from .._solve import Question, answered, run_cached
from .._steady.figures import load_arrays
from .._step.table import StepCosts
from .pools import best_pools
from .rank import FULLEST, MOST_BATCH, Points, Ranked, rank, replica_numbers
from .request import Objective, SearchRequest
from .space import BEYOND, CLOCKS, Candidate

_TRIES: Final = 4
"""Points of a deployment that are priced until one keeps the limits."""
_LOOSE: Final = {"slo_ttft": 1.05, "slo_tpot": 1.01, "power_budget": 1.02}
"""Factors on limits in the ranking, by how far that is from the exact figures."""
_MOST_FRONT: Final = 8
_HOUR: Final = 3600.0


@dataclasses.dataclass(frozen=True)
class Table:
    """Points of all candidates, flat. `candidate`: its number; `clock` (Hz), batch
    `limit` and `replicas` of the point; `gpus` in all; `power`: W of all of them, with
    a node at the wall; `energy` (J) and `cost` of an output token; `stable`: whether
    the power limit is kept with room to the saturation; `over`: figures over their
    limits, by name."""

    candidate: np.ndarray
    clock: np.ndarray
    limit: np.ndarray
    replicas: np.ndarray
    gpus: np.ndarray
    power: np.ndarray
    energy: np.ndarray
    cost: np.ndarray
    stable: np.ndarray
    over: dict[str, np.ndarray]

    @property
    def group(self) -> np.ndarray:
        """Number of the deployment that points share: candidate and replicas."""
        return self.candidate * 1e9 + self.replicas

    def score(self, objective: Objective) -> np.ndarray:
        """What is to be least; of equal numbers of GPUs the one of least energy."""
        if objective == "gpus":
            return self.gpus + self.energy / (1 + self.energy)
        return self.cost if objective == "cost" else self.energy

    def keeps(self, factors: Mapping[str, float], but: str = "") -> np.ndarray:
        """Where limits times `factors` (1 where none is given) are kept, all `but`
        one."""
        keeps = self.stable.copy()
        for name, over in self.over.items():
            if name != but:
                keeps &= over <= factors.get(name, 1.0)
        return keeps

    def least(
        self, objective: Objective, factors: Mapping[str, float], but: str = ""
    ) -> float:
        """The least score of points that keep the limits; infinite if none does."""
        scores = self.score(objective)[self.keeps(factors, but)]
        return float(scores.min(initial=np.inf))

    def scaled(self, rows: np.ndarray, factors: Mapping[str, float]) -> "Table":
        """The table with figures over limits of some rows times factors."""
        over = {
            name: np.where(rows, self.over[name] * x, self.over[name])
            for name, x in factors.items()
        }
        return dataclasses.replace(self, over=self.over | over)


jax.tree_util.register_dataclass(Table, [x.name for x in dataclasses.fields(Table)], [])


@dataclasses.dataclass(frozen=True)
class Priced:
    """A point priced exactly: the JSON of `serve`, its figures over the limits, and its
    score (`Table.score`)."""

    candidate: Candidate
    deployment: Deployment
    costs: StepCosts | None
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
    loosened, over that of the limit, by its name."""

    priced: list[Priced]
    table: Table
    elasticities: dict[str, float]
    candidates: Sequence[Candidate]

    def best_rows(self) -> np.ndarray:
        """Rows of the table with the point of least energy of each deployment."""
        return _best_rows(self.table, self.table.energy)


class Search:
    """One search: its request, load and candidates; `price` remembers points."""

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
        table = self._joined([self.tabulate(i, x.clocks) for i, x in self.numbered])
        if not table.keeps(_LOOSE).any():
            self.refuse(table)
        if self.request.sm_clock is None:
            table = self._refined(table)
        rows, chosen = self._chosen(table)
        exact = [self.settle(table, row) for row in chosen]
        priced = [x for x in exact if x is not None]
        if not priced:
            self.refuse(table)
        priced += self._apart()
        # of equals the one of least energy; `only`: pools before all others
        first = self.request.pools == "only"
        priced.sort(key=lambda x: (first and not x.apart, x.score, x.energy))
        return Choice(priced, table, self.elasticities(table, rows), self.candidates)

    def _chosen(self, table: Table) -> tuple[np.ndarray, list[int]]:
        """Rows with the best point of each deployment, the best first, and those of
        them that matter: the first, the front of GPUs and power, the best of each
        GPU."""
        rows = _best_rows(table, table.energy)
        order = np.argsort(table.score(self.objective)[rows], kind="stable")
        rows = rows[order]
        names = np.array([x.gpu for x in self.candidates])[table.candidate[rows]]
        first = np.unique(names, return_index=True)[1]
        front = rows[pareto_front(table.gpus[rows], table.power[rows])]
        front = front[np.argsort(table.gpus[front])][:_MOST_FRONT]
        chosen = [*rows[: self.request.top], *front, *rows[first]]
        return rows, list(dict.fromkeys(map(int, chosen)))

    @property
    def numbered(self) -> list[tuple[int, Candidate]]:
        """Candidates with their numbers."""
        return list(enumerate(self.candidates))

    def tabulate(
        self,
        number: int,
        clocks: np.ndarray,
        limits: np.ndarray | None = None,
        slower: float = 1.0,
    ) -> Table:
        """Points of a candidate at clocks (Hz) with batch limits [its own]; `slower`:
        factor on the load."""
        one = self.candidates[number]
        limits = one.limits if limits is None else limits
        rate, clients = self.load.rate, self.load.concurrency
        points = Points(
            one.deployment.server(self.costs[number]),
            load_arrays(1.0, clients and clients * slower, rate and rate * slower),
            # repeats fill up to one shape, so that candidates share a program
            jnp.asarray(np.resize(clocks, CLOCKS * math.ceil(len(clocks) / CLOCKS))),
            jnp.asarray(limits),
            jnp.asarray(replica_numbers(clients, one.most_gpus / one.tp)),
            rate is not None,
        )
        ranked = run_cached(rank, (points,))
        return self._table(number, np.asarray(points.clocks), limits, ranked)

    def _table(
        self, number: int, clocks: np.ndarray, limits: np.ndarray, ranked: Ranked
    ) -> Table:
        x: Any = jax.tree.map(np.asarray, ranked)
        one = self.candidates[number]
        gpus, flow = x.replicas * one.tp, x.replicas * x.flow
        power, site = _at_wall(one.deployment, gpus, x.power)
        hourly = self.cost_per_hour(one.deployment, gpus, site)
        cost = np.full(gpus.shape, np.nan) if hourly is None else hourly / _HOUR / flow
        limit = np.broadcast_to(limits[:, None], gpus.shape)
        fits = max(math.floor(one.deployment.fits), 1)
        over = {"slo_ttft": x.ttft, "slo_tpot": x.tpot, "power_budget": power}
        over = {name: over[name] / value for name, value in self.limits.items()}
        over |= {"num_gpus": gpus / one.most_gpus, "memory": limit / fits}
        table = Table(
            np.full(gpus.shape, number),
            np.broadcast_to(clocks[:, None, None], gpus.shape),
            limit,
            x.replicas,
            gpus,
            power,
            power / flow,
            cost,
            # a figure without a value (no balance) keeps no limit
            x.feasible & (x.load <= FULLEST + 1e-9) & np.isfinite(power / flow),
            {name: np.where(np.isnan(v), np.inf, v) for name, v in over.items()},
        )
        return jax.tree.map(np.ravel, table)

    def cost_per_hour(self, one: Deployment, gpus: Any, site_power: Any) -> Any:
        """Price of GPUs, and of the energy of a site (W), an hour; None where no price
        of the GPU is given."""
        prices, site = self.request.gpu_price or {}, one.site
        if one.card.name not in prices:
            return None
        energy = 0.0
        if site is not None and site.price is not None:
            energy = site.price * site_power * _HOUR / (1e3 * kWh)
        return prices[one.card.name] * gpus + energy

    @staticmethod
    def _joined(tables: Sequence[Table]) -> Table:
        return jax.tree.map(lambda *x: np.concatenate(x), *tables)

    def _refined(self, table: Table) -> Table:
        """The table with clocks and batch limits between the neighbours of the best
        ones, of deployments that matter."""
        more = []
        for row in self._chosen(table)[1]:
            number = int(table.candidate[row])
            one = self.candidates[number]
            board = sm_clocks(one.deployment.card)[::-1]
            near = _between(one.clocks, table.clock[row], board)
            limits = one.limits
            if self.load.max_batch is None:
                every = np.arange(1.0, MOST_BATCH + 1)
                limits = _between(limits, table.limit[row], every)
                limits = np.resize(
                    spread_clocks(limits, len(one.limits)), one.limits.shape
                )
            key = number, tuple(near), tuple(limits)
            if key not in more:
                more.append(key)
        tables = [
            self.tabulate(i, spread_clocks(np.array(near), CLOCKS), np.array(limits))
            for i, near, limits in more
        ]
        return self._joined([table, *tables])

    def settle(self, table: Table, row: int) -> Priced | None:
        """The best point of the deployment of `row` that keeps the limits exactly; None
        if there is none near. Where a point does not keep them, the ranking of the
        deployment is corrected by its exact figures."""
        group = table.group == table.group[row]
        for _ in range(_TRIES):
            scores = np.where(group & table.keeps(_LOOSE), table.energy, np.inf)
            row = int(scores.argmin())
            if not np.isfinite(scores[row]):
                return None
            priced = self.price(table, row)
            if priced.feasible:
                return priced
            factors = {
                name: priced.over[name] / table.over[name][row] * _LOOSE[name]
                for name in self.limits
            }
            table = table.scaled(group, factors)
        return None

    def price(self, table: Table, row: int) -> Priced:
        """A point as `serve` prices it."""
        one = self.candidates[int(table.candidate[row])]
        limit, replicas = float(table.limit[row]), int(table.replicas[row])
        deployment = one.at(self.load, float(table.clock[row]), limit, replicas)
        costs = deployment.costs()
        question = Question(
            deployment.server(costs),
            deployment.load_arrays(),
            deployment.mode,
            # as many for all limits: one program
            MOST_BATCH if deployment.mode == "open" else 0,
        )
        figures = jax.device_get(run_cached(answered, (question,)))
        summary = to_json(deployment, figures)
        over = {
            "slo_ttft": summary["ttft_s"]["p95"],
            "slo_tpot": summary["tpot_s"]["p95"],
            "power_budget": summary.get("wall_power_w", summary["avg_power_w"]),
        }
        over = {name: over[name] / value for name, value in self.limits.items()}
        stable = bool(figures.feasible) and (
            self.load.rate is None or float(figures.load) <= FULLEST * 1.01
        )
        over["stable"] = 0.0 if stable else math.inf
        hourly = self.cost_per_hour(
            deployment, deployment.plan.gpus, summary.get("site_power_w", 0.0)
        )
        priced = Priced(one, deployment, costs, summary, limit, 0.0, hourly, over)
        return self._scored(priced)

    def _scored(self, priced: Priced) -> Priced:
        """A priced point with its score."""
        flow, hourly = (
            priced.summary["output_token_throughput_per_s"], priced.cost_per_hour
        )  # fmt: skip
        score = {
            "energy": priced.energy,
            "cost": math.nan if hourly is None else hourly / _HOUR / flow,
            "gpus": priced.gpus + priced.energy / (1 + priced.energy),
        }
        return dataclasses.replace(priced, score=score[self.objective])

    def _apart(self) -> list[Priced]:
        """The best pools of prefill and decode apart, if they are searched.

        Raises `Infeasible` where nothing else is and none keeps the limits."""
        if self.request.pools == "no":
            return []
        best = best_pools(self.request, self.load, self.candidates, self.costs)
        if best is None:
            if self.request.pools == "only":
                raise Infeasible(
                    "`pools` is only, but no prefill and decode pools apart keep the "
                    "limits; give auto."
                )
            return []
        summary, sides = best.summary, best.exact[:2]
        parts = [
            self.cost_per_hour(x.deployment, x.deployment.plan.gpus, 0.0) for x in sides
        ]
        hourly = None if None in parts else sum(parts)
        site = sides[1].deployment.site
        if hourly is not None and site is not None and site.price is not None:
            hourly += site.price * summary["site_power_w"] * _HOUR / (1e3 * kWh)
        decode = sides[1].deployment
        one = next(x for x in self.candidates if x.gpu == decode.card.name)
        return [
            self._scored(
                Priced(one, decode, None, summary, decode.slots, 0.0, hourly, {})
            )
        ]

    def elasticities(self, table: Table, rows: np.ndarray) -> dict[str, float]:
        """Relative change of the best score when a limit is loosened by 10 %, over
        that; `rate`: with a lower rate, of candidates at the top."""
        base = table.least(self.objective, {})
        if not math.isfinite(base):
            return {}
        names = [x for x in table.over if x != "num_gpus" or np.any(table.over[x] > 0)]
        least = {name: table.least(self.objective, {name: BEYOND}) for name in names}
        if self.load.rate is not None:
            numbers = dict.fromkeys(table.candidate[rows[: self.request.top]].tolist())
            slower = self._joined(
                [
                    self.tabulate(i, self.candidates[i].clocks, slower=1 / BEYOND)
                    for i in numbers
                ]
            )
            least["rate"] = slower.least(self.objective, {})
        return {
            name: math.log(x / base) / math.log(BEYOND) for name, x in least.items()
        }

    def refuse(self, table: Table):
        """Raises `Infeasible` with the nearest limit and what can be had."""
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


def _between(values: np.ndarray, value: float, every: np.ndarray) -> np.ndarray:
    """Those of `every` from the neighbour of `value` below to the one above, among
    `values`."""
    rising = np.unique(values)
    place = int(np.searchsorted(rising, value))
    low, high = (rising[min(max(place + i, 0), len(rising) - 1)] for i in (-1, 1))
    return every[(every >= low) & (every <= high)]


def _best_rows(table: Table, scores: np.ndarray) -> np.ndarray:
    """The row of least score of each deployment (`group`) that keeps the limits as the
    ranking has them; of equals the one of highest clock."""
    rows = np.flatnonzero(table.keeps(_LOOSE))
    order = rows[np.lexsort((-table.clock[rows], scores[rows].round(12)))]
    return order[np.unique(table.group[order], return_index=True)[1]]


def _at_wall(
    deployment: Deployment, gpus: np.ndarray, power: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """W of all GPUs that draw `power` W each, with a node at the wall, and of their
    site."""
    site = deployment.site
    if site is None:
        return gpus * power, np.zeros_like(power)
    wall = np.empty_like(power)
    for number in np.unique(gpus):
        here = gpus == number
        watts = power[here][:, None]
        wall[here] = site.energies(np.ones_like(watts), watts, int(number)).wall
    return wall, site.pue * wall
