"""The public `simulate`: a trace of requests through a server, by name."""

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...compiling import kept
from ...requests import accepts, part
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
from .answer import told
from .simulation import SLOTS, Outcome, Requests, Sizes, most_turns, run_through
from .trace import COLUMNS, Trace, checked, read_trace


@accepts(TraceRequest)
def simulate(request: TraceRequest) -> ServingResult:
    """A trace of requests through a server, step by step.

    `trace` may be a table by column, too; `load` has `max_batch`, `cached_len` and
    limits of latencies.

    Returns:
        A `ServingResult`; `saturation_request_rate_per_s` is the closed form's for the
        trace's mean lengths.

    Raises:
        ValueError: for what cannot be, in one sentence.
        Infeasible: if a request does not fit the memory.
    """
    found, given = _trace(request.trace), _given(request.load)
    whole = load_model(request.model)
    if isinstance(whole, LanguageModel):  # else `deploy` says so
        found = _within(
            whole, found, given.get("cached_len") or 0.0, request.skip_too_long
        )
    ask = Load(
        **{"max_batch": float(SLOTS), **given},
        input_len=of_values(found.prompt),
        output_len=of_values(found.output),
    )
    place = deploy(**{**part(DeployRequest, request), "load": ask})
    _check_memory(place, found)
    shown = ask
    if "max_batch" not in given:
        span = max(float(found.arrival[-1] - found.arrival[0]), 1e-9)
        rate = len(found.arrival) / span
        shown = dataclasses.replace(ask, max_batch=None, rate=rate)
    costs = place.costs()
    check_limits(place, costs)
    runs = [_run(place, costs, found, i) for i in range(place.replicas)]
    summary = told(place, shown, min(place.slots, SLOTS), costs, found, runs)
    return ServingResult(summary, place, costs, (*place.model.notes, *found.notes))


def _trace(trace: str | Path | Mapping[str, Any]) -> Trace:
    """The trace of a file, or of columns."""
    if isinstance(trace, str | Path):
        return read_trace(trace)
    for name in COLUMNS:
        if name not in trace:
            raise ValueError(f"`trace` has no column `{name}`.")
    arrival, prompt, output = (trace[name] for name in COLUMNS)
    return checked(arrival, prompt, output)


def _given(load: Load | Mapping[str, Any] | None) -> dict[str, Any]:
    """What a load states, beside what the trace decides."""
    given = dataclasses.asdict(load) if isinstance(load, Load) else load or {}
    for name in ("rate", "concurrency", "waves", "input_len", "output_len"):
        if given.get(name) is not None:
            raise ValueError(
                f"`{name}` is given beside `trace`, which decides it; leave it out."
            )
    return {k: v for k, v in given.items() if v is not None}


def _within(model: LanguageModel, trace: Trace, cached: float, skip: bool) -> Trace:
    """The trace, if each request is within the model's positions, or those that are."""
    most = model.max_positions
    if skip:
        return trace.up_to(most - cached, model.name)
    total = trace.prompt + trace.output + cached
    worst = int(total.argmax())
    if total[worst] > most:
        raise ValueError(
            f"`trace` has {total[worst]:g} tokens in row {worst}, but {model.name} "
            f"has {most} positions; leave out such requests (`skip_too_long`)."
        )
    return trace


def _check_memory(found: Deployment, trace: Trace):
    total = trace.prompt + trace.output + found.load.cached
    worst = int(total.argmax())
    need, pool = found.memory(found.gpu).on_host(float(total[worst]))
    if need > pool:
        raise Infeasible(
            f"`trace` has {total[worst]:g} tokens in row {worst}, more than the "
            "memory left by the weights holds; take more GPUs (`tp`)."
        )


def _run(found: Deployment, costs: Any, trace: Trace, replica: int) -> Outcome:
    """One replica's share: every n-th request."""
    n = found.replicas
    own = [x[replica::n] for x in trace.columns]
    rows = 1 << max(len(own[0]) - 1, 1).bit_length()
    padded = [np.pad(x, (0, rows - len(x)), mode="edge") for x in own]
    arrival, prompt, output = map(jnp.asarray, padded)
    requests = Requests(arrival, prompt, output, jnp.asarray(len(own[0])))
    limit = min(found.slots, SLOTS)
    slots = 1 << max(math.ceil(math.log2(max(limit, 2))), 3)
    pieces = float(np.maximum(own[1] / found.chunk, 1).mean())
    turns = most_turns(rows, pieces, float(own[2].sum()))
    given = (found.server(costs), requests, jnp.asarray(limit))
    while True:  # who is dropped takes more turns
        asked = (*given, Sizes(slots, turns))
        ran = jax.device_get(kept(run_through, asked, once=False))
        if not np.isnan(ran.last[: len(own[0])]).any():
            return ran
        turns *= 2
