"""The public `simulate`: a trace of requests through a server, by name."""

import csv
import dataclasses
import gzip
import io
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ...compiling import compiler_options, kept
from ...hardware import GpuCard
from ...results import Infeasible
from ...workload.models import load_model
from ...workload.models._shared.language_model import LanguageModel
from .._answers import answer as _answer
from .._answers.answer import ServingResult
from .._answers.solve import priced, saturated
from .._deploy import deploy
from .._deployment import Deployment
from .._lengths import of_values
from .._load import Load
from .._steady.figures import LEVELS
from .._steady.server import Server
from .._step.rows import PARTS
from .simulation import Outcome, Requests, most_turns
from .simulation import simulate as _simulate

COLUMNS: Final = ("arrival_s", "input_len", "output_len")
_SLOTS: Final = 1024
"""Most slots that are simulated: the state of all is looked at in every step."""


@dataclasses.dataclass(frozen=True)
class Trace:
    """Requests in the order of their arrival: s from the start, tokens."""

    arrival: np.ndarray
    prompt: np.ndarray
    output: np.ndarray


def read_trace(path: str | Path) -> Trace:
    """A trace from a table with `arrival_s, input_len, output_len` (.csv, .csv.gz).

    Raises `ValueError` that names row and column for what cannot be.
    """
    try:
        raw = Path(path).read_bytes()
        text = (gzip.decompress(raw) if str(path).endswith(".gz") else raw).decode()
        rows = list(csv.DictReader(io.StringIO(text)))
    except (OSError, UnicodeDecodeError, EOFError) as error:
        raise ValueError(f"`trace` '{path}' cannot be read ({error}).") from None
    if not rows:
        raise ValueError(f"`trace` '{path}' has no requests.")
    for name in COLUMNS:
        if name not in rows[0]:
            raise ValueError(
                f"`trace` '{path}' has no column `{name}`; needed are "
                f"{', '.join(COLUMNS)}."
            )
    arrival, prompt, output = ([_cell(row[x]) for row in rows] for x in COLUMNS)
    return checked(arrival, prompt, output, f"'{path}'")


def _cell(text: Any) -> float:
    try:
        return float(text)
    except (TypeError, ValueError):
        return math.nan


def checked(
    arrival: Any,
    prompt: Any,
    output: Any,
    where: str = "given",
) -> Trace:
    """A trace of such columns of numbers; see `read_trace`."""
    found = Trace(*(np.asarray(x, float) for x in (arrival, prompt, output)))
    if not len(found.arrival) == len(found.prompt) == len(found.output) > 0:
        raise ValueError(f"`trace` {where} has columns of unequal length, or no rows.")
    named = zip(COLUMNS, dataclasses.astuple(found), strict=True)
    for (name, x), least in zip(named, (0, 1, 1), strict=True):
        bad = np.flatnonzero(~(x >= least) | ~np.isfinite(x))
        if len(bad):
            raise ValueError(
                f"`trace` {where} has `{name}` {x[bad[0]]:g} in row {bad[0]}; allowed "
                f"are numbers from {least} on."
            )
    for name, x in zip(COLUMNS[1:], (found.prompt, found.output), strict=True):
        bad = np.flatnonzero(x % 1)
        if len(bad):
            raise ValueError(
                f"`trace` {where} has `{name}` {x[bad[0]]:g} in row {bad[0]}; allowed "
                "are whole numbers of tokens."
            )
    back = np.flatnonzero(np.diff(found.arrival) < 0)
    if len(back):
        row = int(back[0]) + 1
        raise ValueError(
            f"`trace` {where} goes back in time in row {row} (`arrival_s` "
            f"{found.arrival[row]:g} after {found.arrival[row - 1]:g}); sort it."
        )
    return found


