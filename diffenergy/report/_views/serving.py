"""View of a server under load."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from .._blocks import Block, Columns, Table, Tile, Tiles, as_text
from .._format import Entry, digits, percent, plain, si
from .._tables.lines import (
    BOARD_ONLY,
    WALL,
    assumed_line,
    has_node,
    modelled,
    power_lines,
    served_wall_lines,
)

if TYPE_CHECKING:
    from ...charts import Chart
    from ...serving import ServingResult

_LATENCIES = (
    ("time to first token", "ttft_s"),
    ("time per output token", "tpot_s"),
    ("gap between two tokens", "itl_s"),
    ("end to end", "e2e_latency_s"),
)
_LARGE = (
    ("Energy per output token", "energy_j_per_output_token", "J"),
    ("Time per output token", "tpot_s", "s"),
    ("Time to first token", "ttft_s", "s"),
    ("Power", "avg_power_w", "W"),
)
_QUANTILES = ("mean", "p50", "p90", "p95", "p99")


def scope(result: "ServingResult") -> str:
    """Return what the power on the page includes."""
    return modelled(result.summary)


def line(result: "ServingResult") -> str:
    """Return a line with the server and time and energy per output token."""
    s = result.summary
    time = f"{si(s['tpot_s']['mean'], 's')} and " if s["tpot_s"] else ""
    return (
        f"{title(s)}: {time}{si(s['energy_j_per_output_token'], 'J')} per output token"
    )


def title(s: Entry) -> str:
    """Return a line with the model, GPUs, engine and load."""
    gpus = f"{s['num_gpus']} x {s['gpu']}" if s["num_gpus"] > 1 else s["gpu"]
    groups = f", attention dp {s['attention_dp']}" if "attention_dp" in s else ""
    split = f" (tp {s['tp']}{groups})" if s["num_gpus"] > 1 else ""
    if pools := s.get("pools"):
        words = [
            f"{p['workers']} x tp {p['tp']} {p['gpu']} for {work}"
            for work, p in zip(("prompts", "tokens"), pools.values(), strict=True)
        ]
        gpus, split = f"{s['num_gpus']} GPUs", f" ({', '.join(words)})"
    return f"{s['model']} on {gpus}{split}, {s['engine']}, {load_text(s)}"


def load_text(s: Entry) -> str:
    """Return how requests come, in a few words."""
    match s["mode"]:
        case "open":
            return f"{plain(s['request_rate_per_s'])} requests/s at random"
        case "closed":
            return f"{plain(s['concurrency'])} clients"
        case "trace":
            return "a trace of requests"
    return "saturated"


def blocks(result: "ServingResult") -> Iterator[Block]:
    """Yield assumptions, latencies, rates, step time and energy."""
    s = result.summary
    yield assumed_line(s)
    yield title(s)
    if best := s.get("optimized"):
        clock, most = plain(best["sm_clock_mhz"]), plain(best["max_batch"])
        yield (
            f"best for {best['objective']}: SM clock {clock} MHz, at most {most} "
            "requests at once"
        )
    yield Tiles([_tile(s, *x) for x in _LARGE])
    yield Table(*latencies(s))
    yield from unavailable(s)
    yield Table(("", ""), rates(s))
    if "pools" in s:
        yield _pools(s["pools"])
        time, energy = si(s["kv_transfer_s"], "s"), si(s["kv_transfer_j"], "J")
        yield f"KV cache of a prompt to the decode pool: {time}, {energy}"
    yield _step(s)
    yield _energy(s)
    yield from speculation(s)
    yield from _caches(s)
    yield from served_wall_lines(s)
    yield from power_lines(s)
    if s["sensitivities"]:
        yield _sensitivities(s["sensitivities"])
    yield f"grade: {s['grade']}"
    yield from (f"note: {text}" for text in result.warnings)
    yield WALL if has_node(s) else BOARD_ONLY


def _tile(s: Entry, name: str, key: str, unit: str) -> Tile:
    value = s[key]["mean"] if isinstance(s[key], dict) else s[key]
    return Tile(name, value, unit, s.get(f"{key}_p5_p95"))


def latencies(s: Entry, heading: str = "") -> tuple[Columns, list[Entry]]:
    """Return columns and rows of means and quantiles of the available latencies (s)."""
    columns = ((heading, "name"), *((q, q, "s") for q in _QUANTILES))
    rows = [(name, s[key]) for name, key in _LATENCIES if s[key] is not None]
    return columns, [{**values, "name": name} for name, values in rows]


def unavailable(s: Entry) -> Iterator[str]:
    """Yield a line with the latencies that there are not, and why."""
    if why := s.get("unavailable"):
        names = ", ".join(name for name, key in _LATENCIES if key in why)
        yield f"{names}: unavailable; {next(iter(why.values()))}"


def rates(s: Entry) -> list[tuple[str, str]]:
    """Return rows on throughput, running and waiting requests, and memory."""
    unseen = s["waiting_requests"] is not None and s["waiting_requests"] < 1e-3
    rows = [
        ("requests/s", digits(s["request_throughput_per_s"])),
        ("output tokens/s", digits(s["output_token_throughput_per_s"])),
        ("most requests/s", digits(s["saturation_request_rate_per_s"])),
        ("running", digits(s["running_requests"])),
        ("most running", f"{s['max_running_requests']:,.0f}"),
        ("waiting", "0" if unseen else digits(s["waiting_requests"])),
        ("limited by", s["limited_by"]),
        ("KV cache used", percent(s["kv_cache_usage"])),
    ]
    if "paused_requests" in s:
        rows.append(("pausing", digits(s["paused_requests"])))
    if s["skipped_requests"]:
        rows.append(("left out, too long", f"{s['skipped_requests']:,}"))
    if s["preemptions"]:
        rows.append(("preemptions", f"{s['preemptions']}"))
    if s["goodput_per_s"] is not None:
        rows.append(("within the limits, requests/s", digits(s["goodput_per_s"])))
    return rows


def _pools(pools: Entry) -> Any:
    columns: Columns = (
        ("pool", lambda x: x, "{}"),
        ("GPUs", lambda x: pools[x]["num_gpus"], "{}"),
        ("", lambda x: pools[x]["gpu"], "{}"),
        ("workers", lambda x: pools[x]["workers"], "{}"),
        ("tp", lambda x: pools[x]["tp"], "{}"),
        ("SM clock", lambda x: pools[x]["sm_clock_mhz"], "{:.0f} MHz"),
        ("used", lambda x: 100 * pools[x]["utilization"], "{:.1f} %"),
        ("power", lambda x: pools[x]["avg_power_w"], "{:.0f} W"),
    )
    return Table(columns, list(pools))


def _step(s: Entry) -> Any:
    mean, parts = s["step_s"]["mean"], s["step_s"]["parts"].items()
    rows = [(name, si(x, "s"), percent(x / mean)) for name, x in parts]
    return Table(("step", "time", "share"), [*rows, ("mean step", si(mean, "s"), "")])


def _energy(s: Entry) -> Any:
    low, high = s["energy_j_per_output_token_p5_p95"]
    per_token = si(s["energy_j_per_output_token"], "J")
    rows = [
        ("power", si(s["avg_power_w"], "W")),
        ("energy per output token", f"{per_token} ({si(low, 'J')} to {si(high, 'J')})"),
        ("energy per token in or out", si(s["energy_j_per_token"], "J")),
        ("energy per request", si(s["energy_j_per_request"], "J")),
    ]
    clock, requested = s["sm_clock_mhz"], s["sm_clock_set_mhz"]
    if clock < 0.999 * requested:  # the power limit binds
        rows.insert(1, ("SM clock, mean", f"{clock:.0f} of {requested:.0f} MHz"))
    return Table(("", ""), rows)


def speculation(s: Entry) -> Iterator[str]:
    """Yield how many tokens a step makes, and up to which batch drafts pay."""
    if "speculative" not in s:
        return
    yield (
        f"speculation: {s['speculative']} drafts {s['draft_tokens']} tokens, of which "
        f"{percent(s['accept'])} are right: {plain(s['tokens_per_step'])} tokens a "
        "step, which come at once (gaps of 0 between them)"
    )
    turns = s["break_even_batch"]
    yield "it pays up to " + ", ".join(
        f"{'any batch' if x is None else f'{x:.0f} running a replica'} in {name}"
        for name, x in turns.items()
    )
    if plain_figures := s.get("without_speculation"):
        energy, time = "energy_j_per_output_token", "tpot_s"
        yield (
            f"without it: {si(plain_figures[energy], 'J')} and "
            f"{as_text(plain_figures[time], 's')} per output token"
        )


def _caches(s: Entry) -> Iterator[str]:
    if x := s.get("prefix_hit_point"):
        energy = "energy_j_per_output_token"
        yield (
            f"10 points more of prefix hits change {10 * x['avg_power_w']:+.4g} W, "
            f"{1e4 * x[energy]:+.4g} mJ per output token, "
            f"{1e4 * x['ttft_s']:+.4g} ms to the first token"
        )
    if x := s.get("kv_offload"):
        yield (
            f"KV caches of {x['requests']:.0f} requests fit the host; cached "
            f"tokens of a prompt come back in {si(x['fetch_s'], 's')} (computed anew: "
            f"{si(x['compute_s'], 's')}), for {percent(x['fetched_share'])} of requests"
        )


def _sensitivities(slopes: Entry) -> Any:
    columns = ((m, lambda x, m=m: slopes[m][x], "{:.4g}") for m in slopes)
    fields = next(iter(slopes.values()))
    return Table((("per SI unit", "d / d {}".format), *columns), fields)


def charts(result: "ServingResult") -> "dict[str, Chart]":
    """Return charts of latencies against request rate up to saturation, and of the
    saturated server's energy per token (J) against its batch by clock: all together,
    then each alone."""
    from ...charts import stacked
    from ...serving import server_curves
    from .._charts.power import power_charts
    from .._charts.served import served_charts

    if result.costs is None:
        raise ValueError("there is no table of steps to draw.")
    curves = server_curves(result.deployment, result.costs)
    charts = served_charts(result.summary, curves)
    whole = stacked(title(result.summary), list(charts.values()), columns=2)
    return {"serving": whole, **charts, **power_charts(result.summary, result.curves)}
