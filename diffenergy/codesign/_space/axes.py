"""`Axis`: one number that a search may change, with its bounds and legal values."""

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
from jaxtyping import Float

from ...hardware import die_of, mem_clocks, sm_clocks
from ...plans import NETWORK_FIELD
from .ranges import Range, rule_of

if TYPE_CHECKING:
    from ...hardware import GpuCard

POINT: Final = ("sm_clock", "mem_clock", "power_cap")
"""Fields of the operating point that can be searched."""
_SPAN: Final = 2.0
"""Default bounds: the base value divided and multiplied by this."""
_TPC: Final = 2.0
"""SMs that are switched off together where the die's GPCs are not known."""
_WHOLE: Final = ("max_threads_per_sm", "max_ctas_per_sm")
_NEAR: Final = 1e-6


@dataclasses.dataclass(frozen=True)
class Axis:
    """One number of a design space, SI.

    `legal`: rising values that hardware offers within the bounds; None where every
    number does. `base`: the value that the search starts from.
    """

    name: str
    low: float
    high: float
    base: float
    legal: tuple[float, ...] | None = None

    @property
    def values(self) -> Float[np.ndarray, " value"]:
        """Legal values; none for a continuous axis."""
        return np.array(self.legal or ())


def axes(
    card: "GpuCard", ranges: Sequence[Range], network: float = math.inf
) -> tuple[Axis, ...]:
    """Axes of the GPU and operating point that grow out of `card`; `network`: B/s of
    the network card of a GPU, infinite where nothing passes one.

    Raises `ValueError` for an unknown or repeated field, for bounds that are not
    positive, in the wrong order, or exclude every legal value.
    """
    names = [entry.name for entry in ranges]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"`{name}` is varied twice; name it once.")
    if NETWORK_FIELD in names and math.isinf(network):
        raise ValueError(
            "`network` is varied, but no GPU sends anything over a network; give a "
            "plan of training on several hosts."
        )
    return tuple(_axis(card, entry, network) for entry in ranges)


def _axis(card: "GpuCard", entry: Range, network: float) -> Axis:
    name = entry.name
    rule_of(name)
    base, low, high = _defaults(card, name, network)
    if low == high and entry.low is entry.high is None:
        raise ValueError(
            f"`{name}` of {card.name} has no value but {low:g}; leave it out, or give "
            "bounds."
        )
    low = low if entry.low is None else float(entry.low)
    high = high if entry.high is None else float(entry.high)
    _check_bounds(card, name, low, high)
    return Axis(name, low, high, base, _legal(card, name, base, low, high))


def _check_bounds(card: "GpuCard", name: str, low: float, high: float) -> None:
    """Raises `ValueError` for bounds that cannot be meant."""
    if not (math.isfinite(low) and math.isfinite(high) and 0 < low):
        raise ValueError(
            f"`{name}` is to lie between {low:g} and {high:g}; allowed are finite "
            "bounds above 0 (SI)."
        )
    if low >= high:
        raise ValueError(
            f"`{name}` is to lie between {low:g} and {high:g}; give the lower bound "
            "first, and room between the two."
        )
    rule = rule_of(name)
    if high < rule.low or low > rule.high:
        rule.check(name, high if high < rule.low else low)
    limits = [card.values[f"power_limit_{end}"] for end in ("min", "max")]
    if name == "power_cap" and not limits[0] <= low <= high <= limits[1]:
        raise ValueError(
            f"`{name}` is to lie between {low:g} and {high:g} W; {card.name} allows "
            f"{limits[0]:g} to {limits[1]:g} W."
        )


def _defaults(card: "GpuCard", name: str, network: float) -> tuple[float, float, float]:
    """Value of the field on `card` and its default bounds, SI."""
    v = card.values
    match name:
        case "sm_clock":
            return v["sm_clock_max"], v["sm_clock_min"], v["sm_clock_max"]
        case "mem_clock":
            clocks = mem_clocks(card)
            return v["mem_clock"], float(clocks[0]), float(clocks[-1])
        case "power_cap":
            return v["tdp"], v["power_limit_min"], v["power_limit_max"]
    base = network if name == NETWORK_FIELD else v[name]
    rule = rule_of(name)
    return base, max(base / _SPAN, rule.low), min(base * _SPAN, rule.high)


def _legal(
    card: "GpuCard", name: str, base: float, low: float, high: float
) -> tuple[float, ...] | None:
    """Values that hardware offers between the bounds."""
    offered = _offered(card, name, base, max(high, _SPAN * base))
    if offered is None:
        return None
    inside = (offered >= low * (1 - _NEAR)) & (offered <= high * (1 + _NEAR))
    legal = tuple(sorted(float(x) for x in offered[inside]))
    if not legal:
        near = offered[np.argsort(np.abs(np.log(offered / math.sqrt(low * high))))[:3]]
        raise ValueError(
            f"`{name}` is to lie between {low:g} and {high:g}, where {card.name} has "
            f"no legal value; nearest: {', '.join(f'{x:g}' for x in sorted(near))}."
        )
    return legal


def _offered(
    card: "GpuCard", name: str, base: float, high: float
) -> Float[np.ndarray, " value"] | None:
    """Values of a discrete field up to `high`: clocks as locked, SMs in steps of a GPC
    from those of the base, DRAM in stacks, counts whole. None: continuous."""
    if name == "sm_clock":
        return sm_clocks(card)
    if name == "mem_clock":
        return mem_clocks(card)
    if name == "num_sms":
        die = die_of(card.served_as)
        step = float(die.sms_per_gpc) if die is not None else _TPC
        return _grid(base, step, high)
    if name == "dram_bandwidth" and card.physical.get("dram_stacks"):
        per_stack = base / float(card.physical["dram_stacks"])
        return _grid(base, per_stack, high)
    if name in _WHOLE:
        return np.arange(1.0, math.floor(high) + 1)
    return None


def _grid(base: float, step: float, high: float) -> Float[np.ndarray, " value"]:
    """Positive values base + k step up to `high`."""
    below = math.ceil(base / step - _NEAR) - 1
    above = max(0, math.floor((high - base) / step + _NEAR))
    return base + step * np.arange(-below, above + 1)
