"""AIConfigurator's kernel tables: parquet files of latency and, for some, power.

They lie in the package `aiconfigurator-core` under
`systems/data/<gpu>/<family>/<framework>/<version>/*.parquet` (`pip install` it, then
give its folder). Latency is ms of one launch, power W of the board; tokens in the KV
cache are `isl` + `step`.
"""

import re
from collections import defaultdict
from pathlib import Path
from typing import Final

import numpy as np
import pandas as pd

from diffenergy.imports import bundled_gpu
from diffenergy.measurements import Sheet
from diffenergy.measurements._shapes import DTYPE_WORDS
from diffenergy.measurements.importers.base import (
    Column,
    drop,
    finish,
    join,
    note,
    number,
    pick,
    text,
)

NAME = "aiconfigurator"
ABOUT = "kernel tables of an installed aiconfigurator-core (parquet): time, some power"

_ANY_OP: Final = {
    "framework": text("framework", "backend", needed=False),
    "version": text("version", "framework_version", needed=False),
    "device": text("device", "gpu", "gpu_name", needed=False),
    "kernel_source": text("kernel_source", needed=False),
    "latency": number("latency", "latency_ms", "avg_ms"),
    "power": number("power", "avg_power", "avg_power_w", "power_w", needed=False),
    "power_limit_w": number("power_limit", "power_limit_w", "tdp", needed=False),
}
_ATTENTION: Final = {
    "batch": number("batch_size", "batch"),
    "isl": number("isl", "seq_len", "input_len"),
    "step": number("step", needed=False),
    "beam_width": number("beam_width", needed=False),
    "num_heads": number("num_heads"),
    "num_kv_heads": number("num_key_value_heads", "num_kv_heads"),
    "head_dim": number("head_dim", "head_size"),
    "window_size": number("window_size", needed=False),
    "dtype": text("attn_dtype", "dtype"),
    "kv_cache_dtype": text("kv_cache_dtype", "kv_dtype", needed=False),
}
_OPS: Final[dict[str, dict[str, Column]]] = {
    "gemm": {
        "m": number("m"),
        "n": number("n"),
        "k": number("k"),
        "dtype": text("gemm_dtype", "dtype"),
    },
    "context_attention": _ATTENTION,
    "generation_attention": _ATTENTION,
    "moe": {
        "num_tokens": number("num_tokens"),
        "hidden_size": number("hidden_size"),
        "inter_size": number("inter_size", "intermediate_size"),
        "topk": number("topk", "top_k"),
        "num_experts": number("num_experts"),
        "moe_tp_size": number("moe_tp_size", "tp_size", needed=False),
        "moe_ep_size": number("moe_ep_size", "ep_size", needed=False),
        "distribution": text("distribution", needed=False),
        "dtype": text("moe_dtype", "dtype"),
    },
}
"""Our op, with our field and its spellings in the source."""

_DISTRIBUTION: Final = re.compile(r"balanced|power_law_\d+(\.\d+)?")


def read(path: Path) -> dict[str, pd.DataFrame]:
    """Tables `<gpu>_<op>`, one for every GPU and op that is found under `path`.

    Files of other ops (communication, MLA, ...) and of unknown GPUs are left out.
    """
    if not path.exists():
        raise ValueError(f"{path}: no such file or folder; check the path.")
    files = [path] if path.is_file() else sorted(path.rglob("*.parquet"))
    parts = defaultdict(list)
    others: dict[str, int] = defaultdict(int)
    for file in files:
        op = _op(file)
        if op is None:
            others[file.stem] += 1
            continue
        for gpu, table in _tables(file, op):
            if gpu:
                parts[gpu, op].append(table)
            else:
                others[f"{file.stem} of a GPU without a file"] += 1
    if not parts:
        raise ValueError(
            f"{path} has no .parquet table of {', '.join(_OPS)} of a known GPU; give "
            f"the folder `systems/data` of aiconfigurator-core."
        )
    tables = {
        f"{gpu}_{op}": finish(join(tables).assign(gpu=gpu, op=op))
        for (gpu, op), tables in sorted(parts.items())
    }
    if others:
        first = next(iter(tables))
        listed = ", ".join(f"{count} x {stem}" for stem, count in others.items())
        tables[first] = note(tables[first], f"files left out: {listed}.")
    return tables


