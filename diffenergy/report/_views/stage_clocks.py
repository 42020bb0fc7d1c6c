"""View of clocks for pipeline stages."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from .._blocks import Block, Table
from .._format import Entry, percent, si
from .._tables.steps import equal_runs, plan_text

if TYPE_CHECKING:
    from ...charts import Chart
    from ...parallel import StageClocks

_CLOCKS: Final = {
    "instruction": "a clock for each instruction",
    "kind": "a clock for the forward and one for the backward passes of a stage",
    "stage": "a clock for each stage",
}


def line(result: "StageClocks") -> str:
    """Return a line with the saving of energy, its bound, and the slowdown."""
    content = result.summary
    saved = f"{content['saving_pct']:.1f} % less energy"
    if interval := content["saving_pct_p5_p95"]:
        low, high = interval
        saved += f" (5 to 95 %: {low:.1f} to {high:.1f} %)"
    longer = content["slowdown_pct"]
    slower = f"{longer:.1f} % longer" if longer > 5e-3 else "no longer"
    bound = f"bound {content['bound_saving_pct']:.1f} %"
    return f"{saved} ({bound}) in a step that takes {slower}"


def blocks(result: "StageClocks") -> Iterator[Block]:
    """Yield totals, stages and host power."""
    content = result.summary
    yield title_line(content)
    yield f"{line(result)}: {_CLOCKS[content['granularity']]}"
    yield _totals(content)
    yield _stages(content)
    yield from _power(content)
    yield (
        f"grade: {content['grade']}; {content['instructions']} instructions solved in "
        f"{content['solve_s']:.2g} s; boards that wait draw "
        f"{content['wait_power_w']:.0f} W each"
    )


def title_line(content: Entry) -> str:
    """Return a line with the model, GPUs, plan and split of layers."""
    layers = ", ".join(map(str, content["split"]))
    return (
        f"{content['model']} on {content['num_gpus']} ({plan_text(content['plan'])}) x "
        f"{content['gpu']}: {content['micro_batches']} micro-batches, "
        f"{content['input_len']} in, layers {layers}"
    )


def _totals(content: Entry) -> Any:
    first = f"all at {content['usual_sm_clock_mhz']:g} MHz"
    rows = [(first, content["baseline"]), ("optimized clocks", content["best"])]
    usual = content["baseline"]["energy_j"]
    limited = content["node_power"]
    if limited and limited["one_clock"]:
        one = limited["one_clock"]
        rows.insert(1, (f"all at {one['sm_clock_mhz']:g} MHz", one))
    joules = content["lower_bound_j"]
    step = content["best"]["step_time_s"]
    bound = {"step_time_s": step, "energy_j": joules, "power_total_w": joules / step}
    rows.append(("bound over all clocks", bound))
    columns = (
        ("clocks", lambda row: row[0]),
        ("step", lambda row: row[1]["step_time_s"], "s"),
        ("energy", lambda row: row[1]["energy_j"], "J"),
        ("power", lambda row: row[1]["power_total_w"], "W"),
        ("change", lambda row: 100 * (row[1]["energy_j"] / usual - 1), "{:+.1f} %"),
    )
    return Table(columns, rows)


def _stages(content: Entry) -> Any:
    """Table of stages; consecutive equal stages share a row."""
    kinds = [x["instruction"] for x in content["stages"][0]["instructions"]]
    columns = [
        ("stage", "stage"),
        ("layers", "layers"),
        *(
            (f"{kind} MHz", lambda row, i=i: _clocks(row["instructions"][i]))
            for i, kind in enumerate(kinds)
        ),
        ("busy", "busy", percent),
        ("a GPU", "power_w", "{:.0f} W"),
        ("changes", "switches"),
    ]
    grouped = equal_runs(content["stages"], _cells)
    return Table(columns, [{**rows[0], "stage": name} for name, rows in grouped])


def _cells(stage: Entry) -> Any:
    """Values by which the rows of two stages are compared."""
    clocks = [(_clocks(x), f"{x['time_s']:.4g}") for x in stage["instructions"]]
    return stage["layers"], clocks, f"{stage['power_w']:.0f}", stage["switches"]


def _clocks(entry: Entry) -> str:
    low, high = (entry[f"sm_clock_{x}_mhz"] for x in ("min", "max"))
    if low == high:
        return f"{low:g}"
    return f"{entry['sm_clock_mhz']:.0f} ({low:g}-{high:g})"


def _power(content: Entry) -> Iterator[str]:
    limited = content["node_power"]
    peak = f"{si(content['node_peak_w'], 'W')} at most at any time"
    if limited is None:
        yield f"the GPUs of a host draw {peak}"
        return
    yield (
        f"the GPUs of a host draw {si(limited['mean_w'], 'W')} of "
        f"{si(limited['limit_w'], 'W')} on average, {peak}"
    )


def charts(result: "StageClocks") -> "dict[str, Chart]":
    """Return charts of every stage's passes and clocks, before and after, and of
    power."""
    from .._charts.stage_clocks import stage_clock_charts

    return stage_clock_charts(result, f"{title_line(result.summary)}: {line(result)}")
