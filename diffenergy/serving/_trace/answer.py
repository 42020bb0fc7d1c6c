"""The JSON of a trace: what its requests waited for, and what the steps took."""

import dataclasses
import functools
import math
from typing import Any, NamedTuple

import numpy as np

from ...units import MHz
from .._deployment import Deployment
from .._drafts import speculation_figures
from .._load import Load
from .._result import by_level, check_power, completed, step_json
from .._solve import saturated
from .._steady.figures import QUANTILES
from .._step.table import StepCosts
from .simulation import SLOTS, Outcome
from .trace import Trace


class _Times(NamedTuple):
    """When each request had its tokens, s."""

    first: np.ndarray
    last: np.ndarray
    ttft: np.ndarray
    e2e: np.ndarray
    several: np.ndarray  # requests of several tokens
    tpot: np.ndarray  # of these
    mean_tpot: float  # weighted by their tokens
    span: float  # s that all took


def to_json(
    place: Deployment,
    shown: Load,
    slots: int | float,
    costs: StepCosts,
    trace: Trace,
    runs: list[Outcome],
) -> dict[str, Any]:
    """The JSON of a trace that each replica of `place` ran in so many `slots` at most,
    under the load that is `shown`."""
    deployment, n, count = (
        dataclasses.replace(place, load=shown),
        place.replicas,
        len(trace),
    )
    t = _times(deployment, trace, runs)
    lasted = max(float(trace.arrival[-1] - trace.arrival[0]), 1e-9)
    generated = float(trace.output.sum())
    tokens = float(trace.prompt.sum()) + generated + count * (shown.cached_len or 0.0)
    most = n * float(saturated(place, costs).saturation) / shown.output.mean
    _, pool = place.memory(place.gpu).on_host(place.context)
    cap = float(place.point.power_cap * place.gpu.cap_fraction)
    lowest = max(float(_turn(run, "lowest").max()) for run in runs)
    check_power(deployment, lowest, lowest <= cap)
    waiting = _average(runs, "waiting", t.span)
    limits = (shown.slo_ttft, shown.slo_tpot)
    summary = completed(deployment, slots, {
        "mode": "trace",
        "skipped_requests": trace.skipped,
        "request_rate_per_s": count / lasted if count > 1 else None,
        "request_throughput_per_s": count / t.span,
        "output_token_throughput_per_s": generated / t.span,
        "total_token_throughput_per_s": tokens / t.span,
        "saturation_request_rate_per_s": most,
        "limited_by": _limit(shown, slots, waiting),
        "running_requests": float((t.last - t.first).sum() / t.span),
        "waiting_requests": waiting,
        "kv_cache_usage": _average(runs, "cached_bytes", t.span) / (n * pool),
        "ttft_s": _shown(t.ttft),
        "tpot_s": _shown(t.tpot, t.mean_tpot) if len(t.tpot) else None,
        "itl_s": _weighted(*_gaps(runs, float(place.server(costs).burst[0])))
        if len(t.tpot)
        else None,
        "e2e_latency_s": _shown(t.e2e),
        **_steps(runs),
        "avg_power_w": _energy(deployment, costs, runs, t.span) / t.span,
        "goodput_per_s": None if limits == (None, None) else _good(t, *limits),
    })  # fmt: skip
    if not shown.max_batch:
        summary["assumed"]["max_batch"] = SLOTS
    hit = shown.prefix_hit
    summary |= {} if hit is None else {"prefix_hit": hit}
    return summary | speculation_figures(place, costs, compared=False)


def _times(deployment: Deployment, trace: Trace, runs: list[Outcome]) -> _Times:
    n, request = deployment.replicas, float(deployment.engine.request)
    first, last = (np.empty(len(trace.arrival)) for _ in range(2))
    for i, run in enumerate(runs):
        first[i::n] = run.first[: len(first[i::n])]
        last[i::n] = run.last[: len(last[i::n])]
    several = trace.output > 1
    lasted, tokens = (last - first)[several], (trace.output - 1)[several]
    return _Times(
        first,
        last,
        first - trace.arrival + request,
        last - trace.arrival + request,
        several,
        lasted / tokens,
        float(lasted.sum() / tokens.sum()) if several.any() else math.nan,
        max(float(run.end) for run in runs) - float(trace.arrival[0]),
    )


def _limit(shown: Load, slots: int | float, waiting: float) -> str:
    """What bounds the requests that run."""
    if waiting <= 0.5:
        return "rate"
    limit = shown.max_batch
    return "max_batch" if limit is not None and slots >= limit else "memory"


