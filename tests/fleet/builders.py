"""Made-up fleets: as files, of any size, and small ones with all their plans listed."""

import dataclasses
import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from diffenergy.fleet._problem import Problem, Rows

Points = Sequence[tuple[str, str, int, float, float]]
"""model, gpu, GPUs of a replica, requests/s, W."""


def write_fleet(
    folder: Path,
    points: Points,
    demand: Sequence[Mapping[str, float]],
    pools: Sequence[Mapping[str, Any]],
    sites: Sequence[Mapping[str, Any]] = ({"name": "main"},),
    models: Mapping[str, Mapping[str, Any]] | None = None,
    latency: tuple[float, float] = (0.1, 0.01),
    **top: Any,
) -> str:
    """Path of a FLEET.toml; slots of 1 s, so that J are W."""
    lines = ["model,gpu,gpus_per_replica,requests_per_s,ttft_p95_s,tpot_p95_s,power_w"]
    ttft, tpot = latency
    lines += [f"{m},{g},{n},{r!r},{ttft},{tpot},{p!r}" for m, g, n, r, p in points]
    (folder / "points.csv").write_text("\n".join(lines) + "\n")
    lines = ["slot,model,requests_per_s"]
    lines += [f"{t},{m},{r!r}" for t, row in enumerate(demand) for m, r in row.items()]
    (folder / "demand.csv").write_text("\n".join(lines) + "\n")
    names = dict.fromkeys(name for row in demand for name in row)
    of_models = models or {}
    tables = {
        "sites": sites,
        "pools": pools,
        "models": [{"name": name, **of_models.get(name, {})} for name in names],
    }
    text = ['demand = "demand.csv"', 'points = "points.csv"']
    text += [f"{x} = {json.dumps(y)}" for x, y in ({"slot_s": 1.0} | top).items()]
    for name, entries in tables.items():
        for entry in entries:
            text.append(f"[[{name}]]")
            text += [f"{x} = {json.dumps(y)}" for x, y in entry.items()]
    path = folder / "fleet.toml"
    path.write_text("\n".join(text) + "\n")
    return str(path)


def one_pool(count: int, parked: float) -> list[dict[str, Any]]:
    """A pool `g` at the site `main`."""
    return [
        {"name": "g", "gpu": "x", "count": count, "site": "main", "parked_w": parked}
    ]


def random_fleet(
    seed: int,
    models: int,
    pools: int,
    gpus: int,
    *,
    clocks: int = 20,
    batches: int = 9,
    slots: int = 1,
    used: float = 0.65,
    tight: float | None = 0.8,
    start: float = 0.0,
) -> Problem:
    """Models of 1 to 70 G parameters on GPU types of different speed and power at two
    sites; `used`: share of the GPUs that the demand takes in the mean; `tight`: budget
    of the first site over what half of the fleet draws; `start`: s of loading."""
    draw = np.random.default_rng(seed)
    size = 10 ** draw.uniform(0, 1.8, models)
    speed, top = draw.uniform(0.4, 2.5, pools), draw.uniform(250, 700, pools)
    n = np.where(size[:, None] > 25, draw.choice([2, 4], (models, 1)), 1)
    n = np.broadcast_to(n, (models, pools))
    clock = np.linspace(0.4, 1.0, clocks)
    batch = 2.0 ** np.arange(batches)
    grid = np.meshgrid(np.arange(models), np.arange(pools), clock, batch, indexing="ij")
    flat: list[np.ndarray] = [x.reshape(-1) for x in grid]
    m, g, c, b = flat[0].astype(int), flat[1].astype(int), flat[2], flat[3]
    fit = draw.uniform(0.8, 1.25, (models, pools))[m, g]
    memory = size[m] / (speed[g] * fit * n[m, g] * (0.3 + 0.7 * np.minimum(1, 1.6 * c)))
    tpot = 0.002 * memory * (1 + b / (40 * c))
    rate = b / (128 * tpot)
    power = n[m, g] * top[g] * (0.28 + 0.2 * c + (0.25 + 0.27 * b / (b + 40)) * c**2.5)
    good = tpot < 0.002 * size[m] * 6 / speed.mean()
    rows = Rows(
        m, g, n[m, g].astype(float), rate, power, 10 * tpot, tpot, c * 2e9,
        np.full(len(m), np.nan), b, np.arange(len(m)),
    ).take(good)  # fmt: skip
    site = np.arange(pools) % 2
    count = np.full(pools, round(gpus / pools), float)
    best = np.zeros((models, pools))
    np.maximum.at(best, (rows.model, rows.pool), rows.rate / rows.gpus)
    share = draw.dirichlet(np.full(models, 3.0))
    wanted = used * count.sum() * share * np.median(best, axis=1)
    hour = np.arange(slots)
    shape = 1 + 0.4 * np.sin(2 * np.pi * (hour - 8) / 24) if slots > 1 else np.ones(1)
    noise = draw.uniform(0.9, 1.1, (slots, models))
    intensity = np.stack([135 + 0 * hour, 300 + 60 * np.sin(hour / 4)], axis=1)
    parked = draw.uniform(30, 90, pools)
    budget = np.full((slots, 2), np.inf)
    if tight is not None:
        half = 1.2 * (count * top * 0.8)[site == 0].sum()
        budget[:, 0] = tight * half
    return Problem(
        rows, shape[:, None] * noise * wanted, count, parked, site,
        np.array([1.2, 1.3]), budget, intensity / 3.6e6,
        start * rows.power, 3600.0, tuple(f"m{i}" for i in range(models)),
        tuple(f"g{i}" for i in range(pools)), ("a", "b"),
    )  # fmt: skip


