"""The GPU file of a design."""

import dataclasses
import math
from typing import Any, Final

import numpy as np

from ...hardware import FIELDS, GpuCard, with_fields
from .._space.silicon import area_errors
from .._space.task import hardware
from .exact import run
from .problem import Problem, Score

_NEAR: Final = 1e-6


def design_card(card: GpuCard, problem: Problem, score: Score, name: str) -> GpuCard:
    """The GPU of a design that grew out of `card`, as a file would have it.

    It holds every number that differs from `card`, those that follow a varied one too;
    clocks that it is to run at and tiles are no numbers of a GPU. Corrections are those
    of `card`; peaks that its vendor published are left out.
    """
    source = {
        "source": f"diffenergy codesign from {card.name}",
        "quality": "derived",
        "year": 2026,
    }
    task = problem.task
    values = np.array([score.fields[field] for field in task.names])
    count = len(values)  # without tiles
    bare = dataclasses.replace(task, low=task.low[:count], high=task.high[:count])
    gpu, _, _ = run(hardware, bare, values, np.zeros(len(FIELDS)), once=True)
    numbers = {field: float(getattr(gpu, field)) for field in FIELDS}
    changes = {field: x for field, x in numbers.items() if x != card.values[field]}
    changed_card = with_fields(card, changes)
    return dataclasses.replace(
        changed_card,
        name=name,
        aliases=(),
        published={},
        physical=_physical(card, changes, score.area),
        provenance={
            **card.provenance,
            **dict.fromkeys(changes, source),
            "die_area_mm2": {**source, "source": f"{source['source']}; {area_words()}"},
        },
        path=None,
    )


def area_words() -> str:
    """Words on the error of the model of areas."""
    mean, worst = area_errors()
    return (
        f"model of die areas, {100 * mean:.1f} % off on average "
        f"(at most {100 * worst:.1f} %) on dies left out of its fit"
    )


def _physical(card: GpuCard, changes: dict[str, Any], area: float) -> dict[str, Any]:
    """Area, dies and stacks; stacks go with the bandwidth."""
    physical: dict[str, Any] = {}
    if math.isfinite(area):
        physical["die_area_mm2"] = area
    if "num_dies" in card.physical:
        physical["num_dies"] = card.physical["num_dies"]
    stacks = card.physical.get("dram_stacks")
    if stacks:
        bandwidth = card.values["dram_bandwidth"]
        exact = float(stacks) * changes.get("dram_bandwidth", bandwidth) / bandwidth
        whole = round(exact)
        physical["dram_stacks"] = whole if abs(exact - whole) < _NEAR else exact
    return physical
