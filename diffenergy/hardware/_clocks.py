"""Clocks that a GPU can be locked to, and how long a change takes."""

from typing import Final, NamedTuple

import numpy as np
from jaxtyping import Float

from ..files import facts
from ..units import MHz
from ._files import GpuCard

ROUNDING: Final = 1.0 * MHz
"""Hz; tools show clocks in whole MHz, cut or rounded."""


def sm_clocks(card: GpuCard) -> Float[np.ndarray, " clock"]:
    """SM clocks of a GPU, Hz: from the highest one down by its steps.

    >>> from diffenergy.hardware import read_gpu
    >>> sm_clocks(read_gpu("a100-pcie-40gb"))[:2] / 1e6
    array([1410., 1395.])
    """
    low, top, step = (card.values[f"sm_clock_{x}"] for x in ("min", "max", "step"))
    return top - step * np.arange(int((top - low) / step + 1e-6) + 1)


def spread_clocks(
    clocks: Float[np.ndarray, " clock"], number: int
) -> Float[np.ndarray, " _"]:
    """At most so many of the clocks, evenly spread over their order.

    >>> spread_clocks(np.array([1.0, 2.0, 3.0, 4.0, 5.0]), 3)
    array([1., 3., 5.])
    """
    places = np.linspace(0, len(clocks) - 1, number).round().astype(int)
    return clocks[np.unique(places)]


def mem_clocks(card: GpuCard) -> Float[np.ndarray, " clock"]:
    """Memory clocks of a GPU, Hz, rising."""
    return np.array(sorted({*card.mem_clocks, card.values["mem_clock"]}))


def unsupported(
    clocks: Float[np.ndarray, " asked"], available: Float[np.ndarray, " clock"]
) -> Float[np.ndarray, " wrong"]:
    """Those of `clocks` that are none of `available` (Hz, within rounding); NaN, a
    clock left alone, is not among them."""
    away = np.abs(clocks[:, None] - available).min(axis=1)
    return clocks[away >= ROUNDING]


def lockable(card: GpuCard) -> tuple[tuple[Float[np.ndarray, " clock"], str], ...]:
    """SM and memory clocks that a GPU can be locked to, each with words for messages.

    >>> from diffenergy.hardware import read_gpu
    >>> [words for _, words in lockable(read_gpu("a100-pcie-40gb"))]
    ['210 to 1410 MHz in steps of 15', '1215 MHz']
    """
    low, top, step = (card.values[f"sm_clock_{x}"] for x in ("min", "max", "step"))
    sm = f"{low / MHz:g} to {top / MHz:g} MHz in steps of {step / MHz:g}"
    mem = " or ".join(f"{clock / MHz:g}" for clock in mem_clocks(card)) + " MHz"
    return (sm_clocks(card), sm), (mem_clocks(card), mem)


_OTHERS: Final = "gpu-typical"


class SwitchLatency(NamedTuple):
    """From the request until the clock acts (s), and where the figure comes from."""

    latency: float
    source: str
    quality: str
    typical: bool
    """Whether it is that of GPUs in general."""


def switch_latency(gpu: str) -> SwitchLatency:
    """Published latency of a change of the SM clock of a bundled GPU; that of GPUs in
    general where there is none.

    >>> switch_latency("h200-sxm").latency
    0.006
    """
    latencies = facts("clock_switch_latency")
    name = next(
        (name for name, fact in latencies.items() if gpu in fact["gpus"]), _OTHERS
    )
    fact = latencies[name]
    return SwitchLatency(
        fact["latency"], fact["source"], fact["quality"], name == _OTHERS
    )
