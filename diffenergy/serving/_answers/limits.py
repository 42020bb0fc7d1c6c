"""Limits of latencies that no server can keep: below one step of it."""

import math
from typing import Final

from ...results import Infeasible
from .._deployment import Deployment
from .._step.table import StepCosts
from .solve import alone

_LIMITS: Final = ("slo_ttft", "slo_tpot")


def check_limits(found: Deployment, costs: StepCosts) -> None:
    """Raises `Infeasible` for a limit of the load below the decode step of one request
    alone, which every token takes at least: mostly seconds that are read as ms."""
    limits = {name: getattr(found.load, name) for name in _LIMITS}
    limits = {name: limit for name, limit in limits.items() if limit is not None}
    if not limits:
        return
    step = float(alone(found, costs).decode)
    for name, limit in limits.items():
        if math.isfinite(step) and limit < step:
            raise Infeasible(
                f"`{name}` is {1e3 * limit:g} ms, less than one step of the server "
                f"with a single request, {1e3 * step:.4g} ms; raise it (on the command "
                f"line a bare number is in ms: `{1e3 * limit:g}s` is seconds).",
                **{name: step},
            )
