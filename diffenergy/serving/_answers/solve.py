"""Numbers of one answer, by programs that are kept between runs."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from ...compiling import kept
from ...results import Infeasible
from .._deployment import Deployment
from .._steady.figures import Asked, Mode, Steady, asked, steady
from .._steady.server import Running, Server, running
from .._step.table import StepCosts


class Question(eqx.Module):
    """One replica and its load; what is static makes a program of its own."""

    server: Server
    load: Asked
    mode: Mode = eqx.field(static=True)
    states: int = eqx.field(static=True)


def answered(question: Question) -> Steady:
    """Its figures."""
    return steady(question.server, question.load, question.mode, question.states)


def solved(found: Deployment, costs: StepCosts) -> Steady:
    """Figures of a deployment under its load, on the host."""
    server = found.server(costs)
    question = Question(server, found.asked(), found.mode, found.states)
    return jax.device_get(run_kept(answered, (question,)))


def saturated(found: Deployment, costs: StepCosts) -> Steady:
    """Figures of a replica that always has as much to do as it may take."""
    question = Question(found.server(costs), asked(found.slots), "saturated", 0)
    return jax.device_get(run_kept(answered, (question,)))


def run_kept(function: Any, arguments: tuple[Any, ...]) -> Any:
    """`function(*arguments)`, pytrees of numbers, by a program that is kept."""
    return kept(function, jax.tree.map(jnp.asarray, arguments))


def alone(server: Server) -> Running:
    """The mean step of a replica with one request."""
    return running(server, jnp.ones(()))


def check_limits(found: Deployment, costs: StepCosts):
    """Raises `Infeasible` for a limit of a latency below what one request alone takes:
    likely a slip in the unit."""
    load = found.load
    if load.slo_ttft is None and load.slo_tpot is None:
        return
    at = jax.device_get(run_kept(alone, (found.server(costs),)))
    shortest = float(at.mixing + at.added.min() + found.engine.request)
    for name, limit, least, what in (
        ("slo_ttft", load.slo_ttft, shortest, "the first token of one request alone"),
        ("slo_tpot", load.slo_tpot, float(at.decode), "a step with one request"),
    ):
        if limit is not None and limit < least:
            raise Infeasible(
                f"`{name}` is {1e3 * limit:g} ms, but {what} takes {1e3 * least:.3g} "
                "ms on this server; give a longer limit (the command reads a number "
                "without a unit as ms: 0.5s is 500).",
                **{name: least},
            )
