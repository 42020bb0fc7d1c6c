"""DeepBench's GEMM and LLMCompass's matmul: times of matrix products."""

from pathlib import Path
from typing import Final

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

NAME = "small_sources"
ABOUT = "converted DeepBench GEMM and LLMCompass matmul: times of matrix products"

_SHAPE: Final = {
    "gpu": text("gpu"),
    "m": number("m"),
    "n": number("n"),
    "k": number("k"),
    "time_us": number("time_us"),
}
_DTYPES: Final = {
    "Float": "fp32",
    "16 bit inputs, 16 bit multiplication, 32 bit addition": "fp16",
}
"""DeepBench's `precision`; the others are not what our dtypes mean."""


def read(path: Path) -> dict[str, pd.DataFrame]:
    """Tables `deepbench_gemm` and `llmcompass_matmul`, as far as they are there."""
    readers = {"deepbench_gemm": _deepbench, "llmcompass_matmul": _llmcompass}
    files = files_in(path, tuple(f"{stem}.csv" for stem in readers))
    return {file.stem: readers[file.stem](file) for file in files.values()}


def _deepbench(file: Path) -> pd.DataFrame:
    columns = {
        name: text(name) for name in ("suite", "precision", "trans_a", "trans_b")
    }
    table = read_columns(file, _SHAPE | columns)
    for word in table["precision"].unique():
        if word not in _DTYPES:
            why = f"precision '{word}' is none of our dtypes"
            table = drop(table, table["precision"] == word, why)
    table["dtype"] = [_DTYPES[word] for word in table["precision"]]
    table["op"] = "gemm"
    table["campaign"] = "deepbench"
    return finish(name_gpus(table.drop(columns="precision")))


def _llmcompass(file: Path) -> pd.DataFrame:
    table = read_columns(file, _SHAPE | {"dtype": text("dtype")})
    table["op"] = "gemm"
    table["campaign"] = "llmcompass"
    return finish(name_gpus(table))
