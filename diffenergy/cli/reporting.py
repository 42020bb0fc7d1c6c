"""From the flags of `report` to everything that its page shows."""

import dataclasses
import math
import shlex
from typing import TYPE_CHECKING, Any, Final

from . import engine
from .estimation import Result, Task, prepare
from .flags import Flags
from .output import Infeasible

if TYPE_CHECKING:
    from ..report._page.build import Content
    from ..report._page.charts.curves import Side
    from ..report._page.parts.rests import Basis
    from ..report._summaries.sweeps import Totals
    from ..report.summary import Setting
    from .programs import Programs

_OF_THE_FIRST: Final[dict[str, Any]] = {
    "sm_clock": None,
    "mem_clock": None,
    "power_limit": None,
    "set_field": (),
}
"""Flags that hold for `--gpu` alone; the other GPU keeps its defaults."""


def content(flags: Flags, versus: str | None) -> "Content":
    """Evaluates the estimate, the curves and the second GPU. `ValueError` for bad
    input, `Infeasible`."""
    task = _prepared(flags)
    second = None
    if versus is not None:
        others = dataclasses.replace(flags, gpu=versus, **_OF_THE_FIRST)
        second = _named(_prepared, others)
    import numpy as np

    from .. import __version__
    from ..compiling import compiler_options
    from ..report._page.build import Content
    from ..report._summaries.kernel_work import roofs, with_work
    from .programs import Programs

    result = task.run()
    programs = Programs(engine.cache_folder(), lambda _: compiler_options(once=True))
    found = _swept(task, programs)
    sides, bases = [_side(task, result, found)], [_basis(task)]
    notes = [*task.notes]
    against = None
    if second is not None:
        against = _named(second.run)
        sides.append(_side(second, against, _swept(second, programs)))
        bases.append(_basis(second))
        notes += [f"{second.card.name}: {note}" for note in second.notes]
    values, summary = task.card.values, result.summary
    bandwidth = _dram_bandwidth(task)
    peaks = (np.asarray(found.tensor_peak), np.asarray(found.fma_peak))
    kernels = with_work(
        result.kernels or [], summary["phases"], values, bandwidth, *peaks
    )
    clock = max(phase["sm_clock_mhz"] for phase in summary["phases"].values())
    return Content(
        summary=summary,
        kernels=kernels,
        listings=result.listings,
        roofs=roofs(kernels, clock * 1e6, values, *peaks),
        dram_bandwidth=bandwidth,
        power_range=_power_range(task, summary),
        power_cap=task.settings[0].power_limit * values["cap_fraction"],
        sides=sides,
        bases=bases,
        fitted_on=task.corrections.fitted_on,
        notes=notes,
        command=command_line(flags),
        version=__version__,
        versus=None if against is None else against.summary,
    )


def command_line(flags: Flags) -> str:
    """`estimate` with the flags that were given, as a shell takes it."""
    words = ["diffenergy", "estimate", flags.model]
    for field in dataclasses.fields(flags):
        value, name = getattr(flags, field.name), "--" + field.name.replace("_", "-")
        if field.name in ("model", "detail", "as_json", "out") or not value:
            continue
        if field.name == "set_field":
            words += [word for text in value for word in ("--set", text)]
        else:
            words += [name] if value is True else [name, value]
    return shlex.join([*words, "--json"])


def _prepared(flags: Flags) -> Task:
    task = prepare(flags)
    if len(task.settings) > 1:
        raise ValueError(
            "`report` takes no lists of clocks or limits (it draws the curves itself); "
            "give one of each."
        )
    return task


def _named(step: Any, *args: Any) -> Any:
    """`step(*args)`; errors say that they belong to the second GPU."""
    try:
        return step(*args)
    except (ValueError, Infeasible) as error:
        raise type(error)(f"`--versus`: {error}") from None


def _settings(task: Task) -> list["Setting"]:
    """Points of the curves: half of them SM clocks, half of them power limits."""
    from ..report._summaries.sweeps import num_points, sweep_settings

    rows = sum(len(listing.kernels) for listing in task.listings)
    return sweep_settings(task.card, task.settings[0], num_points(rows))


def _swept(task: Task, programs: "Programs") -> "Totals":
    """The workload over clocks and limits, on the host."""
    import numpy as np

    from ..report._summaries.sweeps import Totals, operating_points, totals
    from ..workload._assemble import assemble

    points = operating_points(_settings(task), task.flags.mem_clock is not None)
    served = task.corrections.serve(task.card)
    arguments = (assemble(task.listings), task.card.spec, points, served)
    return Totals(*map(np.asarray, programs(totals, arguments)))


def _side(task: Task, result: Result, found: "Totals") -> "Side":
    """Curves of one GPU; points whose power limit cannot be kept are left out."""
    from ..report._page.charts.curves import Side

    columns = (found.time, found.energy, found.sm_clock, found.feasible)
    points = [
        {
            "sm_clock_set_mhz": setting.sm_clock / 1e6,
            "power_limit_w": setting.power_limit,
            "time_s": float(time),
            "energy_j": float(energy),
            "avg_power_w": float(energy / time),
            "sm_clock_mhz": float(clock) / 1e6,
            "feasible": bool(kept) and math.isfinite(time),
        }
        for setting, time, energy, clock, kept in zip(
            _settings(task), *columns, strict=True
        )
    ]
    half = len(points) // 2
    clocks, limits = (
        [point for point in part if point["feasible"]]
        for part in (points[:half], points[half:])
    )
    return Side(task.card.name, clocks, limits, result.summary)


def _power_range(task: Task, summary: dict[str, Any]) -> list[float]:
    """5th and 95th percentile of the mean power, W."""
    power, time = summary["avg_power_w"], summary["time_s"]
    return [float(x) for x in task.trust.interval("power", power, time)]


def _dram_bandwidth(task: Task) -> float:
    """B/s at the memory clock of the estimate."""
    values = task.card.values
    share = task.settings[0].mem_clock / values["mem_clock"]
    return float(values["dram_bandwidth"] * share)


def _basis(task: Task) -> "Basis":
    """What the figures of one GPU rest on."""
    from ..hardware._files import field_units
    from ..report._page.parts.rests import Basis
    from ..report._summaries.provenance import coefficients
    from ..report._tables.known import gpu_summary

    gpu = gpu_summary(task.card, field_units(), task.corrections)
    return Basis(gpu, coefficients(task.card, task.corrections))
