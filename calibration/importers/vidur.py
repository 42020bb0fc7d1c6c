"""Vidur's profiles: fp16 ops of language models, by tensor parallelism and tokens.

Matrix products, adds, norms and activations. The timer counts whole microseconds, so
that short kernels are left out.
"""

from pathlib import Path
from typing import Final

import numpy as np
import pandas as pd

from diffenergy.measurements.importers.base import (
    drop,
    files_in,
    finish,
    name_gpus,
    number,
    read_columns,
    text,
)

NAME = "vidur"
ABOUT = "converted Vidur profiles: fp16 GEMM, add, norm, activation of LLM layers"

_COLUMNS: Final = {
    "gpu": text("gpu"),
    "source_model": text("model"),
    "source_op": text("op"),
    "tp": number("tp"),
    "width": number("n_embd"),
    "time_us": number("time_us"),
    "m": number("m"),
    "n": number("n"),
    "k": number("k"),
    "dtype": text("dtype"),
}
_NORMS: Final = ("input_layernorm", "post_attention_layernorm")
_LAYERNORM: Final = ("microsoft/phi-2",)
"""Models with layer norms; the others have RMS norms."""
SHORTEST: Final = 20.0
"""us; below it the timer's resolution of 1 us is more than 5 %."""
_FILE: Final = "transformer_ops.csv.gz"


def read(path: Path) -> dict[str, pd.DataFrame]:
    """Tables `vidur_gemm`, `vidur_elementwise`, `vidur_rmsnorm`, `vidur_layernorm`."""
    table = read_columns(files_in(path, (_FILE,))[_FILE], _COLUMNS)
    short = table["time_us"] < SHORTEST
    inner = _inner_sizes(table)
    why = f"under {SHORTEST:g} us, of which the timer's 1 us is too large a share"
    table = name_gpus(drop(table, short, why))
    table["campaign"] = "vidur"
    table["op"] = _ops(table)
    table = drop(table, table["op"] == "", "embedding and rotary: no shape is given")
    notes, parts = table.attrs, {}
    if not len(table):
        finish(table)  # says why no row is left
    for op in table["op"].unique():
        part = pd.DataFrame(table[table["op"] == op]).copy()
        part.attrs = notes if not parts else {"file": notes["file"], "notes": []}
        parts[f"vidur_{op}"] = finish(_shaped(part, op, inner))
    return parts


def _ops(table: pd.DataFrame) -> np.ndarray:
    """Our op of every row, "" where there is none."""
    word = table["source_op"]
    norm = np.where(
        table["source_model"].isin(_LAYERNORM), "layernorm", "rmsnorm"
    ).astype(object)
    return np.select(
        [
            (table["n"].notna() & table["k"].notna()).to_numpy(),
            word.isin(("add", "mlp_act")).to_numpy(),
            word.isin(_NORMS).to_numpy(),
        ],
        [
            np.full(len(table), "gemm", dtype=object),
            np.full(len(table), "elementwise", dtype=object),
            norm,
        ],
        default="",
    )


def _inner_sizes(table: pd.DataFrame) -> pd.DataFrame:
    """Columns of the activation by model and `tp`: `k` of the down projection; `gated`
    where the up projection makes two of them."""
    shapes = table.pivot_table(
        index=["source_model", "tp"], columns="source_op", values=["n", "k"]
    )
    up, down = ("n", "mlp_up_proj"), ("k", "mlp_down_proj")
    shapes = shapes.reindex(columns=[up, down])
    inner = shapes[down]
    return pd.DataFrame({"inner": inner, "gated": shapes[up] == 2 * inner})


def _shaped(table: pd.DataFrame, op: str, inner: pd.DataFrame) -> pd.DataFrame:
    """`table` of one op with the fields of that op."""
    if op == "gemm":
        return table.drop(columns="width")
    table = table.drop(columns=["n", "k"])
    if op != "elementwise":
        return table.rename(columns={"m": "rows", "width": "cols"})
    keys = pd.MultiIndex.from_arrays([table["source_model"], table["tp"]])
    widths = inner.reindex(keys)
    act = (table["source_op"] == "mlp_act").to_numpy()
    gated = widths["gated"].eq(True).to_numpy()  # not where it is unknown
    table["fn"] = np.where(act, np.where(gated, "silu_mul", "gelu"), "add")
    cols = np.where(act, widths["inner"].to_numpy(float), table["width"])
    table["elements"] = table["m"] * cols
    unknown = table["elements"].isna()
    table = drop(table, unknown, "the width of the activation is not known")
    return table.drop(columns=["m", "width"])
