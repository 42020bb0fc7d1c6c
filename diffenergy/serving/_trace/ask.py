"""The public `simulate`: a trace of requests through a server, by name."""

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...compiling import call_compiled
from ...estimator import profile_at
from ...power_time import PowerCurve
from ...requests import BadRequest, accepts, part
from ...results import Infeasible
from ...workload import LanguageModel
from ...workload.models import load_model
from .._deploy import deploy
from .._deployment import Deployment
from .._lengths import of_values
from .._load import Load
from .._optimize import check_limits
from .._request import DeployRequest, TraceRequest
from .._result import ServingResult
from .answer import to_json
from .power import drawn_power
from .simulation import SLOTS, Outcome, Requests, Sizes, most_turns, run_through
from .trace import COLUMNS, Trace, checked, read_trace


@accepts(TraceRequest)
def simulate(request: TraceRequest) -> ServingResult:
    """A trace of requests through a server, step by step.

    `trace` may be a table by column, too; `load` has `max_batch`, `cached_len` or
    `prefix_hit`, and limits of latencies.

    Returns:
        A `ServingResult`; `saturation_request_rate_per_s` is the closed form's for the
        trace's mean lengths.

    Raises:
        ValueError: for what cannot be, in one sentence.
        Infeasible: if a request does not fit the memory.
    """
    if request.attention_dp is not None:
        raise BadRequest(
            f"`attention_dp` is {request.attention_dp} beside `trace`, whose simulator "
            "has one queue for all GPUs of a replica; leave it out.",
            "attention_dp",
            "trace",
        )
    trace, fields = _trace(request.trace), _load_fields(request.load)
    whole = load_model(request.model)
    if isinstance(whole, LanguageModel):  # else `deploy` says so
        trace = _within(
            whole, trace, fields.get("cached_len") or 0.0, request.skip_too_long
        )
    ask = Load(
        **{"max_batch": float(SLOTS), **fields},
        input_len=of_values(trace.prompt),
        output_len=of_values(trace.output),
    )
    place = deploy(**{**part(DeployRequest, request), "load": ask})
    _check_memory(place, trace)
    shown = ask
    if "max_batch" not in fields:
        span = max(float(trace.arrival[-1] - trace.arrival[0]), 1e-9)
        rate = len(trace.arrival) / span
        shown = dataclasses.replace(ask, max_batch=None, rate=rate)
    costs = place.costs()
    check_limits(place, costs)
    runs = [_run(place, costs, trace, i) for i in range(place.replicas)]
    summary = to_json(place, shown, min(place.slots, SLOTS), costs, trace, runs)
    curves = dict[str, PowerCurve]()
    if request.power_step is not None or request.smooth is not None:
        drawn = drawn_power(place, costs, trace, runs, request.smooth)
        profile, curves = profile_at(drawn, place.site, request.power_step)
        summary |= profile
        if request.smooth is not None:
            summary["smoothing"] = drawn.to_json()
    notes = (*place.model.notes, *trace.notes)
    return ServingResult(summary, place, costs, notes, curves)


def _trace(trace: str | Path | Mapping[str, Any]) -> Trace:
    """The trace of a file, or of columns."""
    if isinstance(trace, str | Path):
        return read_trace(trace)
    for name in COLUMNS:
        if name not in trace:
            raise ValueError(f"`trace` has no column `{name}`.")
    arrival, prompt, output = (trace[name] for name in COLUMNS)
    return checked(arrival, prompt, output)


def _load_fields(load: Load | Mapping[str, Any] | None) -> dict[str, Any]:
    """What a load states, beside what the trace decides."""
    fields = dataclasses.asdict(load) if isinstance(load, Load) else load or {}
    for name in ("pause", "kv_offload"):
        if fields.get(name) is not None:
            raise BadRequest(
                f"`{name}` is given beside `trace`, whose requests do not say which of "
                "them go on after a pause; leave it out.",
                name,
                "trace",
            )
    for name in ("rate", "concurrency", "waves", "input_len", "output_len"):
        if fields.get(name) is not None:
            raise ValueError(
                f"`{name}` is given beside `trace`, which decides it; leave it out."
            )
    return {k: v for k, v in fields.items() if v is not None}


def _within(model: LanguageModel, trace: Trace, cached: float, skip: bool) -> Trace:
    """The trace, if each request is within the model's positions, or those that are."""
    most = model.max_positions
    if skip:
        return trace.up_to(most - cached, model.name)
    total = trace.prompt + trace.output + cached
    worst = int(total.argmax())
    if total[worst] > most:
        raise ValueError(
            f"`trace`: {trace.place(worst)} has {total[worst]:g} tokens, but "
            f"{model.name} has {most} positions; leave out such requests "
            "(`skip_too_long`)."
        )
    return trace


def _check_memory(deployment: Deployment, trace: Trace):
    total = trace.prompt + trace.output + (deployment.load.cached_len or 0.0)
    worst = int(total.argmax())
    need, pool = deployment.memory(deployment.gpu).on_host(float(total[worst]))
    if need > pool:
        raise Infeasible(
            f"`trace`: {trace.place(worst)} has {total[worst]:g} tokens, more than the "
            "memory left by the weights holds; take more GPUs (`tp`)."
        )


def _run(deployment: Deployment, costs: Any, trace: Trace, replica: int) -> Outcome:
    """One replica's share: every n-th request."""
    n = deployment.replicas
    arrival, sent, output = (x[replica::n] for x in trace.columns)
    load = deployment.load
    prompt = np.maximum(sent * (1 - (load.prefix_hit or 0.0)), 1.0)
    cached = np.where(load.prefix_hit is None, load.cached, sent - prompt)
    columns = [arrival, prompt, output, cached]
    rows = 1 << max(len(arrival) - 1, 1).bit_length()
    padded = [np.pad(x, (0, rows - len(x)), mode="edge") for x in columns]
    a, p, o, c = map(jnp.asarray, padded)
    requests = Requests(a, p, o, jnp.asarray(len(arrival)), c)
    limit = min(deployment.slots, SLOTS)
    slots = 1 << max(math.ceil(math.log2(max(limit, 2))), 3)
    pieces = float(np.maximum(columns[1] / deployment.chunk, 1).mean())
    turns = most_turns(rows, pieces, float(columns[2].sum()))
    arguments = (deployment.server(costs), requests, jnp.asarray(limit))
    while True:  # who is dropped takes more turns
        sized = (*arguments, Sizes(slots, turns))
        ran = jax.device_get(call_compiled(run_through, sized, once=False))
        if not np.isnan(ran.last[: len(columns[0])]).any():
            return ran
        turns *= 2
