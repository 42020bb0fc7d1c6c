"""Layers of the stages of a pipeline so that the slowest is fastest."""

import dataclasses
import math

import numpy as np

from ...estimator import Task, step_of
from ...plans import Training, fastest_split
from ...workload import complete


def balanced(task: Task) -> tuple[int, ...] | None:
    """Layers of every virtual stage of a training task, the embedding and the head
    counted by their time at the clock asked for; None of one stage. Layers of several
    kinds count as their mean."""
    assert task.step is not None
    placed = task.step.placed
    plan, layers = placed.plan, len(placed.model.stack())
    places = plan.pp * plan.vp
    if places == 1:
        return None
    apart = Training(
        placed.model,
        dataclasses.replace(plan, pp=3, vp=1, schedule="1f1b"),
        dataclasses.replace(
            placed.host, hosts=None, network=placed.host.network or math.inf
        ),
        placed.sequences,
        (0, layers, 0),
    )
    listings, steps = apart.work(task.step.request)
    made = dataclasses.replace(task.step, steps=steps, placed=apart)
    parts = dataclasses.replace(
        task, listings=[complete(x) for x in listings], step=made
    )
    micro = step_of(parts, parts.estimates()).found.times.micro
    spent = np.asarray(micro.work) + np.asarray(micro.exposed).sum(axis=-1)
    first, each, last = spent.sum(axis=-1)
    return fastest_split(each / layers, (first, last), layers, places)
