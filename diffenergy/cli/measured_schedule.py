"""From a measured table and the flags of `dvfs` to a schedule."""

import dataclasses
import math
from typing import TYPE_CHECKING, Any

from . import engine, parse
from .flags import Flags
from .wishes import Answer, Wish, objective_of, rules_of

if TYPE_CHECKING:
    from ..dvfs._problem.plan import Objective, Plan
    from ..dvfs._problem.problem import Problem
    from ..dvfs._solving.solve import Rules
    from ..hardware import GpuCard


def of_table(flags: Flags, wish: Wish, path: str) -> Answer:
    """Schedule of a measured table, taken as exact."""
    _refuse(flags, wish)
    limit = flags.power_limit
    power = parse.positive("--power-limit", limit, "W") if limit else math.inf
    objective = objective_of(wish, power)
    engine.start(keep_compilations=True)
    from ..dvfs._measured.table import read_table
    from ..dvfs._problem.totals import default_total
    from ..dvfs._solving.baselines import baselines
    from ..dvfs._solving.frontier import frontier
    from ..dvfs._solving.solve import solve
    from ..hardware import read_gpu
    from ..report._summaries import schedule_summary as summaries

    card = read_gpu(flags.gpu) if flags.gpu else None
    rules, notes = rules_of(wish, card.name if card else None)
    table = read_table(path, wish.default_clock, card)
    problem, promised = table.problem, {}
    if wish.smooth:
        problem, promised = _smoothed(problem, objective, rules, card)
    plan = solve(problem, objective, rules)
    coarse = summaries.compared(problem, baselines(problem, objective, rules))
    coarse["power_limit"] = None  # a table does not say what the limiter does
    edge = frontier(problem, rules=rules).points(default_total(problem))
    found = summaries.schedule_summary(problem, plan, coarse, edge, objective, rules)
    about = {"table": path, "gpu": card.name if card else None}
    return Answer(
        problem,
        plan,
        about | promised | found,
        rules.latency,
        table.default_clock,
        [*table.notes, *notes],
        [path, *([flags.gpu] if flags.gpu else [])],
    )


def _smoothed(
    problem: "Problem", objective: "Objective", rules: "Rules", card: "GpuCard | None"
) -> tuple["Problem", dict[str, Any]]:
    """The problem behind noisy readings, and what its best schedule keeps."""
    import numpy as np

    from ..dvfs._measured.smoothing import DRAWS, promise, smoothed
    from ..dvfs._solving.solve import solve
    from ..fitting._clock_law.clock_fit import fit_table
    from ..fitting._clock_law.clock_law import table
    from ..fitting._clock_law.clock_model import Readings
    from .progress import progress

    if card is None:
        raise ValueError(
            "`--smooth` is given without `--gpu`; name the GPU (or a .toml of it), "
            "whose law of clocks, voltage and power limit the readings follow."
        )
    times, energies = (
        np.where(problem.usable, x, np.nan) for x in (problem.time, problem.energy)
    )
    fit = fit_table(
        card.spec,
        card.spec.corrections,
        problem.settings,
        Readings.of_table(times, energies),
        card.values["tdp"],
    )
    found = smoothed(problem, table(fit.law, problem.settings))

    def planner(other: "Problem") -> "Plan":
        return solve(other, objective, rules, exact=False)

    with progress("bootstrap", DRAWS) as tell:
        bound = promise(found, planner(found.problem), planner, tell=tell)
    return found.problem, {
        "time_change_pct_p95": None if math.isnan(bound) else bound,
        "noise_time_pct": 100 * found.time.noise,
        "noise_energy_pct": 100 * found.energy.noise,
    }


def _refuse(flags: Flags, wish: Wish):
    """Flags that a measured table decides."""
    allowed = ("gpu", "power_limit", "as_json", "out", "detail")
    blank = Flags(model="")
    for field in dataclasses.fields(flags):
        if field.name not in allowed:
            if getattr(flags, field.name) != getattr(blank, field.name):
                name = field.name.replace("_", "-").replace("set-field", "set")
                word = "MODEL" if name == "model" else f"`--{name}`"
                raise ValueError(
                    f"{word} is given beside `--table`, which decides it; leave one "
                    "of them out."
                )
    if wish.solver != "exact":
        raise ValueError(
            "`--solver` is descent, which needs a model; a table has its settings only."
        )
    if wish.power_curve:
        raise ValueError(
            "`--power-curve` is given with `--table`; a table does not say what a "
            "power limit does; give a MODEL and `--gpu`."
        )
