"""Power of a training step over time: its profile and rows, what smoothing costs."""

from collections.abc import Mapping
from typing import Any

from ...power_time import PowerCurve, Smoothed, power_profile, smoothed
from .._asking.checked import Checked
from .steps import Step


def power_figures(
    task: Checked, step: Step | None
) -> tuple[dict[str, Any], dict[str, PowerCurve]]:
    """`power_profile` and `smoothing` of an answer, as far as they are asked for, and
    power over time of all boards (smoothed as asked for), with a node also at its
    supplies, at the wall and of the site. The profile is that of the wall, if known."""
    if task.power_step is None and task.smooth is None:
        return {}, {}
    drawn, curves = _drawn(task, step), dict[str, PowerCurve]()
    curves["boards"] = drawn.curve
    if task.site is not None and task.plan is not None:
        curves |= task.site.curves(drawn.curve, task.plan.gpus)
    of = "wall" if "wall" in curves else "boards"
    figures: dict[str, Any] = {"power_profile": power_profile(curves[of], of)}
    if task.smooth is not None:
        figures["smoothing"] = drawn.to_json()
    if task.power_step is not None and task.power_step > drawn.curve.time:
        raise ValueError(
            f"`power_step` is {task.power_step:g}, but the step takes "
            f"{drawn.curve.time:.4g} s; give less."
        )
    return figures, curves


def power_rows(curves: Mapping[str, PowerCurve], step: float) -> list[dict[str, float]]:
    """Rows of `--power-trace`: mean power of every `step` s of a period."""
    columns = {f"{name}_w": curve.bins(step).tolist() for name, curve in curves.items()}
    return [
        {"t_s": i * step, **{name: column[i] for name, column in columns.items()}}
        for i in range(len(columns["boards_w"]))
    ]


def _drawn(task: Checked, step: Step | None) -> Smoothed:
    """What the boards draw over a step, and what smoothing it costs."""
    if step is None or task.plan is None:
        raise ValueError(
            "power over time (`power_step`, `smooth`) is known of training on several "
            "GPUs alone; give `--phase train` and a plan."
        )
    if step.timeline is None:
        raise ValueError(
            "the step has more than 32,768 micro-batches of virtual stages, which are "
            "not followed one by one; give a smaller `global_batch` or `vp`."
        )
    edges, watts = step.timeline.curve()
    curve = PowerCurve(edges, watts[:-1], periodic=True)
    if task.smooth is None:
        return Smoothed(curve, 0.0, 0.0)
    return smoothed(curve, task.smooth, task.plan.gpus, task.card.values["tdp"])
