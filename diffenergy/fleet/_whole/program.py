"""The integer program itself: whole replicas of every row in every slot, with starts.

Small fleets are solved by it to proof; of large ones it plans a few models anew with
what the others leave.
"""

import numpy as np
from scipy import sparse

from .._bound.linear import slot_limits
from .._problem.problem import Problem
from .integer import Found, least


def whole(problem: Problem, *, seconds: float, gap: float = 0.0) -> Found:
    """The least plan of all slots with their starts, replicas [slot, row]."""
    slots, first, group = problem.slots, problem.firsts, problem.group
    parts = [slot_limits(problem, slot) for slot in range(slots)]
    blocks, low, high, _ = (list(x) for x in zip(*parts, strict=True))
    cost = [problem.cost(slot) for slot in range(slots)]
    matrix = sparse.csr_array(sparse.block_diag(blocks))
    paid = np.flatnonzero(problem.start[first] > 0)  # groups whose start costs
    more = (slots - 1) * len(paid)
    if more:
        # X - X of the slot before - u <= 0
        here, before = (sparse.eye_array(slots - 1, slots, k=k) for k in (1, 0))
        loads = sparse.csr_array((group == paid[:, None]).astype(float))
        rise = sparse.kron(here - before, loads)
        both = [[matrix, None], [rise, -sparse.eye_array(more)]]
        matrix = sparse.csr_array(sparse.block_array(both))
        low.append(np.full(more, -np.inf))
        high.append(np.zeros(more))
        cost += [problem.start_cost(slot)[first[paid]] for slot in range(1, slots)]
    most = np.floor(problem.count[problem.rows.pool] / problem.rows.gpus + 1e-9)
    upper = np.r_[np.tile(most, slots), np.full(more, most.max(initial=0.0))]
    found = least(
        np.concatenate(cost), matrix, np.concatenate(low), np.concatenate(high), upper,
        seconds=seconds, gap=gap,
    )  # fmt: skip
    values = found.values
    if values is not None:
        values = values[: slots * len(most)].reshape(slots, len(most))
    idle = sum(problem.idle_cost(slot) for slot in range(slots))
    return Found(values, found.bound + idle, found.proven)
