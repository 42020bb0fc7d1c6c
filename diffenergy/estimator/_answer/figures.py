"""Figures of one estimate at one setting: the numbers of `estimate --json`."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from ...nodes import Site
from ...physics import COMPONENTS
from ...units import MHz
from ...workload import Number
from .._asking.checked import Checked
from .._asking.settings import Setting
from . import plans as _plans
from . import steps as _steps
from .guesses import guessed_widths
from .kernels import phase_names
from .limits import LIMITS
from .power_profile import interrupted
from .records import Estimate
from .whole_run import whole_run

ONE_TOKEN: Final = "no token follows the first one (`output_len` 1)"
"""Why a request has no time per output token."""
_LOWERED: Final = 1 - 1e-6
"""Clock after the governor / clock asked for, below which the power limit acted."""


class _Whole(NamedTuple):
    """Time, energy and phases of a request, of one GPU or all GPUs of a plan."""

    time: float  # s
    energy: float  # J
    power: float  # W
    sm_clock: float  # Hz, mean over time
    limited_by: str
    by_component: np.ndarray  # J
    phases: dict[str, dict[str, Any]]
    runs: np.ndarray  # how often each phase of the estimate runs
    estimate: Estimate  # with the energy of all GPUs of inference


def figures_at(
    task: Checked,
    estimate: Estimate,
    setting: Setting,
    step: _steps.Step | None = None,
) -> dict[str, Any]:
    """Everything that follows from the numbers of one estimate at a setting, and of the
    `step` that it makes, of training on several GPUs.

    Raises `ValueError` if they are not finite.
    """
    if task.step is None:
        whole = _of_pass(task, estimate, setting)
        tokens = _generation(task.about, whole)
        rate = tokens["tokens_per_s"]
        more = tokens | _plans.figures(task, estimate, whole.power, rate)
        if tokens["ttft_s"] is not None and tokens["tpot_s"] is None:
            more |= {"unavailable": {"tpot_s": ONE_TOKEN}}
    else:
        step = step or _steps.step_of(task, estimate)
        whole = _of_step(step, estimate, setting)
        tokens = float(tokens_of(task.about) or 0) * task.about["plan"]["dp"]
        more = {
            "ttft_s": None,
            "tpot_s": None,
            "tokens_per_s": tokens / whole.time,
            "energy_j_per_token": whole.energy / tokens,
            **_steps.figures(task, step, tokens),
        }
    summary = _figures(task, whole, setting) | more
    if task.site is not None:
        summary |= _of_site(task.site, task, whole, summary)
    if task.tokens is None:
        return summary
    step_of_run = interrupted(task, summary | task.about)
    return summary | {"run": whole_run(step_of_run, task.tokens, task.goodput)}


def _of_site(
    site: Site, task: Checked, whole: _Whole, summary: Mapping[str, Any]
) -> dict[str, Any]:
    """Keys of the wall, each phase of a pass at its own power."""
    gpus = 1 if task.plan is None else task.plan.gpus
    if task.step is None:
        p = whole.estimate.phases
        times, powers = np.asarray(p.time, float), np.asarray(p.power, float)
    else:
        times, powers = np.array([whole.time]), np.array([whole.power])
    about = {**task.about, "grade": task.trust.grade, **summary}
    return site.figures(times.tolist(), (powers / gpus).tolist(), gpus, about)


def open_widths(task: Checked, estimate: Estimate) -> dict[str, float]:
    """Half widths in ln, by quantity, of what guessed numbers of the GPU and laws leave
    open in an estimate at the only setting of a task."""
    (setting,) = task.settings
    if task.step is None:
        whole = _of_pass(task, estimate, setting)
    else:
        whole = _of_step(_steps.step_of(task, estimate), estimate, setting)
    return _widths(task, whole, setting)


def _of_pass(task: Checked, estimate: Estimate, setting: Setting) -> _Whole:
    """A request on one GPU, and inference on several."""
    estimate = _plans.of_all(estimate, task.plan)
    time, energy = float(estimate.time), float(estimate.energy)
    if not (math.isfinite(time) and math.isfinite(energy) and time > 0):
        raise ValueError(
            "The workload has no finite time and energy (every `count` 0, or fields "
            "of the GPU that do not fit together); correct the listing or the GPU."
        )
    limits = _limits(estimate, setting)
    p = estimate.phases
    return _Whole(
        time,
        energy,
        float(estimate.power),
        float(estimate.sm_clock),
        _longest(limits, np.asarray(p.time)),
        np.asarray(p.components).sum(axis=0),
        _phases(phase_names(task.listings), estimate, limits),
        np.ones(len(p.time)),
        estimate,
    )


def _of_step(step: _steps.Step, estimate: Estimate, setting: Setting) -> _Whole:
    """A training step on several GPUs."""
    result, p = step.result, estimate.phases
    phases = _steps.phases(step, estimate, _limits(estimate, setting))
    spent = step.weight * np.asarray(p.time)
    longest = max(phases, key=lambda name: phases[name]["time_s"])
    return _Whole(
        float(result.time),
        float(result.energy),
        float(result.power),
        float((np.asarray(p.sm_clock) * spent).sum() / spent.sum()),
        phases[longest]["limited_by"],
        _steps.components(step, estimate),
        phases,
        step.weight,
        estimate,
    )


def _figures(task: Checked, whole: _Whole, setting: Setting) -> dict[str, Any]:
    """The keys that every answer has."""
    time, energy, power = whole.time, whole.energy, whole.power
    trust = task.trust.widened(_widths(task, whole, setting))
    there, p = whole.runs > 0, whole.estimate.phases

    def interval(word: str, value: float) -> list[float]:
        return [float(x) for x in trust.interval(word, value, time)]

    return {
        "time_s": time,
        "energy_j": energy,
        "avg_power_w": power,
        "sm_clock_mhz": whole.sm_clock / MHz,
        "mem_clock_mhz": setting.mem_clock / MHz,
        "power_limit_w": setting.power_limit,
        "limited_by": whole.limited_by,
        "temperature_c": float(np.asarray(p.temperature)[there].max()),
        "time_s_p5_p95": interval("time", time),
        "avg_power_w_p5_p95": interval("power", power),
        "energy_j_p5_p95": interval("energy", energy),
        "energy_j_by_unit": dict(
            zip(COMPONENTS, map(float, whole.by_component), strict=True)
        ),
        "phases": whole.phases,
        "memory": task.memory,
    }


def _widths(task: Checked, whole: _Whole, setting: Setting) -> dict[str, float]:
    """Half widths in ln from guessed numbers of the GPU (`guessed_widths`), each phase
    as often as it runs."""
    there = whole.runs > 0
    p, runs = whole.estimate.phases, whole.runs[there]
    warmer = np.asarray(p.temperature)[there] - task.card.values["ambient_temperature"]
    phases = {
        "energy": runs * np.asarray(p.energy)[there],
        "components": runs[:, None] * np.asarray(p.components)[there],
        "warmer": warmer if setting.temperature is None else 0 * warmer,
        "voltage": np.asarray(p.voltage)[there],
    }
    capped = bool(_lowered(whole.estimate, setting)[there].any())
    laws = task.corrections.forecasts(task.card)
    return guessed_widths(task.card, task.gpu.corrections, phases, capped, laws)


def _lowered(estimate: Estimate, setting: Setting) -> np.ndarray:
    """Phases whose clock the power limit lowered."""
    return np.asarray(estimate.phases.sm_clock) < _LOWERED * setting.sm_clock


def _phases(
    names: Sequence[str], estimate: Estimate, limits: Sequence[str]
) -> dict[str, dict[str, Any]]:
    p = estimate.phases
    columns = {
        "time_s": p.time,
        "energy_j": p.energy,
        "avg_power_w": p.power,
        "sm_clock_mhz": np.asarray(p.sm_clock) / MHz,
        "temperature_c": p.temperature,
        "gpu_time_s": p.gpu_time,
        "host_time_s": p.host_time,
    }
    return {
        name: {key: float(column[i]) for key, column in columns.items()}
        | {"limited_by": limits[i], "feasible": bool(p.feasible[i])}
        for i, name in enumerate(names)
    }


def _limits(estimate: Estimate, setting: Setting) -> list[str]:
    """What limits each phase: the host, the power limit, else the limiter that its
    kernels spend most time on."""
    p, k = estimate.phases, estimate.kernels
    spent = np.asarray(k.count) * np.asarray(k.time)
    by_limiter = np.zeros((len(p.time), len(LIMITS)))
    np.add.at(by_limiter, (np.asarray(k.phase), np.asarray(k.limiter)), spent)
    lowered = _lowered(estimate, setting)
    return [
        "host"
        if p.host_time[i] > p.gpu_time[i]
        else "power"
        if lowered[i]
        else LIMITS[int(by_limiter[i].argmax())]
        for i in range(len(p.time))
    ]


def _longest(limits: Sequence[str], times: np.ndarray) -> str:
    """The limiter of the phases that take most of the time."""
    spent = {limit: 0.0 for limit in limits}
    for limit, time in zip(limits, times, strict=True):
        spent[limit] += float(time)
    return max(spent, key=spent.__getitem__)


def _generation(about: Mapping[str, Any], whole: _Whole) -> dict[str, float | None]:
    """Latencies of a generation; rate and energy over the tokens that it makes, over
    the batch in one decode step, else over the tokens read; None without tokens."""
    batch, output_len, phases = about["batch"], about["output_len"], whole.phases
    names = ("ttft_s", "tpot_s", "tokens_per_s", "energy_j_per_token")
    ttft, tpot = None, None
    if about["phase"] == "generate" and batch and output_len:
        ttft = phases["prefill"]["time_s"]  # without queue and network
        if output_len > 1:
            decode = phases.get("decode", {"time_s": 0.0})["time_s"]
            tpot = decode / (output_len - 1)
    tokens = tokens_of(about)
    if tokens is None:
        return dict.fromkeys(names)
    values = (ttft, tpot, tokens / whole.time, whole.energy / tokens)
    return dict(zip(names, values, strict=True))


def tokens_of(about: Mapping[str, Any]) -> Number | None:
    """Tokens that a request makes, or reads where it makes none; None if it does
    neither (makes or reads images alone) or does not say."""
    if about.get("steps"):
        return None
    images = (about.get("images") or 0) * (about.get("image_tokens") or 0)
    batch, read = about["batch"] or 0, (about["input_len"] or 0) + images
    match about["phase"]:
        case "generate":
            tokens = batch * (about["output_len"] or 0)
        case "decode":
            tokens = batch * about.get("tokens_per_step", 1)
        case "train":
            tokens = batch * about["accumulation"] * read
        case "prefill" | "forward":
            tokens = batch * read
        case _:  # a listing that does not say
            return None
    return tokens or None
