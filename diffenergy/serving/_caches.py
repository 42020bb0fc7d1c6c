"""Caches of a server in its JSON: hits of the prefix cache and what a point of them is
worth, requests that pause, and caches on the host."""

from typing import Any

import jax.numpy as jnp

from ._deployment import Deployment
from ._solve import hit_slopes
from ._steady.figures import Steady
from ._step.cost import prompt_weights, prompts
from ._step.table import StepCosts

_POINT = 0.01


def cache_figures(
    deployment: Deployment, costs: StepCosts, figures: Steady
) -> dict[str, Any]:
    """Keys of prefix hits and pauses beside those of a server; none without them."""
    load, summary = deployment.load, dict[str, Any]()
    if load.prefix_hit is not None:
        slopes = hit_slopes(deployment, costs)
        point = {x: None if y is None else _POINT * y for x, y in slopes.items()}
        summary |= {"prefix_hit": load.prefix_hit, "prefix_hit_point": point}
    if load.pause is not None:
        paused = deployment.replicas * float(figures.pausing)
        summary |= {"pause_s": load.pause, "paused_requests": paused}
    if load.kv_offload is not None:
        summary["kv_offload"] = _offload(deployment, costs, figures)
    return summary


def _offload(
    deployment: Deployment, costs: StepCosts, figures: Steady
) -> dict[str, Any]:
    """What the host's memory holds, and times (s) to bring the cached tokens of a
    prompt back and to compute them anew, alone on the GPUs."""
    load, memory = deployment.load, deployment.memory(deployment.gpu)
    tp, pause = deployment.plan.tp, deployment.pause
    assert pause is not None
    one, _ = memory.on_host(load.input.mean + load.cached + load.output.mean)
    fetch = float(pause.fetch) * memory.on_host(load.cached)[0]
    of = costs, deployment.engine, jnp.zeros(())
    weights = prompt_weights(costs, jnp.asarray(load.cached))
    anew = float(prompts(*of, weights, jnp.zeros(())).time[-1])
    share = float(figures.fetch) / fetch if fetch else 0.0
    return {
        "bytes": load.kv_offload,
        "requests": deployment.replicas * (load.kv_offload or 0.0) / (tp * one),
        "fetched_share": share,
        "fetch_s": fetch,
        "compute_s": anew,
    }


def cache_notes(summary: dict[str, Any]) -> list[str]:
    """Warnings about caches on the host."""
    x = summary.get("kv_offload")
    if x is None or x["fetch_s"] <= x["compute_s"]:
        return []
    return [
        f"`kv_offload` brings the cached tokens of a prompt back in {x['fetch_s']:.3g} "
        f"s, longer than computing them takes, {x['compute_s']:.3g} s; leave it out."
    ]
