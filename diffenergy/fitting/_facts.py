"""What the way of measuring needs to know of each row: loops, sensors, contents; which
runs of a power campaign began on a warm board, and which on an idle one."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Final

import jax.numpy as jnp
import numpy as np

from ..corrections import CorrectionsFile
from ..hardware import GpuCard
from ..kernels import units_dealt
from ..measurements import Columns, MeasurementTable
from ..physics import Instrument, hot_share, replayed_seconds
from ..records import as_float

_LOOP_FACTS: Final = ("loop_seconds", "call_seconds", "loop", "loop_body", "unfilled")
"""Facts of a loop of kernels that a campaign may state."""


def by_row(
    model: Mapping[str, Any],
    name: str,
    columns: Columns,
    index: np.ndarray,
    default: float = 0.0,
) -> np.ndarray:
    """A number of a measurement model for each row: `name` with the row's dtype or
    family behind it, else `name` alone."""
    value = np.full(len(index), float(model.get(name, default)))
    for column in ("dtype", "family"):
        if column not in columns.values:
            continue
        words = columns.values[column][index].astype(str)
        for word in np.unique(words):
            if f"{name}_{word}" in model:
                value[words == word] = model[f"{name}_{word}"]
    return value


def facts_of(
    model: Mapping[str, Any], op: str, columns: Columns, index: np.ndarray
) -> dict[str, np.ndarray]:
    """What a campaign's measurement model needs to know of each kernel."""
    names = dataclasses.fields(Instrument)
    defaults: dict[str, Any] = {field.name: field.default for field in names}
    facts = {
        name: by_row(model, name, columns, index, defaults[name])
        for name in _LOOP_FACTS
    }
    values = {name: column[index] for name, column in columns.values.items()}
    if op == "gemm":
        m, n, k = (np.asarray(values[x], float) for x in "mnk")
        facts |= {"rows": m, "operand_bytes": 12 * n * k}
        if "warm_share" not in model:
            return facts
        narrow = values["dtype"] != "bf16"
        facts |= {
            "narrow": narrow.astype(float),
            "fresh": fresh_process(m, n, k, narrow).astype(float),
            "cold": in_blocks(model.get("cold_blocks", []), m, n),
        }
    elif "gap" in model and "q_len" in values:
        batch, queries, keys, heads, kv_heads, size = (
            np.asarray(values[x], float)
            for x in (
                "batch", "q_len", "kv_len", "num_heads", "num_kv_heads", "head_dim"
            )
        )  # fmt: skip
        made = queries * heads + 2 * keys * kv_heads
        facts |= {"sequences": batch, "operand_bytes": 2 * batch * made * size}
        if "first_q_len" in model:
            first = queries >= model["first_q_len"]
            facts["fresh"] = np.where(first, model["first_length"], 0.0)
    elif "gap" in model and "topk" in values:
        names = ("num_tokens", "num_experts", "topk", "distribution")
        facts["sequences"] = _dealt(*(values[name] for name in names))
    return facts


def _dealt(*columns: np.ndarray) -> np.ndarray:
    """Units of expert load that the host deals out one by one before each run."""
    rows = list(zip(*columns, strict=True))
    known = {
        row: units_dealt(int(row[0]), int(row[1]), int(row[2]), str(row[3]))
        for row in set(rows)
    }
    return np.array([known[row] for row in rows], float)


def instrument_of(
    table: MeasurementTable,
    corrections: CorrectionsFile,
    kind: str,
    rows: np.ndarray,
    gpu: str,
    facts: Mapping[str, np.ndarray],
) -> Instrument:
    """How the rows were read: their campaign's model of loop and sensor."""
    campaigns, which = np.unique(table.campaign[rows].astype(str), return_inverse=True)
    models = [corrections.instrument(name, kind, gpu) for name in campaigns]

    def of(name: str, default: float = 0.0) -> np.ndarray:
        return np.array([model.get(name, default) for model in models])[which]

    iterations = table.iterations[rows]
    known = {
        "startup_seconds": of("startup_seconds"),
        "startup_power": of("startup_power"),
        "iterations": np.where(np.isnan(iterations), np.inf, iterations),
        "burst": of("burst", np.inf),
        **facts,
    }
    rest = {
        field.name: np.full(len(rows), np.asarray(field.default, float))
        for field in dataclasses.fields(Instrument)
        if field.name not in known
    }
    return Instrument(**{name: as_float(x) for name, x in (known | rest).items()})


# --- series of runs: a sweep that pauses leaves blocks whose sensor window still holds
# idle power, known by rows whose power is known: kernels that load the GPU fully

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
    known = np.isfinite(evidence)
    blocks: list[Block] = []
    for size in np.unique(m[known]):
        here = known & (m == size)
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
    seen = (power - idle) / (np.minimum(load, 1.0) * rise)
    us = time * 1e6
    loop, body = np.where(narrow, 1.0, 6.0), np.where(narrow, 70e-6, 270e-6)
    length = np.asarray(replayed_seconds(*map(jnp.asarray, (time, loop, body))))
    few = np.minimum(1.0, m / 128) ** 0.4
    cold = np.where(narrow, 0.04, np.minimum(0.8, 0.26 * us / 60 * few))
    share = lambda w: np.asarray(hot_share(jnp.asarray(length), jnp.asarray(w)))  # noqa: E731
    warm = np.where(narrow, 1.0, share(np.minimum(1.0, length + 0.22)))
    ratio = ((seen - warm) ** 2 - (seen - share(cold)) ** 2) / _SCATTER
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
    """Rows that a process of their own measured: the largest operands."""
    largest = (k == 65536) | ((n == 65536) & (k == 51200))
    return np.where(narrow, m == 32768, largest)
