"""`stage_clocks`: from names and numbers to clocks for the stages of a pipeline.

Layers are split so that the slowest stage is fastest, the head counted. The bound is a
linear program over every instruction (Perseus, arXiv 2312.06902).
"""

import dataclasses
import time
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from ...estimator import EstimateRequest, Task, prepare
from ...hardware import (
    GpuCard,
    read_gpu,
    sm_clocks,
    switch_latency,
    unsupported,
    with_fields,
)
from ...plans import Plan
from ...requests import BadRequest, accepts, values_of
from ...results import Infeasible
from ...units import MHz
from .._ask import check_whole
from .._request import Granularity, StageClocksRequest
from .problem import Problem, balanced, hosts, problem_of
from .relaxed import Caps
from .result import StageClocks, peak_power, stage_rows
from .solve import Solved, saving_interval, solved, uniform

_LOWEST: Final = 0.4
"""Share of the highest clock down to which clocks are offered unless others are asked
for: below it no fitted pass lies."""
_MOST: Final = 10_000
"""Instructions of a replica that are solved (16 stages x 240 micro-batches: 15 s)."""
_SLOW: Final = 0.1
"""Share of an instruction that a change of clocks may take unremarked."""


@accepts(StageClocksRequest)
def stage_clocks(request: StageClocksRequest) -> StageClocks:
    """Clocks for the stages of a pipeline so that no one waits: least energy of a
    training step that takes no longer.

    Returns:
        The clocks with their bound; `summary` is the JSON of the command.

    Raises:
        ValueError: for what cannot be, in one sentence.
        Infeasible: if no clocks keep `node_power` or `deadline`, with the least that
            can be.

    Example:

        >>> result = stage_clocks("gpt2", "a40", "pp=2", global_batch=4)
        >>> result.bound <= result.energy <= result.summary["baseline"]["energy_j"]
        True
    """
    check_whole(request)
    for name in ("mem_clock", "power_limit"):
        if len(getattr(request, name) or ()) > 1:
            raise BadRequest(f"`{name}` has several values; give one.", name)
    task = _task(request)
    return _solved(task, request)


def _task(request: StageClocksRequest) -> Task:
    """The checked training step at every clock, layers split so that the slowest stage
    is fastest."""
    names = {x.name for x in dataclasses.fields(EstimateRequest)}
    fields: dict[str, Any] = {x: y for x, y in vars(request).items() if x in names}
    fields |= {"plan": request.plan or Plan(), "phase": "train"}
    named = "h100-sxm" if request.gpu is None else request.gpu
    plain = named if isinstance(named, GpuCard) else read_gpu(named)
    card = with_fields(plain, request.changes or {})
    clocks = offered(card, values_of(request.sm_clock))
    first = prepare(**{**fields, "sm_clock": clocks[:1]})
    _check_size(first, request)
    more: dict[str, Any] = {"sm_clock": clocks, "split": balanced(first)}
    return prepare(**fields | more)


def _solved(task: Task, request: StageClocksRequest) -> StageClocks:
    """The clocks of least energy, and what is said of them."""
    problem, plan = problem_of(task), task.plan
    assert plan is not None and task.step is not None
    members = hosts(plan, task.step.placed.host.size)
    power, slowdown = request.node_power, request.max_slowdown
    granularity = request.granularity or "instruction"
    caps = None if power is None else Caps(members, power)

    def answered(problem: Problem) -> Solved:
        alike = _alike(problem, plan.dp, request.straggler)
        slack = 0.0 if slowdown is None and caps is None else slowdown
        return solved(alike, granularity, slack, request.deadline or 0.0, caps)

    begun = time.monotonic()
    _check_deadline(problem, request)
    solution = answered(problem)
    seconds = time.monotonic() - begun
    summary = _summary(task, solution, members)
    straggler = None
    if request.straggler is not None:
        stage, share = request.straggler
        straggler = {"stage": stage, "slower_pct": 100 * share}
    summary |= {
        "granularity": granularity,
        "max_slowdown_pct": None if slowdown is None else 100 * slowdown,
        "straggler": straggler,
        "deadline_s": request.deadline,
        "node_power": None if caps is None else _power(solution, caps),
        "solve_s": seconds,
    }
    notes = _notes(task, solution, granularity, slowdown or 0.0)
    summary["warnings"] = [*task.warnings, *notes]
    if request.interval:
        ends = saving_interval(task, solution.saving, lambda p: answered(p).saving)
        summary["saving_pct_p5_p95"] = [100 * x for x in ends]
    return StageClocks(summary, solution.replicas)


def offered(card: GpuCard, clocks: Sequence[float] | None = None) -> tuple[float, ...]:
    """Clocks to choose from, Hz, falling. Raises `ValueError` for those that the GPU
    cannot be locked to."""
    ladder = sm_clocks(card)
    if clocks is None:
        return tuple(ladder[ladder >= _LOWEST * ladder[0]].tolist())
    falling = np.sort(np.array(clocks, float))[::-1]
    wrong = unsupported(falling, ladder)
    if len(wrong):
        near = np.sort(ladder[np.argsort(np.abs(ladder - wrong[0]))[:2]]) / MHz
        raise ValueError(
            f"`sm_clock` is {wrong[0] / MHz:g} MHz, to which {card.name} cannot be "
            f"locked; nearest: {', '.join(f'{x:g}' for x in near)} MHz."
        )
    return tuple(falling.tolist())


