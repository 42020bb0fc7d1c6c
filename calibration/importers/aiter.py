"""Tuned GEMM tables of ROCm/aiter: MI300X and MI355X, the fastest kernel of each shape.

Times of the product alone, on operands that were quantised before: no row has the
launch that quantises activations (`weights` none). Winners only, so that their tiles
say nothing of others and are left out, as is the split of K, a logarithm in some
libraries and a count in others. Times of short kernels are those of operands that lie
in caches.
"""

from pathlib import Path
from typing import Final

from diffenergy.measurements.importers.base import (
    drop,
    files_in,
    finish,
    name_gpus,
    number,
    read_columns,
    text,
)

NAME = "aiter"
ABOUT = "tuned GEMM tables of ROCm/aiter (fp8, int8, fp4, bf16): time on MI300X, MI355X"

_FILE: Final = "tuned_gemm.csv.gz"
SHORTEST: Final = 15.0
"""us; below it weights come from caches."""
DTYPES: Final = {
    "a8w8": "int8",
    "a8w8_bpreshuffle": "fp8",
    "a8w8_blockscale": "fp8_block",
    "a8w8_blockscale_bpreshuffle": "fp8_block",
    "a4w4_blockscale": "mxfp4",
    "bf16": "bf16",
}
"""Our dtype by family; weights of `bpreshuffle` lie in the order of the tiles."""
_COLUMNS: Final = {
    "gpu": text("gpu"),
    "source_op": text("family"),
    "time_us": number("time_us"),
    "m": number("m"),
    "n": number("n"),
    "k": number("k"),
}


def read(path: Path) -> dict:
    """Table `aiter_gemm`."""
    table = name_gpus(read_columns(files_in(path, (_FILE,))[_FILE], _COLUMNS))
    why = f"under {SHORTEST:g} us, with weights from caches"
    table = drop(table, table["time_us"] < SHORTEST, why)
    table["dtype"] = [DTYPES.get(str(x)) for x in table["source_op"]]
    table = drop(table, table["dtype"].isna(), "a family of unknown types")
    table["op"], table["campaign"] = "gemm", "aiter"
    table["weights"], table["layout"] = "none", "tn"
    return {"aiter_gemm": finish(table)}
