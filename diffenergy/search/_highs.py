"""HiGHS in this process: linear programs, of real and of whole variables.

It prints nothing, whatever compiled code says: stdout belongs to the caller's JSON.
"""

import concurrent.futures
import contextlib
import ctypes
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

import numpy as np

from ._linear_model import Answer, LinearModel, Status

_METHODS: Final = {"highs": "choose", "highs-ds": "simplex", "highs-ipm": "ipm"}


def highs(
    model: LinearModel,
    *,
    method: Literal["highs", "highs-ds", "highs-ipm"] = "highs",
    time_limit: float | None = None,
    gap: float = 0.0,
    nodes: int | None = None,
    presolve: bool = True,
    checks: int | None = None,
    seed: int = 0,
    watch: Callable[[Answer], None] | None = None,
    jump: bool = False,
) -> Answer:
    """The least cost of a model, with `duals` if no variable is whole; what was found
    until a limit is "feasible".

    Arguments:

    - `method`: of real variables: HiGHS's choice, dual simplex, or interior point.
    - `time_limit`: s. `checks`: most iterations of the simplex method or, with whole
      variables, most times that HiGHS looks at its limits: a budget that does not
      depend on the machine's load. It does not look while it solves the first
      relaxation.
    - `presolve`: whether rows and columns are simplified first.
    - `gap`, `nodes`, `watch`, `jump`, of whole variables alone: relative gap that will
      do; most branches; called with every better answer; end with the feasibility jump,
      a local search, before the first relaxation.

    Raises:
        KeyboardInterrupt: on Ctrl-C, once HiGHS looks at its limits.
    """
    import highspy

    began, whole = time.perf_counter(), bool(np.any(model.whole))
    options = {
        "solver": None if whole else _METHODS[method],
        "time_limit": time_limit,
        "mip_rel_gap": gap,
        "mip_max_nodes": nodes,
        "presolve": "on" if presolve else "off",
        "random_seed": seed,
        "simplex_iteration_limit": None if whole else checks,
    }
    with SILENT:
        solver = new_solver(model, options)
        checks_done = _run(solver, checks if whole else None, watch, jump, began)
    ended, info = solver.getModelStatus(), solver.getInfo()
    status: Status = "unknown"
    if ended == highspy.HighsModelStatus.kInfeasible:
        status = "infeasible"
    elif ended == highspy.HighsModelStatus.kOptimal:
        status = "optimal"
    elif whole and info.primal_solution_status == _FEASIBLE:
        status = "feasible"
    has = status in ("optimal", "feasible")
    solution, cost = solver.getSolution(), float(info.objective_function_value)
    return Answer(
        status=status,
        values=np.array(solution.col_value) if has else None,
        incumbent=cost if has else None,
        bound=float(info.mip_dual_bound) if whole else cost if has else None,
        seconds=time.perf_counter() - began,
        duals=np.array(solution.row_dual) if has and not whole else None,
        message=solver.modelStatusToString(ended),
        checks=checks_done,
        iterations=max(0, int(info.simplex_iteration_count)),
    )


_FEASIBLE: Final = 2
"""`SolutionStatus.kSolutionStatusFeasible` of HiGHS."""


def _run(
    solver: Any,
    checks: int | None,
    watch: Callable[[Answer], None] | None,
    jump: bool,
    began: float,
) -> int:
    """Run HiGHS in a thread of its own, while this one hears Ctrl-C and watches; how
    often it looked at its limits."""
    checks_done, stop = 0, threading.Event()
    better: queue.SimpleQueue[Answer | None] = queue.SimpleQueue()

    def check(event: Any) -> None:
        nonlocal checks_done
        checks_done += 1
        if stop.is_set() or (checks is not None and checks_done >= checks):
            event.interrupt()

    def improve(event: Any) -> None:
        data = event.data_out
        values, cost = np.array(data.mip_solution), data.objective_function_value
        figures = float(cost), float(data.mip_dual_bound), time.perf_counter() - began
        better.put(Answer("feasible", values, *figures))

    def run() -> None:
        try:
            solver.run()
        finally:
            better.put(None)

    for callback in (solver.cbMipInterrupt, solver.cbSimplexInterrupt,
                     solver.cbIpmInterrupt):  # fmt: skip
        callback.subscribe(check)
    if watch is not None:
        solver.cbMipImprovingSolution.subscribe(improve)
    if jump:
        # HiGHS asks for a solution of the user's after the jump, before the relaxation.
        no_more = ("time_limit", 0.0)
        solver.cbMipUserSolution.subscribe(lambda _: solver.setOptionValue(*no_more))
    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        running = thread.submit(run)
        try:
            for answer in iter(better.get, None):
                if watch is not None:
                    watch(answer)
            running.result()
        finally:
            stop.set()
    return checks_done


def new_solver(model: LinearModel, options: Mapping[str, Any]) -> Any:
    """HiGHS with a model and its options (None: HiGHS's own), one thread, silent."""
    import highspy

    program: Any = highspy.HighsLp()
    by_column: Any = model.matrix.tocsc()
    by_column.sort_indices()
    program.num_row_, program.num_col_ = by_column.shape
    program.col_cost_ = model.cost
    program.col_lower_, program.col_upper_ = model.low, model.high
    program.row_lower_, program.row_upper_ = model.row_low, model.row_high
    program.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    program.a_matrix_.start_ = by_column.indptr
    program.a_matrix_.index_ = by_column.indices
    program.a_matrix_.value_ = by_column.data
    if np.any(model.whole):
        kinds = highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger
        whole = np.broadcast_to(model.whole, model.cost.shape)
        program.integrality_ = [kinds[int(x)] for x in whole]
    solver: Any = highspy.Highs()
    solver.silent()
    for name, value in {"threads": 1, **options}.items():
        if value is not None:
            solver.setOptionValue(name, value)
    solver.passModel(program)
    return solver


class _SilentStdout:
    """Discards what compiled code prints within (HiGHS has lines that no option
    turns off). Searches of several threads share one silence: the first begins it, the
    last ends it."""

    def __init__(self) -> None:
        self._lock, self._within = threading.Lock(), 0
        self._real: int | None = None

    def __enter__(self) -> None:
        with self._lock:
            self._within += 1
            if self._within > 1:
                return
            try:
                self._real = os.dup(1)
            except OSError:  # no stdout at all
                self._real = None
                return
            sys.stdout.flush()
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, 1)
            os.close(nowhere)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._within -= 1
            if self._within or self._real is None:
                return
            with contextlib.suppress(OSError, AttributeError, TypeError):
                ctypes.CDLL(None).fflush(None)  # before it gets to the real one
            os.dup2(self._real, 1)
            os.close(self._real)
            self._real = None


SILENT: Final = _SilentStdout()
