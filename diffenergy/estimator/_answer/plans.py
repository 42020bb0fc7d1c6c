"""What an answer says of many GPUs: sums over all of them, and what they exchange.

A request passes through the stages of a plan one after the other, so its time is that
of all their kernels on one GPU each. The GPUs of a stage work meanwhile as one does,
and wait during the other stages: then they take idle and leakage power alone.
"""

from collections.abc import Mapping
from typing import Any, Final

import equinox as eqx
import numpy as np

from ...physics import COMPONENTS, STATIC
from ...plans import Plan
from .._asking.checked import Checked
from .records import Estimate

_KINDS: Final[Mapping[str, str]] = {"send_recv": "pp", "all_to_all": "ep"}
"""What a collective belongs to; all others to `tp`."""


def of_all(estimate: Estimate, plan: Plan | None) -> Estimate:
    """The estimate of one GPU a stage -> energy and power of all GPUs:

    E = tp dp (E_one + (pp - 1) E_static), E_static that of idling all the time.
    """
    if plan is None or plan.gpus == 1:
        return estimate
    p, abreast = estimate.phases, plan.tp * plan.dp
    stages = np.ones(len(COMPONENTS))
    stages[STATIC] = plan.pp
    parts = p.components * stages
    energy = abreast * (p.energy + (p.components * (stages - 1)).sum(axis=-1))
    whole = energy.sum()
    power, each = whole / estimate.time, energy / p.time
    changed = (whole, power, energy, each, abreast * parts)
    return eqx.tree_at(_of_energy, estimate, changed)


def _of_energy(estimate: Estimate) -> tuple[Any, ...]:
    p = estimate.phases
    return (estimate.energy, estimate.power, p.energy, p.power, p.components)


def figures(
    task: Checked, estimate: Estimate, power: float, rate: float | None
) -> dict[str, Any]:
    """Keys that a plan adds to an answer; `estimate` of one GPU, `power` of all (W),
    `rate` in tokens/s."""
    plan = task.plan
    if plan is None:
        return {}
    kernels = estimate.kernels
    rows = [kernel for listing in task.listings for kernel in listing.kernels]
    spent = np.asarray(kernels.count) * np.asarray(kernels.time)
    moved: dict[str, float] = {"tp": 0.0, "pp": 0.0, "ep": 0.0}
    for row, seconds in zip(np.asarray(kernels.row), spent, strict=True):
        if seconds > 0 and rows[row]["op"] == "collective":
            kind = rows[row].get("axis") or _KINDS.get(rows[row]["collective"], "tp")
            moved[kind] += float(seconds)
    memory = task.memory["total"]
    return {
        "tokens_per_s_per_gpu": None if rate is None else rate / plan.gpus,
        "power_per_gpu_w": power / plan.gpus,
        "power_total_w": power,
        "memory_per_gpu_bytes": memory,
        "exposed_communication": sum(moved.values()) / float(estimate.time),
        "communication": {
            kind: {"total_s": seconds, "exposed_s": seconds}
            for kind, seconds in moved.items()
        },
        "stages": task.stages,
    }
