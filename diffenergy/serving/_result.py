"""`ServingResult`: what a server costs under a load, and its JSON."""

import dataclasses
import math
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Final

from ..corrections import Trust, least_grade
from ..estimator import ONE_TOKEN
from ..hardware import read_gpu
from ..power_time import PowerCurve
from ..results import Infeasible, Result, finite
from ..units import MHz
from ._deployment import Deployment
from ._engine import spread_of
from ._steady.figures import Steady
from ._step.rows import PARTS, Step, listing
from ._step.table import StepCosts
from ._wall import Idle, wall_figures

_LATENCIES: Final = ("ttft_s", "tpot_s", "itl_s", "e2e_latency_s")
_BETWEEN: Final = ("tpot_s", "itl_s")
"""Latencies from one token to the next."""
_LEVELS: Final = ("mean", "p50", "p90", "p95", "p99")
"""Keys of a latency."""
_STEP: Final = (
    "linear", "attention", "head", "sampling", "communication", "host", "prefill",
)  # fmt: skip
"""Parts of a step in the order of the JSON."""
_NORMAL: Final = 1.645
"""Standard deviations between the median and the 95th percentile."""
_NONE: Final = 1e-12
"""Mean number of requests below which there are none: the sum of a server's state
probabilities is rounded at about this size."""


@dataclasses.dataclass(frozen=True, repr=False)
class ServingResult(Result):
    """What a server costs under a load.

    `summary`: the JSON of `diffenergy serve --json`; `deployment`, `costs`: the server
    and the table of its steps; `warnings`: what a person should know beside it.
    """

    view: ClassVar[str] = "serving"
    summary: dict[str, Any]
    deployment: Deployment
    costs: StepCosts | None = None
    warnings: tuple[str, ...] = ()
    curves: Mapping[str, PowerCurve] = dataclasses.field(default_factory=dict)
    """Of a trace with `power_step` or `smooth`: power over time of `boards`, with a
    node also of `node`, `wall` and `site`."""

    @property
    def tpot(self) -> float:
        """Mean time of a token after the first, s; NaN where none follows it."""
        tpot = self.summary["tpot_s"]
        return math.nan if tpot is None else tpot["mean"]

    @property
    def ttft(self) -> float:
        """Mean time to the first token, s."""
        return self.summary["ttft_s"]["mean"]

    @property
    def energy(self) -> float:
        """J of all GPUs for a token that is made."""
        return self.summary["energy_j_per_output_token"]

    @property
    def power(self) -> float:
        """W of all GPUs, mean over time."""
        return self.summary["avg_power_w"]


def check_power(deployment: Deployment, lowest: float, feasible: bool):
    """Raises `Infeasible` where the power limit cannot be kept; `lowest`: power of a
    GPU at its lowest clock, W."""
    if not feasible:
        limit = math.ceil(lowest / deployment.card.values["cap_fraction"])
        raise Infeasible(
            f"`power_limit` cannot be kept: at its lowest clock the GPU draws "
            f"{lowest:.1f} W here; the least limit that can is {limit} W.",
            power_limit=float(limit),
        )


def check(deployment: Deployment, figures: Steady):
    """Raises `Infeasible` where a limit cannot be kept: of power, or what is served."""
    check_power(deployment, float(figures.lowest), bool(figures.feasible))
    most = saturation(deployment, figures)
    rate = deployment.load.rate
    if rate is not None and float(figures.load) >= 1:
        scale = 10 ** (5 - math.floor(math.log10(most)))  # as many digits as shown
        shown = math.floor(most * scale) / scale
        raise Infeasible(
            f"`rate` is {rate:g} requests a second, but the server sustains less than "
            f"{shown:g}; give a lower one, more GPUs or a larger `max_batch`.",
            rate=shown,
        )


def saturation(deployment: Deployment, figures: Steady) -> float:
    """Requests a second of all replicas with every slot taken."""
    return deployment.replicas * float(figures.saturation) / deployment.load.output.mean


def to_json(deployment: Deployment, figures: Steady) -> dict[str, Any]:
    """The JSON of a server in balance."""
    load, n = deployment.load, deployment.replicas
    tokens_per_s = n * float(figures.flow)
    requests = tokens_per_s / load.output.mean
    of_request, pool = deployment.memory(deployment.gpu).on_host(deployment.context)
    running, paused = float(figures.running) * of_request, 0.0
    slots = deployment.slots
    if load.pause is not None:  # others pause in the memory
        slots, memory = float(figures.slots), deployment.memory(deployment.gpu)
        whole = load.input.mean + load.cached + load.output.mean
        paused = float(figures.pausing) * memory.on_host(whole)[0]
    limited = load.slo_ttft is not None or load.slo_tpot is not None
    away = float(figures.pausing) + float(deployment.engine.request) * requests / n
    good = (
        requests * float(figures.ttft.within_limit) * float(figures.tpot.within_limit)
    )
    parts = (*figures.parts, figures.sampling, figures.host)
    latencies = (figures.ttft, figures.tpot, figures.itl, figures.e2e)
    each = (by_level(x.mean, x.quantiles) for x in latencies)
    tokens = load.output.mean + load.input.mean + load.cached
    return completed(deployment, slots, {
        "mode": deployment.mode,
        "skipped_requests": None,
        "request_rate_per_s": load.rate,
        "request_throughput_per_s": requests,
        "output_token_throughput_per_s": tokens_per_s,
        "total_token_throughput_per_s": requests * tokens,
        "saturation_request_rate_per_s": saturation(deployment, figures),
        "limited_by": _limit(deployment, slots, away),
        "running_requests": n * float(figures.running),
        "waiting_requests": finite(_count(n * float(figures.waiting))),
        "kv_cache_usage": (running + min(paused, pool - running)) / pool,
        **dict(zip(_LATENCIES, each, strict=True)),
        **({} if load.decodes else dict.fromkeys(_BETWEEN)),
        "step_s": step_json(figures.step, figures.decode, parts, figures.prefill),
        "preemptions": None,
        "peak_step_power_w": None,
        "prefill_tokens_per_step": float(figures.entering) * load.input.mean,
        "steps_with_prefill_share": float(figures.mixed),
        "sm_clock_mhz": float(figures.clock) / MHz,
        "avg_power_w": deployment.plan.gpus * float(figures.power),
        "goodput_per_s": good if limited else None,
    }, Idle(float(figures.empty), float(figures.rest)))  # fmt: skip


