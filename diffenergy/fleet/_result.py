"""`FleetResult`: the plan of a fleet, and its summary, the JSON of the command."""

import csv
import dataclasses
import io
import os
from typing import Any, ClassVar, Final

import numpy as np
from jaxtyping import Float

from ..power_time import PowerCurve
from ..results import Result, finite, written
from ..units import MHz
from ._bound import Prices
from ._build_problem import NEEDS
from ._hosts import OFF, Hosts
from ._problem import Problem, site_power, starts_of, summed
from ._refusal import headroom
from ._solve import OPTIMAL, Solved
from ._spec import Fleet
from ._tables import Series

PLAN: Final = (
    "slot", "model", "pool", "row", "replicas", "gpus_per_replica", "sm_clock_mhz",
    "power_limit_w", "max_batch", "requests_per_s", "ttft_p95_s", "tpot_p95_s",
    "power_w",
)  # fmt: skip
"""Keys of an entry of `plan`; the last four are of one replica. With nodes
`wall_power_w` follows."""
_TOTAL: Final = {"energy": "energy_j", "cost": "cost", "carbon": "carbon_g"}


@dataclasses.dataclass(frozen=True, repr=False)
class FleetResult(Result):
    """A planned fleet.

    `summary`: the JSON of `diffenergy fleet --json`; `solved`: whole replicas of every
    useful row by slot, bound and prices; `series`: demand, budgets, carbon and price as
    read; `notes`: what a person should know beside the numbers.
    """

    view: ClassVar[str] = "fleet"
    summary: dict[str, Any]
    solved: Solved
    series: Series
    notes: list[str]

    @property
    def value(self) -> float:
        """J, currency or g, as the objective."""
        return self.summary["value"]

    @property
    def bound(self) -> float:
        """Bound of the objective: no plan has less."""
        return self.summary["bound"]

    @property
    def gap(self) -> float:
        """(value - bound) / |value|."""
        return self.summary["gap"]

    @property
    def curves(self) -> dict[str, PowerCurve]:
        """Power over the slots: of `boards` that run, at the meters of all sites
        (`site`), and of each (`site_NAME`)."""
        s = self.summary
        slots = s["slots"]
        watts = {name: np.zeros(slots) for name in ("boards", "site")}
        for x in s["plan"]:
            watts["boards"][x["slot"]] += x["replicas"] * x["power_w"]
        for x in s["site_power"]:
            own = watts.setdefault(f"site_{x['site']}", np.zeros(slots))
            own[x["slot"]] = x["power_w"]
            watts["site"][x["slot"]] += x["power_w"]
        edges = s["slot_s"] * np.arange(slots + 1.0)
        return {name: PowerCurve(edges, x) for name, x in watts.items()}

    def to_csv(self, path: str | os.PathLike[str] | None = None) -> str:
        """The plan as a table, a row for each entry of `plan` in the summary; also
        written to `path`, if given."""
        text = io.StringIO()
        entries = self.summary["plan"]
        columns = dict.fromkeys((*PLAN, *(entries[0] if entries else ())))
        lines = csv.DictWriter(text, list(columns), lineterminator="\n")
        lines.writeheader()
        lines.writerows(entries)
        return written(text.getvalue(), path)


def fleet_summary(
    fleet: Fleet, hosts: Hosts, solved: Solved, series: Series, objective: str
) -> dict[str, Any]:
    """Value and bound in the objective's unit, the plan, prices, headroom.

    Where a price is below 0 the plan was decided as if it were 0; `value` has the true
    one, and `bound` is moved by the same difference.
    """
    if objective in NEEDS and not np.any(getattr(series, NEEDS[objective]) > 0):
        solved = _free(solved)
    problem, counts = solved.problem, solved.counts
    totals = _totals(_joules(problem, counts), series)
    value = totals[_TOTAL[objective]]
    assert value is not None
    moved = value - solved.value
    bound = min(value, solved.bound + moved)
    gap = (value - bound) / max(abs(value), 1e-300)
    assumed = dict(series.assumed)
    if any(pool.hosts == "off" for pool in fleet.pools):
        assumed["hosts"] = OFF
    return {
        "status": "optimal" if gap <= OPTIMAL else "feasible",
        "objective": objective,
        "unit": {"energy": "J", "carbon": "g", "cost": series.currency}[objective],
        "currency": series.currency,
        "assumed": assumed,
        "value": value,
        "bound": bound,
        "gap": gap,
        "bound_by_prices": min(value, solved.price_bound + moved),
        **totals,
        **(_wall(fleet, hosts, problem, counts) if hosts else {}),
        "slots": problem.slots,
        "slot_s": problem.slot,
        "plan": _plan(problem, counts, bool(hosts)),
        "starts": _starts(problem, counts),
        "site_power": _site_power(problem, counts),
        "shadow_prices": _prices(fleet, solved),
        "headroom": headroom(problem),
        "pricing": None,
        "search": None,
        "seconds": None,
    }


