"""Clocks that a GPU can be locked to."""

from typing import Final

import numpy as np
from jaxtyping import Float

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


def mem_clocks(card: GpuCard) -> Float[np.ndarray, " clock"]:
    """Memory clocks of a GPU, Hz, rising."""
    return np.array(sorted({*card.mem_clocks, card.values["mem_clock"]}))


def unsupported(
    clocks: Float[np.ndarray, " asked"], known: Float[np.ndarray, " clock"]
) -> Float[np.ndarray, " wrong"]:
    """Those of `clocks` that are none of `known` (Hz, within rounding); NaN is a clock
    left alone."""
    away = np.abs(clocks[:, None] - known).min(axis=1)
    return clocks[away >= ROUNDING]


def sm_clock_words(card: GpuCard) -> str:
    """What SM clocks there are, for messages.

    >>> from diffenergy.hardware import read_gpu
    >>> sm_clock_words(read_gpu("a100-pcie-40gb"))
    '210 to 1410 MHz in steps of 15'
    """
    low, top, step = (card.values[f"sm_clock_{x}"] for x in ("min", "max", "step"))
    return f"{low / MHz:g} to {top / MHz:g} MHz in steps of {step / MHz:g}"
