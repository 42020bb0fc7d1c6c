"""View of a fit of serving engines."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..._blocks import Block, Table
from ..._format import digits

if TYPE_CHECKING:
    from ....serving import EngineFit

_WORDS = {
    "tpot": "time per token", "ttft": "first token", "power": "power",
    "energy": "energy per token",
}  # fmt: skip


def line(result: "EngineFit") -> str:
    """Return a line with the number of rows and the hosts."""
    hosts = [f"{x['engine']} on {x['gpu']}" for x in result.summary["groups"]]
    return f"{result.summary['rows']} servers: {', '.join(hosts)}"


def blocks(result: "EngineFit") -> Iterator[Block]:
    """Yield errors before and after, and the changed constants."""
    yield line(result)
    for group in result.summary["groups"]:
        title = f"{group['engine']} on {group['gpu']}, {group['rows']} rows"
        errors = [group["before"], group["after"]]
        rows = [
            (words, *(digits(x[f"{key}_mape_pct"], 3) for x in errors))
            for key, words in _WORDS.items()
            if group["after"][f"{key}_mape_pct"] is not None
        ]
        yield Table(("mean error, %", "before", "after"), rows, title=title)
        moved = [
            (name, x["unit"], digits(x["before"], 3), digits(x["value"], 3))
            for name, x in group["constants"].items()
        ]
        yield Table(("constant", "unit", "before", "fitted"), moved, left=2)
