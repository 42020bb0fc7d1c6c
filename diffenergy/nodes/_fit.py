"""A node's `host_idle` and `gain` from readings of its wall power."""

import dataclasses
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from msgspec.structs import replace
from scipy.optimize import least_squares

from ..files import facts
from ..hardware import GpuCard, idle_power
from ._file import NodeFile, build_node
from ._node import Node

_HOST_PRIOR_SD: Final = 0.25
"""Of ln `host_idle` around that of the parts."""
_READING_SD: Final = 0.01
"""Of ln wall power of one reading where the boards' power is known."""
_LIMIT_SD: Final = 0.03
"""The same where only their power limit is: boards draw up to it, not always it."""

_LOADED: Final = 2.0
"""Board power / that of an idle board, from which a reading tells of load: boards that
hold contexts draw up to 1.8 times as much."""


class Reading(NamedTuple):
    """Wall power of a node (W) while each of its boards draws `board` W, None while
    they idle; `at_limit`: `board` is a power limit that rules them; `where`: what a
    refusal of it begins with."""

    wall: float
    board: float | None = None
    at_limit: bool = False
    where: str = ""

    def power(self, card: GpuCard) -> float:
        """Mean power of a board (W)."""
        if self.board is None:
            return float(idle_power(card.spec, card.spec.sm_clock_min))
        return self.board * (card.values["cap_fraction"] if self.at_limit else 1.0)


def fit_node(file: NodeFile, card: GpuCard, readings: Sequence[Reading]) -> Node:
    """The node of a file with `host_idle` and `gain` by least squares of ln wall power,
    around what its parts and its form factor say; a `gain` of the file is that of its
    kind, from which a server's own differs as much as others of the form factor do.

    Raises `ValueError` for a reading below what the boards alone draw.
    """
    idle = float(idle_power(card.spec, card.spec.sm_clock_min))
    prior = build_node(file, card)
    gain_width = file.gain_sd or build_node(replace(file, gain=None), card).gain_sd
    board = np.array([x.power(card) for x in readings])
    wall = np.array([x.wall for x in readings])
    for reading, each in zip(readings, board, strict=True):
        if reading.wall <= prior.gpus * each:
            raise ValueError(
                f"{reading.where}`wall_w` is {reading.wall:g}, not more than its "
                f"{prior.gpus} boards draw ({prior.gpus * each:.0f} W); give the power "
                "of the whole node."
            )
    sd = np.array([_LIMIT_SD if x.at_limit else _READING_SD for x in readings])

    def node(x: np.ndarray) -> Node:
        host, gain = prior.host_idle * float(np.exp(x[0])), float(x[1])
        return dataclasses.replace(prior, host_idle=host, gain=gain)

    def residuals(x: np.ndarray) -> np.ndarray:
        errors = np.log(np.asarray(node(x).power(board, idle).wall) / wall) / sd
        gain = (x[1] - prior.gain) / gain_width
        return np.array([*errors, x[0] / _HOST_PRIOR_SD, gain])

    best = least_squares(residuals, [0.0, prior.gain])
    covariance = np.linalg.inv(best.jac.T @ best.jac)
    spread = facts("hosts")["spread"]
    host_sd, gain_sd = np.sqrt(np.diag(covariance))
    loaded = bool((board > _LOADED * idle).any())
    return dataclasses.replace(
        node(best.x),
        grade="calibrated" if loaded else "transferred",
        host_idle_sd=max(float(host_sd), spread["host_idle_measured"]),
        gain_sd=max(float(gain_sd), spread["gain_measured"])
        if loaded
        else float(gain_sd),
    )
