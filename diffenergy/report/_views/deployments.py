"""View of a search for a deployment."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from .._blocks import Block, Table, Tile, Tiles
from .._format import Entry, percent, plain
from .._tables.lines import (
    BOARD_ONLY,
    MODELLED,
    WALL,
    assumed_line,
    served_wall_lines,
)
from .serving import load_text, speculation, unavailable

if TYPE_CHECKING:
    from ...charts import Chart
    from ...serving import SearchResult

_WORDS = {
    "energy": "least energy",
    "cost": "least cost",
    "gpus": "fewest GPUs",
}
_LIMITS = {
    "slo_ttft": "the limit of the time to the first token",
    "slo_tpot": "the limit of the time per output token",
    "power_budget": "the power budget",
    "num_gpus": "the number of GPUs",
    "memory": "the memory of a GPU",
    "rate": "the rate",
}

SCOPE = MODELLED


def line(result: "SearchResult") -> str:
    """Return a line with the load and the best deployment."""
    s = result.summary
    return f"{title(s)}: {words(s['best'])}"


def title(s: Entry) -> str:
    """Return a line with the model and the load."""
    lengths = f"{s['input_len']} in, {s['output_len']} out"
    return f"{s['model']}, {lengths}, {load_text(s)}"


def words(x: Entry) -> str:
    """Return a deployment in a few words."""
    if x["pools"]:
        return " and ".join(
            f"{y['num_gpus']} x {y['gpu']} (tp {y['tp']}) for {name}"
            for name, y in x["pools"].items()
        )
    ep = f", ep {x['ep']}" if x["ep"] > 1 else ""
    more = f", {x['speculative']}" if x["speculative"] else ""
    return f"{x['num_gpus']} x {x['gpu']} (tp {x['tp']}{ep}, {x['dtype']}{more})"


def blocks(result: "SearchResult") -> Iterator[Block]:
    """Yield the best deployment, the next best, the binding limit and the tables."""
    s = result.summary
    best = s["best"]
    yield assumed_line(s)
    yield title(s)
    yield (
        f"{_WORDS[s['objective']]}: {words(best)}, {best['engine']}, SM clock "
        f"{plain(best['sm_clock_mhz'])} MHz, at most {plain(best['max_batch'])} "
        "requests at once"
    )
    yield Tiles(
        [
            Tile("Energy per output token", energy_of(best), "J", _interval(best)),
            Tile("Power", power_of(best), "W", None),
            Tile("Time per output token, p95", _tpot(best), "s", None),
            Tile("Time to first token, p95", best["ttft_s"]["p95"], "s", None),
        ]
    )
    if s["comparison"]:
        yield s["comparison"]
    yield _binding(s)
    yield from speculation(s.get("speculation", {}))
    yield _table(s["deployments"], s)
    if len(s["frontier"]) > 1:
        yield "fewest GPUs for the power:"
        yield _table(s["frontier"], s)
    if len(s["per_gpu"]) > 1:
        yield "best of each GPU:"
        yield _table(s["per_gpu"], s)
    yield (
        f"{s['candidates']} ways to serve a replica, {s['considered']:,} points, of "
        f"which {s['feasible']:,} keep the limits; {s['priced']} priced as `serve` does"
    )
    yield from unavailable(best)
    yield from served_wall_lines(best)
    yield f"grade: {best['grade']}"
    yield from (f"note: {text}" for text in result.warnings)
    yield WALL if "wall_power_w" in best else BOARD_ONLY


def energy_of(x: Entry) -> float:
    """Return J of an output token, with a node at the wall."""
    return x.get("wall_energy_j_per_output_token", x["energy_j_per_output_token"])


def power_of(x: Entry) -> float:
    """Return W of all GPUs, with a node at the wall."""
    return x.get("wall_power_w", x["avg_power_w"])


def _interval(x: Entry) -> Any:
    """Interval of the energy of a token; of the boards alone."""
    return None if "wall_power_w" in x else x["energy_j_per_output_token_p5_p95"]


def _binding(s: Entry) -> str:
    if s["binding"] is None:
        return "no limit binds: a looser one changes nothing"
    of, slope = s["binding"]["limit"], s["binding"]["elasticity"]
    what = {"energy": "energy", "cost": "cost", "gpus": "GPUs"}[s["objective"]]
    return (
        f"binding: {_LIMITS[of]}; 10 % {'less' if of == 'rate' else 'more'} of it "
        f"saves {percent(1 - 1.1**slope)} {what}"
    )


def _tpot(x: Entry) -> float | None:
    """95th percentile of the time per output token (s)."""
    return x["tpot_s"] and x["tpot_s"]["p95"]


def _table(rows: list[Entry], s: Entry) -> Table:
    """Table of deployments; words that all share are left out."""
    every = [*s["deployments"], *s["frontier"], *s["per_gpu"]]
    varied = [x for x in ("dtype", "engine", "ep") if len({y[x] for y in every}) > 1]

    def name(x: Entry) -> str:
        if x["pools"]:
            return words(x)
        more = [f"ep {x['ep']}"] if "ep" in varied and x["ep"] > 1 else []
        more += [x[key] for key in ("dtype", "engine") if key in varied]
        more += [x["speculative"]] if x["speculative"] else []
        return ", ".join([f"{x['num_gpus']} x {x['gpu']}", f"tp {x['tp']}", *more])

    wall = "wall " if "wall_power_w" in s["best"] else ""
    columns: list[Any] = [
        ("deployment", name),
        ("MHz", "sm_clock_mhz", "{:.0f}"),
        ("batch", "max_batch", "{:.0f}"),
        (f"{wall}W", power_of, "{:.0f}"),
        (f"{wall}J/token", energy_of, "{:.4g}"),
        ("TTFT ms", lambda x: 1e3 * x["ttft_s"]["p95"], "{:.0f}"),
        ("TPOT ms", lambda x: x["tpot_s"] and 1e3 * x["tpot_s"]["p95"], "{:.1f}"),
    ]
    if any(x["cost_per_hour"] is not None for x in every):
        columns.insert(5, ("cost/h", "cost_per_hour", "{:.4g}"))
    spare = ("batch", "MHz", "TTFT ms", f"{wall}W")
    return Table(columns, rows, fold=("deployment",), spare=spare)


def charts(result: "SearchResult") -> "dict[str, Chart]":
    """Return a chart of GPUs and power of every deployment that keeps the limits, with
    the front and the best one."""
    from .._charts.deployments import deployments_chart

    return {"deployments": deployments_chart(result, title(result.summary))}
