"""What an answer says of the wall: power and energy of nodes and site with their
intervals, the four parts, carbon and cost."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from jaxtyping import Float

from ..corrections import least_grade
from ..hardware import GpuCard, idle_power
from ..power_time import PowerCurve
from ..requests import BadRequest
from ..units import kWh
from ._file import foreign_gpu, load_node
from ._node import Node, Watts
from ._request import METER, WallRequest

_FIVE_TO_95: Final = 1.645
"""Standard deviations of a normal distribution from its middle to the 95th
percentile."""
YEAR: Final = 365.25 * 24 * 3600.0


_OF_BOARDS: Final = ("time_s", "avg_power_w", "energy_j")


class Energies(NamedTuple):
    """Energy of spans of time (J): `dc` of the nodes in use behind their supplies; at
    the wall of boards and hosts, both with their share of the supplies' losses, and of
    spare nodes, which idle."""

    dc: Any
    boards: Any
    host: Any
    idle: Any

    @property
    def wall(self) -> Any:
        """Energy of all nodes at the wall (J)."""
        return self.boards + self.host + self.idle


@dataclasses.dataclass(frozen=True)
class Site:
    """Where the boards stand. `carbon`: g/kWh, `price`: of a MWh, None where nobody
    said; `spare`: share of the nodes that idle; `whole`: hosts of partly used nodes
    count whole; `idle`: W of an idle board at its lowest clock."""

    node: Node
    idle: float
    pue: float = 1.0
    carbon: float | None = None
    price: float | None = None
    whole: bool = False
    spare: float = 0.0

    def power(self, board: Watts, gpus: float) -> Watts:
        """Power at the wall (W) of the nodes that hold `gpus` boards of `board` W each,
        and of spare ones."""
        rest = self.node.power(self.idle, self.idle, gpus, self.whole).wall
        spare = rest * self.spare / (1 - self.spare)
        return self.node.power(board, self.idle, gpus, self.whole).wall + spare

    def line(self, board: float, gpus: float) -> tuple[float, float]:
        """(A, B) of the tangent of `power` at `board` W: power at the wall = A + B x
        power of all boards (W); see `Node.line`."""
        _, slope = self.node.line(board, self.idle, gpus, self.whole)
        return self.power(board, gpus) - slope * gpus * board, slope

    def energies(
        self,
        times: Float[np.ndarray, "*p span"],
        powers: Float[np.ndarray, "*p span"],
        gpus: int,
    ) -> Energies:
        """Energies over spans of `times` (s) in which each of `gpus` boards draws
        `powers` (W, mean)."""
        at = self.node.power(powers, self.idle, gpus, self.whole)
        rest = self.node.power(self.idle, self.idle, gpus, self.whole).wall
        share = at.wall / at.dc
        return Energies(
            (times * at.dc).sum(-1),
            (times * at.boards * share).sum(-1),
            (times * at.host * share).sum(-1),
            times.sum(-1) * rest * self.spare / (1 - self.spare),
        )

    def figures(
        self,
        times: Sequence[float],
        powers: Sequence[float],
        gpus: int,
        summary: Mapping[str, Any],
    ) -> dict[str, Any]:
        """Keys of the wall beside those of the boards in `summary` (`time_s`,
        `energy_j`, their intervals, `energy_j_per_token`, `grade`).

        The parts add up to `site_energy_j`. Energy at the wall is A time + B energy of
        the boards (`Node.line`), so that its interval follows from the boards' with the
        correlation that their three intervals imply; those of the node are independent.
        """
        node, spans = self.node, np.asarray(times, float)
        energies = self.energies(spans, np.asarray(powers, float), gpus)
        dc, boards, host, idle = map(float, energies)
        time, wall = float(spans.sum()), float(energies.wall)
        site = self.pue * wall
        mean = float(spans @ np.asarray(powers, float)) / time
        intervals = (summary[f"{x}_p5_p95"] for x in _OF_BOARDS)
        power_sd, energy_sd = self.spreads(
            mean, gpus, idle / time, *map(_sd, intervals)
        )
        power, joules = wall / time, summary["energy_j"]
        each = summary.get("energy_j_per_token")
        per_token = None if each is None else wall * each / joules
        makes = summary.get("phase") == "generate"
        return {
            "node": self.about(gpus, summary["grade"]),
            "node_power_w": dc / time,
            "wall_power_w": power,
            "wall_energy_j": wall,
            "site_power_w": self.pue * power,
            "site_energy_j": site,
            "wall_energy_j_by_part": {
                "accelerator": boards,
                "host": host,
                "idle": idle,
                "overhead": site - wall,
            },
            "wall_energy_j_per_token": per_token,
            "wall_energy_j_per_output_token": per_token if makes else None,
            "wall_power_w_p5_p95": spread_interval(power, power_sd),
            "wall_energy_j_p5_p95": spread_interval(wall, energy_sd),
            "carbon_g": None if self.carbon is None else self.carbon * site / kWh,
            "cost": None if self.price is None else self.price * site / (1e3 * kWh),
            "sci_g": self.sci(site, node.count(gpus, self.whole) * time),
        }

    def about(self, gpus: int, grade: str) -> dict[str, Any]:
        """`node` of an answer about `gpus` boards whose figures have a `grade`."""
        node = self.node
        return {
            "name": node.name,
            "gpus": node.gpus,
            "nodes": node.count(gpus, self.whole),
            "grade": least_grade((node.grade, grade)),
        }

    def curves(self, curve: PowerCurve, gpus: int) -> dict[str, PowerCurve]:
        """Power over time of the nodes (DC), at the wall and of the site from that of
        all boards; fans of air-cooled nodes follow `lag` s late. Spare nodes idle."""
        board, lag = curve.watts / gpus, self.node.lag
        followed = curve.filtered(lag).means / gpus if lag else board
        at = self.node.power(board, self.idle, gpus, self.whole, followed)
        rest = self.node.power(self.idle, self.idle, gpus, self.whole).wall
        wall = at.wall + rest * self.spare / (1 - self.spare)
        return {
            name: PowerCurve(curve.edges, np.asarray(watts), curve.periodic)
            for name, watts in (
                ("node", at.dc),
                ("wall", wall),
                ("site", self.pue * wall),
            )
        }

    def sci(self, site: float, time: float) -> float | None:
        """Software carbon intensity of the whole (ISO/IEC 21031), g CO2e: E I + M, M
        the share of making the nodes in `time` (node s); None if either is unknown."""
        node = self.node
        if self.carbon is None or node.embodied is None:
            return None
        share = time / (node.life_years * YEAR)
        return self.carbon * site / kWh + 1e3 * node.embodied * share

    def spreads(
        self,
        mean: float,
        gpus: int,
        idle: float,
        time: float,
        power: float,
        energy: float,
    ) -> tuple[float, float]:
        """Standard deviations of ln of power and energy at the wall, at the boards'
        `mean` power (W), from those of the boards' time, power and energy; `idle`: W of
        spare nodes."""
        node = self.node
        base, slope = node.line(mean, self.idle, gpus, self.whole)
        at = node.power(mean, self.idle, gpus, self.whole)
        whole = at.wall + idle
        share = slope * at.boards / whole
        rest = (base + idle) / whole
        own = node.spread(mean, self.idle, gpus, self.whole) / at.wall
        together = (energy**2 + time**2 - power**2) / 2  # E = P T
        varied = (
            (share * energy) ** 2 + (rest * time) ** 2 + 2 * share * rest * together
        )
        return (
            math.hypot(share * power, own),
            math.hypot(math.sqrt(max(0.0, varied)), own),
        )


def _sd(interval: Sequence[float]) -> float:
    """Standard deviation of ln of what lies in an interval of 5 to 95 %."""
    low, high = interval
    return math.log(high / low) / (2 * _FIVE_TO_95)


def spread_interval(value: float, sd: float) -> list[float]:
    """5th and 95th percentile of a quantity whose ln has this standard deviation."""
    factor = math.exp(_FIVE_TO_95 * sd)
    return [value / factor, value * factor]


def site_of(request: WallRequest, card: GpuCard) -> tuple[Site | None, dict[str, Any]]:
    """The site of a request, None without a node, and what it assumes."""
    if request.node in (None, "none"):
        for name in ("pue", "carbon", "price", "node_share", "spare"):
            if getattr(request, name) is not None:
                raise BadRequest(f"`{name}` is given without a node; {METER}.", name)
        return None, {}
    node = load_node(request.node, card)
    taken: dict[str, Any] = {}
    if request.node == "default":
        taken["node"] = node.name
    elif built_for := foreign_gpu(request.node, card):
        taken["node"] = f"{node.name}, a server of {built_for}, with {card.name}"
    usual = {"pue": 1.0, "node_share": "used", "spare": 0.0}
    taken |= {name: x for name, x in usual.items() if getattr(request, name) is None}
    site = Site(
        node,
        float(idle_power(card.spec, card.spec.sm_clock_min)),
        request.pue or 1.0,
        request.carbon,
        request.price,
        request.node_share == "whole",
        request.spare or 0.0,
    )
    return site, taken
