"""View of a collective planned for several sizes."""

import math
from typing import TYPE_CHECKING

import numpy as np

from ..._blocks import Block, Table
from ..._format import Entries, Entry, si
from . import collective

if TYPE_CHECKING:
    from ....charts import Chart
    from ....collectives import SizesResult


def line(result: "SizesResult") -> str:
    """Return a line with the collective, topology and sizes."""
    sizes = [si(s["output_buffer_bytes"], "B") for s in result.summary]
    first = result.summary[0]
    return f"{first['collective']} on {first['topology']}, {', '.join(sizes)} a GPU"


def blocks(result: "SizesResult") -> list[Block]:
    """Return a table with a row for each size."""
    if len(result.results) == 1:
        return list(collective.blocks(result.results[0]))
    columns = (
        ("size", "output_buffer_bytes", "B"),
        ("finish", "finish_s", "s"),
        ("gap", "gap_pct", "{:.2f} %"),
        ("bandwidth", "algo_bw_bytes_per_s", "B/s"),
        ("energy", "energy_j", "J"),
        ("best standard", lambda summary: _best(summary)[1], "s"),
        ("", lambda summary: _best(summary)[0]),
    )
    first = result.summary[0]
    return [
        f"{first['collective']} on {first['topology']}: finish, how far it is above "
        "the bound, and the best standard algorithm's",
        Table(columns, result.summary, left=0),
    ]


def charts(result: "SizesResult") -> "dict[str, Chart]":
    """Return a chart of algorithm bandwidth by size."""
    if len(result.results) == 1:
        return collective.charts(result.results[0])
    from ..._charts.collective import bandwidth_chart

    first = result.summary[0]
    sizes = [s["output_buffer_bytes"] for s in result.summary]
    title = f"{first['collective'].replace('_', '-')} on {first['topology']}"
    chart = bandwidth_chart(sizes, _bandwidths(result.summary), title)
    return {"bandwidth": chart}


def _best(summary: Entry) -> tuple[str | None, float | None]:
    """Name and finish (s) of the fastest standard algorithm."""
    finishes = {name: row["finish_s"] for name, row in summary["baselines"].items()}
    return min(finishes.items(), key=lambda item: item[1], default=(None, None))


def _bandwidths(summaries: Entries) -> dict[str, list[float]]:
    """Algorithm bandwidth (B/s) by size: of the schedule, the bound and the algorithms;
    NaN without a schedule."""
    finish = {
        "this schedule": [s["finish_s"] for s in summaries],
        "bound": [s["lower_bound_s"] for s in summaries],
    }
    for name in dict.fromkeys(name for s in summaries for name in s["baselines"]):
        baselines = [s["baselines"].get(name, {}) for s in summaries]
        finish[name] = [x.get("finish_s", math.nan) for x in baselines]
    buffers = np.array([s["output_buffer_bytes"] for s in summaries])
    return {name: (buffers / times).tolist() for name, times in finish.items()}
