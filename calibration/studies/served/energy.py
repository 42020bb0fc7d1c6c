"""Our energy of decode attention, prefill and linear layers beside served models.

    python calibration/studies/served/energy.py mlenergy_v3_serving.csv

Dense Qwen3 chat and reasoning servers of ML.ENERGY v3 on one GPU, which nothing was
fitted to. Measured energy of a step = sum of our energies times a factor each + watts
while sampling times the time that our parts leave of the measured step; factors and
watts by least squares with priors (factors 1, sd 0.15, 0.25 and 0.3; watts 0.5 and from
128 rows 0.7 of the board's limit, sd 0.15). A factor of 1 needs no mending.
"""

import dataclasses
import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Final

import numpy as np
import typer

import diffenergy

MODELS: Final = {
    "Qwen/Qwen3-8B": {},
    "Qwen/Qwen3-14B": dict(
        hidden_size=5120, intermediate_size=17408, num_hidden_layers=40,
        num_attention_heads=40,
    ),
    "Qwen/Qwen3-32B": dict(
        hidden_size=5120, intermediate_size=25600, num_hidden_layers=64,
        num_attention_heads=64,
    ),
}  # fmt: skip
"""Published sizes, where they are not those of the bundled qwen3-8b."""
GPUS: Final = {"NVIDIA H100 80GB HBM3": "h100-sxm", "NVIDIA B200": "b200-sxm"}
PROMPT: Final = {"lm-arena-chat": (270, 80), "gpqa": (250, 0)}
"""Prompt tokens computed and cached, by task (the serving study)."""
PARTS: Final = ("linear layers", "decode attention", "prefill")
_CENTRE, _SD = (1.0, 1.0, 1.0, 0.5, 0.7), (0.15, 0.25, 0.3, 0.15, 0.15)
_ROW_SD: Final = 0.05
_SORTED: Final = 128
"""Rows from which a server sorts all logits at once."""


@dataclasses.dataclass(frozen=True)
class Step:
    """One server run: energies of our parts (J), time that they leave of the measured
    step (s), measured energy of the step (J)."""

    parts: tuple[float, float, float]
    rest: float
    rows: float
    energy: float


def step(row: Any, model: str, gpu: str) -> Step:
    """Our parts of a step of a server run."""
    prompt, cached = PROMPT[row.task]
    written = row.output_len_second_moment / (2 * row.output_len_mean)
    batch, entering = round(row.mean_running), row.mean_running / row.output_len_mean
    decode = diffenergy.estimate(
        model, gpu, batch=batch, input_len=int(prompt + cached + written),
        phase="decode",
    )  # fmt: skip
    prefill = diffenergy.estimate(
        model, gpu, batch=8, input_len=prompt, phase="prefill"
    )
    spent = [
        (kernel["energy_j"] * kernel["count"], "attention" in kernel["op"])
        for kernel in decode.kernels or ()
    ]
    attention = sum(energy for energy, is_attention in spent if is_attention)
    taken = decode.time + entering * prefill.time / 8
    time = row.mean_running / row.output_throughput_tok_s
    return Step(
        (decode.energy - attention, attention, entering * prefill.energy / 8),
        max(time - taken, 0.0),
        row.mean_running,
        row.power_w_all_gpus * time,
    )


def factors(steps: list[Step], limit: float) -> tuple[np.ndarray, np.ndarray]:
    """Factors of `PARTS` and watts while sampling of few and of many rows; their sd."""
    centre, sd = (np.array(x) * (1, 1, 1, limit, limit) for x in (_CENTRE, _SD))
    columns = [
        (*x.parts, x.rest * (x.rows < _SORTED), x.rest * (x.rows >= _SORTED))
        for x in steps
    ]
    energy = np.array([x.energy for x in steps])
    weight = 1 / (_ROW_SD * energy)
    matrix = np.array(columns)
    left = np.vstack([matrix * weight[:, None] * sd, np.eye(len(sd))])
    right = np.concatenate([(energy - matrix @ centre) * weight, np.zeros(len(sd))])
    solution = np.linalg.lstsq(left, right, rcond=None)[0]
    return centre + sd * solution, sd * np.sqrt(np.diag(np.linalg.inv(left.T @ left)))


def served(table: Annotated[Path, typer.Argument(help="mlenergy_v3_serving.csv")]):
    """Print a Markdown table of factors."""
    import jax

    jax.config.update("jax_enable_x64", True)
    import pandas as pd

    from diffenergy.hardware import read_gpu

    bundled = Path(diffenergy.__file__).parent / "data/models/qwen3-8b/config.json"
    config = json.loads(bundled.read_text())

    rows: Any = pd.read_csv(table)
    full = 3 * rows["max_num_seqs"] <= rows["requests"]  # a steady state
    rows = rows[full & (rows["num_gpus"] == 1) & (rows["dtype"] == "bfloat16")]
    typer.echo(f"| GPU | runs | {' | '.join(PARTS)} |")
    typer.echo("|---|---|---|---|---|")
    with TemporaryDirectory() as place:
        for name, gpu in GPUS.items():
            steps = []
            for model, sizes in MODELS.items():
                file = Path(place) / f"{model.rpartition('/')[2]}.json"
                file.write_text(json.dumps({**config, **sizes}))
                mine = rows[(rows["gpu"] == name) & (rows["model"] == model)]
                # reasoning on hosts of the B200 is bound by them
                tasks = list(PROMPT) if gpu == "h100-sxm" else ["lm-arena-chat"]
                for row in mine[mine["task"].isin(tasks)].itertuples():
                    steps.append(step(row, str(file), gpu))
            estimates, sd = factors(steps, read_gpu(gpu).values["tdp"])
            cells = [f"{a:.2f} +- {b:.2f}" for a, b in zip(estimates, sd, strict=True)]
            typer.echo(f"| {gpu} | {len(steps)} | {' | '.join(cells[:3])} |")


if __name__ == "__main__":
    typer.run(served)
