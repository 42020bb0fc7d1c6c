"""How long the host launches a step with a prompt, read off gaps between tokens.

    python calibration/studies/served/launches.py DATA/serving/mlenergy_v3_serving.csv

Of servers with 16 requests 1.7 to 2.5 % of the steps of chat have a prompt, so that the
99th percentile of gaps lies among these. vLLM captures graphs of up to 32 tokens there:
the kernels of such a step are launched one by one. Where they take less than that, the
gap is the time of the launches.
"""

import sys
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from calibration.studies.served.tables import ml_energy  # noqa: E402
from diffenergy.workload import load_model  # noqa: E402

_RUNNING: Final = 16
"""Requests at once."""


def main(path: Path):
    """Prints a Markdown table: gaps, and those that have a prompt by layer."""
    print("| model, type | GPUs | layers | with experts | median | 99 % | a layer |")
    print("|---|---|---:|---:|---:|---:|---:|")
    rows: Any = ml_energy(path)
    chat = (rows["task"] == "lm-arena-chat") & (rows["max_batch"] == _RUNNING)
    row: Any
    for row in rows[chat].sort_values(["gpu", "name"]).itertuples():
        model: Any = load_model(row.model)
        mixed, layers = model.expert_layers, len(model.stack())
        name = f"{row.name.rpartition('/')[2]}, {row.dtype or 'fp8'}"
        print(
            f"| {name} | {row.num_gpus} {row.gpu} | {layers} | {mixed} "
            f"| {1e3 * row.itl_p50_s:.1f} ms | {1e3 * row.itl_p99_s:.1f} ms "
            f"| {1e3 * row.itl_p99_s / layers:.2f} ms |"
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
