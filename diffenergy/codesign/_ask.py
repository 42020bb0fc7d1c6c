"""The public `search` and `tune`: by name, as the command answers."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..estimator import Task
from ..hardware import GpuCard, OperatingPoint, new_doubts
from ..requests import accepts, explicit_fields
from ..results import Infeasible, finite
from ..search import pareto_front
from . import _request
from ._design_request import DesignRequest, Effort, MixRequest, TuneRequest
from ._problem.card import area_words, design_card
from ._problem.problem import DesignOutcome, Problem, Score, Share, check_goals
from ._request import Part
from ._result import SearchResult, TuneResult, design_summary, score_json, tiles_json
from ._search import searching
from ._search.engine import Engine
from ._tiles import tuning


@accepts(DesignRequest)
def search(request: DesignRequest) -> SearchResult:
    """Hardware, clocks and tiles of least cost for a workload.

    Gradients through the model lead from many starts to designs that hardware can have,
    within the limits; every figure is an exact estimate. The same seed gives the same
    answer; nothing proves that no design is better. Ctrl-C keeps the best so far. JAX
    should count in 64 bits (`diffenergy.estimator.start_jax`).

    - `work`: a model name, listing path or `Task`, or a list of `Part`, a mix: time and
      energy are sums over it, weight times each.
    - `gpu`: GPU that designs start from, a name, file or card [h100-sxm].
    - `vary`: what may change: fields of a GPU file, `sm_clock`, `mem_clock`,
      `power_cap`, `tiles`; names, `Range`s, or a mapping to bounds in SI, None for the
      default ones [half to twice the base; clocks: what is legal]. Of `process_node`
      and `memory` the words to choose from: each combination is a search of its own,
      with the rules and stacks of its process and memory.
    - `limits`: the most of `time` (s), `power` (W, mean), `area` (mm2), `cost`, `ttft`
      and `tpot` (s); `Share(1.1)`: 1.1 times what the start design has.
    - `goals`: what is to be small: "energy", "time", "edp", "ed2p", "energy_per_token",
      "area" or "cost"; several single ones give their Pareto front. Or a function of an
      `Estimate` that JAX can differentiate. `price`: of a mm2 of silicon.
    - `effort`: starts, rounds and seed [`Effort()`]; `progress`: called with rounds
      done, rounds in all, best objective so far.
    - With `plan` time and energy are of all GPUs; `link_bandwidth` and, of training on
      several hosts, `network` (B/s of a network card) can be varied, too.

    Raises `ValueError` for what cannot be read, varied, wanted or limited, `TypeError`
    for arguments of another kind, and `Infeasible` if no design keeps the limits.

    >>> few = Effort(starts=2, rounds=2)
    >>> given = dict(vary={"sm_clock": None}, phase="decode", effort=few)
    >>> result = search("gpt2", "a100-sxm-80gb", **given)
    >>> result.best.energy < result.start.energy
    True
    """
    shared, work = _shared(request), request.work
    varied = _request.ranges_of(request.vary)
    goals = request.goals or ("energy",)
    goals = (goals,) if isinstance(goals, str) else goals
    limits = request.limits or {}
    most = {m: float(x.share if isinstance(x, Share) else x) for m, x in limits.items()}
    _request.check_point(_request.fixed_point(work, shared), varied[0])
    _request.check_limits(most)
    if not callable(goals):
        check_goals(goals)
    mm2 = _request.price_of(request.price, goals, most)
    parts = _request.parts_of(work)
    tasks = _request.tasks_of(parts, request.gpu, shared)
    weights = [float(part.weight) for part in parts]
    mixes, ranges = _request.chosen_of(varied[0])

    def problem_of(tasks: Sequence[Task], limits: Mapping[str, float]) -> Problem:
        vary = ranges, varied[1]
        still = any(mixes)
        return _request.problem_of(tasks, weights, vary, goals, limits, mm2, still)

    base = problem_of(tasks, most)
    shares = {m: x for m, x in limits.items() if isinstance(x, Share)}
    base = searching.with_shares(base, shares)
    results = []
    for words in mixes:
        problem, mix_tasks = base, tasks
        if words:
            stacked_words = _request.in_stacks(tasks[0].card, words, ranges)
            changed = {
                **shared,
                "changes": {**(request.changes or {}), **stacked_words},
            }
            mix_tasks = _request.tasks_of(parts, request.gpu, changed)
            problem = problem_of(mix_tasks, {x: base.limits[x] for x in most})
        outcome = searching.search(problem, request.effort, request.progress)
        results.append(_result(mix_tasks, weights, problem, outcome))
        for design in (results[-1].summary["best"], *results[-1].summary["pareto"]):
            design |= {"words": words} if words else {}
        if outcome.interrupted:
            break
    results.sort(key=lambda x: (x.best.violation, x.best.objective))
    result = results[0]
    if any(mixes):
        result = _chosen(results, searching.start_of(Engine(base, Effort())))
    if result.best.violation > 0 and not result.interrupted:
        raise Infeasible(result.refusal)
    return result


def _shared(request: DesignRequest | TuneRequest) -> dict[str, Any]:
    """Options that a request gives to every member of its mix."""
    names = {*(x.name for x in dataclasses.fields(MixRequest)), "workload"}
    if isinstance(request, DesignRequest):
        names -= {"price"}  # of silicon, not of energy
    return {x: getattr(request, x) for x in explicit_fields(request) if x in names}


def _chosen(results: Sequence[SearchResult], start: Score) -> SearchResult:
    """The first of several searches, best first, against the GPU as it is; `choices`:
    the best design of each, and all their designs in one front."""
    best = results[0]
    front = [
        ([score.metrics[goal] for goal in best.problem.goals], design)
        for x in results
        for score, design in zip(x.outcome.pareto, x.summary["pareto"], strict=True)
    ]
    columns = np.array([column for column, _ in front])
    front = [front[i] for i in pareto_front(*columns.T)] if front else []
    outcome = dataclasses.replace(best.outcome, start=start)
    summary = {
        **best.summary,
        "start": score_json(best.problem, start),
        "improvement_pct": finite(100 * outcome.improvement),
        "choices": [x.summary["best"] for x in results],
        "pareto": [design for _, design in front],
        "evaluations": sum(x.outcome.evaluations for x in results),
        "wall_s": sum(x.outcome.wall for x in results),
    }
    return dataclasses.replace(best, summary=summary, outcome=outcome)


def _result(
    tasks: Sequence[Task],
    weights: Sequence[float],
    problem: Problem,
    outcome: DesignOutcome,
) -> SearchResult:
    """Result of a search, with its trust, intervals and notes."""
    card, best = tasks[0].card, outcome.best
    trained = ["plan"] if any(task.step is not None for task in tasks) else []
    trust = tasks[0].corrections.trust(card, *trained, new=True)
    design = design_card(card, problem, best, card.name)
    trust = trust.widened(_open_widths(tasks, design, best))
    doubts = [x for task in tasks for x in task.warnings] + list(new_doubts(design))
    warnings = list(dict.fromkeys(doubts))
    time = trust.interval("time", best.time, best.time)
    energy = trust.interval("energy", best.energy, best.time)
    summary = {
        **_request.about_of(tasks, weights, set(problem.task.names)),
        **trust.to_json(),
        "warnings": warnings,
        **design_summary(problem, outcome),
        "time_s_p5_p95": list(map(float, time)),
        "energy_j_p5_p95": list(map(float, energy)),
    }
    unpublished = f"; of {card.name} itself no settled area is published"
    settled = problem.task.silicon.settled
    notes = [
        *warnings,
        f"areas come from a {area_words()}{'' if settled else unpublished}.",
    ]
    return SearchResult(summary, outcome, problem, card, notes)


def _open_widths(
    tasks: Sequence[Task], design: GpuCard, best: Score
) -> dict[str, float]:
    """Half widths in ln by quantity: of a mix, those of its least known member."""
    clocks = {x: best.fields[x] for x in ("sm_clock", "mem_clock") if x in best.fields}
    if "power_cap" in best.fields:
        clocks["power_limit"] = best.fields["power_cap"]
    widths = [
        dataclasses.replace(
            task, card=design, settings=[task.settings[0]._replace(**clocks)]
        ).open_widths()
        for task in tasks
    ]
    return {q: max(x[q] for x in widths) for q in widths[0]}


@accepts(TuneRequest)
def tune(request: TuneRequest) -> TuneResult:
    """The legal tile of least time or energy for every matrix product of a workload.

    All tiles are tried, at the clock that the limiter holds with the library's choice.

    Raises:
        ValueError: for what cannot be read or is out of range.
        TypeError: for arguments of another kind.

    Example:

        >>> from diffenergy import codesign
        >>> result = codesign.tune("gpt2", "l40s", phase="decode", batch=8)
        >>> result.tuning.time <= result.tuning.default_time
        True
    """
    shared, goal = _shared(request), request.goal
    (task,) = _request.tasks_of([Part(request.work)], request.gpu, shared)
    if task.plan is not None:
        raise ValueError(
            f"`plan` is {task.plan.text}, but tiles are tuned on one GPU; leave it out."
        )
    setting = task.settings[0]
    temperature = float("nan") if setting.temperature is None else setting.temperature
    point = OperatingPoint(*setting[:3], temperature, float(setting.mem_locked))
    tuned = tuning.tune(
        task.listings,
        task.card,
        task.corrections.serve(task.card),
        point,
        goal,
        task.site,
    )
    about = {"memory": task.memory, "warnings": task.warnings}
    summary = {**task.about, **task.trust.to_json(), **about, **tiles_json(tuned)}
    if task.site is not None:
        for name in ("", "default_"):
            time, energy = summary[f"{name}time_s"], summary[f"{name}energy_j"]
            wall = time * task.site.power(energy / time, 1)
            summary[f"{name}wall_energy_j"] = float(wall)
    return TuneResult(summary, tuned, list(task.warnings))
