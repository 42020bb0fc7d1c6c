"""`SearchResult`: the deployments of a search, and their JSON."""

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar, Final

import numpy as np

from ...files import csv_text
from ...results import Result
from ...search import pareto_front
from ...units import MHz
from .._load import Load
from .._result import ServingResult
from .._wall import WALL
from .choose import Choice, Priced
from .request import SearchRequest
from .space import DEFAULT_GPUS, Candidate

_BINDS: Final = -1e-3
"""Elasticity below which a limit binds."""
_HOUR: Final = 3600.0
_SEARCHED: Final = (
    "num_gpus", "tp", "dtype", "sm_clock_mhz", "max_batch", "gpu",
)  # fmt: skip
"""What a search chooses, so that it is not assumed."""


@dataclasses.dataclass(frozen=True, repr=False)
class SearchResult(Result):
    """The best deployment for a load.

    `summary`: the JSON of `diffenergy serve --search`; `choice`: deployments that were
    priced, and the ranking; `best`: the best one as `steady_state` answers it.
    """

    view: ClassVar[str] = "deployments"
    summary: dict[str, Any]
    choice: Choice
    best: ServingResult
    warnings: tuple[str, ...] = ()

    def points_csv(self) -> str:
        """The priced deployments as serving points that `fleet` reads: a row is one
        replica."""
        rows = []
        for x in (x for x in self.choice.priced if not x.apart):
            s, n = x.summary, x.deployment.replicas
            rows.append(
                {
                    "model": s["model"],
                    "gpu": s["gpu"],
                    "gpus_per_replica": s["tp"],
                    "sm_clock_mhz": s["sm_clock_set_mhz"],
                    "power_limit_w": s["power_limit_w"],
                    "max_batch": s["max_batch"],
                    "requests_per_s": s["request_throughput_per_s"] / n,
                    "ttft_p95_s": s["ttft_s"]["p95"],
                    "tpot_p95_s": s["tpot_s"]["p95"] if s["tpot_s"] else 0.0,
                    "power_w": s["avg_power_w"] / n,
                }
            )
        return csv_text(rows)


def search_json(
    request: SearchRequest,
    load: Load,
    candidates: Sequence[Candidate],
    skipped: Sequence[str],
    choice: Choice,
) -> tuple[dict[str, Any], list[str]]:
    """The JSON of a search, and what a reader should know beside it."""
    priced, table = choice.priced, choice.table
    best = priced[0]
    # beside pools apart the best servers that do both
    others = [x for x in priced[1:] if not (best.apart and x.apart)] or priced[1:]
    second = others[0] if others else None
    powers = np.array([[x.gpus, x.power] for x in priced]).T
    front = [priced[i] for i in pareto_front(*powers)]
    per_gpu = {x.candidate.gpu: x for x in reversed(priced)}
    assumed = {k: v for k, v in best.deployment.assumed.items() if k not in _SEARCHED}
    if request.gpu is None:
        assumed["gpu"] = ", ".join(DEFAULT_GPUS)
    binding = min(choice.elasticities.items(), key=lambda x: x[1], default=("", 0.0))
    binds = binding[1] < _BINDS
    summary = {
        "model": best.summary["model"],
        "objective": request.objective,
        "mode": best.summary["mode"],
        "request_rate_per_s": load.rate,
        "concurrency": load.concurrency,
        "input_len": load.input.text,
        "output_len": load.output.text,
        "cached_len": load.cached,
        "slo_ttft_s": load.slo_ttft,
        "slo_tpot_s": load.slo_tpot,
        "power_budget_w": request.power_budget,
        "best": entry(best),
        "second": None if second is None else entry(second),
        "comparison": None if second is None else compare(best, second, request),
        "binding": {"limit": binding[0], "elasticity": binding[1]} if binds else None,
        "elasticities": choice.elasticities,
        "deployments": [entry(x) for x in priced[: request.top]],
        "frontier": [entry(x) for x in sorted(front, key=lambda x: x.gpus)],
        "per_gpu": [entry(x) for x in sorted(per_gpu.values(), key=lambda x: x.score)],
        "candidates": len(candidates),
        "considered": len(table.clock),
        "feasible": int(table.keeps({}).sum()),
        "priced": len(priced),
        "skipped": list(skipped),
        "assumed": assumed,
    }
    return summary, _warnings(best, second)


