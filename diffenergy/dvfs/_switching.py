"""`Switching`: what a change of clocks costs."""

import math
from typing import Literal, NamedTuple

SwitchKind = Literal["stall", "lookahead"]


class Switching(NamedTuple):
    """What a change of clocks between two launches costs.

    `stall`: the GPU stands still for `latency`. `lookahead`: requests are sent ahead
    and work goes on, but a setting stays for at least `latency` before the next change.
    Each change takes `energy` besides. `source`: whose latency it is, and who says so.
    """

    kind: SwitchKind = "stall"
    latency: float = 0.0  # s; infinite: clocks never change
    energy: float = 0.0  # J
    source: str = ""

    @classmethod
    def published(
        cls, gpu: str, kind: SwitchKind = "stall", energy: float = 0.0
    ) -> "Switching":
        """With the latency published for a GPU of this name, or for GPUs in general.

        >>> Switching.published("h200-sxm").latency
        0.006
        """
        from ..hardware import switch_latency  # loads numpy

        fact = switch_latency(gpu)
        whose = "GPUs in general" if fact.typical else gpu
        return cls(
            kind, fact.latency, energy, f"{whose} ({fact.quality}; {fact.source})"
        )

    @property
    def free(self) -> bool:
        """Whether changes cost nothing."""
        return self.latency == 0 and self.energy == 0

    @property
    def forbidden(self) -> bool:
        """Whether no change can be paid for."""
        return math.isinf(self.latency) or math.isinf(self.energy)
