"""Power over time of an estimate: its profile and rows, what smoothing costs, and
events that interrupt the steps of a training."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import jax.numpy as jnp
import numpy as np

from ...nodes import Site
from ...physics import waiting_power
from ...power_time import (
    Boards,
    PowerCurve,
    Smoothed,
    Smoothing,
    power_profile,
    smoothed,
)
from .._asking.checked import Checked
from .._asking.settings import point_of
from .._kernel_work import one_gpu_phases
from .steps import Step
from .unrolled import slice_power, unroll, wait_power

_LAUNCHES: Final = 1_000_000
"""Launches of a phase that are told apart."""
_SCALED: Final = ("carbon_g", "cost")
"""Keys of the wall that grow with its energy."""


def power_figures(
    task: Checked,
    step: Step | None,
    summary: Mapping[str, Any],
    kernels: Sequence[Mapping[str, Any]],
) -> tuple[dict[str, Any], dict[str, PowerCurve]]:
    """`power_profile`, `smoothing` and `events` of an answer, as far as they are asked
    for, and power over time of all boards (smoothed as asked for), with a node also at
    its supplies, at the wall and of the site. The profile is that of the wall, if
    known."""
    if task.power_step is None and task.smooth is None and task.events is None:
        return {}, {}
    if task.events is not None and summary["phase"] != "train":
        raise ValueError(
            f"`events` interrupt the steps of a training, but the phase is "
            f"{summary['phase']}; leave it out or take `--phase train`."
        )
    boards, idle = _boards(task, step, summary, kernels), _idle(task)
    paused = None
    if task.events is not None:
        boards, paused = task.events.curves(boards, idle), task.events.paused
    tdp, limit = task.card.values["tdp"], task.settings[0].power_limit
    how = Smoothing() if task.smooth is None else task.smooth
    drawn = smoothed(boards, how, tdp, limit, idle)
    figures, curves = profile_at(drawn, task.site, task.power_step, paused)
    if task.smooth is not None:
        figures["smoothing"] = drawn.to_json()
    if task.events is not None:
        grown = _grown(task, summary, task.events.added(summary["time_s"]))
        figures["events"] = {
            key: grown[key] - summary[key]
            for key in ("time_s", "energy_j", "wall_energy_j")
            if key in summary
        }
    return figures, curves


def profile_at(
    drawn: Smoothed, site: Site | None, step: float | None, paused: float | None = None
) -> tuple[dict[str, Any], dict[str, PowerCurve]]:
    """`power_profile` of what all boards have `drawn`, and the curves of boards and, of
    a `site`, beyond them. Raises `ValueError` where a `step` of rows is longer."""
    curves = {"boards": drawn.curve}
    if site is not None:
        curves |= site.curves(drawn.curve, drawn.gpus)
    of = "wall" if "wall" in curves else "boards"
    if step is not None and step > drawn.curve.time:
        raise ValueError(
            f"`power_step` is {step:g}, but power over time is of "
            f"{drawn.curve.time:.4g} s; give less."
        )
    return {"power_profile": power_profile(curves[of], of, paused)}, curves


def interrupted(task: Checked, summary: Mapping[str, Any]) -> Mapping[str, Any]:
    """A summary of a step that has its share of the events, and of failures and
    checkpoints, if there are any: its time, joules, and rates of tokens."""
    for each in (task.events, task.goodput):
        if each is not None:
            summary = _grown(task, summary, each.added(summary["time_s"]))
    return summary


def _grown(
    task: Checked, summary: Mapping[str, Any], added: Sequence[tuple[float, float]]
) -> Mapping[str, Any]:
    """A summary of a step with what is `added` to it: s, and the share of the boards
    that wait meanwhile, while the others draw the mean of the step."""
    gpus, idle = summary.get("num_gpus", 1), _idle(task)
    mean = summary["energy_j"] / summary["time_s"] / gpus
    times, waits = np.array(added).T
    powers = waits * idle + (1 - waits) * mean
    longer = 1 + float(times.sum()) / summary["time_s"]
    more = 1 + gpus * float(times @ powers) / summary["energy_j"]
    grown = {
        "time_s": longer * summary["time_s"],
        "energy_j": more * summary["energy_j"],
        "tokens_per_s": summary["tokens_per_s"] and summary["tokens_per_s"] / longer,
        "time_s_p5_p95": [longer * x for x in summary["time_s_p5_p95"]],
        "energy_j_p5_p95": [more * x for x in summary["energy_j_p5_p95"]],
    }
    if task.site is None:
        return {**summary, **grown}
    waited, site = task.site.energies(times, powers, gpus), task.site
    wall = summary["wall_energy_j"] + float(waited.wall)
    more = wall / summary["wall_energy_j"]
    names = {
        "accelerator": waited.boards,
        "host": waited.host,
        "idle": waited.idle,
    }
    parts = {
        key: x + float(names.get(key, (site.pue - 1) * waited.wall))
        for key, x in summary["wall_energy_j_by_part"].items()
    }
    time = grown["time_s"] * site.node.count(gpus, site.whole)
    return {
        **summary,
        **grown,
        "wall_energy_j": wall,
        "site_energy_j": site.pue * wall,
        "wall_energy_j_p5_p95": [more * x for x in summary["wall_energy_j_p5_p95"]],
        "wall_energy_j_by_part": parts,
        **{x: summary[x] and more * summary[x] for x in _SCALED},
        "sci_g": site.sci(site.pue * wall, time),
    }


def _idle(task: Checked) -> float:
    """W of a board that waits at the clock asked for, with a context."""
    setting = task.settings[0]
    clock = jnp.asarray(setting.sm_clock, float)
    point = point_of(setting)
    return float(waiting_power(task.gpu, task.gpu.corrections, clock, point))


def _boards(
    task: Checked,
    step: Step | None,
    summary: Mapping[str, Any],
    kernels: Sequence[Mapping[str, Any]],
) -> list[Boards]:
    """What the boards draw: those of each stage over a step of training, or one after
    another its launches."""
    if step is not None:
        line = step.timeline
        if line is None:
            raise ValueError(
                "the step has more than 32,768 micro-batches of virtual stages, which "
                "are not followed one by one; give a smaller `global_batch` or `vp`."
            )
        each = [line.curve(stage) for stage in range(line.stages)]
        return [
            Boards(PowerCurve(edges, watts[:-1], periodic=True), line.abreast)
            for edges, watts in each
        ]
    if (summary.get("plan") or {}).get("pp", 1) > 1:
        raise ValueError(
            "power over time of stages is known in training alone; give a plan without "
            "`pp` or `--phase train`."
        )
    curve = _launches(task, summary, kernels)
    return [Boards(curve, summary.get("num_gpus", 1))]


def _launches(
    task: Checked, summary: Mapping[str, Any], kernels: Sequence[Mapping[str, Any]]
) -> PowerCurve:
    """Power of a GPU over its launches; steps of a training repeat."""
    phases = list(one_gpu_phases(summary).values())
    slices = unroll(task.listings, kernels, phases, _LAUNCHES)
    power, idle = slice_power(slices, kernels), wait_power(slices, kernels, phases)
    # passes that are not shown launch by launch draw their mean
    rest = slices.launches != 1
    time = np.where(rest, slices.time, 0.0)
    means = np.bincount(slices.phase, np.nan_to_num(power) * time)
    means /= np.maximum(np.bincount(slices.phase, time), 1e-300)
    power = np.where(rest, means[slices.phase], power)
    waits = np.where(np.isfinite(idle), idle, 0.0)[slices.phase]
    end = np.append(slices.start[1:], slices.phases[-1, 1])
    edges = np.column_stack([slices.start, slices.start + slices.time]).ravel()
    edges = np.maximum.accumulate(np.append(edges, end[-1])) - edges[0]
    watts = np.column_stack([power, waits]).ravel()
    return PowerCurve(edges, watts, summary["phase"] == "train")
