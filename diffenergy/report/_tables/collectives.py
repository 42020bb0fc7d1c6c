"""A planned collective as JSON and as tables for people."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from ...collectives._demand.measures import bandwidths
from ...collectives._energy.energy import CollectiveEnergy, energy_rows
from ...collectives._formats.export import demand_json
from ...collectives._formats.verify_file import Checked
from ...collectives._planning.plan import Plan
from ...collectives._standard.baselines import Baselines
from .._format import UNKNOWN, digits, percent, si
from .tables import table

if TYPE_CHECKING:
    from rich.console import RenderableType

_SHOWN: Final = 12
"""Links in a table for people."""


def collective_json(
    plan: Plan,
    request: Mapping[str, Any],
    energy: CollectiveEnergy,
    baselines: Baselines,
    *,
    sharing: int | None = None,
    listed: bool = False,
) -> dict[str, Any]:
    """The keys that `collective --json` fixes but `sends`, and what a file needs to be
    verified on its own.

    `request`: what was asked for, by key of the JSON: `topology`, `size_bytes` (None
    where a file says the bytes), `chunks`, ... `sharing`: GPUs of a tenant. `listed`:
    the collective's name and size do not say the demand, so it is written out.
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
    return known


def _certified_in(plan: Plan) -> list[str]:
    """In which measure nothing can be shorter."""
    return [
        name
        for name, met in (("epochs", plan.least_epochs), ("time", plan.least_time))
        if met
    ]


def collective_parts(summary: Mapping[str, Any]) -> list["RenderableType"]:
    """Tables and lines for people."""
    parts: list[RenderableType] = [title_line(summary), *_result(summary)]
    parts.append(_algorithms(summary))
    parts.append(_energy(summary))
    if "front" in summary:
        parts += _front(summary["front"])
    if "links" in summary:
        parts += links_parts(summary["links"])
    return parts


def title_line(summary: Mapping[str, Any]) -> str:
    """What was planned."""
    size = si(summary["output_buffer_bytes"], "B")
    chunks = summary["chunks"]
    many = f", {chunks} chunks a GPU" if chunks and chunks > 1 else ""
    return f"{summary['collective']} on {summary['topology']}, {size} a GPU{many}"


def _result(summary: Mapping[str, Any]) -> list[str]:
    """Finish, bound and bandwidth, a line each."""
    bus = summary["bus_bw_bytes_per_s"]
    gap = f"{summary['gap_pct']:.2f} % above"
    where = {
        "time": "no schedule is shorter",
        "epochs": "no schedule takes fewer epochs",
    }
    met = [where[name] for name in summary["certified_in"]]
    lines = [
        f"finish {si(summary['finish_s'], 's')}; bound "
        f"{si(summary['lower_bound_s'], 's')} ({gap}"
        f"{': ' if met else ''}{', '.join(met)})",
    ]
    if summary["epochs"] is not None:
        lines.append(
            f"{summary['epochs']} epochs of {si(summary['epoch_s'], 's')} = "
            f"{si(summary['epoch_finish_s'], 's')}; at least {summary['epoch_bound']}"
            f"{_other(summary)}"
        )
    lines.append(
        f"bandwidth {si(summary['algo_bw_bytes_per_s'], 'B/s')} (bus "
        f"{si(bus, 'B/s') if bus is not None else UNKNOWN})"
    )
    solver = f" with {summary['solver']}" if summary["solver"] else ""
    lines.append(
        f"method {summary['method']}{solver}, {digits(summary['solver_s'], 3)} s in "
        f"solvers; {summary['send_count']} sends, verified"
    )
    return lines


def _other(summary: Mapping[str, Any]) -> str:
    """Whether the fewest epochs are those of another schedule."""
    mine = summary["sends_epochs"]
    if mine == summary["epochs"]:
        return ""
    takes = "are not counted" if mine is None else f"take {mine}"
    return f" (of another schedule; the sends of this one {takes})"


def _algorithms(summary: Mapping[str, Any]) -> "RenderableType":
    rows = [("this schedule", si(summary["finish_s"], "s"), "", "")]
    rows += [
        (name, si(row["finish_s"], "s"), f"{row['slower_pct']:+.1f} %", row["variant"])
        for name, row in summary["baselines"].items()
    ]
    rows += [(name, UNKNOWN, "", why) for name, why in _unfit(summary)]
    return table(("algorithm", "finish", "slower by", ""), rows, fold=("",))


