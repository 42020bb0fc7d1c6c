"""`solve`: the best answer of HiGHS within counted work.

HiGHS cannot be stopped while it solves the first relaxation of an integer program, and
does not count it. So that relaxation is solved by itself before, counted and to be
stopped, and the integer program only where as much again is left.
"""

import dataclasses
import math
import time
from collections.abc import Callable
from typing import Final

import numpy as np

from ._highs import highs
from ._linear_model import LEAST, Answer, LinearModel

_CELL: Final = 3e-6
"""s of an idle core for each number of a matrix: a linear program's setting up."""
_STEP: Final = 1e-5
_FLOW_STEP: Final = 4e-10
_RELAXED_STEP: Final = 2.5e-9
"""s for each iteration of the simplex method, and for each number of the matrix in
one: of programs of flows (65 us at 176,000 numbers, 270 us at 770,000), and of
relaxations, whose factors are denser (0.45 ms at 144,000, 1.5 ms at 566,000)."""
_JUMP: Final = 3.5e-6
"""s for each number of a matrix of a feasibility jump (2e-6 to 8e-6)."""
_PRESOLVE: Final = 1.2e-5
"""s for each number of a matrix of an integer program's presolve, with probing."""
_CHECK: Final = 5e-6
"""s for each number of a matrix and look of HiGHS at its limits, of branches."""


@dataclasses.dataclass(frozen=True)
class Solving:
    """Limits of a solver: relative `gap` that suffices, and a callback for progress.

    `work`: most steps, counted, in s of an idle core. `time_limit`: wall time, s, the
    last resort.
    """

    time_limit: float = 3600.0
    seed: int = 0
    gap: float = 0.0
    watch: Callable[[Answer], None] | None = None
    work: float = math.inf

    def less(self, seconds: float, work: float) -> "Solving":
        """The limits less what was spent; at least `LEAST` of both."""
        time, steps = self.time_limit - seconds, self.work - work
        return dataclasses.replace(
            self, time_limit=max(time, LEAST), work=max(steps, LEAST)
        )


USUAL: Final = Solving()


def solve(model: LinearModel, how: Solving = USUAL) -> Answer:
    """The best answer within the limits and gap; Ctrl-C returns the best so far.

    Raises:
        KeyboardInterrupt: on Ctrl-C before a first answer.
    """
    began, best = time.perf_counter(), None

    def watch(answer: Answer) -> None:
        nonlocal best
        best = answer
        if how.watch is not None:
            how.watch(answer)

    try:
        answer = _solved(model, dataclasses.replace(how, watch=watch))
    except KeyboardInterrupt:
        if best is None:
            raise
        answer = dataclasses.replace(best, interrupted=True)
    return dataclasses.replace(answer, seconds=time.perf_counter() - began)


def _solved(model: LinearModel, how: Solving) -> Answer:
    """A linear program; of an integer one a jump if any answer will do, the relaxation,
    and then branches."""
    if not np.any(model.whole):
        return _simplex(model, how, _FLOW_STEP)
    work = seconds = 0.0
    if not np.any(model.cost):
        answer = _jump(model, how)
        if answer.status != "unknown":
            return answer
        work, seconds = answer.work, answer.seconds
    relaxation = dataclasses.replace(model, whole=False)
    relaxed = _simplex(relaxation, how.less(seconds, work), _RELAXED_STEP)
    work, seconds = work + relaxed.work, seconds + relaxed.seconds
    again = relaxed.work + _PRESOLVE * model.matrix.nnz
    if relaxed.status != "optimal" or work + again > how.work:
        status = "infeasible" if relaxed.status == "infeasible" else "unknown"
        return Answer(status, None, None, relaxed.bound, seconds, work=work)
    answer = _branches(model, how.less(seconds, work + again))
    return dataclasses.replace(answer, work=work + again + answer.work)


def _simplex(model: LinearModel, how: Solving, each: float) -> Answer:
    cells = model.matrix.nnz
    step = _STEP + each * cells
    steps = None
    if math.isfinite(how.work):
        steps = max(1, int((how.work - _CELL * cells) / step))
    answer = highs(model, time_limit=how.time_limit, checks=steps, seed=how.seed)
    return dataclasses.replace(answer, work=_CELL * cells + step * answer.iterations)


def _jump(model: LinearModel, how: Solving) -> Answer:
    """An answer by HiGHS's feasibility jump, a local search, if it finds one."""
    work = _JUMP * model.matrix.nnz
    if work > how.work:
        return Answer("unknown", None, None, None, 0.0)
    answer = highs(
        model, time_limit=how.time_limit, presolve=False, seed=how.seed, jump=True
    )
    return dataclasses.replace(answer, work=work)


def _branches(model: LinearModel, how: Solving) -> Answer:
    # Presolve helps where something costs. Where any answer will do, its probing takes
    # longer than the proof: 9 epochs of two NDv2 are too few after 0.6 s without it,
    # 19 s with it.
    each = _CHECK * max(model.matrix.nnz, 1)
    checks = max(1, int(how.work / each)) if math.isfinite(how.work) else None
    answer = highs(
        model,
        time_limit=how.time_limit,
        gap=how.gap,
        presolve=bool(np.any(model.cost)),
        checks=checks,
        seed=how.seed,
        watch=how.watch,
    )
    return dataclasses.replace(answer, work=each * answer.checks)
