"""Work of a model: bundled, or of a config file; on one GPU, or those of a plan."""

import dataclasses
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
from ...workload import MODEL_INPUTS as INPUTS
from ...workload import Encoder, LanguageModel, Listing, TrainedModel, speculation_of
from ...workload.models import Model, Request, assumed_model, load_model
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

    def given(self, request: dict[str, Any]) -> dict[str, Any]:
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
        found = {"batch": plan.microbatch}
        if self.global_batch and self.global_batch % each == 0:
            found |= {"accumulation": self.global_batch // each}
        return request | found | {"checkpointing": plan.recompute == "full" or None}

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
    given: dict[str, Any],
    card: GpuCard,
    require_fit: bool,
    sharing: Sharing,
) -> Work:
    """Work of a model: bundled, or of a config file; on the GPUs of a plan.

    Raises `ValueError` for what such a model does not have, `Infeasible` where it has
    to fit the memory and does not (`require_fit`).
    """
    if workload is not None:
        raise ValueError(
            f"`workload` is '{workload}', but '{name}' is a model; it picks one of "
            "several workloads of a .jsonl listing."
        )
    model = load_model(name)
    given = sharing.given(given)
    request = model.request(**given)
    _check(model, request, given)
    placed = sharing.placed(model, request)
    if isinstance(placed, Training):
        request = placed.request(**given)
    one = placed or model
    memory = _memory.entry(one.memory(request), card)
    larger = None if memory["fits"] else sharing.larger(model, request, card)
    if require_fit:
        _memory.check_fit(one, request, memory, card, larger)
    listings, step = _launched(one, request, given)
    names = _names(request, given)
    about = {"model": model.name} | {x: getattr(request, x) for x in names}
    about |= _about(model, request, sharing)
    about["dispatch"] = dispatch_of(listings[:1] if step else listings)
    assumed = {x: about[x] for x in names if given[x] is None}
    assumed = {x: value for x, value in assumed.items() if value is not None}
    assumed = assumed_model(name) | assumed | _also_assumed(model, request, given)
    warnings = [
        *_memory.too_large(model.name, memory, card, larger),
        *model.notes,
        *weight_types(model, name, given["dtype"], request.dtype),
    ]
    stages = placed.stages(request) if placed else None
    decodes = isinstance(model, LanguageModel)
    return Work(listings, about, assumed, warnings, memory, stages, step, decodes)


def _check(model: Model, request: Request, given: Mapping[str, Any]) -> None:
    """Raises `ValueError` for choices that the model or its phase does not have."""
    if given["output_len"] is not None and request.phase != "generate":
        raise ValueError(
            f"`output_len` is {given['output_len']}, but the phase {request.phase} "
            "generates nothing; leave it out or take `--phase generate`."
        )
    if given["kv_dtype"] is not None and isinstance(model, Encoder):
        raise ValueError(
            f"`kv_dtype` is given, but {model.name} has no KV cache; leave it out."
        )


def _names(request: Request, given: Mapping[str, Any]) -> tuple[str, ...]:
    """What of a request the answer says."""
    train = request.phase == "train"
    return (
        *REQUEST,
        *(x for x in TRAINING if train and (x not in PARTLY or getattr(request, x))),
        *(("routing",) if request.routing else ()),
        *(SPECULATION if request.speculative else ()),
        *(name for name in INPUTS if getattr(request, name) is not None),
    )


def _about(model: Model, request: Request, sharing: Sharing) -> dict[str, Any]:
    """What the answer says of a request beyond its own choices."""
    found: dict[str, Any] = {}
    if sharing.plan and request.phase == "train":
        found["global_batch"] = sharing.sequences(request)
    if speculation := speculation_of(request):
        found["tokens_per_step"] = speculation.tokens
    if isinstance(model, Encoder) or request.phase == "train":
        found["kv_dtype"] = None
    return found


def _also_assumed(
    model: Model, request: Request, given: Mapping[str, Any]
) -> dict[str, Any]:
    """What the model's own files decided."""
    found: dict[str, Any] = {}
    if isinstance(model, LanguageModel) and given["dtype"] is None:
        stored = request.dtype == model.stored_dtype
        said = "; ".join(model.checkpoint.statements) if stored else ""
        found |= {"checkpoint": said} if said else {}
    if request.phase == "train" and isinstance(model, TrainedModel):
        further = model.further_layers
        found |= {"mtp_layers": further} if further else {}
    return found


def _launched(
    one: Model | Placed, request: Request, given: Mapping[str, Any]
) -> tuple[list[Listing], TrainingWork | None]:
    """What one GPU launches; of training on several GPUs what makes a step of it."""
    if isinstance(one, Training):
        listings, steps = one.work(request)
        return listings, TrainingWork(steps, one, request)
    assert not isinstance(one, Placed) or isinstance(one, Inference)
    return one.listings(**given), None
