"""GPUs and power of the deployments of a search."""

from typing import TYPE_CHECKING

import numpy as np

from ...charts import Axis, Chart, Line, Mark, Panel, Points, Reading
from ...search import pareto_front
from .._page.markup import si

if TYPE_CHECKING:
    from ...serving import SearchResult

_STAR = 7


def deployments_chart(result: "SearchResult", title: str) -> Chart:
    """Return a scatter chart of GPUs and power (W) of the best point of every
    deployment that keeps the limits, with the front of each GPU and the best one."""
    s, choice = result.summary, result.choice
    key = "wall_power_w" if "wall_power_w" in s["best"] else "avg_power_w"
    marks, readings = list[Mark](), list[Reading]()
    rows = choice.best_rows()
    table = choice.table
    names = [choice.candidates[i].gpu for i in table.candidate[rows].tolist()]
    for number, name in enumerate(dict.fromkeys(names)):
        own = rows[np.array(names) == name]
        gpus, power = table.gpus[own].tolist(), table.power[own].tolist()
        marks.append(Points(gpus, power, name, number, number % _STAR, 3.2))
        front = own[pareto_front(table.gpus[own], table.power[own])]
        front = front[np.argsort(table.gpus[front])]
        if len(front) > 1:
            x, y = table.gpus[front].tolist(), table.power[front].tolist()
            marks.append(Line(x, y, "", number, 1.3))
        for row, x, y in zip(own.tolist(), gpus, power, strict=True):
            one = choice.candidates[int(table.candidate[row])]
            how = f"tp {one.tp}, {one.deployment.request.dtype}"
            clock = f"{table.clock[row] / 1e6:.0f} MHz, batch {table.limit[row]:.0f}"
            readings.append(
                Reading(x, y, f"{x:g} x {name} ({how}), {clock}: {si(y, 'W')}")
            )
    best = s["best"]
    at = [float(best["num_gpus"])], [best[key]]
    name = f"best: {best['num_gpus']} x {best['gpu']}"
    marks.append(Points(*at, name, "ink", _STAR, 8.0))
    panel = Panel(
        Axis("GPUs", "", log=True),
        Axis("power of all GPUs" + ", wall" * key.startswith("wall"), "W", log=True),
        marks, readings, height=320.0,
    )  # fmt: skip
    caption = (
        "Each point is a way to serve a replica with a number of replicas, at the "
        "clock and batch limit of least energy within the limits of latency. Lines "
        "join the points of a GPU than which none has fewer GPUs and less power."
    )
    return Chart(title, [panel], caption)
