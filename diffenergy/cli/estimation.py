"""From the flags of `estimate` to a summary; shared by `estimate` and `compare`."""

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from ..units import GiB
from . import engine, parse
from .flags import Flags
from .output import Infeasible
from .settings import field_changes, gpu_card, is_changed, settings, unusual

if TYPE_CHECKING:
    from ..corrections import CorrectionsFile, Trust
    from ..estimator import Estimate
    from ..hardware import GpuCard, GpuSpec
    from ..report.summary import Setting
    from ..workload import Listing

_REQUEST: Final = (
    "phase",
    "batch",
    "input_len",
    "output_len",
    "dtype",
    "kv_dtype",
    "attention",
    "stack",
    "dispatch",
)
"""What was asked for, in every summary."""

_TRAINING: Final = ("accumulation", "checkpointing")
"""The same of a training step alone."""


@dataclasses.dataclass(frozen=True)
class Result:
    """An evaluated command line: its summary (with `kernels` if asked for), the
    listings evaluated, the settings and what a person should know beside it."""

    summary: dict[str, Any]
    listings: list["Listing"]
    kernels: list[dict[str, Any]] | None
    notes: list[str]


@dataclasses.dataclass(frozen=True)
class _Work:
    """A workload with what the summary says about it and what was assumed. `memory`:
    bytes that it keeps in the GPU's memory by what they are for, as far as known."""

    listings: list["Listing"]
    about: dict[str, Any]
    assumed: dict[str, Any]
    notes: list[str]
    memory: dict[str, float]


@dataclasses.dataclass(frozen=True)
class Task:
    """A checked command line, ready to run."""

    flags: Flags
    card: "GpuCard"
    corrections: "CorrectionsFile"
    settings: list["Setting"]
    listings: list["Listing"]
    about: dict[str, Any]
    trust: "Trust"
    notes: list[str]
    memory: float
    """Bytes that the workload keeps in the GPU's memory; 0 where that is not known."""

    def run(self) -> Result:
        """Runs the model. Raises `Infeasible` if no power limit can be kept."""
        from ..report import summary
        from ..workload._assemble import assemble

        gpu, workload = self.card.served(self.corrections), assemble(self.listings)
        locked = self.flags.mem_clock is not None
        estimates = _estimates(workload, gpu, self.settings, locked)
        said = (self.about, self.listings, estimates)
        if len(self.settings) > 1:
            found = summary.sweep(*said, self.settings, self.trust)
            if found["best_energy"] is None:
                least = min(point["least_power_w"] for point in found["points"])
                raise Infeasible(_too_low(least, self.card))
            return Result(found, self.listings, None, self.notes)
        least = summary.least_power(estimates)
        if least is not None:
            raise Infeasible(_too_low(least, self.card))
        found = summary.single(*said, self.settings[0], self.trust)
        kernels = summary.kernel_entries(self.listings, estimates)
        if self.flags.detail:
            found["kernels"] = kernels
        return Result(found, self.listings, kernels, self.notes)


def prepare(flags: Flags) -> Task:
    """Checks a command line and reads its files; `ValueError` for bad input."""
    numbers = {name: _parsed(flags, name) for name in (*_REQUEST, *_TRAINING)}
    changes = field_changes(flags)
    engine.start()
    from ..corrections import prior_file, read_corrections
    from ..workload._unlisted import complete

    card, assumed = gpu_card(flags, changes)
    points, taken = settings(flags, card)
    if flags.detail and len(points) > 1:
        raise ValueError("`--detail` is given with several settings; give one of each.")
    unserved = flags.corrections == "none"
    file = prior_file() if unserved else read_corrections(flags.corrections)
    is_listing = flags.model.lower().endswith(".jsonl")
    work = _listed(flags, numbers) if is_listing else _modelled(flags, numbers, card)
    # nobody measured a changed GPU, and no training step was fitted
    train = work.about["phase"] in ("train", "backward", "optimizer")
    new = train or bool(changes) or is_changed(card)
    trust = file.trust(card, new=new)
    about = {
        "model": work.about["model"],
        "gpu": card.name,
        **{x: work.about[x] for x in (*_REQUEST, *_TRAINING) if x in work.about},
        "assumed": assumed | work.assumed | taken,
    }
    listings = [complete(listing) for listing in work.listings]
    notes = [*work.notes, *unusual(points, card)]
    memory = float(sum(work.memory.values()))
    return Task(flags, card, file, points, listings, about, trust, notes, memory)


