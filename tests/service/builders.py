"""Logs of a server whose figures are known by hand.

From `T0` on: 120 s of loading (100 W, memory grows), 120 s idle (100 W), 600 s that
serve (400 W): every second 16 requests with 100 tokens that make 46 each, with 0.05 s
to the first token and 0.01 s for each of the others: 0.5 s, so that 8 requests run.
"""

import json
from datetime import UTC, datetime
from typing import Any

T0 = 1_767_225_600.0  # 2026-01-01T00:00:00Z
STEP = 10.0
UP, BUSY, END = 120.0, 240.0, 840.0
"""s after `T0` at which the server answers, serves, and the logs end."""
LABELS = {"model_name": "secret/model-7b", "instance": "10.1.2.3:8000"}
RATES = {
    "prompt_tokens_total": 1600.0, "generation_tokens_total": 736.0,
    "request_success_total": 16.0, "time_to_first_token_seconds_count": 16.0,
    "time_to_first_token_seconds_sum": 0.8, "inter_token_latency_seconds_count": 720.0,
    "inter_token_latency_seconds_sum": 7.2,
}  # fmt: skip
"""Counters of vLLM, a second."""


def times(begin: float = UP, end: float = END, step: float = STEP) -> list[float]:
    return [begin + step * i for i in range(round((end - begin) / step) + 1)]


def served(t: float) -> float:
    """s of serving until `t` s after `T0`."""
    return min(max(t - BUSY, 0.0), END - BUSY)


def metrics(
    prefix: str = "vllm:",
    at: list[float] | None = None,
    share: float = 1.0,
    reset: float = 1e9,
    labels: dict[str, str] = LABELS,
    drop: tuple[str, ...] = (),
) -> list[dict[str, Any]]:
    """Series of a server that does a `share` of all; counters begin anew at
    `reset`."""
    at = times() if at is None else at
    series = []
    for name, rate in RATES.items():
        before, values = 0.0, []
        for t in at:
            if t > reset:
                before = served(reset)
            values.append((T0 + t, share * rate * (served(t) - before)))
        series.append((name, values))
    running = [(T0 + t, share * 8.0 * (t > BUSY)) for t in at]
    series.append(("num_requests_running", running))
    return [
        {"metric": {"__name__": prefix + name, **labels},
         "values": [[t, f"{v:.10g}"] for t, v in values]}
        for name, values in series
        if name not in drop
    ]  # fmt: skip


def matrix(series: list[dict[str, Any]]) -> str:
    data = {"resultType": "matrix", "result": series}
    return json.dumps({"status": "success", "data": data})


def watts(t: float) -> float:
    return 400.0 if BUSY <= t <= END else 100.0


def smi(gpus: int = 1, idle: int = 0, ahead: float = 0.0, end: float = END) -> str:
    """A log of nvidia-smi of `gpus` that serve and `idle` ones of 50 W, by a clock that
    is `ahead` of UTC (s)."""
    lines = ["timestamp, name, index, power.draw [W], memory.used [MiB]"]
    for t in times(0.0, end, 1.0):
        stamp = datetime.fromtimestamp(T0 + t + ahead, UTC).strftime(
            "%Y/%m/%d %H:%M:%S"
        )
        for n in range(gpus + idle):
            draws = watts(t) if n >= idle else 50.0
            used = min(70_000, 500 * t) if n >= idle and t > 20 else 5
            lines.append(
                f"{stamp}.000, NVIDIA H100 80GB HBM3, {n}, {draws} W, {used:.0f} MiB"
            )
    return "\n".join(lines) + "\n"


def dcgm(gpu: str = "0", counter: bool = False, name: str = "NVIDIA H100 80GB HBM3"):
    """Series of the DCGM exporter: power, or the energy counter in mJ."""
    labels = {"gpu": gpu, "UUID": f"GPU-{gpu}", "modelName": name, "Hostname": "h7"}
    metric = "DCGM_FI_DEV_POWER_USAGE"
    joules, values = 0.0, []
    for t in times(0.0):
        values.append([T0 + t, str(1e3 * joules if counter else watts(t))])
        joules += STEP * watts(t + 1)
    if counter:
        metric = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"
    return {"metric": {"__name__": metric, **labels}, "values": values}


def bench(**changes: Any) -> dict[str, Any]:
    """A result of vLLM's benchmark: the 600 s that serve."""
    return {
        "date": "20260101-001400", "backend": "vllm", "model_id": "secret/model-7b",
        "num_prompts": 9600, "request_rate": "inf", "max_concurrency": 8,
        "duration": 600.0, "completed": 9600, "total_input_tokens": 960_000,
        "total_output_tokens": 441_600, "request_throughput": 16.0,
        "output_throughput": 736.0, "mean_ttft_ms": 50.0, "mean_tpot_ms": 10.0,
        **changes,
    }  # fmt: skip


def genai(**changes: Any) -> dict[str, Any]:
    """A result of genai-perf."""
    return {
        "request_throughput": {"unit": "requests/sec", "avg": 16.0},
        "request_latency": {"unit": "ms", "avg": 500.0},
        "time_to_first_token": {"unit": "ms", "avg": 50.0},
        "inter_token_latency": {"unit": "ns", "avg": 1e7},
        "output_token_throughput": {"unit": "tokens/sec", "avg": 736.0},
        "output_sequence_length": {"unit": "tokens", "avg": 46.0},
        "input_sequence_length": {"unit": "tokens", "avg": 100.0},
        "request_count": {"unit": "requests", "avg": 9600.0},
        "input_config": {"model": ["secret/model-7b"],
                         "perf_analyzer": {"stimulus": {"concurrency": 8}}},
        **changes,
    }  # fmt: skip
