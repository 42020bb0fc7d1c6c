"""HiGHS in this process, through SciPy: small programs, solved in milliseconds, many
after each other, for which a child process (`_ortools`) would take too long to start.

It prints nothing, whatever compiled code says: stdout belongs to the caller's JSON.
"""

import concurrent.futures
import contextlib
import ctypes
import dataclasses
import os
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any, Final, Literal

import numpy as np
from scipy import sparse

from ._linear_model import Answer, LinearModel, Status

_STATUS: Final[dict[int, Status]] = {0: "optimal", 2: "infeasible"}
"""Of SciPy; others are limits reached, no least cost, and failures."""


def highs(
    model: LinearModel,
    *,
    method: Literal["highs", "highs-ds", "highs-ipm"] = "highs",
    time_limit: float | None = None,
    gap: float = 0.0,
    nodes: int | None = None,
    presolve: bool = True,
    checks: int | None = None,
) -> Answer:
    """The least cost of a model, with `duals` if no variable is whole.

    Arguments:

    - `method`: of real variables: HiGHS's choice, dual simplex, or interior point.
    - `time_limit`: s. `gap`: relative, that will do. `nodes`: most branches.
      `presolve`: whether rows and columns are simplified first. `checks`: most times
      that it looks at its limits, a budget that does not depend on the machine's load.
      All five of whole variables alone; what was found until a limit is the answer, as
      "feasible".
    """
    began = time.perf_counter()
    if not np.any(model.whole):
        return _real(model, method, began)
    limits = {"time_limit": time_limit, "mip_max_nodes": nodes}
    options = {"mip_rel_gap": gap, "presolve": "on" if presolve else "off", **limits}
    return _whole(model, options, checks, began)


def _real(model: LinearModel, method: str, began: float) -> Answer:
    """Real variables. SciPy wants rows that equal something apart from those with a
    highest value, and tells the duals of both."""
    from scipy.optimize import linprog

    equal = model.row_low == model.row_high
    ends = np.isfinite(np.stack([model.row_high, model.row_low], axis=1))
    row, side = np.nonzero(ends & ~equal[:, None])  # 1: a lowest value, turned round
    sign = 1.0 - 2.0 * side
    above = sparse.csr_array(sparse.diags_array(sign) @ model.matrix[row])
    most = np.where(side, -model.row_low[row], model.row_high[row])
    found: Any = linprog(
        model.cost,
        *((above, most) if len(row) else (None, None)),
        *((model.matrix[equal], model.row_low[equal]) if equal.any() else (None, None)),
        bounds=np.stack([model.low, model.high], axis=1),
        method=method,
    )
    if found.status != 0:
        return _answer(found, None, None, began)
    duals = np.zeros(len(equal))
    of_row, turned = found.ineqlin.marginals, side == 1
    duals[row[~turned]] = of_row[~turned]
    duals[row[turned]] -= of_row[turned]
    duals[equal] = found.eqlin.marginals
    answer = _answer(found, found.x, found.fun, began)
    return dataclasses.replace(answer, duals=duals)


def _whole(
    model: LinearModel, options: dict[str, Any], checks: int | None, began: float
) -> Answer:
    """Whole variables, in a thread of their own: the main one hears Ctrl-C."""
    import highspy

    solver: Any
    seen, stop = 0, threading.Event()

    def check(event: Any) -> None:
        nonlocal seen
        seen += 1
        if stop.is_set() or (checks is not None and seen >= checks):
            event.interrupt()

    with SILENT:
        solver = new_solver(model, options)
        solver.cbMipInterrupt.subscribe(check)
        with concurrent.futures.ThreadPoolExecutor(1) as thread:
            run = thread.submit(solver.run)
            try:
                run.result()
            finally:
                stop.set()
    ended, info = solver.getModelStatus(), solver.getInfo()
    has = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
    status: Status = "feasible" if has else "unknown"
    if ended == highspy.HighsModelStatus.kInfeasible:
        status, has = "infeasible", False
    elif ended == highspy.HighsModelStatus.kOptimal:
        status = "optimal"
    return Answer(
        status=status,
        values=np.array(solver.getSolution().col_value) if has else None,
        incumbent=float(info.objective_function_value) if has else None,
        bound=float(info.mip_dual_bound),
        seconds=time.perf_counter() - began,
        message=solver.modelStatusToString(ended),
        checks=seen,
        iterations=max(0, int(info.simplex_iteration_count)),
    )


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


def _answer(found: Any, values: Any, bound: float | None, began: float) -> Answer:
    """SciPy's result as any solver's."""
    other = "unknown" if values is None else "feasible"
    return Answer(
        status=_STATUS.get(found.status, other),
        values=values,
        incumbent=None if values is None else float(found.fun),
        bound=bound,
        seconds=time.perf_counter() - began,
        message=found.message,
    )


class _SilentStdout:
    """What compiled code prints within goes nowhere (HiGHS has lines that no option
    turns off). Searches of several threads share one silence: the first begins it, the
    last ends it."""

    def __init__(self) -> None:
        self._lock, self._within = threading.Lock(), 0
        self._kept: int | None = None

    def __enter__(self) -> None:
        with self._lock:
            self._within += 1
            if self._within > 1:
                return
            try:
                self._kept = os.dup(1)
            except OSError:  # no stdout at all
                self._kept = None
                return
            sys.stdout.flush()
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, 1)
            os.close(nowhere)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._within -= 1
            if self._within or self._kept is None:
                return
            with contextlib.suppress(OSError, AttributeError, TypeError):
                ctypes.CDLL(None).fflush(None)  # before it gets to the real one
            os.dup2(self._kept, 1)
            os.close(self._kept)
            self._kept = None


SILENT: Final = _SilentStdout()
