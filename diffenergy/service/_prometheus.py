"""Range exports of Prometheus (JSON of `query_range`, CSV of Grafana): metrics of
servers (vLLM, SGLang) and of GPUs (DCGM) over time."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np

from ..measurements import (
    CellRange,
    Series,
    Sheet,
    read_numbers,
    read_sheet,
    read_text,
    read_times,
)

_SERVER: Final = {
    "num_requests_running": "running",
    "num_running_reqs": "running",
    "num_requests_waiting": "waiting",
    "num_queue_reqs": "waiting",
    "prompt_tokens": "input_tokens",
    "generation_tokens": "output_tokens",
    "request_success": "requests",
    "num_requests": "requests",
    "prefix_cache_hits": "hits",
    "cached_tokens": "hits",
    "time_to_first_token_seconds_sum": "ttft_sum",
    "time_to_first_token_seconds_count": "ttft_count",
    "inter_token_latency_seconds_sum": "itl_sum",
    "inter_token_latency_seconds_count": "itl_count",
    "time_per_output_token_seconds_sum": "tpot_sum",
    "time_per_output_token_seconds_count": "tpot_count",
    "request_time_per_output_token_seconds_sum": "request_tpot_sum",
    "request_time_per_output_token_seconds_count": "request_tpot_count",
}
"""Quantity by metric of vLLM and SGLang (s, tokens, requests)."""
_GPU: Final = {
    "DCGM_FI_DEV_POWER_USAGE": ("power", 1.0),
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": ("energy", 1e-3),
    "DCGM_FI_DEV_FB_USED": ("memory", 2.0**20),
}
"""Quantity and its unit by metric of the DCGM exporter (mJ, MiB)."""
_NAME: Final = re.compile(
    r"(?P<engine>vllm|sglang)[:_](?P<server>\w+)|(?P<gpu>DCGM_FI_\w+)"
)
_LABEL: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_BLANK: Final = 2147483632.0
"""DCGM's "no value" and, of gauges, all above it."""
_EMPTY: Final = ("null", "undefined")
"""Words of Grafana for no value."""
_NUMBER: Final = CellRange("a number without unit")
_EXPORT: Final = "export a range (`query_range`) of vllm:, sglang: or DCGM_FI_ metrics"


def wrote(head: str) -> bool:
    """Whether a file that begins so is such an export."""
    if head.lstrip()[:1] in "{[":
        return bool(re.search(r'"resultType"\s*:|"status"\s*:\s*"error"', head))
    first = head.lstrip().partition("\n")[0]
    timed = re.match(r'"?(time|timestamp)"?[,;]', first, re.IGNORECASE)
    return bool(timed) and (bool(_NAME.search(first)) or "__name__" in first)


def read(path: str) -> list[Series]:
    """Series of an export. Raises `ValueError` for what cannot be read, in one
    sentence."""
    text = read_text(path)
    every = _json(path, text) if text.lstrip()[:1] in "{[" else _csv(path)
    series = [x for samples in every if (x := _series(*samples))]
    if not series:
        raise ValueError(f"{path} has no metric of a server or GPU; {_EXPORT}.")
    return series


Samples = tuple[Mapping[str, str], np.ndarray, np.ndarray, bool]
"""Labels with `__name__`; times, values; whether times are local."""


def _series(
    labels: Mapping[str, str], times: np.ndarray, values: np.ndarray, local: bool
) -> Series | None:
    """A series by our names; None for one that is not read."""
    metric = _NAME.fullmatch(labels.get("__name__", ""))
    valid = np.isfinite(values)
    if metric is None:
        return None
    if metric["gpu"]:
        quantity, scale = _GPU.get(metric["gpu"], ("", 1.0))
        if quantity == "power":
            valid &= np.abs(values) < _BLANK
        if not quantity or labels.get("GPU_I_ID"):  # an instance is no board
            return None
        host = labels.get("Hostname") or labels.get("instance", "")
        key = labels.get("UUID") or f"{host}/{labels.get('gpu', '')}"
        name = labels.get("modelName", "")
    else:
        quantity, scale = _SERVER.get(metric["server"].removesuffix("_total"), ""), 1.0
        ranks = (labels.get(x, "0") for x in ("tp_rank", "pp_rank"))
        if not quantity or any(x != "0" for x in ranks):  # each rank counts all
            return None
        key = f"{metric['engine']} {sorted(labels.items())}"
        name = labels.get("model_name", "")
    order = np.argsort(times[valid], kind="stable")
    each = times[valid][order], scale * values[valid][order]
    return Series(quantity, key, name, *each, None, local) if len(order) else None


