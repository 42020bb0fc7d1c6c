"""`deploy`: a model behind an engine on GPUs, checked."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ..corrections import prior_file, read_corrections
from ..estimator._asking.settings import settings
from ..hardware import GpuCard, read_gpu, with_fields
from ..plans import Plan, host_of
from ..results import Infeasible
from ..workload.models import Request, load_model
from ..workload.models._network.sharding import Share, Split
from ..workload.models._shared.language_model import LanguageModel
from ._deployment import ASIDE, Deployment
from ._engine import ENGINES, SAMPLING, usual_sampling
from ._load import DEFAULT_INPUT, DEFAULT_OUTPUT, Load

DEFAULT_GPU: Final = "h100-sxm"
SCHEDULES: Final = ("chunked", "prefill-first")
_USUAL: Final = {"sglang": "prefill-first"}
"""Schedules of engines that do not read prompts beside decoding by default."""
CHUNK: Final = 8192
"""Most tokens of a step of vLLM's server (`max_num_batched_tokens`, H100 and newer)."""
_FRACTION: Final = 0.9
"""Share of the memory that engines use."""


def deploy(
    model: str,
    gpu: str | GpuCard | None = None,
    load: Load | None = None,
    *,
    num_gpus: int | None = None,
    tp: int | None = None,
    ep: int | None = None,
    dtype: str | None = None,
    kv_dtype: str | None = None,
    routing: str | None = None,
    engine: str | None = None,
    sampling: str | None = None,
    schedule: str | None = None,
    chunk: int | None = None,
    memory_fraction: int | float | None = None,
    sm_clock: Sequence[float] | None = None,
    mem_clock: Sequence[float] | None = None,
    power_limit: Sequence[float] | None = None,
    temperature: int | float | None = None,
    changes: Mapping[str, float] | None = None,
    corrections: str | None = None,
) -> Deployment:
    """A model behind an engine on GPUs, checked.

    Args:
        model: bundled name, or a Hugging Face config.json.
        gpu: name or file [h100-sxm].
        load: what requests come [one at a time].
        num_gpus: GPUs in all, a multiple of `tp` [tp].
        tp: GPUs that share a model [num_gpus].
        ep: of these, those that share its experts [1].
        dtype: of linear layers [the checkpoint's].
        kv_dtype: of the KV cache [the checkpoint's].
        routing: how tokens spread over experts [random].
        engine: vllm, sglang, trtllm or vllm-v0 [vllm].
        sampling: greedy, random, top-p or penalties [top-p for vllm, else random].
        schedule: chunked or prefill-first [prefill-first for sglang, else chunked].
        chunk: most tokens of a step [8192].
        memory_fraction: share of the memory that the engine uses [0.9].
        sm_clock: Hz, a list of one [the highest].
        mem_clock: Hz, a list of one [the highest].
        power_limit: W, a list of one [TDP].
        temperature: C [follows from the power].
        changes: fields of the GPU in SI.
        corrections: file of constants, or "none" [the shipped ones].

    Returns:
        A `Deployment`.

    Raises:
        ValueError: for what cannot be, in one sentence.
        Infeasible: if not one request fits the memory.
    """
    load = Load(max_batch=1) if load is None else load
    read = read_gpu(DEFAULT_GPU) if gpu is None else gpu
    read = read if isinstance(read, GpuCard) else read_gpu(read)
    card = with_fields(read, changes or {})
    plan = _plan(tp, num_gpus, ep)
    if plan.tp > 1:
        host = host_of(card)
        host.check(Plan(plan.tp, ep=plan.ep))
        rate = card.values["link_bandwidth"]
        if "link_bandwidth" not in (changes or {}) and host.rate not in (None, rate):
            card = with_fields(card, {"link_bandwidth": host.rate})
    points, taken = settings(card, sm_clock, mem_clock, power_limit, temperature)
    if len(points) > 1:
        raise ValueError(
            "clocks or limits are given as lists; `serve` takes one value of each."
        )
    name = _choice("engine", engine, ENGINES) or "vllm"
    kind = _choice("sampling", sampling, SAMPLING) or usual_sampling(name)
    when = _choice("schedule", schedule, SCHEDULES) or _USUAL.get(name, "chunked")
    tokens = _whole("chunk", chunk, 16) or CHUNK
    fraction = _FRACTION if memory_fraction is None else memory_fraction
    if not 0 < fraction <= 1:
        raise ValueError(
            f"`memory_fraction` is {fraction:g}; allowed is a share above 0 up to 1."
        )
    whole, request = _request(model, load, dtype, kv_dtype, routing)
    assumed = {
        name: value
        for name, given, value in (
            ("gpu", gpu, read.name),
            ("num_gpus", num_gpus, plan.gpus),
            ("tp", tp, plan.tp),
            ("dtype", dtype, request.dtype),
            ("kv_dtype", kv_dtype, request.kv_dtype),
            ("routing", routing, request.routing),
            ("input_len", load.input_len, DEFAULT_INPUT),
            ("output_len", load.output_len, DEFAULT_OUTPUT),
            ("max_batch", load.max_batch, "memory"),
            ("engine", engine, name),
            ("sampling", sampling, kind),
            ("schedule", schedule, when),
            ("chunk", chunk, tokens),
            ("memory_fraction", memory_fraction, fraction),
        )
        if given is None and value is not None
    }
    file = prior_file() if corrections == "none" else read_corrections(corrections)
    found = Deployment(
        whole.placed(Share(Split(plan.tp, plan.ep))),
        request,
        card,
        file,
        points[0],
        plan,
        name,
        kind,
        when,
        tokens,
        float(fraction),
        load,
        assumed | taken,
        bool(changes) or read.values != card.values,
    )
    _check_memory(found, whole)
    return found