def _count(requests: float) -> float:
    """A mean number of requests; 0 below `_NONE`."""
    return 0.0 if requests < _NONE else requests


def completed(
    deployment: Deployment,
    slots: float,
    summary: dict[str, Any],
    idle: Idle | None = None,
) -> dict[str, Any]:
    """The JSON of a server with so many `slots` a replica: figures `summary`, what was
    asked for, and what follows from both; `idle`: times without a request."""
    requests, power = summary["request_throughput_per_s"], summary["avg_power_w"]
    energy = power / summary["output_token_throughput_per_s"]
    spread, grade = _trusted(deployment)
    of_request, pool = deployment.memory(deployment.gpu).on_host(deployment.context)
    tpot = summary["tpot_s"]
    about = {
        "model": deployment.model.name,
        "gpu": deployment.card.name,
        "num_gpus": deployment.plan.gpus,
        "tp": deployment.plan.tp,
        "dtype": deployment.request.dtype,
        "engine": deployment.engine_name,
        "sampling": deployment.sampling,
        "schedule": deployment.schedule,
        "chunk_tokens": deployment.chunk,
        "sm_clock_set_mhz": deployment.setting.sm_clock / MHz,
        "power_limit_w": deployment.setting.power_limit,
        "max_batch": deployment.load.max_batch,
        "concurrency": deployment.load.concurrency,
        "input_len": deployment.load.sent.text,
        "output_len": deployment.load.output.text,
        "cached_len": deployment.load.cached,
    }
    derived = {
        "utilization": requests / summary["saturation_request_rate_per_s"],
        "max_running_requests": deployment.replicas * slots,
        "kv_cache_tokens": deployment.replicas * pool * deployment.context / of_request,
        "avg_power_per_gpu_w": power / deployment.plan.gpus,
        "energy_j_per_output_token": energy,
        "energy_j_per_token": power / summary["total_token_throughput_per_s"],
        "energy_j_per_request": power / requests,
        "energy_j_per_output_token_p5_p95": interval(energy, spread["energy"]),
        "tpot_s_p5_p95": tpot and interval(tpot["mean"], spread["tpot"]),
        "ttft_s_p5_p95": interval(summary["ttft_s"]["mean"], spread["ttft"]),
        "grade": grade,
        "assumed": dict(deployment.assumed),
        "sensitivities": None,
    }
    if tpot is None:
        derived["unavailable"] = dict.fromkeys(_BETWEEN, ONE_TOKEN)
    complete = about | summary | derived
    return complete | wall_figures(deployment, complete, idle, spread)


def by_level(mean: Any, quantiles: Iterable[Any]) -> dict[str, float]:
    """A latency by its mean and its quantiles."""
    return dict(zip(_LEVELS, map(float, (mean, *quantiles)), strict=True))


def step_json(
    mean: Any, decode: Any, parts: Iterable[Any], prefill: Any
) -> dict[str, Any]:
    """The mean step (s), without prompts, by part (`PARTS`, sampling, host; experts and
    small kernels are linear), and what prompts add."""
    names = (*PARTS, "sampling", "host", "prefill")
    times: dict[str, Any] = dict(zip(names, (*parts, prefill), strict=True))
    times["linear"] += times["experts"] + times["small"]
    sums = {name: float(times[name]) for name in _STEP}
    return {"mean": float(mean), "decode_only": float(decode), "parts": sums}


def _limit(deployment: Deployment, slots: float, away: float) -> str:
    """What bounds the requests that run, beside those of a replica that pause, or are
    with HTTP and tokeniser."""
    load = deployment.load
    if load.rate is not None:
        return "rate"
    clients = (load.concurrency or math.inf) / deployment.replicas - away
    if clients <= slots * (1 + 1e-9 * (load.pause is not None)):
        return "concurrency"
    limit = load.max_batch
    return "max_batch" if limit is not None and limit <= slots else "memory"


def interval(value: float, sd: float) -> list[float]:
    """Central 90 % of a quantity whose logarithm has this standard deviation."""
    factor = math.exp(_NORMAL * sd)
    return [value / factor, value * factor]


def _narrow(deployment: Deployment) -> bool:
    """Whether its experts are below 16 bits."""
    return "experts" in listing(deployment.model, deployment.request, Step(1, 2))[1]


def _trusted(deployment: Deployment) -> tuple[dict[str, float], str]:
    """Standard deviations of the logarithm by quantity, and the grade: the least of
    that of the kernels and that of the engine's host."""
    new = (
        deployment.changed
        or deployment.card.values != read_gpu(deployment.card.served_as).values
    )
    ops = ("gemm", "generation_attention", "context_attention")
    kernels: Trust = deployment.file.trust(deployment.card, new=new, holds=ops)
    mixture = deployment.request.routing is not None
    hard = mixture and (deployment.plan.tp > 1 or _narrow(deployment))
    name = deployment.engine_name
    grade, spread = spread_of(name, deployment.card, deployment.file.engines, hard)
    return spread, least_grade([kernels.grade, grade])
