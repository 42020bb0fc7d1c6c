"""A measured open loop beside the step simulator: the same times and lengths.

    python calibration/studies/served/replay.py DATA/serving/llmservingsim_requests.csv

vLLM 0.19 on RTX PRO 6000 under overload (LLMServingSim's measurements), greedy, at most
128 at once and 2,048 tokens a step. No server of that GPU or version was fitted.
"""

import argparse
from pathlib import Path
from typing import Any, Final

import jax
import pandas as pd

from diffenergy import serving

RUNS: Final = {
    "RTXPRO6000/Llama-3.1-8B": ("llama-3.1-8b", {}),
    "RTXPRO6000/Qwen3-32B": ("qwen3-32b", {"tp": 2}),
}
"""Models and plans; the third run shares experts among replicas, which `serve` does
not."""


def main() -> None:
    """Prints a Markdown table: simulated (measured)."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("table", type=Path, help="llmservingsim_requests.csv")
    jax.config.update("jax_enable_x64", True)
    rows: Any = pd.read_csv(parser.parse_args().table)
    print(
        "| run | TPOT ms | TTFT s | TTFT p99 s | end to end s |\n|---|---|---|---|---|"
    )
    for run, (model, plan) in RUNS.items():
        requests = rows[rows["run"] == run].sort_values("arrival_s")
        trace = {
            x: requests[x].to_numpy() for x in ("arrival_s", "input_len", "output_len")
        }
        s = serving.simulate(
            trace, model, "rtx-pro-6000", {"max_batch": 128.0}, sampling="greedy",
            chunk=2048, **plan,
        ).summary  # fmt: skip
        cells = (
            (1e3 * s["tpot_s"]["mean"], 1e3 * requests["tpot_s"].mean()),
            (s["ttft_s"]["mean"], requests["ttft_s"].mean()),
            (s["ttft_s"]["p99"], requests["ttft_s"].quantile(0.99)),
            (s["e2e_latency_s"]["mean"], requests["e2e_s"].mean()),
        )
        words = " | ".join(f"{ours:.3g} ({theirs:.3g})" for ours, theirs in cells)
        print(f"| {run} | {words} |")


if __name__ == "__main__":
    main()
