"""`ModelRequest`: the pass of a model that a user requests."""

import functools
import os
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from .. import reading
from ..dtypes import STORED
from ..requests import Dtype, Flag, Needs, Request, Text, Whole

BUNDLED: Final = Path(__file__).parents[1] / "data" / "models"


def model_names() -> list[str]:
    """Names of the bundled models, sorted."""
    return [*_names()]


@functools.cache
def _names() -> tuple[str, ...]:
    return tuple(sorted(path.parent.name for path in BUNDLED.glob("*/config.json")))


def _files(name: str) -> tuple[str, ...]:
    return name, str(Path(name) / "config.json")


def _as_text(name: str, value: Any) -> Any:
    return os.fspath(value) if isinstance(value, os.PathLike) else value


ModelName = Annotated[str, Text("", files=_files, completed=model_names, take=_as_text)]
"""A bundled name, a config.json or its folder."""

Phase = Literal["prefill", "decode", "generate", "forward", "train"]
Attend = Literal["flash", "eager"]
Stack = Literal["serving", "eager"]
Dispatch = Literal["eager", "graph"]
Adapted = Literal["all", "attention"]
"""Linear layers of a layer that have adapters: all (PEFT's `all-linear`), or those
around the attention (MLPerf Training)."""
DTYPE: Final = (
    f"Type of the linear layers: {', '.join(STORED[:-1])} or {STORED[-1]} [as the "
    "checkpoint, else bf16]."
)


class SpeculationRequest(Request):
    """Speculative decoding: what drafts tokens, and how many of them are right."""

    speculative: Annotated[
        str | None,
        Flag(
            "Speculative decoding: mtp (the model's own layer), eagle or draft=MODEL; "
            "needs --accept.",
            "KIND",
        ),
    ] = None
    accept: Annotated[
        float | None,
        Flag("Acceptance rate of draft tokens, 0 to 1.", "RATE", reading.number),
    ] = None
    draft_tokens: Annotated[
        Whole | None, "Draft tokens per step [mtp 1, eagle 3, draft 4]."
    ] = None


class ModelRequest(SpeculationRequest):
    """Choices of a pass; None takes the default of the model."""

    batch: Annotated[
        Whole | None,
        "Sequences or images in a batch [1]; in training, in a micro-batch.",
    ] = None
    input_len: Annotated[Whole | None, "Input tokens per sequence [512]."] = None
    output_len: Annotated[Whole | None, "Output tokens per sequence [128]."] = None
    phase: Annotated[
        Phase | None,
        Flag(
            "What runs: prefill, decode (one step with --input-len tokens in the KV "
            "cache), generate, forward or train (forward, backward and AdamW) "
            "[generate; encoders and vision: forward].",
            "PHASE",
        ),
    ] = None
    dtype: Annotated[Dtype | None, Flag(DTYPE)] = None
    kv_dtype: Annotated[
        Dtype | None, "Type of the KV cache [as the checkpoint, else 16 bit]."
    ] = None
    attention: Annotated[
        Attend | None, Flag("Attention kernels: flash or eager [flash].", "KIND")
    ] = None
    stack: Annotated[
        Stack | None,
        Flag(
            "Software: serving (fused kernels; training as in llm.c or Megatron-LM) or "
            "eager (Hugging Face modules; implies --attention eager) [serving].",
            "KIND",
        ),
    ] = None
    dispatch: Annotated[
        Dispatch | None,
        Flag(
            "Kernel launches: eager (the host launches each) or graph (CUDA graph) "
            "[graph in serving decode, and of a listing without module_calls].",
            "KIND",
        ),
    ] = None
    routing: Annotated[
        str | None,
        Flag(
            "Distribution of tokens over experts: lognormal_X (popularity with this "
            "standard deviation of its logarithm), random (all alike), balanced or "
            "power_law_X [lognormal_0.8; training: random].",
            "KIND",
        ),
    ] = None
    accumulation: Annotated[
        Whole | None, "Micro-batches per optimizer step [1]; train only."
    ] = None
    checkpointing: Annotated[
        bool, "Recompute each layer before its backward pass; train only."
    ] = False
    lora: Annotated[
        Whole | None,
        Flag(
            "Rank of LoRA adapters on every linear layer (all other weights are "
            "frozen); train only.",
            "RANK",
        ),
    ] = None
    lora_layers: Annotated[
        Adapted | None,
        Flag(
            "Linear layers with adapters: all or attention [all]; needs --lora.", "KIND"
        ),
        Needs("lora", "give its rank"),
    ] = None
    frozen_layers: Annotated[
        Whole | None, "Number of frozen layers at the start [none]; train only."
    ] = None
    images: Annotated[
        Whole | None,
        "Images per sequence, read by the vision tower before the prompt [none].",
    ] = None
    image_tokens: Annotated[
        Whole | None,
        (
            "Tokens per image, in addition to the --input-len of text [those of 1024 x "
            "1024 pixels, or of the model's only size]; in diffusion, tokens of the "
            "generated image."
        ),
    ] = None
    steps: Annotated[Whole | None, "Denoising steps [1]; diffusion only."] = None
    guidance: Annotated[
        bool, "Classifier-free guidance: two passes per step; diffusion only."
    ] = False
