"""The least plan with which a request fits the memory of GPUs."""

import dataclasses
from collections.abc import Iterator
from typing import Final

from ..workload import LanguageModel, TrainedModel
from ..workload.models import Model, Request
from ._host import Host
from ._memory import training_memory
from ._placed import Inference
from ._plan import Plan
from ._training import Training

_DOUBLINGS: Final = 8
"""Powers of two, less one, that are tried for a size."""
_MOST_GPUS: Final = 11
"""Powers of two, less one, that are tried for the GPUs of a training plan."""


def least_plan(
    model: Model, request: Request, plan: Plan, host: Host, capacity: float
) -> Plan | None:
    """The plan with the least `tp` in a host, then with the least `pp` of several, with
    which a request fits GPUs of `capacity` bytes; None if none does. Both are powers of
    two beyond those of `plan`."""
    if not isinstance(model, LanguageModel) or not model.divides:
        return None
    if request.stack != "serving":
        return None
    for changed in _larger(plan, host):
        try:
            host.check(changed)
            parts = Inference(model, changed).memory(request)
        except ValueError:  # it does not divide the model
            continue
        if sum(parts.values()) <= capacity:
            return changed
    return None


def _larger(plan: Plan, host: Host) -> Iterator[Plan]:
    """Plans with more GPUs for a replica, in the order in which they are tried."""
    sizes = [2**n for n in range(1, _DOUBLINGS) if plan.tp < 2**n <= host.size]
    for tp in sizes:
        fits = tp % plan.ep == 0 or plan.ep % tp == 0
        yield dataclasses.replace(plan, tp=tp, ep=plan.ep if fits else 1)
    most = max([plan.tp, *sizes])
    for pp in (2**n for n in range(1, _DOUBLINGS) if plan.pp < 2**n):
        for tp in dict.fromkeys((most, plan.tp)):
            yield Plan(tp, pp, 1, plan.dp)


def least_training(
    model: Model, request: Request, plan: Plan, host: Host, capacity: float
) -> Plan | None:
    """The plan with the least GPUs, powers of two beyond those of `plan`, with which a
    training step fits GPUs of `capacity` bytes: FSDP, else tensor parallelism within a
    host and a pipeline behind it; None if none does."""
    if not isinstance(model, TrainedModel) or not model.trains:
        return None
    frozen = request.frozen_layers or 0
    for number in (2**n for n in range(1, _MOST_GPUS)):
        if number <= plan.gpus:
            continue
        tp = min(number, host.size)
        for changed in (
            dataclasses.replace(plan, tp=1, pp=1, vp=1, cp=1, dp=number, zero=3),
            dataclasses.replace(plan, tp=tp, pp=number // tp, vp=1, cp=1, dp=1),
        ):
            changed = dataclasses.replace(changed, ep=1, etp=None, schedule=None)
            try:
                # memory before `Training`, which places the model on every stage for
                # its checks
                stages = training_memory(model, changed, request)
                if max(sum(parts.values()) for parts in stages) > capacity:
                    continue
                sequences = number * plan.microbatch
                Training(model, changed, host, sequences, frozen=frozen)  # checks
            except ValueError:  # it does not divide the model, or the hosts
                continue
            return changed
    return None