def simulate(
    trace: str | Path | Mapping[str, Any],
    model: str,
    gpu: str | GpuCard | None = None,
    load: Load | Mapping[str, Any] | None = None,
    **server: Any,
) -> ServingResult:
    """A trace of requests through a server, step by step.

    Args:
        trace: a table `arrival_s, input_len, output_len`, as a file or by column.
        model: bundled name, or a Hugging Face config.json.
        gpu: name or file [h100-sxm].
        load: `max_batch`, `cached_len` and limits of latencies, as a `Load` or a dict.
        **server: arguments of `deploy`.

    Returns:
        A `ServingResult`; `saturation_request_rate_per_s` is the closed form's for the
        trace's mean lengths.

    Raises:
        ValueError: for what cannot be, in one sentence.
        Infeasible: if a request does not fit the memory.
    """
    if isinstance(trace, str | Path):
        found = read_trace(trace)
    else:
        for name in COLUMNS:
            if name not in trace:
                raise ValueError(f"`trace` has no column `{name}`.")
        arrival, prompt, output = (trace[name] for name in COLUMNS)
        found = checked(arrival, prompt, output)
    given = load if load is not None else {}
    if isinstance(given, Load):
        given = dataclasses.asdict(given)
    for name in ("rate", "concurrency", "waves", "input_len", "output_len"):
        if given.get(name) is not None:
            raise ValueError(
                f"`{name}` is given beside `trace`, which decides it; leave it out."
            )
    rest = {k: v for k, v in given.items() if v is not None}
    whole = load_model(model)
    if isinstance(whole, LanguageModel):  # else `deploy` says so
        _check_longest(whole, found, given.get("cached_len") or 0.0)
    ask = Load(
        **{"max_batch": float(_SLOTS), **rest},
        input_len=of_values(found.prompt),
        output_len=of_values(found.output),
    )
    place = deploy(model, gpu, ask, **server)
    _check_memory(place, found)
    if "max_batch" not in rest:
        span = max(float(found.arrival[-1] - found.arrival[0]), 1e-9)
        rate = len(found.arrival) / span
        shown = dataclasses.replace(ask, max_batch=None, rate=rate)
    else:
        shown = ask
    costs = priced(place)
    _answer.check_power(place, costs)
    runs = [_run(place, costs, found, i) for i in range(place.replicas)]
    summary = _told(dataclasses.replace(place, load=shown), place, costs, found, runs)
    return ServingResult(summary, place, costs, tuple(place.model.notes))


def _check_longest(model: LanguageModel, trace: Trace, cached: float):
    total = trace.prompt + trace.output + cached
    worst = int(total.argmax())
    if total[worst] > model.max_positions:
        raise ValueError(
            f"`trace` has {total[worst]:g} tokens in row {worst}, but {model.name} "
            f"has {model.max_positions} positions; leave it out."
        )


def _check_memory(found: Deployment, trace: Trace):
    total = trace.prompt + trace.output + found.load.cached
    worst = int(total.argmax())
    need, pool = found.memory(found.gpu).on_host(float(total[worst]))
    if need > pool:
        raise Infeasible(
            f"`trace` has {total[worst]:g} tokens in row {worst}, more than the "
            "memory left by the weights holds; take more GPUs (`tp`)."
        )


class _Sizes(eqx.Module):
    """What makes a program of its own: see `simulate`."""

    slots: int = eqx.field(static=True)
    turns: int = eqx.field(static=True)


def _simulated(server: Server, requests: Requests, limit: Array, of: _Sizes) -> Outcome:
    return _simulate(server, requests, limit, of.slots, of.turns)


def _run(found: Deployment, costs: Any, trace: Trace, replica: int) -> Outcome:
    """One replica's share: every n-th request."""
    n = found.replicas
    own = [x[replica::n] for x in dataclasses.astuple(trace)]
    rows = 1 << max(len(own[0]) - 1, 1).bit_length()
    padded = [np.pad(x, (0, rows - len(x)), mode="edge") for x in own]
    arrival, prompt, output = map(jnp.asarray, padded)
    requests = Requests(arrival, prompt, output, jnp.asarray(len(own[0])))
    limit = min(found.slots, _SLOTS)
    slots = 1 << max(math.ceil(math.log2(max(limit, 2))), 3)
    pieces = float(np.maximum(own[1] / found.chunk, 1).mean())
    turns = most_turns(rows, pieces, float(own[2].sum()))
    given = (found.server(costs), requests, jnp.asarray(limit))
    while True:  # who is dropped takes more turns
        asked = (*given, _Sizes(slots, turns))
        told = jax.device_get(kept(_simulated, asked, compiler_options()))
        if not np.isnan(told.last[: len(own[0])]).any():
            return told
        turns *= 2


