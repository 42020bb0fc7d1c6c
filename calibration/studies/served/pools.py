"""Servers of DeepSeek-R1 on MI355X whose prompts are read by GPUs of their own.

    python calibration/studies/served/pools.py DATA

Prints, for each of the three rows, what was measured and what `serving.apart` says: W
of a GPU, J of all GPUs for an output token, time of a token, requests a second. The
benchmark draws lengths between 0.8 and 1 of the nominal ones; its own J of a token
divides the watts of the decode GPUs alone, and its time to the first token holds the
queue of all clients that start at once (row of 2,048). No constant was fitted to them.
"""

import sys
from pathlib import Path
from typing import Annotated, Any, Final

import jax
import pandas as pd
import typer

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from diffenergy.serving import Load, apart

SERVED: Final = "node_power/inferencex_mi355x_dsr1_served_power.csv"
_SHARE: Final = (0.8, 1.0)
"""Lengths of the benchmark over the nominal ones, uniform between."""


def rows(folder: Path) -> list[dict[str, float]]:
    """Measured and predicted figures of each row, in the order of the file."""
    table: Any = pd.read_csv(folder / SERVED)
    return [_row(x) for x in table[table["disagg"]].itertuples()]


def _row(row: Any) -> dict[str, float]:
    low, high = _SHARE
    lengths: dict[str, Any] = {
        name: f"uniform:{low * n:g}:{high * n:g}"
        for name, n in (("input_len", row.input_len), ("output_len", row.output_len))
    }
    sides: dict[str, Any] = {
        name: {"tp": int(tp), "ep": int(ep), "workers": int(gpus // tp)}
        for name, tp, ep, gpus in (
            ("prefill", row.prefill_tp, row.prefill_ep, row.prefill_gpus),
            ("decode", row.decode_tp, row.decode_ep, row.decode_gpus),
        )
    }
    # SGLang divides attention by requests where it spreads experts
    sides["decode"]["attention_dp"] = int(row.decode_ep)
    load = Load(concurrency=int(row.concurrency), **lengths)
    answer = apart("deepseek-v3", "mi355x", load, engine="sglang", **sides).summary
    gpus = row.prefill_gpus + row.decode_gpus
    tokens = row.output_tokens_per_s_per_gpu * row.decode_gpus
    return {
        "concurrency": row.concurrency,
        "w": row.gpu_w,
        "w_ours": answer["avg_power_per_gpu_w"],
        "j": row.gpu_w * gpus / tokens,
        "j_ours": answer["energy_j_per_output_token"],
        "tpot_ms": 1e3 * row.median_tpot_s,
        "tpot_ours": 1e3 * answer["tpot_s"]["p50"],
        "ttft_s": row.median_ttft_s,
        "ttft_ours": answer["ttft_s"]["p50"],
        "requests_s": tokens / (row.output_len * (low + high) / 2),
        "requests_ours": answer["request_throughput_per_s"],
    }


def study(
    folder: Annotated[Path, typer.Argument(help="folder of the measured tables")],
) -> None:
    """Print the rows."""
    jax.config.update("jax_enable_x64", True)
    table = pd.DataFrame(rows(folder))
    print(table.to_string(index=False, float_format="{:.4g}".format))
    error = 100 * (table["w_ours"] / table["w"] - 1)
    print("power, % off:", ", ".join(f"{x:+.0f}" for x in error))


if __name__ == "__main__":
    typer.run(study)
