"""What `plan` gives: `CollectiveResult`, of several sizes `SizesResult`."""

import dataclasses
import os
from typing import Any, ClassVar

from ...files import write_text_atomic
from ...hardware import GpuSpec
from ...results import Result
from .._energy.energy import CollectiveEnergy, schedule_energy
from .._formats.export import sends_csv
from .._formats.msccl import msccl_xml
from .._formats.verify_file import VerifyResult, verify
from .._schedule.schedule import Schedule
from .._standard.baselines import Baselines
from .search import Plan


@dataclasses.dataclass(frozen=True, repr=False)
class CollectiveResult(Result):
    """A verified schedule and all that is said about it.

    `summary`: the JSON of `diffenergy collective --json`; `found`: the schedule with
    its bounds, in seconds and epochs; `energy`: J of links, memory and waiting GPUs;
    `baselines`: the standard algorithms on the same links (`found` by name, `unfit`
    says why); `gpu`: whose power counts, None where the machine names none.
    """

    view: ClassVar[str] = "collective"
    summary: dict[str, Any]
    found: Plan
    energy: CollectiveEnergy
    baselines: Baselines
    gpu: GpuSpec | None = None

    @property
    def schedule(self) -> Schedule:
        """Every send with its link, start and end."""
        return self.found.schedule

    @property
    def finish(self) -> float:
        """s until the last wanted block has arrived."""
        return self.found.finish

    @property
    def bound(self) -> float:
        """s that no schedule beats."""
        return self.found.bound

    @property
    def gap(self) -> float:
        """finish / bound - 1."""
        return self.found.gap

    @property
    def certified(self) -> bool:
        """Whether none is shorter: in epochs, or in continuous time."""
        return self.found.certified

    @property
    def method(self) -> str:
        """What found the schedule."""
        return self.found.method

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C ended the search, so that this is the best so far."""
        return self.found.interrupted

    def baseline_energy(self, name: str) -> CollectiveEnergy:
        """J of one of the standard algorithms. Raises `ValueError` for one that is not
        there."""
        known = self.baselines.found
        if name not in known:
            raise ValueError(f"`name` is {name!r}; allowed are {', '.join(known)}.")
        return schedule_energy(known[name].schedule, self.gpu)

    def verify(self) -> VerifyResult:
        """Replays the schedule by code that knows machine and demand alone; raises
        `Violation` for the first thing wrong."""
        return verify(self.schedule)

    def to_csv(self, path: str | os.PathLike[str] | None = None) -> str:
        """The sends as CSV; also written to `path`, if given."""
        return _written(sends_csv(self.schedule), path)

    def to_xml(self, path: str | os.PathLike[str] | None = None) -> str:
        """The schedule as MSCCL XML; also written to `path`, if given. Raises
        `ValueError` for what MSCCL has no word for."""
        return _written(msccl_xml(self.schedule), path)


@dataclasses.dataclass(frozen=True, repr=False)
class SizesResult(Result):
    """A collective for several sizes; `summary`: the JSON of each, in order."""

    view: ClassVar[str] = "collective_sizes"
    summary: list[dict[str, Any]]
    results: list[CollectiveResult]


def _written(text: str, path: str | os.PathLike[str] | None) -> str:
    if path is not None:
        write_text_atomic(path, text)
    return text