def _told(
    found: Deployment, place: Deployment, costs: Any, trace: Trace, runs: list[Outcome]
) -> dict[str, Any]:
    """The JSON of a trace."""
    n, gpus, tp = found.replicas, found.plan.gpus, found.plan.tp
    first, last = (np.empty(len(trace.arrival)) for _ in range(2))
    for i, run in enumerate(runs):
        first[i::n] = run.first[: len(first[i::n])]
        last[i::n] = run.last[: len(last[i::n])]
    request = float(found.engine.request)
    ttft = first - trace.arrival + request
    several = trace.output > 1
    tpot = (last - first)[several] / (trace.output - 1)[several]
    e2e = last - trace.arrival + request
    begun = float(trace.arrival[0])
    end = max(float(run.end) for run in runs)
    span = end - begun
    tokens = float(trace.output.sum())
    times = np.concatenate([_turn(run, "time") for run in runs])
    steps = np.concatenate([_turn(run, "steps") for run in runs])
    reads = np.concatenate([_turn(run, "prompt") for run in runs])
    parts = np.concatenate([run.turns.parts[: run.taken] for run in runs])
    spent = sum(float(_turn(run, "energy").sum()) for run in runs)
    busy = sum(float((_turn(run, "time") * _turn(run, "steps")).sum()) for run in runs)
    spent += float(costs.idle) * (n * span - busy)
    energy = tp * spent
    kept = _average(runs, "kept", span)
    one, pool = found.memory(found.gpu).on_host(place.context)
    count = len(trace.arrival)
    every = float(trace.prompt.sum()) + tokens + count * found.load.cached
    closed = saturated(place, costs)
    most = n * float(closed.saturation) / found.load.output.mean
    limit = min(place.slots, _SLOTS)
    weights = steps / steps.sum()
    mean_step = float((times * weights).sum())
    whole = (parts * weights[:, None]).sum(0)
    sums = dict(zip((*PARTS, "sampling", "host"), map(float, whole), strict=True))
    alone = sum(sums.values())
    load, limits = found.load, (found.load.slo_ttft, found.load.slo_tpot)
    good = np.ones(count, bool)
    per = np.zeros(count)
    per[several] = tpot
    for x, most_allowed in zip((ttft, per), limits, strict=True):
        good &= x <= (math.inf if most_allowed is None else most_allowed)
    spread, grade = _answer.trusted(found)
    weighted = float((last - first)[several].sum() / (trace.output - 1)[several].sum())
    each = energy / tokens
    interval = _answer._interval
    given = load.max_batch
    told = {
        **_answer.about(found),
        "mode": "trace",
        "request_rate_per_s": count / max(float(trace.arrival[-1]) - begun, 1e-9)
        if count > 1
        else None,
        "request_throughput_per_s": count / span,
        "output_token_throughput_per_s": tokens / span,
        "total_token_throughput_per_s": every / span,
        "saturation_request_rate_per_s": most,
        "utilization": count / span / most,
        "limited_by": "rate",
        "running_requests": float(((last - first).sum()) / span),
        "waiting_requests": _average(runs, "waiting", span),
        "max_running_requests": n * limit,
        "kv_cache_tokens": n * pool * place.context / one,
        "kv_cache_usage": kept / (n * pool),
        "ttft_s": _shown(ttft),
        "tpot_s": _shown(tpot, weighted) if len(tpot) else None,
        "itl_s": _weighted(*_gaps(runs)),
        "e2e_latency_s": _shown(e2e),
        "step_s": {
            "mean": mean_step,
            "decode_only": alone,
            "parts": {
                "linear": sums["linear"],
                "attention": sums["attention"],
                "head": sums["head"],
                "sampling": sums["sampling"],
                "communication": sums["communication"],
                "host": sums["host"],
                "prefill": mean_step - alone,
            },
        },
        "preemptions": sum(int(_turn(run, "dropped").sum()) for run in runs),
        "prefill_tokens_per_step": float(reads.sum() / steps.sum()),
        "steps_with_prefill_share": float((reads > 0).sum() / steps.sum()),
        "avg_power_w": energy / span,
        "avg_power_per_gpu_w": energy / span / gpus,
        "energy_j_per_output_token": each,
        "energy_j_per_token": energy / every,
        "energy_j_per_request": energy / count,
        "energy_j_per_output_token_p5_p95": interval(each, spread["energy"]),
        "tpot_s_p5_p95": interval(weighted, spread["tpot"]) if len(tpot) else None,
        "ttft_s_p5_p95": interval(float(ttft.mean()), spread["ttft"]),
        "goodput_per_s": None if limits == (None, None) else float(good.sum()) / span,
        "grade": grade,
        "assumed": dict(found.assumed) | ({} if given else {"max_batch": _SLOTS}),
        "sensitivities": None,
    }
    if given is not None and limit >= given and told["waiting_requests"] > 0.5:
        told["limited_by"] = "max_batch"
    elif told["waiting_requests"] > 0.5:
        told["limited_by"] = "memory"
    return told


