"""Wall power of whole servers with boards as the product answers them, beside meters.

    python calibration/studies/nodes/end_to_end.py node_power

Six cases of MLPerf; no node has seen a reading of its own: its host is that of its
parts, with scale and gain of the other systems (`wall.py`). Llama-2-70B is priced as
Llama-3.1-70B; MLPerf decodes greedily, with the KV cache in fp8, to which NVIDIA
quantises these checkpoints (`quantize.py --kv_cache_dtype fp8`), and runs 806 sequences
of Llama-2-70B on an H200 (its configuration of v4.1). The training of BERT is a GPU's
share (96 packed sequences) with the kernels of the stack `eager` in bf16: its fp8 casts
in kernels of their own, so that it is no faster there, and no fused one is modelled.
"""

from pathlib import Path
from typing import Annotated, Any, Final

import numpy as np
import typer
from wall import left_out, systems_of

H100: Final = "1xSMC-H100-SXM-80GB"
H200: Final = "H200-SXM-141GBx8_TRT_MaxQ"
B200: Final = "SR780a_V3_B200SXMx8_TRT"
_BERT: Final = "estimate bert-large --phase train --batch 96 --input-len 512"
CASES: Final = {
    "Llama-2-70B LoRA, 8 H100": (
        H100, 8, "llama2_70b_lora",
        "estimate llama-3.1-70b --gpu h100-sxm --phase train --lora 16 "
        "--lora-layers attention --plan tp=4,dp=2,microbatch=1 --global-batch 8 "
        "--input-len 8192 --dtype fp8",
    ),
    "BERT, 8 H100": (H100, 1, "bert", f"{_BERT} --gpu h100-sxm --dtype bf16"),
    "BERT, 8 B200": (B200, 1, "b200x8 ", f"{_BERT} --gpu b200-sxm --dtype bf16"),
    "llama2-70b offline, 8 H200 at 500 W": (
        H200, 1, "llama2-70b-99.9 = llama2-70b-99",
        "serve llama-3.1-70b --gpu h200-sxm --power-limit 500 --dtype fp8 "
        "--kv-dtype fp8 --max-batch 806 --input-len 294 --output-len 294 "
        "--engine trtllm --sampling greedy",
    ),
    "llama3.1-8b offline, 8 B200": (
        B200, 1, "llama3.1-8b",
        "serve llama-3.1-8b --gpu b200-sxm --dtype nvfp4 --kv-dtype fp8 "
        "--max-batch 1024 --input-len 778 --output-len 128 --engine trtllm "
        "--sampling greedy",
    ),
    "llama3.1-405b server, 8 B200": (
        B200, 4, "llama3.1-405b",
        "serve llama-3.1-405b --gpu b200-sxm --dtype nvfp4 --kv-dtype fp8 "
        "--tp 4 --rate 0.93 --input-len 9428 --output-len 684 --engine trtllm "
        "--sampling greedy",
    ),
}  # fmt: skip
"""System, GPUs of the answer's watts, rows of the meter, and the command."""


def measured(folder: Path, name: str, case: str) -> float:
    """W at the wall: the mean of a training's runs (evaluations included), the plateau
    of the traced one, the median of an offline run and the mean of a server's."""
    import pandas as pd

    if name in (H200, B200) and not case.endswith(" "):
        rows: Any = pd.read_csv(folder / "mlperf_inference_wall_power.csv")
        rows = rows[(rows["system"] == name) & (rows["model"] == case)]
        served = case == "llama3.1-405b"
        rows = rows[rows["scenario"] == ("server" if served else "offline")]
        return float(rows["wall_w" if served else "wall_w_p50"].iloc[0])
    if name == B200:
        traces: Any = pd.read_csv(folder / "mlperf_node_power_traces.csv.gz")
        watts = traces[traces["trace"].str.startswith(f"{case}mlperf-train")]["wall_w"]
        return float(watts[watts > 0.9 * watts.quantile(0.9)].median())
    rows: Any = pd.read_csv(folder / "mlperf_training_wall_power.csv")
    own = (rows["system"] == name) & (rows["measured"] == "AC")
    return float(rows[own & (rows["benchmark"] == case)]["node_w_mean"].mean())


def boards(command: str) -> float:
    """W of all boards of an answer."""
    import contextlib
    import io
    import json

    from diffenergy.cli import main

    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert main([*command.split(), "--json"]) == 0
    return float(json.loads(out.getvalue())["avg_power_w"])


def end_to_end(folder: Annotated[Path, typer.Argument(help="node_power")]) -> None:
    """Print a Markdown table of the six cases and the mean of their errors."""
    from diffenergy.nodes import build_node

    systems = systems_of(folder)
    typer.echo("| case | a board | wall | measured | error |")
    typer.echo("|---|---|---|---|---|")
    errors: list[Any] = []
    for title, (system, gpus, case, command) in CASES.items():
        node = build_node(*left_out(systems, system))
        board = boards(command) / gpus
        wall = float(node.power(board, systems[system].idle).wall)
        read = measured(folder, system, case)
        errors.append(wall / read - 1)
        typer.echo(
            f"| {title} | {board:.0f} W | {wall:,.0f} W | {read:,.0f} W | "
            f"{100 * errors[-1]:+.1f} % |"
        )
    typer.echo(f"\nmean of the absolute errors: {100 * np.abs(errors).mean():.1f} %")
    for title, (*_, command) in CASES.items():
        typer.echo(f"{title}: diffenergy {command}")


if __name__ == "__main__":
    typer.run(end_to_end)
