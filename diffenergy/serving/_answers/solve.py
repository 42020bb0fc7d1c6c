"""Numbers of one answer, by programs that are kept between runs."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from ...compiling import kept
from .._deployment import Deployment
from .._steady.figures import Asked, Mode, Steady, asked, steady
from .._steady.server import Server
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


def alone(found: Deployment, costs: StepCosts) -> Steady:
    """Figures of a replica with a single request after another."""
    question = Question(found.server(costs), asked(1.0), "saturated", 0)
    return jax.device_get(run_kept(answered, (question,)))
