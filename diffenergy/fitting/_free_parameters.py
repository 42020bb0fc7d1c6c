"""Which constants the rows of a fit can move, at which levels."""

import dataclasses
from collections.abc import Sequence
from typing import Final

import numpy as np

from ..corrections import (
    ACTIVITY_CONSTANTS,
    ANY_ROWS,
    CONSTANTS,
    REFERENCE_TAGS,
    CorrectionsFile,
    Levels,
    constants_of,
)
from ._batches import Batch
from ._fit import Target, sensor_tag
from ._parameters import SENSOR, Parameter, Parameters

FEW_READINGS: Final = 20
"""Rows of a GPU that nothing is known of, below which one factor alone is fitted."""


def free_parameters(start: CorrectionsFile, targets: Sequence[Target]) -> Parameters:
    """Parameters that a fit of the targets frees (rules: see `calibrate`)."""
    levels: Levels = {tag: dict(values) for tag, values in start.levels.items()}
    if not start.fitted_on:
        used = [item.batch for item in targets]
        shaped = [batch for batch in used if batch.kind != "activity"]
        free = [Parameter("global", name) for name in _at_level("global") if shaped]
        free += _relatives(shaped) if shaped else []
        free += [
            Parameter(batch.card.tags[-1], name)
            for batch in used
            for name in ACTIVITY_CONSTANTS
            if batch.kind == "activity"
        ]
    else:
        plans = [x.batch for x in targets if x.batch.kind == "plan"]
        kinds = {label.partition(":")[2] for label in start.fitted_on.get("rows", {})}
        if plans and "plan" not in kinds:
            free = _of_plans(plans)
        else:
            free = _of_gpus(start, targets)
    for item in targets:
        batch = item.batch
        if not batch.meter_constants or not np.isfinite(item.power).any():
            continue
        if Parameter(batch.card.tags[-1], "dynamic_energy") in free:
            continue  # a few readings say nothing about how they were read
        tag, rows = sensor_tag(batch), constants_of(batch.meter)
        levels[tag] = dict(batch.meter_constants)
        free += [Parameter(tag, name, rows[name]) for name in batch.meter_constants]
    tags = {tag for item in targets for tag in item.batch.card.tags}
    read = [item for item in targets if np.isfinite(item.power).any()]
    read_tags = {tag for item in read for tag in item.batch.card.tags}
    return Parameters(
        tuple(dict.fromkeys(free)), levels, tuple(sorted(tags - read_tags))
    )


def begun_at(parameters: Parameters, file: CorrectionsFile) -> np.ndarray:
    """Free numbers z in fitted space at the values of a corrections file."""
    sensors = {
        p.tag: file.instruments.get(p.tag.removeprefix(SENSOR), {})
        for p in parameters.free
        if p.tag.startswith(SENSOR)
    }
    return dataclasses.replace(parameters, start={**file.levels, **sensors}).centre()


def _relatives(used: Sequence[Batch]) -> list[Parameter]:
    """Factors of the tags of the GPUs, but of `REFERENCE_TAGS` and the GPU with most
    passes; a GPU's own only for the ops that its rows hold."""
    factors: dict[str, set[str]] = {}
    passes = [b for b in used if b.kind == "workload"]
    most = max(passes or used, key=lambda b: (b.rows >= 0).sum())
    reference = most.card.tags[-1]
    for batch in used:
        for tag in batch.card.tags:
            prefix = tag.partition(":")[0]
            if tag in REFERENCE_TAGS or tag == reference:
                continue
            factors.setdefault(tag, set()).update(
                name
                for name in _at_level(prefix, tag)
                if _frees(batch, name) and (prefix != "gpu" or batch.kind != "moe")
            )
    return [
        Parameter(tag, name) for tag in sorted(factors) for name in sorted(factors[tag])
    ]


def _of_plans(used: Sequence[Batch]) -> list[Parameter]:
    """The constants of plans, which no fit has seen, and their factors by tag; all
    others are known from kernels and passes."""
    new = [name for name in CONSTANTS if "plan" in CONSTANTS[name].rows]
    free = [Parameter("global", x) for x in new if "global" in CONSTANTS[x].levels]
    return free + [p for p in _relatives(used) if p.constant in new]


def _of_gpus(start: CorrectionsFile, targets: Sequence[Target]) -> list[Parameter]:
    """Factors of the GPUs of the rows: one on all dynamic energy where few readings of
    a new GPU are all there is, else on every constant that its rows concern."""
    free: list[Parameter] = []
    for card in {item.batch.card.name: item.batch.card for item in targets}.values():
        of_gpu = [item for item in targets if item.batch.card.name == card.name]
        tag = card.tags[-1]
        readings = sum(int(np.isfinite(item.power).sum()) for item in of_gpu)
        timed = sum(int(np.isfinite(item.time).sum()) for item in of_gpu)
        fitted_before = card.served_as in start.fitted_on.get("architectures", {})
        if max(readings, timed) < FEW_READINGS and not fitted_before:
            free.append(Parameter(tag, "dynamic_energy"))
            continue
        if any(item.batch.kind == "activity" for item in of_gpu):
            free += [Parameter(tag, name) for name in ACTIVITY_CONSTANTS]
        names = _at_level("own")  # those of a GPU alone at the end
        names.sort(key=lambda name: "global" not in CONSTANTS[name].levels)
        free += [
            Parameter(tag, name)
            for name in names
            if any(_frees(item.batch, name) for item in of_gpu)
        ]
    return free


def _at_level(*levels: str) -> list[str]:
    """Names of the constants that a fit may free at one of the levels."""
    return [name for name, c in CONSTANTS.items() if set(levels) & set(c.levels)]


def _frees(batch: Batch, constant: str) -> bool:
    """Whether rows of a batch free a factor of a constant; rows of op `activity` have
    `ACTIVITY_CONSTANTS`."""
    rows = CONSTANTS[constant].frees
    if batch.kind == "activity":
        return False
    if batch.kind == "plan":
        return "plan" in rows
    return rows == ANY_ROWS or bool({batch.kind, *batch.records} & set(rows))


def frozen(p: Parameter, groups: Sequence[str]) -> bool:
    """Whether a group names the parameter's level, constant, or the start of one."""
    level = p.tag.removeprefix(SENSOR)
    kind = "sensor" if p.tag.startswith(SENSOR) else p.tag.partition(":")[0]
    return any(g in (kind, level) or p.constant.startswith(g) for g in groups)
