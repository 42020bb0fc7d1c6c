"""Lines that views, charts and pages share: titles, assumptions, grades and
warnings."""

from collections.abc import Iterable
from typing import Any, Final

from ...estimator import is_training_step
from .._blocks import Block
from .._format import Entry, digits, percent, plain, si
from .steps import plan_text

BOARD_ONLY: Final = "GPU board only: no host, no cooling."
_MODELLED: Final = "Modelled: nothing was run on a GPU."
MODELLED: Final = f"{BOARD_ONLY} {_MODELLED}"
WALL: Final = "Boards, and at the wall their servers: no switches of the network."
_UNITS: Final = {
    "sm_clock_mhz": "MHz",
    "mem_clock_mhz": "MHz",
    "power_limit_w": "W",
    "switch_latency_s": "s",
}


def frame(summary: Entry, parts: Iterable[Block]) -> list[Block]:
    """Return `parts` between the header (assumptions, title) and the footer (grade,
    warnings, scope)."""
    head = [assumed_line(summary), title_line(summary)]
    scope = WALL if has_node(summary) else BOARD_ONLY
    return [*head, *parts, grade_line(summary), *warning_lines(summary), scope]


def has_node(summary: Entry) -> bool:
    """Return whether a summary, or one of its points, includes power at the wall."""
    points = summary.get("points", ())
    return "nodes" in summary or any("node" in x for x in (summary, *points))


def modelled(summary: Entry, boards: str = BOARD_ONLY) -> str:
    """Return what the watts of a page include, and that they are modelled; `boards`:
    without a node."""
    return f"{WALL if has_node(summary) else boards} {_MODELLED}"


def wall_lines(summary: Entry) -> list[str]:
    """Return lines on power and energy at the wall and of the site; none without a
    node."""
    node = summary.get("node")
    if node is None:
        return []
    low, high = summary["wall_energy_j_p5_p95"]
    site, token = summary["site_energy_j"], summary["wall_energy_j_per_token"]
    parts = summary["wall_energy_j_by_part"]
    shares = ", ".join(f"{x} {percent(y / site)}" for x, y in parts.items() if y)
    each = "" if token is None else f", {si(token, 'J')} per token"
    lines = [
        f"wall ({plain(node['nodes'])} x {node['name']}, {node['grade']}): "
        f"{summary['wall_power_w']:.1f} W, {si(summary['wall_energy_j'], 'J')} "
        f"({si(low, 'J')} to {si(high, 'J')}){each}",
        f"site: {summary['site_power_w']:.1f} W, {si(site, 'J')} ({shares})",
    ]
    if summary["carbon_g"] is not None:
        lines[-1] += f", {si(summary['carbon_g'], 'g')} CO2"
    if summary["cost"] is not None:
        lines[-1] += f", costs {digits(summary['cost'])}"
    if summary["sci_g"] is not None:
        lines[-1] += f", SCI {si(summary['sci_g'], 'g')} CO2e"
    return lines


def warning_lines(summary: Entry) -> list[str]:
    """Return the warnings, a line each."""
    return [f"warning: {warning}" for warning in summary.get("warnings", ())]


def served_wall_lines(summary: Entry) -> list[str]:
    """Power of a server's nodes, and energy of a token and a request at the wall;
    nothing without a node."""
    node = summary.get("node")
    if node is None:
        return []
    low, high = summary["wall_energy_j_per_output_token_p5_p95"]
    token = summary["wall_energy_j_per_output_token"]
    parts = summary["wall_energy_j_by_part"]
    whole = sum(parts.values())
    shares = ", ".join(f"{x} {percent(y / whole)}" for x, y in parts.items() if y)
    lines = [
        f"wall ({plain(node['nodes'])} x {node['name']}, {node['grade']}): "
        f"{si(summary['wall_power_w'], 'W')}, {si(token, 'J')} per output token "
        f"({si(low, 'J')} to {si(high, 'J')})",
        f"site: {si(summary['site_power_w'], 'W')}, {si(whole, 'J')} a request "
        f"({shares})",
    ]
    if summary["carbon_g_per_request"] is not None:
        lines[-1] += f", {si(summary['carbon_g_per_request'], 'g')} CO2"
    if summary["cost_per_request"] is not None:
        lines[-1] += f", costs {digits(summary['cost_per_request'])}"
    if summary["sci_g"] is not None:
        lines[-1] += f", SCI {si(summary['sci_g'], 'g')} CO2e"
    day = f"a day under this load: {digits(summary['site_energy_kwh_per_day'])} kWh"
    if summary["carbon_g_per_day"] is not None:
        day += f", {si(summary['carbon_g_per_day'], 'g')} CO2"
    if summary["cost_per_day"] is not None:
        day += f", costs {digits(summary['cost_per_day'])} (currency of `--price`)"
    return [*lines, day]