def _too_low(least: float, card: "GpuCard") -> str:
    limit = math.ceil(least / card.values["cap_fraction"])
    lowest = card.values["sm_clock_min"] / 1e6
    return (
        f"`--power-limit` cannot be kept: at its lowest clock ({lowest:g} MHz) the GPU "
        f"draws {least:.1f} W here; the least limit that can is {limit} W."
    )


def _estimates(
    workload: Any,
    gpu: "GpuSpec",
    settings: Sequence["Setting"],
    locked: bool,
) -> "Estimate":
    """Estimate on the host; several settings are one call, on a leading axis. `locked`:
    the memory clock is set, not left alone."""
    import jax

    from ..compiling import compiler_options
    from ..estimator import estimate_once, from_leaves
    from ..hardware import OperatingPoint
    from ..workload._workload import pad_size
    from . import programs

    nan = float("nan")
    rows = [
        (
            s.sm_clock,
            s.mem_clock,
            s.power_limit,
            nan if s.temperature is None else s.temperature,
            float(locked),
        )
        for s in settings
    ]
    if len(rows) == 1:
        arguments = (workload, gpu, OperatingPoint(*rows[0]))
        options = compiler_options(once=True)
        leaves = programs.run(estimate_once, arguments, engine.cache_folder(), options)
        return jax.device_get(from_leaves(leaves))
    rows += rows[-1:] * (pad_size(len(rows)) - len(rows))  # one compilation for many
    points = OperatingPoint(*map(list, zip(*rows, strict=True)))
    options = compiler_options(once=True)
    each = jax.vmap(lambda p: estimate_once(workload, gpu, p))
    return jax.device_get(jax.jit(each, compiler_options=options)(points))


# --- the workload


