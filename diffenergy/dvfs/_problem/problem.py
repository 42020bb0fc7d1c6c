"""`Problem`: what every kernel of an iteration costs at every pair of clocks."""

import dataclasses
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from ...units import MHz

LEFT_ALONE: Final = np.nan
"""A clock in `Problem.settings` that is left at its default ("auto")."""


AUTO: Final = (LEFT_ALONE, LEFT_ALONE)
"""The setting that leaves both clocks alone."""


_BY_KERNEL: Final = (
    "stage", "count", "time", "energy", "default_time", "default_energy",
)  # fmt: skip


class Loop(NamedTuple):
    """A run of launches: the kernels of one turn in order, and the number of turns."""

    kernels: tuple[int, ...]
    turns: int


@dataclasses.dataclass(frozen=True)
class Problem:
    """Times and energies of the kernels of one iteration, as NumPy arrays (SI).

    Kernels belong to stages (forward and backward, prefill and decode). `time` and
    `energy` are of one launch; both are infinite where a kernel cannot run at a
    setting. The first setting leaves both clocks alone.

    What a kernel costs at default clocks, `default_time` and `default_energy`, is what
    savings are counted from. In a measured table that is its cost at the first setting.
    In a model the power limiter may hold the default below the highest clock, for a
    whole stage; its first setting then stands for the highest clock, and `power_cap`
    says which mean power a stage may draw before the limiter takes over (infinite where
    the table holds the limiter already).
    """

    kernels: tuple[str, ...]
    stages: tuple[str, ...]
    stage: Int[np.ndarray, " kernel"]  # index in `stages`
    count: Float[np.ndarray, " kernel"]  # launches in one iteration
    settings: Float[np.ndarray, "setting 2"]  # (SM clock, memory clock), Hz; NaN: auto
    time: Float[np.ndarray, "kernel setting"]  # s
    energy: Float[np.ndarray, "kernel setting"]  # J
    default_time: Float[np.ndarray, " kernel"]  # s
    default_energy: Float[np.ndarray, " kernel"]  # J
    loops: tuple[Loop, ...]  # launch order
    power_cap: Float[np.ndarray, " stage"]  # W
    host_time: Float[np.ndarray, " stage"]  # s that the host needs to issue a stage
    wait_power: Float[np.ndarray, " stage"]  # W while the GPU waits for the host

    @property
    def usable(self) -> Bool[np.ndarray, "kernel setting"]:
        """Where a kernel can run."""
        return np.isfinite(self.time)

    @property
    def power(self) -> Float[np.ndarray, "kernel setting"]:
        """Mean power of a launch, W; infinite where a kernel cannot run."""
        usable = self.usable
        time = np.where(usable, self.time, 1.0)
        return np.where(usable, self.energy, np.inf) / time

    def take(self, rows: Int[np.ndarray, " row"], **changes: Any) -> "Problem":
        """Some of the kernels, each as often as it is named, launch order left out;
        `changes` are made besides."""
        found = {name: getattr(self, name)[rows] for name in _BY_KERNEL}
        names = tuple(self.kernels[i] for i in rows)
        changes = {"kernels": names, "loops": (), **found, **changes}
        return dataclasses.replace(self, **changes)

    def sequence(self) -> Int[np.ndarray, " launch"]:
        """Kernel of every launch of one iteration, in order."""
        turns = [np.tile(loop.kernels, loop.turns) for loop in self.loops]
        return np.concatenate(turns).astype(np.int64)


class Total(NamedTuple):
    """An iteration, or each of several."""

    time: Float[np.ndarray, "*plan"]  # s
    energy: Float[np.ndarray, "*plan"]  # J


def pair_text(pair: Sequence[float] | Float[np.ndarray, "2"]) -> str:
    """A setting (Hz) as `--default-clock` takes it: 1410, 1410,9501 or auto,9501.

    >>> pair_text((1.41e9, LEFT_ALONE))
    '1410'
    """
    sm, mem = ("auto" if np.isnan(x) else f"{x / MHz:g}" for x in pair)
    return sm if mem == "auto" else f"{sm},{mem}"