def _turn(run: Outcome, name: str, times: str | None = None) -> np.ndarray:
    x = np.asarray(getattr(run.turns, name))[: run.taken]
    return (
        x if times is None else x * np.asarray(getattr(run.turns, times))[: run.taken]
    )


def _gaps(runs: list[Outcome]) -> tuple[np.ndarray, np.ndarray]:
    """Times between tokens and how many there are of each."""
    each = [_gaps_of(run) for run in runs]
    values, weights = (np.concatenate(x) for x in zip(*each, strict=True))
    return values, weights


def _gaps_of(run: Outcome) -> tuple[np.ndarray, np.ndarray]:
    """Steps; what those that were dropped waited (the mean of those that go on at
    once); and where prompts go first their steps, with the next one that decodes."""
    time, made = _turn(run, "time"), _turn(run, "running", "steps")
    back, away = _turn(run, "resumed"), _turn(run, "away")
    held = _turn(run, "held")
    some = back > 0
    waits = np.flatnonzero(held > 0)
    going = np.append(np.flatnonzero(held == 0), len(held) - 1)
    after = going[np.searchsorted(going[:-1], waits)]  # the next that decodes
    begun = np.append(0.0, np.cumsum(time * _turn(run, "steps")))
    new = np.maximum(np.diff(held, prepend=0), 0)[waits]  # held since this one
    made = np.asarray(made, float)
    np.subtract.at(made, after, new)
    return (
        np.concatenate(
            [time, away[some] / back[some], begun[after] - begun[waits] + time[after]]
        ),
        np.concatenate([np.maximum(made, 0.0), back[some], new]),
    )


def _average(runs: list[Outcome], name: str, span: float) -> float:
    """Mean over time, summed over replicas."""
    return (
        sum(
            float((_turn(run, name) * _turn(run, "time", "steps")).sum())
            for run in runs
        )
        / span
    )


def _shown(x: np.ndarray, mean: float | None = None) -> dict[str, float]:
    found = np.quantile(x, LEVELS, method="inverted_cdf")
    names = ("p50", "p90", "p95", "p99")
    exact = float(x.mean()) if mean is None else mean
    return {"mean": exact} | dict(zip(names, map(float, found), strict=True))


def _weighted(values: np.ndarray, weights: np.ndarray) -> dict[str, float]:
    order = np.argsort(values)
    reached = np.cumsum(weights[order])
    place = np.searchsorted(reached, np.array(LEVELS) * reached[-1])
    found = values[order][np.minimum(place, len(values) - 1)]
    mean = float((values * weights).sum() / weights.sum())
    return {"mean": mean} | dict(
        zip(("p50", "p90", "p95", "p99"), map(float, found), strict=True)
    )
