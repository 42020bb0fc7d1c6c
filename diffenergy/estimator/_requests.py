"""From what is asked of an estimate by name to its result."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import jax

from ..corrections import NEAR, CorrectionsFile, Trust, prior_file, read_corrections
from ..hardware import GpuCard, GpuSpec, read_gpu, with_fields
from ..parallel import Host, Placed, Plan, host_of, least_plan, read_plan
from ..results import Infeasible
from ..workload import Listing
from ..workload._listing import read_listings, select_listing, settled
from ..workload._unlisted import complete
from ..workload._workload import assemble, pad_size
from ..workload.models import Model, Request, load_model
from ..workload.models._inputs import NAMES as INPUTS
from ..workload.models._shared.encoder import Encoder
from ..workload.models._shared.language_model import LanguageModel
from ..workload.models._shared.speculation import speculation_of
from . import _programs
from ._answer import memory as _memory
from ._answer import summary as _summary
from ._answer.records import Estimate, from_leaves
from ._answer.summary import EstimateResult
from ._estimate import compiler_options, estimate_once
from ._jax_setup import cache_folder
from ._settings import (
    Setting,
    operating_points,
    settings,
    unusual,
)
from ._warnings import lacking, weight_types

DEFAULT_GPU: Final = "h100-sxm"
_REQUEST: Final = (
    "phase", "batch", "input_len", "output_len", "dtype", "kv_dtype", "attention",
    "stack", "dispatch",
)  # fmt: skip
"""What was asked for, in every summary."""

_TRAINING: Final = ("accumulation", "checkpointing")
"""The same of a training step alone."""
_SPECULATION: Final = ("speculative", "accept", "draft_tokens")
_OTHERS: Final = (*_TRAINING, "routing", *_SPECULATION, *INPUTS)
"""What not every model or phase has."""
_ANSWERED: Final = (*_OTHERS, "tokens_per_step")


@dataclasses.dataclass(frozen=True)
class _Work:
    """A workload with what the summary says about it and what was assumed; `memory` of
    the answer."""

    listings: list[Listing]
    about: dict[str, Any]
    assumed: dict[str, Any]
    warnings: list[str]
    memory: dict[str, Any]
    stages: list[dict[str, int | float]] | None = None


@dataclasses.dataclass(frozen=True)
class Task:
    """A checked request, ready to run."""

    card: GpuCard
    corrections: CorrectionsFile
    settings: list[Setting]
    listings: list[Listing]
    about: dict[str, Any]
    trust: Trust
    warnings: list[str]
    memory: dict[str, Any]
    """Bytes by part, their total, the capacity and whether it fits; None: not known."""
    detail: bool = False
    plan: Plan | None = None
    stages: list[dict[str, int | float]] | None = None
    """Layers and bytes of every stage of the plan."""

    @property
    def gpu(self) -> GpuSpec:
        """The GPU's numbers with the constants asked for."""
        return self.card.served(self.corrections)

    def run(self) -> EstimateResult:
        """Runs the model. Raises `Infeasible` if no power limit can be kept."""
        estimates = _estimates(assemble(self.listings), self.gpu, self.settings)
        if len(self.settings) > 1:
            found = _summary.sweep(self, estimates)
            if found["best_energy"] is None:
                least = min(point["least_power_w"] for point in found["points"])
                raise Infeasible(too_low(least, self.card))
            return EstimateResult(found, self.listings, None)
        least = _summary.least_power(estimates)
        if least is not None:
            raise Infeasible(too_low(least, self.card))
        found = _summary.single(self, estimates)
        kernels = _summary.kernel_entries(self.listings, estimates)
        if self.detail:
            found["kernels"] = kernels
        return EstimateResult(found, self.listings, kernels, self.detail)