def _alike(
    problem: Problem, replicas: int, straggler: tuple[int, float] | None
) -> list[tuple[Problem, float]]:
    """Pipelines and how many replicas run each, the slow one first."""
    one = dataclasses.replace(problem, abreast=problem.abreast / replicas)
    if straggler is None:
        return [(one, float(replicas))]
    slow = (one.slowed(*straggler), 1.0)
    return [slow, *([(one, float(replicas - 1))] if replicas > 1 else [])]


def _check_size(task: Task, request: StageClocksRequest) -> None:
    """Raises `ValueError` for a pipeline that is too long, or without the stage that is
    slow."""
    assert task.step is not None
    placed = task.step.placed
    plan, batches = placed.plan, placed.batches
    each = plan.pp * plan.vp * (3 if plan.order == "zb-h1" else 2)
    if each * batches > _MOST:
        raise ValueError(
            f"`global_batch` is {placed.sequences}, which makes {each * batches:,} "
            f"instructions of a replica; clocks are known of at most {_MOST:,}: give "
            f"at most {_MOST // each * plan.dp * plan.microbatch}."
        )
    if request.straggler is None:
        return
    stage, share = request.straggler
    if isinstance(stage, bool) or not 0 <= stage < plan.pp:
        raise ValueError(
            f"`straggler` is stage {stage}, but the plan has pp={plan.pp}; give a "
            f"stage from 0 to {plan.pp - 1}."
        )
    if not 0 < share <= 10:
        raise ValueError(
            f"`straggler` is {100 * share:g} % slower; allowed are above 0 to 1000 %."
        )
    if request.node_power is not None:
        raise ValueError("`straggler` is given beside `node_power`; give one of them.")


def _check_deadline(problem: Problem, request: StageClocksRequest) -> None:
    slow = problem if request.straggler is None else problem.slowed(*request.straggler)
    deadline = request.deadline
    usual = slow.time_of(slow.usual)
    if deadline is not None and deadline < usual:
        raise Infeasible(
            f"`deadline` is {deadline:g} s, which no clocks keep; the least is "
            f"{usual:.4g} s, at the usual ones.",
            deadline=usual,
        )


def _summary(task: Task, solution: Solved, members: np.ndarray) -> dict[str, Any]:
    """What was asked for, and what does not depend on how."""
    assert task.step is not None and task.stages is not None
    first = solution.replicas[0]
    problem = first.problem
    layers = [int(stage["layers"]) for stage in task.stages]
    step, energy = solution.best
    bound = min(solution.bound, energy)  # but for rounding
    return {
        **task.about,
        **task.trust.to_json(),
        "split": list(task.step.placed.split or layers),
        "micro_batches": task.step.placed.batches,
        "instructions": len(problem.type),
        "baseline": _outcome(solution.usual),
        "best": _outcome(solution.best),
        "saving_pct": 100 * solution.saving,
        "saving_pct_p5_p95": None,
        "slowdown_pct": 100 * (step / solution.usual[0] - 1),
        "lower_bound_j": bound,
        "bound_saving_pct": 100 * (1 - bound / solution.usual[1]),
        "gap_pct": 100 * (energy / bound - 1),
        "wait_power_w": float(problem.wait.mean()),
        "usual_sm_clock_mhz": float(problem.clocks[0] / MHz),
        "node_peak_w": peak_power(first, members),
        "stages": stage_rows(first, layers, step),
        "memory": task.memory,
    }


def _outcome(total: tuple[float, float]) -> dict[str, float]:
    step, energy = total
    return {"step_time_s": step, "energy_j": energy, "power_total_w": energy / step}


def _power(solution: Solved, caps: Caps) -> dict[str, Any]:
    """The hosts' power, and the one clock for all that keeps it."""
    (replicas,) = solution.replicas
    drawn = caps.power(replicas.problem, replicas.choice, solution.best[0])
    one, same = uniform(replicas.problem, caps), None
    if one is not None:
        clock, step, energy = one
        total = _outcome((step, replicas.number * energy))
        same = {"sm_clock_mhz": clock / MHz, **total}
    return {"limit_w": caps.limit, "mean_w": float(drawn.max()), "one_clock": same}


def _notes(
    task: Task, solution: Solved, granularity: Granularity, slowdown: float
) -> list[str]:
    """What a person should know beside the figures."""
    assert task.plan is not None
    first, notes = solution.replicas[0], []
    if task.plan.pp == 1:
        notes.append(
            "the plan has one stage, which waits for no other: without a slow-down "
            "there is nothing to save."
        )
    elif (
        granularity != "instruction"
        and slowdown == 0
        and solution.usual == solution.best
    ):
        notes.append(
            "the first micro-batch passes every stage in turn, so that one clock for "
            f"each {granularity} slows the step where it is low; allow a "
            "`max_slowdown` of 1 to 5 %."
        )
    latency = switch_latency(task.card.served_as)
    shortest = float(first.problem.durations(first.choice).min())
    most = int(first.switches.max())
    if most and latency.latency > _SLOW * shortest:
        notes.append(
            f"a stage changes its clock up to {most} times a step, which takes about "
            f"{1e3 * latency.latency:g} ms each ({latency.source}); the shortest pass "
            f"has {1e3 * shortest:.3g} ms: changes that fast are not to be had, and "
            "`granularity` stage, with a `max_slowdown`, needs none."
        )
    return notes
