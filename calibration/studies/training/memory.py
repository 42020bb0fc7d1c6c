"""Peak memory of training runs beside what the plans predict.

    python calibration/studies/training/memory.py ../shared/data/parallel

DATA: a folder with `training.csv` (rows with `memory_gib`) and `models.csv`. Nothing is
fitted. What the sources leave to know:

- torchtitan prints what torch has reserved: 8 % more than its tensors, without the CUDA
  context. Its loss of 2024 runs as operators, compiled or not; that of the H200 rows
  (2025) is taken as compiled: logits and their gradients in 16 bit, an assumption that
  no other row tests. Its peak is the largest over ranks.
- Megatron-LM writes what is allocated on the last rank (`_set_tensorboard_writer`), so
  that in a pipeline the last stage is measured, which has the fewest micro-batches in
  flight. It keeps activations' outputs. `--fullest` compares the fullest stage instead.
"""

import argparse
import math
from pathlib import Path
from typing import Any, Final

import pandas as pd

from diffenergy.plans import read_plan, training_memory
from diffenergy.workload import Config, TrainedModel
from diffenergy.workload.models import model_from_config
from diffenergy.workload.models._operators.memory import CONTEXT

_GIB: Final = 2**30
_RESERVED: Final = 1.08
"""Reserved over allocated bytes of torch's allocator (`physics/parallel.md`)."""
_OPERATORS: Final = (12.0, 16.0)
"""Bytes a logit of a loss in operators: on one GPU, with the words divided."""
_COMPILED: Final = 4.0
"""The same of a compiled one."""


def built(shape: Any, positions: int) -> TrainedModel:
    """The model of a row of `models.csv`; without a gate all are taken as Nemotron."""
    values: dict[str, Any] = dict(
        model_type="llama" if shape.gated else "nemotron",
        hidden_size=int(shape.hidden),
        num_hidden_layers=int(shape.layers),
        num_attention_heads=int(shape.heads),
        num_key_value_heads=int(shape.kv_heads),
        head_dim=int(shape.head_dim),
        intermediate_size=int(shape.inner),
        vocab_size=int(shape.vocab),
        max_position_embeddings=positions,
        tie_word_embeddings=bool(shape.tied),
    )
    if not math.isnan(shape.experts):
        experts = dict(num_local_experts=int(shape.experts))
        values |= experts | dict(model_type="mixtral")
        values |= dict(num_experts_per_tok=int(shape.topk))
    model = model_from_config(Config(shape.model, shape.model, values))
    assert isinstance(model, TrainedModel)
    return model


_YEAR: Final = 2024.5
"""Of the programs, which keep what experts make until it is weighted."""


def plan_of(row: Any) -> dict[str, Any]:
    """Parallel plan of a row."""
    sizes = {key: int(row[key]) for key in ("tp", "pp", "vp", "cp", "ep", "dp")}
    sizes |= dict(zero=int(row.zero), microbatch=int(row.microbatch))
    if not math.isnan(row.etp):
        sizes["etp"] = int(row.etp)
    known = row.recompute in ("none", "selective", "selective-op", "full")
    return sizes | dict(recompute=row.recompute if known else "none")


def predicted(row: Any, model: TrainedModel, fullest: bool) -> dict[str, float]:
    """Bytes by part of the GPU that a row measures, as its source counts them."""
    plan = read_plan({**plan_of(row), "software": _YEAR}, training=True)
    assert plan is not None
    titan = row.group == "torchtitan"
    eager = row.framework == "torchtitan-eager"
    request = model.request(
        phase="train",
        batch=int(row.microbatch),
        input_len=int(row.seq_len),
        accumulation=int(row.global_batch / (row.dp * row.microbatch)),
        dtype=row.precision,
        stack="eager" if eager else "serving",
        attention="flash",
    )
    stages = training_memory(model, plan, request, restores=False)
    parts = max(stages, key=lambda x: sum(x.values())) if fullest else stages[-1]
    parts["workspace"] -= CONTEXT
    if titan:
        tokens = row.microbatch * row.seq_len / plan.cp
        each = _OPERATORS[plan.tp > 1] if row.gpu == "h100-sxm" else _COMPILED
        parts["logits"] = tokens * model.vocab / plan.tp * each
        parts["reserved"] = (_RESERVED - 1) * sum(parts.values())
    return parts


def main() -> None:
    parser = argparse.ArgumentParser(description="Training memory of plans.")
    parser.add_argument("data", type=Path)
    parser.add_argument("--fullest", action="store_true")
    arguments = parser.parse_args()
    rows = pd.read_csv(arguments.data / "training.csv")
    rows = rows[rows.memory_gib.notna()]
    shapes = pd.read_csv(arguments.data / "models.csv").set_index("model", drop=False)
    table = []
    for _, row in rows.iterrows():
        model = built(shapes.loc[row.model], int(row.seq_len))
        parts = predicted(row, model, arguments.fullest)
        total = sum(parts.values()) / _GIB
        table.append(
            {
                "row": row.row,
                "group": f"{row.group} {row.model} {row.gpu}",
                "plan": " ".join(f"{k}={x}" for k, x in plan_of(row).items() if x != 1),
                "measured": row.memory_gib,
                "predicted": round(total, 1),
                "error_pct": round(100 * (total / row.memory_gib - 1), 1),
            }
        )
    frame = pd.DataFrame(table)
    print(frame.drop(columns="group").to_string(index=False))
    by = frame.assign(size=frame.error_pct.abs()).groupby("group", sort=False)
    print(by.agg(rows=("row", "size"), mean_pct=("error_pct", "mean"),
                 mean_abs_pct=("size", "mean")).round(1).to_string())  # fmt: skip
    print(f"all: {frame.error_pct.abs().mean():.1f} %")


if __name__ == "__main__":
    main()
