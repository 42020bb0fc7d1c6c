"""Well-known serving settings beside what others measured: time, power, J per token.

    python calibration/studies/served/world.py llm_v3_h100_b200.csv

Reads the ML.ENERGY table (chat requests, steady state of a server). A setting is one
decode step at the measured mean batch and half of the mean output in the KV cache;
prefill of new requests and the server's own gaps are not in it.
"""

from pathlib import Path
from typing import Annotated, Final

import typer

SETTINGS: Final = (
    ("Qwen/Qwen3-8B", "h100-sxm", 8),
    ("Qwen/Qwen3-8B", "h100-sxm", 32),
    ("Qwen/Qwen3-8B", "h100-sxm", 128),
    ("Qwen/Qwen3-8B", "h100-sxm", 256),
    ("Qwen/Qwen3-8B", "b200-sxm", 8),
    ("Qwen/Qwen3-8B", "b200-sxm", 128),
    ("Qwen/Qwen3-8B", "b200-sxm", 256),
    ("Qwen/Qwen3-30B-A3B-Instruct-2507", "h100-sxm", 8),
    ("Qwen/Qwen3-30B-A3B-Instruct-2507", "h100-sxm", 64),
    ("Qwen/Qwen3-30B-A3B-Instruct-2507", "b200-sxm", 128),
)
BUNDLED: Final = {
    "Qwen/Qwen3-8B": "qwen3-8b",
    "Qwen/Qwen3-30B-A3B-Instruct-2507": "qwen3-30b-a3b",
}
PROMPT: Final = 200
"""Tokens of a chat prompt; the table does not say."""


def world(table: Annotated[Path, typer.Argument(help="ML.ENERGY v3 table")]) -> None:
    """Print a Markdown table of predicted and measured figures."""
    import jax

    jax.config.update("jax_enable_x64", True)
    import pandas as pd

    from diffenergy import estimate, load_gpu, load_model
    from diffenergy.hardware import read_gpu

    records = pd.read_csv(table).to_dict("records")
    measured = {
        (row["model"], read_gpu(row["gpu"]).name, row["max_batch"]): row
        for row in records
        if row["task"] == "lm-arena-chat" and row["num_gpus"] == 1
    }
    typer.echo(
        "| model, GPU, batch | step ms (measured) | W (measured) | J (measured) |"
    )
    typer.echo("|---|---|---|---|")
    for name, gpu, batch in SETTINGS:
        found = measured[name, gpu, batch]
        length = int(PROMPT + found["avg_output_tokens"] / 2)
        size = round(found["avg_batch"])
        step = load_model(BUNDLED[name]).workload(
            batch=size, input_len=length, phase="decode"
        )
        result = estimate(step, load_gpu(gpu))
        typer.echo(
            f"| {BUNDLED[name]}, {gpu}, {size} "
            f"| {1e3 * float(result.time):.1f} ({found['itl_median_ms']:.1f}) "
            f"| {float(result.power):.0f} ({found['avg_power_all_gpus_w']:.0f}) "
            f"| {float(result.energy) / size:.3f} "
            f"({found['energy_per_output_token_j']:.3f}) |"
        )


if __name__ == "__main__":
    typer.run(world)
