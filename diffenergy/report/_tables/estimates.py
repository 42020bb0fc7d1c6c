"""Tables of `estimate`, from the summary that `--json` prints."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from ...workload import kernel_name
from .._format import UNKNOWN, digits, percent, plain, si
from .tables import table

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

Summary = Mapping[str, Any]
BOARD_ONLY: Final = "GPU board only: no host, no cooling."
_TOP_KERNELS: Final = 8
_UNITS: Final = {
    "sm_clock_mhz": "MHz",
    "mem_clock_mhz": "MHz",
    "power_limit_w": "W",
}


def estimate_parts(
    summary: Summary, kernels: Sequence[Mapping[str, Any]] | None, detail: bool = False
) -> list["RenderableType"]:
    """What `estimate` prints: assumptions, phases, tokens, energy, kernels.

    `kernels` are those of `kernel_entries`; all of them with `detail`, else those that
    take most time.
    """
    if "points" in summary:
        return sweep_parts(summary)
    parts: list[RenderableType] = [assumed_line(summary), title_line(summary)]
    parts += [phase_table(summary), *token_lines(summary), energy_table(summary)]
    if kernels:
        parts.append(kernel_table(summary, kernels, None if detail else _TOP_KERNELS))
    return [*parts, host_line(summary), grade_line(summary), BOARD_ONLY]


def sweep_parts(summary: Summary) -> list["RenderableType"]:
    """What `estimate` prints for lists of clocks or power limits."""
    return [
        assumed_line(summary),
        title_line(summary),
        point_table(summary),
        f"best for energy: row {_row(summary['best_energy'])}; "
        f"for energy-delay product: row {_row(summary['best_edp'])}",
        grade_line(summary),
        BOARD_ONLY,
    ]


def assumed_line(summary: Summary) -> str:
    """Every value that was taken because no flag gave it."""
    taken = [
        f"{key.removesuffix('_mhz').removesuffix('_w').replace('_', '-')} "
        + (f"{plain(value)} {_UNITS[key]}" if key in _UNITS else str(value))
        for key, value in summary["assumed"].items()
    ]
    return f"assumed: {'; '.join(taken) or 'nothing'}"


def title_line(summary: Summary) -> str:
    """What was estimated, in one line."""
    words = [
        f"batch {summary['batch']}" if summary["batch"] else None,
        f"{summary['input_len']} in" if summary["input_len"] else None,
        f"{summary['output_len']} out" if summary["output_len"] else None,
        _accumulation(summary),
        "checkpointing" if summary.get("checkpointing") else None,
        summary["dtype"],
    ]
    what = ", ".join(filter(None, [summary["phase"], *words]))
    return f"{summary['model']} on {summary['gpu']}: {what}"


def _accumulation(summary: Summary) -> str | None:
    """Micro-batches of a training step, where there are several."""
    times = summary.get("accumulation") or 1
    return f"{plain(times)} micro-batches" if times > 1 else None


def phase_table(summary: Summary) -> "Table":
    """Time, power, energy and clock of each phase and of all of them."""
    phases = summary["phases"]
    total = summary if len(phases) > 1 else None
    rows = [_phase_row(name, phase) for name, phase in phases.items()]
    if total is not None:
        rows.append(_phase_row("total", total))
    return table(
        ["phase", "time", "power", "energy", "SM clock", "limited by"],
        rows,
        fold=["limited by"],
    )


def token_lines(summary: Summary) -> list[str]:
    """Latencies and rates per token, of a generation or a training step only."""
    if summary.get("tokens_per_s") is None:
        return []
    latencies = ""
    if summary["ttft_s"] is not None:
        ttft, tpot = si(summary["ttft_s"], "s"), si(summary["tpot_s"], "s")
        latencies = f"TTFT {ttft}, TPOT {tpot}, "
    return [
        f"{latencies}{digits(summary['tokens_per_s'])} tokens/s, "
        f"{si(summary['energy_j_per_token'], 'J')} per token"
    ]


def energy_table(summary: Summary) -> "Table":
    """Energy by unit, largest first; units that take none are left out."""
    total = summary["energy_j"]
    parts = sorted(summary["energy_j_by_unit"].items(), key=lambda item: -item[1])
    return table(
        ["energy by unit", "energy", "share"],
        [
            [name.replace("_", " "), si(energy, "J"), percent(energy / total)]
            for name, energy in parts
            if energy
        ],
    )


def kernel_table(
    summary: Summary, kernels: Sequence[Mapping[str, Any]], most: int | None
) -> "Table":
    """Kernels by their share of the GPU's time (`most` None: all, in listed order)."""
    several = len(summary["phases"]) > 1
    busy = sum(phase["gpu_time_s"] for phase in summary["phases"].values())
    live = [kernel for kernel in kernels if kernel["time_s"] is not None]
    shown = live
    if most is not None:
        shown = sorted(live, key=lambda x: -x["count"] * x["time_s"])[:most]
    rest = len(live) - len(shown)
    rows = [
        [
            kernel_name(kernel),
            *([kernel["phase"]] if several else []),
            plain(kernel["count"]),
            si(kernel["time_s"], "s"),
            percent(kernel["count"] * kernel["time_s"] / busy),
            f"{kernel['limited_by']}{_use(kernel)}",
        ]
        for kernel in shown
    ]
    name = f"kernel (and {rest} more)" if rest else "kernel"
    columns = [name, *(["phase"] if several else []), "count", "time", "share", "limit"]
    return table(columns, rows, left=len(columns) - 4, fold=[name, "limit"])


