"""How clocks for the stages of a pipeline read and look."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from .._blocks import Block, Table
from .._charts import style
from .._format import Entry, percent, si
from .._tables.steps import plan_text, runs

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import PolyCollection
    from matplotlib.figure import Figure

    from ...parallel import Replicas, StageClocks

_OWN: Final = {
    "instruction": "a clock for each instruction",
    "kind": "a clock for the forward and one for the backward passes of a stage",
    "stage": "a clock for each stage",
}
_HIGH: Final = (0.5, 0.88, 0.88)
"""Heights of passes forward, backward and of gradients of weights, in rows."""
_ACROSS: Final = 5.8
"""Inches of the time axis, about."""
_EDGED: Final = 0.05
"""Inches of a pass that has room for a white edge."""
_ROWS: Final = (0.1, 0.24)
"""Least and largest height of a row, inches."""
_TALL: Final = 2.2
"""Inches of all rows, as far as rows can be so high."""


def line(result: "StageClocks") -> str:
    """What is saved, in what time, and what the bound would."""
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
    """Totals, stages, host power."""
    content = result.summary
    yield title_line(content)
    yield f"{line(result)}: {_OWN[content['granularity']]}"
    yield _totals(content)
    yield _stages(content)
    yield from _power(content)
    yield (
        f"grade: {content['grade']}; {content['instructions']} instructions solved in "
        f"{content['solve_s']:.2g} s; boards that wait draw "
        f"{content['wait_power_w']:.0f} W each"
    )


def title_line(content: Entry) -> str:
    """What is trained on what, and how its layers are split."""
    layers = ", ".join(map(str, content["split"]))
    return (
        f"{content['model']} on {content['num_gpus']} ({plan_text(content['plan'])}) x "
        f"{content['gpu']}: {content['micro_batches']} micro-batches, "
        f"{content['input_len']} in, layers {layers}"
    )


def _totals(content: Entry) -> Any:
    first = f"all at {content['usual_sm_clock_mhz']:g} MHz"
    rows = [(first, content["baseline"]), ("own clocks", content["best"])]
    usual = content["baseline"]["energy_j"]
    limited = content["node_power"]
    if limited and limited["one_clock"]:
        one = limited["one_clock"]
        rows.insert(1, (f"all at {one['sm_clock_mhz']:g} MHz", one))
    joules = content["lower_bound_j"]
    step = content["best"]["step_time_s"]
    bound = {"step_time_s": step, "energy_j": joules, "power_total_w": joules / step}
    rows.append(("bound of any clocks", bound))
    columns = (
        ("clocks", lambda row: row[0]),
        ("step", lambda row: row[1]["step_time_s"], "s"),
        ("energy", lambda row: row[1]["energy_j"], "J"),
        ("power", lambda row: row[1]["power_total_w"], "W"),
        ("change", lambda row: 100 * (row[1]["energy_j"] / usual - 1), "{:+.1f} %"),
    )
    return Table(columns, rows)


def _stages(content: Entry) -> Any:
    """A row for stages that are alike."""
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
    grouped = runs(content["stages"], _cells)
    return Table(columns, [{**rows[0], "stage": name} for name, rows in grouped])


def _cells(stage: Entry) -> Any:
    """What the row of a stage shows."""
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


@style.house()
def figure(result: "StageClocks") -> "Figure":
    """Two panels of what each stage runs when, low boxes forward and high ones
    backward, and one of the power of all GPUs of the replica."""
    found, content = result.replicas[0], result.summary
    problem = found.problem
    stages = len(problem.wait)
    row = min(max(_TALL / stages, _ROWS[0]), _ROWS[1])
    gantt = 0.55 + row * stages
    figure = style.canvas(2 * gantt + 2.9)
    axes = figure.subplots(3, 1, sharex=True, height_ratios=[gantt, gantt, 1.5])
    before, after, power = axes.tolist()
    choices = (problem.usual, found.choice)
    titles = (
        f"All at {content['usual_sm_clock_mhz']:g} MHz",
        "Own clocks (low boxes: forward, high: backward)",
    )
    drawn = [
        _draw(panel, found, choice, title, row)
        for panel, choice, title in zip((before, after), choices, titles, strict=True)
    ]
    bar = figure.colorbar(drawn[-1], ax=[before, after], pad=0.01, aspect=30)
    bar.set_label("SM clock (MHz)")
    colours = (style.GREY, style.BLUE)
    for choice, colour, word in zip(choices, colours, ("before", "after"), strict=True):
        edges, watts = _curve(found, choice)
        mean = float(np.diff(edges) @ watts[:-1]) / edges[-1]
        label = f"{word}: {si(mean, 'W')} on average"
        power.step(edges, watts, where="post", color=colour, linewidth=1.2, label=label)
    power.set_title("GPUs of a replica")
    power.set_ylim(0.0, None)
    power.set_xlim(0.0, None)
    power.legend(loc="lower center", ncols=2)
    style.name_axis(power.yaxis, "power", "W")
    style.name_axis(power.xaxis, "time", "s")
    style.headline(figure, f"{title_line(content)}: {line(result)}")
    return figure


def _draw(
    axes: "Axes", found: "Replicas", choice: np.ndarray, title: str, height: float
) -> "PolyCollection":
    problem = found.problem
    start, end = found.times(choice)
    edged = bool(np.median(end - start) / end.max() * _ACROSS > _EDGED)
    clocks = problem.clocks / 1e6
    boxes = style.add_boxes(
        axes, start, end, problem.stage_of, np.array(_HIGH)[problem.program.kind],
        array=clocks[choice], cmap=style.MAP, clim=(clocks[-1], clocks[0]),
        edgecolors="white" if edged else "face", linewidths=0.4 if edged else 0.0,
    )  # fmt: skip
    style.stage_rows(axes, len(problem.wait), height)
    axes.set_title(title)
    return boxes


def _curve(found: "Replicas", choice: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where power changes, s, and W of a replica's GPUs from there on."""
    problem = found.problem
    start, end = found.times(choice)
    over = problem.cost[choice, problem.type] / (end - start)
    at = np.r_[0.0, start, end]
    change = np.r_[problem.wait.sum(), over, -over] * problem.abreast
    order = np.argsort(at, kind="stable")
    edges, first = np.unique(np.round(at[order], 9), return_index=True)
    last = np.r_[first[1:], len(at)] - 1
    return edges, np.cumsum(change[order])[last]
