"""Speculative decoding beside the same server without it, and the batch where it stops
to pay."""

import dataclasses
from typing import Any, Final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from ._deployment import Deployment
from ._solve import run_cached, solved
from ._steady.server import Server, running
from ._step.table import StepCosts

_BATCHES: Final = np.geomspace(1, 1024, 81)
"""Running requests of one replica at which both are compared."""


class Batches(eqx.Module):
    """One replica, and numbers of requests that run."""

    server: Server
    batches: Float[Array, " n"]


def token_costs(question: Batches) -> tuple[Array, Array]:
    """Energy (J of one GPU) and time (s) of a token with so many requests."""
    at = jax.vmap(lambda b: running(question.server, b))(question.batches)
    return at.energy / (at.decoding * at.tokens), at.token


def speculation_figures(
    deployment: Deployment, costs: StepCosts, compared: bool = True
) -> dict[str, Any]:
    """Keys of speculation beside those of a server; none without it.

    `costs`: of the deployment. `compared`: whether figures under the load are those of
    the closed form, so that the ones without speculation are, too.
    """
    request = deployment.request
    if request.speculative is None:
        return {}
    choices = dict(speculative=None, accept=None, draft_tokens=None)
    plain = dataclasses.replace(
        deployment, request=dataclasses.replace(request, **choices)
    )
    plain_costs = plain.costs()
    server, other = deployment.server(costs), plain.server(plain_costs)
    with_it, without = (
        jax.device_get(run_cached(token_costs, (Batches(x, jnp.asarray(_BATCHES)),)))
        for x in (server, other)
    )
    energy, time = (turning_point(x / y) for x, y in zip(with_it, without, strict=True))
    figures = solved(plain, plain_costs) if compared else None
    # an open loop may be too much without speculation
    if figures is not None and deployment.mode == "open" and figures.load >= 1:
        figures = None
    return {
        "speculative": request.speculative,
        "accept": request.accept,
        "draft_tokens": request.draft_tokens,
        "tokens_per_step": float(server.burst[0]),
        "break_even_batch": {"energy": energy, "time": time},
        "without_speculation": figures
        and {
            "energy_j_per_output_token": deployment.plan.tp * float(figures.energy),
            "tpot_s": float(figures.tpot.mean) if deployment.load.decodes else None,
        },
    }


def turning_point(ratio: np.ndarray) -> float | None:
    """Batch at which a cost over that without speculation rises to 1: 1 where it is no
    less for a single request, None where it is less for all of `_BATCHES`.

    >>> turning_point(np.sqrt(_BATCHES / 64))
    64.0
    """
    over = np.flatnonzero(ratio >= 1)
    if not len(over):
        return None
    i = int(over[0])
    if i == 0:
        return 1.0
    logs, x = np.log(ratio), np.log(_BATCHES)
    share = -logs[i - 1] / (logs[i] - logs[i - 1])
    return float(round(np.exp(x[i - 1] + share * (x[i] - x[i - 1])), 6))
