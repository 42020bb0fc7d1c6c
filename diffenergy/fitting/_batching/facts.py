"""What the way of measuring needs to know of each row: loops, sensors, contents."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from ...corrections import CorrectionsFile
from ...kernels import units_dealt
from ...measurements import Columns, MeasurementTable
from ...physics import Instrument
from ...records import as_float
from .series import fresh_process, in_blocks

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
