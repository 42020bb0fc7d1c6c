"""The page of an estimate: from a checked request to what it shows, and its HTML."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float

from ...charts import Chart, to_svg
from ...compiling import kept
from ...estimator import (
    EstimateResult,
    Setting,
    Step,
    Task,
    demands,
    estimate_once,
    of_step,
    operating_points,
)
from ...hardware import GpuSpec, OperatingPoint, field_units, sm_clocks
from ...plans import Plan, TrainingStep
from ...workload import Listing, Workload, assemble
from .._charts.curves import Side, curve_charts
from .._charts.estimate import parts_chart
from .._charts.roofline import roofline
from .._charts.served import served_charts
from .._charts.steps import step_charts
from .._charts.timeline import timelines
from .._format import Entries, Entry, unit_words
from .._kernel_work import Roof, by_class, of_mean_gpu, rest_words, roofs, with_work
from .._tables.known import gpu_summary
from .._tables.lines import title_line
from .document import Part, document
from .markup import tag
from .parts.answer import answer
from .parts.rests import Basis, coefficients, rests_on
from .parts.serving import served_part
from .parts.steps import step_part
from .parts.tables import compared, kernel_list

if TYPE_CHECKING:
    from ...serving import ServingResult

_COLOURS: Final = 8
"""Of the palette."""
_POINTS: Final = 32
_FEW: Final = 8
_LARGE: Final = 1000
"""Listing rows above which a curve has few points: a second of work a point."""


@dataclasses.dataclass(frozen=True)
class Content:
    """All that the page shows.

    `summary` is what `estimate --json` prints, `kernels` are those of `with_work`,
    `fitted_on` that of the corrections file; `versus` is the summary of a second GPU,
    the second one of `sides` and `bases`, `notes` its warnings; `step`: of training on
    many GPUs, whose `kernels` are those of the mean GPU; `served`: the model behind an
    engine.
    """

    summary: Entry
    kernels: Entries
    listings: Sequence[Listing]
    roofs: Sequence[Roof]
    dram_bandwidth: float  # B/s
    power_cap: float  # W that the limiter holds
    sides: Sequence[Side]
    bases: Sequence[Basis]
    fitted_on: Entry
    notes: Sequence[str]
    command: str
    versus: Entry | None = None
    step: Step | None = None
    served: "ServingResult | None" = None


def page_html(content: Content) -> str:
    """The page, complete in itself: style, script, drawings and data are in it."""
    summary = content.summary
    heading = f"{summary['model']} on {summary['gpu']}"
    return document(
        heading,
        title_line(summary).removeprefix(f"{heading}: "),
        answer(summary, content.sides[0]),
        _parts(content),
        content.command,
        ("estimate", summary),
        f"{heading}: energy and time",
    )


def _parts(content: Content) -> list[Part]:
    """The sections below the answer."""
    summary, versus, kernels = content.summary, content.versus, content.kernels
    drawn = {x: to_svg(y, f"chart-{x}") for x, y in page_charts(content).items()}
    over = "One pass over time"
    time = "".join(x for name, x in drawn.items() if name.startswith("timeline-"))
    if content.step is not None:
        names = ("stages", "power", "power-of-one")
        over, time = "The step over time", step_part(summary, drawn, names)
    units, *classes = (
        drawn[f"{x}"] for x in ("energy-by-unit", "energy-by-class", "time-by-class")
    )
    energy = tag("div", units, tag("div", *classes), class_="pair")
    limits = [drawn["energy-by-limit"], drawn["time-by-limit"]]
    curves = drawn["clocks"] + tag("div", *limits, class_="pair")
    basis = rests_on(summary, content.notes, content.bases, content.fitted_on)
    parts = [
        Part("energy", "Energy", "Where the energy goes", energy),
        Part("time", "Time", over, time),
        Part("roofline", "Roofline", "What kernels are up against", drawn["roofline"]),
        Part("clocks", "Clocks", "Clocks and power limits", curves),
        Part("kernels", "Kernels", "Kernels", kernel_list(summary, kernels)),
    ]
    if content.served is not None:
        served = served_part(content.served, drawn)
        parts.insert(3, Part("serving", "Serving", "Served under load", served))
    if versus is not None:
        words = f"Against {versus['gpu']}"
        parts.append(Part("versus", words, words, compared(summary, versus)))
    return [*parts, Part("sources", "Sources", "What it rests on", basis)]


def _colours(content: Content) -> dict[str, int]:
    """A colour for each kernel class, the ones that take most energy first."""
    names = by_class(content.kernels, content.summary)
    names.pop(rest_words(content.summary), None)
    return {name: min(i, _COLOURS - 1) for i, name in enumerate(names)}


def page_charts(content: Content) -> dict[str, Chart]:
    """Every chart of the page by name, the most telling one first."""
    summary, kernels, step = content.summary, content.kernels, content.step
    looks = _colours(content)
    own = [x for x in kernels if step is None or x["op"] != "collective"]
    charts = {"roofline": roofline(own, content.roofs, content.dram_bandwidth, looks)}
    if step is None:
        cap = content.power_cap
        charts |= timelines(content.listings, kernels, summary, looks, cap)
    else:
        charts |= step_charts(summary, step.timeline)
    charts |= _energy(content, looks) | curve_charts(content.sides)
    served = content.served
    if served is not None:
        step_parts = dict(served.summary["step_s"]["parts"])
        charts["serving-step"] = parts_chart("The mean step", step_parts, "s")
        if served.costs is not None and served.summary["mode"] != "trace":
            from ...serving import curves

            found = curves(served.deployment, served.costs)
            under_load = served_charts(served.summary, found)
            charts |= {f"serving-{name}": x for name, x in under_load.items()}
    return charts


def _energy(content: Content, looks: Mapping[str, int]) -> dict[str, Chart]:
    """Energy by unit, beside that of the second GPU; energy and time by class."""
    summary, versus = content.summary, content.versus
    units = {unit_words(k): v for k, v in summary["energy_j_by_unit"].items()}
    second, names = None, ("", "")
    if versus is not None:
        second = {unit_words(k): v for k, v in versus["energy_j_by_unit"].items()}
        names = (summary["gpu"], versus["gpu"])
    classes = by_class(content.kernels, summary)
    energy = {name: joules for name, (_, joules) in classes.items()}
    time = {name: seconds for name, (seconds, _) in classes.items()}
    by_unit = parts_chart("By hardware unit", units, "J", None, second, names)
    return {
        "energy-by-unit": by_unit,
        "energy-by-class": parts_chart("By kernel class", energy, "J", looks),
        "time-by-class": parts_chart("Time by kernel class", time, "s", looks),
    }


class Totals(NamedTuple):
    """A workload at several points; and the peak rates that its kernels are up
    against, of a listing row."""

    time: Float[Array | np.ndarray, " point"]  # s
    energy: Float[Array | np.ndarray, " point"]  # J
    sm_clock: Float[Array | np.ndarray, " point"]  # Hz, mean over time
    feasible: Bool[Array | np.ndarray, " point"]  # the power limit can be kept
    tensor_peak: Float[Array | np.ndarray, " row"]  # FLOP/cycle/SM; 0 if not used
    fma_peak: Float[Array | np.ndarray, " row"]  # FLOP/cycle/SM; 0 if not used


def page(
    task: Task,
    result: EstimateResult,
    versus: tuple[Task, EstimateResult] | None,
    command: str,
    served: "ServingResult | None" = None,
) -> Content:
    """The page of `result`, an estimate of one point, and of the same on a second GPU;
    `command`: the line that gives its numbers; `served`: the model under load."""
    found = _swept(task)
    sides, bases = [_side(task, result, found)], [_basis(task)]
    notes: list[str] = []
    if versus is not None:
        second, against = versus
        sides.append(_side(second, against, _swept(second)))
        bases.append(_basis(second))
        notes += [f"{second.card.name}: {note}" for note in against.warnings]
    values, summary = task.card.values, result.summary
    share = task.settings[0].mem_clock / values["mem_clock"]
    bandwidth = float(values["dram_bandwidth"] * share)
    peaks = (np.asarray(found.tensor_peak), np.asarray(found.fma_peak))
    clocks = _phase_clocks(result)
    kernels = with_work(result.kernels or [], clocks, values, bandwidth, *peaks)
    if result.step is not None:
        kernels = of_mean_gpu(kernels, summary)
    return Content(
        summary=summary,
        kernels=kernels,
        listings=result.listings,
        roofs=roofs(result.kernels or [], max(clocks.values()), values, *peaks),
        dram_bandwidth=bandwidth,
        power_cap=task.settings[0].power_limit * values["cap_fraction"],
        sides=sides,
        bases=bases,
        fitted_on=task.corrections.fitted_on,
        notes=notes,
        command=command,
        versus=None if versus is None else versus[1].summary,
        step=result.step,
        served=served,
    )


def _phase_clocks(result: EstimateResult) -> dict[str, float]:
    """SM clock of each phase that kernels name, Hz."""
    if result.step is None:
        phases = result.summary["phases"].items()
        return {name: phase["sm_clock_mhz"] * 1e6 for name, phase in phases}
    clocks = np.asarray(result.step.found.phases.phases.sm_clock).tolist()
    names = [str(listing.mode) for listing in result.listings]
    return dict(zip(names, clocks, strict=True))


def _swept(task: Task) -> Totals:
    """The workload over clocks and limits, on the host."""
    points, work = operating_points(_sweep_settings(task)), assemble(task.listings)
    if task.step is not None:
        asked = TrainingStep(work, task.step.steps, task.step.placed.order)
        found = kept(_step_totals, (asked, task.gpu, points))
    else:
        plan = task.plan or Plan()
        shared = np.array([plan.tp * plan.dp, plan.pp - 1], float)
        found = kept(totals, (work, task.gpu, points, shared))
    return Totals(*map(np.asarray, found))


def _side(task: Task, result: EstimateResult, found: Totals) -> Side:
    """Curves of one GPU; points whose power limit cannot be kept are left out."""
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
            _sweep_settings(task), *columns, strict=True
        )
    ]
    half = len(points) // 2
    clocks, limits = (
        [point for point in part if point["feasible"]]
        for part in (points[:half], points[half:])
    )
    return Side(task.card.name, clocks, limits, result.summary)


def _basis(task: Task) -> Basis:
    gpu = gpu_summary(task.card, field_units(), task.corrections)
    return Basis(gpu, coefficients(task.card, task.corrections))


def totals(
    workload: Workload,
    gpu: GpuSpec,
    points: OperatingPoint,
    shared: Float[Array | np.ndarray, " 2"],
) -> Totals:
    """`workload` at each of `points`; `shared`: GPUs of a stage of a plan, and its
    further stages, which wait meanwhile."""

    def one(point: OperatingPoint) -> tuple[Array, Array, Array, Array]:
        found = estimate_once(workload, gpu, point)
        kept = jnp.all(found.phases.feasible)
        still = jnp.sum(found.phases.static_energy)
        energy = shared[0] * (found.energy + shared[1] * still)
        return found.time, energy, found.sm_clock, kept

    return Totals(*jax.vmap(one)(points), *_peaks(workload, gpu))


def _step_totals(work: TrainingStep, gpu: GpuSpec, points: OperatingPoint) -> Totals:
    """A training step of many GPUs at each of `points`."""

    def one(point: OperatingPoint) -> tuple[Array, Array, Array, Array]:
        found = of_step(estimate_once, work, gpu, point)
        phases = found.phases.phases
        kept = jnp.all(phases.feasible)
        return found.time, found.energy, found.phases.sm_clock, kept

    return Totals(*jax.vmap(one)(points), *_peaks(work.workload, gpu))


def _peaks(workload: Workload, gpu: GpuSpec) -> tuple[Array, Array]:
    """FLOP/cycle/SM that every row is up against on tensor and on CUDA cores."""
    tensor, fma = jnp.zeros(workload.num_rows), jnp.zeros(workload.num_rows)
    asked = demands(workload, gpu, gpu.corrections)
    for group, demand in zip(workload.groups, asked, strict=True):
        used = jnp.where(demand.tensor > 0, demand.tensor_peak, 0.0).max(axis=1)
        tensor = tensor.at[group.row].max(used)
        used = jnp.where(demand.fma > 0, demand.fma_peak, 0.0).max(axis=1)
        fma = fma.at[group.row].max(used)
    return tensor, fma


def num_points(num_rows: int) -> int:
    """Clocks of a curve, and power limits: of a workload, not of a GPU, so that two
    GPUs share a compilation."""
    return _POINTS if num_rows <= _LARGE else _FEW


def _sweep_settings(task: Task) -> list[Setting]:
    """The setting of `task` at rising SM clocks, then under as many power limits that
    its GPU accepts."""
    setting, values = task.settings[0], task.card.values
    num = num_points(sum(len(listing.kernels) for listing in task.listings))
    steps = np.sort(sm_clocks(task.card))
    picked = steps[np.linspace(0, len(steps) - 1, num).round().astype(int)]
    low, high = values["power_limit_min"], values["power_limit_max"]
    limits = np.linspace(low, max(low, high), num)
    return [
        *(setting._replace(sm_clock=float(clock)) for clock in picked),
        *(setting._replace(power_limit=float(limit)) for limit in limits),
    ]
