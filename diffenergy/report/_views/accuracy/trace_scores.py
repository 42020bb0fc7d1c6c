"""View of predictions against the kernels of a trace."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from ..._blocks import Block, Table
from ..._format import UNKNOWN
from ..._tables.kernels import time_words, traced_name

if TYPE_CHECKING:
    from ....measurements import TraceScores

_MOST_ROWS: Final = 20
"""Maximum number of kernels shown, the greatest error times time first."""


def line(result: "TraceScores") -> str:
    """Return a line with the launches, errors and ratio of the sums."""
    x = result.summary
    if x["whole_ratio"] is None:
        return f"{x['source']} on {x['gpu']}: no kernel has a shape to predict"
    long = x["long_median_pct"]
    over = UNKNOWN if long is None else f"{long:.1f} %"
    return (
        f"{x['source']} on {x['gpu']}: {x['time_rows']:,} launches, median error "
        f"{x['time_median_pct']:.1f} % ({over} over 20 us), "
        f"predicted / traced {x['whole_ratio']:.3f}"
    )


def blocks(result: "TraceScores") -> Iterator[Block]:
    """Yield the summary line, groups, and the kernels with most error."""
    yield line(result)
    by = result.by or ("op",)
    groups = result.summary["groups"] or _by_op(result.kernels)
    columns = (
        (", ".join(by), lambda x: ", ".join(str(x[name]) for name in by)),
        ("launches", "rows", "{:,.0f}"),
        ("traced", "traced_us", time_words),
        ("predicted / traced", "whole_ratio", "{:.2f}"),
    )
    yield Table(columns, groups, fold=[columns[0][0]])
    ranked = result.kernels[:_MOST_ROWS]
    columns = (
        ("kernel", traced_name),
        ("count", "count", "{:.6g}"),
        ("traced", "traced_us", time_words),
        ("predicted", "predicted_us", time_words),
        ("ratio", "ratio", "{:.2f}"),
        ("limit", "limited_by"),
    )
    yield Table(columns, ranked, fold=["kernel"])
    yield (
        "kernel time alone, without launch latency and host; "
        f"{100 * result.summary['shape_share']:.1f} % of the traced time has a shape"
    )


def _by_op(kernels: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    groups: dict[str, dict[str, Any]] = {}
    for x in kernels:
        start = {"op": x["op"], "rows": 0, "traced_us": 0.0, "predicted": 0.0}
        group = groups.setdefault(x["op"], start)
        group["rows"] += x["count"]
        group["traced_us"] += x["traced_total_us"]
        group["predicted"] += (x["predicted_us"] or 0.0) * x["count"]
    for group in groups.values():
        is_priced = group["op"] != "traced" and group["traced_us"] > 0
        group["whole_ratio"] = (
            group["predicted"] / group["traced_us"] if is_priced else None
        )
    return sorted(groups.values(), key=lambda x: -x["traced_us"])
