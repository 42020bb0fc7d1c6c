"""Which runs of a power campaign began on an idle board: blocks of the shapes of a
sweep that pauses, known by rows whose power is known: kernels that load the GPU fully,
whose readings still hold idle power of the sensor's window."""

from collections.abc import Sequence
from typing import Final

import jax.numpy as jnp
import numpy as np

from diffenergy.hardware import GpuCard
from diffenergy.measurements import MeasurementTable

from .formulas import hot_share, replayed_seconds

_BANDWIDTH, _FLOPS = 0.83, (0.65, 0.51)
"""Shares of the peak rates that a fully loaded GPU reaches (DRAM; 16 and 8 bit), for
the load of a row only."""
_IDLE, _FULL = 0.2, 0.985
"""Power of the idle and of the fully loaded board over its limit."""
_SCATTER: Final = 0.02
"""Twice the variance of the share read."""
_SWITCH: Final = 6.0
"""Evidence that a change of series within one row count must have."""
_CLIP: Final = 4.0

Block = tuple[float, float, float]
"""Rows (m), and first and last n of a block of cold runs."""


def cold_blocks(
    table: MeasurementTable, rows: np.ndarray, card: GpuCard
) -> list[Block]:
    """Blocks of GEMM shapes that ran on an idle board, from the readings of `rows` (all
    of one campaign on `card`); rows without a reading say nothing."""
    m, n, evidence = _evidence(table, rows, card)
    finite = np.isfinite(evidence)
    blocks: list[Block] = []
    for size in np.unique(m[finite]):
        here = finite & (m == size)
        columns = np.unique(n[here])
        score = np.array([evidence[here & (n == c)].sum() for c in columns])
        blocks += [
            (float(size), float(columns[first]), float(columns[last]))
            for first, last in _segments(score)
        ]
    return blocks


def in_blocks(
    blocks: Sequence[Sequence[float]], m: np.ndarray, n: np.ndarray
) -> np.ndarray:
    """1 where a shape lies in one of the blocks (`Block`s, or lists of a file), else
    0."""
    if not blocks:
        return np.zeros(len(m))
    size, low, high = np.array(blocks, float).T[:, :, None]
    return ((m == size) & (n >= low) & (n <= high)).any(0).astype(float)


def _segments(score: np.ndarray) -> list[tuple[int, int]]:
    """Runs of the cold state along a line of evidence: the most likely path of two
    states where each change costs `_SWITCH`."""
    best = np.zeros((2, len(score)))
    came = np.zeros((2, len(score)), int)
    gain = np.stack([-score, score]) / 2
    best[:, 0] = gain[:, 0]
    for i in range(1, len(score)):
        for state in (0, 1):
            stay, change = best[state, i - 1], best[1 - state, i - 1] - _SWITCH
            came[state, i] = state if stay >= change else 1 - state
            best[state, i] = max(stay, change) + gain[state, i]
    state = int(best[1, -1] > best[0, -1])
    path = [state]
    for i in range(len(score) - 1, 0, -1):
        state = int(came[state, i])
        path.append(state)
    cold = np.diff(np.array([0, *path[::-1], 0]))
    first, last = np.flatnonzero(cold > 0), np.flatnonzero(cold < 0) - 1
    return list(zip(first.tolist(), last.tolist(), strict=True))


def _evidence(
    table: MeasurementTable, rows: np.ndarray, card: GpuCard
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(m, n, log-likelihood ratio of cold against warm), NaN where a row says nothing:
    too short or too long, not fully loaded, or of a fresh process."""
    columns = table.fields["gemm"]
    place = np.searchsorted(columns.rows, rows)
    m, n, k = (np.asarray(columns.values[x][place], float) for x in "mnk")
    narrow = columns.values["dtype"][place] != "bf16"
    time, power = table.time_s[rows], table.avg_power_w[rows]
    size = np.where(narrow, 1.0, 2.0)
    moved = (m + n) * k * size + 2 * m * n
    board = card.values
    clocks = board["num_sms"] * board["sm_clock_max"]
    bf16, fp8 = (
        share * clocks * board[f"tensor_flop_per_cycle_{dtype}"]
        for share, dtype in zip(_FLOPS, ("bf16", "fp8"), strict=True)
    )
    load = moved / (time * _BANDWIDTH * board["dram_bandwidth"])
    load += 2 * m * n * k / (time * np.where(narrow, fp8, bf16))
    idle, rise = _IDLE * board["tdp"], (_FULL - _IDLE) * board["tdp"]
    hot = (power - idle) / (np.minimum(load, 1.0) * rise)
    us = time * 1e6
    loop, body = np.where(narrow, 1.0, 6.0), np.where(narrow, 70e-6, 270e-6)
    length = np.asarray(replayed_seconds(*map(jnp.asarray, (time, loop, body))))
    few = np.minimum(1.0, m / 128) ** 0.4
    cold = np.where(narrow, 0.04, np.minimum(0.8, 0.26 * us / 60 * few))
    share = lambda w: np.asarray(hot_share(jnp.asarray(length), jnp.asarray(w)))  # noqa: E731
    warm = np.where(narrow, 1.0, share(np.minimum(1.0, length + 0.22)))
    ratio = ((hot - warm) ** 2 - (hot - share(cold)) ** 2) / _SCATTER
    ratio = np.clip(ratio, -_CLIP, _CLIP)
    short = narrow & (us > 50) & (us < 100)  # decided by the power alone
    ratio = np.where(short, np.where(power < 330, 3.0, -3.0), ratio)
    use = np.where(
        narrow,
        ((us > 100) & (us < 5000) & (load > 0.85)) | (short & (load > 0.25)),
        (us > 7) & (us < 2000) & (load > 0.7),
    )
    use &= np.isfinite(power) & ~fresh_process(m, n, k, narrow)
    return m, n, np.where(use, ratio, np.nan)


def fresh_process(
    m: np.ndarray, n: np.ndarray, k: np.ndarray, narrow: np.ndarray
) -> np.ndarray:
    """Rows with the largest operands, each measured in a process of its own."""
    largest = (k == 65536) | ((n == 65536) & (k == 51200))
    return np.where(narrow, m == 32768, largest)
