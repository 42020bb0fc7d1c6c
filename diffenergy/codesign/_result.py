"""`SearchResult` and `TuneResult`: designs and tiles as the command shows them."""

import dataclasses
import os
from collections.abc import Sequence
from typing import Any, ClassVar

from ..hardware import GpuCard, gpu_toml
from ..results import Result, written
from ..workload import Listing
from ._problem.card import design_card
from ._problem.problem import Found, Problem, Score
from ._summary import path_json
from ._tiles.tuning import Tuning


@dataclasses.dataclass(frozen=True, repr=False)
class SearchResult(Result):
    """The best legal design that a search found, with what holds it back.

    `summary`: the JSON of `diffenergy codesign --json`; `found`: the same as records,
    with active limits, sensitivities and front; `problem`: the space, goals and limits;
    `card`: the GPU that designs grow out of; `notes`: what a person should know beside.
    """

    view: ClassVar[str] = "design"
    summary: dict[str, Any]
    found: Found
    problem: Problem
    card: GpuCard
    notes: list[str]

    @property
    def best(self) -> Score:
        """The best design: `fields` by name, time, energy and more, SI."""
        return self.found.best

    @property
    def start(self) -> Score:
        """The GPU as it is, on the same workload."""
        return self.found.start

    @property
    def interrupted(self) -> bool:
        """Whether the search was cut short; the best may then pass a limit."""
        return self.found.interrupted

    @property
    def path(self) -> list[dict[str, Any]]:
        """The best legal design near the descent after every round."""
        return path_json(self.found)

    @property
    def refusal(self) -> str:
        """Which limits the best design passes, and what it reaches of them."""
        return self._views().refusal(self)

    def to_toml(
        self, name: str = "design", path: str | os.PathLike[str] | None = None
    ) -> str:
        """The best design as a GPU file called `name`; also written to `path`, if
        given, whole or not at all. Clocks to run at and tiles are no part of it."""
        card = design_card(self.card, self.problem, self.best, name)
        return written(gpu_toml(card), path)


@dataclasses.dataclass(frozen=True, repr=False)
class TuneResult(Result):
    """The best legal tile of every matrix product of a workload.

    `summary`: the JSON of `diffenergy codesign --tune-tiles --json`; `tuning`: the same
    as records; `notes`: what a person should know beside.
    """

    view: ClassVar[str] = "tiles"
    summary: dict[str, Any]
    tuning: Tuning
    notes: list[str]

    @property
    def listings(self) -> Sequence[Listing]:
        """The kernels with their tiles, a phase each."""
        return self.tuning.listings
