"""View of a planned collective."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from ..._blocks import Block, Table
from ..._format import Entries, Entry, digits, si

if TYPE_CHECKING:
    from ....charts import Chart
    from ....collectives import CollectiveResult

_SHOWN: Final = 12
"""Maximum number of links in a printed table."""


def line(result: "CollectiveResult") -> str:
    """Return a line with the collective, finish (s), bound (s) and energy (J)."""
    summary = result.summary
    return (
        f"{title_line(summary)}: {si(result.finish, 's')} (bound "
        f"{si(result.bound, 's')}), {si(summary['energy_j'], 'J')}, verified"
    )


def blocks(result: "CollectiveResult") -> Iterator[Block]:
    """Yield the schedule, standard algorithms and energy; front and links if
    requested."""
    summary = result.summary
    yield title_line(summary)
    yield from _result(summary)
    yield _algorithms(summary)
    yield _energy(summary)
    if "front" in summary:
        yield from _front(summary["front"])
    if "links" in summary:
        yield from _links(summary["links"])


def charts(result: "CollectiveResult") -> "dict[str, Chart]":
    """Return charts of links over time, and of the finish beside bound and
    algorithms."""
    from ..._charts.collective import collective_charts

    others = {name: x.finish for name, x in result.baselines.algorithms.items()}
    title = title_line(result.summary)
    return collective_charts(result.schedule, result.bound, others, title)


def title_line(summary: Entry) -> str:
    """Return a line with the collective, topology and size."""
    size = si(summary["output_buffer_bytes"], "B")
    chunks = summary["chunks"]
    many = f", {chunks} chunks a GPU" if chunks and chunks > 1 else ""
    return f"{summary['collective']} on {summary['topology']}, {size} a GPU{many}"


def _result(summary: Entry) -> list[str]:
    """Lines on finish, bound, epochs, bandwidth and method."""
    where = {
        "time": "no schedule is shorter",
        "epochs": "no schedule takes fewer epochs",
    }
    met = ", ".join(where[name] for name in summary["certified_in"])
    finish, bound = (si(summary[key], "s") for key in ("finish_s", "lower_bound_s"))
    gap = f"{summary['gap_pct']:.2f} % above" + (f": {met}" if met else "")
    lines = [f"finish {finish}; bound {bound} ({gap})"]
    if summary["epochs"] is not None:
        lines.append(
            f"planned in {summary['epochs']} epochs, time slots of "
            f"{si(summary['epoch_s'], 's')} without latencies; at least "
            f"{summary['epoch_bound']}{_other(summary)}"
        )
    lines.append(
        f"bandwidth {si(summary['algo_bw_bytes_per_s'], 'B/s')} "
        f"(bus {si(summary['bus_bw_bytes_per_s'], 'B/s')})"
    )
    solver = f" with {summary['solver']}" if summary["solver"] else ""
    lines.append(
        f"method {summary['method']}{solver}, {digits(summary['solver_s'], 3)} s in "
        f"solvers; {summary['send_count']} sends, verified"
    )
    return lines


def _other(summary: Entry) -> str:
    """Remark if the fewest epochs belong to another schedule."""
    mine = summary["sends_epochs"]
    if mine == summary["epochs"]:
        return ""
    takes = "are not counted" if mine is None else f"take {mine}"
    return f" (of another schedule; the sends of this one {takes})"


def _algorithms(summary: Entry) -> Table:
    """Table of the finish of this schedule and of the standard algorithms."""
    above = "{:+.1f} %".format
    rows = [("this schedule", summary["finish_s"], "", "")]
    rows += [
        (name, row["finish_s"], above(row["slower_pct"]), row["variant"])
        for name, row in summary["baselines"].items()
    ]
    rows += [(name, None, "", why) for name, why in summary["baselines_unfit"].items()]
    columns = ("algorithm", ("finish", 1, "s"), "slower by", "")
    return Table(columns, rows, fold=("",))


def _energy(summary: Entry) -> Table:
    """Table of energy (J) by consumer, and what a lower clock of waiting GPUs saves."""
    energy, best = summary["energy"], summary.get("wait_clock")
    idle, total = energy["idle_j"], energy["total_j"]
    each = "" if idle is None else f"{si(energy['idle_power_w'], 'W')} each"
    parts = {f"links: {medium}": part for medium, part in energy["links_j"].items()}
    rows = [(name, part["typical"], _bracket(part)) for name, part in parts.items()]
    rows += [
        ("memory (DRAM)", energy["dram_j"], ""),
        ("memory (L2 and on-chip path)", energy["l2_j"], ""),
        (f"{energy['gpus']} waiting GPUs", idle, each),
        ("total", None, energy["covers"])
        if total is None
        else ("total", total["typical"], _bracket(total)),
    ]
    if best is not None:
        name = f"saved if GPUs wait at {best['sm_clock_mhz']:.0f} MHz"
        rows.append((name, best["saved_j"], f"{si(best['saved_w'], 'W')} in all"))
    return Table(("energy", ("best guess", 1, "J"), ""), rows, fold=("",))


def _bracket(part: Entry) -> str:
    return f"{si(part['low'], 'J')} to {si(part['high'], 'J')}"


def _front(front: Entries) -> list[Block]:
    if len(front) == 1:
        return ["the fastest schedule also takes the least energy"]
    columns = (
        ("finish", "finish_s", "s"),
        ("links and memory", "moved_j", "J"),
        ("with idle", "energy_j", "J"),
    )
    return [Table(columns, front, left=0)]


def _links(links: Entry) -> list[Block]:
    """Tables of sensitivity to links' rates and latencies and of failures, most
    critical first."""
    slopes = (
        ("if faster", "rate_sensitivity_if_faster", "{:+.3f}"),
        ("if slower", "rate_sensitivity_if_slower", "{:+.3f}"),
        ("us per us", "latency_sensitivity_s_per_us", lambda x: digits(x * 1e6, 3)),
    )
    media = (("all links of", "medium"), ("links", "links"), *slopes)
    single = (
        ("link", lambda row: " -> ".join(row["link"])),
        ("rate", "rate_bytes_per_s", "B/s"),
        ("one way", "rate_sensitivity", "{:+.3f}"),
        *slopes,
    )
    failures = (
        ("if it fails", lambda row: " - ".join(row["link"])),
        ("finish", "finish_s", "s"),
        ("slower by", "slowdown_pct", "{:.1f} %"),
        ("", _cut),
    )
    return [
        "finish, % per % of rate, and us per us of latency:",
        Table(media, links["media"]),
        Table(single, links["sensitivity"], most=_SHOWN),
        Table(failures, links["criticality"], most=_SHOWN, fold=("",)),
    ]


def _cut(row: Entry) -> str:
    if cut := row["cut_off"]:
        return f"cuts off {cut['demands']} demands, from {', '.join(cut['from'][:3])}"
    return row["problem"] or ""