def quiet(*_: object) -> None:
    """Hears of progress."""


# --- Small fleets, and their best plan by listing all counts: no solver, no bound.


def small_fleet(
    seed: int, *, models: int = 3, clocks: int = 5, slots: int = 4, starts: bool = True
) -> Problem:
    """Two GPU types of 3 GPUs at one or two sites, some with a budget that binds."""
    draw = np.random.default_rng(seed)
    sites = int(draw.integers(1, 3))
    m, g, c = (
        x.reshape(-1)
        for x in np.meshgrid(*map(np.arange, (models, 2, clocks)), indexing="ij")
    )
    clock = np.linspace(0.5, 1.0, clocks)[c]
    speed = draw.uniform(0.7, 1.5, (models, 2))[m, g]
    top = np.array([600.0, 350.0])[g]
    nothing = np.full(len(m), np.nan)
    rate = 10 * speed * clock * draw.uniform(0.95, 1.05, len(m))
    rows = Rows(
        m, g, np.ones(len(m)), rate, top * (0.3 + 0.7 * clock**2.2), nothing, nothing,
        clock * 2e9, nothing, nothing, np.arange(len(m)),
    )  # fmt: skip
    wanted = draw.uniform(0.0, 22.0, (slots, models)) * draw.choice(
        [0, 1, 1, 1], (slots, models)
    )
    weight = draw.uniform(0.2, 1.0, (slots, sites))
    budget = np.full((slots, sites), np.inf)
    if draw.random() < 0.6:
        budget[:, 0] = draw.uniform(900, 2200)
    joules = 3e5 * draw.random(models)[m] * starts
    return Problem(
        rows, wanted, np.array([3.0, 3.0]), draw.uniform(0, 110, 2),
        np.arange(2) % sites, draw.uniform(1.0, 1.4, sites), budget, weight, joules,
        3600.0, tuple(f"m{i}" for i in range(models)), ("g0", "g1"),
        ("a", "b")[:sites],
    )  # fmt: skip


def write_problem(folder: Path, problem: Problem) -> str:
    """Path of the FLEET.toml of a small fleet: its weights are g/kWh, each with one
    GPU a replica, and loading costs one energy a model."""
    rows, names = problem.rows, problem.models
    points = [
        (names[m], problem.pools[g], 1, float(rate), float(power))
        for m, g, rate, power in zip(
            rows.model, rows.pool, rows.rate, rows.power, strict=True
        )
    ]
    demand = [dict(zip(names, map(float, x), strict=True)) for x in problem.demand]
    sites = []
    for at, name in enumerate(problem.sites):
        carbon = [f"{t},{x!r}" for t, x in enumerate(problem.weight[:, at].tolist())]
        (folder / f"{name}.csv").write_text("\n".join(["slot,carbon", *carbon]))
        sites.append(
            {"name": name, "pue": float(problem.pue[at]), "carbon": f"{name}.csv"}
        )
        if np.isfinite(problem.budget[0, at]):
            sites[-1]["power_budget_w"] = float(problem.budget[0, at])
    pools = [
        {"name": name, "gpu": name, "count": int(problem.count[at]),
         "site": problem.sites[problem.site[at]], "parked_w": float(problem.parked[at])}
        for at, name in enumerate(problem.pools)
    ]  # fmt: skip
    start = {x: float(problem.start[rows.model == i][0]) for i, x in enumerate(names)}
    models = {name: {"start_j": joules} for name, joules in start.items()}
    return write_fleet(
        folder, points, demand, pools, sites, models, slot_s=problem.slot
    )


@dataclasses.dataclass(frozen=True)
class _State:
    replicas: tuple[int, ...]  # of (model, pool)
    cost: float


def best_value(problem: Problem) -> float:
    """Least objective over every plan, infinite where none keeps the limits; one GPU a
    replica, one pool a site or both pools at one."""
    slots = [_states(problem, slot) for slot in range(problem.slots)]
    if not all(slots):
        return np.inf
    pools = len(problem.count)
    rows = problem.rows
    joules = np.zeros((problem.demand.shape[1], pools))
    joules[rows.model, rows.pool] = problem.start
    price = np.array([state.cost for state in slots[0]])
    for slot in range(1, problem.slots):
        before = np.array([state.replicas for state in slots[slot - 1]])
        here = np.array([state.replicas for state in slots[slot]])
        each = (problem.weight[slot] * problem.pue)[problem.site] * joules
        rises = np.maximum(0, here[None] - before[:, None])
        change = rises @ each.reshape(-1)
        cost = np.array([state.cost for state in slots[slot]])
        price = (price[:, None] + change).min(axis=0) + cost
    return float(price.min())


