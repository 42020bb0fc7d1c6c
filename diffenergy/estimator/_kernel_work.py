"""What kernels do: class, FLOP and bytes of a launch, the roofs above them, and the
time and energy of all launches by class, as pages, charts and traces show them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from jaxtyping import Float

from ..kernels import ops
from ..workload import kernel_name

Entry = Mapping[str, Any]
Entries = Sequence[Entry]

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
WAITING: Final = "waiting for the host"
STILL: Final = "waiting; idle and leakage"
_EXCHANGE: Final = "collective"


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
    clocks: Mapping[str, float],
    values: Mapping[str, float],
    dram_bandwidth: float,
    tensor_peak: Float[np.ndarray, " kernel"],
    fma_peak: Float[np.ndarray, " kernel"],
) -> list[dict[str, Any]]:
    """`kernels` (those of `kernel_entries`) with `class`, `flop` and `dram_bytes` of
    one launch (None where it is never launched), padding included.

    Arguments:

    - `clocks`: SM clock of each phase, Hz. `values`: those of the GPU file.
    - `dram_bandwidth`: B/s at the estimate's clock.
    - `tensor_peak`, `fma_peak`: FLOP/cycle/SM, 0 where the pipe is not used.
    """
    entries = []
    for kernel, tensor, fma in zip(kernels, tensor_peak, fma_peak, strict=True):
        flop = dram_bytes = None
        if kernel["time_s"] is not None:
            cycles = clocks[kernel["phase"]] * kernel["time_s"]
            use = kernel["utilization"]
            rate = use["tensor"] * tensor + use["fma"] * fma
            flop = float(rate * values["num_sms"] * cycles)
            dram_bytes = float(use["dram"] * dram_bandwidth * kernel["time_s"])
        work = {"flop": flop, "dram_bytes": dram_bytes}
        entries.append({**kernel, "class": kernel_class(kernel["op"]), **work})
    return entries


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
    ceilings = [Roof("CUDA cores", peak * rate) for peak in cores]
    for peak, dtypes in names.items():
        words = ", ".join(dict.fromkeys(filter(None, dtypes)))
        ceilings.append(Roof(f"tensor cores, {words}", peak * rate))
    return sorted(ceilings, key=lambda roof: -roof.flop_per_s)


def kernel_totals(
    kernels: Entries, summary: Entry, name: Callable[[Entry], str]
) -> dict[str, tuple[float, float]]:
    """(time in s, energy in J) of all launches by `name` of their kernel; `kernels` are
    those of one GPU, the energy of all that share a plan's stage.

    Of training on many GPUs: time of the mean GPU, energy beyond idle and leakage of
    those that launch a kernel; of collectives the time that nothing hides.
    """
    plan = summary.get("plan") or {}
    trains = is_training_step(summary)
    abreast = plan.get("tp", 1) * plan.get("dp", 1)
    sums: dict[str, tuple[float, float]] = {}
    for kernel in kernels:
        if kernel["time_s"] is not None:
            time, energy = sums.get(name(kernel), (0.0, 0.0))
            gpus = kernel["gpus"] if trains else abreast
            share = gpus / summary["num_gpus"] if trains else 1.0
            if not (trains and kernel["op"] == _EXCHANGE):
                time += share * kernel["count"] * kernel["time_s"]
            joules = kernel["dynamic_j"] if trains else kernel["energy_j"]
            energy += gpus * kernel["count"] * joules
            sums[name(kernel)] = (time, energy)
    if trains and summary["exposed_communication"]:
        # of what passes between hosts there is no kernel
        word = name({"op": _EXCHANGE})
        energy = sums.get(word, (0.0, 0.0))[1]
        time = summary["exposed_communication"] * summary["time_s"]
        sums[word] = (time, energy)
    return sums


def rest_label(summary: Entry) -> str:
    """Name of an answer's totals beside the classes of its kernels: of training
    on many GPUs bubbles, and idle and leakage power all along."""
    return STILL if is_training_step(summary) else WAITING


def is_training_step(summary: Entry) -> bool:
    """Whether it is of a training step on the GPUs of a plan."""
    return bool(summary.get("plan")) and summary.get("phase") == "train"


def mean_gpu_kernels(kernels: Entries, summary: Entry) -> list[Entry]:
    """Kernels of training on many GPUs as the mean GPU launches them: those of one part
    of the step that differ in their virtual stage alone are one entry, with the mean
    of their times and the limiter of the one that takes most."""
    groups: dict[tuple[str, str], list[Entry]] = {}
    for kernel in kernels:
        if kernel["time_s"] is not None:
            part = kernel["phase"].partition("@")[0].replace("_", " ")
            key = (kernel_name(kernel), part)
            groups.setdefault(key, []).append(kernel)
    return [_mean(part, rows, summary) for (_, part), rows in groups.items()]


def _mean(part: str, rows: Entries, summary: Entry) -> Entry:
    launches = np.array([row["gpus"] * row["count"] for row in rows])
    most = max(rows, key=lambda row: row["gpus"] * row["count"] * row["time_s"])
    whole, gpus = float(launches.sum()), summary["num_gpus"]
    means = {
        key: float(launches @ np.array([row[key] for row in rows])) / whole
        for key in ("time_s", "energy_j", "dynamic_j", "flop", "dram_bytes")
        if most.get(key) is not None and whole > 0
    }
    return {**most, **means, "phase": part, "count": whole / gpus, "gpus": gpus}


def one_gpu_phases(summary: Entry) -> dict[str, dict[str, Any]]:
    """Phases of an answer with the joules of one GPU that runs all stages of a plan:
    without those of its fellows, and of stages while they wait (idle and leakage power,
    by time)."""
    plan = summary.get("plan") or {}
    abreast, stages = plan.get("tp", 1) * plan.get("dp", 1), plan.get("pp", 1)
    units = summary["energy_j_by_unit"]
    still = (units.get("idle", 0.0) + units.get("leakage", 0.0)) / abreast
    waiting = still * (stages - 1) / stages / summary["time_s"]
    return {
        name: {
            **phase,
            "energy_j": phase["energy_j"] / abreast - waiting * phase["time_s"],
        }
        for name, phase in summary["phases"].items()
    }


def totals_by_class(kernels: Entries, summary: Entry) -> dict[str, tuple[float, float]]:
    """(time in s, energy in J) of each kernel class, most energy first, and of
    what is left of the estimate's totals (`rest_label`)."""
    sums = kernel_totals(kernels, summary, lambda kernel: kernel_class(kernel["op"]))
    ordered = dict(sorted(sums.items(), key=lambda item: -item[1][1]))
    busy = np.array(list(sums.values())).sum(axis=0)
    rest = np.array([summary["time_s"], summary["energy_j"]]) - busy
    if rest[0] > 1e-6 * summary["time_s"] or is_training_step(summary):
        ordered[rest_label(summary)] = (max(float(rest[0]), 0.0), float(rest[1]))
    return ordered
