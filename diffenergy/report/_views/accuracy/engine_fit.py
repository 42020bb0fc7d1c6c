"""How a fit of engines reads."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..._format import digits
from ..._tables.columns import table

if TYPE_CHECKING:
    from ....serving import EngineFit

_WORDS = {
    "tpot": "time per token", "ttft": "first token", "power": "power",
    "energy": "energy per token",
}  # fmt: skip


def line(result: "EngineFit") -> str:
    """Rows and hosts."""
    hosts = [f"{x['engine']} on {x['gpu']}" for x in result.summary["groups"]]
    return f"{result.summary['rows']} servers: {', '.join(hosts)}"


def parts(result: "EngineFit") -> Iterator[Any]:
    """Errors before and after, and the constants that moved."""
    yield line(result)
    for group in result.summary["groups"]:
        title = f"{group['engine']} on {group['gpu']}, {group['rows']} rows"
        rows = [
            {
                "name": words,
                "before": digits(group["before"][f"{key}_mape_pct"], 3),
                "after": digits(group["after"][f"{key}_mape_pct"], 3),
            }
            for key, words in _WORDS.items()
            if group["after"][f"{key}_mape_pct"] is not None
        ]
        columns = (("mean error, %", "name"), ("before", "before"), ("after", "after"))
        yield table(columns, rows, title=title)
        moved = [
            {"name": name, "unit": x["unit"]}
            | {key: digits(x[key], 3) for key in ("before", "value")}
            for name, x in group["constants"].items()
        ]  # fmt: skip
        yield table(
            (("constant", "name"), ("unit", "unit"), ("before", "before"),
             ("fitted", "value")),
            moved, left=2,
        )  # fmt: skip
