"""Well-known served models beside what others measured: time, power, J per token.

    python calibration/studies/served/world.py mlenergy_v3_serving.csv

Chat servers of ML.ENERGY v3 on one GPU, saturated: `diffenergy serve` with the batch
limit and the output lengths of the run, prompts as `tables.py` has them. The constants
of the engine were fitted to rows of these GPUs, these among them; what is left out of a
fit stands in the table of `engines.py`.
"""

import sys
from pathlib import Path
from typing import Annotated, Any, Final

import typer

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from calibration.studies.served.tables import ml_energy  # noqa: E402

SETTINGS: Final = (
    ("qwen3-8b", "h100-sxm", 8),
    ("qwen3-8b", "h100-sxm", 32),
    ("qwen3-8b", "h100-sxm", 128),
    ("qwen3-8b", "h100-sxm", 256),
    ("qwen3-8b", "b200-sxm", 8),
    ("qwen3-8b", "b200-sxm", 128),
    ("qwen3-8b", "b200-sxm", 256),
    ("qwen3-30b-a3b", "h100-sxm", 64),
    ("qwen3-30b-a3b", "b200-sxm", 128),
)


def world(
    table: Annotated[Path, typer.Argument(help="mlenergy_v3_serving.csv")],
) -> None:
    """Print a Markdown table of predicted and measured figures."""
    import jax

    jax.config.update("jax_enable_x64", True)
    from diffenergy import serving

    rows: Any = ml_energy(table)
    rows = rows[(rows["task"] == "lm-arena-chat") & (rows["num_gpus"] == 1)]
    typer.echo(
        "| model, GPU, batch | ms a token (measured) | W (measured) | J (measured) |"
    )
    typer.echo("|---|---|---|---|")
    for model, gpu, batch in SETTINGS:
        mine = (rows["model"] == model) & (rows["gpu"] == gpu)
        row = rows[mine & (rows["max_batch"] == batch)].iloc[0]
        load = serving.Load(
            max_batch=float(row["running_requests"]),
            input_len=row["input_len"],
            output_len=row["output_len"],
            cached_len=float(row["cached_len"]),
        )
        state = serving.steady_state(
            model, gpu, load, engine="vllm", sampling="penalties"
        )
        typer.echo(
            f"| {model}, {gpu}, {batch} "
            f"| {1e3 * state.tpot:.1f} ({1e3 * row['tpot_s']:.1f}) "
            f"| {state.power:.0f} ({row['avg_power_w']:.0f}) "
            f"| {state.energy:.3f} ({row['energy_j_per_output_token']:.3f}) |"
        )


if __name__ == "__main__":
    typer.run(world)
