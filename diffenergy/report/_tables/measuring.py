"""Tables of `measure`: the plan, and what came of it."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .tables import table


def plan_line(content: Mapping[str, Any]) -> str:
    """How much is planned."""
    minutes = content["seconds"] / 60
    known = (("done", "done before"), ("later", "left for another call"))
    more = "".join(f", {content[x]} {words}" for x, words in known if content[x])
    count = len(content["points"])
    return f"{count} points on {content['gpu']}, about {minutes:.1f} min{more}"


def plan_parts(content: Mapping[str, Any]) -> Iterator[Any]:
    """What `measure --dry-run` prints."""
    points = content["points"]
    yield plan_line(content)
    rows = [
        (
            str(number),
            p["class"],
            _kernel_words(p),
            p["start"],
            _or_dash(p["sm_clock_mhz_set"]),
            _or_dash(p["power_limit_w_set"]),
            str(p["copies"]),
        )
        for number, p in enumerate(points, 1)
    ]
    columns = ("", "class", "kernel", "start", "MHz", "W", "sets")
    yield table(columns, rows, left=4, fold=("kernel",))
    yield "-: left to the GPU; sets: of tensors that launches take turns with"


def _kernel_words(point: Mapping[str, Any]) -> str:
    names = (
        "fn", "batch", "m", "n", "k", "rows", "cols", "elements", "q_len", "kv_len",
        "num_heads", "num_kv_heads", "head_dim", "dtype",
    )  # fmt: skip
    sizes = [str(point[name]) for name in names if point.get(name) not in (None, 1)]
    return " ".join([point["op"], *sizes])


def _or_dash(value: float | None) -> str:
    return "-" if value is None else f"{value:g}"


def measured_line(summary: Mapping[str, Any]) -> str:
    """How much was measured."""
    stopped = f" ({summary['stopped']})" if summary["stopped"] else ""
    return (
        f"{summary['measured']} points measured, {len(summary['failed'])} left out, "
        f"{summary['remaining']} remain{stopped}; {summary['file']} has "
        f"{summary['rows']} rows"
    )


def measured_parts(
    summary: Mapping[str, Any], rows: Sequence[Mapping[str, str]]
) -> Iterator[Any]:
    """What `measure` prints."""
    yield measured_line(summary)
    lines = [
        (kind, str(count), *(_span(rows, kind, x) for x in ("time_us", "avg_power_w")))
        for kind, count in summary["classes"].items()
    ]
    yield table(("class", "rows", "us", "W"), lines)
    yield f"next: diffenergy fit {summary['file']} --out mine.json"


def _span(rows: Sequence[Mapping[str, str]], kind: str, column: str) -> str:
    """Least and greatest value of a class."""
    own = [row[column] for row in rows if row["class"] == kind and row.get(column)]
    if not own:
        return "-"
    values = sorted(map(float, own))
    return f"{values[0]:.4g} to {values[-1]:.4g}"
