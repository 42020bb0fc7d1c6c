"""How far from the bound fleets of several sizes are planned, and in which time.

    python tests/benchmarks/table_fleet.py [--seeds 1,2,3] [--seconds S] [SIZE ...]

Each seed is another fleet, planned with the effort of its size or S (s of work).
Sizes: 5, 50, 500, day (500 models, 24 slots), week (6 models, 168 slots with starts, 5
pools). Two sites of
135 and about 300 g/kWh, objective carbon, the budget of the clean one a fifth below
what it would take; models and GPUs are made up.
"""

import argparse
import dataclasses
import sys
import time

import numpy as np
from scipy import sparse

from diffenergy.fleet._bound import cover, limits
from diffenergy.fleet._problem import Problem, hull_rows, site_power
from diffenergy.fleet._solve import Solved, solve, useful
from diffenergy.fleet._work import Work

sys.path.insert(0, ".")
from tests.fleet.builders import quiet, random_fleet

SIZES = {
    "5": (dict(models=5, pools=10, gpus=100), 5.0),
    "50": (dict(models=50, pools=10, gpus=1_000), 20.0),
    "500": (dict(models=500, pools=10, gpus=10_000, clocks=100), 10.0),
    "day": (dict(models=500, pools=10, gpus=10_000, clocks=100, slots=24), 60.0),
    "week": (dict(models=6, pools=5, gpus=300, slots=168, start=60.0), 60.0),
}
"""Fleet, and the effort to plan it (s of work on an idle core)."""


def tightened(problem: Problem) -> Problem:
    """With 0.8 of what the first site would take in its hardest slot as its budget."""
    from scipy.optimize import linprog

    small = useful(problem)
    small = small.take(hull_rows(small))
    slot = int(problem.demand.sum(axis=1).argmax())
    pools = len(problem.count)
    matrix = sparse.vstack([-cover(small), limits(small)[:pools]])
    upper = np.r_[-small.demand[slot], small.count]
    result = linprog(small.cost(slot), matrix, upper, method="highs")
    used = (limits(small)[:pools] @ result.x).sum() / small.count.sum()
    print(f"{100 * used:.0f} % of the GPUs used without a budget;", end=" ")
    free = site_power(small.at(slice(slot, slot + 1)), result.x[None])[0, 0]
    budget = problem.budget.copy()
    budget[:, 0] = 0.8 * free
    return dataclasses.replace(problem, budget=budget)


def main(names: list[str], seeds: list[int], arguments: float | None) -> None:
    for name in names or list(SIZES):
        size, seconds = SIZES[name]
        used = 0.7 if "slots" not in size else 0.5
        for seed in seeds:
            problem = tightened(random_fleet(seed, used=used, tight=None, **size))
            begun, computed = time.perf_counter(), time.process_time()
            result = solve(problem, 1e-3, Work(arguments or seconds), quiet)
            took = time.perf_counter() - begun
            computed = time.process_time() - computed
            assert isinstance(result, Solved), (result.slots, result.proven)
            alone = 100 * (1 - result.price_bound / result.value)
            print(
                f"{name}, seed {seed}: {len(problem.rows):,} rows, {problem.slots} "
                f"slots, {took:.1f} s ({computed:.1f} s of CPU): gap "
                f"{100 * result.gap:.2f} %, {alone:.2f} % above what the prices alone "
                "prove",
                flush=True,
            )


if __name__ == "__main__":
    words = argparse.ArgumentParser()
    words.add_argument("sizes", nargs="*", metavar="SIZE")
    words.add_argument("--seeds", default="1")
    words.add_argument("--seconds", type=float)
    flags = words.parse_args()
    main(flags.sizes, [int(x) for x in flags.seeds.split(",")], flags.seconds)
