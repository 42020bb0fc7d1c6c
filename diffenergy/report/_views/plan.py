"""How a plan of measurements reads."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from .._tables.measuring import plan_line, plan_parts

if TYPE_CHECKING:
    from ...measure import PlanResult


def line(result: "PlanResult") -> str:
    """Points, GPU, minutes."""
    return plan_line(result.summary)


def parts(result: "PlanResult") -> Iterator[Any]:
    """Every point."""
    return plan_parts(result.summary)
