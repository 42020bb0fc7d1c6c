"""Logs of a service by their content: series over time and runs of benchmarks."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from ..imports import bundled_gpu
from ..measurements import Series, log_format, log_head
from ..measurements.importers import importers
from . import _benchmarks, _prometheus
from ._benchmarks import Run

_HEAD: Final = 1 << 18
"""Bytes looked at."""
_POWER: Final = ("power", "energy", "memory")
_ZONE: Final = re.compile(r"([+-])(\d\d):?(\d\d)(?::?(\d\d))?")
READABLE: Final = (
    "a log of nvidia-smi, DCGM, ZeusMonitor or CodeCarbon, a result of vLLM's, "
    "SGLang's or genai-perf's benchmark, or a range export of Prometheus"
)


class Logs(NamedTuple):
    """What logs say together: `formats` by tool, `gpus` by our name, `power`: series
    of GPUs, `server`: those of servers, `runs`: of benchmarks."""

    formats: tuple[str, ...]
    gpus: tuple[str, ...]
    power: list[Series]
    server: list[Series]
    runs: list[Run]


def service_format(path: str) -> str | None:
    """Tool that wrote the log of a service at `path`: a benchmark or Prometheus, by its
    content; None for any other file, logs of power meters too."""
    text = log_head(path, _HEAD)
    if _prometheus.wrote(text):
        return "prometheus"
    return _benchmarks.wrote(text)


def read_logs(paths: Sequence[str], zone: str | None = None) -> Logs:
    """All logs of one service; `zone`: offset from UTC of times without one.

    Raises `ValueError` in one sentence for what cannot be read, for logs of several
    models, and for power that two tools or files logged.
    """
    shift = _offset(zone)
    formats, power, server, runs = dict[str, None](), [], [], []
    meters: dict[str, str] = {}
    for path in paths:
        name = service_format(path) or log_format(path)
        if name is None:
            _check_exists(path)
            raise ValueError(f"{path} is no log of a known tool; give {READABLE}.")
        formats[name] = None
        if name in importers():
            series_of = getattr(importers()[name], "series", None)
            if series_of is None:
                raise ValueError(f"{path}: logs of {name} have no times; leave it out.")
            series: list[Series] = series_of(Path(path))
        elif name == "prometheus":
            series = _prometheus.read(path)
        else:
            runs += [_moved(x, shift) for x in _benchmarks.read(path, name)]
            continue
        series = [_shifted(x, shift) for x in series]
        meter = [x for x in series if x.quantity in _POWER]
        if meter:
            meters.setdefault(name, path)
        power += meter
        server += [x for x in series if x.quantity not in _POWER]
    if len(meters) > 1:
        raise ValueError(
            f"power is in logs of {' and '.join(meters)}; give those of one tool, so "
            "that nothing counts twice."
        )
    if len({x.name for x in server}) > 1:
        raise ValueError(
            f"the metrics are of {len({x.name for x in server})} models; export those "
            "of one model (`model_name`)."
        )
    names = {bundled_gpu(x.name) for x in power} - {None}
    gpus = tuple(sorted(str(x) for x in names))
    return Logs(tuple(formats), gpus, _merged(power), _merged(server), runs)


def _check_exists(path: str):
    if not Path(path).is_file():
        what = "is a folder" if Path(path).is_dir() else "is no file"
        raise ValueError(f"'{path}' {what}; give {READABLE}.")


def _offset(zone: str | None) -> float:
    """s that local times are ahead of UTC."""
    if zone is None:
        return 0.0
    match = _ZONE.fullmatch(zone)
    if match is None:
        raise ValueError(
            f"`time_zone` is '{zone}'; allowed is an offset from UTC such as +02:00."
        )
    sign, *parts = match.groups()
    hours, minutes, seconds = (int(x or 0) for x in parts)
    ahead = 3600.0 * hours + 60 * minutes + seconds
    return -ahead if sign == "-" else ahead


def _shifted(x: Series, shift: float) -> Series:
    """The series with times in UTC."""
    if not x.local:
        return x
    ends = None if x.ends is None else x.ends - shift
    return x._replace(times=x.times - shift, ends=ends)


def _moved(run: Run, shift: float) -> Run:
    """The run with its start in UTC."""
    if run.start is None or not run.local:
        return run
    return run._replace(start=run.start - shift)


def _merged(series: list[Series]) -> list[Series]:
    """Series with the parts of each in order of time.

    Raises `ValueError` where two parts overlap and differ.
    """
    groups: dict[tuple[str, str], list[Series]] = {}
    for x in series:
        groups.setdefault((x.quantity, x.key), []).append(x)
    merged = []
    for parts in groups.values():
        parts.sort(key=lambda x: float(x.times[0]))
        for a, b in zip(parts, parts[1:], strict=False):
            both = np.isin(b.times, a.times)
            apart = a.times[-1] < b.times[0] or both.all()
            # exports of neighbouring ranges share readings, different GPUs do not
            if not apart and not both.any():
                raise ValueError(
                    f"two logs have different readings of `{a.quantity}` at one time; "
                    "give one of them, or log `uuid` to tell GPUs apart."
                )
        first = parts[0]
        times = np.concatenate([x.times for x in parts])
        times, order = np.unique(times, return_index=True)
        values = np.concatenate([x.values for x in parts])[order]
        ends = None
        if first.ends is not None:
            every = [x.times if x.ends is None else x.ends for x in parts]
            ends = np.concatenate(every)[order]
        merged.append(first._replace(times=times, values=values, ends=ends))
    return merged