def _json(path: str, text: str) -> Iterator[Samples]:
    """Series of one answer of Prometheus, a list of them, or one a line."""
    for answer in read_json(path, text):
        if not isinstance(answer, dict):
            raise ValueError(f"{path} is no answer of Prometheus; {_EXPORT}.")
        if answer.get("status") == "error":
            raise ValueError(f"{path} is an error of Prometheus; {_EXPORT}.")
        data = answer.get("data", answer)
        kind = data.get("resultType") if isinstance(data, dict) else None
        if kind != "matrix":
            raise ValueError(f"`resultType` is '{kind}' in {path}; {_EXPORT}.")
        try:
            for result in data["result"]:
                pairs = [(float(t), float(v)) for t, v in result["values"]]
                times, values = np.array(pairs, float).reshape(-1, 2).T
                yield dict(result["metric"]), times, values, False
        except (KeyError, TypeError, ValueError):
            raise ValueError(
                f"{path} has a series without pairs of time and value; {_EXPORT}."
            ) from None


def read_json(path: str, text: str) -> list[Any]:
    """Values of a JSON file: those of its list, of its lines, or the only one."""
    try:
        value = json.loads(text)
        return value if isinstance(value, list) else [value]
    except ValueError:
        lines = [line for line in text.splitlines() if line.strip()]
    try:
        return [json.loads(line) for line in lines]
    except ValueError:
        raise ValueError(f"{path} is cut short or no JSON; write it again.") from None


def _csv(path: str) -> Iterator[Samples]:
    """Series of a table: a column each, or labels in columns and one `Value`."""
    sheet = read_sheet(path)
    lower = {name.lower(): name for name in sheet.columns}
    column = lower.get("time") or lower.get("timestamp") or next(iter(sheet.columns))
    times, local = read_times(sheet, column)
    every = np.arange(sheet.num_rows)
    if "__name__" in lower:
        if "value" not in lower:
            raise ValueError(f"{path}: there is no column `Value`; {_EXPORT}.")
        names = [x for x in sheet.columns if x not in (column, lower["value"])]
        values = read_numbers(sheet, lower["value"], every, _NUMBER)
        rows: dict[tuple[str, ...], list[int]] = {}
        for row in every.tolist():
            rows.setdefault(tuple(sheet.columns[x][row] for x in names), []).append(row)
        for labels, of in rows.items():
            yield dict(zip(names, labels, strict=True)), times[of], values[of], local
        return
    for header in sheet.columns:
        if header == column or (name := _NAME.search(header)) is None:
            continue
        if "(" in header.partition("{")[0]:
            raise ValueError(
                f"{path}: a column is a function of `{name.group()}`, such as a rate; "
                "export the metric itself."
            )
        labels = dict(_LABEL.findall(header)) | {"__name__": name.group()}
        yield labels, times, _values(sheet, header, name.group()), local


def _values(sheet: Sheet, column: str, name: str) -> np.ndarray:
    """Numbers of a column; `name`: of its metric, as errors call it."""
    cells = sheet.columns[column]
    empty = [str(x).strip().lower() in _EMPTY for x in cells]
    plain = {name: np.where(empty, "", cells)}
    return read_numbers(
        sheet.with_columns(plain), name, np.arange(sheet.num_rows), _NUMBER
    )