def _free(solved: Solved) -> Solved:
    """A plan where no joule costs anything: the least weight, by which the plan that
    takes least power was chosen, has no place in figures."""
    problem = dataclasses.replace(solved.problem, weight=0 * solved.problem.weight)
    nothing = [Prices(0 * x.gpu, 0 * x.watt, 0 * x.request, 0.0) for x in solved.prices]
    return dataclasses.replace(
        solved, problem=problem, value=0.0, bound=0.0, prices=nothing, price_bound=0.0
    )


def _joules(
    problem: Problem, counts: Float[np.ndarray, "slot row"]
) -> Float[np.ndarray, "slot site"]:
    """Energy at the meter, starts included."""
    energy = problem.slot * site_power(problem, counts)
    first = problem.firsts
    site = problem.row_site[first]
    each = problem.pue[site] * problem.start[first]
    return energy + summed(starts_of(problem, counts) * each, site, energy.shape[1])


def _totals(
    energy: Float[np.ndarray, "slot site"], series: Series
) -> dict[str, float | None]:
    """J, currency and g; None without the series."""
    cost, carbon = (
        None if each is None else float((energy * each).sum()) / joules_
        for each, joules_ in ((series.price, 3.6e9), (series.carbon, 3.6e6))
    )
    return {"energy_j": float(energy.sum()), "cost": cost, "carbon_g": carbon}


def _wall(
    fleet: Fleet, hosts: Hosts, problem: Problem, counts: np.ndarray
) -> dict[str, Any]:
    """Keys of a fleet with nodes: what each pool's are, and energy by part (J), which
    add up to that at the meters. Idle: parked GPUs with their hosts, and spare
    servers; loading counts for accelerators and hosts as its boards and `gain` do."""
    rows, pools = problem.rows, range(len(problem.pools))
    of = rows.pool
    board = rows.power / rows.gpus
    boards = np.array([hosts.shares(p, board) for p in pools])[of, np.arange(len(of))]
    spare = rows.gpus * hosts.idle[of]
    running = problem.power - spare
    first = problem.firsts
    gain = np.array([x[0].gain if x else 0.0 for x in hosts.sites])[of]
    starts = starts_of(problem, counts).sum(axis=0) * problem.start[first]
    total = problem.slot * counts.sum(axis=0)
    used = np.bincount(of, total * rows.gpus, len(pools))
    idle = hosts.parked * (problem.slot * problem.slots * problem.count - used)
    by_pool = {
        "accelerator": np.bincount(of, total * running * boards, len(pools))
        + np.bincount(of[first], starts / (1 + gain[first]), len(pools)),
        "host": np.bincount(of, total * running * (1 - boards), len(pools))
        + np.bincount(of[first], starts * (1 - 1 / (1 + gain[first])), len(pools)),
        "idle": np.bincount(of, total * spare, len(pools)) + idle,
    }
    pue = problem.pue[problem.site]
    overhead = (pue - 1) @ sum(by_pool.values())
    nodes = [
        {
            "pool": pool.name,
            "name": site[0].name,
            "gpus": site[0].gpus,
            "nodes": pool.count / site[0].gpus,
            "grade": site[0].grade,
            "host_power_w_per_gpu": float(hosts.each[at]),
            "wall_per_board_power": float(hosts.slope[at]),
            "parked_power_w": float(hosts.parked[at]),
        }
        for at, (pool, site) in enumerate(zip(fleet.pools, hosts.sites, strict=True))
        if site
    ]
    parts = {name: float(x.sum()) for name, x in by_pool.items()}
    parts["overhead"] = float(overhead)
    return {"nodes": nodes, "wall_energy_j_by_part": parts}


