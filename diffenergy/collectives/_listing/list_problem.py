"""What list scheduling of chunks that can be copied is asked, and what it gives."""

import dataclasses
import functools
from typing import Final

import numpy as np
from jaxtyping import Bool, Float, Int

from .._machine.routes import Clock, Routes, routes
from .._machine.topology import Topology

_DEADLINES: Final = 4
"""Different deadlines among restarts."""
_SOONER: Final = 1e-6
"""Least gain that counts, as a share of the finish."""


@dataclasses.dataclass(frozen=True)
class Problem:
    """What has to go where. `release`: when a node holds a block at the start, else
    infinite; `free`: when each lane of each link is first free (infinite: no lane)."""

    topology: Topology
    clock: Clock
    release: Float[np.ndarray, "node block"]
    wanted: Bool[np.ndarray, "node block"]
    useful: Bool[np.ndarray, "node block"]
    """Where a block may be brought at all."""
    free: Float[np.ndarray, "link lane"]

    @functools.cached_property
    def routes(self) -> Routes:
        """Paths from GPU to GPU."""
        return routes(self.topology, self.clock)


@dataclasses.dataclass(frozen=True)
class Plan:
    """Sends of whole blocks in the clock's unit, and the finish."""

    link: Int[np.ndarray, " send"]
    block: Int[np.ndarray, " send"]
    start: Float[np.ndarray, " send"]
    end: Float[np.ndarray, " send"]
    finish: float


@dataclasses.dataclass(frozen=True)
class Aim:
    """How to search: restarts from a seed, for a finish below `limit` and at best at
    `least`, in the clock's unit."""

    restarts: int
    seed: int
    limit: float = np.inf
    least: float = 0.0

    @property
    def deadlines(self) -> Float[np.ndarray, " restart"]:
        """When everything must be there in each restart: without a limit, never; then
        from just below it down towards the least, so that slow links stand still
        rather than bring something too late."""
        if np.isinf(self.limit):
            return np.full(self.restarts, np.inf)
        share = (np.arange(self.restarts) % _DEADLINES) / _DEADLINES
        below = self.limit * (1 - _SOONER)
        return np.maximum(self.least, below - share * max(0.0, below - self.least))


def lanes(clock: Clock, most: int) -> Float[np.ndarray, "link lane"]:
    """Zero for every lane that a link has, infinite beyond; at most `most` lanes."""
    count = np.minimum(clock.lanes, most)
    return np.where(np.arange(count.max()) < count[:, None], 0.0, np.inf)
