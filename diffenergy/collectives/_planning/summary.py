"""A planned collective as JSON."""

from collections.abc import Mapping
from typing import Any

from ...hardware import GpuSpec
from ...hardware._switching import switch_latency
from ...units import MHz
from .._demand.measures import bandwidths
from .._energy.energy import CollectiveEnergy, energy_rows, schedule_wait_clock
from .._formats.export import demand_json, sends_json
from .._standard.baselines import Baselines
from .search import Plan


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
    schedule, model = plan.schedule, plan.model
    speed = bandwidths(
        schedule.demand, schedule.topology, plan.finish, request["size_bytes"], sharing
    )
    epochs = plan.fewest
    tau = model.tau if model is not None and epochs is not None else None
    total = energy.total
    known = {
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
        "epoch_bound": plan.epoch_bound if epochs is not None else None,
        "sends_epochs": schedule.epochs,
        "finish_s": plan.finish,
        "lower_bound_s": plan.bound,
        "gap_pct": 100 * plan.gap,
        "certified": plan.certified,
        "certified_in": _certified_in(plan),
        "algo_bw_bytes_per_s": speed.algorithm,
        "bus_bw_bytes_per_s": speed.bus,
        "output_buffer_bytes": speed.buffer,
        "energy_j": None if total is None else total.typical,
        "energy": energy_rows(energy),
        "verified": True,
        "interrupted": plan.interrupted,
        "baselines": {
            name: {
                "finish_s": found.finish,
                "slower_pct": 100 * (found.finish / plan.finish - 1),
                "variant": found.variant,
            }
            for name, found in baselines.found.items()
        },
        "baselines_unfit": dict(baselines.unfit),
    }
    known |= {k: v for k, v in request.items() if k not in known}
    if listed:
        known["demand"] = demand_json(schedule)
    known["send_count"] = len(schedule.sends)
    return known | dict(more or {}) | {"sends": sends_json(schedule)}


def _certified_in(plan: Plan) -> list[str]:
    """In which measure nothing can be shorter."""
    return [
        name
        for name, met in (("epochs", plan.least_epochs), ("time", plan.least_time))
        if met
    ]


def wait_clock_json(plan: Plan, gpu: GpuSpec) -> dict[str, Any]:
    """The SM clock at which waiting GPUs draw least, and what that saves once the
    change of clocks has acted."""
    latency = switch_latency(plan.schedule.topology.gpu or "").latency
    best = schedule_wait_clock(plan.schedule, gpu, latency, finish=plan.finish)
    return {
        "wait_clock": {
            "sm_clock_mhz": best.clock / MHz,
            "idle_power_w": best.power,
            "saved_w": best.saved_power,
            "saved_j": best.saved_energy,
            "switch_latency_s": best.latency,
        }
    }
