"""A planned fleet by slot: models in each pool, power of every site."""

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from jaxtyping import Float

from ...charts import Axis, Boxes, Chart, Line, Mark, Panel, Reading, Rule, stacked
from .._format import Entry
from .._page.markup import si

if TYPE_CHECKING:
    from ...fleet import FleetResult

_POOLS: Final = 6
"""Maximum number of pools drawn, those with most GPUs."""
_MODELS: Final = 7
"""Maximum number of models with their own colour, those with most GPUs."""
_SITES: Final = (6, 4, 2, 3, 5, 7)
"""Colours of sites, distinct from those of the first models."""


def fleet_charts(result: "FleetResult", title: str) -> dict[str, Chart]:
    """Return all panels as one chart, then the GPUs of each pool and the power of the
    sites as charts of their own."""
    summary, pools = result.summary, largest_pools(result)
    charts = {f"pool-{pool.name}": _pool(pool, summary) for pool in pools}
    charts["power"] = _power(summary)
    return {"fleet": stacked(title, list(charts.values())), **charts}


class Pool(NamedTuple):
    """Data of a pool's chart. `models`: colour, name, and GPUs in each slot."""

    number: int
    name: str
    gpus: float
    models: list[tuple[int, str, Float[np.ndarray, " slot"]]]


def largest_pools(result: "FleetResult") -> list[Pool]:
    """Return the largest pools with the GPUs of each large model and of all other
    models together."""
    summary, problem = result.summary, result.solved.problem
    used = np.zeros((len(problem.pools), len(problem.models), summary["slots"]))
    names = problem.pools, problem.models
    pool_of, model_of = ({x: i for i, x in enumerate(items)} for items in names)
    for entry in summary["plan"]:
        place = pool_of[entry["pool"]], model_of[entry["model"]], entry["slot"]
        used[place] += entry["replicas"] * entry["gpus_per_replica"]
    each = used.sum(axis=(0, 2))
    first = np.argsort(-each, kind="stable")[:_MODELS]
    models = np.sort(first[each[first] > 0])
    panels = []
    for pool in sorted(np.argsort(-problem.count, kind="stable")[:_POOLS].tolist()):
        rows = [(i, problem.models[x], used[pool, x]) for i, x in enumerate(models)]
        rest = np.delete(used[pool], models, axis=0).sum(axis=0)
        if rest.any():
            rows.append((_MODELS, "others", rest))
        panels.append(Pool(pool, problem.pools[pool], float(problem.count[pool]), rows))
    return panels


class Site(NamedTuple):
    """Power at the meter (W) of a site and its budget (W) in each slot; NaN: no
    budget."""

    power: Float[np.ndarray, " slot"]
    budget: Float[np.ndarray, " slot"]


def site_power(summary: Entry) -> dict[str, Site]:
    """Return the power and budget of every site by name (W)."""
    draws: dict[str, tuple[list[float], list[float]]] = {}
    for entry in summary["site_power"]:
        power, budget = draws.setdefault(entry["site"], ([], []))
        power.append(entry["power_w"])
        budget.append(np.nan if entry["budget_w"] is None else entry["budget_w"])
    return {name: Site(*map(np.array, both)) for name, both in draws.items()}


def _pool(pool: Pool, summary: Entry) -> Chart:
    """Stacked chart of a pool's GPUs by model, with its number of GPUs as a rule."""
    slots, count = summary["slots"], pool.gpus
    edges, floor = [float(x) for x in range(slots + 1)], np.zeros(slots)
    marks: list[Mark] = []
    for colour, name, used in pool.models:
        if used.any():
            low, high = floor.tolist(), (floor + used).tolist()
            marks.append(Boxes(edges[:-1], edges[1:], low, high, name, colour))
            floor = floor + used
    marks.append(Rule(count, f"all {count:g}"))
    readings = []
    for slot in range(slots):
        here = [f"{who} {used[slot]:g}" for _, who, used in pool.models if used[slot]]
        words = ", ".join([*here, f"parked {count - floor[slot]:g}"])
        readings.append(
            Reading(float(slot), float(floor[slot]), f"slot {slot}: {words}")
        )
    y = Axis("GPUs", zero=True, high=1.08 * max(count, 1.0), whole=True)
    panel = Panel(_slots(summary), y, marks, readings, spans=True, height=130.0)
    caption = f"Its {count:g} GPUs are the dashed line; what is free is parked."
    return Chart(f"GPUs of {pool.name}", [panel], caption, half=True)


def _power(summary: Entry) -> Chart:
    """Chart of the power at the meter of every site (W), with dashed budgets."""
    sites, slots = site_power(summary), summary["slots"]
    edges = [float(x) for x in range(slots + 1)]
    marks: list[Mark] = []
    for number, (name, site) in enumerate(sites.items()):
        colour = _SITES[number % len(_SITES)]
        for values, dashed in ((site.power, False), (site.budget, True)):
            if np.isnan(values).all():
                continue
            y = [*values.tolist(), float(values[-1])]
            what = f"budget of {name}" if dashed else name
            look = {"width": 1.4 if dashed else 2.2, "dashed": dashed, "step": True}
            marks.append(Line(edges, y, what, colour, **look))
    texts = [
        f"slot {slot}: "
        + ", ".join(
            f"{name} {si(power[slot], 'W')}"
            + (f" of {si(most[slot], 'W')}" if most[slot] == most[slot] else "")
            for name, (power, most) in sites.items()
        )
        for slot in range(slots)
    ]
    first = next(iter(sites.values())).power.tolist()
    pairs = enumerate(zip(first, texts, strict=True))
    readings = [Reading(float(slot), *pair) for slot, pair in pairs]
    y = Axis("power at the meter", "W", zero=True)
    panel = Panel(_slots(summary), y, marks, readings, spans=True)
    caption = "Mean power of a slot with parked GPUs and PUE; budgets are dashed."
    return Chart("Power at the meter", [panel], caption)


def _slots(summary: Entry) -> Axis:
    slots = float(summary["slots"])
    title = f"slot of {summary['slot_s']:g} s"
    return Axis(title, zero=True, high=slots, whole=True)