def _unfit(summary: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    return summary["baselines_unfit"].items()


def _energy(summary: Mapping[str, Any]) -> "RenderableType":
    energy = summary["energy"]
    rows = [
        (f"links: {medium}", si(part["typical"], "J"), _bracket(part))
        for medium, part in energy["links_j"].items()
    ]
    rows.append(("memory (DRAM)", si(energy["dram_j"], "J"), ""))
    rows.append(("memory (L2 and on-chip path)", si(energy["l2_j"], "J"), ""))
    power = si(energy["idle_power_w"], "W")
    rows.append((f"{energy['gpus']} waiting GPUs", si(energy["idle_j"], "J"),
                 "" if energy["idle_j"] is None else f"{power} each"))  # fmt: skip
    total = energy["total_j"]
    if total is None:
        rows.append(("total", UNKNOWN, energy["covers"]))
    else:
        rows.append(("total", si(total["typical"], "J"), _bracket(total)))
    best = summary.get("wait_clock")
    if best is not None:
        rows.append(
            (
                f"saved if GPUs wait at {best['sm_clock_mhz']:.0f} MHz",
                si(best["saved_j"], "J"),
                f"{si(best['saved_w'], 'W')} in all",
            )
        )
    return table(("energy", "best guess", ""), rows, fold=("",))


def _bracket(part: Mapping[str, Any]) -> str:
    return f"{si(part['low'], 'J')} to {si(part['high'], 'J')}"


def _front(front: Sequence[Mapping[str, Any]]) -> list["RenderableType"]:
    if len(front) == 1:
        return ["the fastest schedule also takes the least energy"]
    rows = [
        (si(p["finish_s"], "s"), si(p["moved_j"], "J"), si(p["energy_j"], "J"))
        for p in front
    ]
    return [table(("finish", "links and memory", "with idle"), rows, left=0)]


def links_parts(links: Mapping[str, Any]) -> list["RenderableType"]:
    """What rates, latencies and failures of links do, most critical first."""
    parts: list[RenderableType] = []
    rows = [
        (
            row["medium"],
            str(row["links"]),
            _share(row["rate_sensitivity_if_faster"]),
            _share(row["rate_sensitivity_if_slower"]),
            digits(row["latency_sensitivity_s_per_us"] * 1e6, 3),
        )
        for row in links["media"]
    ]
    columns = ("all links of", "links", "if faster", "if slower", "us per us")
    parts.append("finish, % per % of rate, and us per us of latency:")
    parts.append(table(columns, rows))
    rows = [
        (
            " -> ".join(row["link"]),
            si(row["rate_bytes_per_s"], "B/s"),
            _share(row["rate_sensitivity"]),
            _share(row["rate_sensitivity_if_faster"]),
            _share(row["rate_sensitivity_if_slower"]),
            digits(row["latency_sensitivity_s_per_us"] * 1e6, 3),
        )
        for row in links["sensitivity"][:_SHOWN]
    ]
    columns = ("link", "rate", "one way", "if faster", "if slower", "us per us")
    parts.append(table(columns, rows))
    binding = ", ".join(" -> ".join(row["link"]) for row in links["prices"][:_SHOWN])
    parts.append(f"links that the bound rests on: {binding or 'none'}")
    rows = [
        (
            " - ".join(row["link"]),
            si(row["finish_s"], "s"),
            UNKNOWN
            if row["slowdown_pct"] is None
            else percent(row["slowdown_pct"] / 100),
            _cut(row),
        )
        for row in links["criticality"][:_SHOWN]
    ]
    parts.append(table(("if it fails", "finish", "slower by", ""), rows, fold=("",)))
    return parts


def sizes_parts(summaries: Sequence[Mapping[str, Any]]) -> list["RenderableType"]:
    """One line for each size."""
    first = summaries[0]
    rows = [
        (
            si(s["output_buffer_bytes"], "B"),
            si(s["finish_s"], "s"),
            f"{s['gap_pct']:.2f} %",
            si(s["algo_bw_bytes_per_s"], "B/s"),
            si(s["energy_j"], "J"),
            *_best(s),
        )
        for s in summaries
    ]
    columns = ("size", "finish", "gap", "bandwidth", "energy", "best standard", "")
    return [
        f"{first['collective']} on {first['topology']}: finish, how far it is above "
        "the bound, and the best standard algorithm's",
        table(columns, rows, left=0),
    ]


def _best(summary: Mapping[str, Any]) -> tuple[str, str]:
    """Finish and name of the fastest standard algorithm."""
    known = summary["baselines"].items()
    name, found = min(
        known, key=lambda item: item[1]["finish_s"], default=(UNKNOWN, None)
    )
    return si(None if found is None else found["finish_s"], "s"), name


def bandwidth_lines(summaries: Sequence[Mapping[str, Any]]) -> dict[str, list[float]]:
    """Algorithm bandwidth by size, B/s: ours, the bound and the algorithms; NaN where
    one has no schedule."""
    names = dict.fromkeys(name for s in summaries for name in s["baselines"])
    buffers = [s["output_buffer_bytes"] for s in summaries]
    finish = {
        "this schedule": [s["finish_s"] for s in summaries],
        "bound": [s["lower_bound_s"] for s in summaries],
    }
    for name in names:
        finish[name] = [
            s["baselines"].get(name, {}).get("finish_s", math.nan) for s in summaries
        ]
    return {
        name: [size / t for size, t in zip(buffers, times, strict=True)]
        for name, times in finish.items()
    }


def verified_json(path: str, checked: Checked) -> dict[str, Any]:
    """What `collective verify` found."""
    schedule, published = checked.schedule, checked.format == "te-ccl"
    return {
        "file": path,
        "format": checked.format,
        "verified": True,
        "topology": schedule.topology.name,
        "collective": schedule.demand.collective,
        "send_count": checked.verified.sends,
        "epoch_s": schedule.epoch if published else None,
        "epochs": schedule.epochs if published else None,
        "finish_s": checked.verified.finish,
        "earliest_finish_s": checked.earliest,
    }


def verified_parts(summary: Mapping[str, Any]) -> list["RenderableType"]:
    """The same for people."""
    epochs = summary["epochs"]
    known = "" if epochs is None else f"; {epochs} epochs"
    return [
        f"right: {summary['collective']} on {summary['topology']} "
        f"({summary['format']}), {summary['send_count']} sends{known}",
        f"finish {si(summary['finish_s'], 's')}; "
        f"{si(summary['earliest_finish_s'], 's')} if every send starts as early as "
        "its order allows",
    ]


def _share(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:+.3f}"


def _cut(row: Mapping[str, Any]) -> str:
    if row["cut_off"] is not None:
        cut = row["cut_off"]
        return f"cuts off {cut['demands']} demands, from {', '.join(cut['from'][:3])}"
    return row["problem"] or ""