def host_line(summary: Summary) -> str:
    """Share of the time in which no kernel runs because the host is not ready."""
    phases = summary["phases"].values()
    waiting = sum(phase["time_s"] - phase["gpu_time_s"] for phase in phases)
    share = max(0.0, waiting / summary["time_s"])
    return f"host-bound: {percent(share)} of the time the GPU waits for the host"


def grade_line(summary: Summary) -> str:
    """How far the figures can be trusted."""
    time, energy = (summary.get(f"{name}_p5_p95") for name in ("time_s", "energy_j"))
    if time is None or energy is None:  # settings in a table have their own
        return f"grade: {summary['grade']}"
    return (
        f"grade: {summary['grade']} (5 to 95 %: "
        f"time {si(time[0], 's')} to {si(time[1], 's')}, "
        f"energy {si(energy[0], 'J')} to {si(energy[1], 'J')})"
    )


def point_table(summary: Summary) -> "Table":
    """One row a setting; the best are marked."""
    points = summary["points"]
    several = len({point["mem_clock_mhz"] for point in points}) > 1
    rows = [
        [
            str(number),
            plain(point["sm_clock_set_mhz"]),
            *([plain(point["mem_clock_mhz"])] if several else []),
            plain(point["power_limit_w"]),
            *_point_cells(point),
            _mark(summary, number),
        ]
        for number, point in enumerate(points)
    ]
    columns = ["row", "SM MHz", *(["mem MHz"] if several else []), "limit W"]
    columns += ["time", "power", "energy", "held MHz", "best"]
    return table(columns, rows)


def _mark(summary: Summary, number: int) -> str:
    """What the row is best for."""
    best = [word for word in ("energy", "edp") if summary[f"best_{word}"] == number]
    return "both" if len(best) == 2 else "".join(best)


def _point_cells(point: Mapping[str, Any]) -> list[str]:
    if not point["feasible"]:
        return [UNKNOWN, f">={point['least_power_w']:.0f} W", UNKNOWN, UNKNOWN]
    return [
        si(point["time_s"], "s"),
        f"{point['avg_power_w']:.0f} W",
        si(point["energy_j"], "J"),
        f"{point['sm_clock_mhz']:.0f}",
    ]


def _phase_row(name: str, phase: Mapping[str, Any]) -> list[str]:
    return [
        name,
        si(phase["time_s"], "s"),
        f"{phase['avg_power_w']:.1f} W",
        si(phase["energy_j"], "J"),
        f"{phase['sm_clock_mhz']:.0f} MHz",
        phase["limited_by"],
    ]


def _use(kernel: Mapping[str, Any]) -> str:
    """Utilization of the limiting unit, where a unit limits."""
    use = kernel["utilization"].get(kernel["limited_by"])
    return "" if use is None else f" {percent(use, 0)}"


def _row(index: int | None) -> str:
    return UNKNOWN if index is None else str(index)
