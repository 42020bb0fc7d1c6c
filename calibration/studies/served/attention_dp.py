"""Servers whose attention is data parallel, measured and predicted with and without it.

    python calibration/studies/served/attention_dp.py DATA

DATA holds `aiconfigurator/e2e_serving_agg.csv.gz`: closed loops of DeepSeek-R1
(TensorRT-LLM, 4 or 8 groups of a GPU) and of MiniMax-M2.5 (vLLM), of at most 256
clients and a time to the first token below 5 s. No constant is fitted to these rows,
but the rule for prompts (`_step/groups.py prompt_share`) came after they were seen.
Rows of 16 or 64 groups on 8 GPUs are errors of their converter, and left out. MiniMax
rows say `tp` and as many groups: these are the groups of as many GPUs.
"""

import argparse
import dataclasses
import sys
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from diffenergy.serving import Load, deploy  # noqa: E402
from diffenergy.serving._solve import solved  # noqa: E402

_MODELS: Final = {
    "deepseek-ai/DeepSeek-R1": "deepseek-v3", "MiniMaxAI/MiniMax-M2.5": "minimax-m2",
}  # fmt: skip
_GPUS: Final = {"b200_sxm": "b200-sxm", "h100_sxm": "h100-sxm", "h200_sxm": "h200-sxm"}
_DTYPES: Final = {"fp4": "nvfp4", "fp8": "fp8_block"}
_SERVER: Final = [
    "model", "gpu", "backend", "precision", "tp", "attention_dp_size", "input_tokens",
    "output_tokens",
]  # fmt: skip
_WAVES: Final = 6.0
_HEAD: Final = (
    "| model | GPU | rows | as tp, ep: bias | median (p90) | attention dp: bias | "
    "median (p90) |",
    "|---|---|---:|---:|---:|---:|---:|",
)


def rows(path: Path) -> pd.DataFrame:
    """The rows of the study."""
    runs: Any = pd.read_csv(path / "aiconfigurator/e2e_serving_agg.csv.gz")
    runs = runs[runs["model"].isin(_MODELS) & runs["concurrency"].notna()]
    runs = runs[runs["attention_dp_size"].between(2, 8) & (runs["ttft_ms"] < 5000)]
    return runs[runs["concurrency"] <= 256]


def errors(group: Any, grouped: bool) -> Any:
    """ln of predicted over measured time of a token, for rows of one server."""
    first = group.iloc[0]
    groups = int(first["attention_dp_size"])
    gpus = int(max(first["tp"], groups))
    load = Load(
        concurrency=float(group["concurrency"].max()), waves=_WAVES,
        input_len=float(first["input_tokens"]),
        output_len=float(first["output_tokens"]),
    )  # fmt: skip
    more: Any = {"attention_dp": groups} if grouped else {"ep": gpus}
    server = deploy(
        _MODELS[first["model"]], _GPUS[first["gpu"]], load, tp=gpus, kv_dtype="fp8",
        engine=first["backend"], dtype=_DTYPES[first["precision"]], sampling="random",
        **more,
    )  # fmt: skip
    costs = server.costs()

    def tpot(clients: float) -> float:
        of = dataclasses.replace(load, concurrency=clients)
        one = dataclasses.replace(server, load=of)
        return float(solved(one, costs).tpot.mean)

    predicted = group["concurrency"].map(tpot)
    return np.log(1e3 * predicted / group["tpot_ms"])


def main():
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--rows", action="store_true", help="Print every row, too.")
    choices = parser.parse_args()
    table: Any = rows(choices.data)
    for name, grouped in (("plain", False), ("dp", True)):
        each = [errors(group, grouped) for _, group in table.groupby(_SERVER)]
        table[name] = pd.concat(each)
    if choices.rows:
        shown = [*_SERVER, "concurrency", "tpot_ms", "plain", "dp"]
        print(table[shown].round(2).to_string())
    print(*_HEAD, sep="\n")
    for (model, gpu), group in table.groupby(["model", "gpu"]):
        cells = [str(model).rpartition("/")[2], _GPUS[str(gpu)], str(len(group))]
        for name in ("plain", "dp"):
            miss: Any = 100 * np.expm1(group[name])
            size = miss.abs()
            cells += [
                f"{miss.median():+.0f} %",
                f"{size.median():.0f} ({size.quantile(0.9):.0f})",
            ]
        print(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
