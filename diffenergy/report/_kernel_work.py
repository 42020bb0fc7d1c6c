"""What kernels do: class, FLOP and bytes of a launch, and the roofs above them."""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import numpy as np
from jaxtyping import Float

from ..kernels import ops
from ..units import MHz
from ._format import Entries, Entry

_CLASSES: Final = {
    "gemm": "matrix products",
    "attention": "attention",
    "attention_backward": "attention, backward",
    "reduction": "softmax and norms",
    "elementwise": "element-wise",
    "gather": "gathers",
    "moe": "mixture of experts",
    "conv": "convolutions",
    "collective": "collectives",
    "activity": "programs by activity",
}
"""Words for the kernel classes; another one goes by its own name."""
_SHOWN: Final = 1000
"""Entries that a page shows."""


class Roof(NamedTuple):
    """A ceiling of the roofline: FLOP/s that a kind of instruction can reach."""

    name: str
    flop_per_s: float


def kernel_class(op: str) -> str:
    """Class of an op, in words.

    >>> kernel_class("rmsnorm")
    'softmax and norms'
    """
    module = kernel_module(op)
    return _CLASSES.get(module, module.replace("_", " "))


def kernel_module(op: str) -> str:
    """Name of the module that models an op.

    >>> kernel_module("rmsnorm")
    'reduction'
    """
    return ops()[op][1].__name__.rpartition(".")[2]


def with_work(
    kernels: Entries,
    phases: Entry,
    values: Mapping[str, float],
    dram_bandwidth: float,
    tensor_peak: Float[np.ndarray, " kernel"],
    fma_peak: Float[np.ndarray, " kernel"],
) -> list[dict[str, Any]]:
    """`kernels` (those of `kernel_entries`) with `class`, `flop` and `dram_bytes` of
    one launch (None where it is never launched), padding included.

    Arguments:

    - `values`: those of the GPU file. `dram_bandwidth`: B/s at the estimate's clock.
    - `tensor_peak`, `fma_peak`: FLOP/cycle/SM, 0 where the pipe is not used.
    """
    found = []
    for kernel, tensor, fma in zip(kernels, tensor_peak, fma_peak, strict=True):
        entry = {**kernel, "class": kernel_class(kernel["op"])}
        flop = dram_bytes = None
        if kernel["time_s"] is not None:
            cycles = phases[kernel["phase"]]["sm_clock_mhz"] * MHz * kernel["time_s"]
            use = kernel["utilization"]
            rate = use["tensor"] * tensor + use["fma"] * fma
            flop = float(rate * values["num_sms"] * cycles)
            dram_bytes = float(use["dram"] * dram_bandwidth * kernel["time_s"])
        found.append({**entry, "flop": flop, "dram_bytes": dram_bytes})
    return found


def roofs(
    kernels: Entries,
    clock: float,
    values: Mapping[str, float],
    tensor_peak: Float[np.ndarray, " kernel"],
    fma_peak: Float[np.ndarray, " kernel"],
) -> list[Roof]:
    """Ceilings that the kernels are up against at `clock` (Hz), highest first.

    `values`: those of the GPU file. GPUs without tensor cores multiply on CUDA cores.
    """
    rate = values["num_sms"] * clock
    names: dict[float, list[str]] = {}
    for kernel, peak in zip(kernels, tensor_peak.tolist(), strict=True):
        if peak > 0:
            names.setdefault(peak, []).append(kernel.get("dtype", ""))
    cores = {peak for peak in fma_peak.tolist() if peak > 0}
    if values["fma_flop_per_cycle_fp32"] in names:
        cores.add(values["fma_flop_per_cycle_fp32"])
        del names[values["fma_flop_per_cycle_fp32"]]
    found = [Roof("CUDA cores", peak * rate) for peak in cores]
    for peak, dtypes in names.items():
        words = ", ".join(dict.fromkeys(filter(None, dtypes)))
        found.append(Roof(f"tensor cores, {words}", peak * rate))
    return sorted(found, key=lambda roof: -roof.flop_per_s)


def longest(kernels: Entries) -> tuple[list[Entry], str]:
    """The kernels that are launched, those that take most time first, as far as they
    can be shown; and a remark on the rest."""
    live = sorted(
        (kernel for kernel in kernels if kernel["time_s"]),
        key=lambda kernel: -kernel["count"] * kernel["time_s"],
    )
    rest = len(live) - _SHOWN
    return live[:_SHOWN], f" {rest} shorter ones are not shown." if rest > 0 else ""


def summed(
    kernels: Entries, summary: Entry, name: Callable[[Entry], str]
) -> dict[str, tuple[float, float]]:
    """(time in s, energy in J) of all launches by `name` of their kernel; `kernels` are
    those of one GPU, the energy of all that share a plan's stage."""
    plan = summary.get("plan") or {}
    gpus = plan.get("tp", 1) * plan.get("dp", 1)
    sums: dict[str, tuple[float, float]] = {}
    for kernel in kernels:
        if kernel["time_s"] is not None:
            time, energy = sums.get(name(kernel), (0.0, 0.0))
            time += kernel["count"] * kernel["time_s"]
            energy += gpus * kernel["count"] * kernel["energy_j"]
            sums[name(kernel)] = (time, energy)
    return sums


def by_class(kernels: Entries, summary: Entry) -> dict[str, tuple[float, float]]:
    """(time in s, energy in J) of each kernel class, most energy first, and of
    "waiting for the host": what is left of the estimate's totals."""
    sums = summed(kernels, summary, lambda kernel: kernel_class(kernel["op"]))
    ordered = dict(sorted(sums.items(), key=lambda item: -item[1][1]))
    busy = np.array(list(sums.values())).sum(axis=0)
    rest = np.array([summary["time_s"], summary["energy_j"]]) - busy
    if rest[0] > 1e-6 * summary["time_s"]:
        ordered["waiting for the host"] = (float(rest[0]), float(rest[1]))
    return ordered
