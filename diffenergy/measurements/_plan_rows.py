"""Rows of training steps on many GPUs: plan and model of each.

Shapes of models that are not bundled stand in `models.csv` beside the measurements
(`model, layers, hidden, heads, kv_heads, head_dim, inner, gated, vocab, tied, experts,
topk`).
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from ..plans import Plan, read_plan
from ..workload import Config, LanguageModel
from ..workload.models import Model, load_model, model_from_config, model_names
from ._cells import (
    NOT_NEGATIVE,
    POSITIVE,
    CellRange,
    Sheet,
    read_names,
    read_numbers,
    read_sheet,
    read_texts,
)
from ._shapes import DTYPE_WORDS

COLUMNS: Final = (
    "model", "precision", "num_gpus", "tp", "pp", "vp", "cp", "ep", "etp", "dp", "zero",
    "microbatch", "global_batch", "seq_len", "recompute", "schedule", "overlap",
    "dispatch", "graphs", "sums", "software", "stack", "kernels", "mtp",
    "network_gb_per_s_per_gpu",
)  # fmt: skip
"""Columns of such rows beside the measured ones. `sums`: type in which gradients are
summed [fp32]; `dispatch`, `graphs`: as in a plan; `software`: year; `stack`: eager or
serving; `kernels`: `family` of the attention [by the year]; `mtp`: false where layers
that predict further tokens were off; an `overlap` that is not stated is what programs
do today."""
_NEEDED: Final = ("model", "precision", "tp", "pp", "dp", "global_batch", "seq_len")
_SIZES: Final = ("tp", "pp", "vp", "cp", "ep", "etp", "dp", "zero", "microbatch")
MAX_POSITIONS: Final = 1 << 20
"""Positions of a model whose shape alone is known."""
_LLAMA: Final = {
    "hidden_size": "hidden", "num_hidden_layers": "layers", "vocab_size": "vocab",
    "num_attention_heads": "heads", "num_key_value_heads": "kv_heads",
    "head_dim": "head_dim", "intermediate_size": "inner",
    "num_local_experts": "experts", "num_experts_per_tok": "topk",
}  # fmt: skip
_GPT2: Final = {
    "n_embd": "hidden", "n_layer": "layers", "n_head": "heads", "n_inner": "inner",
    "vocab_size": "vocab",
}  # fmt: skip
_MPT: Final = {
    "d_model": "hidden",
    "n_layers": "layers",
    "n_heads": "heads",
    "vocab_size": "vocab",
}
"""Keys of a config -> columns of a table of shapes, by family of the model."""
_REACH: Final = ("max_position_embeddings", "n_positions", "max_seq_len")


@dataclasses.dataclass(frozen=True)
class PlanRow:
    """A measured training step. `network`: B/s of a GPU's network card, NaN:
    that of its machine; `family`: kernels of its attention ("": by the year); `mtp`:
    whether layers that predict further tokens were trained, where the model has any.
    """

    model: str
    dtype: str
    seq_len: int
    sequences: int
    plan: Plan
    stack: str
    family: str
    network: float
    mtp: bool


def are_plans(sheet: Sheet) -> bool:
    """Whether the rows of a file are training steps of plans."""
    return "op" not in sheet.columns and sheet.columns.keys() >= {*_NEEDED}


def plan_rows(sheet: Sheet, time: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(`PlanRow` of every row or None, why it cannot be predicted); `time` measured."""
    every = np.arange(sheet.num_rows)
    sizes = {
        name: read_numbers(sheet, name, every, _whole(name))
        for name in (*_SIZES, "global_batch", "seq_len", "num_gpus")
        if name in sheet.columns
    }
    words = {
        name: read_texts(sheet, name, every)
        for name in COLUMNS
        if name in sheet.columns and name not in sizes
    }
    rows = np.full(sheet.num_rows, None, dtype=object)
    reasons = np.full(sheet.num_rows, "", dtype=object)
    for i in range(sheet.num_rows):
        texts = {name: str(column[i]) for name, column in words.items()}
        numbers = {name: float(column[i]) for name, column in sizes.items()}
        try:
            rows[i] = _row(texts, numbers)
            reasons[i] = "no time is given" if np.isnan(time[i]) else ""
        except ValueError as error:
            reasons[i] = str(error)
    return rows, reasons


