"""Whether a request fits a GPU's memory: the parts, the sum, and what would fit."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Final

from ...hardware import GpuCard
from ...plans import Placed, Plan
from ...results import Infeasible
from ...workload import EAGER_DTYPES, MEMORY_PARTS, largest_whole
from ...workload.models import Model, Request

_GB: Final = 1e9
_WORDS: Final[Mapping[str, str]] = {
    "kv_cache": "KV cache",
    "optimizer": "AdamW's state",
}
_TYPES: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "dtype": ("dtype", ("bf16", "fp8", "int4")),
    "kv_dtype": ("KV dtype", ("bf16", "fp8")),
}
"""Types that a request may change to, wide ones first, and what they are types of."""
_LENGTHS: Final[Mapping[str, str]] = {
    "batch": "batch",
    "input_len": "input length",
    "output_len": "output length",
}
"""Numbers that a request may lower, and their words."""


def entry(parts: Mapping[str, float] | None, card: GpuCard) -> dict[str, Any]:
    """`memory` of an answer: bytes of every part, their `total`, the GPU's `capacity`,
    and whether the request `fits`. Without `parts`, which a listing does not tell, all
    but the capacity is None."""
    capacity = card.values["dram_capacity"]
    if parts is None:
        unknown = dict.fromkeys((*MEMORY_PARTS, "total"))
        return {**unknown, "capacity": capacity, "fits": None}
    total = float(sum(parts.values()))
    return {**parts, "total": total, "capacity": capacity, "fits": total <= capacity}


def too_large(
    name: str, memory: Mapping[str, Any], card: GpuCard, larger: Plan | None = None
) -> list[str]:
    """Warning if a request does not fit; `larger`: the plan with which it would."""
    if memory["fits"] is not False:
        return []
    more = "" if larger is None else f"; it fits with {larger.text}"
    return [
        f"{name} does not fit {card.name}: {_needs(memory)}; the figures are those of "
        f"a GPU with enough{more}."
    ]


def check_fit(
    model: Model | Placed,
    request: Request,
    memory: Mapping[str, Any],
    card: GpuCard,
    larger: Plan | None = None,
) -> None:
    """Raises `Infeasible` if `request` does not fit, with every single change of batch,
    length or type (in training checkpointing) that would, and the least `larger`
    plan; its `least` has the largest batch and lengths, and the sizes of that plan."""
    if memory["fits"]:
        return

    def fits(**changed: Any) -> bool:
        return _total(model, request, **changed) <= memory["capacity"]

    largest = _largest(request, fits)
    ways = [f"{_LENGTHS[name]} up to {value}" for name, value in largest.items()]
    ways += _types(request, fits)
    if request.checkpointing is False and fits(checkpointing=True):
        ways.append("checkpointing")
    ways += [] if larger is None else [larger.text]
    reason = f"`require_fit`: {model.name} does not fit {card.name}: {_needs(memory)}; "
    if ways:
        listed = ", ".join(ways[:-1]) + (" or " if ways[:-1] else "") + ways[-1]
        least = {name: float(value) for name, value in largest.items()}
        sizes = {} if larger is None else larger.to_json()
        least |= {key: float(size) for key, size in sizes.items() if size > 1}
        raise Infeasible(f"{reason}it fits with {listed}.", **least)
    ones = dict.fromkeys((name for name in _LENGTHS if getattr(request, name)), 1)
    need = _total(model, request, **ones) / _GB
    short = ", ".join(f"{_LENGTHS[name]} 1" for name in ones)
    raise Infeasible(
        f"{reason}no batch, length or type alone changes that ({short}: "
        f"{need:.1f} GB); take a larger GPU."
    )


def _needs(memory: Mapping[str, Any]) -> str:
    """The parts, their sum and the capacity in words."""
    parts = [
        f"{_WORDS.get(part, part)} {memory[part] / _GB:.1f} GB"
        for part in MEMORY_PARTS
        if memory[part] >= 0.05 * _GB
    ]
    return (
        f"{' + '.join(parts)} = {memory['total'] / _GB:.1f} GB, memory "
        f"{memory['capacity'] / _GB:.1f} GB"
    )


def _total(model: Model | Placed, request: Request, **changed: Any) -> float:
    """Bytes of `request` with fields changed."""
    return sum(model.memory(dataclasses.replace(request, **changed)).values())


def _largest(request: Request, fits: Callable[..., bool]) -> dict[str, int]:
    """Largest batch and lengths that fit, one of them changed, as far as any does."""
    largest = {}
    for name in _LENGTHS:
        most = getattr(request, name)
        if most:
            value = largest_whole(lambda x: fits(**{name: x}), most - 1)  # noqa: B023
            largest |= {} if value is None else {name: value}
    return largest


def _types(request: Request, fits: Callable[..., bool]) -> list[str]:
    """The widest type of weights, and of the KV cache, that fits. Whatever fits where
    the request does not is narrower, also than what a checkpoint mixes."""
    wide = request.stack == "serving" and request.phase != "train"
    ways = []
    for name, (word, types) in _TYPES.items():
        allowed = types if wide else [x for x in types if x in EAGER_DTYPES]
        dtype = next((x for x in allowed if fits(**{name: x})), None)
        ways += [f"{word} {dtype}"] if dtype else []
    return ways
