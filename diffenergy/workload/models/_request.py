"""`Request`: a pass of a model with every choice made, and its limits."""

import dataclasses
import re
from collections.abc import Collection, Mapping
from typing import Any, Final

from ...dtypes import STORED
from .._activations import RECOMPUTED, TrainingStorage, is_recompute
from .._model_request import Attend, Dispatch, Phase, Stack

_TYPES: Final = {"dtype": STORED, "kv_dtype": ("fp32", "bf16", "fp16", "fp8")}
"""Allowed types of weights and of the KV cache."""
_ROUTING: Final = re.compile("random|balanced|(lognormal|power_law)_[0-9]+([.][0-9]+)?")
EAGER_DTYPES: Final = ("fp32", "tf32", "bf16", "fp16", "fp8", "fp8_block")
"""Types that eager and training passes have, too."""
SCALED: Final = ("mxfp8", "nvfp4")
"""Types of fused training passes beside them (Transformer Engine)."""

_TRAINING: Final = (
    "accumulation", "lora", "frozen_layers", "lora_layers", "checkpointing",
    "recompute",
)  # fmt: skip
"""Choices of training alone."""
_WITHOUT: Final = {
    "kv_dtype": "has no KV cache; leave it out",
    "output_len": "generates nothing; leave it out or take `--phase generate`",
    "base": "needs the head; leave it out",
}
"""Choices that training lacks: reason and remedy."""
MODEL_INPUTS: Final = ("images", "image_tokens", "steps", "guidance")
"""Choices of some models alone: language models with images, diffusion transformers."""
_SEGMENTS: Final = 8
"""Decode steps are integrated over at most so many KV lengths."""
_WHY: Final = {
    "images": "reads no images",
    "image_tokens": "neither reads nor makes images of a size that can be chosen",
    "steps": "makes nothing in denoising steps",
    "guidance": "makes nothing in denoising steps",
}


@dataclasses.dataclass(frozen=True)
class Request:
    """A pass of a model with every choice made (`Model.request`).

    `input_len`, `output_len`: tokens per sequence; None where a model has none.
    `dispatch` None: graphs for serving decode, eager launches otherwise. `base`: the
    network without its language or classification head. `accumulation`: micro-batches
    of an optimizer step, `checkpointing`: whether layers run again before their
    gradients, `recompute`: what of them does, where that is less (`RECOMPUTE`); `lora`:
    rank of the adapters that alone are trained, `lora_layers`: which linear layers have
    them (`Adapted`), `frozen_layers`: first layers that are not trained; None in other
    phases than train; `storage`: how a training program keeps activations;
    `bf16_layers`: first and last layers whose products stay in 16 bit. `images` of
    a sequence, each of `image_tokens` beside the `input_len` tokens of text; denoising
    `steps`, `guidance`: whether each runs with and without the prompt; None where a
    model has none.
    """

    batch: int
    input_len: int | None
    output_len: int | None
    phase: Phase
    dtype: str
    kv_dtype: str
    attention: Attend
    stack: Stack
    dispatch: Dispatch | None
    base: bool
    accumulation: int | None = None
    checkpointing: bool | None = None
    routing: str | None = None
    speculative: str | None = None
    accept: float | None = None
    draft_tokens: int | None = None
    images: int | None = None
    image_tokens: int | None = None
    steps: int | None = None
    guidance: bool | None = None
    recompute: str | None = None
    lora: int | None = None
    lora_layers: str | None = None
    frozen_layers: int | None = None
    storage: TrainingStorage = TrainingStorage()
    bf16_layers: int = 0

    @property
    def recomputed(self) -> str:
        """Recomputation before the gradients of a layer (`RECOMPUTE`)."""
        return "full" if self.checkpointing else self.recompute or "none"


def check_inputs(name: str, choices: Mapping[str, Any], inputs: Collection[str]):
    """Raises `ValueError` for a choice that the model `name` has no input for."""
    for key in MODEL_INPUTS:
        if key not in choices:
            continue
        value = choices[key]
        if key not in inputs:
            raise ValueError(
                f"`{key}` is {value}, but {name} {_WHY[key]}; leave it out."
            )


def length_of(request: Any) -> int:
    """Input tokens of a sequence, those of images included."""
    images = (request.images or 0) * (request.image_tokens or 0)
    return (request.input_len or 1) + images


def decode_segments(input_len: int, steps: int) -> list[tuple[int, int]]:
    """(KV length, steps) of at most eight equal parts of a generation.

    Step i of `steps` attends to `input_len` + i tokens (i from 1); a part stands at its
    midpoint, so a cost linear in the KV length is integrated exactly (up to rounding).

    Example:

    >>> decode_segments(100, 3)
    [(101, 1), (102, 1), (103, 1)]
    """
    parts = min(_SEGMENTS, steps)
    edges = [steps * i // parts for i in range(parts + 1)]
    return [
        (round(input_len + (low + 1 + high) / 2), high - low)
        for low, high in zip(edges, edges[1:], strict=False)
    ]


def _types(stack: str) -> tuple[str, ...]:
    """Types of a training step or eager pass in this stack."""
    return (*EAGER_DTYPES, *SCALED) if stack == "serving" else EAGER_DTYPES


def trained_dtype(stored: str, stack: str) -> str:
    """Default type of a training step: that of the checkpoint, or bf16 where no step
    has that one.

    >>> trained_dtype("fp8_block", "serving"), trained_dtype("mxfp4", "serving")
    ('fp8_block', 'bf16')
    """
    return stored if stored in _types(stack) else "bf16"


def check_stack(values: dict[str, Any]):
    train, fused = values["phase"] == "train", values["stack"] == "serving"
    if fused and not train:
        return
    types = _types(values["stack"])
    if values["dtype"] not in types:
        what = "a training step" if train else "the stack eager"
        raise ValueError(
            f"`dtype` is {values['dtype']!r}, but {what} has only {', '.join(types)}."
        )


def check_types(values: dict[str, Any]):
    """Raises `ValueError` for a type that weights or caches do not have."""
    for key, allowed in _TYPES.items():
        if values[key] not in allowed:
            raise ValueError(
                f"`{key}` is {values[key]!r}; allowed are {', '.join(allowed)}."
            )


def check_routing(routing: Any, default: str | None, name: str):
    """Raises `ValueError` for an unknown `routing`, or one without experts."""
    if routing is None:
        return
    if default is None:
        raise ValueError(
            f"`routing` is {routing!r}, but {name} has no experts; leave it out."
        )
    if not _ROUTING.fullmatch(str(routing)):
        raise ValueError(
            f"`routing` is {routing!r}; allowed are random, balanced, lognormal_X "
            "and power_law_X with a number X."
        )


def check_training(choices: dict[str, Any]):
    """Raises `ValueError` for choices that training lacks, or that it alone has."""
    train = choices.get("phase") == "train"
    for name, reason in _WITHOUT.items():
        if train and choices.get(name):
            raise ValueError(
                f"`{name}` is {choices[name]}, but a training step {reason}."
            )
    for name in _TRAINING:
        if name in choices and not train:
            raise ValueError(
                f"`{name}` is given, but only a training step has it; leave it out "
                "or take `--phase train`."
            )
    again = choices.get("recompute", "none")
    if not is_recompute(again):
        raise ValueError(f"`recompute` is {again!r}; allowed are {RECOMPUTED}.")
    if choices.get("checkpointing") and again not in ("none", "full"):
        raise ValueError(
            f"`checkpointing` is given beside `recompute` '{again}'; give one."
        )
