"""What clocks per stage save of a training step's energy, without and with a slow-down.

    python calibration/studies/training/stage_clocks.py [../shared/data]

Pipelines of eight A40 and of four A100-PCIe-80GB as Perseus (arXiv 2312.06902) ran
them: 1F1B, 32 micro-batches of 4 sequences of 1,024 tokens, bf16. BERT and Bloom are
taken with the layers of GPT-2 at their own sizes and vocabularies. With the folder of
the measured tables also its excerpt of measured passes by clock beside the model's.
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any, Final

import typer

_MODELS: Final = {
    "GPT-3 1.3B": (24, 2048, 16, 50_257),
    "GPT-3 2.7B": (32, 2560, 32, 50_257),
    "BERT-1.3B": (24, 2048, 32, 30_522),
    "Bloom-3B": (30, 2560, 32, 250_880),
}
"""Layers, hidden size, heads, vocabulary (their published configs)."""
_RUNS: Final = (
    ("a40", 8, ("GPT-3 2.7B", "BERT-1.3B", "Bloom-3B")),
    ("a100-pcie-80gb", 4, ("GPT-3 1.3B", "BERT-1.3B", "Bloom-3B")),
)
_BATCH: Final = 4
"""Sequences of a micro-batch."""
_REQUEST: Final[dict[str, Any]] = {"global_batch": 32 * _BATCH, "input_len": 1024}


def config(folder: Path, name: str) -> str:
    """A config file of one of the models."""
    layers, hidden, heads, vocabulary = _MODELS[name]
    path = folder / name.replace(" ", "-").lower() / "config.json"
    path.parent.mkdir()
    content = {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        "n_layer": layers,
        "n_embd": hidden,
        "n_head": heads,
        "n_positions": 2048,
        "vocab_size": vocabulary,
        "activation_function": "gelu_new",
    }
    path.write_text(json.dumps(content))
    return str(path.parent)


def savings(
    data: Annotated[
        Path | None, typer.Argument(help="folder of the measured tables")
    ] = None,
) -> None:
    """Print a Markdown table: one line a pipeline."""
    from diffenergy.estimator import start_jax

    start_jax()
    from diffenergy import parallel

    print("| GPUs | model | layers | step, s | energy, kJ | saved, % | 5-95 % "
          "| bound, % | 5 % longer | bound | a clock a stage |")  # fmt: skip
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        paths = {name: config(Path(folder), name) for name in _MODELS}
        for gpu, number, names in _RUNS:
            for name in names:
                arguments = (paths[name], gpu, f"pp={number},microbatch={_BATCH}")
                result = parallel.stage_clocks(*arguments, interval=True, **_REQUEST)
                slow = {"max_slowdown": 0.05, **_REQUEST}
                later = parallel.stage_clocks(*arguments, **slow)
                one = parallel.stage_clocks(*arguments, granularity="stage", **slow)
                _row(
                    f"{number} {gpu}", name, *(x.summary for x in (result, later, one))
                )
        if data is not None:
            clocks = [x * 1e6 for x in (1740, 1710, 690, 660)]
            arguments = (paths["GPT-3 1.3B"], "a40", f"pp=4,microbatch={_BATCH}")
            result = parallel.stage_clocks(*arguments, sm_clock=clocks, **_REQUEST)
            _beside(result, data)


def _row(gpus: str, name: str, free: Any, later: Any, one: Any) -> None:
    low, high = free["saving_pct_p5_p95"]
    base = free["baseline"]
    cells = (
        gpus,
        name,
        " ".join(map(str, free["split"])),
        f"{base['step_time_s']:.2f}",
        f"{base['energy_j'] / 1e3:.2f}",
        f"{free['saving_pct']:.1f}",
        f"{low:.0f}-{high:.0f}",
        f"{free['bound_saving_pct']:.1f}",
        f"{later['saving_pct']:.1f}",
        f"{later['bound_saving_pct']:.1f}",
        f"{one['saving_pct']:.1f}",
    )
    print(f"| {' | '.join(cells)} |", flush=True)


def _beside(stages: Any, data: Path) -> None:
    """Ratios of time and energy between clocks: measured passes, and the model's of
    the same stage and kind."""
    import numpy as np
    import pandas as pd

    rows = pd.read_csv(data / "parallel" / "pipeline_instruction_profile.csv")
    problem = stages.replicas[0].problem
    kinds = ("forward", "backward")
    print("\n| pass | MHz | time measured, model | energy measured, model |")
    print("|---|---|---|---|")
    for _, some in rows.groupby(["stage", "instruction"], sort=False):
        first, last = some.iloc[0], some.iloc[-1]
        stage, word = first["stage"], first["instruction"]
        mine = (problem.stage == stage) & (problem.kind == kinds.index(word))
        at = [
            int(np.abs(problem.clocks / 1e6 - x["frequency"]).argmin())
            for x in (first, last)
        ]
        modelled = [
            float(x[at[1], mine][0] / x[at[0], mine][0])
            for x in (problem.time, problem.energy)
        ]
        measured = [last[x] / first[x] for x in ("time", "energy")]
        pairs = zip(measured, modelled, strict=True)
        cells = " | ".join(
            f"{100 * x - 100:+.2f}, {100 * y - 100:+.2f} %" for x, y in pairs
        )
        clocks = f"{first['frequency']:.0f} to {last['frequency']:.0f}"
        print(f"| stage {stage} {word} | {clocks} | {cells} |")


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
    typer.run(savings)