def _plan(tp: int | None, num_gpus: int | None, ep: int | None) -> Plan:
    one = _whole("tp", tp) or _whole("num_gpus", num_gpus) or 1
    number = _whole("num_gpus", num_gpus) or one
    if number % one:
        raise ValueError(
            f"`num_gpus` is {number}, which is no multiple of `tp` {one}; replicas are "
            "of that many."
        )
    experts = _whole("ep", ep) or 1
    if one % experts:
        raise ValueError(
            f"`ep` is {experts}, which does not divide `tp` {one}; the GPUs of a "
            "replica share its experts."
        )
    return Plan(one, 1, experts, number // one)


def _request(
    name: str, load: Load, dtype: str | None, kv_dtype: str | None, routing: str | None
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
        batch=1, input_len=1, phase="decode", dtype=dtype, kv_dtype=kv_dtype,
        routing=routing,
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


def _check_memory(found: Deployment, whole: LanguageModel):
    """Raises `Infeasible` unless a request fits."""
    memory, load = found.memory(found.gpu), found.load
    tokens = load.input.mean + load.cached + load.output.mean
    need, pool = memory.on_host(tokens)
    if pool >= need and found.fits >= 1:
        return
    gb = (float(memory.weights) / 1e9, ASIDE / 1e9, need / 1e9)
    most = found.fraction * found.card.values["dram_capacity"]
    said = (
        f"`memory_fraction`: not one request fits {found.card.name}: weights "
        f"{gb[0]:.1f} GB + {gb[1]:g} GB aside + {gb[2]:.1f} GB for {tokens:g} tokens, "
        f"{found.fraction:g} of the memory is {most / 1e9:.1f} GB"
    )
    size = host_of(found.card).size
    for tp in (2**n for n in range(1, 8)):
        if not found.plan.tp < tp <= size:
            continue
        try:
            model = whole.placed(Share(Split(tp)))
            one = dataclasses.replace(found, model=model).memory(found.gpu)
        except ValueError:  # it does not divide the model
            continue
        need, pool = one.on_host(tokens)
        if pool >= need:
            raise Infeasible(f"{said}; it fits with tp={tp}.", tp=float(tp))
    raise Infeasible(f"{said}; take GPUs with more memory or a smaller `dtype`.")


def _choice(name: str, value: str | None, allowed: tuple[str, ...]) -> str | None:
    if value is not None and value not in allowed:
        raise ValueError(f"`{name}` is '{value}'; allowed are {', '.join(allowed)}.")
    return value


def _whole(name: str, value: Any, least: int = 1) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(
            f"`{name}` is {value!r}; allowed is a whole number of at least {least}."
        )
    return value