def _listed(flags: Flags, given: dict[str, Any]) -> _Work:
    """Work of a listing file."""
    from ..workload._listing import read_listings, select_listing

    for name, value in given.items():
        if value is not None:
            flag = "--" + name.replace("_", "-")
            raise ValueError(
                f"`{flag}` is given, but the listing '{flags.model}' decides it; leave "
                "it out."
            )
    listings = select_listing(read_listings(flags.model), flags.workload)
    first, last = listings[0], listings[-1]
    pair, train = len(listings) == 2, len(listings) == 3
    about = {
        "model": first.model or first.name,
        "phase": "generate" if pair else "train" if train else first.mode,
        "batch": first.batch,
        "input_len": first.seq_len,
        "output_len": last.passes + 1 if pair else None,
        "dtype": first.precision,
        "kv_dtype": None,
        "attention": None,
        "stack": None,
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
    return _Work(listings, about, {}, notes, {})


def _modelled(flags: Flags, given: dict[str, Any], card: "GpuCard") -> _Work:
    """Work of a model: bundled, or of a config file."""
    from ..workload.models import load_model
    from ..workload.models._shared.encoder import Encoder

    if flags.workload is not None:
        raise ValueError(
            f"`--workload` is '{flags.workload}', but '{flags.model}' is a model; it "
            "picks one of several workloads of a .jsonl listing."
        )
    model = load_model(flags.model)
    _check_phase(given)
    request, _ = model.request(**given)
    if given["output_len"] is not None and request.phase != "generate":
        raise ValueError(
            f"`--output-len` is {given['output_len']}, but the phase {request.phase} "
            "generates nothing; leave it out or take `--phase generate`."
        )
    if given["kv_dtype"] is not None and isinstance(model, Encoder):
        raise ValueError(
            f"`--kv-dtype` is given, but {model.name} has no KV cache; leave it out."
        )
    listings = model.listings(**given)
    train = request.phase == "train"
    names = (*_REQUEST, *_TRAINING) if train else _REQUEST
    about = {"model": model.name} | {name: getattr(request, name) for name in names}
    about["dispatch"] = _dispatch(listings)
    if isinstance(model, Encoder) or train:
        about["kv_dtype"] = None
    assumed = {
        name: about[name]
        for name in names
        if given[name] is None and about[name] is not None
    }
    notes = _too_large(model, about, card)
    return _Work(listings, about, assumed, notes, _memory(model, about))


def _check_phase(given: dict[str, Any]):
    """Flags that a training step lacks, or that only it has."""
    train = given["phase"] == "train"
    if train and given["kv_dtype"] is not None:
        raise ValueError(
            f"`--kv-dtype` is {given['kv_dtype']}, but a training step has no KV "
            "cache; leave it out."
        )
    if train and given["output_len"] is not None:
        raise ValueError(
            f"`--output-len` is {given['output_len']}, but a training step generates "
            "nothing; leave it out or take `--phase generate`."
        )
    for name in _TRAINING:
        if given[name] is not None and not train:
            raise ValueError(
                f"`--{name}` is given, but only a training step has it; leave it out "
                "or take `--phase train`."
            )


def _dispatch(listings: Sequence["Listing"]) -> str:
    kinds = list(dict.fromkeys(listing.dispatch for listing in listings))
    if len(kinds) == 1:
        return kinds[0]
    return ", ".join(f"{listing.mode} {listing.dispatch}" for listing in listings)


def _memory(model: Any, about: dict[str, Any]) -> dict[str, float]:
    """Bytes of weights and KV cache, or in training of what an optimizer keeps for the
    weights."""
    if about.get("phase") == "train":
        from ..workload.models._shared.base import values_dtype
        from ..workload.models._training.step import state_bytes

        state = state_bytes(model.parameters(), values_dtype(about["dtype"]))
        return {"weights, gradients and AdamW's state": float(state)}
    found = {"weights": float(model.weight_bytes(about["dtype"]))}
    if about["kv_dtype"] is not None:
        tokens = (about["input_len"] or 0) + (about["output_len"] or 0)
        per_token = model.kv_bytes_per_token(about["kv_dtype"])
        found["KV cache"] = float(per_token * tokens * about["batch"])
    return found


def _too_large(model: Any, about: dict[str, Any], card: "GpuCard") -> list[str]:
    """Warning if a workload does not fit the GPU's memory."""
    memory = _memory(model, about)
    capacity, need = card.values["dram_capacity"], sum(memory.values())
    if need <= capacity:
        return []
    parts = " + ".join(f"{what} {size / GiB:.1f} GiB" for what, size in memory.items())
    train = about.get("phase") == "train"
    where = f"{card.name} in training" if train else card.name
    total = f" = {need / GiB:.1f} GiB" if len(memory) > 1 else ""
    above = " (activations come on top)" if train else ""
    return [
        f"{model.name} does not fit {where}: {parts}{total}{above}, memory "
        f"{capacity / GiB:.1f} GiB; the figures are those of a GPU with enough."
    ]


def _parsed(flags: Flags, name: str) -> Any:
    value = getattr(flags, name)
    if name == "checkpointing":
        return value or None
    if name in ("batch", "input_len", "output_len", "accumulation"):
        return parse.whole("--" + name.replace("_", "-"), value)
    if name in ("dtype", "kv_dtype") and value is not None:
        from ..dtypes import SYNONYMS

        return SYNONYMS.get(value, value)
    return value
