"""OR-Tools in a child process: large linear models, with whole or real variables.

The child keeps the parent free: limits, Ctrl-C and progress work, and what was found
so far is kept. One worker and a seed give the same answer every time, whatever else the
machine does, unless wall time cuts the search.
"""

import contextlib
import dataclasses
import math
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np

from ._linear_model import LEAST, Answer, LinearModel

SOLVERS: Final = ("cp-sat", "glop", "pdlp", "highs", "scip")
"""CP-SAT for whole variables, GLOP and PDLP for real ones, HiGHS and SCIP for both."""
_GRACE: Final = 5.0
"""Seconds after its time limit at which a child is ended."""


@dataclasses.dataclass(frozen=True)
class Solving:
    """How to solve: `solver` (None: CP-SAT for whole variables, GLOP for real ones,
    HiGHS for both together), relative `gap` that will do, and whom to tell of progress.

    `work`: most steps, in s of an idle core; CP-SAT and GLOP count them. `time_limit`:
    wall time, s, the last resort, and the only limit of the others.
    """

    solver: str | None = None
    time_limit: float = 3600.0
    seed: int = 0
    gap: float = 0.0
    watch: Callable[[Answer], None] | None = None
    work: float = math.inf

    def less(self, seconds: float, work: float) -> "Solving":
        """With what is left of both limits, at least a little."""
        time, steps = self.time_limit - seconds, self.work - work
        return dataclasses.replace(
            self, time_limit=max(time, LEAST), work=max(steps, LEAST)
        )


USUAL: Final = Solving()


class Worker:
    """A child process that solves one model after another."""

    def __init__(self) -> None:
        # A session of its own: Ctrl-C reaches the parent alone, who decides.
        self._child = subprocess.Popen(
            [sys.executable, "-m", "diffenergy.search._ortools_child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )

    def close(self) -> None:
        """End the child."""
        self._child.kill()
        self._child.wait()
        for pipe in (self._child.stdin, self._child.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()

    def solve(self, model: LinearModel, how: Solving = USUAL) -> Answer:
        """The best answer within the limits and gap.

        Ctrl-C returns the best answer so far, if there is one; the worker is closed
        then, as it is when a solver overruns its limit.

        Raises:
            ValueError: unknown solver, or one that cannot treat whole variables.
            KeyboardInterrupt: on Ctrl-C before a first answer.
            RuntimeError: the child died (its own message is on stderr).
        """
        solver = how.solver or _usual(model)
        _check(model, solver)
        order = model, solver, how.time_limit, how.work, how.seed, how.gap
        best: Answer | None = None
        ends = time.monotonic() + how.time_limit + _GRACE
        # Ends a child that does not keep its time limit.
        timer = threading.Timer(how.time_limit + _GRACE, self._child.kill)
        timer.daemon = True
        timer.start()
        try:
            for answer, final in self._answers(order):
                if answer.values is not None:
                    best = answer
                if final:
                    return answer
                if how.watch is not None:
                    how.watch(answer)
        except KeyboardInterrupt:
            self.close()
            if best is None:
                raise
            return dataclasses.replace(best, interrupted=True)
        finally:
            timer.cancel()
        code = self._child.wait()
        self.close()
        if time.monotonic() < ends:
            raise RuntimeError(f"solver {solver} ended with status {code}")
        return best or Answer("unknown", None, None, None, how.time_limit)

    def _answers(self, order: tuple[Any, ...]) -> Iterator[tuple[Answer, bool]]:
        """Answers as the child finds them, each with whether it is the last."""
        orders, answers = self._child.stdin, self._child.stdout
        assert orders is not None and answers is not None
        # A child that died is noticed when its answers end.
        with contextlib.suppress(BrokenPipeError):
            pickle.dump(order, orders, protocol=pickle.HIGHEST_PROTOCOL)
            orders.flush()
        with contextlib.suppress(EOFError, pickle.UnpicklingError):
            while True:
                yield pickle.load(answers)


def worker() -> contextlib.closing[Worker]:
    """A child process for the solves within."""
    return contextlib.closing(Worker())


def solve(
    model: LinearModel, how: Solving = USUAL, child: Worker | None = None
) -> Answer:
    """`Worker.solve`, in a child of its own if none is given."""
    if child is not None:
        return child.solve(model, how)
    with worker() as own:
        return own.solve(model, how)


def _usual(model: LinearModel) -> str:
    if not np.any(model.whole):
        return "glop"
    return "cp-sat" if np.all(model.whole) else "highs"


def _check(model: LinearModel, solver: str) -> None:
    if solver not in SOLVERS:
        raise ValueError(
            f"`solver` is {solver}; allowed are {', '.join(SOLVERS)}; leave it out to "
            "have it chosen."
        )
    if np.any(model.whole) and solver in ("glop", "pdlp"):
        raise ValueError(
            f"`solver` is {solver}, which has no whole variables; take cp-sat, highs "
            "or scip."
        )
    if solver == "cp-sat" and not np.all(model.whole):
        raise ValueError(
            "`solver` is cp-sat, which has whole variables alone; take glop, pdlp, "
            "highs or scip."
        )