def power_lines(summary: Entry) -> list[str]:
    """Return lines on power over time and the cost of smoothing it, if requested."""
    lines, profile = list[str](), summary.get("power_profile")
    if profile is not None:
        line, shares = profile["strongest"], profile["rms_share"]
        most = "" if line is None else f", most of it at {digits(line['hz'])} Hz"
        lines.append(
            f"power over time ({profile['of']}): {si(profile['trough_w'], 'W')} to "
            f"{si(profile['peak_w'], 'W')}, within a second "
            f"{si(profile['ramp_up_w_per_s'], 'W')} up and "
            f"{si(profile['ramp_down_w_per_s'], 'W')} down; rms "
            f"{percent(shares['total'])} of the mean{most}"
        )
    if (smoothing := summary.get("smoothing")) is not None:
        lines.append(
            f"smoothed boards: swing {si(smoothing['swing_w'], 'W')}, "
            f"{si(smoothing['burn_j'], 'J')} more{_of_joules(summary)}"
            f"{_later(smoothing['time_s'])}; flat power takes a store of "
            f"{si(smoothing['storage_j'], 'J')} a GPU"
        )
    if (events := summary.get("events")) is not None:
        lines.append(
            f"events: {si(events['time_s'], 's')} and {si(events['energy_j'], 'J')} of "
            f"the boards more a step, which take "
            f"{percent(events['time_s'] / (events['time_s'] + summary['time_s']))} of "
            "the time of the job"
        )
    return lines


def _of_joules(summary: Entry) -> str:
    """Share that smoothing adds to the energy of the boards, where it is of it."""
    joules = summary.get("energy_j")
    if joules is None or summary.get("events") is not None:
        return ""
    return f" ({percent(summary['smoothing']['burn_j'] / joules)})"


def _later(time: float) -> str:
    """By how much smoothing delays the work."""
    return f", {si(time, 's')} later" if time > 0 else ""


def memory_lines(summary: Entry) -> list[str]:
    """Return a line on memory use, largest part first; none if it is unknown."""
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
    needed, most = si(memory["total"], "B"), si(memory["capacity"], "B")
    return [f"{which}: {needed} of {most}{verdict} ({', '.join(words)})"]


def assumed_line(summary: Entry) -> str:
    """Return a line with every default value that was used."""
    words = [_assumption(key, value) for key, value in summary["assumed"].items()]
    return f"assumed: {'; '.join(words) or 'nothing'}"


def _assumption(key: str, value: Any) -> str:
    """Assumed value as `name value unit`.

    >>> _assumption("sm_clock_mhz", 1410.0)
    'sm-clock 1410 MHz'
    """
    unit = _UNITS.get(key, "")
    name = key.removesuffix(f"_{unit.lower()}").replace("_", "-")
    return f"{name} {plain(value)} {unit}" if unit else f"{name} {value}"


def title_line(summary: Entry) -> str:
    """Return a line with the model, GPU and workload."""
    times, step = summary.get("accumulation") or 1, is_training_step(summary)
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
    """Return the grade, or those of time and power if they differ."""
    grades = summary["grades"]
    if grades["time"] == grades["power"]:
        return summary["grade"]
    return f"time {grades['time']}, power {grades['power']}"


def grade_line(summary: Entry) -> str:
    """Return a line with the grade and, if known, the 5 to 95 % intervals of time and
    energy."""
    time, energy = (summary.get(f"{name}_p5_p95") for name in ("time_s", "energy_j"))
    grade = grade_words(summary)
    if time is None or energy is None:  # settings in a table have their own
        return f"grade: {grade}"
    return (
        f"grade: {grade} (5 to 95 %: "
        f"time {si(time[0], 's')} to {si(time[1], 's')}, "
        f"energy {si(energy[0], 'J')} to {si(energy[1], 'J')})"
    )
