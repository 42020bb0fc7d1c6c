"""View of a fit of a server to its meter."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..._blocks import Block, Table
from ..._format import digits

if TYPE_CHECKING:
    from ....fitting import NodeFit


def line(result: "NodeFit") -> str:
    """Return a line with the server, the number of readings and their errors."""
    s = result.summary
    errors = [digits(s[x]["wall_mape_pct"], 3) for x in ("before", "after")]
    return (
        f"{s['gpus']} x {s['gpu']}, readings: {s['rows']} ({s['grade']}): mean error "
        f"at the wall {errors[1]} %, with {s['node']} as it was {errors[0]} %"
    )


def blocks(result: "NodeFit") -> Iterator[Block]:
    """Yield errors, and the constants before and after."""
    yield line(result)
    rows = [
        (
            name,
            x["unit"],
            digits(x["before"], 4),
            digits(x["value"], 4),
            " to ".join(digits(y, 4) for y in x["p5_p95"]),
        )
        for name, x in result.summary["constants"].items()
    ]
    header = ("constant", "unit", "before", "fitted", "5 to 95 %")
    yield Table(header, rows, left=2)
