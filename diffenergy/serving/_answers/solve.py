"""Numbers of one answer, by programs that are kept between runs."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from ...compiling import kept
from ...hardware import GpuSpec, OperatingPoint
from .._deployment import Deployment
from .._steady.figures import Asked, Mode, Steady, asked, steady
from .._steady.server import Server
from .._step.table import StepCosts, costs_once


class Question(eqx.Module):
    """One replica and its load; what is static makes a program of its own."""

    server: Server
    slots: Float[Array, ""]
    clients: Float[Array, ""]
    rate: Float[Array, ""]
    phi: Float[Array, ""]
    ttft_limit: Float[Array, ""]
    tpot_limit: Float[Array, ""]
    mode: Mode = eqx.field(static=True)
    states: int = eqx.field(static=True)

    @property
    def load(self) -> Asked:
        """The load as the closed forms take it."""
        return Asked(
            self.slots, self.clients, self.rate, self.phi, self.ttft_limit,
            self.tpot_limit,
        )  # fmt: skip


def answered(question: Question) -> Steady:
    """Its figures."""
    return steady(question.server, question.load, question.mode, question.states)


def priced(
    found: Deployment, gpu: GpuSpec | None = None, point: OperatingPoint | None = None
) -> StepCosts:
    """Costs of the steps of a deployment, by a kept program."""
    arguments = (
        found.program.workload,
        found.program.knots,
        found.gpu if gpu is None else gpu,
        found.point if point is None else point,
    )
    return _kept(costs_once, arguments)


def solved(found: Deployment, costs: StepCosts) -> Steady:
    """Figures of a deployment under its load, on the host."""
    question = question_of(found, costs)
    return jax.device_get(_kept(answered, (question,)))


def saturated(found: Deployment, costs: StepCosts) -> Steady:
    """Figures of a replica that always has as much to do as it may take."""
    load = asked(found.slots)
    question = Question(found.server(costs), *load, mode="saturated", states=0)
    return jax.device_get(_kept(answered, (question,)))


def question_of(found: Deployment, costs: StepCosts) -> Question:
    """What is asked of one replica."""
    load = found.asked()
    return Question(found.server(costs), *load, mode=found.mode, states=found.states)


def _kept(function: Any, arguments: tuple[Any, ...]) -> Any:
    return kept(function, jax.tree.map(jnp.asarray, arguments))
