"""`MeasureRequest`: which kernels are measured, and what of the GPU may be set."""

import functools
from collections.abc import Sequence
from typing import Annotated, Literal

from msgspec import Meta

from .. import reading
from ..requests import Flag, Limits, Request, Seed, Text, Whole

Clocks = Sequence[float] | Literal["auto"] | None
_minutes = functools.partial(reading.positive, unit="min")
_Seconds = Annotated[
    float,
    Meta(gt=0, description="allowed is above 0 s"),
    Text("MIN", _minutes, unit="s"),
]


def _classes(flag: str, text: str) -> tuple[str, ...]:
    from ._shapes import check_classes

    return check_classes([part.strip() for part in text.split(",")])


def _clocks(flag: str, text: str) -> tuple[float, ...] | Literal["auto"]:
    return "auto" if text.strip() == "auto" else reading.clocks(flag, text)


class MeasureRequest(Request):
    """Kernels, time, clocks and limits of a measuring plan."""

    seconds: Annotated[
        _Seconds, Flag("Maximum duration; also 90s or 2h [20].", name="--minutes")
    ] = 1200.0
    points: Annotated[Whole, "Maximum number of points, measured ones included"] = 200
    only: Annotated[
        Sequence[str], Flag("Kernel classes [all].", "CLASS[,CLASS...]", _classes)
    ] = ()
    zeros: Annotated[bool, "Fill operands with zeros instead of random numbers."] = (
        False
    )
    clocks: Annotated[
        Clocks, Flag("SM clocks to sweep [auto: eight].", "MHZ[,MHZ...]|auto", _clocks)
    ] = None
    power_limits: Annotated[Limits, "Power limits to sweep."] = ()
    seed: Annotated[Seed, "Seed of drawn shapes"] = 0
