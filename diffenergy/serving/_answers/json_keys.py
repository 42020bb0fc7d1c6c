"""Keys of the JSON of `serve`: type, unit, meaning. What is not known is None."""

from typing import Annotated, Any, NotRequired, TypedDict

from ...estimator._answer.json_keys import Interval


class LatencyJson(TypedDict):
    """A latency."""

    mean: Annotated[float, "s", "mean"]
    p50: Annotated[float, "s", "median"]
    p90: Annotated[float, "s", "90th percentile"]
    p95: Annotated[float, "s", "95th percentile"]
    p99: Annotated[float, "s", "99th percentile"]


class StepPartsJson(TypedDict):
    """Parts that add up to the mean step."""

    linear: Annotated[float, "s", "linear layers"]
    attention: Annotated[float, "s", "attention"]
    head: Annotated[float, "s", "logits"]
    sampling: Annotated[float, "s", "choice of tokens"]
    communication: Annotated[float, "s", "exchange among GPUs"]
    host: Annotated[float, "s", "the engine's own"]
    prefill: Annotated[float, "s", "prompts"]


class StepJson(TypedDict):
    """A step of the engine."""

    mean: Annotated[float, "s", "of all steps"]
    decode_only: Annotated[float, "s", "of steps without prompts"]
    parts: Annotated[StepPartsJson, "that add up to the mean"]


class OptimizedJson(TypedDict):
    """The best clock and batch that keep the limits of latencies."""

    objective: Annotated[str, "`energy` or `throughput`"]
    sm_clock_mhz: Annotated[float, "MHz", "the best clock"]
    max_batch: Annotated[float, "the best limit of requests that run"]


class ServeJson(TypedDict):
    """A server under a load, in balance or of a trace. Figures are of all GPUs."""

    model: Annotated[str, "name"]
    gpu: Annotated[str, "name"]
    num_gpus: Annotated[int, "GPUs"]
    tp: Annotated[int, "GPUs of a replica"]
    dtype: Annotated[str, "type of the linear layers"]
    engine: Annotated[str, "`vllm`, `sglang`, `trtllm` or `vllm-v0`"]
    sampling: Annotated[str, "how tokens are chosen"]
    schedule: Annotated[str, "how prompts enter steps"]
    chunk_tokens: Annotated[float, "tokens", "of prompts in a step, at most"]
    sm_clock_set_mhz: Annotated[float, "MHz", "asked for"]
    sm_clock_mhz: Annotated[
        float, "MHz", "mean over steps; below the requested clock under a power limit"
    ]
    power_limit_w: Annotated[float, "W", "of a board"]
    max_batch: Annotated[float | None, "requests that may run at once"]
    concurrency: Annotated[float | None, "requests in flight, where that is the load"]
    input_len: Annotated[str | float, "tokens", "of a prompt, or their distribution"]
    output_len: Annotated[str | float, "tokens", "made, or their distribution"]
    cached_len: Annotated[float, "tokens", "of a prompt that are cached"]
    mode: Annotated[str, "`saturated`, `closed`, `open` or `trace`"]
    skipped_requests: Annotated[
        int | None, "of a trace: left out, longer than the model's positions"
    ]
    request_rate_per_s: Annotated[
        float | None, "1/s", "offered; null unless `open` or `trace`"
    ]
    request_throughput_per_s: Annotated[float, "1/s", "requests served"]
    output_token_throughput_per_s: Annotated[float, "tokens/s", "made"]
    total_token_throughput_per_s: Annotated[
        float, "tokens/s", "made and read, cached ones too"
    ]
    saturation_request_rate_per_s: Annotated[float, "1/s", "with every slot taken"]
    utilization: Annotated[float, "throughput over saturation"]
    limited_by: Annotated[
        str,
        "what bounds requests that run: `max_batch`, `memory`, `concurrency`, `rate`",
    ]
    running_requests: Annotated[float, "that make tokens, mean"]
    waiting_requests: Annotated[
        float | None, "that have no slot, mean; null where saturated"
    ]
    max_running_requests: Annotated[float, "slots"]
    kv_cache_tokens: Annotated[float, "tokens", "that fit"]
    kv_cache_usage: Annotated[float, "share in use"]
    ttft_s: Annotated[LatencyJson, "s", "request sent to first token, queue included"]
    tpot_s: Annotated[
        LatencyJson | None,
        "s",
        "of a request: (end - first token) / (tokens - 1); the mean is over tokens",
    ]
    itl_s: Annotated[LatencyJson, "s", "every gap between two tokens"]
    e2e_latency_s: Annotated[LatencyJson, "s", "request sent to last token"]
    step_s: Annotated[StepJson, "s", "of the engine"]
    preemptions: Annotated[
        int | None,
        "of a trace: how often a request lost its memory and was read anew",
    ]
    prefill_tokens_per_step: Annotated[float, "tokens", "of prompts in a step"]
    steps_with_prefill_share: Annotated[float, "share of steps that read prompts"]
    avg_power_w: Annotated[float, "W", "of all boards"]
    avg_power_per_gpu_w: Annotated[float, "W", "of a board"]
    peak_step_power_w: Annotated[
        float | None, "W", "of a board, in the step of a trace that draws most"
    ]
    energy_j_per_output_token: Annotated[float, "J", "of a token made"]
    energy_j_per_token: Annotated[float, "J", "of a token read or made"]
    energy_j_per_request: Annotated[float, "J", "of a request"]
    energy_j_per_output_token_p5_p95: Annotated[Interval, "J", "5 to 95 % interval"]
    tpot_s_p5_p95: Annotated[Interval | None, "s", "5 to 95 % interval of the mean"]
    ttft_s_p5_p95: Annotated[Interval, "s", "5 to 95 % interval of the mean"]
    goodput_per_s: Annotated[
        float | None, "1/s", "requests that keep every `--slo-...`; null without one"
    ]
    grade: Annotated[str, "the least of those of kernels and engine"]
    assumed: Annotated[dict[str, Any], "every value that no flag gave"]
    sensitivities: Annotated[
        dict[str, dict[str, float]] | None,
        "with `--sensitivity`: of the means of `energy_j_per_output_token`, `tpot_s`, "
        "`ttft_s` by each field, per SI unit",
    ]
    optimized: NotRequired[Annotated[OptimizedJson, "with `--optimize`"]]
