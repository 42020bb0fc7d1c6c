"""Results of benchmarks of servers: vLLM, SGLang, and genai-perf or AIPerf."""

import math
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import pandas as pd

from ..measurements import read_text
from ._prometheus import read_json

_SCALE: Final = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0}
_LENGTHS: Final = {
    "input_len": ("input_sequence_length", "num_input_token"),
    "output_len": ("output_sequence_length", "output_token_count", "num_output_token"),
}
_FORMATS: Final = ("vllm_bench", "sglang_bench", "genai_perf")


class Run(NamedTuple):
    """One run of a benchmark: `start` (s since 1970; None: not logged, `local`: of a
    clock without a named zone), `seconds` and `requests` that completed (None: not
    logged), `flow` of them (1/s), mean lengths in tokens and mean latencies in s;
    `clients` of a closed loop or `rate` (1/s) of an
    open one, neither where all requests came at once."""

    start: float | None
    local: bool
    seconds: float | None
    requests: float | None
    flow: float
    input_len: float
    output_len: float
    ttft: float | None
    tpot: float | None
    clients: float | None
    rate: float | None
    engine: str | None


def wrote(head: str) -> str | None:
    """Which benchmark wrote a file that begins so, None for any other file."""
    if head.lstrip()[:1] not in "{[":
        return None
    keys = set(re.findall(r'"(\w+)"\s*:', head))
    if {"completed", "total_output_tokens", "duration"} <= keys:
        sglang = "total_output_tokens_retokenized" in keys or re.search(
            r'"backend"\s*:\s*"sglang', head
        )
        return "sglang_bench" if sglang else "vllm_bench"
    latencies = {"time_to_first_token", "inter_token_latency", "request_latency"}
    if latencies & keys and "request_throughput" in keys:
        return "genai_perf"
    return None


def read(path: str, name: str) -> list[Run]:
    """Runs of a result file of the benchmark `name` (`wrote`).

    Raises `ValueError` for what cannot be read, in one sentence that names the key.
    """
    values = read_json(path, read_text(path))
    if not values or not all(isinstance(x, dict) for x in values):
        raise ValueError(f"{path} is no result of a benchmark; write it again.")
    one = _genai if name == "genai_perf" else _serving
    return [one(path, x, name) for x in values]


def _number(path: str, values: Mapping[str, Any], key: str) -> float | None:
    """A number of a result; None where it is absent or null."""
    value = values.get(key)
    if value is None or value == "":
        return None
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if math.isnan(number) or number < 0:
        raise ValueError(
            f"`{key}` is {value!r} in {path}; allowed is a number of at least 0; run "
            "the benchmark again."
        )
    return number


def _needed(path: str, key: str, value: float | None) -> float:
    if value is None or not 0 < value < math.inf:
        shown = "missing" if value is None else f"{value:g}"
        raise ValueError(
            f"`{key}` is {shown} in {path}; allowed is a number above 0; run the "
            "benchmark again."
        )
    return value


def _serving(path: str, values: Mapping[str, Any], name: str) -> Run:
    """A run of vLLM's or SGLang's benchmark."""

    def number(key: str) -> float | None:
        return _number(path, values, key)

    def needed(key: str) -> float:
        return _needed(path, key, number(key))

    def latency(key: str) -> float | None:
        value = number(key)
        return value / 1e3 if value else None

    seconds, requests = needed("duration"), needed("completed")
    start, rate = None, number("request_rate")
    if isinstance(date := values.get("date"), str):  # written at the end, local time
        end = pd.to_datetime(date, format="%Y%m%d-%H%M%S", errors="coerce", utc=True)
        start = None if end is pd.NaT else end.timestamp() - seconds
    return Run(
        start,
        True,
        seconds,
        requests,
        requests / seconds,
        needed("total_input_tokens") / requests,
        needed("total_output_tokens") / requests,
        latency("mean_ttft_ms"),
        latency("mean_tpot_ms"),
        number("max_concurrency"),
        rate if rate is not None and rate < math.inf else None,
        "sglang" if name == "sglang_bench" else "vllm",
    )


def _genai(path: str, values: Mapping[str, Any], name: str) -> Run:
    """A run of genai-perf or AIPerf."""

    def mean(*keys: str) -> float | None:
        for key in keys:
            if isinstance(figure := values.get(key), dict):
                value = _number(path, figure, "avg")
                scale = _SCALE.get(str(figure.get("unit", "")).lower(), 1.0)
                return None if value is None else scale * value
        return None

    lengths = {
        key: _needed(path, names[0], mean(*names)) for key, names in _LENGTHS.items()
    }
    flow = _needed(path, "request_throughput", mean("request_throughput"))
    requests, seconds = mean("request_count"), mean("benchmark_duration")
    if requests is None and seconds is not None:
        requests = flow * seconds
    begin, end = (
        pd.to_datetime(str(values.get(x, "")), errors="coerce", format="ISO8601")
        for x in ("start_time", "end_time")
    )
    timed = begin is not pd.NaT and end is not pd.NaT
    if timed and begin.tz is None:
        start = begin.tz_localize("UTC").timestamp()
    else:
        start = begin.timestamp() if timed else None
    clients = _inside(values.get("input_config"), "concurrency")
    rate = _inside(values.get("input_config"), "request_rate")
    return Run(
        start,
        timed and begin.tz is None,
        seconds or (requests / flow if requests else None),
        requests,
        flow,
        lengths["input_len"],
        lengths["output_len"],
        mean("time_to_first_token"),
        mean("inter_token_latency"),
        clients,
        None if clients else rate,
        None,
    )


def _inside(value: Any, key: str) -> float | None:
    """The first positive number of that key within nested objects."""
    if not isinstance(value, dict):
        return None
    number = value.get(key)
    if isinstance(number, int | float) and not isinstance(number, bool) and number > 0:
        return float(number)
    inner = (_inside(x, key) for x in value.values())
    return next((x for x in inner if x is not None), None)
