"""What a person should know of a request beside its figures: number formats that were
taken or that the GPU lacks, what of the GPU nobody measured."""

import re
from collections.abc import Iterable, Mapping
from typing import Final

from ...corrections import CorrectionsFile
from ...dtypes import canonical
from ...hardware import BY_CALLER, GpuCard, new_doubts
from ...kernels import known_as, ops
from ...workload import Config, LanguageModel, Listing, element_bytes
from ...workload.models import Model, model_names

_RATES: Final[Mapping[str, tuple[str, ...]]] = {
    "bf16": ("bf16", "fp16"),
    "fp8": ("fp8", "bf16", "fp16"),
    "fp8_block": ("fp8", "bf16", "fp16"),
    "int8": ("int8", "bf16", "fp16"),
    "nvfp4": ("fp4", "bf16", "fp16"),
    "mxfp4": ("fp4", "bf16", "fp16"),
    "mxfp8": ("fp4", "bf16", "fp16"),
}
"""Tensor rates of a GPU file by type of operands: the one that tells whether it has
the type, then those that stand in."""
_SHOWN: Final = {"mxfp8": "mxfp8", "fp8_block": "fp8", "nvfp4": "fp4", "mxfp4": "fp4"}
"""Units by the type that they are missing for; others by their own name."""


def missing_units(listings: Iterable[Listing], card: GpuCard) -> list[str]:
    """Types of products that the GPU's tensor cores do not have."""
    used = {
        (_SHOWN.get(kernel["dtype"], kernel["dtype"]), _RATES[kernel["dtype"]]): None
        for listing in listings
        for kernel in listing.kernels
        if ops()[kernel["op"]][0].products and kernel["dtype"] in _RATES
    }
    remarks = []
    for name, (native, *others) in used:
        rate = {x: card.values[f"tensor_flop_per_cycle_{x}"] for x in (native, *others)}
        if not rate[native]:
            instead = next((x for x in others if rate[x]), "fp32 on CUDA cores")
            remarks.append(
                f"{card.name} has no {name} units: products in {name} run at the rate "
                f"of {instead}."
            )
    return remarks


def check_kernels(listings: Iterable[Listing], card: GpuCard):
    """Raises `ValueError` for a kernel that the chip cannot run: tiles of CUDA cores on
    systolic arrays."""
    kernels = (kernel for listing in listings for kernel in listing.kernels)
    for kernel in kernels if card.mma == "systolic" else ():
        tile = next((x for x in ("mdimc", "tile_m") if kernel.get(x)), None)
        product = known_as(kernel["op"]) == "gemm"
        if tile and product and not kernel.get("tensor_core"):
            raise ValueError(
                f"`{tile}` is {kernel[tile]:g}, of a tile on CUDA cores, which "
                f"{card.name} does not have; leave the fields of the tile out."
            )


WITHOUT_FAILURES: Final = (
    "Failures, restarts and checkpoints are not in `run`: goodput 1 is assumed; state "
    "them by `--mtbf`, or by `--goodput`."
)

_DECISIVE: Final = {
    "tdp": "`tdp`",
    "vf_slope": "the voltage curve (`vf_slope`)",
    "idle_constant": "idle power (`idle_constant`)",
}
"""Numbers that decide power and the clock at a limit, and their names."""


def of_hardware(file: CorrectionsFile, card: GpuCard, linked: bool) -> list[str]:
    """Warnings of forecasts, doubts and guesses of a GPU (`linked`: links are used)."""
    laws = [x for x in file.forecasts(card) if linked or x.constant != "energy_link"]
    remarks = [law.warning for law in laws if law.warning] + new_doubts(card)
    if newest := card.generation.taken_for:
        remarks.append(
            f"`architecture` {card.architecture} is in no table of generations: hosts "
            f"and links are taken to be those of {newest}."
        )
    return [*remarks, *_guesses(card)] if card.corrections is None else remarks


def _guesses(card: GpuCard) -> list[str]:
    """Warning that numbers which decide power are guesses in the file of a GPU."""
    sources = {x: card.provenance.get(x, {}) for x in _DECISIVE}
    guessed = [
        _DECISIVE[field]
        for field, entry in sources.items()
        if entry.get("quality", "guess") == "guess" and entry != BY_CALLER
    ]
    if not guessed:
        return []
    return [
        f"guessed of {card.name}: {', '.join(guessed)}; its power, and its clock at a "
        "limit, are no better known."
    ]


def weight_types(model: Model, name: str, dtype: str | None, used: str) -> list[str]:
    """What is uncertain of the weights' type: `dtype` of a flag or None, `used` in the
    end; `name` as the model was asked for."""
    if dtype is not None or name in model_names():
        return []
    if isinstance(model, LanguageModel) and model.checkpoint.quantised:
        return []
    stated = _stated(model.config)
    if re.search("fp8", model.name, re.IGNORECASE):
        return [
            f"'{model.name}' says FP8, but its config states no quantization: the "
            f"weights are taken in {used}; give `--dtype fp8` if they are stored so."
        ]
    if stated is None:
        return [
            f"{model.config.where} states no `torch_dtype`: the weights are taken in "
            f"{used}; `--dtype` says otherwise."
        ]
    stored = canonical(stated)
    if stored in ("fp32", "bf16", "fp16") and element_bytes(stored) != element_bytes(
        used
    ):
        return [
            f"{model.config.where} stores the weights in {stated}, but {used} is "
            f"taken; `--dtype {stored}` runs them as they are."
        ]
    return []


def _stated(config: Config) -> str | None:
    """Type of the weights by a config; newer ones say `dtype`. Of a multimodal model
    the text's own counts, then the whole file's."""
    text = config.values.get("text_config")
    parts = [text, config.values, config.outer.values if config.outer else None]
    for part in parts:
        for key in ("torch_dtype", "dtype"):
            if isinstance(part, Mapping) and part.get(key) is not None:
                return str(part[key])
    return None
