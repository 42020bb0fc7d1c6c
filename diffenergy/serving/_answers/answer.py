"""`ServingResult`: what a server costs under a load, and its JSON."""

import dataclasses
import math
from typing import Any, ClassVar, Final

import numpy as np

from ...corrections import Trust
from ...corrections._spread import least
from ...hardware import read_gpu
from ...results import Infeasible, Result, finite
from .._deployment import Deployment
from .._engine import spread_of
from .._steady.figures import Latency, Steady
from .._step.rows import PARTS
from .._step.table import StepCosts

_LEVELS: Final = ("p50", "p90", "p95", "p99")
_NORMAL: Final = 1.645
"""Standard deviations between the median and the 95th percentile."""


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

    @property
    def tpot(self) -> float:
        """Mean time of a token after the first, s."""
        return self.summary["tpot_s"]["mean"]

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


def check_power(found: Deployment, costs: StepCosts):
    """Raises `Infeasible` where the power limit cannot be kept."""
    if not bool(costs.feasible):
        limit = math.ceil(float(costs.least_power) / found.card.values["cap_fraction"])
        raise Infeasible(
            f"`power_limit` cannot be kept: at its lowest clock the GPU draws "
            f"{float(costs.least_power):.1f} W here; the least limit that can is "
            f"{limit} W.",
            power_limit=float(limit),
        )


def check(found: Deployment, costs: StepCosts, figures: Steady):
    """Raises `Infeasible` where a limit cannot be kept: of power, or what is served."""
    check_power(found, costs)
    most = saturation(found, figures)
    rate = found.load.rate
    if rate is not None and float(figures.load) >= 1:
        scale = 10 ** (5 - math.floor(math.log10(most)))  # as many digits as shown
        shown = math.floor(most * scale) / scale
        raise Infeasible(
            f"`rate` is {rate:g} requests a second, but the server sustains less than "
            f"{shown:g}; give a lower one, more GPUs or a larger `max_batch`.",
            rate=shown,
        )


def saturation(found: Deployment, figures: Steady) -> float:
    """Requests a second of all replicas with every slot taken."""
    return found.replicas * float(figures.saturation) / found.load.output.mean


def told(found: Deployment, costs: StepCosts, figures: Steady) -> dict[str, Any]:
    """The JSON of a server in balance."""
    load, n, gpus = found.load, found.replicas, found.plan.gpus
    made = n * float(figures.flow)
    output = load.output.mean
    requests = made / output
    tokens = output + load.input.mean + load.cached
    most = saturation(found, figures)
    power = gpus * float(figures.power)
    each = found.plan.tp * float(figures.energy)  # J a token of one replica
    slots, context = found.slots, found.context
    kept, pool = found.memory(found.gpu).on_host(context)
    ttft, tpot = _told(figures.ttft), _told(figures.tpot)
    spread, grade = trusted(found)
    limited = load.slo_ttft is not None or load.slo_tpot is not None
    good = requests * float(figures.ttft.kept) * float(figures.tpot.kept)
    return {
        **about(found),
        "mode": found.mode,
        "request_rate_per_s": load.rate,
        "request_throughput_per_s": requests,
        "output_token_throughput_per_s": made,
        "total_token_throughput_per_s": requests * tokens,
        "saturation_request_rate_per_s": most,
        "utilization": requests / most,
        "limited_by": _limit(found, slots),
        "running_requests": n * float(figures.running),
        "waiting_requests": finite(n * float(figures.waiting)),
        "max_running_requests": n * slots,
        "kv_cache_tokens": n * pool * context / kept,
        "kv_cache_usage": float(figures.running) * kept / pool,
        "ttft_s": ttft,
        "tpot_s": tpot,
        "itl_s": _told(figures.itl),
        "e2e_latency_s": _told(figures.e2e),
        "step_s": {
            "mean": float(figures.step),
            "decode_only": float(figures.decode),
            "parts": _parts(figures),
        },
        "preemptions": None,
        "prefill_tokens_per_step": float(figures.entering) * load.input.mean,
        "steps_with_prefill_share": float(figures.mixed),
        "avg_power_w": power,
        "avg_power_per_gpu_w": power / gpus,
        "energy_j_per_output_token": each,
        "energy_j_per_token": each * output / tokens,
        "energy_j_per_request": each * output,
        "energy_j_per_output_token_p5_p95": interval(each, spread["energy"]),
        "tpot_s_p5_p95": interval(tpot["mean"], spread["tpot"]),
        "ttft_s_p5_p95": interval(ttft["mean"], spread["ttft"]),
        "goodput_per_s": good if limited else None,
        "grade": grade,
        "assumed": dict(found.assumed),
        "sensitivities": None,
    }


def about(found: Deployment) -> dict[str, Any]:
    """What was asked for."""
    return {
        "model": found.model.name,
        "gpu": found.card.name,
        "num_gpus": found.plan.gpus,
        "tp": found.plan.tp,
        "dtype": found.request.dtype,
        "engine": found.engine_name,
        "sampling": found.sampling,
        "schedule": found.schedule,
        "chunk_tokens": found.chunk,
        "sm_clock_set_mhz": found.setting.sm_clock / 1e6,
        "power_limit_w": found.setting.power_limit,
        "max_batch": found.load.max_batch,
        "concurrency": found.load.concurrency,
        "input_len": found.load.input.text,
        "output_len": found.load.output.text,
        "cached_len": found.load.cached,
    }


def _told(x: Latency) -> dict[str, float]:
    return {"mean": float(x.mean)} | {
        name: float(value)
        for name, value in zip(_LEVELS, np.asarray(x.quantiles), strict=True)
    }


def _parts(figures: Steady) -> dict[str, float]:
    kernels = dict(zip(PARTS, map(float, np.asarray(figures.parts)), strict=True))
    return {
        "linear": kernels["linear"],
        "attention": kernels["attention"],
        "head": kernels["head"],
        "sampling": float(figures.sampling),
        "communication": kernels["communication"],
        "host": float(figures.host),
        "prefill": float(figures.prefill),
    }


def _limit(found: Deployment, slots: float) -> str:
    """What bounds the requests that run."""
    load = found.load
    if load.rate is not None:
        return "rate"
    if load.concurrency is not None and load.concurrency / found.replicas <= slots:
        return "concurrency"
    given = load.max_batch
    return "max_batch" if given is not None and given <= slots else "memory"


def interval(value: float, sd: float) -> list[float]:
    """Central 90 % of a quantity whose logarithm has this standard deviation."""
    factor = math.exp(_NORMAL * sd)
    return [value / factor, value * factor]


def trusted(found: Deployment) -> tuple[dict[str, float], str]:
    """Standard deviations of the logarithm by quantity, and the grade: the least of
    that of the kernels and that of the engine's host."""
    new = found.changed or found.card.values != read_gpu(found.card.served_as).values
    ops = ("gemm", "generation_attention", "context_attention")
    kernels: Trust = found.file.trust(found.card, new=new, holds=ops)
    hard = found.plan.tp > 1 and found.request.routing is not None
    name = found.engine_name
    grade, spread = spread_of(name, found.card, found.file.engines, hard)
    return spread, least([kernels.grade, grade])
