"""`deploy`: a model behind an engine on GPUs, checked."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from ..corrections import prior_file, read_corrections
from ..estimator import settings
from ..hardware import GpuCard, read_gpu, with_fields
from ..plans import Plan, host_of
from ..requests import accepts
from ..results import Infeasible
from ..workload import LanguageModel, ModelShare, ModelSplit
from ..workload.models import Request, assumed_model, load_model
from ._deployment import ASIDE, Deployment
from ._engine import usual_sampling
from ._load import DEFAULT_INPUT, DEFAULT_OUTPUT, Load
from ._request import DeployRequest, ServerRequest

DEFAULT_GPU: Final = "h100-sxm"
_POINT: Final = ("sm_clock", "mem_clock", "power_limit")
_USUAL: Final = {"sglang": "prefill-first"}
"""Schedules of engines that do not read prompts beside decoding by default."""
CHUNK: Final = 8192
"""Most tokens of a step of vLLM's server (`max_num_batched_tokens`, H100 and newer)."""
_FRACTION: Final = 0.9
"""Share of the memory that engines use."""


class _Engine(NamedTuple):
    """An engine and how it runs steps."""

    engine: str
    sampling: str
    schedule: str
    chunk: int
    memory_fraction: float


@accepts(DeployRequest)
def deploy(asked: DeployRequest) -> Deployment:
    """A model behind an engine on GPUs, checked.

    Raises `ValueError` for what cannot be, in one sentence, and `Infeasible` if not one
    request fits the memory.
    """
    model, gpu = asked.model, asked.gpu
    load = load_of(asked.load) or Load(max_batch=1)
    read = read_gpu(DEFAULT_GPU) if gpu is None else gpu
    read = read if isinstance(read, GpuCard) else read_gpu(read)
    plan = _plan(asked.tp, asked.num_gpus, asked.ep)
    card = _connected(with_fields(read, asked.changes or {}), plan, asked)
    point = {name: _one(name, getattr(asked, name)) for name in _POINT}
    points, taken = settings(card, **point, temperature=asked.temperature)
    engine = _engine(asked)
    whole, request = _request(model, load, asked)
    assumed = {"gpu": read.name} if gpu is None or read.is_assumed else {}
    assumed |= assumed_model(model)
    assumed |= _assumed(asked, load, plan, request, engine) | taken
    none = asked.corrections == "none"
    file = prior_file() if none else read_corrections(asked.corrections)
    placed = whole.placed(ModelShare(ModelSplit(plan.tp, plan.ep)))
    changed = bool(asked.changes) or read.values != card.values
    found = Deployment(
        placed, request, card, file, points[0], plan, *engine, load, assumed, changed
    )
    _check_memory(found, whole, asked.memory_fraction)
    return found


def load_of(load: Load | Mapping[str, Any] | None) -> Load | None:
    """A load of its fields."""
    return Load(**load) if isinstance(load, Mapping) else load


def _one(name: str, values: Any) -> tuple[float, ...] | None:
    """A clock or limit, given as a number or a list of one."""
    if values is not None and len(values) != 1:
        raise ValueError(
            f"`{name}` has {len(values)} values; a server takes one value."
        )
    return values


def _connected(card: GpuCard, plan: Plan, asked: ServerRequest) -> GpuCard:
    """The GPU with its links as in the host that a model is shared in."""
    if plan.tp == 1:
        return card
    host = host_of(card)
    host.check(Plan(plan.tp, ep=plan.ep))
    rate = card.values["link_bandwidth"]
    if "link_bandwidth" not in (asked.changes or {}) and host.rate not in (None, rate):
        return with_fields(card, {"link_bandwidth": host.rate})
    return card


def _engine(asked: ServerRequest) -> _Engine:
    """The engine asked for, with its usual choices."""
    name = asked.engine or "vllm"
    kind = asked.sampling or usual_sampling(name)
    when = asked.schedule or _USUAL.get(name, "chunked")
    fraction = asked.memory_fraction or _FRACTION
    return _Engine(name, kind, when, asked.chunk or CHUNK, float(fraction))


