"""The public `read` and `evaluate`: logs of a service as measurements, and against what
the model predicts."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

import numpy as np
import pandas as pd

from ..hardware import read_gpu
from ..imports import bundled_gpu
from ..measurements import LogResult
from ..nodes import Site
from ..requests import accepts, part
from ..results import Infeasible, Result
from ..serving import ServerRequest, ServingResult
from ._loads import FEW, loads_of, priced
from ._logs import Logs, read_logs
from ._request import ReadRequest, ServiceRequest, WindowsRequest
from ._windows import SERVING, Window, build_windows, stamp

_NORMAL: Final = 1.645
"""Standard deviations between the median and the 95th percentile."""
_MILLION: Final = 1e6
_NAMED: Final = 5
"""Windows outside that a sentence names."""
COMPARED: Final = (
    "avg_power_w", "energy_j_per_million_output_tokens", "tpot_s", "ttft_s",
)  # fmt: skip
"""Figures whose intervals are compared with what was measured."""


@dataclasses.dataclass(frozen=True, repr=False)
class ServiceResult(Result):
    """Windows of a running service, measured against predicted.

    `summary`: the JSON of `diffenergy evaluate --service --json`; `windows`: what was
    measured; `predictions`: of each window its result, or None.
    """

    view: ClassVar[str] = "service"
    summary: dict[str, Any]
    windows: list[Window]
    predictions: list[ServingResult | None]

    @property
    def notes(self) -> list[str]:
        """Notes on the logs: what is unavailable, and why."""
        return self.summary["notes"]

    @property
    def outside(self) -> list[int]:
        """Numbers of the windows with a figure outside its interval of 5 to 95 %."""
        return self.summary["outside"]

    @property
    def warning(self) -> str:
        """Sentence that names the windows outside their interval, or says that none is
        compared; empty if all are inside."""
        windows = self.summary["windows"]
        if not self.summary["compared"]:
            return "no window is compared with its prediction; see what is unavailable."
        names = [
            f"{windows[n]['start'] or f'window {n}'} "
            f"({', '.join(windows[n]['outside'])})"
            for n in self.outside[:_NAMED]
        ]
        more = len(self.outside) - len(names)
        rest = f" and {more} more" if more else ""
        return (
            f"{len(self.outside)} of {self.summary['compared']} windows lie outside "
            f"the interval of 5 to 95 %: {'; '.join(names)}{rest}."
            if names
            else ""
        )

    def to_csv(self) -> str:
        """A row for each window: measured and predicted figures in SI."""
        rows = [
            {name: x[name] for name in ("state", "start", "end", "duration_s")}
            | {f"{name}_{of}": x[of][name] if x[of] else None
               for name in COMPARED for of in ("measured", "predicted")}
            | {"outside": " ".join(x["outside"])}
            for x in self.summary["windows"]
        ]  # fmt: skip
        return pd.DataFrame(rows).to_csv(index=False, float_format="%.10g")


def _read(request: Any) -> tuple[Logs, list[Window], str]:
    """Logs, their windows, and the GPU of the service."""
    paths = [request.logs] if isinstance(request.logs, str) else list(request.logs)
    if not paths:
        raise ValueError("`logs` is empty; name at least one file.")
    logs = read_logs(paths, request.time_zone)
    if request.gpu is None and len(logs.gpus) != 1:
        names = f"logs name {', '.join(logs.gpus)}" if logs.gpus else "no log names it"
        raise ValueError(f"`gpu` is missing, and {names}; give it.")
    gpu = request.gpu or logs.gpus[0]
    card = read_gpu(gpu)
    if logs.gpus and not {card.name, card.corrections} & set(logs.gpus):
        raise ValueError(
            f"`gpu` is '{gpu}', but the logs are of {', '.join(logs.gpus)}; leave it "
            "out, or give the logs of that GPU."
        )
    # another GPU of the host does not serve, whatever it draws
    same = (None, card.name, card.corrections)
    power = [x for x in logs.power if bundled_gpu(x.name) in same]
    logs = logs._replace(power=power)
    return logs, build_windows(logs, request.gpus, request.every), gpu


@accepts(ReadRequest)
def read(request: ReadRequest) -> LogResult:
    """Logs of a service as a table of measured servers, which `fit` reads: a row for
    each window that has a load.

    Raises:
        ValueError: for logs that cannot be read or joined, in one sentence.
    """
    logs, windows, gpu = _read(request)
    if request.model is None:
        raise ValueError("`model` is missing, and no log says what it is; give it.")
    rows = [_row(x, request, gpu) for x in windows if loads_of(x)]
    if not rows:
        raise ValueError(
            "no window has requests with known lengths; give metrics or a benchmark of "
            "a server that serves."
        )
    table = pd.DataFrame(rows).dropna(axis=1, how="all")
    summary = {
        "source": f"{len(windows)} windows",
        "format": ", ".join(logs.formats),
        "gpus": [gpu],
        "rows": len(table),
        "columns": [str(x) for x in table],
        "notes": notes_of(windows),
    }
    return LogResult(summary, table)


def _row(window: Window, request: WindowsRequest, gpu: str) -> dict[str, Any]:
    """A row of a table of servers."""
    load = loads_of(window, "closed")[0]
    energy, tokens = window.energy_per_token, load.input.mean
    return {
        "gpu": gpu,
        "model": request.model,
        "engine": request.engine or window.engine or "vllm",
        "num_gpus": request.gpus,
        "tp": request.tp or request.gpus,
        "dtype": request.dtype,
        "kv_dtype": request.kv_dtype,
        "concurrency": load.concurrency,
        "max_batch": load.max_batch,
        "rate": load.rate,
        "waves": load.waves,
        "input_len": tokens,
        "output_len": load.output.mean,
        "cached_len": load.cached or None,
        "running_requests": window.running,
        "tpot_s": window.tpot,
        "ttft_s": window.ttft,
        "avg_power_w": window.power,
        "energy_j_per_output_token": energy,
        "window_s": window.seconds,
    }


@accepts(ServiceRequest)
def evaluate(request: ServiceRequest) -> ServiceResult:
    """Power, energy and latencies of a running service against their prediction, window
    by window.

    Power and tokens are joined by time; times without requests and times of loading are
    windows of their own. A window is predicted in steady state, from its requests a
    second or from the requests that ran, with equal lengths.

    Returns:
        A `ServiceResult`, whose `summary` is the JSON of `diffenergy evaluate
        --service`.

    Raises:
        ValueError: for logs that cannot be read or joined, in one sentence.
        Infeasible: if the model cannot serve any of the windows so.

    Example:

        >>> logs = ["docs/examples/bench.json", "docs/examples/power.csv"]
        >>> evaluate(logs, model="qwen3-8b").outside
        []
    """
    logs, windows, gpu = _read(request)
    if request.model is None:
        raise ValueError("`model` is missing, and no log says what it is; give it.")
    engine = request.engine or next((x.engine for x in windows if x.engine), None)
    server = ServerRequest(**part(ServerRequest, request, engine=engine))
    answers = priced(windows, server, request.arrivals, model=request.model, gpu=gpu)
    refused = [x for x in answers if isinstance(x, str)]
    if refused and not any(isinstance(x, ServingResult) for x in answers):
        raise Infeasible(refused[0])
    predictions = [x if isinstance(x, ServingResult) else None for x in answers]
    first = next((x for x in predictions if x is not None), None)
    site = None if first is None else first.deployment.site
    entries = [
        _window(x, y, site, request.gpus) for x, y in zip(windows, answers, strict=True)
    ]
    outside = [n for n, x in enumerate(entries) if x["outside"]]
    about = None if first is None else first.summary
    keys = ("tp", "engine", "dtype", "grade")
    timed = [x for x in windows if x.start is not None and x.end is not None]
    local = [x.local for x in (*logs.power, *logs.server, *logs.runs)]
    assumed = {"lengths": "equal"} | ({} if about is None else about["assumed"])
    if any(local) and request.time_zone is None:
        assumed["time_zone"] = "UTC"
    summary = {
        "model": request.model if about is None else about["model"],
        "gpu": gpu if about is None else about["gpu"],
        "num_gpus": request.gpus,
        **{x: None if about is None else about[x] for x in keys},
        "node": None if about is None else about.get("node"),
        "formats": list(logs.formats),
        "start": stamp(min(x.start or 0 for x in timed)) if timed else None,
        "end": stamp(max(x.end or 0 for x in timed)) if timed else None,
        "states": _states(windows),
        "output_tokens": _sum(x.tokens for x in windows),
        "energy_j": _sum(x.energy for x in windows),
        "energy_j_per_million_output_tokens": _all_energy(windows),
        "errors": {name: _errors(entries, name) for name in COMPARED},
        "compared": sum(x["compared"] for x in entries),
        "outside": outside,
        "windows": entries,
        "assumed": assumed,
        "notes": notes_of(windows),
    }
    return ServiceResult(summary, windows, predictions)


def _sum(values: Any) -> float | None:
    """Sum of what is known, None where nothing is."""
    numbers = [x for x in values if x is not None]
    return float(sum(numbers)) if numbers else None


def _all_energy(windows: Sequence[Window]) -> float | None:
    """J of a million output tokens with the energy of all windows, idle ones too; None
    where the energy of a window is unknown."""
    tokens = _sum(x.tokens for x in windows)
    energies = [x.energy for x in windows]
    if not tokens or any(x is None for x in energies):
        return None
    return _MILLION * math.fsum(x or 0.0 for x in energies) / tokens


def _states(windows: Sequence[Window]) -> dict[str, dict[str, Any]]:
    """Windows, time and energy by state."""
    return {
        state: {
            "windows": len(members),
            "duration_s": _sum(x.seconds for x in members),
            "energy_j": _sum(x.energy for x in members),
        }
        for state in dict.fromkeys(x.state for x in windows)
        for members in [[x for x in windows if x.state == state]]
    }


def notes_of(windows: Sequence[Window]) -> list[str]:
    """What is unavailable, each reason once, with how many windows have it."""
    reasons = [(name, why) for x in windows for name, why in x.why.items()]
    return [
        f"{name} is unavailable in {reasons.count((name, why))} of {len(windows)} "
        f"windows: {why}."
        for name, why in dict.fromkeys(reasons)
    ]


# --- one window


def _window(
    window: Window, answer: ServingResult | str | None, site: Site | None, gpus: int
) -> dict[str, Any]:
    """The JSON of a window."""
    measured = _measured(window, site, gpus)
    result = answer if isinstance(answer, ServingResult) else None
    predicted = None if result is None else _predicted(result, window.seconds)
    why = dict(window.why)
    if isinstance(answer, str):
        why["predicted"] = answer.rstrip(".")
    few = window.requests is not None and window.requests < FEW
    if few and window.state == SERVING:
        why["compared"] = f"{window.requests:.3g} requests are too few for means"
    compared = predicted is not None and not few
    outside = []
    if predicted is not None and compared:
        for name in COMPARED:
            value, between = measured[name], predicted[f"{name}_p5_p95"]
            if value and between and not between[0] <= value <= between[1]:
                outside.append(name)
    x = window
    return {
        "state": x.state,
        "start": None if x.start is None else stamp(x.start),
        "end": None if x.end is None else stamp(x.end),
        "duration_s": x.seconds,
        "load": None if result is None else result.summary["mode"],
        "request_rate_per_s": x.flow,
        "running_requests": x.running if x.running is not None else x.clients,
        "waiting_requests": x.waiting,
        "output_tokens": x.tokens,
        "input_len": x.input_len,
        "output_len": x.output_len,
        "prefix_hit": x.hits,
        "measured": measured,
        "predicted": predicted,
        "compared": compared,
        "outside": outside,
        "unavailable": why,
    }


def _measured(window: Window, site: Site | None, gpus: int) -> dict[str, Any]:
    """Figures that logs have; those at the wall are of the node's model at the measured
    power of the boards."""
    each, wall = window.energy_per_token, None
    if site is not None and window.power is not None:
        one = np.ones(1)
        wall = float(site.energies(one, window.power / gpus * one, gpus).wall)
    return {
        "avg_power_w": window.power,
        "energy_j": window.energy,
        "energy_j_per_million_output_tokens": each and _MILLION * each,
        "tpot_s": window.tpot,
        "ttft_s": window.ttft,
        "wall_power_w": wall,
        "wall_energy_j_per_million_output_tokens": _MILLION * each * wall / window.power
        if each and wall and window.power
        else None,
    }


def _predicted(result: ServingResult, seconds: float | None) -> dict[str, Any]:
    """Figures of the model with their intervals of 5 to 95 %."""
    s = result.summary
    token, power = s["energy_j_per_output_token"], s["avg_power_w"]
    wall = s.get("wall_energy_j_per_output_token")
    energy = _sd(s["energy_j_per_output_token_p5_p95"])
    # of an open loop the load sets how long a token takes; else W = J / s of a step
    tpot, token_time = s["tpot_s"], s["tpot_s_p5_p95"]
    is_open = s["mode"] == "open" or tpot is None
    time = 0.0 if is_open else min(_sd(token_time), energy)
    factor = math.exp(_NORMAL * math.sqrt(energy**2 - time**2))
    return {
        "avg_power_w": power,
        "avg_power_w_p5_p95": [power / factor, power * factor],
        "energy_j": None if seconds is None else power * seconds,
        "energy_j_per_million_output_tokens": _MILLION * token,
        "energy_j_per_million_output_tokens_p5_p95": [
            _MILLION * x for x in s["energy_j_per_output_token_p5_p95"]
        ],
        "tpot_s": tpot and tpot["mean"],
        "tpot_s_p5_p95": token_time and list(token_time),
        "ttft_s": s["ttft_s"]["mean"],
        "ttft_s_p5_p95": list(s["ttft_s_p5_p95"]),
        "wall_power_w": s.get("wall_power_w"),
        "wall_energy_j_per_million_output_tokens": None
        if wall is None
        else _MILLION * wall,
    }


def _sd(interval: Sequence[float]) -> float:
    """Standard deviation of ln of what lies in an interval of 5 to 95 %."""
    low, high = interval
    return math.log(high / low) / (2 * _NORMAL)


def _errors(entries: Sequence[Mapping[str, Any]], name: str) -> dict[str, Any]:
    """Mean signed and absolute errors of a figure over the windows compared (%)."""
    pairs = [
        (x["measured"][name], x["predicted"][name])
        for x in entries
        if x["compared"] and x["measured"][name] and x["predicted"][name]
    ]
    errors = np.array([100 * (b / a - 1) for a, b in pairs])
    return {
        "windows": len(errors),
        "bias_pct": float(errors.mean()) if len(errors) else None,
        "mape_pct": float(np.abs(errors).mean()) if len(errors) else None,
    }