def _plan(
    problem: Problem, counts: np.ndarray, with_nodes: bool
) -> list[dict[str, Any]]:
    rows = problem.rows
    wall = problem.power
    slots, used = np.nonzero(counts)
    order = np.lexsort((used, rows.pool[used], rows.model[used], slots))
    entries = []
    for slot, row in zip(slots[order], used[order], strict=True):
        source = int(rows.source[row])
        clock, limit, batch = (
            finite(float(x[row]))
            for x in (rows.sm_clock, rows.power_limit, rows.max_batch)
        )
        values = (
            int(slot), problem.models[rows.model[row]], problem.pools[rows.pool[row]],
            None if source < 0 else source, int(counts[slot, row]),
            int(rows.gpus[row]), None if clock is None else round(clock / MHz, 6),
            limit, None if batch is None else int(batch), float(rows.rate[row]),
            finite(float(rows.ttft[row])), finite(float(rows.tpot[row])),
            float(rows.power[row]),
        )  # fmt: skip
        entry: dict[str, Any] = dict(zip(PLAN, values, strict=True))
        if with_nodes:
            entry["wall_power_w"] = float(wall[row])
        entries.append(entry)
    return entries


def _starts(problem: Problem, counts: np.ndarray) -> list[dict[str, Any]]:
    """Replicas that are loaded after the first slot, by model and pool."""
    rises, first = starts_of(problem, counts), problem.firsts
    model, pool = problem.rows.model[first], problem.rows.pool[first]
    sums: dict[tuple[int, int, int], int] = {}
    for slot, place in zip(*np.nonzero(rises), strict=True):
        key = (int(slot), int(model[place]), int(pool[place]))
        sums[key] = sums.get(key, 0) + int(rises[slot, place])
    return [
        {
            "slot": slot,
            "model": problem.models[of],
            "pool": problem.pools[at],
            "replicas": number,
        }
        for (slot, of, at), number in sorted(sums.items())
    ]


def _site_power(problem: Problem, counts: np.ndarray) -> list[dict[str, Any]]:
    drawn = site_power(problem, counts)
    return [
        {
            "slot": slot,
            "site": name,
            "power_w": float(drawn[slot, site]),
            "budget_w": finite(problem.budget[slot, site]),
        }
        for slot in range(problem.slots)
        for site, name in enumerate(problem.sites)
    ]


def _prices(fleet: Fleet, solved: Solved) -> list[dict[str, Any]]:
    """Prices of every slot, which prove `bound_by_prices` by arithmetic:

    sum_slots (sum request demand - sum gpu count - sum watt (budget - parked power)
    + weight slot_s parked power), parked power at the meter with every GPU parked.
    """
    problem, entries = solved.problem, []
    site, parked = problem.site, problem.parked
    for slot, prices in enumerate(solved.prices):
        weight = problem.weight[slot] * problem.slot
        for at, name in enumerate(problem.sites):
            if np.isfinite(problem.budget[slot, at]):
                value = float(prices.watt[at])
                entries.append(_price(slot, "watt", "site", name, value))
        for pool, name in enumerate(problem.pools):
            value, at = float(prices.gpu[pool]), site[pool]
            brought = problem.pue[at] * parked[pool] * (weight[at] + prices.watt[at])
            entry = _price(slot, "gpu", "pool", name, value)
            entries.append(entry | {"net": value - float(brought)})
        for model, name in enumerate(problem.models):
            value = float(prices.request[model]) * (1 + fleet.headroom)
            entries.append(_price(slot, "request", "model", name, value))
    return entries


def _price(slot: int, kind: str, what: str, name: str, value: float) -> dict[str, Any]:
    return {"slot": slot, "kind": kind, what: name, "value": value}
