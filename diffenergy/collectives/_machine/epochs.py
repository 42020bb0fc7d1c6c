"""`EpochModel`: time cut into epochs, as published for TE-CCL (SIGCOMM 2024).

With tau the epoch, b the chunk, and a link of rate r and latency alpha:

- capacity r tau / b chunks an epoch; over any 1 + beta epochs in a row, with
  beta = max(0, ceil(b / (r tau)) - 1), at most floor((1 + beta) r tau / b);
- delay a = ceil(alpha / tau) epochs where alpha > tau / 10, else 0;
- what is sent in epoch k can be sent on from epoch k + 1 + beta + a; out of a switch
  whose exit is free from epoch k + a.
"""

import dataclasses
from typing import Final

import numpy as np
from jaxtyping import Float, Int

from .topology import Topology

_ROUNDING: Final = 1e-9
"""Quotients this near a whole number are that number."""
_SHORTEST: Final = 200.0
"""Least latency / shortest epoch."""
_NEGLIGIBLE: Final = 0.1
"""Latencies below this share of an epoch count as none."""


@dataclasses.dataclass(frozen=True)
class EpochModel:
    """Links in epochs of `tau` s, for chunks of `chunk` B; axes (link,)."""

    tau: float
    chunk: float
    capacity: Float[np.ndarray, " link"]  # chunks an epoch
    window: Int[np.ndarray, " link"]  # epochs that a limit spans: 1 + beta
    most: Int[np.ndarray, " link"]  # chunks in any window
    delay: Int[np.ndarray, " link"]  # a, epochs
    hop: Int[np.ndarray, " link"]  # epochs from a send to the next: 1 + beta + a


def epoch_length(topology: Topology, chunk: float, kind: str = "fastest") -> float:
    """s that a chunk (B) takes on the fastest or slowest link, at least a 200th of the
    least latency (machines with a link of no latency are exempt)."""
    rates = topology.rates
    tau = chunk / (rates.max() if kind == "fastest" else rates.min())
    return max(tau, float(topology.latencies.min()) / _SHORTEST)


def epoch_model(topology: Topology, chunk: float, tau: float) -> EpochModel:
    """The links of `topology` in epochs of `tau` s."""
    share = topology.rates * tau / chunk
    window = np.maximum(np.ceil(1 / share - _ROUNDING), 1).astype(int)
    most = np.floor(window * share + _ROUNDING).astype(int)
    ratio = topology.latencies / tau
    delay = np.ceil(ratio - _ROUNDING) * (ratio > _NEGLIGIBLE)
    delay = delay.astype(int)
    hop = window + delay
    if topology.free_exit:
        out = ~topology.stores[topology.sources]
        hop = np.where(out, delay, hop)
    return EpochModel(tau, chunk, share, window, most, delay, hop)
