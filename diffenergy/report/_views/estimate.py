"""How an estimate by name reads and looks."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from ...units import hour, kWh
from .._format import UNKNOWN, Entries, Entry, digits, percent, plain, si
from .._kernel_work import is_step
from .._tables.columns import Narrowing, table
from .._tables.effects import effect_table
from .._tables.kernels import MOST, kernel_table
from .._tables.steps import plan_text, step_kernels, step_parts
from .._traces.steps import drawable

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.table import Table

    from ...estimator import EstimateResult

BOARD_ONLY: Final = "GPU board only: no host, no cooling."
_UNITS: Final = {
    "sm_clock_mhz": "MHz",
    "mem_clock_mhz": "MHz",
    "power_limit_w": "W",
    "switch_latency_s": "s",
}


def line(result: "EstimateResult") -> str:
    """What, how long, how many joules."""
    summary = result.summary
    if "points" in summary:
        return f"{title_line(summary)}: {len(summary['points'])} points"
    low, high = summary["energy_j_p5_p95"]
    return (
        f"{title_line(summary)}: {si(summary['time_s'], 's')}, "
        f"{si(summary['energy_j'], 'J')} ({si(low, 'J')} to {si(high, 'J')}), "
        f"{si(summary['avg_power_w'], 'W')}, {grade_words(summary)}"
    )


def parts(result: "EstimateResult") -> list[Any]:
    """Assumptions, phases, tokens, energy by unit, kernels."""
    return estimate_parts(result.summary, result.kernels, result.detail)


def figure(result: "EstimateResult") -> "Figure":
    """Of one estimate its energy and kernels, of several points their curves."""
    from .._charts.plot_estimate import estimate_figure, sweep_figure

    if result.kernels is None:
        return sweep_figure(result.summary)
    if result.step is not None:
        from .._charts.plot_step import step_figure

        return step_figure(result.summary, drawable(result.step.timeline))
    return estimate_figure(result.summary, result.kernels)


def estimate_parts(
    summary: Entry, kernels: Entries | None, detail: bool = False
) -> list[Any]:
    """Phases, tokens, energy by unit and kernels of one setting; a row for each of
    several.

    `kernels` are those of `kernel_entries`; all of them with `detail`, else those that
    take most time.
    """
    if "points" in summary:
        energy, edp = (UNKNOWN if i is None else i for i in _best(summary).values())
        best = f"best for energy: row {energy}; for energy-delay product: row {edp}"
        return framed(summary, [_points(summary), *memory_lines(summary), best])
    run = [*_run_lines(summary), *memory_lines(summary)]
    if is_step(summary):
        parts = [*step_parts(summary), *run, _energy(summary)]
        parts += step_kernels(summary, kernels or [], detail)
    else:
        lines = [*_token_lines(summary), *run, *_plan_lines(summary)]
        parts = [_phases(summary), *lines, _energy(summary)]
        if kernels:
            phases, most = summary["phases"].values(), None if detail else MOST
            busy = sum(phase["gpu_time_s"] for phase in phases)
            parts.append(kernel_table(kernels, busy, len(phases) > 1, most))
    if "sensitivity" in summary:
        parts.append(effect_table(summary["sensitivity"]))
    return framed(summary, [*parts, _host_line(summary)])


def framed(summary: Entry, parts: Iterable[Any]) -> list[Any]:
    """`parts` between what was assumed and estimated, and how far it can be trusted."""
    head = [assumed_line(summary), title_line(summary)]
    return [*head, *parts, grade_line(summary), *warning_lines(summary), BOARD_ONLY]


def warning_lines(summary: Entry) -> list[str]:
    """What a person should know beside the figures, a line each."""
    return [f"warning: {said}" for said in summary.get("warnings", ())]


def memory_lines(summary: Entry) -> list[str]:
    """What stays in the GPU's memory, largest part first; nothing where it is not
    known."""
    memory = summary.get("memory")
    if memory is None or memory["total"] is None:
        return []
    rest = ("total", "capacity", "fits")
    parts = sorted((x for x in memory if x not in rest), key=lambda x: -memory[x])
    words = [
        f"{x} {si(memory[x], 'B')}".replace("kv_cache", "KV cache")
        for x in parts
        if memory[x]
    ]
    verdict = "" if memory["fits"] else ": does not fit"
    which = "memory of the fullest GPU" if summary.get("plan") else "memory"
    taken, most = si(memory["total"], "B"), si(memory["capacity"], "B")
    return [f"{which}: {taken} of {most}{verdict} ({', '.join(words)})"]


def _run_lines(summary: Entry) -> list[str]:
    """What a whole training run takes, if that was asked for."""
    run = summary.get("run")
    if not run:
        return []
    low, high = (x / kWh for x in run["energy_j_p5_p95"])
    return [
        f"run of {plain(run['tokens'])} tokens: {digits(run['steps'])} steps, "
        f"{digits(run['time_s'] / hour)} h, {digits(run['gpu_hours'])} GPU-hours, "
        f"{digits(run['energy_kwh'])} kWh ({digits(low)} to {digits(high)} kWh)"
    ]


def _plan_lines(summary: Entry) -> list[str]:
    """What each of several GPUs does, and how long they exchange values."""
    if not summary.get("plan"):
        return []
    spent = {k: x["total_s"] for k, x in summary["communication"].items()}
    words = [f"{kind} {si(seconds, 's')}" for kind, seconds in spent.items() if seconds]
    rate = summary["tokens_per_s_per_gpu"]
    each = "" if rate is None else f", {digits(rate)} tokens/s"
    taken = f" ({', '.join(words)})" if words else ""
    return [
        f"a GPU: {summary['power_per_gpu_w']:.1f} W{each}; collectives "
        f"{percent(summary['exposed_communication'])} of the time{taken}"
    ]


def assumed_line(summary: Entry) -> str:
    """Every value that was taken because no flag gave it."""
    taken = [_taken(key, value) for key, value in summary["assumed"].items()]
    return f"assumed: {'; '.join(taken) or 'nothing'}"


def _taken(key: str, value: Any) -> str:
    """
    >>> _taken("sm_clock_mhz", 1410.0)
    'sm-clock 1410 MHz'
    """
    unit = _UNITS.get(key, "")
    name = key.removesuffix(f"_{unit.lower()}").replace("_", "-")
    return f"{name} {plain(value)} {unit}" if unit else f"{name} {value}"


def title_line(summary: Entry) -> str:
    """What was estimated, in one line."""
    times, step = summary.get("accumulation") or 1, is_step(summary)
    tokens, frozen = summary.get("image_tokens"), summary.get("frozen_layers")
    where = " on attention" if summary.get("lora_layers") == "attention" else ""
    words = [
        summary["phase"] or "kernel listing",
        None if step or not summary["batch"] else f"batch {summary['batch']}",
        f"global batch {summary['global_batch']}" if step else None,
        f"{summary['input_len']} in" if summary["input_len"] else None,
        f"{summary.get('images') or 1} x {tokens} image tokens" if tokens else None,
        f"{summary['output_len']} out" if summary["output_len"] else None,
        f"{plain(times)} micro-batches" if times > 1 else None,
        "checkpointing" if summary.get("checkpointing") else None,
        f"LoRA of rank {summary['lora']}{where}" if summary.get("lora") else None,
        f"{frozen} layer{'s' * (frozen > 1)} frozen" if frozen else None,
        f"{summary['steps']} steps" if summary.get("steps") else None,
        "guidance" if summary.get("guidance") else None,
        summary["dtype"],
    ]
    plan, gpu = summary.get("plan"), summary["gpu"]
    if plan:
        gpu = f"{summary['num_gpus']} ({plan_text(plan)}) x {gpu}"
    return f"{summary['model']} on {gpu}: {', '.join(filter(None, words))}"


def grade_words(summary: Entry) -> str:
    """The grade, or that of time and of power where they differ."""
    grades = summary["grades"]
    if grades["time"] == grades["power"]:
        return summary["grade"]
    return f"time {grades['time']}, power {grades['power']}"


def grade_line(summary: Entry) -> str:
    """How far the figures can be trusted."""
    time, energy = (summary.get(f"{name}_p5_p95") for name in ("time_s", "energy_j"))
    grade = grade_words(summary)
    if time is None or energy is None:  # settings in a table have their own
        return f"grade: {grade}"
    return (
        f"grade: {grade} (5 to 95 %: "
        f"time {si(time[0], 's')} to {si(time[1], 's')}, "
        f"energy {si(energy[0], 'J')} to {si(energy[1], 'J')})"
    )


def _phases(summary: Entry) -> Narrowing:
    """Time, power, energy and clock of each phase and of all of them."""
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
    return Narrowing(columns, entries, spare, fold=["limited by"])


def _token_lines(summary: Entry) -> list[str]:
    """Latencies and rates per token, of a language model only."""
    if summary.get("tokens_per_s") is None:
        return []
    latencies = ""
    if summary["ttft_s"] is not None:
        ttft, tpot = si(summary["ttft_s"], "s"), si(summary["tpot_s"], "s")
        latencies = f"TTFT {ttft}, TPOT {tpot}, "
    return [
        f"{latencies}{digits(summary['tokens_per_s'])} tokens/s, "
        f"{si(summary['energy_j_per_token'], 'J')} per "
        f"{'prompt ' if summary['phase'] == 'prefill' else ''}token"
    ]


def _energy(summary: Entry) -> "Table":
    """Energy by unit, largest first; units that take none are left out."""
    columns = (
        ("energy by unit", lambda part: part[0].replace("_", " ")),
        ("energy", 1, "J"),
        ("share", lambda part: part[1] / summary["energy_j"], percent),
    )
    parts = sorted(summary["energy_j_by_unit"].items(), key=lambda part: -part[1])
    return table(columns, [part for part in parts if part[1]])


def _host_line(summary: Entry) -> str:
    """Share of the time in which no kernel runs because the host is not ready."""
    phases = summary["phases"].values()
    known = [phase for phase in phases if phase["gpu_time_s"] is not None]
    waiting = sum(phase["time_s"] - phase["gpu_time_s"] for phase in known)
    share = max(0.0, waiting / summary["time_s"])
    return f"host-bound: {percent(share)} of the time the GPU waits for the host"


def _points(summary: Entry) -> Narrowing:
    """One row a setting; the best are marked."""
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
        {**point, **({} if point["feasible"] else unknown), "row": number}
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
        *([("J/token", "energy_j_per_token", digits)] if tokens else []),
        *([] if several and limits else [("held MHz", "sm_clock_mhz", "{:.0f}")]),
        ("best", lambda point: marks.get(point["row"], "")),
    ]
    spare = ([] if limits else ["limit W"]) + ["held MHz", "J/token", "power"]
    return Narrowing(columns, entries, spare)


def _best(summary: Entry) -> dict[str, int | None]:
    """Rows of least energy and of least energy-delay product."""
    return {word: summary[f"best_{word}"] for word in ("energy", "edp")}


def _power(point: Entry) -> str:
    """Mean power; what the lowest clock needs where the limit cannot be kept."""
    if not point["feasible"]:
        return f">={point['least_power_w']:.0f} W"
    return f"{point['avg_power_w']:.0f} W"
