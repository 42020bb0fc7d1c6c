"""`search`: descents from many starts, made legal, scored exactly."""

import time

from .._problem.exact import Judge, Run, nan_free
from .._problem.problem import Found, Problem, Score, unit_of
from .duals import SlopesAt, active_limits, elasticities
from .engine import Effort, Engine, Tell
from .pareto import front


def search(
    problem: Problem,
    effort: Effort | None = None,
    tell: Tell = lambda *_: None,
    run: Run | None = None,
) -> Found:
    """Best legal design of `problem`, with what holds it back.

    The same seed gives the same answer. Ctrl-C (`KeyboardInterrupt`) ends the search
    with the best so far. A design that keeps no limit comes back with its `violation`.

    Raises `ValueError` if a metric or a caller's objective is NaN somewhere.
    """
    began = time.monotonic()
    effort = effort or Effort()
    engine = Engine(problem, effort, run)
    goal, *others = problem.targets
    start = _start(engine)
    designs: tuple[Score, ...] = ()
    try:
        first = engine.starts(effort.starts)
        ends = engine.descend([goal] * len(first), effort.rounds, first, tell)
        engine.legalise(goal, ends)
        if others and not engine.interrupted:
            designs = front(engine, tell)
    except KeyboardInterrupt:
        if not len(engine.judge):
            raise
        engine.interrupted = True
    try:
        return _found(engine, start, designs, began)
    except KeyboardInterrupt:
        engine.interrupted = True
        return _found(engine, start, designs, began)


def _found(
    engine: Engine, start: Score, designs: tuple[Score, ...], began: float
) -> Found:
    """The best design so far, with what holds it back."""
    problem, goal = engine.problem, engine.problem.targets[0]
    everything = engine.judge.everything
    judged = everything.take(everything.order(goal)[:1])
    slopes = SlopesAt(engine, judged.values[0])
    active = active_limits(engine, judged, slopes)
    return Found(
        problem.goals[0] if len(problem.goals) == 1 else ",".join(problem.goals),
        unit_of(problem.goals[0]),
        start,
        problem.score(judged, 0, goal),
        active,
        elasticities(slopes),
        engine.evaluations,
        time.monotonic() - began,
        engine.effort.seed,
        designs,
        tuple(engine.path),
        engine.interrupted,
    )


def _start(engine: Engine) -> Score:
    """The base design as it is: at its own values, with the library's tiles."""
    problem, goal = engine.problem, engine.problem.targets[0]
    if problem.start is None:
        judged = engine.judge(problem.base[None])
    else:
        own = Judge(problem.start, engine.run)
        judged = own(problem.base[None, : len(problem.task.names)])
        engine.judge.evaluations += own.evaluations
    nan_free(judged, problem.task)
    return problem.score(judged, 0, goal)
