"""`deploy`: a model behind an engine on GPUs, checked."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from ..corrections import CorrectionsFile, prior_file, read_corrections
from ..estimator import settings
from ..hardware import GpuCard, read_gpu, with_fields
from ..nodes import site_of
from ..plans import Plan, host_of
from ..requests import BadRequest, accepts
from ..results import Infeasible
from ..workload import LanguageModel, ModelShare, ModelSplit
from ..workload.models import Request, assumed_model, load_model
from ._deployment import ASIDE, Deployment
from ._engine import constants, usual_sampling
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
def deploy(server: DeployRequest) -> Deployment:
    """A model behind an engine on GPUs, checked.

    Raises `ValueError` for what cannot be, in one sentence, and `Infeasible` if not one
    request fits the memory.
    """
    model, gpu = server.model, server.gpu
    load = load_of(server.load) or Load(max_batch=1)
    read = read_gpu(DEFAULT_GPU) if gpu is None else gpu
    read = read if isinstance(read, GpuCard) else read_gpu(read)
    groups = server.attention_dp or 1
    experts = server.ep if groups == 1 else server.ep or server.tp or server.num_gpus
    plan = _plan(server.tp, server.num_gpus, experts)
    card = _connected(with_fields(read, server.changes or {}), plan, server)
    point = {name: _one(name, getattr(server, name)) for name in _POINT}
    points, defaults = settings(card, **point, temperature=server.temperature)
    engine = _engine(server)
    whole, request = _request(model, load, server)
    # A family name such as `h100` stands for its largest SXM board: that is assumed,
    # too.
    assumed = {"gpu": read.name} if gpu is None or read.is_assumed else {}
    assumed |= assumed_model(model)
    assumed |= _assumed(server, load, plan, request, engine) | defaults
    site, site_defaults = site_of(server, card)
    assumed |= site_defaults
    none = server.corrections == "none"
    file = prior_file() if none else read_corrections(server.corrections)
    file = _with_engine(file, server)
    _check_groups(whole, plan, groups)
    placed = whole.placed(ModelShare(ModelSplit(plan.tp // groups, plan.ep)))
    changed = bool(server.changes) or read.values != card.values
    deployment = Deployment(
        placed,
        request,
        card,
        file,
        points[0],
        plan,
        *engine,
        load,
        assumed,
        changed,
        site=site,
    )
    tiles = deployment.tiles
    for name, value in (("untuned", tiles.many), ("padded", tiles.padded)):
        if value and name not in (server.engine_changes or {}):
            assumed |= {"expert_tiles": name}
    deployment = dataclasses.replace(deployment, assumed=assumed)
    _check_memory(deployment, whole, server.memory_fraction)
    return deployment


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


def _connected(card: GpuCard, plan: Plan, server: ServerRequest) -> GpuCard:
    """The GPU with its links as in the host that a model is shared in."""
    if plan.tp == 1:
        return card
    host = host_of(card)
    host.check(Plan(plan.tp, ep=plan.ep))
    rate = card.values["link_bandwidth"]
    # a rate that the user sets wins over that of the host
    if "link_bandwidth" not in (server.changes or {}) and host.rate not in (None, rate):
        return with_fields(card, {"link_bandwidth": host.rate})
    return card


def _with_engine(file: CorrectionsFile, server: ServerRequest) -> CorrectionsFile:
    """The file with the constants of the engine that the user sets."""
    if not server.engine_changes:
        return file
    for name, value in server.engine_changes.items():
        if name not in constants():
            raise ValueError(
                f"`engine_changes` has '{name}'; allowed are the constants of engines: "
                f"{', '.join(constants())}."
            )
        if not 0 <= value < math.inf:
            raise ValueError(
                f"`engine_changes` has {name}={value:g}; allowed is a number from 0 on."
            )
    engines = {**file.engines, "set": dict(server.engine_changes)}
    return dataclasses.replace(file, engines=engines)


def _engine(server: ServerRequest) -> _Engine:
    """The engine asked for, with its usual choices."""
    name = server.engine or "vllm"
    kind = server.sampling or usual_sampling(name)
    when = server.schedule or _USUAL.get(name, "chunked")
    fraction = server.memory_fraction or _FRACTION
    return _Engine(name, kind, when, server.chunk or CHUNK, float(fraction))


def _assumed(
    server: ServerRequest, load: Load, plan: Plan, request: Request, engine: _Engine
) -> dict[str, Any]:
    """What was taken for choices that were not made."""
    choices = {
        "num_gpus": plan.gpus,
        "tp": plan.tp,
        "dtype": request.dtype,
        "kv_dtype": request.kv_dtype,
        "routing": request.routing,
        "draft_tokens": request.draft_tokens,
    }
    loads = {
        "input_len": DEFAULT_INPUT,
        "output_len": DEFAULT_OUTPUT,
        "max_batch": "memory",
    }
    return {
        name: value
        for chosen, of in ((choices, server), (loads, load), (engine._asdict(), server))
        for name, value in chosen.items()
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


def _check_groups(model: LanguageModel, plan: Plan, groups: int):
    """Raises `ValueError` for groups of GPUs that a replica does not have."""
    if groups == 1:
        return
    if all(w.used == 1 for w, _ in model.all_weights()):
        raise BadRequest(
            f"`attention_dp` is {groups}, but {model.name} has no experts that its "
            "groups would share; replicas (`num_gpus`) do the same.",
            "attention_dp",
            "num_gpus",
        )
    if plan.tp % groups:
        raise BadRequest(
            f"`attention_dp` is {groups}, which does not divide `tp` {plan.tp}; its "
            "groups are equal parts of the GPUs of a replica.",
            "attention_dp",
            "tp",
        )
    if plan.ep != plan.tp:
        raise BadRequest(
            f"`ep` is {plan.ep} beside `attention_dp` {groups}, whose groups share the "
            f"experts of all {plan.tp} GPUs of a replica; leave it out.",
            "ep",
            "attention_dp",
        )


def _request(
    name: str, load: Load, server: ServerRequest
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
        batch=1, input_len=1, phase="decode", dtype=server.dtype,
        kv_dtype=server.kv_dtype, routing=server.routing,
        speculative=server.speculative, accept=server.accept,
        draft_tokens=server.draft_tokens,
    )  # fmt: skip
    return model, dataclasses.replace(request, base=False)


def _check_lengths(model: LanguageModel, load: Load):
    """Raises `ValueError` where requests are longer than the model's positions: the
    longest ones, or of a distribution without an end one in 16."""
    most, where = model.max_positions, f"{model.name} has {model.max_positions}"
    cached = load.cached_len or 0.0
    total = sum(x.longest or x.mean for x in (load.sent, load.output)) + cached
    if total > most:
        raise ValueError(
            f"`input_len` + `cached_len` + `output_len` come to {total:g} tokens, but "
            f"{where} positions; shorten one of them."
        )
    for name, x, more in (
        ("input_len", load.sent, cached),
        ("output_len", load.output, 0.0),
    ):
        if (longest := x.mean * x.nodes[-1] + more) > most:
            raise ValueError(
                f"`{name}` is '{x.text}', of which one in {len(x.nodes)} has "
                f"{longest:.0f} tokens in the mean, but {where} positions; shorten it."
            )


def _check_memory(
    deployment: Deployment, whole: LanguageModel, max_batch: int | float | None
):
    """Raises `Infeasible` unless a request fits the `max_batch` fraction of the memory
    (None: the usual one)."""
    memory, load = deployment.memory(deployment.gpu), deployment.load
    tokens = load.input.mean + load.cached + load.output.mean
    need, pool = memory.on_host(tokens)
    need *= deployment.attention_dp  # a request is in one group
    if pool >= need and deployment.fits >= 1:
        return
    gb = (float(memory.weights) / 1e9, ASIDE / 1e9, need / 1e9)
    most = deployment.fraction * deployment.card.values["dram_capacity"]
    share = "" if max_batch is None else f"`memory_fraction` is {max_batch:g}: "
    message = (
        f"{share}not one request of {whole.name} fits {deployment.card.name}: weights "
        f"{gb[0]:.1f} GB + {gb[1]:g} GB aside + {gb[2]:.1f} GB for {tokens:g} tokens, "
        f"{deployment.fraction:g} of the memory is {most / 1e9:.1f} GB"
    )
    size = host_of(deployment.card).size
    for tp in (2**n for n in range(1, 8)):
        if not deployment.plan.tp < tp <= size:
            continue
        try:
            model = whole.placed(ModelShare(ModelSplit(tp)))
            one = dataclasses.replace(deployment, model=model).memory(deployment.gpu)
        except ValueError:  # it does not divide the model
            continue
        need, pool = one.on_host(tokens)
        if pool >= need:
            raise Infeasible(f"{message}; it fits with tp={tp}.", tp=float(tp))
    raise Infeasible(f"{message}; take GPUs with more memory or a smaller `dtype`.")
