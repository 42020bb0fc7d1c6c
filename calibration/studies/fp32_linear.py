"""Products of `nn.Linear` in fp32 as libraries run them, whatever tile they take.

    python calibration/studies/fp32_linear.py DATA

DATA holds `neusight/gemm_fp32.csv.gz` and `e2e_models_fp32.csv` beside it. `linear`
rows of the first are products with both operands along k; their tiles, splits and
threads are struck out, as a user has none.
cuBLAS takes other tiles for these on P100, T4 and H100 than the menu, which is of an
A100: `fma_linear` of an architecture is the rate that they reach over the model's.
Fitted by secants to the median of every second row (of at least 1 ms, 256 rows, sides
that are multiples of 8, k of at most 16,384: above it a P100 pays for memory pages);
the others are left out. Shipped (`diffenergy/data/corrections/default.json`,
`architecture:NAME`) are those of Pascal, Turing and Hopper; the A100, whose tiles the
menu has, stays as it was. Then whole models, which nothing was fitted to: inference of
Hugging Face's BERT, GPT-2 and OPT in fp32, without the rows of fused kernels.
"""

import argparse
import dataclasses
import sys
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Final

import jax
import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
import diffenergy as de  # noqa: E402
from calibration.importers import neusight  # noqa: E402
from calibration.splits.base import as_table  # noqa: E402
from diffenergy.corrections import (  # noqa: E402
    CorrectionsFile,
    read_corrections,
    write_corrections,
)
from diffenergy.fitting import predict  # noqa: E402
from diffenergy.hardware import read_gpu  # noqa: E402
from diffenergy.measurements import MeasurementTable  # noqa: E402

_STRUCK: Final = ["tile_m", "tile_n", "split_k", "threads", "slices", "kernel"]
"""Columns that name the library's choice."""
_ROWS: Final = 400
"""Sampled rows a GPU, seed 0."""
_SECANTS: Final = 3
_MODELS: Final = {
    "bert_large": "bert-large",
    "gpt2_large": "gpt2-large",
    "opt_13": "opt-1.3b",
}
_GPUS: Final = {
    "NVIDIA A100-PCIE-40GB": "a100-pcie-40gb",
    "Tesla P100-PCIE-16GB": "p100-pcie-16gb",
    "Tesla T4": "t4",
    "Tesla V100-PCIE-32GB": "v100-pcie-32gb",
}


def linear_rows(path: Path) -> pd.DataFrame:
    """Rows of `nn.Linear` without their tiles."""
    frame = neusight.translated(path)
    sizes = frame[["m", "n", "k"]].astype(float)
    aligned = (sizes["n"] % 8 == 0) & (sizes["k"] % 8 == 0)
    long = (frame["time_us"] > 1e3) & (sizes["m"] >= 256) & (sizes["k"] <= 16384)
    rows: Any = frame[(frame["family"] == "linear") & aligned & long]
    return rows.drop(columns=[x for x in _STRUCK if x in rows])


def with_factor(architecture: str, value: float) -> CorrectionsFile:
    """The shipped corrections with another `fma_linear`."""
    file = read_corrections()
    tag = f"architecture:{architecture}"
    level = {**file.levels.get(tag, {}), "fma_linear": value}
    return dataclasses.replace(file, levels={**file.levels, tag: level})


def ratios(table: MeasurementTable, architecture: str, factor: float) -> np.ndarray:
    """Predicted over measured time of every row."""
    predicted = predict(table, with_factor(architecture, factor)).time_s
    return np.asarray(predicted) / np.asarray(table.time_s)


def fitted(table: MeasurementTable, architecture: str, rows: np.ndarray) -> float:
    """The factor at which the median of `rows` is met."""
    factor = 1.0
    for _ in range(_SECANTS):
        factor *= float(np.median(ratios(table, architecture, factor)[rows]))
    return factor


def whole_models(path: Path) -> pd.DataFrame:
    """Ratios of predicted and measured time of inferences, with and without the
    factors."""
    frame = pd.read_csv(path)
    known = frame["gpu"].isin(_GPUS) & frame["model"].isin(_MODELS)
    rows: Any = frame[known & (frame["mode"] == "inf") & frame["variant"].isna()]
    file = read_corrections()
    bare = {
        tag: {x: y for x, y in level.items() if x != "fma_linear"}
        for tag, level in file.levels.items()
    }
    without = Path(mkdtemp()) / "without.json"
    without.write_text(write_corrections(dataclasses.replace(file, levels=bare)))
    files = {"without": str(without), "with": None}
    out = []
    for row in rows.itertuples():
        phase = "forward" if row.model.startswith("bert") else "prefill"
        more = {"batch": row.batch, "input_len": row.seq_len, "dtype": "fp32"}
        entry = {"gpu": _GPUS[row.gpu]}
        for word, corrections in files.items():
            answer = de.estimate(
                _MODELS[row.model], _GPUS[row.gpu], phase=phase, stack="eager",
                corrections=corrections, **more,
            )  # fmt: skip
            entry[word] = answer.time / (row.e2e_ms / 1e3)
        out.append(entry)
    return pd.DataFrame(out)


def errors(x: np.ndarray) -> str:
    """Median and 90th percentile of absolute errors, %."""
    size = 100 * np.abs(x - 1)
    return f"{np.median(size):.1f} ({np.quantile(size, 0.9):.0f})"


def main():
    """Prints a Markdown table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("data", type=Path, help="folder of the measured tables")
    path = parser.parse_args().data / "neusight" / "gemm_fp32.csv.gz"
    jax.config.update("jax_enable_x64", True)
    frame = linear_rows(path)
    print("| GPU | rows | left out, factor 1 | factor | left out |")
    print("|---|---:|---:|---:|---:|")
    for name, rows in frame.groupby("gpu"):
        sampled = rows.sample(min(len(rows), _ROWS), random_state=0)
        table, card = as_table(sampled), read_gpu(str(name))
        odd = np.arange(len(table.time_s)) % 2 == 1
        factor = fitted(table, card.architecture, ~odd)
        before, after = (
            errors(ratios(table, card.architecture, x)[odd]) for x in (1.0, factor)
        )
        print(f"| {card.name} | {odd.sum()} | {before} | {factor:.3f} | {after} |")
    print("\n| whole models on | rows | without the factors | with them |")
    print("|---|---:|---:|---:|")
    models = whole_models(path.with_name("e2e_models_fp32.csv"))
    for name, rows in [*models.groupby("gpu"), ("all", models)]:
        cells = [errors(rows[x].to_numpy()) for x in ("without", "with")]
        print(f"| {name} | {len(rows)} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
