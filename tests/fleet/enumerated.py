"""Small fleets, and their best plan by listing all counts: no solver, no bound."""

import dataclasses
import itertools

import numpy as np

from diffenergy.fleet._problem import Problem, Rows


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
    found: dict[tuple[int, int], list[np.ndarray]] = {}
    for first, second in itertools.product(*options):
        used = np.array(first + second, int)
        if rows.rate[used].sum() < wanted * (1 - 1e-9):
            continue
        site = problem.site[rows.pool[used]]
        extra = rows.power[used] - problem.parked[rows.pool[used]]
        watts = problem.pue * np.bincount(site, extra, minlength=len(problem.pue))
        found.setdefault((len(first), len(second)), []).append(watts)
    states = []
    for key, all_ in found.items():
        watts = np.unique(np.array(all_), axis=0)
        less = (watts[:, None] <= watts[None]).all(2) & (
            watts[:, None] < watts[None]
        ).any(2)
        states += [(key, tuple(x)) for x in watts[~less.any(axis=0)]]
    return states