def prepare(
    model: str,
    gpu: str | GpuCard | None = None,
    *,
    workload: str | None = None,
    sm_clock: Sequence[float] | None = None,
    mem_clock: Sequence[float] | None = None,
    power_limit: Sequence[float] | None = None,
    temperature: int | float | None = None,
    changes: Mapping[str, float] | None = None,
    corrections: str | None = None,
    detail: bool = False,
    require_fit: bool = False,
    plan: str | Mapping[str, Any] | Plan | None = None,
    tp: int | None = None,
    num_gpus: int | None = None,
    topology: str | None = None,
    **request: Any,
) -> Task:
    """Checks a request and reads its files.

    `model`: bundled name, config or listing; `gpu`: name or file [h100-sxm];
    `workload`: one of several in a listing; clocks in Hz, limits in W, temperature in
    C: every combination is a point; `changes`: fields of the GPU, SI; `corrections`:
    file, "none", or the shipped ones; `detail`: kernels stand in the summary;
    `require_fit`: the GPU's memory has to suffice; `plan`, `tp`, `num_gpus`,
    `topology`: many GPUs (`read_plan`, `host_of`); `request`: batch, input_len,
    output_len, phase, dtype, kv_dtype, attention, stack, dispatch, accumulation,
    checkpointing, routing, speculative, accept, draft_tokens, images, image_tokens,
    steps, guidance, None where not asked for.

    Raises `ValueError` in one sentence for what cannot be, `Infeasible` for what has to
    fit the memory and does not.
    """
    given = _given(request)
    changes = changes or {}
    shared = read_plan(plan, tp, num_gpus)
    named = DEFAULT_GPU if gpu is None else gpu
    read = named if isinstance(named, GpuCard) else read_gpu(named)
    card = with_fields(read, changes)
    assumed = {"gpu": read.name} if gpu is None else {}
    host = None
    if shared is not None:
        host = host_of(card, topology)
        host.check(shared)
        assumed |= {} if topology else {"topology": host.name}
        rate = card.values["link_bandwidth"]
        if "link_bandwidth" not in changes and host.rate not in (None, rate):
            card = with_fields(card, {"link_bandwidth": host.rate})
    elif topology is not None:
        raise ValueError(
            f"`topology` is '{topology}', but the request is of one GPU; give `plan`, "
            "`tp` or `num_gpus`, too."
        )
    points, taken = settings(card, sm_clock, mem_clock, power_limit, temperature)
    if detail and len(points) > 1:
        raise ValueError("`detail` is given with several settings; give one of each.")
    file = prior_file() if corrections == "none" else read_corrections(corrections)
    if model.lower().endswith(".jsonl"):
        if require_fit:
            raise ValueError(
                f"`require_fit` is given, but the listing '{model}' does not say what "
                "stays in memory; leave it out."
            )
        if shared is not None:
            raise ValueError(
                f"`plan` is given, but the listing '{model}' is of one GPU; leave it "
                "out."
            )
        work = _listed(model, workload, given, card)
    else:
        work = _modelled(model, workload, given, card, require_fit, shared, host)
    # nobody measured a changed GPU, and no training step was fitted
    train = work.about["phase"] in ("train", "backward", "optimizer")
    several = shared is not None and shared.gpus > 1
    new = train or bool(changes) or _is_changed(card) or several
    about = {
        "model": work.about["model"],
        "gpu": card.name,
        **_sizes(shared, host),
        **{x: work.about[x] for x in (*_REQUEST, *_ANSWERED) if x in work.about},
        "assumed": assumed | work.assumed | taken,
    }
    listings = [complete(listing) for listing in work.listings]
    warnings = [*work.warnings, *lacking(listings, card), *unusual(points, card)]
    inside = {kernel["op"] for listing in listings for kernel in listing.kernels}
    trust = file.trust(
        card,
        new=new,
        holds=sorted(inside),
        beyond=_beyond(file, card, points, work.about),
    )
    return Task(
        card, file, points, listings, about, trust, warnings, work.memory, detail,
        shared, work.stages,
    )  # fmt: skip


def _sizes(plan: Plan | None, host: Host | None) -> dict[str, Any]:
    """The plan in an answer."""
    if plan is None or host is None:
        return {}
    return {"plan": plan.to_json(), "num_gpus": plan.gpus, "topology": host.name}


def _beyond(
    file: CorrectionsFile,
    card: GpuCard,
    points: Sequence[Setting],
    about: Mapping[str, Any],
) -> list[str]:
    """In what a request lies beyond the rows that were fitted of the GPU: clocks below
    theirs, eager attention over more tokens."""
    lowest, longest = (
        file.fitted_on.get(name, {}).get(card.served_as)
        for name in ("sm_clock_min", "seq_len_max")
    )
    slow = lowest and min(x.sm_clock for x in points) < NEAR * lowest
    long = longest and about["attention"] == "eager" and (about["input_len"] or 0)
    return ["clock"] * bool(slow) + ["length"] * bool(long and long > longest)


def _given(request: Mapping[str, Any]) -> dict[str, Any]:
    """Every choice of a request, None where there is none."""
    known = (*_REQUEST, *_OTHERS)
    for name in request:
        if name not in known:
            raise ValueError(
                f"`{name}` is no argument of an estimate; allowed are "
                f"{', '.join(known)}."
            )
    given = dict.fromkeys(known) | dict(request)
    switches = ("checkpointing", "guidance")
    return given | {name: given[name] or None for name in switches}


