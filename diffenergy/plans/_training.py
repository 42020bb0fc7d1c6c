"""A language model in training on the GPUs of a plan: what each launches in a step,
what they exchange, and how its time follows from both."""

import dataclasses
import functools
import math
from typing import Any, Final

import equinox as eqx
import numpy as np

from ..workload import (
    LanguageModel,
    Listing,
    ModelShare,
    TrainedModel,
    Workload,
    element_bytes,
)
from ..workload.models import Model, Request
from ._exchange import exchange_groups
from ._host import Host
from ._layout import Layout, pipeline_layout
from ._memory import training_memory
from ._passes import GATHERED_WEIGHT_BYTES, between, gathers_of, model_flop, passes_of
from ._pipeline import Pipeline
from ._placed import Placed
from ._plan import Plan
from ._steps import STEP_PARTS, Steps

_MOST_CHUNKS: Final = 32_768
"""Micro-batches times virtual stages whose order is followed one by one."""
_HIDDEN_EAGERLY: Final = 0.37
"""Share of experts' exchange that runs beside computation where the host launches
kernels one by one, or graphs of parts of a step: Qwen3-30B-A3B in bf16 on 16 H100,
24.71 s without and 20.99 s with overlap (Megatron-Bridge, `performance-techniques`)."""
_FUSED: Final = 2023.0
"""Year before which training programs had no fused attention."""


def step_fields(plan: Plan, host: Host, width: float) -> dict[str, int | float]:
    """Fields of `Steps` that follow from a plan alone, whose products have operands of
    `width` bytes."""
    whole = plan.captured(width) == "all" or plan.order == "dualpipe"
    hidden = 1.0 if whole else _HIDDEN_EAGERLY
    gathers, reduces = gathers_of(plan)
    return {
        "virtual": plan.vp,
        "abreast": plan.tp * plan.cp * plan.dp,
        "network": math.inf if host.network is None else host.network,
        "gathers": gathers,
        "reduces": reduces,
        "tp_overlap": float("tp" in plan.overlap.split("+")),
        "dp_overlap": float(plan.overlap != "none"),
        "ep_overlap": hidden if plan.hides_experts else 0.0,
        "zero_bubble": float(plan.order == "zb-h1"),
        "both_ways": float(plan.order == "dualpipe"),
    }


