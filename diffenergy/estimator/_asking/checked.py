"""`Checked`: what a request asks for, read and checked."""

import dataclasses
import functools
from typing import Any

from ...corrections import CorrectionsFile, Trust
from ...hardware import GpuCard, GpuSpec
from ...nodes import Site
from ...plans import Plan
from ...power_time import Goodput, Job, Smoothing
from ...workload import Listing
from .settings import Setting
from .work import TrainingWork


@dataclasses.dataclass(frozen=True)
class Checked:
    """A request whose every part was read and checked."""

    card: GpuCard
    corrections: CorrectionsFile
    settings: list[Setting]
    listings: list[Listing]
    about: dict[str, Any]
    trust: Trust
    warnings: list[str]
    memory: dict[str, Any]
    """Bytes by part, their total, the capacity and whether it fits; None: not known."""
    detail: bool = False
    plan: Plan | None = None
    stages: list[dict[str, int | float]] | None = None
    """Layers and bytes of every stage of the plan."""
    step: TrainingWork | None = None
    """Of training on several GPUs."""
    tokens: int | float | None = None
    """Tokens of a whole training run, if it is asked for."""
    site: Site | None = None
    """Where the boards stand; None where they alone count."""
    power_step: float | None = None
    """s of the steps of power over time, where it is asked for."""
    smooth: Smoothing | None = None
    events: Job | None = None
    """What interrupts the steps of a training."""
    goodput: Goodput | None = None
    """What failures and checkpoints cost a whole run, if it is said."""
    sensitivity: tuple[str, ...] = ()
    """What is to be known of one more of each number of the GPU ("time", "energy")."""

    @functools.cached_property
    def gpu(self) -> GpuSpec:
        """The GPU's numbers with the constants asked for."""
        return self.card.served(self.corrections)
