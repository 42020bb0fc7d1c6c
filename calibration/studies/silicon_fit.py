"""The fits behind `diffenergy/data/facts/silicon.toml`: die area and idle power."""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy.optimize
from jaxtyping import Bool, Float

from diffenergy.codesign._space.silicon import (
    CHANNELS_PER_STACK,
    IdleModel,
    board_channels,
    die_channels,
    is_stacked,
)
from diffenergy.hardware import (
    AreaModel,
    Circuits,
    Die,
    count_circuits,
    process_rules,
    published_dies,
    read_gpu,
)
from diffenergy.hardware._dies import Process, idle_readings, sram_area


class Fit(NamedTuple):
    """A regression and how well it does; one row a die or board.

    `left_out`: prediction of a row by a fit without any row of its die.
    """

    names: tuple[str, ...]
    measured: Float[np.ndarray, " row"]
    fitted: Float[np.ndarray, " row"]
    left_out: Float[np.ndarray, " row"]
    coefficients: Float[np.ndarray, " term"]

    @property
    def residuals(self) -> Float[np.ndarray, " row"]:
        """Fitted / measured - 1."""
        return self.fitted / self.measured - 1

    @property
    def left_out_errors(self) -> Float[np.ndarray, " row"]:
        """Predicted by the others / measured - 1."""
        return self.left_out / self.measured - 1


def die_circuits(die: Die) -> Circuits:
    """Circuits of a whole die, its SMs as the file of its first GPU has them."""
    return count_circuits(
        read_gpu(die.gpus[0]).values, die.num_sms, die.l2_capacity, die_channels(die)
    )


@functools.cache
def area_fit() -> Fit:
    """Least squares of the relative error of the area over every published die."""
    rows = [(die_circuits(die), process_rules(die.process)) for die in published_dies()]
    terms = np.array([_area_terms(c, rules) for c, rules in rows])
    known = np.array([sram_area(c.sram, rules.bit_cell) for c, rules in rows])
    areas = np.array([die.die_area for die in published_dies()])
    names = [die.name for die in published_dies()]
    return regression(names, names, terms, areas, known)


@functools.cache
def idle_fit() -> Fit:
    """Least squares of the relative error of the idle power over the boards read."""
    boards = [name for name, reading in idle_readings().items() if reading.fit]
    watts = np.array([idle_readings()[name].power for name in boards])
    terms = np.array([idle_terms(name) for name in boards])
    owners = [_die(name).name for name in boards]
    return regression(boards, owners, terms, watts, np.zeros(len(boards)))


def idle_terms(gpu: str) -> tuple[float, float, float]:
    """10^9 transistors, HBM stacks and GDDR channels of a bundled GPU; transistors in
    proportion to the SMs that are switched on (spare ones have no supply)."""
    card, die = read_gpu(gpu), _die(gpu)
    stacked, channels = is_stacked(card.memory), board_channels(card)
    return (
        die.transistors / 1e9 * card.values["num_sms"] / die.num_sms,
        channels / CHANNELS_PER_STACK if stacked else 0.0,
        0.0 if stacked else channels,
    )


def regression(
    names: Sequence[str],
    dies_of: Sequence[str],
    terms: Float[np.ndarray, "row term"],
    measured: Float[np.ndarray, " row"],
    known: Float[np.ndarray, " row"],
) -> Fit:
    """Non-negative x with the least sum of ((terms x + known) / measured - 1)^2.

    `dies_of`: the die of every row, which is left out as one.
    """

    matrix, target = terms / measured[:, None], 1 - known / measured

    def solved(rows: Bool[np.ndarray, " row"]) -> Float[np.ndarray, " term"]:
        return scipy.optimize.nnls(matrix[rows], target[rows])[0]

    owners = np.array(dies_of)
    everyone = solved(np.full(len(measured), True))
    left_out = [
        terms[i] @ solved(owners != owners[i]) + known[i] for i in range(len(measured))
    ]
    fitted = terms @ everyone + known
    return Fit(tuple(names), measured, fitted, np.array(left_out), everyone)


def _area_terms(c: Circuits, rules: Process) -> tuple[float, float, float]:
    return rules.logic_area * c.sms, rules.logic_area * c.lanes, c.channels


def stored() -> str:
    """TOML text of `silicon.toml`: one table per regression."""
    models = {"area": (AreaModel, area_fit()), "idle": (IdleModel, idle_fit())}
    lines = []
    for name, (kind, fit) in models.items():
        errors = np.abs(fit.left_out_errors)
        numbers = dict(zip(kind._fields, fit.coefficients, strict=True))
        numbers |= {"left_out_mean": errors.mean(), "left_out_worst": errors.max()}
        lines += [f"[{name}]", *(f"{key} = {x:.17g}" for key, x in numbers.items())]
    return "\n".join(lines)


def _die(gpu: str) -> Die:
    """The die of a board with an idle reading (the facts hold no other boards)."""
    return next(die for die in published_dies() if gpu in die.gpus)
