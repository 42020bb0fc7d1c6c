"""What `collective` does: plans, prices and compares, one size after the other."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..units import MHz
from . import parse
from .collective_flags import CollectiveFlags

if TYPE_CHECKING:
    from ..collectives._energy.energy import CollectiveEnergy
    from ..collectives._energy.frontier import Goal
    from ..collectives._machine.topology import Topology
    from ..collectives._planning.plan import Plan, Search, Watch
    from ..collectives._standard.baselines import Baselines
    from ..hardware._spec import GpuSpec


@dataclasses.dataclass(frozen=True)
class Answer:
    """A plan and all that is said about it."""

    plan: "Plan"
    energy: "CollectiveEnergy"
    baselines: "Baselines"
    summary: dict[str, Any]


def answers(
    flags: CollectiveFlags,
    watch: "Watch",
) -> list[Answer]:
    """One for each size. Ctrl-C ends the list with the best so far of the last.

    Raises `ValueError` for what cannot be read, `OutOfReach` for a horizon that is too
    short.
    """
    from ..collectives._energy.frontier import read_objective

    objective = read_objective(flags.objective or "time")
    search = flags.search()
    sizes = flags.sizes()
    topology = flags.machine()
    demands = [flags.wanted(topology, size) for size in sizes]
    from ..collectives._planning.plan import find_schedule

    gpu = _gpu(topology)
    if gpu is None and objective != "time":
        raise ValueError(
            f"`--objective` is '{flags.objective}', which needs the power of the "
            f"GPUs, but `{topology.name}` names none; give --gpu."
        )
    found: list[Answer] = []
    for size, demand in zip(sizes, demands, strict=True):
        plan = find_schedule(topology, demand, search, watch)
        plan, extra = _thrifty(plan, objective, gpu, search, watch)
        request = _request(flags, topology, size)
        found.append(_answer(flags, request, plan, extra, gpu, watch))
        if plan.interrupted:
            break
    return found


def _gpu(topology: "Topology") -> "GpuSpec | None":
    """The GPU whose memory and idle power count."""
    if topology.gpu is None:
        return None
    from .engine import start

    start(keep_compilations=True)
    from ..hardware import load_gpu

    return load_gpu(topology.gpu)


def _thrifty(
    plan: "Plan",
    objective: "Goal | float",
    gpu: "GpuSpec | None",
    search: "Search",
    watch: "Watch",
) -> tuple["Plan", dict[str, Any]]:
    """The plan that the objective prefers, and the front that it was chosen from."""
    from ..collectives._energy.thrift import chosen, front_rows, leaner

    if plan.interrupted:
        return plan, {}
    if objective == "time" or gpu is None:
        from ..collectives._energy.energy import byte_prices
        from ..collectives._energy.idle import memory_price

        memory = None if gpu is None else memory_price(gpu)
        prices = byte_prices(plan.schedule.topology, memory)
        return leaner(plan, prices), {}
    stage = "finish against energy"
    watch(stage, None)
    plan, front = chosen(
        plan,
        gpu,
        objective,
        search.time_limit,
        search.seed,
        lambda progress: watch(stage, progress),
    )
    return plan, {"front": front_rows(front)}


def _answer(
    flags: CollectiveFlags,
    request: dict[str, Any],
    plan: "Plan",
    extra: dict[str, Any],
    gpu: "GpuSpec | None",
    watch: "Watch",
) -> Answer:
    from ..collectives._energy.energy import schedule_energy
    from ..collectives._formats.export import sends_json
    from ..collectives._standard.baselines import baselines
    from ..report._tables.collectives import collective_json

    schedule = plan.schedule
    energy = schedule_energy(schedule, gpu, finish=plan.finish)
    others = plan.standard or baselines(schedule.topology, schedule.demand)
    sharing = {len(group) for group in flags.groups() or ()}
    summary = collective_json(
        plan,
        request,
        energy,
        others,
        sharing=sharing.pop() if len(sharing) == 1 else None,
        listed=any((flags.matrix, flags.demand, flags.tenants)),
    )
    if gpu is not None:
        summary["wait_clock"] = _wait_clock(plan, gpu)
    summary |= extra
    if flags.links:
        summary["links"] = _links(plan, watch)
    if not flags.no_sends:  # the longest part comes last
        summary["sends"] = sends_json(schedule)
    return Answer(plan, energy, others, summary)


def _request(
    flags: CollectiveFlags, topology: "Topology", size: str | None
) -> dict[str, Any]:
    """What was asked for, by key of the JSON."""
    from ..collectives._demand.demands import parse_size

    chunks = parse.whole("--chunks", flags.chunks)
    is_file = Path(flags.topology).is_file() and flags.topology != topology.name
    return {
        "topology": flags.topology if is_file else topology.name,
        "size_bytes": None if size is None else parse_size(size),
        "chunks": chunks or (1 if flags.demand is None else None),
        "root": flags.root,
        "latency_s": flags.seconds(),
        "disable": list(flags.disable),
        "scale": list(flags.scale),
        "gpu": topology.gpu,
        "seed": int(flags.seed or 0),
    }


def _wait_clock(plan: "Plan", gpu: "GpuSpec") -> dict[str, float]:
    """The SM clock at which waiting GPUs draw least, and what that saves once the
    change of clocks has acted."""
    from ..collectives._energy.energy import schedule_wait_clock
    from ..hardware._switching import switch_latency

    latency = switch_latency(plan.schedule.topology.gpu or "").latency
    best = schedule_wait_clock(plan.schedule, gpu, latency, finish=plan.finish)
    return {
        "sm_clock_mhz": best.clock / MHz,
        "idle_power_w": best.power,
        "saved_w": best.saved_power,
        "saved_j": best.saved_energy,
        "switch_latency_s": best.latency,
    }


def _links(plan: "Plan", watch: "Watch") -> dict[str, Any]:
    """What rates, latencies and failures of links do to the finish."""
    from .engine import start

    start()
    from ..collectives._bounds.shadow_prices import price_rows, rate_prices
    from ..collectives._what_if.criticality import (
        criticality,
        criticality_rows,
        gathered,
    )
    from ..collectives._what_if.sensitivity import sensitivities, sensitivity_rows

    schedule = plan.schedule
    topology, demand = schedule.topology, schedule.demand

    def tell(done: int, total: int):
        watch(f"failing links: {done} of {total}", None)

    changes, whole = gathered(criticality(topology, demand, progress=tell))
    return {
        "sensitivity": sensitivity_rows(sensitivities(schedule)),
        "media": sensitivity_rows(sensitivities(schedule, "medium")),
        "prices": price_rows(rate_prices(demand, topology), topology),
        "criticality": criticality_rows(changes),
        "complete": whole,
    }
