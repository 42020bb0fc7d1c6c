"""What `plan` gives: `CollectiveResult`, of several sizes `SizesResult`; their JSON."""

import dataclasses
import os
from collections.abc import Mapping
from typing import Any, ClassVar, Final

import numpy as np

from ..hardware import GpuSpec, switch_latency
from ..results import Result, written
from ..units import MHz
from ._baselines import Baselines
from ._demand import Demand
from ._energy import (
    CollectiveEnergy,
    energy_rows,
    schedule_energy,
    schedule_wait_clock,
)
from ._export import demand_json, sends_csv, sends_json
from ._msccl import msccl_xml
from ._plan import Plan
from ._schedule import Schedule
from ._topology import Topology
from ._verify_file import VerifyResult, verify

_SHARED: Final = ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter")
"""Collectives of which a GPU's own part of the buffer moves nowhere."""
_LATE: Final = (
    "wall time ended the search before its work was done; the best so far is shown, "
    "and an idler machine, or a longer --time-limit, may do better."
)


@dataclasses.dataclass(frozen=True, repr=False)
class CollectiveResult(Result):
    """A verified schedule and all that is said about it.

    `summary`: the JSON of `diffenergy collective --json`; `plan`: the schedule with
    its bounds, in seconds and epochs; `energy`: J of links, memory and waiting GPUs;
    `baselines`: the standard algorithms on the same links (`algorithms` by name,
    `unfit` says why); `gpu`: whose power counts, None where the machine names none.
    """

    view: ClassVar[str] = "collectives.collective"
    summary: dict[str, Any]
    plan: Plan
    energy: CollectiveEnergy
    baselines: Baselines
    gpu: GpuSpec | None = None

    @property
    def schedule(self) -> Schedule:
        """Every send with its link, start and end."""
        return self.plan.schedule

    @property
    def finish(self) -> float:
        """Time until the last wanted block has arrived (s)."""
        return self.plan.finish

    @property
    def bound(self) -> float:
        """Time that no schedule beats (s)."""
        return self.plan.bound

    @property
    def gap(self) -> float:
        """finish / bound - 1."""
        return self.plan.gap

    @property
    def certified(self) -> bool:
        """Whether no schedule is shorter, in epochs or in continuous time."""
        return self.plan.certified

    @property
    def method(self) -> str:
        """Method that found the schedule."""
        return self.plan.method

    @property
    def notes(self) -> list[str]:
        """Remarks for a reader."""
        return [_LATE] if self.plan.out_of_time else []

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C ended the search, so that this is the best so far."""
        return self.plan.interrupted

    def baseline_energy(self, name: str) -> CollectiveEnergy:
        """J of one of the standard algorithms. Raises `ValueError` for one that is not
        there."""
        baselines = self.baselines.algorithms
        if name not in baselines:
            raise ValueError(f"`name` is {name!r}; allowed are {', '.join(baselines)}.")
        return schedule_energy(baselines[name].schedule, self.gpu)

    def verify(self) -> VerifyResult:
        """Replays the schedule by code that knows machine and demand alone; raises
        `Violation` for the first thing wrong."""
        return verify(self.schedule)

    def to_csv(self, path: str | os.PathLike[str] | None = None) -> str:
        """The sends as CSV; also written to `path`, if given."""
        return written(sends_csv(self.schedule), path)

    def to_xml(self, path: str | os.PathLike[str] | None = None) -> str:
        """The schedule as MSCCL XML; also written to `path`, if given. Raises
        `ValueError` for what MSCCL has no word for."""
        return written(msccl_xml(self.schedule), path)


@dataclasses.dataclass(frozen=True, repr=False)
class SizesResult(Result):
    """A collective for several sizes; `summary`: the JSON of each, in order."""

    view: ClassVar[str] = "collectives.collective_sizes"
    summary: list[dict[str, Any]]
    results: list[CollectiveResult]

    @property
    def notes(self) -> list[str]:
        """Remarks for a reader, each once."""
        return list(dict.fromkeys(note for one in self.results for note in one.notes))


# --- as JSON


def collective_json(
    plan: Plan,
    request: Mapping[str, Any],
    energy: CollectiveEnergy,
    baselines: Baselines,
    *,
    sharing: int | None = None,
    listed: bool = False,
    more: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The JSON of `collective --json`, with what a file needs to be verified on its
    own.

    `request`: what was asked for, by key of the JSON: `topology`, `size_bytes` (None
    where a file says the bytes), `chunks`, ... `sharing`: GPUs of a tenant. `listed`:
    the collective's name and size do not say the demand, so it is written out. `more`:
    what else is said; the sends, the longest part, come last.
    """
    schedule, total = plan.schedule, energy.total
    buffer, speed, bus = bandwidths(
        schedule.demand, schedule.topology, plan.finish, request["size_bytes"], sharing
    )
    least = {"epochs": plan.least_epochs, "time": plan.least_time}
    epochs, model = plan.fewest, plan.model
    tau = model.tau if model is not None and epochs is not None else None
    table = {
        "topology": request["topology"],
        "collective": schedule.demand.collective,
        "size_bytes": request["size_bytes"],
        "chunks": request["chunks"],
        "method": plan.method,
        "solver": plan.solver,
        "solver_s": plan.solver_seconds,
        "epoch_s": tau,
        "epochs": epochs,
        "epoch_finish_s": None if tau is None or epochs is None else epochs * tau,
        "epoch_bound": None if epochs is None else plan.epoch_bound,
        "sends_epochs": schedule.epochs,
        "finish_s": plan.finish,
        "lower_bound_s": plan.bound,
        "gap_pct": 100 * plan.gap,
        "certified": plan.certified,
        "certified_in": [name for name, met in least.items() if met],
        "algo_bw_bytes_per_s": speed,
        "bus_bw_bytes_per_s": bus,
        "output_buffer_bytes": buffer,
        "energy_j": None if total is None else total.typical,
        "energy": energy_rows(energy),
        "verified": True,
        "interrupted": plan.interrupted,
        "out_of_time": plan.out_of_time,
        "baselines": _beside(plan, baselines),
        "baselines_unfit": dict(baselines.unfit),
    }
    table |= {k: v for k, v in request.items() if k not in table}
    if listed:
        table["demand"] = demand_json(schedule)
    table["send_count"] = len(schedule.sends)
    return table | dict(more or {}) | {"sends": sends_json(schedule)}


