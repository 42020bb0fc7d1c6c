"""How a planned collective reads and looks."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from .._format import UNKNOWN, digits, percent, si
from .._tables.tables import table

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import RenderableType

    from ...collectives import CollectiveResult

_SHOWN: Final = 12
"""Links in a table for people."""


def line(result: "CollectiveResult") -> str:
    """What, when it ends, how far from the bound, and its joules."""
    summary = result.summary
    return (
        f"{title_line(summary)}: {si(result.finish, 's')} (bound "
        f"{si(result.bound, 's')}), {si(summary['energy_j'], 'J')}, verified"
    )


def parts(result: "CollectiveResult") -> list["RenderableType"]:
    """Tables and lines for people."""
    summary = result.summary
    parts: list[RenderableType] = [title_line(summary), *_result(summary)]
    parts.append(_algorithms(summary))
    parts.append(_energy(summary))
    if "front" in summary:
        parts += _front(summary["front"])
    if "links" in summary:
        parts += links_parts(summary["links"])
    return parts


def figure(result: "CollectiveResult") -> "Figure":
    """Links over time, and the finish beside the bound and standard algorithms."""
    from .._charts.plot_collective import collective_figure

    others = {name: x.finish for name, x in result.baselines.found.items()}
    title = title_line(result.summary)
    return collective_figure(result.schedule, result.bound, others, title)


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


def _share(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:+.3f}"


def _cut(row: Mapping[str, Any]) -> str:
    if row["cut_off"] is not None:
        cut = row["cut_off"]
        return f"cuts off {cut['demands']} demands, from {', '.join(cut['from'][:3])}"
    return row["problem"] or ""
