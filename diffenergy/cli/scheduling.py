"""From the flags of `dvfs` to a schedule and its summary."""

import math
from typing import TYPE_CHECKING, Any

from . import engine, parse
from .estimation import Task, prepare
from .flags import Flags
from .output import Infeasible
from .wishes import Answer, Wish, objective_of, rules_of

if TYPE_CHECKING:
    from ..dvfs._problem.modelled import Modelled
    from ..hardware import GpuCard


def answer(flags: Flags, wish: Wish) -> Answer:
    """Plans what the flags ask for. `ValueError` for bad input, `Infeasible`."""
    wish.check()
    from ..dvfs._problem.plan import Infeasible as Unreachable
    from .measured_schedule import of_table

    try:
        if wish.table is not None:
            return of_table(flags, wish, wish.table)
        return _of_model(flags, wish)
    except Unreachable as error:
        flag = "--power-limit" if "draws" in str(error) else "--max-slowdown"
        raise Infeasible(f"`{flag}`: {error}") from None


def _of_model(flags: Flags, wish: Wish) -> Answer:
    """Schedule of a workload on a GPU."""
    if wish.smooth:
        raise ValueError(
            "`--smooth` is given without `--table`; a model has no noise to smooth."
        )
    if wish.default_clock is not None:
        raise ValueError(
            "`--default-clock` is given without `--table`; the default of a model is "
            "what the GPU does when its clocks are left alone."
        )
    objective = objective_of(wish)
    task = prepare(flags)
    if len({setting.power_limit for setting in task.settings}) > 1:
        raise ValueError("`--power-limit` is a list; give one limit.")
    rules, notes = rules_of(wish, task.card.name)
    found = _modelled(task)
    from ..dvfs._problem.totals import default_total
    from ..dvfs._solving.baselines import baselines
    from ..dvfs._solving.schedule import schedule, schedule_frontier
    from ..report._summaries import schedule_summary as summaries

    problem, plan = schedule(found, objective, rules, _descent(wish))
    stages, limits = found.stage_problem(), found.uniform.limits
    coarse = summaries.compared(stages, baselines(stages, objective, rules))
    default = default_total(problem)
    coarse["power_limit"] = summaries.limited(limits, objective, default)
    edge = schedule_frontier(found, problem, rules)
    summary = {
        **task.about,
        "grade": task.trust.grade,
        **summaries.schedule_summary(problem, plan, coarse, edge, objective, rules),
        "time_s_p5_p95": _interval(task, "time", plan.time, plan.time),
        "energy_j_p5_p95": _interval(task, "energy", plan.energy, plan.time),
    }
    if wish.power_curve:
        summary["power_curve"] = summaries.curve_rows(limits, task.about)
    return Answer(
        problem,
        plan,
        summary,
        rules.latency,
        (math.nan, math.nan),
        [*task.notes, *notes],
        flags.inputs,
    )


def _modelled(task: Task) -> "Modelled":
    """What every kernel costs at every pair of clocks."""
    from ..compiling import compiler_options
    from ..dvfs._problem.modelled import clock_pairs, modelled
    from ..report._tables.estimates import kernel_name
    from . import programs

    folder, options = engine.cache_folder(), compiler_options(once=True)
    flags, first = task.flags, task.settings[0]
    sm = sorted({s.sm_clock for s in task.settings}) if flags.sm_clock else None
    mem = sorted({s.mem_clock for s in task.settings}) if flags.mem_clock else None
    _check_clocks(sm, mem, task.card)
    kernels = [kernel for listing in task.listings for kernel in listing.kernels]
    return modelled(
        task.listings,
        [kernel_name(kernel) for kernel in kernels],
        task.card,
        task.corrections.serve(task.card),
        first.power_limit,
        clock_pairs(task.card, sm, mem),
        first.temperature,
        lambda function, arguments: programs.run(function, arguments, folder, options),
    )


def _check_clocks(
    sm: list[float] | None, mem: list[float] | None, card: "GpuCard"
) -> None:
    """Raises `ValueError` at the first clock that the GPU cannot be locked to."""
    import numpy as np

    from ..hardware._clocks import mem_clocks, sm_clock_words, sm_clocks, unsupported

    locked = mem_clocks(card)
    words = " or ".join(f"{clock / 1e6:g}" for clock in locked) + " MHz"
    for flag, asked, known, allowed in (
        ("--sm-clock", sm, sm_clocks(card), sm_clock_words(card)),
        ("--mem-clock", mem, locked, words),
    ):
        wrong = unsupported(np.array(asked or []), known)
        if len(wrong):
            raise ValueError(
                f"`{flag}` is {wrong[0] / 1e6:g} MHz, to which {card.name} cannot be "
                f"locked; allowed are {allowed}."
            )


def _descent(wish: Wish) -> Any:
    from ..dvfs._solving.schedule import Descent

    if wish.solver == "exact":
        for name in ("seed", "starts"):
            if getattr(wish, name) is not None:
                raise ValueError(
                    f"`--{name}` is given, but only `--solver descent` starts anywhere;"
                    " leave it out."
                )
        return None
    starts = parse.whole("--starts", wish.starts)
    seed = 0 if wish.seed is None else parse.number("--seed", wish.seed)
    return Descent(8 if starts is None else starts, int(seed))


def _interval(task: Task, word: str, value: float, time: float) -> list[float]:
    return [float(x) for x in task.trust.interval(word, value, time)]
