"""Numbers of one answer, by programs that are kept between runs."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from ...compiling import kept
from ...hardware import GpuSpec, OperatingPoint
from .._deployment import Deployment
from .._steady.figures import Asked, Mode, Steady, asked, steady
from .._steady.server import Server
from .._step.table import StepCosts, step_costs


class Question(eqx.Module):
    """One replica and its load; what is static makes a program of its own."""

    server: Server
    load: Asked
    mode: Mode = eqx.field(static=True)
    states: int = eqx.field(static=True)


def answered(question: Question) -> Steady:
    """Its figures."""
    return steady(question.server, question.load, question.mode, question.states)


def priced(
    found: Deployment, gpu: GpuSpec | None = None, point: OperatingPoint | None = None
) -> StepCosts:
    """Costs of the steps of a deployment, by a kept program."""
    gpu = found.gpu if gpu is None else gpu
    point = found.point if point is None else point
    return _kept(step_costs, (*found.program, gpu, point))


def solved(found: Deployment, costs: StepCosts) -> Steady:
    """Figures of a deployment under its load, on the host."""
    server = found.server(costs)
    question = Question(server, found.asked(), found.mode, found.states)
    return jax.device_get(_kept(answered, (question,)))


def saturated(found: Deployment, costs: StepCosts) -> Steady:
    """Figures of a replica that always has as much to do as it may take."""
    question = Question(found.server(costs), asked(found.slots), "saturated", 0)
    return jax.device_get(_kept(answered, (question,)))


def alone(found: Deployment, costs: StepCosts) -> Steady:
    """Figures of a replica with a single request after another."""
    question = Question(found.server(costs), asked(1.0), "saturated", 0)
    return jax.device_get(_kept(answered, (question,)))


def _kept(function: Any, arguments: tuple[Any, ...]) -> Any:
    return kept(function, jax.tree.map(jnp.asarray, arguments))
