"""View of an imported program: its kernels and time by class."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from ..._blocks import Block, Table
from ..._tables.kernels import time_words, traced_name

if TYPE_CHECKING:
    from ....imports import ImportResult

_MOST_ROWS: Final = 25
"""Maximum number of rows shown, the longest first."""


def line(result: "ImportResult") -> str:
    """Return a line with the source and the number of kernels and rows."""
    summary = result.summary
    where = f" on {summary['gpu']}" if summary["gpu"] else ""
    parts = (
        f"{summary['source']} ({summary['kind']}){where}: {summary['kernels']:,} "
        f"kernels, {summary['rows']:,} rows"
    )
    if summary["sum_us"] is None:
        return parts
    return (
        f"{parts}, {summary['sum_us'] / 1e3:.3f} ms; of the time "
        f"{100 * summary['class_share']:.1f} % has a class, "
        f"{100 * summary['shape_share']:.1f} % a shape"
    )


def blocks(result: "ImportResult") -> Iterator[Block]:
    """Yield the summary line, classes, the longest rows, and unknown kernels."""
    summary = result.summary
    yield line(result)
    total = summary["sum_us"]
    if total:
        columns = (
            ("class", 0),
            ("time", 1, time_words),
            ("share", lambda x: x[1] / total, "{:.1%}"),
        )
        yield Table(columns, summary["classes"].items())
    rows = [x for listing in result.listings for x in listing.kernels]
    key = (lambda x: -x["traced_total_us"]) if total else (lambda x: 0)
    shown = sorted(rows, key=key)[:_MOST_ROWS]
    columns = [("kernel", traced_name), ("count", "count", "{:.6g}")]
    if total:
        columns += [
            ("traced", "traced_us", time_words),
            ("total", "traced_total_us", time_words),
            ("found by", "how"),
        ]
    yield Table(columns, shown, fold=["kernel"])
    if len(rows) > len(shown):
        yield f"and {len(rows) - len(shown):,} more rows; --out listing.jsonl has all"
    if summary["unknown"]:
        names = ", ".join(x["name"][:40] for x in summary["unknown"][:5])
        yield f"kernels of no known class: {names}"
