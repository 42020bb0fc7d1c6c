"""`EstimateResult`, and `Estimate` -> JSON-like summaries: what `estimate --json`
prints and tables show."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import jax
import numpy as np

from ...power_time import PowerCurve
from ...results import Result
from ...units import MHz
from ...workload import Listing
from .._asking.checked import Checked
from .._asking.settings import Setting, throttling
from . import steps as _steps
from .figures import figures_at
from .records import Estimate


@dataclasses.dataclass(frozen=True, repr=False)
class EstimateResult(Result):
    """An estimate with its interval, phases and units.

    `summary`: the JSON of `diffenergy estimate --json` (`points` where several clocks
    or limits were asked for); `listings`: the kernels evaluated, a phase each;
    `kernels`: each listed kernel with its figures, None of several points.
    """

    view: ClassVar[str] = "estimate"
    summary: dict[str, Any]
    listings: list[Listing]
    kernels: list[dict[str, Any]] | None
    detail: bool = False
    step: _steps.Step | None = None
    """Of training on many GPUs: what makes the step; its `timeline`."""
    curves: Mapping[str, PowerCurve] = dataclasses.field(default_factory=dict)
    """With `power_step` or `smooth`: power over time of `boards`, with a node also of
    `node`, `wall` and `site`."""

    @property
    def warnings(self) -> list[str]:
        """Remarks that a reader needs beside the figures."""
        return self.summary["warnings"]

    @property
    def memory(self) -> dict[str, Any]:
        """Bytes in the GPU's memory by part; `total`, `capacity`, `fits`."""
        return self.summary["memory"]

    @property
    def time(self) -> float:
        """s of the whole workload."""
        return self.summary["time_s"]

    @property
    def energy(self) -> float:
        """J of the board, or of those of all GPUs of a plan."""
        return self.summary["energy_j"]

    @property
    def power(self) -> float:
        """W, mean over the time."""
        return self.summary["avg_power_w"]


def single(
    task: Checked, estimate: Estimate, step: _steps.Step | None = None
) -> dict[str, Any]:
    """Summary of an estimate at the task's one setting; `step`: that it makes, of
    training on many GPUs."""
    figures = figures_at(task, estimate, task.settings[0], step)
    warnings = [*task.warnings, *throttling(figures["temperature_c"])]
    return {**task.about, **task.trust.to_json(), **figures, "warnings": warnings}


def sweep(task: Checked, estimate: Estimate) -> dict[str, Any]:
    """Summary of estimates at several settings (the leading axis of `estimate`).

    `best_energy` and `best_edp` are indices into `points`, None if no power limit can
    be kept.
    """
    points = []
    for i, setting in enumerate(task.settings):
        at = jax.tree.map(lambda x: x[i], estimate)  # noqa: B023
        points.append(point(task, at, setting))
    hot = max(point["temperature_c"] or 0.0 for point in points)
    return {
        **task.about,
        **task.trust.to_json(),
        "memory": task.memory,
        "warnings": [*task.warnings, *throttling(hot)],
        "points": points,
        "best_energy": best(
            points, "energy_j" if task.site is None else "wall_energy_j"
        ),
        "best_edp": best(points, "edp"),
    }


def least_power(estimate: Estimate) -> float | None:
    """Least power that the phase which breaks the limit can be held to, W; None if
    every phase keeps it."""
    over = ~np.asarray(estimate.phases.feasible)
    return float(np.asarray(estimate.phases.power)[over].max()) if over.any() else None


def point(task: Checked, estimate: Estimate, setting: Setting) -> dict[str, Any]:
    """Figures at one of several settings; None where its power limit is out of reach,
    and then `least_power_w`."""
    clock = {"sm_clock_set_mhz": setting.sm_clock / MHz}
    power = least_power(estimate)
    if power is None:
        figures = figures_at(task, estimate, setting)
        edp = figures["energy_j"] * figures["time_s"]
        return clock | {"feasible": True} | figures | {"edp": edp}
    return clock | {
        "feasible": False,
        "least_power_w": power,
        "time_s": None,
        "energy_j": None,
        "avg_power_w": None,
        "sm_clock_mhz": None,
        "temperature_c": None,
        "energy_j_per_token": None,
        "mem_clock_mhz": setting.mem_clock / MHz,
        "power_limit_w": setting.power_limit,
        "memory": task.memory,
        **({} if task.tokens is None else {"run": None}),
        "edp": None,
    }


def best(points: Sequence[Mapping[str, Any]], key: str) -> int | None:
    """Index of the point with the least `key`, of those that fit the memory if any
    does; None where none has one."""
    candidates = [i for i, point in enumerate(points) if point.get(key) is not None]
    memories = {i: points[i].get("memory") or {} for i in candidates}
    fitting = [i for i in candidates if memories[i].get("fits") is not False]
    return min(fitting or candidates, key=lambda i: points[i][key], default=None)
