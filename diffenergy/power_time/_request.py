"""What an answer is asked for of power over time."""

from typing import Annotated, Any, Final, NamedTuple

from msgspec import Meta

from .. import reading
from ..requests import Request, Text
from ..schema import MOST

KNOBS: Final = {"floor": "", "up": "", "down": "", "hysteresis": "s", "storage": "J"}
"""Knobs, and units of bare numbers (ramps: W/s)."""


class Smoothing(NamedTuple):
    """Knobs of the hardware, of one GPU. `floor`: share of its TDP that a board draws
    at least (dummy work); `up`, `down`: W/s by which its power rises and falls at most;
    `hysteresis`: s that it waits before it falls; `storage`: J in the rack. None: there
    is no such knob.
    """

    floor: float | None = None
    up: float | None = None
    down: float | None = None
    hysteresis: float | None = None
    storage: float | None = None


_SMOOTH: Final = (
    "give floor=SHARE of TDP, up=W/s, down=W/s, hysteresis=S (with down), storage=J of "
    "a GPU, or several of these"
)


def _smooth(flag: str, text: str) -> Smoothing:
    """Knobs of a text such as `floor=0.6,storage=65`."""
    knobs: dict[str, float] = {}
    for part in text.split(","):
        name, equals, value = (x.strip() for x in part.partition("="))
        if not equals or name not in KNOBS or name in knobs:
            raise ValueError(f"`{flag}` is '{text}'; {_SMOOTH}.")
        knobs[name] = reading.positive(f"{flag} {name}", value, KNOBS[name])
    if "hysteresis" in knobs and "down" not in knobs:
        raise ValueError(f"`{flag}` has hysteresis without down; give both or neither.")
    return Smoothing(**knobs)


def _taken(name: str, value: Any) -> Any:
    """The same of a text from Python."""
    return _smooth(name, value) if isinstance(value, str) else value


PowerStep = Annotated[
    float,
    Meta(gt=0, le=MOST, description="allowed is a number above 0 (s)"),
    Text("S", reading.seconds, unit="s"),
]
Smooth = Annotated[Smoothing, Text("KEY=X[,...]", _smooth, take=_taken)]
POWER: Final = ("power_step", "smooth", "events")
"""Fields that ask for power over time."""
STEP_HELP: Final = "Power over time in steps of so long [with --power-trace 0.1]."
SMOOTH_HELP: Final = (
    "What smoothing costs: floor=0.6 (of TDP), up=500,down=100 (W/s a board), "
    "hysteresis=0.5 (s), storage=65 (J a GPU)."
)


class PowerRequest(Request):
    """Power over time."""

    power_step: Annotated[PowerStep | None, STEP_HELP] = None
    smooth: Annotated[Smooth | None, SMOOTH_HELP] = None