def entry(x: Priced) -> dict[str, Any]:
    """A deployment with its figures."""
    s = x.summary
    flow = s["output_token_throughput_per_s"]
    hourly = x.cost_per_hour
    return {
        "gpu": s["gpu"],
        "num_gpus": s["num_gpus"],
        "replicas": x.deployment.replicas,
        "tp": s["tp"],
        "ep": x.deployment.plan.ep,
        "dtype": s["dtype"],
        "engine": s["engine"],
        "speculative": x.deployment.request.speculative,
        "sm_clock_mhz": x.deployment.setting.sm_clock / MHz,
        "max_batch": s["max_batch"],
        "avg_power_w": s["avg_power_w"],
        "energy_j_per_output_token": s["energy_j_per_output_token"],
        "energy_j_per_output_token_p5_p95": s["energy_j_per_output_token_p5_p95"],
        **{x: s[x] for x in (*WALL, "unavailable") if x in s},
        "cost_per_hour": hourly,
        "cost_per_million_output_tokens": None
        if hourly is None
        else 1e6 * hourly / _HOUR / flow,
        "output_token_throughput_per_s": flow,
        "ttft_s": s["ttft_s"],
        "tpot_s": s["tpot_s"],
        "utilization": s["utilization"],
        "pools": s.get("pools"),
        "grade": s["grade"],
    }


def words(x: Priced) -> str:
    """A deployment in a few words."""
    s = x.summary
    if x.apart:
        parts = (
            f"{y['num_gpus']} x {y['gpu']} (tp {y['tp']}) for {name}"
            for name, y in s["pools"].items()
        )
        return " and ".join(parts)
    ep = f", ep {x.deployment.plan.ep}" if x.deployment.plan.ep > 1 else ""
    drafts = x.deployment.request.speculative
    more = f", {drafts}" if drafts else ""
    return f"{s['num_gpus']} x {s['gpu']} (tp {s['tp']}{ep}, {s['dtype']}{more})"


def compare(best: Priced, second: Priced, request: SearchRequest) -> str:
    """The next best deployment beside the best one, in a sentence."""
    parts = [_more(second.energy, best.energy, "energy per output token")]
    if request.objective == "cost":
        parts = [_more(second.score, best.score, "cost"), *parts]
    gpus = second.gpus - best.gpus
    fewer = "fewer" if gpus < 0 else "more"
    unit = "GPU" if abs(gpus) == 1 else "GPUs"
    parts.append(f"{abs(gpus)} {fewer} {unit}" if gpus else "as many GPUs")
    listed = ", ".join(parts[:-1]) + f" and {parts[-1]}"
    return f"the next best, {words(second)}, takes {listed}"


def _more(value: float, base: float, what: str) -> str:
    change = 100 * (value / base - 1)
    if abs(change) < 0.05:
        return f"the same {what}"
    return f"{abs(change):.2g} % {'less' if change < 0 else 'more'} {what}"


def _warnings(best: Priced, second: Priced | None) -> list[str]:
    """That the order of the first two is within their intervals."""
    if second is None:
        return []
    different = any(
        best.summary[name] != second.summary[name] for name in ("gpu", "dtype")
    )
    key = "energy_j_per_output_token_p5_p95"
    if not different or best.summary[key][1] < second.summary[key][0]:
        return []
    return [
        f"the energies of {words(best)} and {words(second)} are within each other's 5 "
        "to 95 % intervals; their order is uncertain."
    ]
