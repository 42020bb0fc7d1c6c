"""Decode steps of many GPUs beside those of servers, by model, GPU and number of GPUs.

    python calibration/studies/served/plans.py mlenergy_v3_serving.csv

ML.ENERGY v3 (vLLM 0.11.1, chat and reasoning, steady runs), which nothing was fitted
to. Measured: the median gap between streamed chunks, which holds sampling (with a
repetition penalty over all logits) and what the host adds; predicted: kernels of one
decode step at the mean batch and at the KV length that a running request has in the
mean. Rows of one GPU stand beside: what a plan adds is the difference to them. "With
sampling" adds the time that dense models on one GPU of the kind leave of their steps,
a s + b s a logit (weighted least squares on those rows alone). Mixtures
run with attention by tensor and experts by expert parallelism (SOURCES.md, trap 5).
"""

import argparse
from pathlib import Path
from typing import Any, Final

import jax
import numpy as np
import pandas as pd

import diffenergy as de
from diffenergy.workload import load_model

_MODELS: Final[dict[str, tuple[str, str | None]]] = {
    "Qwen/Qwen3-8B": ("qwen3-8b", None),
    "Qwen/Qwen3-32B": ("qwen3-32b", None),
    "meta-llama/Llama-3.3-70B-Instruct": ("llama-3.1-70b", None),
    "meta-llama/Llama-3.1-405B-Instruct-FP8": ("llama-3.1-405b", "fp8"),
    "Qwen/Qwen3-30B-A3B-Instruct-2507": ("qwen3-30b-a3b", None),
    "Qwen/Qwen3-30B-A3B-Thinking-2507": ("qwen3-30b-a3b", None),
    "Qwen/Qwen3-235B-A22B-Instruct-2507": ("qwen3-235b-a22b", None),
    "Qwen/Qwen3-235B-A22B-Instruct-2507-FP8": ("qwen3-235b-a22b", "fp8_block"),
    "openai/gpt-oss-120b": ("gpt-oss-120b", None),
    "meta-llama/Llama-4-Scout-17B-16E-Instruct": ("llama-4-scout", None),
    "deepseek-ai/DeepSeek-R1-0528": ("deepseek-v3", None),
    "deepseek-ai/DeepSeek-V3.1": ("deepseek-v3", None),
}
"""Bundled names of the models' shapes, and the type of their weights if another."""
_DENSE: Final = ("qwen3-8b", "qwen3-32b", "llama-3.1-70b", "llama-3.1-405b")
_GPUS: Final = {"NVIDIA H100 80GB HBM3": "h100-sxm", "NVIDIA B200": "b200-sxm"}
_PROMPT: Final = {"lm-arena-chat": 350, "gpqa": 250}
"""Tokens of a prompt (the serving study's; the table does not say)."""
_LARGE: Final = 64
"""Sequences above which a batch counts as large."""


def _words(name: str) -> int:
    model: Any = load_model(name)
    return model.vocab


def plan_of(name: str, gpus: int) -> str | None:
    """Parallel plan of a server."""
    if gpus == 1:
        return None
    mixture = name not in _DENSE and name != "gpt-oss-120b"
    return f"tp={gpus}" + f",ep={gpus}" * mixture


def row_of(row: Any) -> dict[str, Any]:
    """Predicted over measured step, power of a GPU and energy of a token."""
    name, dtype = _MODELS[row.model]
    written = row.output_len_second_moment / (2 * row.output_len_mean)
    estimate = de.estimate(
        name,
        _GPUS[row.gpu],
        batch=round(row.mean_running),
        input_len=int(_PROMPT[row.task] + written),
        phase="decode",
        dtype=dtype,
        plan=plan_of(name, row.num_gpus),
    )
    return {
        "model": name + f" {dtype}" * bool(dtype),
        "kind": "dense" if name in _DENSE else "mixture",
        "gpu": _GPUS[row.gpu],
        "gpus": row.num_gpus,
        "large": row.mean_running > _LARGE,
        "step": estimate.time,
        "measured": row.itl_p50_ms / 1e3,
        "logits": row.mean_running * _words(name),
        "time": estimate.time / (row.itl_p50_ms / 1e3),
        "power": estimate.power / row.power_w_all_gpus,
        "shared": estimate.summary.get("exposed_communication", 0.0),
    }


def with_sampling(table: Any) -> Any:
    """Predicted over measured step with what servers of one GPU add to a step."""
    step = table["step"].copy()
    for gpu in table["gpu"].unique():
        here = table["gpu"] == gpu
        alone = table[here & (table["kind"] == "dense") & (table["gpus"] == 1)]
        weight = 1 / alone["measured"]
        left = np.column_stack([weight, alone["logits"] * weight])
        rest = (alone["measured"] - alone["step"]) * weight
        a, b = np.linalg.lstsq(left, rest, rcond=None)[0]
        print(f"{gpu}: {1e3 * a:.2f} ms a step, {1e9 * b:.3f} ns a logit")
        step[here] += a + b * table["logits"][here]
    return step / table["measured"]


def error(ratios: Any) -> str:
    """Mean absolute error and bias, %."""
    if ratios.empty:
        return "-"
    return f"{100 * (ratios - 1).abs().mean():.0f} ({100 * (ratios.mean() - 1):+.0f})"


def main() -> None:
    """Print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", type=Path, help="mlenergy_v3_serving.csv")
    jax.config.update("jax_enable_x64", True)
    rows: Any = pd.read_csv(parser.parse_args().table)
    steady = 3 * rows["max_num_seqs"] <= rows["requests"]
    of_host = (rows["num_gpus"] == 1) & (rows["task"] == "gpqa")
    of_host &= rows["gpu"] == "NVIDIA B200"  # bound by the host (trap 1)
    known = rows["model"].isin(_MODELS) & rows["task"].isin(_PROMPT)
    own = rows[steady & known & ~of_host]
    table: Any = pd.DataFrame([row_of(row) for row in own.itertuples()])
    table["sampled"] = with_sampling(table)
    words = "step, up to 64 | above | with sampling, up to 64 | above | power | sent"
    print(f"| model, GPU | GPUs | rows | {words} |")
    print("|---|---|---|---|---|---|---|---|---|")
    for (model, gpu, gpus), part in table.groupby(["model", "gpu", "gpus"]):
        print(_line(f"{model}, {gpu}", str(gpus), part))
    for kind in ("dense", "mixture"):
        mine = table[table["kind"] == kind]
        print(_line(f"{kind}", "1", mine[mine["gpus"] == 1]))
        print(_line(f"{kind}", "2-8", mine[mine["gpus"] > 1]))


def _line(name: str, gpus: str, part: Any) -> str:
    steps = [
        error(part[part["large"] == large][column])
        for column in ("time", "sampled")
        for large in (False, True)
    ]
    cells = (
        name, gpus, str(len(part)), *steps, error(part["power"]),
        f"{100 * float(np.mean(part['shared'])):.0f} %",
    )  # fmt: skip
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
