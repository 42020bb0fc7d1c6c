"""Child process of `_ortools`: reads models from stdin, writes answers to stdout."""

import os
import pickle
import sys
import threading
import time
from typing import IO, Any, Final

import numpy as np
from ortools.linear_solver.python import model_builder_helper as linear
from ortools.sat.python import cp_model

from ._linear_model import LEAST, Answer, LinearModel, Status

_SCALE: Final = 1e6
"""Costs become whole numbers up to this for CP-SAT."""
# Least volume at a least horizon has many equal optima: perturbed costs take a third
# less time (225 epochs of two NDv2: 16 instead of 24 s of CPU).
_GLOP: Final = (
    "use_dual_simplex:true perturb_costs_in_dual_simplex:true random_seed:{seed} "
    "max_deterministic_time:{steps}"
)
_CP_SAT_RATE: Final = 0.5
_GLOP_RATE: Final = 0.6
"""What each solver counts in a second of an idle core. Programs of two and four NDv2
and of two DGX-2 take 0.2 to 0.95 of CP-SAT and 0.5 to 0.7 of GLOP."""
_CP_SAT_CELL, _GLOP_CELL = 7e-6, 3e-6
"""s of an idle core for each number of a matrix: of reading and presolve, which CP-SAT
leaves out (6e-6 to 11e-6); of all of GLOP, which does not say what it counted."""
_LINEAR: Final[dict[str, tuple[str, str]]] = {
    "glop": ("GLOP", _GLOP),
    "pdlp": ("PDLP", "num_threads:1"),
    "highs": ("HIGHS", ""),
    "scip": ("SCIP", "randomization/randomseedshift={seed}"),
}
_STATUS: Final[dict[str, Status]] = {
    "OPTIMAL": "optimal",
    "FEASIBLE": "feasible",
    "INFEASIBLE": "infeasible",
}


def _whole_cost(model: LinearModel) -> tuple[np.ndarray, float]:
    """Cost in whole numbers and what one of them is worth."""
    cost = model.cost
    if np.all(cost == np.round(cost)):
        return cost.astype(np.int64), 1.0
    unit = float(np.abs(cost).max()) / _SCALE
    return np.round(cost / unit).astype(np.int64), unit


def _cp_model(model: LinearModel, cost: np.ndarray) -> cp_model.CpModel:
    """The rows as they are, handed to CP-SAT one by one (it has no call for all)."""
    built = cp_model.CpModel()
    proto = built.proto
    lows: list[int] = model.low.astype(int).tolist()
    highs: list[int] = model.high.astype(int).tolist()
    for low, high in zip(lows, highs, strict=True):
        proto.variables.add().domain.extend((low, high))
    least, most = np.iinfo(np.int64).min, np.iinfo(np.int64).max
    row_low = np.where(np.isinf(model.row_low), least, model.row_low).tolist()
    row_high = np.where(np.isinf(model.row_high), most, model.row_high).tolist()
    start: list[int] = np.asarray(model.matrix.indptr).tolist()
    column: list[int] = np.asarray(model.matrix.indices).tolist()
    value: list[int] = model.matrix.data.astype(int).tolist()
    for row in range(len(row_low)):
        linear_row = proto.constraints.add().linear
        linear_row.vars.extend(column[start[row] : start[row + 1]])
        linear_row.coeffs.extend(value[start[row] : start[row + 1]])
        linear_row.domain.extend((int(row_low[row]), int(row_high[row])))
    priced = np.flatnonzero(cost)
    if len(priced):
        proto.objective.vars.extend(priced.tolist())
        proto.objective.coeffs.extend(cost[priced].tolist())
    return built