def _is_changed(card: GpuCard) -> bool:
    """Whether a GPU with the corrections of a bundled one has other numbers: nobody
    measured it."""
    if card.corrections is None:
        return False
    return card.values != read_gpu(card.corrections).values


def too_low(least: float, card: GpuCard) -> str:
    """That a power limit is below the `least` power (W) at the lowest clock."""
    limit = math.ceil(least / card.values["cap_fraction"])
    lowest = card.values["sm_clock_min"] / 1e6
    return (
        f"`power_limit` cannot be kept: at its lowest clock ({lowest:g} MHz) the GPU "
        f"draws {least:.1f} W here; the least limit that can is {limit} W."
    )


def _estimates(workload: Any, gpu: GpuSpec, points: Sequence[Setting]) -> Estimate:
    """Estimate on the host; several settings are one call, on a leading axis."""
    options = compiler_options(once=True)
    if len(points) == 1:
        point = jax.tree.map(lambda x: x[0], operating_points(points))
        arguments = (workload, gpu, point)
        leaves = _programs.run(estimate_once, arguments, cache_folder(), options)
        return jax.device_get(from_leaves(leaves))
    more = pad_size(len(points)) - len(points)  # one compilation for many
    many = operating_points([*points, *[points[-1]] * more])
    each = jax.vmap(lambda point: estimate_once(workload, gpu, point))
    return jax.device_get(jax.jit(each, compiler_options=options)(many))


# --- the workload


def _listed(
    path: str, workload: str | None, given: dict[str, Any], card: GpuCard
) -> _Work:
    """Work of a listing file."""
    for name, value in given.items():
        if value is not None and name != "dispatch":
            raise ValueError(
                f"`{name}` is given, but the listing '{path}' decides it; leave it out."
            )
    read = select_listing(read_listings(path), workload)
    listings = [settled(listing, given["dispatch"]) for listing in read]
    first, last = listings[0], listings[-1]
    pair, train = len(listings) == 2, len(listings) == 3
    about = dict.fromkeys(_REQUEST) | {
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
    return _Work(listings, about, assumed, notes, _memory.entry(None, card))


def _modelled(
    name: str,
    workload: str | None,
    given: dict[str, Any],
    card: GpuCard,
    require_fit: bool,
    plan: Plan | None,
    host: Host | None,
) -> _Work:
    """Work of a model: bundled, or of a config file; on the GPUs of a `plan`."""
    if workload is not None:
        raise ValueError(
            f"`workload` is '{workload}', but '{name}' is a model; it picks one of "
            "several workloads of a .jsonl listing."
        )
    model = load_model(name)
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
    placed = None if plan is None else _placed(model, request, plan, host)
    one = placed or model
    memory = _memory.entry(one.memory(request), card)
    larger = None
    if not memory["fits"]:
        most = card.values["dram_capacity"]
        usual = host or host_of(card)
        larger = least_plan(model, request, plan or Plan(), usual, most)
    if require_fit:
        _memory.check_fit(one, request, memory, card, larger)
    listings = one.listings(**given)
    train = request.phase == "train"
    names = (
        *_REQUEST,
        *(_TRAINING if train else ()),
        *(("routing",) if request.routing else ()),
        *(_SPECULATION if request.speculative else ()),
        *(name for name in INPUTS if getattr(request, name) is not None),
    )
    about = {"model": model.name} | {name: getattr(request, name) for name in names}
    about["dispatch"] = _dispatch(listings)
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
    warnings = [
        *_memory.too_large(model.name, memory, card, larger),
        *model.notes,
        *weight_types(model, name, given["dtype"], request.dtype),
    ]
    stages = placed.stages(request) if placed else None
    return _Work(listings, about, assumed, warnings, memory, stages)


def _placed(model: Model, request: Request, plan: Plan, host: Host | None) -> Placed:
    """A model on the GPUs of a plan."""
    if request.phase == "train":
        raise ValueError(
            f"`plan` is {plan.text}, but training on several GPUs is not built yet; "
            "leave it out."
        )
    if not isinstance(model, LanguageModel):
        raise ValueError(
            f"`plan` is {plan.text}, but {model.name} is no language model; leave it "
            "out."
        )
    placed = Placed(model, plan, host)
    placed.check(request)
    return placed


def _dispatch(listings: Sequence[Listing]) -> str:
    kinds = list(dict.fromkeys(str(listing.dispatch) for listing in listings))
    if len(kinds) == 1:
        return kinds[0]
    return ", ".join(f"{listing.mode} {listing.dispatch}" for listing in listings)
