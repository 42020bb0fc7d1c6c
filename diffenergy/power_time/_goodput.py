"""`Goodput`: share of a training's time in which its steps go on for good."""

import math
from typing import NamedTuple

from ..results import Infeasible
from ..units import hour


class Goodput(NamedTuple):
    """What a second of useful steps costs beside it: `lost` s of work that a failure
    undoes, `waiting` s at checkpoints and restarts; `restarts` and `checkpoints` (None:
    not known) in it. `mtbf`: GPU-hours between failures; `every`: s between
    checkpoints."""

    lost: float = 0.0
    waiting: float = 0.0
    restarts: float | None = None
    checkpoints: float | None = None
    mtbf: float | None = None
    every: float | None = None

    @property
    def share(self) -> float:
        """Useful time over all time."""
        return 1 / (1 + self.lost + self.waiting)

    def added(self, time: float) -> list[tuple[float, float]]:
        """What a step of `time` s brings of each kind: its s, and the share of the
        boards that wait meanwhile."""
        return [(self.lost * time, 0.0), (self.waiting * time, 1.0)]


def goodput_of(
    gpus: int,
    goodput: float | None = None,
    mtbf: float | None = None,
    restart: float = 0.0,
    checkpoint_time: float = 0.0,
    checkpoint_every: float | None = None,
) -> Goodput | None:
    """The share that is given, of which all the rest waits, or that of `gpus` GPUs of
    which one fails every `mtbf` GPU-hours; None without either.

    M = mtbf / gpus between failures, r to restart, d for a checkpoint every tau
    (sqrt(2 d M); J. W. Young, CACM 1974), all in s:

        goodput = (1 - d/(tau + d)) M/(M + r + tau/2)

    Raises `Infeasible` where M <= r.

    >>> round(goodput_of(16_384, None, 50_700.0, 600.0, 10.0).share, 3)
    0.911
    """
    if goodput is not None:
        return Goodput(waiting=1 / goodput - 1)
    if mtbf is None:
        return None
    between = mtbf * hour / gpus
    if between <= restart:
        raise Infeasible(
            f"`mtbf` is {mtbf:g} GPU-hours, so that one of {gpus:,} GPUs fails every M "
            f"= {between:.4g} s, while a `restart` takes {restart:g} s: the run would "
            "never finish; give fewer GPUs, or a shorter restart."
        )
    every = checkpoint_every or math.sqrt(2 * checkpoint_time * between)
    lost = every / (2 * between)
    # a failure undoes checkpoints, too, which are then written again
    checkpoints = (1 + lost) / every
    restarts = (1 + checkpoint_time / every) / between
    waiting = checkpoints * checkpoint_time + restarts * restart
    return Goodput(lost, waiting, restarts, checkpoints, mtbf, every)
