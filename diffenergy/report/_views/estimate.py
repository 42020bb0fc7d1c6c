"""View of an estimate."""

from typing import TYPE_CHECKING, Final

from ...estimator import is_training_step
from ...units import hour, kWh
from .._blocks import Block, Table, Tile, Tiles
from .._format import UNKNOWN, Entries, Entry, digits, percent, plain, si
from .._tables.effects import effect_table
from .._tables.kernels import MOST, kernel_table
from .._tables.lines import (
    frame,
    grade_words,
    has_node,
    memory_lines,
    modelled,
    power_lines,
    title_line,
    wall_lines,
)
from .._tables.steps import step_blocks, step_kernels
from .._traces.steps import require_timeline

if TYPE_CHECKING:
    from ...charts import Chart
    from ...estimator import EstimateResult

_LARGE: Final = (
    ("Energy", "energy_j", "J"),
    ("Time", "time_s", "s"),
    ("Mean power", "avg_power_w", "W"),
)
_SMALL: Final = (
    ("Energy per token", "energy_j_per_token", "J"),
    ("Tokens per second", "tokens_per_s", digits),
    ("Time to first token", "ttft_s", "s"),
    ("Time per output token", "tpot_s", "s"),
)


def scope(result: "EstimateResult") -> str:
    """Return what the power on the page includes."""
    return modelled(result.summary)


def line(result: "EstimateResult") -> str:
    """Return a line with the workload, time, energy and power."""
    summary = result.summary
    if "points" in summary:
        return f"{title_line(summary)}: {len(summary['points'])} points"
    low, high = summary["energy_j_p5_p95"]
    return (
        f"{title_line(summary)}: {si(summary['time_s'], 's')}, "
        f"{si(summary['energy_j'], 'J')} ({si(low, 'J')} to {si(high, 'J')}), "
        f"{si(summary['avg_power_w'], 'W')}, {grade_words(summary)}"
    )


def blocks(result: "EstimateResult") -> list[Block]:
    """Return assumptions, phases, tokens, energy by unit and kernels."""
    return estimate_blocks(result.summary, result.kernels, result.detail)


def charts(result: "EstimateResult") -> "dict[str, Chart]":
    """Return charts of one estimate's energy and kernels, or curves over several
    points."""
    from .._charts import estimate, steps
    from .._charts.power import power_charts

    summary = result.summary
    if result.kernels is None:
        return {"points": estimate.settings_chart(summary)}
    power = power_charts(summary, result.curves)
    if result.step is None:
        return {"estimate": estimate.estimate_chart(summary, result.kernels), **power}
    timeline = require_timeline(result.step.timeline)
    return {
        "step": steps.step_chart(summary, timeline),
        **steps.step_charts(summary, timeline),
        **power,
    }


def estimate_blocks(
    summary: Entry, kernels: Entries | None, detail: bool = False
) -> list[Block]:
    """Return phases, tokens, energy by unit and kernels of one setting; a table with a
    row for each of several.

    `kernels` are those of `kernel_entries`; all of them with `detail`, else those that
    take most time.
    """
    if "points" in summary:
        energy, edp = (UNKNOWN if i is None else i for i in _best(summary).values())
        best = f"best for energy: row {energy}; for energy-delay product: row {edp}"
        return frame(summary, [_points(summary), *memory_lines(summary), best])
    run = [*_run_lines(summary), *memory_lines(summary)]
    if is_training_step(summary):
        parts = [*step_blocks(summary), *run, _energy(summary)]
        parts += step_kernels(summary, kernels or [], detail)
    else:
        lines = [*_token_lines(summary), *run, *_plan_lines(summary)]
        parts = [phase_table(summary), *lines, _energy(summary)]
        if kernels:
            phases, most = summary["phases"].values(), None if detail else MOST
            busy = sum(phase["gpu_time_s"] for phase in phases)
            parts.append(kernel_table(kernels, busy, len(phases) > 1, most))
    if "sensitivity" in summary:
        parts.append(effect_table(summary["sensitivity"]))
    wall = [*wall_lines(summary), *power_lines(summary)]
    return frame(summary, [*totals(summary), *parts, *wall, host_line(summary)])