def _assumed(
    asked: ServerRequest, load: Load, plan: Plan, request: Request, engine: _Engine
) -> dict[str, Any]:
    """What was taken for choices that were not made."""
    known = {
        "num_gpus": plan.gpus,
        "tp": plan.tp,
        "dtype": request.dtype,
        "kv_dtype": request.kv_dtype,
        "routing": request.routing,
    }
    loads = {
        "input_len": DEFAULT_INPUT,
        "output_len": DEFAULT_OUTPUT,
        "max_batch": "memory",
    }
    return {
        name: value
        for taken, of in ((known, asked), (loads, load), (engine._asdict(), asked))
        for name, value in taken.items()
        if getattr(of, name) is None and value is not None
    }


def _plan(tp: int | None, num_gpus: int | None, ep: int | None) -> Plan:
    one = tp or num_gpus or 1
    number = num_gpus or one
    if number % one:
        raise ValueError(
            f"`num_gpus` is {number}, which is no multiple of `tp` {one}; replicas are "
            "of that many."
        )
    experts = ep or 1
    if one % experts:
        raise ValueError(
            f"`ep` is {experts}, which does not divide `tp` {one}; the GPUs of a "
            "replica share its experts."
        )
    return Plan(one, 1, experts, number // one)


def _request(
    name: str, load: Load, asked: ServerRequest
) -> tuple[LanguageModel, Request]:
    """The model and how its steps run."""
    if name.lower().endswith(".jsonl"):
        raise ValueError(
            f"`model` is the listing '{name}', which does not say how a step grows; "
            "give a model."
        )
    model = load_model(name)
    if not isinstance(model, LanguageModel):
        raise ValueError(f"`model` is {model.name}, which makes no tokens to serve.")
    _check_lengths(model, load)
    request = model.request(
        batch=1, input_len=1, phase="decode", dtype=asked.dtype,
        kv_dtype=asked.kv_dtype, routing=asked.routing,
    )  # fmt: skip
    return model, dataclasses.replace(request, base=False)


def _check_lengths(model: LanguageModel, load: Load):
    """Raises `ValueError` where requests are longer than the model's positions: the
    longest ones, or of a distribution without an end one in 16."""
    most, where = model.max_positions, f"{model.name} has {model.max_positions}"
    total = sum(x.longest or x.mean for x in (load.input, load.output)) + load.cached
    if total > most:
        raise ValueError(
            f"`input_len` + `cached_len` + `output_len` come to {total:g} tokens, but "
            f"{where} positions; shorten one of them."
        )
    for name, x, more in (
        ("input_len", load.input, load.cached),
        ("output_len", load.output, 0.0),
    ):
        if (longest := x.mean * x.nodes[-1] + more) > most:
            raise ValueError(
                f"`{name}` is '{x.text}', of which one in {len(x.nodes)} has "
                f"{longest:.0f} tokens in the mean, but {where} positions; shorten it."
            )


def _check_memory(found: Deployment, whole: LanguageModel, given: int | float | None):
    """Raises `Infeasible` unless a request fits the `given` fraction of the memory
    (None: the usual one)."""
    memory, load = found.memory(found.gpu), found.load
    tokens = load.input.mean + load.cached + load.output.mean
    need, pool = memory.on_host(tokens)
    if pool >= need and found.fits >= 1:
        return
    gb = (float(memory.weights) / 1e9, ASIDE / 1e9, need / 1e9)
    most = found.fraction * found.card.values["dram_capacity"]
    share = "" if given is None else f"`memory_fraction` is {given:g}: "
    said = (
        f"{share}not one request of {whole.name} fits {found.card.name}: weights "
        f"{gb[0]:.1f} GB + {gb[1]:g} GB aside + {gb[2]:.1f} GB for {tokens:g} tokens, "
        f"{found.fraction:g} of the memory is {most / 1e9:.1f} GB"
    )
    size = host_of(found.card).size
    for tp in (2**n for n in range(1, 8)):
        if not found.plan.tp < tp <= size:
            continue
        try:
            model = whole.placed(ModelShare(ModelSplit(tp)))
            one = dataclasses.replace(found, model=model).memory(found.gpu)
        except ValueError:  # it does not divide the model
            continue
        need, pool = one.on_host(tokens)
        if pool >= need:
            raise Infeasible(f"{said}; it fits with tp={tp}.", tp=float(tp))
    raise Infeasible(f"{said}; take GPUs with more memory or a smaller `dtype`.")
