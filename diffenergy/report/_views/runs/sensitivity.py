"""View of a workload's sensitivity to a GPU's numbers."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..._blocks import Block
from ..._format import change
from ..._tables.effects import effect_table

if TYPE_CHECKING:
    from ....estimator import SensitivityResult


def line(result: "SensitivityResult") -> str:
    """Return a line with the three largest effects."""
    words = [
        f"{x['field']} {x['step']:+g} {x['unit']}: "
        + ", ".join(
            f"{name} {change(x[f'{name}_pct'])}"
            for name in ("time", "energy")
            if f"{name}_pct" in x
        )
        for x in result.rows[:3]
    ]
    return "; ".join(words) or "no number of the GPU matters"


def blocks(result: "SensitivityResult") -> Iterator[Block]:
    """Yield the table of effects and warnings."""
    yield effect_table(result.rows)
    yield from (f"warning: {x}" for x in result.summary.get("warnings", ()))