@dataclasses.dataclass(frozen=True)
class Training(Placed):
    """`model` in training on the GPUs of `plan`, in hosts like `host`, whose steps have
    `sequences` in all; its first `frozen` layers are not trained. All are checked
    against each other.

    Raises `ValueError` if the model or the sequences cannot be divided so.
    """

    model: TrainedModel
    host: Host
    sequences: int
    split: tuple[int, ...] | None = None
    """Layers of every virtual stage; None: as `pipeline_layout` divides them."""
    frozen: int = 0

    def __post_init__(self):
        super().__post_init__()
        plan, each = self.plan, self.plan.dp * self.plan.microbatch
        if self.sequences % each:
            raise ValueError(
                f"`global_batch` is {self.sequences}, which dp={plan.dp} x "
                f"microbatch={plan.microbatch} does not divide; give a multiple of "
                f"{each}."
            )
        if plan.order == "interleaved" and plan.vp > 1 and self.batches % plan.pp:
            raise ValueError(
                f"`plan` has pp={plan.pp} and vp={plan.vp}, but a replica has "
                f"{self.batches} micro-batches; an interleaved schedule needs a "
                f"multiple of pp: give a `global_batch` that is one of "
                f"{each * plan.pp}."
            )
        if plan.order == "dualpipe" and self.batches % 2:
            raise ValueError(
                f"`plan` has schedule=dualpipe, but a replica has {self.batches} "
                "micro-batches, of which half enter at either end; give a "
                "`global_batch` that makes their number even."
            )
        if plan.hides_experts and self.batches == 1:
            raise ValueError(
                f"`plan` has overlap={plan.overlap}, experts' exchange beside another "
                "micro-batch, but a replica has one; give a larger `global_batch`."
            )
        self.host.check_training(plan)
        _ = self.layout
        for chunk in range(len(self.layout.chunks)):
            _ = self.placed(chunk).layer_counts  # raises

    @property
    def batches(self) -> int:
        """Micro-batches of a replica."""
        return self.sequences // (self.plan.dp * self.plan.microbatch)

    @functools.cached_property
    def layout(self) -> Layout:
        """Layers of every virtual stage."""
        further, frozen = self.model.further_layers, self.frozen
        kinds = self.model.kinds
        return pipeline_layout(kinds, self.plan, self.name, further, self.split, frozen)

    def request(self, **choices: Any) -> Request:
        """What one replica runs: its micro-batches."""
        plan = self.plan
        attention = choices.get("attention")
        if attention is None and plan.software < _FUSED:
            attention = "eager"
        choices = choices | {
            "batch": plan.microbatch,
            "accumulation": self.batches,
            "attention": attention,
            "checkpointing": None,
        }
        request = self.model.request(**choices)
        if request.lora and plan.order == "zb-h1":
            raise ValueError(
                f"`lora` is {request.lora} beside schedule=zb-h1, which fills bubbles "
                "with gradients of weights; frozen ones have none: take another "
                "schedule."
            )
        if plan.cp > 1 and (request.input_len or 0) % (2 * plan.cp):
            raise ValueError(
                f"`input_len` is {request.input_len}, which cp={plan.cp} cannot divide "
                f"into pairs of equal parts; give a multiple of {2 * plan.cp}."
            )
        self._check_wide(request)
        own = {"recompute": plan.recompute, "storage": plan.storage}
        return dataclasses.replace(request, **own, bf16_layers=plan.bf16_layers)

    def _check_wide(self, request: Request):
        """Raises `ValueError` for layers in 16 bit beside none that are narrower."""
        number, most = self.plan.bf16_layers, (len(self.model.stack()) - 1) // 2
        if not number:
            return
        has = f"`plan` has bf16_layers={number}"
        if self.model.precision(request).requested is None:
            raise ValueError(
                f"{has}, but `dtype` is {request.dtype}; give a type below 16 bit, or "
                "leave it out."
            )
        if number > most:
            raise ValueError(
                f"{has}, first and last, but {self.name} has "
                f"{len(self.model.stack())} layers; give at most {most}."
            )
        if request.lora:
            raise ValueError(
                f"{has} beside `lora`, whose frozen layers are all in the type of the "
                "step; leave one out."
            )

    def placed(self, chunk: int) -> TrainedModel:
        """The model as a GPU of a kind of virtual stages has it."""
        plan, layout = self.plan, self.layout
        place = layout.place(chunk)
        shares = exchange_groups(plan, self.host)
        share = ModelShare(
            plan.model_split,
            stages=plan.pp * plan.vp,
            stage=place,
            spans=(layout.spans[place],),
            shards=shares["dp"].ranks if plan.zero else 1,
            expert_shards=shares["experts"].ranks if plan.zero else 1,
        )
        placed = self.model.placed(share)
        assert isinstance(placed, TrainedModel)
        return placed

    def work(self, request: Request) -> tuple[list[Listing], Steps]:
        """Phases of a step (a listing each, named after kind and part), and the step
        that they make."""
        plan, shares = self.plan, exchange_groups(self.plan, self.host)
        listings: list[Listing] = []
        shape = (len(self.layout.chunks), len(STEP_PARTS))
        phase, far, hops = np.full(shape, -1), np.zeros(shape), np.zeros(shape)
        for i in range(len(self.layout.chunks)):
            model = self.placed(i)
            passes = model.listings_of(request)
            parts = passes_of(model, passes, shares, plan)
            moved = between(model, request, passes[0], shares, plan)
            for part in (*parts, *moved):
                at = STEP_PARTS.index(part.name)
                far[i, at], hops[i, at] = part.far, part.hops
                if part.listing is not None:
                    phase[i, at] = len(listings)
                    mode = f"{part.name}@{i}"
                    named = {"name": f"{self.name}/{mode}", "mode": mode}
                    listings.append(dataclasses.replace(part.listing, **named))
        kinds = self.layout.kinds
        members = np.zeros((len(kinds), len(self.layout.chunks)))
        for i, chunks in enumerate(kinds):
            np.add.at(members[i], list(chunks), self.layout.share)
        width = element_bytes(self.model.precision(request).linear)
        about = step_fields(plan, self.host, width)
        if about["gathers"] > 1:  # no gradient passes frozen layers
            weights = self.placed(0).training_weights(request)
            whole = GATHERED_WEIGHT_BYTES * weights.trained + weights.frozen
            about["gathers"] -= self.frozen * weights.frozen_layer / whole
        return listings, Steps(
            phase=phase,
            far=far,
            hops=hops,
            members=members,
            count=np.array(list(kinds.values()), float),
            batches=self.batches,
            **about,
        )

    @property
    def kinds(self) -> list[int]:
        """Kind of each stage, as a place in those of `work`'s steps."""
        kinds = list(self.layout.kinds)
        return [kinds.index(tuple(sorted(x))) for x in self.layout.stages]

    @property
    def order(self) -> Pipeline | None:
        """The order in which the pipeline runs; None where it has one stage, or so many
        instructions that the closed form has to do."""
        return None if self.plan.pp == 1 else self.program

    @property
    def program(self) -> Pipeline | None:
        """The order in which the pipeline runs, also of one stage; None where it is too
        long, or runs both ways."""
        plan, layout = self.plan, self.layout
        if plan.order == "dualpipe" or (
            plan.pp * plan.vp * self.batches > _MOST_CHUNKS
        ):
            return None
        kinds = [layout.chunks.index(x) for x in layout.each]
        rows = [tuple(kinds[c * plan.pp :][: plan.pp]) for c in range(plan.vp)]
        return Pipeline(plan.order, self.batches, tuple(rows))

    def flop(self, request: Request) -> float:
        """FLOP of a step of all replicas that the model asks for."""
        # recomputation is the plan's work, not what the model asks for
        whole = dataclasses.replace(request, recompute="none")
        return self.plan.dp * model_flop(*self.model.listings_of(whole))

    @property
    def stage_layers(self) -> list[int]:
        """Layers of each stage, of all of its virtual ones."""
        stages = range(self.plan.pp)
        return [
            sum(stop - start for start, stop in self.layout.spans_of(stage))
            for stage in stages
        ]

    def stage_memories(self, request: Request) -> list[dict[str, float]]:
        """Bytes by part of a GPU of each stage (`training_memory`)."""
        return training_memory(self.model, self.plan, request, layers=self.split)


class TrainingStep(eqx.Module):
    """A training step of a plan: what its GPUs launch, and how that makes a step.

    `de.estimate(step, gpu, point)` is its time and energy, differentiable in every
    number; `steps.network` (B/s of a network card) is one.
    """

    workload: Workload
    steps: Steps
    order: Pipeline | None = eqx.field(static=True, default=None)


def training_of(
    model: Model,
    plan: Plan,
    host: Host,
    global_batch: int | None,
    split: tuple[int, ...] | None = None,
    frozen: int = 0,
) -> Training:
    """A model in training on the GPUs of a plan, its layers divided by `split`, its
    first `frozen` ones not trained.

    Raises `ValueError` if it is no language model, or what `Training` raises.
    """
    if not isinstance(model, LanguageModel):
        raise ValueError(
            f"`plan` is {plan.text}, but {model.name} is no language model; leave it "
            "out."
        )
    if not isinstance(model, TrainedModel) or not model.trains:
        raise ValueError(
            f"`phase` is 'train', but training is not known of {model.name}."
        )
    sequences = plan.dp * plan.microbatch if global_batch is None else global_batch
    return Training(model, plan, host, sequences, split, frozen)