def _steps(runs: list[Outcome]) -> dict[str, Any]:
    """The mean step and what it is made of, and what it reads of prompts."""
    times, steps, reads = (
        np.concatenate([_turn(run, name) for run in runs])
        for name in ("time", "steps", "prompt")
    )
    parts = np.concatenate([run.turns.parts[: run.taken] for run in runs])
    weights, some = steps / steps.sum(), steps > 0
    mean = float((times * weights).sum())
    whole = (parts * weights[:, None]).sum(0)
    alone = float(whole.sum())
    clocks = np.concatenate([_turn(run, "clock") for run in runs])
    spent = np.concatenate([_turn(run, "energy") for run in runs])
    return {
        "peak_step_power_w": float((spent[some] / (times * steps)[some]).max()),
        "sm_clock_mhz": float((clocks * weights).sum()) / MHz,
        "step_s": step_json(mean, alone, whole, mean - alone),
        "preemptions": sum(int(_turn(run, "dropped").sum()) for run in runs),
        "prefill_tokens_per_step": float(reads.sum() / steps.sum()),
        "steps_with_prefill_share": float((reads > 0).sum() / steps.sum()),
    }


def _energy(
    deployment: Deployment, costs: StepCosts, runs: list[Outcome], span: float
) -> float:
    """J of all GPUs: of the steps, and of waiting between them."""
    spent = sum(float(_turn(run, "energy").sum()) for run in runs)
    busy = sum(float(_turn(run, "time", "steps").sum()) for run in runs)
    idle = float(deployment.server(costs).idle)
    return deployment.plan.tp * (spent + idle * (deployment.replicas * span - busy))


def _good(t: _Times, ttft: float | None, tpot: float | None) -> float:
    """Requests a second that keep the limits of latencies (s)."""
    each = np.zeros(len(t.first))
    each[t.several] = t.tpot
    good = np.ones(len(each), bool)
    for x, most in ((t.ttft, ttft), (each, tpot)):
        good &= x <= (math.inf if most is None else most)
    return float(good.sum()) / t.span


def _turn(run: Outcome, *names: str) -> np.ndarray:
    """A column of the turns of a run, or the product of several."""
    columns = (np.asarray(getattr(run.turns, name))[: run.taken] for name in names)
    return functools.reduce(np.multiply, columns)


def _gaps(runs: list[Outcome], burst: float) -> tuple[np.ndarray, np.ndarray]:
    """Times between tokens and how many there are of each; of the `burst` tokens that a
    step makes of a sequence all but one follow at once."""
    values, weights = map(np.concatenate, zip(*map(_gaps_of, runs), strict=True))
    at_once = (burst - 1) * sum(_turn(run, "running", "steps").sum() for run in runs)
    return np.append(values, 0.0), np.append(weights, at_once)


def _gaps_of(run: Outcome) -> tuple[np.ndarray, np.ndarray]:
    """Steps; what those that were dropped waited (the mean of those that go on at
    once); and where prompts go first their steps, with the next one that decodes."""
    time, tokens = _turn(run, "time"), _turn(run, "running", "steps")
    back, away = _turn(run, "resumed"), _turn(run, "away")
    waiting = _turn(run, "blocked")
    some = back > 0
    waits = np.flatnonzero(waiting > 0)
    going = np.append(np.flatnonzero(waiting == 0), len(waiting) - 1)
    after = going[np.searchsorted(going[:-1], waits)]  # the next that decodes
    begun = np.append(0.0, np.cumsum(time * _turn(run, "steps")))
    new = np.maximum(np.diff(waiting, prepend=0), 0)[waits]  # held since this one
    tokens = np.asarray(tokens, float)
    np.subtract.at(tokens, after, new)
    return (
        np.concatenate(
            [time, away[some] / back[some], begun[after] - begun[waits] + time[after]]
        ),
        np.concatenate([np.maximum(tokens, 0.0), back[some], new]),
    )


def _average(runs: list[Outcome], name: str, span: float) -> float:
    """Mean over time, summed over replicas."""
    return sum(float(_turn(run, name, "time", "steps").sum()) for run in runs) / span


def _shown(x: np.ndarray, mean: float | None = None) -> dict[str, float]:
    quantiles = np.quantile(x, QUANTILES, method="inverted_cdf")
    return by_level(x.mean() if mean is None else mean, quantiles)


def _weighted(values: np.ndarray, weights: np.ndarray) -> dict[str, float]:
    order = np.argsort(values)
    reached = np.cumsum(weights[order])
    place = np.searchsorted(reached, np.array(QUANTILES) * reached[-1])
    quantiles = values[order][np.minimum(place, len(values) - 1)]
    return by_level((values * weights).sum() / weights.sum(), quantiles)
