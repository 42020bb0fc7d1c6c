"""`Work`: the kernels of what is asked for, with what an answer says about them; that
of a listing and of what somebody recorded."""

import dataclasses
from collections.abc import Sequence
from typing import Any, Final

from ... import imports
from ...hardware import GpuCard, read_gpu
from ...imports import ImportResult
from ...plans import Steps, Training
from ...workload import MODEL_INPUTS as INPUTS
from ...workload import SPLIT_PHASES, Listing, with_dispatch
from ...workload.models import Request
from .._answer import memory as _memory

REQUEST: Final = (
    "phase", "batch", "input_len", "output_len", "dtype", "kv_dtype", "attention",
    "stack", "dispatch",
)  # fmt: skip
"""What was asked for, in every summary."""

PARTLY: Final = ("lora", "lora_layers", "frozen_layers")
TRAINING: Final = ("accumulation", "checkpointing", *PARTLY)
"""The same of a training step alone; the latter three where they were asked for."""
"""What leaves a part of a model untrained."""
SPECULATION: Final = ("speculative", "accept", "draft_tokens")
OTHERS: Final = (*TRAINING, "routing", *SPECULATION, *INPUTS)
"""What not every model or phase has."""
ANSWERED: Final = (*OTHERS, "tokens_per_step", "global_batch")


@dataclasses.dataclass(frozen=True)
class Work:
    """A workload with what the summary says about it and what was assumed; `memory` of
    the answer."""

    listings: list[Listing]
    about: dict[str, Any]
    assumed: dict[str, Any]
    warnings: list[str]
    memory: dict[str, Any]
    stages: list[dict[str, int | float]] | None = None
    step: "TrainingWork | None" = None
    decodes: bool = False
    """Whether it is a language model's."""


@dataclasses.dataclass(frozen=True)
class TrainingWork:
    """Parts that compose the phases of a training plan into a step."""

    steps: Steps
    placed: Training
    request: Request


def brought_work(
    path: str | ImportResult, gpu: str | GpuCard | None
) -> ImportResult | None:
    """Import a trace, graph or report; None for other files and for models.

    Raises `ValueError` for a trace of an unknown GPU where none is given: its times
    mean nothing without; and for another GPU where much of the time has no shape.
    """
    if isinstance(path, str):
        if path.lower().endswith(".jsonl"):
            return None
        if not imports.is_listing(path):
            imports.refuse_file(path, "measurements")
            return None
        path = imports.read(path)
    result = path
    if gpu is None and result.gpu is None and result.summary["sum_us"] is not None:
        raise ValueError(f"{result.missing_gpu()}, or another.")
    if gpu is not None:
        card = gpu if isinstance(gpu, GpuCard) else read_gpu(gpu)
        result.refuse_other_gpu(card.name)
    return result


def listed_work(
    path: str, read: Sequence[Listing], choices: dict[str, Any], card: GpuCard
) -> Work:
    """Work of the listings `read` from a file."""
    for name, value in choices.items():
        if value is not None and name != "dispatch":
            raise ValueError(
                f"`{name}` is given, but the listing '{path}' decides it; leave it out."
            )
    listings = [with_dispatch(listing, choices["dispatch"]) for listing in read]
    first, last = listings[0], listings[-1]
    ends = [x.name.rpartition("/")[2] for x in listings]
    pair, train = ends == [*SPLIT_PHASES[0]], ends == [*SPLIT_PHASES[1]]
    about = dict.fromkeys(REQUEST) | {
        "model": first.model or first.name,
        "phase": "generate" if pair else "train" if train else first.mode,
        "batch": first.batch,
        "input_len": first.seq_len,
        "output_len": last.passes + 1 if pair else None,
        "dtype": first.precision,
        "dispatch": dispatch_of(listings),
    }
    if about["phase"] == "train":  # in three parts, or in one
        about |= {"accumulation": first.passes, "checkpointing": None}
    notes = [f"{x.name}: {note}" for x in listings for note in x.notes]
    kernels = [kernel for listing in listings for kernel in listing.kernels]
    if any(k["op"] == "activity" and not k["time_ref_us"] for k in kernels):
        notes.append(
            "an `activity` without `time_ref_us` is taken to last 1 s: only its power "
            "means something."
        )
    is_stated = choices["dispatch"] or all(listing.dispatch for listing in read)
    assumed = {} if is_stated else {"dispatch": about["dispatch"]}
    return Work(listings, about, assumed, notes, _memory.entry(None, card))


def dispatch_of(listings: Sequence[Listing]) -> str:
    """Word for the dispatch of the host; by phase where phases differ."""
    kinds = list(dict.fromkeys(str(listing.dispatch) for listing in listings))
    if len(kinds) == 1:
        return kinds[0]
    return ", ".join(f"{listing.mode} {listing.dispatch}" for listing in listings)
