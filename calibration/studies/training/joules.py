"""Time, power and energy of training plans beside measured ones.

    python calibration/studies/training/joules.py ../shared/data/parallel

Ten plans of Llama-3.2-3B and Qwen3-1.7B on 16 A100-40GB in two hosts (Perseus in NeMo,
rows `perseus` of `kareus_frontiers.csv`), at their fastest points and, by one clock for
all GPUs, at those of longer steps. Nothing is fitted to them.

What the rows are, by the source's scripts and configs: time and energy of forward and
backward passes, measured one by one and composed along 1F1B, without sends between
stages and the optimizer; a GPU that waits draws 85 W. Steps are composed so here, too:
a network without end, and none of the constants of a whole step. Sequence parallelism
is off, all is recomputed, nothing overlaps, stages have 15 and 13 layers. The runs drop
a tenth of what attention and MLP add (hidden_dropout 0.1), which no model of the
product does: its kernels are added to the listings.
"""

import dataclasses
import math
from pathlib import Path
from typing import Annotated, Any, Final

import typer

_MODELS: Final = {
    "llama3.2_3b": ("llama", 3072, 24, 8192, 128_256, False),
    "qwen3_1.7b": ("qwen3", 2048, 16, 6144, 151_936, True),
}
"""Type, width, heads, width of the MLP, words, whether the tables are tied (the
source's configs); 28 layers, 8 heads of keys and values, 128 wide."""
_PLAN: Final = ("model", "cp", "tp", "microbatch", "seq")
_LAYERS: Final = (15, 13)
"""Of the two stages."""
_BATCHES: Final = 8
"""Micro-batches of a step."""
_SLOWER: Final = (1.05, 1.1, 1.15, 1.2)
"""Time of a step over its least, at which energies are compared."""


def main(folder: Annotated[Path, typer.Argument(help="parallel")]) -> None:
    """Print a Markdown table of the ten plans, and one of energies along clocks."""
    from diffenergy.estimator import start_jax

    start_jax()
    import numpy as np
    import pandas as pd

    rows: Any = pd.read_csv(folder / "kareus_frontiers.csv")
    rows = rows[(rows["method"] == "perseus") & rows["frontier"]]
    typer.echo("| plan | time | measured | a GPU | measured | J a GPU | measured |")
    typer.echo("|---|---|---|---|---|---|---|")
    errors, savings = [], []
    for plan, own in rows.groupby(list(_PLAN)):
        time, energy = priced(dict(zip(_PLAN, plan, strict=True)))
        own = own.sort_values("time_s")
        at = own.iloc[0]
        predicted = time[-1], energy[-1] / time[-1], energy[-1]
        read = at["time_s"], at["power_per_gpu_w"], at["energy_j"] / 2
        errors.append(np.divide(predicted, read) - 1)
        cells = " | ".join(
            f"{x:{n}} | {y:{n}}"
            for x, y, n in zip(predicted, read, (".2f", ".0f", ".0f"), strict=True)
        )
        typer.echo(f"| {' '.join(map(str, plan))} | {cells} |")
        joules = (
            (energy / energy[-1], time / time[-1]),
            (own["energy_j"] / at["energy_j"], own["time_s"] / at["time_s"]),
        )
        savings.append([np.interp(_SLOWER, *_rising(y, x)) for x, y in joules])
    for name, column in zip(
        ("time", "power", "energy"), np.transpose(errors), strict=True
    ):
        typer.echo(f"{name}: {_cells(column)}")
    typer.echo("\n| step | energy | measured |\n|---|---|---|")
    for slower, (ours, theirs) in zip(
        _SLOWER, np.mean(savings, axis=0).T - 1, strict=True
    ):
        typer.echo(
            f"| {100 * slower - 100:+.0f} % | {100 * ours:+.1f} % | "
            f"{100 * theirs:+.1f} % |"
        )


def _rising(time: Any, energy: Any) -> tuple[Any, Any]:
    """Times in order, and the energies at them."""
    import numpy as np

    order = np.argsort(np.asarray(time))
    return np.asarray(time)[order], np.asarray(energy)[order]


def _cells(errors: Any) -> str:
    """Mean of the absolute errors, and of the errors, in %."""
    import numpy as np

    return f"{100 * np.abs(errors).mean():.1f} % ({100 * np.mean(errors):+.1f})"


def priced(row: dict[str, Any]) -> tuple[Any, Any]:
    """s of a step and J of a GPU of a plan, by clock up to the highest."""
    import numpy as np

    import diffenergy as de
    from diffenergy.hardware import default_point
    from diffenergy.plans import Host, TrainingStep, read_plan, training_of
    from diffenergy.workload import Config, assemble
    from diffenergy.workload.models import model_from_config

    kind, width, heads, inner, words, tied = _MODELS[row["model"]]
    values = dict(
        model_type=kind, hidden_size=width, num_hidden_layers=28,
        num_attention_heads=heads, num_key_value_heads=8, head_dim=128,
        intermediate_size=inner, vocab_size=words, tie_word_embeddings=tied,
        max_position_embeddings=131_072,
    )  # fmt: skip
    model = model_from_config(Config(row["model"], row["model"], values))
    plan = read_plan(
        {x: int(row[x]) for x in ("tp", "cp", "microbatch")}
        | dict(pp=2, recompute="full", overlap="none", sequence="off", software=2025.0),
        training=True,
    )
    assert plan is not None
    host = Host("8 x a100", 8, 300e9, math.inf, 2)
    training = training_of(model, plan, host, _BATCHES * plan.microbatch, _LAYERS)
    listings, steps = training.work(
        training.request(phase="train", input_len=int(row["seq"]))
    )
    tokens = plan.microbatch * int(row["seq"]) / plan.cp
    listings = [_dropping(x, tokens * width) for x in listings]
    step = TrainingStep(assemble(listings), steps, training.order)
    gpu = de.load_gpu("a100-sxm-40gb")
    bare = {x: 0 * getattr(gpu.corrections, x) for x in ("plan_fixed", "plan_straggle")}
    gpu = dataclasses.replace(
        gpu, corrections=dataclasses.replace(gpu.corrections, **bare)
    )
    point = default_point(gpu)
    points = [
        de.estimate(
            step, gpu, dataclasses.replace(point, sm_clock=x * 1e6 + 0 * point.sm_clock)
        )
        for x in np.arange(900.0, 1411.0, 30.0)
    ]
    time = np.array([float(x.time) for x in points])
    return time, np.array([float(x.energy) for x in points]) / plan.gpus


def _dropping(listing: Any, elements: float) -> Any:
    """A listing with dropout behind attention and MLP of all its layers, `elements` of
    a micro-batch: a mask of a byte a value is written, and read again backward."""
    way, _, stage = str(listing.mode).partition("@")
    if way not in ("forward", "backward"):
        return listing
    like = next(x for x in listing.kernels if x.get("fn") == "silu_mul")
    like = like | {"elements": elements, "count": 2 * _BATCHES * _LAYERS[int(stage)]}
    added = [like | {"fn": "dropout", "reads": 1.0, "writes": 1.5}]  # again backward
    if way == "backward":
        added += [like | {"fn": "dropout_backward", "reads": 1.5, "writes": 1.0}]
    return dataclasses.replace(listing, kernels=(*listing.kernels, *added))


if __name__ == "__main__":
    typer.run(main)
