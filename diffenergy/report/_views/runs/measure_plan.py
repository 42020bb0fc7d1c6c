"""View of a measurement plan."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..._blocks import Block, Table
from ..._format import Entry

if TYPE_CHECKING:
    from ....measure import MeasurePlan


def line(result: "MeasurePlan") -> str:
    """Return a line with the number of points and the expected time."""
    content = result.summary
    minutes = content["seconds"] / 60
    kinds = (("done", "done before"), ("later", "left for another call"))
    more = "".join(f", {content[x]} {words}" for x, words in kinds if content[x])
    count = len(content["points"])
    return f"{count} points on {content['gpu']}, about {minutes:.1f} min{more}"


def blocks(result: "MeasurePlan") -> Iterator[Block]:
    """Yield a table of all points."""
    yield line(result)
    columns = (
        ("", "number"),
        ("class", "class"),
        ("kernel", _kernel_words),
        ("start", "start"),
        ("MHz", "sm_clock_mhz_set", "{:g}"),
        ("W", "power_limit_w_set", "{:g}"),
        ("sets", "copies"),
    )
    points = [{**p, "number": i} for i, p in enumerate(result.summary["points"], 1)]
    yield Table(columns, points, left=4, fold=("kernel",))
    yield "-: set by the GPU; sets: copies of tensors that launches alternate between"


def _kernel_words(point: Entry) -> str:
    names = (
        "fn", "batch", "m", "n", "k", "rows", "cols", "elements", "q_len", "kv_len",
        "num_heads", "num_kv_heads", "head_dim", "dtype",
    )  # fmt: skip
    sizes = [str(point[name]) for name in names if point.get(name) not in (None, 1)]
    return " ".join([point["op"], *sizes])
