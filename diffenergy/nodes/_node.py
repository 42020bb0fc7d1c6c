"""`Node`: power of a server from that of its boards, in closed form.

    host = host_idle + gain n (P - P0)
    dc   = n P + host
    loss = S (a + b x + c x^2),  x = dc / S
    wall = dc + loss

P: W of one board, mean over a phase; P0: that of an idle board at its lowest clock; n:
boards of a node; S: rated W of all its supplies. All of it is arithmetic, so that P and
P0 may be floats or (traced) arrays. `gain` is what regulators and fans add in
equilibrium: fans of air-cooled servers take `lag` s to get there.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

Watts = Any
"""A float, or an array that may be traced."""


class NodePower(NamedTuple):
    """Power of the nodes that hold some GPUs (W), at their supplies' output (DC) but
    for `loss`, that of the supplies."""

    boards: Watts
    host: Watts
    loss: Watts

    @property
    def dc(self) -> Watts:
        """Boards and host."""
        return self.boards + self.host

    @property
    def wall(self) -> Watts:
        """What the plugs of the nodes supply."""
        return self.dc + self.loss


@dataclasses.dataclass(frozen=True)
class Node:
    """A server of `gpus` boards: what it draws beside them.

    `host_idle`: W (DC) of all but the boards while these idle; `gain`: W (DC) more for
    each W that the boards draw above idle; `psu_loss`: a, b, c of the losses, as shares
    of `psu_total` (W), the rated power of all supplies; `lag`: s in which fans follow;
    `embodied`: kg CO2e of making it, None where nobody said; `life_years`: in which it
    is written off. `grade`: "calibrated" by
    readings under load, "transferred" from idle readings or another server with this
    chassis, "datasheet" where it is built up from its parts. Standard deviations:
    `host_idle_sd` of ln `host_idle`, `gain_sd` of `gain`, `loss_sd` of wall / DC power,
    `node_sd` (relative) from one server of this kind to another.
    """

    name: str
    gpu: str
    gpus: int
    host_idle: float
    gain: float
    psu_loss: tuple[float, float, float]
    psu_total: float
    cooling: str
    lag: float
    embodied: float | None
    life_years: float
    grade: str
    host_idle_sd: float
    gain_sd: float
    loss_sd: float
    node_sd: float
    provenance: Mapping[str, Any] = dataclasses.field(default_factory=dict, repr=False)

    def count(self, gpus: float, whole: bool = False) -> float:
        """Nodes that hold `gpus` boards: a share of one, or all that are begun."""
        return math.ceil(gpus / self.gpus) if whole else gpus / self.gpus

    def power(
        self,
        board: Watts,
        idle: Watts,
        gpus: float | None = None,
        whole: bool = False,
        followed: Watts | None = None,
    ) -> NodePower:
        """Power of the nodes that hold `gpus` boards [one full node] of `board` W each,
        which idle at `idle` W. `whole`: hosts of partly used nodes count whole;
        `followed`: W of a board that fans have followed so far [`board`]."""
        boards = self.gpus if gpus is None else gpus
        nodes = self.count(boards, whole)
        driven = board if followed is None else followed
        host = nodes * self.host_idle + self.gain * boards * (driven - idle)
        a, b, c = self.psu_loss
        rated = nodes * self.psu_total
        load = (boards * board + host) / rated
        loss = rated * (a + b * load + c * load**2)
        return NodePower(boards * board, host, loss)

    def line(
        self, board: Watts, idle: Watts, gpus: float | None = None, whole: bool = False
    ) -> tuple[Watts, Watts]:
        """(A, B) of the tangent at `board` W: wall power = A + B x power of all boards
        (W), so that wall energy = A x time + B x energy of the boards."""
        at = self.power(board, idle, gpus, whole)
        nodes = self.count(self.gpus if gpus is None else gpus, whole)
        load = at.dc / (nodes * self.psu_total)
        slope = (1 + self.gain) * self._supplied(load)
        return at.wall - slope * at.boards, slope

    def _supplied(self, load: Watts) -> Watts:
        """Derivative of wall by DC power at a `load` of the supplies."""
        _, b, c = self.psu_loss
        return 1 + b + 2 * c * load

    def spread(
        self, board: Watts, idle: Watts, gpus: float | None = None, whole: bool = False
    ) -> Watts:
        """Standard deviation of wall power (W) where that of the boards is known."""
        boards = self.gpus if gpus is None else gpus
        nodes, at = self.count(boards, whole), self.power(board, idle, gpus, whole)
        supplied = self._supplied(at.dc / (nodes * self.psu_total))
        return (
            (supplied * nodes * self.host_idle * self.host_idle_sd) ** 2
            + (supplied * boards * (board - idle) * self.gain_sd) ** 2
            + (at.wall * self.loss_sd) ** 2
            + (at.wall * self.node_sd) ** 2
        ) ** 0.5