def _beside(plan: Plan, baselines: Baselines) -> dict[str, Any]:
    """JSON of the standard algorithms beside a plan."""
    return {
        name: {
            "finish_s": baseline.finish,
            "slower_pct": 100 * (baseline.finish / plan.finish - 1),
            "variant": baseline.variant,
        }
        for name, baseline in baselines.algorithms.items()
    }


def wait_clock_json(plan: Plan, gpu: GpuSpec) -> dict[str, Any]:
    """The SM clock at which waiting GPUs draw least, and what that saves once the
    change of clocks has acted."""
    latency = switch_latency(plan.schedule.topology.gpu or "").latency
    best = schedule_wait_clock(plan.schedule, gpu, latency, finish=plan.finish)
    return {
        "sm_clock_mhz": best.clock / MHz,
        "idle_power_w": best.power,
        "saved_w": best.saved_power,
        "saved_j": best.saved_energy,
        "switch_latency_s": latency,
    }


def bandwidths(
    demand: Demand,
    topology: Topology,
    finish: float,
    size: float | None = None,
    sharing: int | None = None,
) -> tuple[float, float, float | None]:
    """The buffer, B; algorithm bandwidth = buffer / finish; bus bandwidth = that x
    (N - 1) / N (all-reduce: x 2 (N - 1) / N; broadcast and reduce: x 1), None where no
    rule says what share of the buffer moves; B/s.

    `size`: B of the buffer of a GPU (None: the most that one receives); `sharing`: N,
    GPUs that it is divided by (None: those of the machine).
    """
    received = demand.size @ demand.wanted
    buffer = float(np.max(received)) if size is None else size
    gpus = topology.buffer_gpus if sharing is None else sharing
    algorithm = buffer / finish
    share = (gpus - 1) / gpus
    factors = dict.fromkeys(_SHARED, share)
    factors |= {"all_reduce": 2 * share, "broadcast": 1.0, "reduce": 1.0}
    factor = factors.get(demand.collective)
    return buffer, algorithm, None if factor is None else factor * algorithm
