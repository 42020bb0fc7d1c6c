"""Answers to what is asked of many GPUs, from names and numbers."""

from collections.abc import Mapping
from typing import Any

from ..hardware import GpuCard, read_gpu
from ..plans import Plan, TrainingStep, host_of, read_plan, training_of
from ..workload._unlisted import complete
from ..workload._workload import assemble
from ..workload.models import load_model
from ..workload.models._shared.language_model import LanguageModel


def training_step(
    model: str | LanguageModel,
    gpu: GpuCard | str,
    plan: "str | Mapping[str, Any] | Plan | None" = None,
    *,
    global_batch: int | None = None,
    num_gpus: int | None = None,
    topology: str | None = None,
    **request: Any,
) -> TrainingStep:
    """The training step of a model on the GPUs of a plan, as records.

    Args:
        model: bundled name, config file or folder, or a language model.
        gpu: GPU whose machine decides what meets in a host.
        plan: sizes and words of `--plan`, as text or a dict [one GPU].
        global_batch: sequences of a step [one micro-batch a replica].
        num_gpus: GPUs in all; `dp` follows.
        topology: machine [that in which the GPU is sold].
        **request: `input_len`, `dtype`, `attention`, `stack`, `dispatch`, `routing` of
            `de.estimate`.

    Raises:
        ValueError: for what cannot be, in one sentence.

    Example:

        >>> from diffenergy import estimate, load_gpu
        >>> step = training_step("gpt2", "h100-sxm", "dp=8", global_batch=64)
        >>> float(estimate(step, load_gpu("h100-sxm")).energy) > 0
        True
    """
    card = read_gpu(gpu) if isinstance(gpu, str) else gpu
    found = read_plan(plan, num_gpus=num_gpus, training=True) or Plan()
    loaded = load_model(model) if isinstance(model, str) else model
    placed = training_of(loaded, found, host_of(card, topology), global_batch)
    listings, steps = placed.work(placed.request(phase="train", **request))
    workload = assemble([complete(x) for x in listings])
    return TrainingStep(workload, steps, placed.order)