def _states(problem: Problem, slot: int) -> list[_State]:
    """Least cost of a slot by how many replicas each model has on each pool."""
    per_model = [
        _model_states(problem, slot, model) for model in range(problem.demand.shape[1])
    ]
    weight = problem.slot * problem.weight[slot]
    base = problem.pue * np.bincount(
        problem.site, problem.count * problem.parked, minlength=len(problem.pue)
    )
    best: dict[tuple[int, ...], float] = {}
    for chosen in itertools.product(*per_model):
        used = sum(np.array(x[0]) for x in chosen)
        watts = base + sum(np.array(x[1]) for x in chosen)
        if (used > problem.count).any() or (watts > problem.budget[slot] + 1e-6).any():
            continue
        key = tuple(itertools.chain(*(x[0] for x in chosen)))
        cost = float(weight @ watts)
        best[key] = min(best.get(key, np.inf), cost)
    return [_State(key, cost) for key, cost in best.items()]


def _model_states(problem: Problem, slot: int, model: int) -> list[tuple[tuple, tuple]]:
    """(replicas by pool, W at the meter by site beyond parked) of a model's plans; of
    equal replicas those that no other draws less than everywhere."""
    rows, wanted = problem.rows, problem.demand[slot, model]
    options = []
    for pool in range(2):
        mine = np.flatnonzero((rows.model == model) & (rows.pool == pool))
        options.append(
            [
                list(x)
                for n in range(int(problem.count[pool]) + 1)
                for x in itertools.combinations_with_replacement(mine, n)
            ]
        )
    result: dict[tuple[int, int], list[np.ndarray]] = {}
    for first, second in itertools.product(*options):
        used = np.array(first + second, int)
        if rows.rate[used].sum() < wanted * (1 - 1e-9):
            continue
        site = problem.site[rows.pool[used]]
        extra = rows.power[used] - problem.parked[rows.pool[used]]
        watts = problem.pue * np.bincount(site, extra, minlength=len(problem.pue))
        result.setdefault((len(first), len(second)), []).append(watts)
    states = []
    for key, all_ in result.items():
        watts = np.unique(np.array(all_), axis=0)
        less = (watts[:, None] <= watts[None]).all(2) & (
            watts[:, None] < watts[None]
        ).any(2)
        states += [(key, tuple(x)) for x in watts[~less.any(axis=0)]]
    return states


# --- Larger fleets, whose rates are whole numbers: their best plan by dynamic
# programming over the GPUs used and the requests carried.


def whole_fleet(seed: int, models: int, slots: int) -> tuple[Points, list[dict]]:
    """Points at 40 clocks of each model on two GPU types, and demand by slot."""
    draw = np.random.default_rng(seed)
    points = []
    for model, gpu in itertools.product(range(models), "xy"):
        n, clock = int(draw.integers(1, 3)), np.sort(draw.uniform(0.4, 1.0, 40))
        rate = np.round(draw.uniform(6, 14) * n * clock)
        power = n * draw.uniform(250, 500) * (0.3 + 0.7 * clock**2.2)
        power *= draw.uniform(0.97, 1.03, len(clock))
        points += [
            (f"m{model}", gpu, n, float(r), float(p))
            for r, p in zip(rate, power, strict=True)
        ]
    demand = draw.integers(10, 80, (slots, models))
    return points, [{f"m{m}": float(x) for m, x in enumerate(row)} for row in demand]


def least_watts(points: Points, demand: Mapping[str, float], gpus: int) -> float:
    """Least W of whole replicas that carry a slot on two pools of so many GPUs each,
    parked at no watts."""
    whole = np.full((gpus + 1, gpus + 1), 0.0)  # by GPUs of x and of y at most
    for model, wanted in demand.items():
        carried = np.full((int(wanted) + 1, *whole.shape), np.inf)
        carried[0] = 0.0
        rows: dict[tuple[str, int, float], float] = {}
        for _, gpu, n, each, power in (x for x in points if x[0] == model):
            rows[gpu, n, each] = min(power, rows.get((gpu, n, each), np.inf))
        for rate in range(1, len(carried)):
            best = carried[rate]
            for (gpu, n, each), power in rows.items():
                rest = carried[max(rate - int(each), 0)] + power
                if gpu == "x":
                    np.minimum(best[n:], rest[:-n], out=best[n:])
                else:
                    np.minimum(best[:, n:], rest[:, :-n], out=best[:, n:])
        both = np.full_like(whole, np.inf)
        for i, j in itertools.product(range(gpus + 1), repeat=2):
            with_model = whole[i, j] + carried[-1][: gpus + 1 - i, : gpus + 1 - j]
            np.minimum(both[i:, j:], with_model, out=both[i:, j:])
        whole = both
    return float(whole[-1, -1])
