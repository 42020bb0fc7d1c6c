"""`Schedule`: sends of blocks over links, in continuous time."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from jaxtyping import Float, Int

from ._demand import Demand
from ._topology import Topology

Some = TypeVar("Some", bound="Columns")


class Columns:
    """A record (dataclass) whose fields are columns of one length."""

    def __len__(self) -> int:
        return len(self._columns()[0])

    def _columns(self) -> list[np.ndarray]:
        fields = dataclasses.fields(self)  # pyright: ignore[reportArgumentType]
        return [getattr(self, field.name) for field in fields]

    def take(self: Some, rows: Int[np.ndarray, " kept"] | slice) -> Some:
        """The record with some of the rows."""
        return type(self)(*(column[rows] for column in self._columns()))

    @classmethod
    def joined(cls: type[Some], parts: Sequence[Some]) -> Some:
        """One record of the rows of all parts, one after the other."""
        columns = zip(*(part._columns() for part in parts), strict=True)
        return cls(*map(np.concatenate, columns))


@dataclasses.dataclass(frozen=True)
class Sends(Columns):
    """Sends as columns, in any order; times in s from the start of the collective.

    `start`: the first byte enters the link; `end`: the last byte has arrived, latency
    included; `bytes`: of the block (less than the whole block for a part of it).
    `phase`: 0 for plain sends and sums (a reduction's way in), 1 for the way out of an
    all-reduce.
    """

    block: Int[np.ndarray, " send"]
    link: Int[np.ndarray, " send"]
    start: Float[np.ndarray, " send"]
    end: Float[np.ndarray, " send"]
    bytes: Float[np.ndarray, " send"]
    phase: Int[np.ndarray, " send"]


@dataclasses.dataclass(frozen=True)
class Schedule:
    """Who sends what when. `epoch`: s, and `epochs` used, where a method has epochs."""

    topology: Topology
    demand: Demand
    sends: Sends
    epoch: float | None = None
    epochs: int | None = None

    @functools.cached_property
    def sources(self) -> Int[np.ndarray, " send"]:
        """Node from which each send starts."""
        return self.topology.sources[self.sends.link]

    @functools.cached_property
    def targets(self) -> Int[np.ndarray, " send"]:
        """Node that each send goes to."""
        return self.topology.targets[self.sends.link]

    @property
    def last_end(self) -> float:
        """When the last send has arrived, s; 0 without sends."""
        return float(self.sends.end.max(initial=0.0))

    def with_sends(self, sends: Sends) -> "Schedule":
        """The schedule with other sends."""
        return dataclasses.replace(self, sends=sends)
