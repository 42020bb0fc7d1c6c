"""Groups of flags that several commands have."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

from ...dtypes import STORED
from .. import completing
from . import read
from .field import Files, argument, option, repeated, switch

MODEL = "Bundled name, Hugging Face config.json or its folder"
DTYPE = (
    f"Of linear layers: {', '.join(STORED[:-1])} or {STORED[-1]} [as the checkpoint "
    "has them, else bf16]."
)
LISTING = ", a .jsonl kernel listing, or a trace, graph or report that `import` reads"


def model(more: str = ".", needed: bool = True, listing: bool = True):
    """The word MODEL, which may be a `listing`."""
    text = MODEL + (LISTING if listing else "") + more
    return argument(text, needed=needed, completed=completing.models, files=model_files)


def file(name: str) -> tuple[str, ...]:
    """What may be a file."""
    return (name,)


def model_files(name: str) -> tuple[str, ...]:
    """What may be a file or the folder of a config.json."""
    return name, str(Path(name) / "config.json")


def gpu(text: str = "GPU name or .toml file [h100-sxm]."):
    """`--gpu`."""
    return option("NAME", text, completed=completing.gpus, files=file)


def corrections():
    """`--corrections`."""
    return option("FILE|none", "Fitted constants [the shipped ones].", files=file)


def picked():
    """`--workload` of one listing."""
    return option("NAME", "One workload of a listing file.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class RequestFlags:
    """What a model is asked to do; None where a flag was not given."""

    batch: int | None = option(
        "N", "Sequences or images [1]; in training of a micro-batch.", read.whole
    )
    input_len: int | None = option("N", "Tokens in, per sequence [512].", read.whole)
    output_len: int | None = option("N", "Tokens out, per sequence [128].", read.whole)
    phase: str | None = option(
        "PHASE",
        "prefill, decode (one step at KV length --input-len), generate, forward or "
        "train (one optimizer step: forward, backward, AdamW) [generate; encoders "
        "and vision: forward].",
    )
    dtype: str | None = option("TYPE", DTYPE, read.dtype)
    kv_dtype: str | None = option(
        "TYPE",
        "Type of the KV cache [as the checkpoint says, else 16 bit].",
        read.dtype,
    )
    attention: str | None = option("KIND", "flash or eager [flash].")
    stack: str | None = option(
        "KIND",
        "serving (fused kernels; in training as in llm.c or Megatron-LM) or "
        "eager (Hugging Face modules; implies --attention eager) [serving].",
    )
    dispatch: str | None = option(
        "KIND",
        "eager or graph [graph in serving decode, and of a listing without "
        "module_calls].",
    )
    routing: str | None = option(
        "KIND",
        "How tokens spread over experts: random (each on its own), balanced or "
        "power_law_X [random; training: balanced].",
    )
    speculative: str | None = option(
        "KIND",
        "Draft tokens and verify them at once: mtp (the model's own layer), eagle or "
        "draft=MODEL; needs --accept.",
    )
    accept: float | None = option(
        "RATE", "Share of drafted tokens that are right, 0 to 1.", read.number
    )
    draft_tokens: int | None = option(
        "N", "Tokens drafted a step [mtp 1, eagle 3, draft 4].", read.whole
    )
    accumulation: int | None = option(
        "N", "Micro-batches of an optimizer step [1]; train only.", read.whole
    )
    checkpointing: bool = switch(
        "Run each layer again before its backward pass; train only."
    )
    lora: int | None = option(
        "RANK",
        "Train adapters of this rank on every linear layer, the rest is frozen; train "
        "only.",
        read.whole,
    )
    lora_layers: str | None = option(
        "KIND", "Linear layers with adapters: all or attention [all]; needs --lora."
    )
    frozen_layers: int | None = option(
        "N", "First layers that are not trained [none]; train only.", read.whole
    )
    images: int | None = option(
        "N",
        "Images of each sequence, read by the vision tower before the prompt [none].",
        read.whole,
    )
    image_tokens: int | None = option(
        "N",
        "Tokens of each image, beside the --input-len of text [of 1024 x 1024 pixels, "
        "or of the one size that the model reads]; of diffusion, those that it makes.",
        read.whole,
    )
    steps: int | None = option("N", "Denoising steps [1]; diffusion only.", read.whole)
    guidance: bool = switch(
        "Run each step with and without the prompt; diffusion only."
    )
    require_fit: bool = switch("Exit with 3 if the GPU's memory does not suffice.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlanFlags:
    """How many GPUs share a model; None where a flag was not given."""

    plan: str | None = option(
        "KEY=N[,...]",
        "Many GPUs: tp of them share every layer, pp stages of those the layers, dp "
        "replicas of all the batch, ep the experts [all 1]; in training also cp, vp, "
        "etp, microbatch, zero, schedule, recompute, overlap, sums, software.",
    )
    tp: int | None = option("N", "Short for --plan tp=N.", read.whole)
    num_gpus: int | None = option(
        "N", "GPUs in all: alone --tp N, else --plan has dp as many as fit.", read.whole
    )
    global_batch: int | None = option(
        "N",
        "Sequences of a training step on all GPUs [one micro-batch a replica].",
        read.whole,
    )
    topology: str | None = option(
        "NAME",
        "Machine: dgx-a100, dgx-h100, dgx-b200 or gb200-nvl72, NAME-N for N of them, "
        "any of `collective`, or a .toml file [that of the GPU].",
        files=file,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class PointFlags:
    """Where it runs: clocks in Hz, limits in W, C; and the constants that serve it."""

    sm_clock: tuple[float, ...] | None = option(
        "MHZ[,MHZ...]",
        "SM clock, also as 1.98GHz, or a list [the highest].",
        read.clocks,
    )
    mem_clock: tuple[float, ...] | None = option(
        "MHZ[,MHZ...]", "Memory clock, or a list.", read.clocks
    )
    power_limit: tuple[float, ...] | None = option(
        "W[,W...]", "Power limit, or a list [TDP].", read.watts
    )
    temperature: float | None = option(
        "C", "Temperature [follows from the power].", read.celsius
    )
    changes: dict[str, float | str] | None = repeated(
        "FIELD=VALUE",
        "Change a field of the GPU, in SI or as 3.35TB/s, its process_node or its "
        "memory; repeatable.",
        read.assignments,
        default=None,
        name="--set",
    )
    corrections: str | None = corrections()


@dataclasses.dataclass(frozen=True, kw_only=True)
class TableFlags:
    """How files of measured runs are read."""

    workloads: tuple[str, ...] = repeated(
        "FILE", "Listings (.jsonl); repeatable.", files=file
    )
    gpu: str | None = option("NAME", "Replaces the column gpu.", files=file)
    op: str | None = option("OP", "Replaces the column op.")


def measured():
    """Files of measured runs."""
    text = "Files .csv or .csv.gz of measured runs, or OP=FILE; or one trace."
    return argument(
        text, many=True, files=lambda spec: (spec, spec.partition("=")[2] or spec)
    )


def action(what: str):
    """The word show."""
    text = f"Tell all about one {what}."
    return argument(text, metavar="show", needed=False, completed=completing.show)


def known(text: str, completed: Callable[[str], list[str]], files: Files):
    """The name behind show."""
    return argument(
        text, metavar="NAME", needed=False, completed=completed, files=files
    )


def check_action(command: str, action: str | None, name: str | None):
    """Checks the words behind a command that takes `show NAME` or nothing."""
    if action not in (None, "show"):
        raise ValueError(
            f"`{command}` is followed by '{action}'; allowed is `{command} show NAME`."
        )
    if action and not name:
        raise ValueError(
            f"`{command} show` lacks a name; `diffenergy {command}` lists those known."
        )