def _whole(name: str) -> CellRange:
    return NOT_NEGATIVE if name in ("zero", "gated", "tied") else POSITIVE


def _row(texts: Mapping[str, str], sizes: Mapping[str, float]) -> PlanRow:
    """One row. Raises `ValueError` with the reason if it cannot be predicted."""
    for name in ("microbatch", "global_batch", "seq_len"):
        if np.isnan(sizes.get(name, 1.0)):
            raise ValueError(f"`{name}` is not given")
    if texts["precision"] not in DTYPE_WORDS:
        raise ValueError(
            f"`precision` is {texts['precision']}, which is no type of ours"
        )
    fields: dict[str, Any] = {
        name: int(sizes[name])
        for name in _SIZES
        if name in sizes and not np.isnan(sizes[name])
    }
    schedule, recompute = texts.get("schedule", "none"), texts.get("recompute", "")
    fields |= {
        "schedule": None if schedule == "none" else schedule,
        "recompute": "none" if recompute in ("", "unstated") else recompute,
        "overlap": texts.get("overlap") or "tp+dp",
        "dispatch": texts.get("dispatch") or None,
        "graphs": texts.get("graphs") or None,
        "sums": texts.get("sums") or "fp32",
        "software": float(texts["software"]) if texts.get("software") else None,
    }
    gpus = sizes.get("num_gpus", np.nan)
    plan = read_plan(
        fields, num_gpus=None if np.isnan(gpus) else int(gpus), training=True
    )
    assert plan is not None
    stack = texts.get("stack") or "serving"
    if stack not in ("eager", "serving"):
        raise ValueError(f"`stack` is {stack}; allowed are eager and serving")
    rate = texts.get("network_gb_per_s_per_gpu", "")
    return PlanRow(
        texts["model"],
        DTYPE_WORDS[texts["precision"]],
        int(sizes["seq_len"]),
        int(sizes["global_batch"]),
        plan,
        stack,
        texts.get("kernels", ""),
        float(rate) * 1e9 if rate else np.nan,
        texts.get("mtp", "") != "false",
    )


def measured_model(name: str, beside: Path) -> Model | None:
    """A model by name: bundled, else with the shapes of `models.csv` `beside` the
    measurements; None if neither knows it."""
    if name in model_names():
        return load_model(name)
    shape = _shapes(beside / "models.csv").get(name)
    return None if shape is None else model_of_shape(name, shape)


def _shapes(path: Path) -> dict[str, dict[str, float]]:
    """Columns of every row of a table of shapes; none if there is no such file."""
    if not path.is_file():
        return {}
    sheet = read_sheet(str(path))
    every = np.arange(sheet.num_rows)
    names = read_names(sheet, "model", every, str, needed=True)
    columns = [name for name in sheet.columns if name != "model"]
    values = {name: read_numbers(sheet, name, every, _whole(name)) for name in columns}
    return {
        str(name): {key: float(column[i]) for key, column in values.items()}
        for i, name in enumerate(names)
    }


def model_of_shape(name: str, shape: Mapping[str, float]) -> LanguageModel:
    """A decoder of a shape: gated ones like Llama (with experts like Mixtral), others
    like GPT, those with heads of keys or a head of their own like Nemotron."""
    size = {k: int(v) for k, v in shape.items() if not np.isnan(v)}
    if name.startswith("mpt"):
        kind, keys = "mpt", _MPT
    elif "experts" in size:
        kind, keys = "mixtral", _LLAMA
    elif size["gated"]:
        kind, keys = "llama", _LLAMA
    elif size["tied"] and size["kv_heads"] == size["heads"]:
        kind, keys = "gpt2", _GPT2
    else:
        kind, keys = "nemotron", _LLAMA
    stated = {key: size[x] for key, x in keys.items() if x in size}
    if keys is _LLAMA:
        stated["tie_word_embeddings"] = bool(size["tied"])
    about = {"model_type": kind, "architectures": ["ForCausalLM"]}
    reach = dict.fromkeys(_REACH, MAX_POSITIONS)
    model = model_from_config(Config(name, name, {**about, **stated, **reach}))
    assert isinstance(model, LanguageModel)
    return model
