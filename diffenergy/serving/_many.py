"""The public `steady_states`: one server under many loads, by few tables of steps."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from ..requests import part
from ..results import Infeasible
from . import _result as _answer
from ._deploy import deploy
from ._deployment import Deployment
from ._lengths import fixed
from ._load import Load
from ._request import DeployRequest, ServerRequest
from ._result import ServingResult
from ._solve import solved

_ALIKE: Final = 1.5
"""Ratio of contexts, and of cached tokens, that share a table of steps."""


def steady_states(
    loads: Sequence[Load], server: ServerRequest, **fields: Any
) -> list[ServingResult | Infeasible]:
    """What a server costs under each of several loads, in steady state.

    Loads with contexts within a factor of 1.5 share one table of steps, whose mean
    context it is; figures are within 1 % of those of `steady_state`.

    Args:
        loads: the loads; equal ones are computed once.
        server: how the model is served; fields that it lacks are the usual ones.
        fields: more fields of a server, such as `model` and `gpu`.

    Returns:
        For every load its result, or the reason why there is none.

    Raises:
        ValueError: for what cannot be, in one sentence.
    """
    arguments = part(DeployRequest, server, **fields)
    answers: dict[Load, ServingResult | Infeasible] = {}
    groups: dict[tuple[Any, ...], list[Deployment]] = {}
    for load in dict.fromkeys(loads):
        try:
            deployment = deploy(**{**arguments, "load": load})
        except Infeasible as error:
            answers[load] = error
            continue
        logs = np.log([deployment.context, load.cached + 64]) / np.log(_ALIKE)
        alike = tuple(map(round, logs.tolist()))
        groups.setdefault(alike, []).append(deployment)
    for members in groups.values():
        costs = covering(members, max(x.most for x in members)).costs()
        for one in members:
            figures = solved(one, costs)
            try:
                _answer.check(one, figures)
            except Infeasible as error:
                answers[one.load] = error
                continue
            summary: Mapping[str, Any] = _answer.to_json(one, figures)
            answers[one.load] = ServingResult(dict(summary), one, costs)
    return [answers[load] for load in loads]


def covering(deployments: Sequence[Deployment], most: int | float) -> Deployment:
    """One deployment whose table of steps covers the loads of all, up to `most`
    requests of a replica."""
    context = float(np.median([x.context for x in deployments]))
    lengths = [x.load.input.mean * y for x in deployments for y in x.load.input.nodes]
    nodes = tuple(np.linspace(min(lengths), max(lengths), 16))
    middle = float(np.mean(nodes))
    cached = float(np.median([x.load.cached for x in deployments]))
    # inverse of `Deployment.context` for outputs of one length (spread 1)
    output = max(2 * (context - middle - cached), 2.0)
    load = Load(
        max_batch=float(most),
        input_len=dataclasses.replace(
            fixed(middle), nodes=tuple(x / middle for x in nodes)
        ),
        output_len=fixed(output),
        cached_len=cached,
    )
    return dataclasses.replace(deployments[0], load=load, covering=True)
