"""Memory of the GPUs of a training plan, stage by stage.

State by ZeRO (arXiv 1910.02054) and its stage 3 as FSDP keeps it, activations by
arXiv 2205.05198 with as many micro-batches in flight as the schedule leaves.
"""

import dataclasses
from typing import Any, Final

from ..workload import (
    LanguageModel,
    ModelShare,
    Number,
    SavedActivations,
    TrainedModel,
    TrainingWeights,
    element_bytes,
    memory_by_part,
)
from ..workload.models import Request
from ._layout import pipeline_layout
from ._plan import Plan

_WIDE: Final = 4.0
"""Bytes of an fp32 value: a master weight, each of AdamW's two moments, a gradient that
is summed over micro-batches and replicas."""
_PREFETCHED: Final = 2
"""Layers that FSDP has gathered: the one that runs and the next."""


def training_memory(
    model: LanguageModel,
    plan: Plan,
    request: Request,
    *,
    layers: tuple[int, ...] | None = None,
    **changed: Any,
) -> list[dict[str, float]]:
    """Bytes by `PARTS` of a GPU of each stage while an optimizer step runs.

    `request`: a training request of one replica: `batch` sequences in a micro-batch,
    `accumulation` micro-batches. `layers`: of each virtual stage (`pipeline_layout`);
    `changed`: fields of `Pass` (`dropout`, `restores`).
    Raises `ValueError` if the plan cannot divide the model."""
    times = request.accumulation or 1
    if request.recompute is None and not request.checkpointing:
        request = dataclasses.replace(
            request, recompute=plan.recompute, storage=plan.storage
        )
    if not isinstance(model, TrainedModel):
        raise ValueError(f"`phase` is 'train', but {model.name} does not train.")
    frozen, further = request.frozen_layers or 0, model.further_layers
    laid = pipeline_layout(model.kinds, plan, model.name, further, layers, frozen)
    split = plan.model_split
    stages: list[dict[str, float]] = []
    kinds: dict[tuple[int, ...], tuple[SavedActivations, dict[str, float]]] = {}
    for stage in range(plan.pp):
        kind = tuple(sorted(laid.stages[stage]))
        if kind not in kinds:
            # one GPU of DualPipe has the first and the last stage
            whole = plan.order == "dualpipe" and stage in (0, plan.pp - 1)
            one = stage if plan.pp > 1 and not whole else None
            spans = laid.spans_of(stage)
            placed = model.placed(ModelShare(split, plan.pp, one, spans=spans))
            assert isinstance(placed, TrainedModel)
            table = placed.vocab * placed.hidden / plan.tp
            dtype = placed.precision(request).values
            state = state_bytes(plan, dtype, placed.training_weights(request), table)
            saved = placed.saved_activations(request, **changed)
            keys = context_bytes(placed, plan, request)
            saved = dataclasses.replace(saved, workspace=saved.workspace + keys)
            kinds[kind] = saved, state
        left, state = kinds[kind]
        flying = micro_batches_in_flight(plan, stage, times)
        # The last stage runs backward right after forward: it has the logits of one
        # micro-batch. GPipe runs all forward first and has those of all.
        scored = flying if plan.order == "gpipe" else 1.0
        stages.append(
            memory_by_part(
                **state,
                activations=flying * left.each + left.once,
                logits=scored * left.logits,
                workspace=left.workspace,
            )
        )
    return stages


def context_bytes(model: TrainedModel, plan: Plan, request: Request) -> float:
    """Bytes of the keys and values of one layer that the `cp` GPUs of a sequence
    exchange: those of all tokens, or of a GPU's part (arXiv 2310.01889)."""
    if plan.cp == 1:
        return 0.0
    rows = (row for each in model.listings_of(request) for row in each.kernels)
    gathers = ("cp", "all_gather")
    whole = (
        float(x["bytes"])
        for x in rows
        if (x.get("axis"), x.get("collective")) == gathers
    )
    parts = plan.cp if plan.cp_exchange == "ring" else 1
    return max(whole, default=0.0) / parts


def micro_batches_in_flight(plan: Plan, stage: int, micro_batches: int) -> float:
    """Micro-batches whose activations a stage has at its fullest, of all of its layers.

    1F1B: one for each stage behind it and its own. Interleaved (arXiv 2104.04473):
    2 (p - s - 1) + (v - 1) p chunks run before the first backward one, which takes
    another. ZB-H1 (arXiv 2401.10241): as many as the first stage everywhere, since
    gradients of weights wait. DualPipe (arXiv 2412.19437): p + 1 of one of a GPU's two
    stages.

    >>> in_flight(Plan(pp=4, vp=8), 0, 64)
    4.375
    """
    p, v, behind = plan.pp, plan.vp, plan.pp - stage - 1
    if p == 1:
        return 1.0
    most = {
        "gpipe": micro_batches,
        "1f1b": behind + 1,
        "interleaved": (2 * behind + (v - 1) * p + 1) / v,
        "zb-h1": p,
        "dualpipe": (p + 1) / 2,
    }
    return float(min(most[plan.order], micro_batches))


def state_bytes(
    plan: Plan, dtype: str, weights: TrainingWeights, table: Number
) -> dict[str, float]:
    """Bytes of weights, gradients, AdamW's state and what is gathered, of a GPU that
    has `weights`, `table` of it in its vocabulary.

    ZeRO-1 divides the state, 2 the gradients but for those of the layer that makes
    them, 3 all: FSDP has fp32 weights (no master beside them) and gathers the layers
    that run and the vocabulary. In a pipeline gradients stay whole and weights gathered
    until the last micro-batch. Frozen weights are in the type of their products.
    """
    dense = plan.dp * plan.cp  # GPUs that have the same parameters; of experts:
    routed = max(dense * plan.tp // (plan.ep * plan.expert_parts), 1)
    zero = plan.zero if max(dense, routed) > 1 else 0
    still = (
        weights.frozen - weights.frozen_experts
    ) / dense + weights.frozen_experts / routed
    dense_trained = weights.trained - weights.trained_experts
    moving = dense_trained / dense + weights.trained_experts / routed
    e = element_bytes(dtype)
    summed = e if plan.gpus == 1 else element_bytes(plan.sums)
    # fp32 weights are their own master copy
    master = _WIDE if e < _WIDE else 0.0
    trained, moments = weights.trained, 2 * element_bytes(plan.moments)
    gradients = moving if zero > 1 and plan.pp == 1 else trained
    running = gradients + weights.trained_layer * (gradients < trained)
    whole = trained * e + weights.frozen
    gathered = _PREFETCHED * weights.layer + table * e if plan.pp == 1 else whole
    full = zero == 3
    return {
        "weights": moving * _WIDE + still if full else whole,
        "gradients": summed * min(running, trained),
        "optimizer": (moving if zero else trained) * (moments + (not full) * master),
        "gathered": min(gathered, whole) if full else 0.0,
    }
