"""Survey of the machine: identity of the GPU, settable clocks, other processes."""

import dataclasses
import math
import os
import re
from collections.abc import Callable, Sequence
from typing import Final, Literal, NamedTuple

from ..hardware import GpuCard, read_gpu
from ..units import MHz, MiB
from . import _runner_jax as runner_jax
from . import _runner_torch as runner_torch
from ._plan import FREE, auto_clocks, board_of, unknown_board
from ._runner import Runner
from ._sensor import About, Sensor
from ._shapes import Board

_L2: Final = 64 * MiB
"""L2 of a GPU that nothing is known of: larger than most, so that buffers rotate."""


class Identity(NamedTuple):
    """Name of a GPU in our files (`card`), or a derived name with notes."""

    name: str
    card: GpuCard | None
    notes: tuple[str, ...]


def identify(about: About, named: str | None) -> Identity:
    """Identifies the board; `named`: name that the user gives it, if not None."""
    card_by_name = _known_gpu(about.name)
    if named is not None:
        card = read_gpu(named, exact=True)
        name = row_name(named, card)
        other = card_by_name is not None and card_by_name.name != card.name
        note = f"the board calls itself '{about.name}'; its rows say {name}, as given"
        return Identity(name, card, (note,) if other else ())
    if card_by_name is not None:
        return Identity(card_by_name.name, card_by_name, ())
    words = about.name.lower().removeprefix("nvidia")
    name = re.sub(r"[^a-z0-9]+", "-", words).strip("-") or "unknown"
    note = (
        f"'{about.name}' is in none of our GPU files; its rows say {name}, and `fit` "
        "and `evaluate` need `--gpu FILE.toml` for them"
    )
    return Identity(name, None, (note,))


def row_name(named: str, card: GpuCard) -> str:
    """GPU name in the rows: a `.toml` path as given, else the card's name."""
    return named if named.lower().endswith(".toml") else card.name


def _known_gpu(name: str) -> GpuCard | None:
    for word in (name, name.removeprefix("NVIDIA ")):
        try:
            return (
                read_gpu(word, exact=True)
                if word and not word.endswith(".toml")
                else None
            )
        except ValueError:
            continue
    return None


def survey(sensor: Sensor, identity: Identity, l2: float) -> Board:
    """The board as a plan needs it; `l2`: bytes that the runner reports."""
    memory = sensor.about.memory
    if identity.card is None:
        has_memory = not math.isnan(memory)
        cache = _L2 if math.isnan(l2) else l2
        board = unknown_board(identity.name, memory if has_memory else 8e9, cache)
    else:
        board = board_of(identity.card)
        free = board.memory if math.isnan(memory) else memory * FREE
        board = dataclasses.replace(board, memory=min(board.memory, free))
    return dataclasses.replace(
        board, clocks=sensor.clocks(), limits=sensor.power_limits()
    )


def swept_clocks(
    clocks: Sequence[float] | Literal["auto"], board: Board
) -> tuple[float, ...]:
    """Clocks to sweep (Hz): those of `clocks`, or about eight of the board's ("auto").

    Raises `ValueError` if the board does not support one.
    """
    if clocks == "auto":
        if not board.clocks:
            raise ValueError(
                f"`clocks` is 'auto', but {board.name} does not tell its clocks; "
                "give them, such as `--clocks 600,900,1200`."
            )
        return auto_clocks(board.clocks)
    for clock in clocks if board.clocks else ():
        near = min(board.clocks, key=lambda supported: abs(supported - clock))
        if abs(near - clock) > 0.5 * MHz:
            raise ValueError(
                f"`clocks` is {clock / MHz:g}; {board.name} supports "
                f"{min(board.clocks) / MHz:g} to {max(board.clocks) / MHz:g} MHz in "
                f"steps, the nearest {near / MHz:g}."
            )
    return tuple(clocks)


def check_limits(limits: Sequence[float], board: Board) -> None:
    """Raises `ValueError` for a power limit (W) that cannot be set."""
    if board.limits is None:
        return
    low, high = board.limits
    for limit in limits:
        if not low <= limit <= high:
            raise ValueError(
                f"`power_limits` is {limit:g}; {board.name} allows {low:g} to "
                f"{high:g} W."
            )


def check_board(about: About) -> None:
    """Raises `ValueError` for a board whose readings are not those of its kernels."""
    if about.mig:
        raise ValueError(
            f"GPU {about.index} is divided (MIG), so that its power is not that of one "
            f"kernel; turn MIG off with `nvidia-smi -i {about.index} -mig 0`."
        )


def watch(sensor: Sensor, before: frozenset[int] | None) -> Callable[[], bool | None]:
    """Tells whether others compute on the board (None: not told). `before`: processes
    there before ours came, whose id a container may hide from it."""
    now = sensor.processes()
    ours = (now or frozenset()) - (before or frozenset()) | {os.getpid()}

    def others() -> bool | None:
        present = sensor.processes()
        return None if present is None else bool(present - ours)

    return others


# --- Which library runs the kernels of a measurement.


def find_runner(uuid: str) -> Runner:
    """PyTorch with CUDA if it is installed, else JAX with a GPU, on the board `uuid`.

    Call it before either library has used a GPU.
    """
    if uuid:
        os.environ["CUDA_VISIBLE_DEVICES"] = uuid
    runner = runner_torch.torch_on_gpu() or runner_jax.jax_on_gpu()
    if runner is None:
        raise ValueError(
            "neither PyTorch with CUDA nor JAX with a GPU is installed, or the driver "
            "does not serve it; `pip install torch` or `pip install 'jax[cuda12]'` "
            "brings one."
        )
    return runner
