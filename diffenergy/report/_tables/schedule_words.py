"""Words of frequency schedules that views and charts share."""

from typing import Final

from .._format import Entry

BASELINES: Final = {
    "iteration": "one pair of clocks",
    "phase": "one pair a stage",
    "power_limit": "power limit alone",
}
"""Names of the baselines in words."""
FREE: Final = "if changes were free"


def free_case(summary: Entry) -> Entry | None:
    """What free changes of clocks would save, where changes cost something."""
    return summary["free"] if summary.get("switch_kind") else None
