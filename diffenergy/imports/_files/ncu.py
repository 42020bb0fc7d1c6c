"""Nsight Compute (`ncu --csv`): one row a metric (long form) or a kernel (`--page raw`,
wide form, a second header line has the units). Kernels run alone, at locked base clocks
and with cold caches; counters of units are activities."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from .._launches import Launch, Trace
from .._request import ImportRequest
from .nsys import amount, csv_rows

_TIMES: Final = ("Duration", "gpu__time_duration.sum")
_UNITS: Final = {
    "ns": 1e-3, "nsecond": 1e-3, "us": 1.0, "usecond": 1.0, "ms": 1e3, "msecond": 1e3,
    "s": 1e6, "second": 1e6,
}  # fmt: skip
"""us."""
_CLOCKS: Final = {
    "hz": 1e-6, "khz": 1e-3, "mhz": 1.0, "ghz": 1e3, "cycle/second": 1e-6,
    "cycle/usecond": 1.0, "cycle/nsecond": 1e3,
}  # fmt: skip
"""MHz."""
_SHARES: Final = (
    ("dram_active", r"^DRAM Throughput$|dram__throughput\.avg\.pct"),
    ("util_l2", r"^L2 Cache Throughput$|lts__t_sectors\.avg\.pct|lts__throughput"),
    ("util_fp32_fma", r"sm__inst_executed_pipe_fma(?:_\w+)?\.avg\.pct"),
    ("util_int", r"sm__inst_executed_pipe_alu\.avg\.pct"),
    ("util_sfu", r"sm__inst_executed_pipe_xu\.avg\.pct"),
    ("fp64_active", r"sm__inst_executed_pipe_fp64\.avg\.pct"),
    ("util_shared", r"l1tex__data_pipe_lsu_wavefronts_mem_shared\.avg\.pct"),
    ("sm_occupancy", r"^Achieved Occupancy$|sm__warps_active\.avg\.pct"),
)
"""Column of `activity` -> metrics, in percent of the peak."""
_TENSOR: Final = re.compile(r"pipe_tensor")
_FREQUENCIES: Final = {
    "sm_clock_ref_mhz": ("SM Frequency", "gpc__cycles_elapsed.avg.per_second"),
    "mem_clock_ref_mhz": ("DRAM Frequency", "dram__cycles_elapsed.avg.per_second"),
}
Metric = tuple[str, str]
"""Value and unit."""


def read(path: str, request: ImportRequest) -> Trace:
    """Launches in the order of the file, with their counters.

    Raises `ValueError` for a file without durations.
    """
    rows = [row for _, row in csv_rows(path, ("ID", "Kernel Name"))]
    kernels = _long(rows) if rows and "Metric Name" in rows[0] else _wide(rows)
    launches, activities, tensor = [], [], False
    for number, (about, metrics) in enumerate(kernels, 1):
        where = f"{path}, kernel {number}"
        time = next((metrics[x] for x in _TIMES if x in metrics), None)
        if time is None:
            raise ValueError(
                f"{where} has no duration; run ncu with `--set basic` or `--metrics "
                "gpu__time_duration.sum`."
            )
        us = _in(time, _UNITS, where)
        name = about["Kernel Name"]
        launches.append(
            Launch(
                name, us, stream=_whole(about.get("Stream")),
                grid=_triple(about.get("Grid Size")),
                block=_triple(about.get("Block Size")),
            )
        )  # fmt: skip
        activity = _activity(metrics, us, request.gpu, where)
        tensor |= any(_TENSOR.search(x) for x in metrics)
        if activity:
            activities.append({**activity, "kernel": name[:80]})
    if not launches:
        raise ValueError(f"{path} lists no kernel.")
    notes = ["Nsight Compute runs kernels one by one, at locked base clocks and with "
             "cold caches: their times are not those of the program."]  # fmt: skip
    if tensor and activities:
        notes.append(
            "activity of tensor pipes has no column among the activities; it is left "
            "out."
        )
    return Trace(
        "ncu", launches, timed=False, notes=tuple(notes), activities=activities
    )


def _long(
    rows: Sequence[Mapping[str, str]],
) -> list[tuple[Mapping[str, str], dict[str, Metric]]]:
    """Metrics of each kernel from one row a metric."""
    kernels: dict[str, tuple[Mapping[str, str], dict[str, Metric]]] = {}
    for row in rows:
        _, metrics = kernels.setdefault(row["ID"], (row, {}))
        metrics[row["Metric Name"]] = (row["Metric Value"], row.get("Metric Unit", ""))
    return list(kernels.values())


def _wide(
    rows: Sequence[Mapping[str, str]],
) -> list[tuple[Mapping[str, str], dict[str, Metric]]]:
    """Metrics of each kernel from one row a kernel; the first has the units."""
    if not rows:
        return []
    units = rows[0] if not rows[0]["ID"].strip() else {}
    kernels = rows[1:] if units else rows
    return [
        (row, {key: (value, units.get(key, "")) for key, value in row.items() if value})
        for row in kernels
    ]


def _activity(
    metrics: Mapping[str, Metric], us: float, gpu: str | None, where: str
) -> dict[str, Any]:
    """Activities of a kernel as a row of measurements; empty without counters."""
    shares = {}
    for column, pattern in _SHARES:
        name = next((x for x in metrics if re.search(pattern, x)), None)
        if name is not None:
            percent = amount(metrics[name][0], f"{where}: a value")
            shares[column] = round(min(max(percent / 100, 0.0), 1.0), 6)
    if not shares:
        return {}
    clocks = {
        column: _in(metrics[name], _CLOCKS, where)
        for column, names in _FREQUENCIES.items()
        if (name := next((x for x in names if x in metrics), None))
    }
    times = {"time_us": us, "time_ref_us": us}
    named = {"gpu": gpu} if gpu else {}
    return {"op": "activity", **named, **times, **clocks, **shares}


def _in(metric: Metric, units: Mapping[str, float], where: str) -> float:
    """A value in the unit that `units` are factors to."""
    text, unit = metric
    factor = units.get(unit.strip().lower())
    if factor is None:
        raise ValueError(
            f"{where}: the unit is '{unit}'; allowed are {', '.join(units)}."
        )
    return amount(text, f"{where}: a value") * factor


def _whole(text: str | None) -> int:
    return int(text) if text and text.isdigit() else 0


def _triple(text: str | None) -> tuple[int, ...]:
    """`(16, 3, 1)` as numbers."""
    numbers = tuple(int(x) for x in re.findall(r"\d+", text or ""))
    return numbers if len(numbers) == 3 else ()
