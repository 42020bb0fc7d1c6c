"""From what is asked of an estimate to the kernels of its workload: of a listing, of a
model on one GPU, of a model on the GPUs of a plan."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Final

from .. import imports
from ..hardware import GpuCard
from ..imports import ImportResult
from ..plans import (
    Host,
    Pipeline,
    Placed,
    Plan,
    Steps,
    Training,
    host_of,
    least_plan,
    least_training,
    training_of,
)
from ..workload import Listing
from ..workload._listing import PARTS, settled
from ..workload.models import Model, Request, load_model
from ..workload.models._request import NAMES as INPUTS
from ..workload.models._shared.encoder import Encoder
from ..workload.models._shared.language_model import LanguageModel
from ..workload.models._shared.speculation import speculation_of
from ..workload.models._shared.trained import TrainedModel
from ._answer import memory as _memory
from ._warnings import weight_types

REQUEST: Final = (
    "phase", "batch", "input_len", "output_len", "dtype", "kv_dtype", "attention",
    "stack", "dispatch",
)  # fmt: skip
"""What was asked for, in every summary."""

_TRAINING: Final = ("accumulation", "checkpointing", "lora", "frozen_layers")
"""The same of a training step alone; the latter two where they were asked for."""
_PARTLY: Final = ("lora", "frozen_layers")
"""What leaves a part of a model untrained."""
_SPECULATION: Final = ("speculative", "accept", "draft_tokens")
OTHERS: Final = (*_TRAINING, "routing", *_SPECULATION, *INPUTS)
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
    """What makes a step of the phases of a plan's training: `kinds` are those of each
    stage in `steps`, `flop` what the model asks for."""

    steps: Steps
    order: Pipeline | None
    program: Pipeline | None
    """The order to be shown, also of one stage."""
    kinds: list[int]
    flop: float
    placed: Training
    request: Request


def brought_work(
    path: str | ImportResult, gpu: str | GpuCard | None
) -> ImportResult | None:
    """What a trace, graph or report became; None of other files, and of models.

    Raises `ValueError` for a trace of an unknown GPU where none is given: its times
    mean nothing without.
    """
    if isinstance(path, str):
        if path.lower().endswith(".jsonl"):
            return None
        if not imports.is_listing(path):
            imports.refuse(path, "measurements")
            return None
        path = imports.read(path)
    found = path
    if gpu is None and found.gpu is None and found.summary["sum_us"] is not None:
        raise ValueError(
            f"`gpu` is missing: {found.summary['source']} names none that is known; "
            "give the GPU that it was recorded on, or another."
        )
    return found


def listed_work(
    path: str, read: Sequence[Listing], given: dict[str, Any], card: GpuCard
) -> Work:
    """Work of the listings `read` from a file."""
    for name, value in given.items():
        if value is not None and name != "dispatch":
            raise ValueError(
                f"`{name}` is given, but the listing '{path}' decides it; leave it out."
            )
    listings = [settled(listing, given["dispatch"]) for listing in read]
    first, last = listings[0], listings[-1]
    ends = [x.name.rpartition("/")[2] for x in listings]
    pair, train = ends == [*PARTS[0]], ends == [*PARTS[1]]
    about = dict.fromkeys(REQUEST) | {
        "model": first.model or first.name,
        "phase": "generate" if pair else "train" if train else first.mode,
        "batch": first.batch,
        "input_len": first.seq_len,
        "output_len": last.passes + 1 if pair else None,
        "dtype": first.precision,
        "dispatch": _dispatch(listings),
    }
    if train:
        about |= {"accumulation": first.passes, "checkpointing": None}
    notes = [f"{x.name}: {note}" for x in listings for note in x.notes]
    kernels = [kernel for listing in listings for kernel in listing.kernels]
    if any(k["op"] == "activity" and not k["time_ref_us"] for k in kernels):
        notes.append(
            "an `activity` without `time_ref_us` is taken to last 1 s: only its power "
            "means something."
        )
    said = given["dispatch"] or all(listing.dispatch for listing in read)
    assumed = {} if said else {"dispatch": about["dispatch"]}
    return Work(listings, about, assumed, notes, _memory.entry(None, card))


def modelled_work(
    name: str,
    workload: str | None,
    given: dict[str, Any],
    card: GpuCard,
    require_fit: bool,
    sharing: "Sharing",
) -> Work:
    """Work of a model: bundled, or of a config file; on the GPUs of a plan."""
    if workload is not None:
        raise ValueError(
            f"`workload` is '{workload}', but '{name}' is a model; it picks one of "
            "several workloads of a .jsonl listing."
        )
    model = load_model(name)
    plan, host = sharing.plan, sharing.host
    given = sharing.given(given)
    request = model.request(**given)
    if given["output_len"] is not None and request.phase != "generate":
        raise ValueError(
            f"`output_len` is {given['output_len']}, but the phase {request.phase} "
            "generates nothing; leave it out or take `--phase generate`."
        )
    if given["kv_dtype"] is not None and isinstance(model, Encoder):
        raise ValueError(
            f"`kv_dtype` is given, but {model.name} has no KV cache; leave it out."
        )
    placed = sharing.placed(model, request)
    if isinstance(placed, Training):
        request = placed.request(**given)
    one = placed or model
    memory = _memory.entry(one.memory(request), card)
    larger = None
    if not memory["fits"]:
        most = card.values["dram_capacity"]
        usual = host or host_of(card)
        least = least_training if request.phase == "train" else least_plan
        larger = least(model, request, plan or Plan(), usual, most)
    if require_fit:
        _memory.check_fit(one, request, memory, card, larger)
    listings, step = _launched(one, request, given)
    train = request.phase == "train"
    names = (
        *REQUEST,
        *(x for x in _TRAINING if train and (x not in _PARTLY or given[x])),
        *(("routing",) if request.routing else ()),
        *(_SPECULATION if request.speculative else ()),
        *(name for name in INPUTS if getattr(request, name) is not None),
    )
    about = {"model": model.name} | {name: getattr(request, name) for name in names}
    about |= {"global_batch": sharing.sequences(request)} if plan and train else {}
    about["dispatch"] = _dispatch(listings[:1] if step else listings)
    if found := speculation_of(request):
        about["tokens_per_step"] = found.tokens
    if isinstance(model, Encoder) or train:
        about["kv_dtype"] = None
    assumed = {
        name: about[name]
        for name in names
        if given[name] is None and about[name] is not None
    }
    if isinstance(model, LanguageModel) and given["dtype"] is None:
        said = "; ".join(model.checkpoint.said)
        assumed |= {"checkpoint": said} if said else {}
    if train and isinstance(model, TrainedModel) and model.further_layers:
        assumed["mtp_layers"] = model.further_layers
    warnings = [
        *_memory.too_large(model.name, memory, card, larger),
        *model.notes,
        *weight_types(model, name, given["dtype"], request.dtype),
    ]
    stages = placed.stages(request) if placed else None
    decodes = isinstance(model, LanguageModel)
    return Work(listings, about, assumed, warnings, memory, stages, step, decodes)


def _launched(
    one: Model | Placed | Training, request: Request, given: Mapping[str, Any]
) -> tuple[list[Listing], TrainingWork | None]:
    """What one GPU launches; of training on several GPUs what makes a step of it."""
    if not isinstance(one, Training):
        return one.listings(**given), None
    listings, steps = one.work(request)
    made = TrainingWork(
        steps, one.order, one.program, one.kinds, one.flop(request), one, request
    )
    return listings, made


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

    def sequences(self, request: Request) -> int:
        """Sequences of a training step."""
        dp = self.plan.dp if self.plan else 1
        return request.batch * (request.accumulation or 1) * dp

    def placed(self, model: Model, request: Request) -> Placed | Training | None:
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
        placed = Placed(model, plan, host)
        placed.check(request)
        return placed


def _dispatch(listings: Sequence[Listing]) -> str:
    kinds = list(dict.fromkeys(str(listing.dispatch) for listing in listings))
    if len(kinds) == 1:
        return kinds[0]
    return ", ".join(f"{listing.mode} {listing.dispatch}" for listing in listings)
