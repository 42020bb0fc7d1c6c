"""Words of frequency schedules that views and charts share."""

from typing import Final

from .._format import Entry

BASELINES: Final = {
    "iteration": "one pair of clocks",
    "phase": "one pair a stage",
    "power_limit": "power limit alone",
}
"""Display names of the baselines."""
FREE: Final = "if changes were free"


def free_case(summary: Entry) -> Entry | None:
    """Return the savings if clock changes were free, if they cost something."""
    return summary["free"] if summary.get("switch_kind") else None
