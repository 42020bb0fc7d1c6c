"""`EstimateResult`: what an estimate by name gives, as the command shows it."""

import dataclasses
from typing import Any, ClassVar

from ..results import Result
from ..workload import Listing


@dataclasses.dataclass(frozen=True, repr=False)
class EstimateResult(Result):
    """An estimate with its interval, phases and units.

    `summary`: the JSON of `diffenergy estimate --json` (`points` where several clocks
    or limits were asked for); `listings`: the kernels evaluated, a phase each;
    `kernels`: each listed kernel with its figures, None of several points; `notes`:
    what a person should know beside it.
    """

    view: ClassVar[str] = "estimate"
    summary: dict[str, Any]
    listings: list[Listing]
    kernels: list[dict[str, Any]] | None
    notes: list[str]
    detail: bool = False

    @property
    def time(self) -> float:
        """s of the whole workload."""
        return self.summary["time_s"]

    @property
    def energy(self) -> float:
        """J of the board."""
        return self.summary["energy_j"]

    @property
    def power(self) -> float:
        """W, mean over the time."""
        return self.summary["avg_power_w"]