class _Reporter(cp_model.CpSolverSolutionCallback):
    """Sends every better solution and bound to the parent."""

    def __init__(self, out: IO[bytes], model: LinearModel, unit: float) -> None:
        super().__init__()
        self._out, self._model, self._unit = out, model, unit
        self._lock = threading.Lock()
        self._start = time.perf_counter()
        self._priced = bool(model.cost.any())

    def on_solution_callback(self) -> None:
        values = np.array(list(self.response_proto.solution), float)
        objective = float(self._model.cost @ values)
        bound = self.best_objective_bound * self._unit if self._priced else 0.0
        self._write(Answer("feasible", values, objective, bound, self.seconds))

    def on_bound(self, bound: float) -> None:
        """A better bound without a new solution."""
        if self._priced:
            found = Answer("unknown", None, None, bound * self._unit, self.seconds)
            self._write(found)

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self._start

    def _write(self, answer: Answer) -> None:
        with self._lock:
            pickle.dump((answer, False), self._out)
            self._out.flush()


def _cp_sat(
    model: LinearModel,
    out: IO[bytes],
    limit: float,
    work: float,
    seed: int,
    gap: float,
) -> Answer:
    cost, unit = _whole_cost(model)
    built = _cp_model(model, cost)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = limit
    before = model.matrix.nnz * _CP_SAT_CELL
    steps = max(work - before, LEAST) * _CP_SAT_RATE
    solver.parameters.max_deterministic_time = steps
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = seed
    # Probing costs more than it saves here: 34 epochs of two NDv2 are proven too short
    # in 1.9 s without and 4.3 s with it.
    solver.parameters.cp_model_probing_level = 0
    solver.parameters.relative_gap_limit = gap
    reporter = _Reporter(out, model, unit)
    solver.best_bound_callback = reporter.on_bound
    status = _STATUS.get(solver.status_name(solver.solve(built, reporter)), "unknown")
    done = before + solver.response_proto.deterministic_time / _CP_SAT_RATE
    if status not in ("optimal", "feasible"):
        return Answer(status, None, None, None, reporter.seconds, work=done)
    values = np.array(list(solver.response_proto.solution), float)
    objective = float(model.cost @ values)
    bound = solver.best_objective_bound * unit if cost.any() else objective
    return Answer(status, values, objective, bound, reporter.seconds, work=done)


def _linear(
    model: LinearModel, solver: str, limit: float, work: float, seed: int
) -> Answer:
    name, parameters = _LINEAR[solver]
    helper = linear.ModelBuilderHelper()
    limits = (model.low, model.high, model.cost, model.row_low, model.row_high)
    fill: Any = helper.fill_model_from_sparse_data  # its stub mixes shapes and dtypes
    fill(*limits, model.matrix)
    whole = np.flatnonzero(np.broadcast_to(model.whole, model.cost.shape))
    for column in whole.tolist():
        helper.set_var_integrality(column, True)
    engine = linear.ModelSolverHelper(name)
    engine.set_time_limit_in_seconds(limit)
    if parameters:
        given = parameters.format(seed=seed, steps=work * _GLOP_RATE)
        engine.set_solver_specific_parameters(given)
    start = time.perf_counter()
    engine.solve(helper)
    seconds = time.perf_counter() - start
    status = _STATUS.get(engine.status().name, "unknown")
    done = model.matrix.nnz * _GLOP_CELL if solver == "glop" else 0.0
    if status not in ("optimal", "feasible"):
        return Answer(status, None, None, None, seconds, work=done)
    values = np.asarray(engine.variable_values(), float)
    objective = float(model.cost @ values)
    bound = objective if status == "optimal" else None
    if len(whole):
        bound = engine.best_objective_bound()
    return Answer(status, values, objective, bound, seconds, work=done)


def _follow_parent() -> None:
    """End with the parent, in the middle of a search too."""
    parent = os.getppid()
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


def main() -> None:
    """Solve until the parent closes the pipe."""
    threading.Thread(target=_follow_parent, daemon=True).start()
    out = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what solvers print
    while True:
        try:
            model, solver, limit, work, seed, gap = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        if solver == "cp-sat":
            answer = _cp_sat(model, out, limit, work, seed, gap)
        else:
            answer = _linear(model, solver, limit, work, seed)
        pickle.dump((answer, True), out)
        out.flush()


if __name__ == "__main__":
    main()
