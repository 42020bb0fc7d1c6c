"""Options that several commands share: the workload, the GPU, where it runs."""

from typing import Annotated, Any

import typer

from . import completing


def option(name: str, metavar: str, text: str, completed: Any = None) -> Any:
    """An option that takes a value; `completed(start)` lists what the shell offers."""
    return typer.Option(name, metavar=metavar, help=text, autocompletion=completed)


Model = Annotated[
    str,
    typer.Argument(
        help="Bundled name, Hugging Face config.json or its folder, or a .jsonl "
        "kernel listing.",
        autocompletion=completing.models,
    ),
]
Gpu = Annotated[
    str | None,
    option("--gpu", "NAME", "GPU name or .toml file [h100-sxm].", completing.gpus),
]
Workload = Annotated[
    str | None, option("--workload", "NAME", "One workload of a listing file.")
]
Batch = Annotated[
    str | None,
    option("--batch", "N", "Sequences or images [1]; in training of a micro-batch."),
]
InputLen = Annotated[
    str | None, option("--input-len", "N", "Tokens in, per sequence [512].")
]
OutputLen = Annotated[
    str | None, option("--output-len", "N", "Tokens out, per sequence [128].")
]
Phase = Annotated[
    str | None,
    option(
        "--phase",
        "PHASE",
        "prefill, decode (one step at KV length --input-len), generate, forward or "
        "train (one optimizer step: forward, backward, AdamW) [generate; encoders "
        "and vision: forward].",
    ),
]
Dtype = Annotated[
    str | None,
    option("--dtype", "TYPE", "fp32, tf32, bf16, fp16, fp8 or fp8_block [bf16]."),
]
KvDtype = Annotated[
    str | None, option("--kv-dtype", "TYPE", "Type of the KV cache [as --dtype].")
]
Attention = Annotated[
    str | None, option("--attention", "KIND", "flash or eager [flash].")
]
Stack = Annotated[
    str | None,
    option(
        "--stack",
        "KIND",
        "serving (fused kernels; in training as in llm.c or Megatron-LM) or "
        "eager (Hugging Face modules; implies --attention eager) [serving].",
    ),
]
Dispatch = Annotated[
    str | None,
    option("--dispatch", "KIND", "eager or graph [graph in serving decode]."),
]
Accumulation = Annotated[
    str | None,
    option(
        "--accumulation", "N", "Micro-batches of an optimizer step [1]; train only."
    ),
]
Checkpointing = Annotated[
    bool,
    typer.Option(
        "--checkpointing",
        help="Run each layer again before its backward pass; train only.",
    ),
]
SmClock = Annotated[
    str | None,
    option("--sm-clock", "MHZ[,MHZ...]", "SM clock, or a list [the highest]."),
]
MemClock = Annotated[
    str | None,
    option("--mem-clock", "MHZ[,MHZ...]", "Memory clock, or a list."),
]
PowerLimit = Annotated[
    str | None,
    option("--power-limit", "W[,W...]", "Power limit, or a list [TDP]."),
]
Temperature = Annotated[
    str | None,
    option("--temperature", "C", "Temperature [follows from the power]."),
]
SetField = Annotated[
    list[str] | None,
    option("--set", "FIELD=VALUE", "Change a field of the GPU, in SI; repeatable."),
]
Corrections = Annotated[
    str | None,
    option("--corrections", "FILE|none", "Fitted constants [the shipped ones]."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON alone.")]