def totals(summary: Entry) -> list[Tiles]:
    """Return tiles of totals with their intervals, and of figures per token."""
    large = [
        Tile(name, summary[key], unit, summary.get(f"{key}_p5_p95"))
        for name, key, unit in _LARGE
    ]
    small = [Tile(name, summary.get(key), how) for name, key, how in _SMALL]
    return [Tiles(large), Tiles(small, small=True)]


def _run_lines(summary: Entry) -> list[str]:
    """Lines on a whole training run, if requested; with a node what EU AI Act, Annex
    XI, asks of a training, and the SCI."""
    run = summary.get("run")
    if not run:
        return []
    low, high = (x / kWh for x in run["energy_j_p5_p95"])
    lines = [
        f"run of {plain(run['tokens'])} tokens: {digits(run['steps'])} steps, "
        f"{digits(run['time_s'] / hour)} h, {digits(run['gpu_hours'])} GPU-hours, "
        f"{digits(run['energy_kwh'])} kWh ({digits(low)} to {digits(high)} kWh)"
    ]
    if run["goodput"] < 1:
        redone = f", {digits(run['lost_s'] / hour)} h of work done again"
        lines[0] += (
            f"; goodput {percent(run['goodput'])}: {digits(run['waiting_s'] / hour)} h "
            f"wait for checkpoints and restarts{redone if run['lost_s'] else ''}"
        )
    if "site_energy_kwh" not in run:
        return lines
    parts, grade = run["wall_energy_j_by_part"], run["grade"]
    shares = ", ".join(f"{x} {digits(y / kWh)}" for x, y in parts.items() if y)
    low, high = run["site_energy_kwh_p5_p95"]
    compute = "" if run["flop"] is None else f", {digits(run['flop'])} FLOP"
    lines.append(
        f"training at the site: {digits(run['site_energy_kwh'])} kWh "
        f"({digits(low)} to {digits(high)} kWh, estimated, {grade}: {shares}){compute}"
    )
    if run["carbon_g"] is not None:
        sci = run["sci_g"]
        lines[-1] += f", {si(run['carbon_g'], 'g')} CO2, SCI " + (
            "unknown without `embodied_kg` of the node"
            if sci is None
            else f"{si(sci, 'g')} CO2e"
        )
    return lines


def _plan_lines(summary: Entry) -> list[str]:
    """Line on each GPU's power and rate and the time of collectives."""
    if not summary.get("plan"):
        return []
    spent = {k: x["total_s"] for k, x in summary["communication"].items()}
    words = [f"{kind} {si(seconds, 's')}" for kind, seconds in spent.items() if seconds]
    rate = summary["tokens_per_s_per_gpu"]
    each = "" if rate is None else f", {digits(rate)} tokens/s"
    settings = f" ({', '.join(words)})" if words else ""
    return [
        f"a GPU: {summary['power_per_gpu_w']:.1f} W{each}; collectives "
        f"{percent(summary['exposed_communication'])} of the time{settings}"
    ]


def phase_table(summary: Entry) -> Table:
    """Return a table of time, power, energy and clock of each phase and of all."""
    phases = summary["phases"]
    entries = [{**phase, "name": name} for name, phase in phases.items()]
    if len(phases) > 1:
        entries.append({**summary, "name": "total"})
    columns = (
        ("phase", "name"),
        ("time", "time_s", "s"),
        ("power", "avg_power_w", "{:.1f} W"),
        ("energy", "energy_j", "J"),
        ("SM clock", "sm_clock_mhz", "{:.0f} MHz"),
        ("chip", "temperature_c", "{:.0f} C"),
        ("limited by", "limited_by"),
    )
    spare = ("chip", "SM clock", "power", "limited by")
    return Table(columns, entries, spare=spare, fold=["limited by"])