def _op(file: Path) -> str | None:
    """Op of a file by its name (which may end in `_perf`), or else by its family."""
    stem = file.stem.lower().removesuffix("_perf")
    family = file.parts[-4].lower() if len(file.parts) > 3 else ""
    return next((name for name in (stem, family) if name in _OPS), None)


def _tables(file: Path, op: str) -> list[tuple[str | None, pd.DataFrame]]:
    """Rows of one file by GPU, which the folder names, or else the column `device`."""
    table = pick(_sheet(file), _ANY_OP | _OPS[op])
    parents = reversed(file.parts[:-1])
    folder = next((gpu for part in parents if (gpu := bundled_gpu(part))), None)
    if folder or "device" not in table:
        return [(folder, _converted(table, op, file))]
    converted = _converted(table, op, file)
    parts = converted.groupby(table.loc[converted.index, "device"], sort=False)
    return [(bundled_gpu(str(word)), part.copy()) for word, part in parts]


def _sheet(file: Path) -> Sheet:
    try:
        import pyarrow
        import pyarrow.parquet as parquet
    except ImportError:
        raise ValueError(
            "these tables are parquet files, which need pyarrow; "
            "`pip install pyarrow` and try again."
        ) from None
    try:
        columns = parquet.read_table(file).to_pydict()
    except (pyarrow.ArrowException, OSError) as error:
        raise ValueError(
            f"{file} cannot be read as parquet ({error}); copy it again."
        ) from None
    cells = {
        name: np.array(["" if v is None else str(v) for v in values], dtype=object)
        for name, values in columns.items()
    }
    return Sheet(str(file), cells, len(next(iter(cells.values()), ())))


def _converted(table: pd.DataFrame, op: str, file: Path) -> pd.DataFrame:
    """Rows of one file in our columns, without `gpu` and `op`."""
    table = table.copy()
    table["time_us"] = 1e3 * table["latency"]
    table["avg_power_w"] = table["power"] if "power" in table else np.nan
    table["framework"] = _framework(table, file)
    if op.endswith("_attention"):
        table = _attention(table, op)
    if op == "moe" and "distribution" in table:
        odd = ~table["distribution"].str.fullmatch(_DISTRIBUTION.pattern)
        table = drop(table, odd & (table["distribution"] != ""), "routing not known")
    dtypes = [c for c in ("dtype", "kv_cache_dtype") if c in table]
    table = _keep_dtypes(table, *dtypes)
    gone = ("latency", "power", "version", "device", "isl", "step", "beam_width")
    return table.drop(columns=[*gone], errors="ignore")


def _framework(table: pd.DataFrame, file: Path) -> pd.Series | str:
    """`framework/version`, from the columns or else from the folders of the file."""
    if {"framework", "version"} <= set(table):
        return table["framework"].str.lower() + "/" + table["version"]
    return "/".join(file.parts[-3:-1]).lower()


def _attention(table: pd.DataFrame, op: str) -> pd.DataFrame:
    if "beam_width" in table:
        table = drop(table, table["beam_width"] > 1, "beam search")
    heads = table["num_heads"]
    table["num_kv_heads"] = table["num_kv_heads"].where(
        table["num_kv_heads"] > 0, heads
    )
    uneven = (heads % table["num_kv_heads"]) != 0
    table = drop(table, uneven, "`num_kv_heads` does not divide `num_heads`")
    past = table["step"].fillna(0.0) if "step" in table else 0.0
    table["kv_len"] = table["isl"] + past
    table["q_len"] = 1.0 if op == "generation_attention" else table["isl"]
    return table


def _keep_dtypes(table: pd.DataFrame, *columns: str) -> pd.DataFrame:
    """`table` without rows whose dtype is none of ours."""
    for column in columns:
        for word in table[column].unique():
            if word and word not in DTYPE_WORDS:
                why = f"`{column}` '{word}' is no dtype of the listing format"
                table = drop(table, table[column] == word, why)
    return table
