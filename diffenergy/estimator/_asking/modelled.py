"""Work of a model: bundled, or of a config file; on one GPU, or those of a plan."""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

from ...hardware import GpuCard
from ...plans import (
    Host,
    Inference,
    Placed,
    Plan,
    Training,
    host_of,
    least_plan,
    least_training,
    training_of,
)
from ...records import Keyed
from ...workload import MODEL_INPUTS as INPUTS
from ...workload import Encoder, LanguageModel, Listing, TrainedModel, speculation_of
from ...workload.models import (
    Model,
    Request,
    assumed_model,
    load_model,
    model_names,
)
from .._answer import memory as _memory
from .warnings import weight_types
from .work import (
    PARTLY,
    REQUEST,
    SPECULATION,
    TRAINING,
    TrainingWork,
    Work,
    dispatch_of,
)


@dataclasses.dataclass(frozen=True)
class Sharing:
    """The plan asked for, if any, and of a training step of it the sequences and how
    the pipeline divides the layers."""

    plan: Plan | None
    host: Host | None
    global_batch: int | None
    split: tuple[int, ...] | None = None

    def choices_of_replica(self, request: dict[str, Any]) -> dict[str, Any]:
        """Choices of a request as one replica has them."""
        plan = self.plan
        if plan is None or request["phase"] != "train":
            return request
        for name in ("batch", "accumulation", "checkpointing"):
            if request[name] is not None:
                instead = {"checkpointing": "recompute=full in the plan"}.get(
                    name, "microbatch in the plan and `global_batch`"
                )
                raise ValueError(
                    f"`{name}` is given beside a plan of training; give {instead}."
                )
        each = plan.dp * plan.microbatch
        sequences = {"batch": plan.microbatch}
        if self.global_batch and self.global_batch % each == 0:
            sequences |= {"accumulation": self.global_batch // each}
        return request | sequences | {"checkpointing": plan.recompute == "full" or None}

    def larger(self, model: Model, request: Request, card: GpuCard) -> Plan | None:
        """The least plan with which a request fits the memory of its GPUs."""
        least = least_training if request.phase == "train" else least_plan
        host, most = self.host or host_of(card), card.values["dram_capacity"]
        return least(model, request, self.plan or Plan(), host, most)

    def sequences(self, request: Request) -> int:
        """Sequences of a training step."""
        dp = self.plan.dp if self.plan else 1
        return request.batch * (request.accumulation or 1) * dp

    def placed(self, model: Model, request: Request) -> Placed | None:
        """A model on the GPUs of the plan; None: on one GPU."""
        plan, host = self.plan, self.host
        if plan is None or host is None:
            return None
        if request.phase == "train":
            frozen = request.frozen_layers or 0
            sequences = self.global_batch
            return training_of(model, plan, host, sequences, self.split, frozen)
        if not isinstance(model, LanguageModel):
            raise ValueError(
                f"`plan` is {plan.text}, but {model.name} is no language model; leave "
                "it out."
            )
        placed = Inference(model, plan, host)
        placed.check(request)
        return placed


def modelled_work(
    name: str,
    workload: str | None,
    choices: dict[str, Any],
    card: GpuCard,
    require_fit: bool,
    sharing: Sharing,
) -> Work:
    """Work of a model: bundled, or of a config file; on the GPUs of a plan.

    Raises `ValueError` for what such a model does not have, `Infeasible` where it has
    to fit the memory and does not (`require_fit`). No clock changes the work of a
    bundled model on one GPU: it is remembered, and copied where a caller may write.
    """
    arguments = (name, workload, choices, card, require_fit, sharing)
    if sharing.plan or choices["speculative"] or name not in model_names():
        return _work(*arguments)  # a plan or a file may differ next time
    content = (name, workload, *choices.items(), id(card), require_fit, sharing)
    work = _remembered(Keyed(content, arguments))
    listings = [
        dataclasses.replace(x, kernels=tuple({**row} for row in x.kernels))
        for x in work.listings
    ]
    return dataclasses.replace(work, listings=listings, memory={**work.memory})


@functools.lru_cache(maxsize=64)
def _remembered(arguments: Keyed) -> Work:
    return _work(*arguments.value)


def _work(
    name: str,
    workload: str | None,
    choices: dict[str, Any],
    card: GpuCard,
    require_fit: bool,
    sharing: Sharing,
) -> Work:
    """`modelled_work`, each time anew."""
    if workload is not None:
        raise ValueError(
            f"`workload` is '{workload}', but '{name}' is a model; it picks one of "
            "several workloads of a .jsonl listing."
        )
    model = load_model(name)
    choices = sharing.choices_of_replica(choices)
    request = model.request(**choices)
    _check(model, request, choices)
    placed = sharing.placed(model, request)
    if isinstance(placed, Training):
        request = placed.request(**choices)
    one = placed or model
    memory = _memory.entry(one.memory(request), card)
    larger = None if memory["fits"] else sharing.larger(model, request, card)
    if require_fit:
        _memory.check_fit(one, request, memory, card, larger)
    listings, step = _launched(one, request, choices)
    names = _names(request, choices)
    about = {"model": model.name} | {x: getattr(request, x) for x in names}
    about |= _about(model, request, sharing)
    about["dispatch"] = dispatch_of(listings[:1] if step else listings)
    assumed = {x: about[x] for x in names if choices[x] is None}
    assumed = {x: value for x, value in assumed.items() if value is not None}
    assumed = assumed_model(name) | assumed | _also_assumed(model, request, choices)
    warnings = [
        *_memory.too_large(model.name, memory, card, larger),
        *model.notes,
        *weight_types(model, name, choices["dtype"], request.dtype),
    ]
    stages = placed.stages(request) if placed else None
    decodes = isinstance(model, LanguageModel)
    return Work(listings, about, assumed, warnings, memory, stages, step, decodes)


def _check(model: Model, request: Request, choices: Mapping[str, Any]) -> None:
    """Raises `ValueError` for choices that the model or its phase does not have."""
    if choices["output_len"] is not None and request.phase != "generate":
        raise ValueError(
            f"`output_len` is {choices['output_len']}, but the phase {request.phase} "
            "generates nothing; leave it out or take `--phase generate`."
        )
    if choices["kv_dtype"] is not None and isinstance(model, Encoder):
        raise ValueError(
            f"`kv_dtype` is given, but {model.name} has no KV cache; leave it out."
        )


def _names(request: Request, choices: Mapping[str, Any]) -> tuple[str, ...]:
    """Fields of a request that the answer repeats."""
    train = request.phase == "train"
    return (
        *REQUEST,
        *(x for x in TRAINING if train and (x not in PARTLY or getattr(request, x))),
        *(("routing",) if request.routing else ()),
        *(SPECULATION if request.speculative else ()),
        *(name for name in INPUTS if getattr(request, name) is not None),
    )


def _about(model: Model, request: Request, sharing: Sharing) -> dict[str, Any]:
    """Keys of the answer that follow from a request, beside its own fields."""
    entries: dict[str, Any] = {}
    if sharing.plan and request.phase == "train":
        entries["global_batch"] = sharing.sequences(request)
    if speculation := speculation_of(request):
        entries["tokens_per_step"] = speculation.tokens
    if isinstance(model, Encoder) or request.phase == "train":
        entries["kv_dtype"] = None
    return entries


def _also_assumed(
    model: Model, request: Request, choices: Mapping[str, Any]
) -> dict[str, Any]:
    """Assumptions that the model's own files decided."""
    entries: dict[str, Any] = {}
    if isinstance(model, LanguageModel) and choices["dtype"] is None:
        stored = request.dtype == model.stored_dtype
        statements = "; ".join(model.checkpoint.statements) if stored else ""
        entries |= {"checkpoint": statements} if statements else {}
    if request.phase == "train" and isinstance(model, TrainedModel):
        further = model.further_layers
        entries |= {"mtp_layers": further} if further else {}
    return entries


def _launched(
    one: Model | Placed, request: Request, choices: Mapping[str, Any]
) -> tuple[list[Listing], TrainingWork | None]:
    """Listings that one GPU launches; for training on several GPUs also the step."""
    if isinstance(one, Training):
        listings, steps = one.work(request)
        return listings, TrainingWork(steps, one, request)
    assert not isinstance(one, Placed) or isinstance(one, Inference)
    return one.listings(**choices), None