def _token_lines(summary: Entry) -> list[str]:
    """Line on latencies and rates per token, for language models only."""
    if summary.get("tokens_per_s") is None:
        return []
    latencies = ""
    if summary["ttft_s"] is not None:
        ttft, tpot = si(summary["ttft_s"], "s"), si(summary["tpot_s"], "s")
        if why := summary.get("unavailable"):
            tpot = f"unavailable ({why['tpot_s']})"
        latencies = f"TTFT {ttft}, TPOT {tpot}, "
    return [
        f"{latencies}{digits(summary['tokens_per_s'])} tokens/s, "
        f"{si(summary['energy_j_per_token'], 'J')} per "
        f"{'prompt ' if summary['phase'] == 'prefill' else ''}token"
    ]


def _energy(summary: Entry) -> Table:
    """Table of energy by unit, largest first; units of zero are left out."""
    columns = (
        ("energy by unit", lambda part: part[0].replace("_", " ")),
        ("energy", 1, "J"),
        ("share", lambda part: part[1] / summary["energy_j"], percent),
    )
    parts = sorted(summary["energy_j_by_unit"].items(), key=lambda part: -part[1])
    return Table(columns, [part for part in parts if part[1]])


def host_line(summary: Entry) -> str:
    """Return a line on the share of time in which no kernel runs because the host is
    not ready."""
    phases = summary["phases"].values()
    with_times = [phase for phase in phases if phase["gpu_time_s"] is not None]
    waiting = sum(phase["time_s"] - phase["gpu_time_s"] for phase in with_times)
    share = max(0.0, waiting / summary["time_s"])
    return f"host-bound: {percent(share)} of the time the GPU waits for the host"


def _points(summary: Entry) -> Table:
    """Table with a row for each setting; the best are marked."""
    several, limits = (
        len({point[key] for point in summary["points"]}) > 1
        for key in ("mem_clock_mhz", "power_limit_w")
    )
    tokens = any(point["energy_j_per_token"] for point in summary["points"])
    marks: dict[int | None, str] = {}
    for word, number in _best(summary).items():
        marks[number] = "both" if number in marks else word
    unknown = dict.fromkeys(("time_s", "energy_j", "sm_clock_mhz"))
    entries = [
        {"wall_energy_j": None, **point}
        | ({} if point["feasible"] else unknown)
        | {"row": number}
        for number, point in enumerate(summary["points"])
    ]
    columns = [
        ("row", "row"),
        ("SM MHz", "sm_clock_set_mhz", "{:.6g}"),
        *([("mem MHz", "mem_clock_mhz", "{:.6g}")] if several else []),
        *([("limit W", "power_limit_w", "{:.6g}")] if limits or not several else []),
        ("time", "time_s", "s"),
        ("power", _power),
        ("energy", "energy_j", "J"),
        *([("at the wall", "wall_energy_j", "J")] if has_node(summary) else []),
        *([("J/token", "energy_j_per_token", digits)] if tokens else []),
        *([] if several and limits else [("mean MHz", "sm_clock_mhz", "{:.0f}")]),
        ("best", lambda point: marks.get(point["row"], "")),
    ]
    spare = ([] if limits else ["limit W"]) + ["mean MHz", "J/token", "power"]
    return Table(columns, entries, spare=spare)


def _best(summary: Entry) -> dict[str, int | None]:
    """Row numbers of least energy and of least energy-delay product."""
    return {word: summary[f"best_{word}"] for word in ("energy", "edp")}


def _power(point: Entry) -> str:
    """Mean power; where the limit is infeasible, the power at the lowest clock."""
    if not point["feasible"]:
        return f">={point['least_power_w']:.0f} W"
    return f"{point['avg_power_w']:.0f} W"
