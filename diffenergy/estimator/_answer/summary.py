"""`EstimateResult`, and `Estimate` -> JSON-like summaries: what `estimate --json`
prints and tables show."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

import jax
import numpy as np

from ...corrections import Trust
from ...physics._demand import UNITS
from ...physics._power import COMPONENTS, STATIC
from ...results import Result
from ...units import MHz
from ...workload import Listing
from ...workload._listing import Number
from .._settings import Setting, throttling
from . import plans as _plans
from . import steps as _steps
from .guesses import guessed_widths
from .limits import LIMITS
from .records import Estimate
from .whole_run import whole_run

if TYPE_CHECKING:
    from .._requests import Task

_LOWERED: Final = 1 - 1e-6
"""Clock after the governor / clock asked for, below which the power limit acted."""
_NO_LAUNCH: Final[Mapping[str, Any]] = dict.fromkeys(
    ("time_s", "kernel_s", "energy_j", "utilization", "limited_by")
)


@dataclasses.dataclass(frozen=True, repr=False)
class EstimateResult(Result):
    """An estimate with its interval, phases and units.

    `summary`: the JSON of `diffenergy estimate --json` (`points` where several clocks
    or limits were asked for); `listings`: the kernels evaluated, a phase each;
    `kernels`: each listed kernel with its figures, None of several points.
    """

    view: ClassVar[str] = "estimate"
    summary: dict[str, Any]
    listings: list[Listing]
    kernels: list[dict[str, Any]] | None
    detail: bool = False
    step: _steps.Step | None = None
    """Of training on many GPUs: what makes the step; its `timeline`."""

    @property
    def warnings(self) -> list[str]:
        """What a person should know beside the figures."""
        return self.summary["warnings"]

    @property
    def memory(self) -> dict[str, Any]:
        """Bytes in the GPU's memory by part; `total`, `capacity`, `fits`."""
        return self.summary["memory"]

    @property
    def time(self) -> float:
        """s of the whole workload."""
        return self.summary["time_s"]

    @property
    def energy(self) -> float:
        """J of the board, or of those of all GPUs of a plan."""
        return self.summary["energy_j"]

    @property
    def power(self) -> float:
        """W, mean over the time."""
        return self.summary["avg_power_w"]


def single(
    task: "Task", estimate: Estimate, step: _steps.Step | None = None
) -> dict[str, Any]:
    """Summary of an estimate at the task's one setting; `step`: that it makes, of
    training on many GPUs."""
    figures = _figures(task, estimate, task.settings[0], step)
    warnings = [*task.warnings, *throttling(figures["temperature_c"])]
    return {**task.about, **task.trust.to_json(), **figures, "warnings": warnings}


def sweep(task: "Task", estimate: Estimate) -> dict[str, Any]:
    """Summary of estimates at several settings (the leading axis of `estimate`).

    `best_energy` and `best_edp` are indices into `points`, None if no power limit can
    be kept.
    """
    points = []
    for i, setting in enumerate(task.settings):
        at = jax.tree.map(lambda x: x[i], estimate)  # noqa: B023
        points.append(point(task, at, setting))
    hot = max(point["temperature_c"] or 0.0 for point in points)
    return {
        **task.about,
        **task.trust.to_json(),
        "memory": task.memory,
        "warnings": [*task.warnings, *throttling(hot)],
        "points": points,
        "best_energy": _least(points, "energy_j"),
        "best_edp": _least(points, "edp"),
    }


def least_power(estimate: Estimate) -> float | None:
    """Least power that the phase which breaks the limit can be held to, W; None if
    every phase keeps it."""
    over = ~np.asarray(estimate.phases.feasible)
    return float(np.asarray(estimate.phases.power)[over].max()) if over.any() else None


def kernel_entries(
    listings: Sequence[Listing], estimate: Estimate
) -> list[dict[str, Any]]:
    """One dict a listed kernel, in order: its fields, `time_s`, `kernel_s` (without
    launch latency) and `energy_j` of one launch on one GPU, `utilization` by unit,
    `limited_by` and its phase.

    A row that is several launches has their sums, the utilization is their mean over
    time, the limiter that of the longest. The energy includes idle and leakage power
    during the launch. A row that is never launched has None.
    """
    rows = [
        (kernel, phase)
        for phase, listing in zip(phase_names(listings), listings, strict=True)
        for kernel in listing.kernels
    ]
    k, phases = estimate.kernels, estimate.phases
    live = np.asarray(k.count) > 0
    row, time = np.asarray(k.row)[live], np.asarray(k.time)[live]
    static = static_power(phases)[np.asarray(k.phase)[live]]
    energy = np.asarray(k.energy)[live] + time * static
    running = time - np.asarray(k.launch)[live]
    totals = np.zeros((len(rows), 3 + len(UNITS)))
    weighted = np.asarray(k.utilization)[live] * time[:, None]
    np.add.at(totals, row, np.column_stack([time, running, energy, weighted]))
    limiter = np.zeros(len(rows), int)
    order = np.argsort(time, kind="stable")  # the longest is written last
    limiter[row[order]] = np.asarray(k.limiter)[live][order]
    launched = np.isin(np.arange(len(rows)), row)
    found: list[Mapping[str, Any]] = [
        _launch(totals[i], LIMITS[limiter[i]]) if launched[i] else _NO_LAUNCH
        for i in range(len(rows))
    ]
    return [
        {**kernel, **figures, "phase": phase}
        for (kernel, phase), figures in zip(rows, found, strict=True)
    ]


def phase_names(listings: Sequence[Listing]) -> list[str]:
    """Name of the phase of each listing: its mode, "forward" if it states none."""
    return [listing.mode or "forward" for listing in listings]


def _launch(sums: np.ndarray, limiter: str) -> dict[str, Any]:
    """What one launch takes; `sums`: time, that without latency, energy, time times
    utilization by unit."""
    use = zip(UNITS, sums[3:] / sums[0], strict=True)
    return {
        "time_s": float(sums[0]),
        "kernel_s": float(sums[1]),
        "energy_j": float(sums[2]),
        "utilization": {unit: float(share) for unit, share in use},
        "limited_by": limiter,
    }


def point(task: "Task", estimate: Estimate, setting: Setting) -> dict[str, Any]:
    """Figures at one of several settings; None where its power limit is out of reach,
    and then `least_power_w`."""
    asked = {"sm_clock_set_mhz": setting.sm_clock / MHz}
    power = least_power(estimate)
    if power is None:
        figures = _figures(task, estimate, setting)
        edp = figures["energy_j"] * figures["time_s"]
        return asked | {"feasible": True} | figures | {"edp": edp}
    return asked | {
        "feasible": False,
        "least_power_w": power,
        "time_s": None,
        "energy_j": None,
        "avg_power_w": None,
        "sm_clock_mhz": None,
        "temperature_c": None,
        "energy_j_per_token": None,
        "mem_clock_mhz": setting.mem_clock / MHz,
        "power_limit_w": setting.power_limit,
        "memory": task.memory,
        **({} if task.tokens is None else {"run": None}),
        "edp": None,
    }


def _figures(
    task: "Task",
    estimate: Estimate,
    setting: Setting,
    step: _steps.Step | None = None,
) -> dict[str, Any]:
    """Everything that follows from the numbers of one estimate, and of the step that it
    makes."""
    if task.step is None:
        found = _pass_figures(task, estimate, setting)
    else:
        step = step or _steps.step_of(task, estimate)
        found = _step_figures(task, step, estimate, setting)
    if task.tokens is None:
        return found
    return found | {"run": whole_run(found | task.about, task.tokens)}


def _pass_figures(task: "Task", estimate: Estimate, setting: Setting) -> dict[str, Any]:
    """The same on one GPU, and of inference on several."""
    one, estimate = estimate, _plans.of_all(estimate, task.plan)
    time, energy = float(estimate.time), float(estimate.energy)
    if not (math.isfinite(time) and math.isfinite(energy) and time > 0):
        raise ValueError(
            "The workload has no finite time and energy (every `count` 0, or fields "
            "of the GPU that do not fit together); correct the listing or the GPU."
        )
    limits = _limits(estimate, setting)
    phases = _phases(phase_names(task.listings), estimate, limits)
    p = estimate.phases
    by_unit = np.asarray(p.components).sum(axis=0)
    clocks = np.asarray(p.sm_clock)
    seen = {
        "energy": p.energy,
        "components": p.components,
        "warmer": p.temperature - task.card.values["ambient_temperature"]
        if setting.temperature is None
        else 0 * p.temperature,
        "voltage": p.voltage,
    }
    capped = bool((clocks < _LOWERED * setting.sm_clock).any())
    constants = task.gpu.corrections
    more = guessed_widths(task.card, constants, jax.device_get(seen), capped)
    trust = task.trust.widened(more)
    told = _generation(task.about, phases, time, energy)
    power = float(estimate.power)
    return {
        "time_s": time,
        "energy_j": energy,
        "avg_power_w": power,
        "sm_clock_mhz": float(estimate.sm_clock) / MHz,
        "mem_clock_mhz": setting.mem_clock / MHz,
        "power_limit_w": setting.power_limit,
        "limited_by": _longest(limits, np.asarray(estimate.phases.time)),
        "temperature_c": float(np.asarray(p.temperature).max()),
        "time_s_p5_p95": _interval(trust, "time", time, time),
        "avg_power_w_p5_p95": _interval(trust, "power", power, time),
        "energy_j_p5_p95": _interval(trust, "energy", energy, time),
        "energy_j_by_unit": dict(zip(COMPONENTS, map(float, by_unit), strict=True)),
        "phases": phases,
        "memory": task.memory,
        **told,
        **_plans.figures(task, one, power, told["tokens_per_s"]),
    }


def _step_figures(
    task: "Task", step: _steps.Step, estimate: Estimate, setting: Setting
) -> dict[str, Any]:
    """The same of a training step on several GPUs."""
    time, energy = float(step.found.time), float(step.found.energy)
    power = float(step.found.power)
    p = estimate.phases
    limits = _limits(estimate, setting)
    phases = _steps.phases(step, estimate, limits)
    there = step.weight > 0
    clocks = np.asarray(p.sm_clock)[there]
    spent = (step.weight * np.asarray(p.time))[there]
    capped = bool((clocks < _LOWERED * setting.sm_clock).any())
    trust = task.trust.widened(_steps.widths(task, step, estimate, setting, capped))
    tokens = float(tokens_of(task.about) or 0) * task.about["plan"]["dp"]
    longest = max(phases, key=lambda name: phases[name]["time_s"])
    return {
        "time_s": time,
        "energy_j": energy,
        "avg_power_w": power,
        "sm_clock_mhz": float((clocks * spent).sum() / spent.sum()) / MHz,
        "mem_clock_mhz": setting.mem_clock / MHz,
        "power_limit_w": setting.power_limit,
        "limited_by": phases[longest]["limited_by"],
        "temperature_c": float(np.asarray(p.temperature)[there].max()),
        "time_s_p5_p95": _interval(trust, "time", time, time),
        "avg_power_w_p5_p95": _interval(trust, "power", power, time),
        "energy_j_p5_p95": _interval(trust, "energy", energy, time),
        "energy_j_by_unit": dict(
            zip(COMPONENTS, map(float, _steps.components(step, estimate)), strict=True)
        ),
        "phases": phases,
        "memory": task.memory,
        "ttft_s": None,
        "tpot_s": None,
        "tokens_per_s": tokens / time,
        "energy_j_per_token": energy / tokens,
        **_steps.figures(task, step, tokens),
    }


def _interval(trust: Trust, word: str, value: float, time: float) -> list[float]:
    return [float(x) for x in trust.interval(word, value, time)]


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
    lowered = np.asarray(p.sm_clock) < _LOWERED * setting.sm_clock
    return [
        "host"
        if p.host_time[i] > p.gpu_time[i]
        else "power"
        if lowered[i]
        else LIMITS[int(by_limiter[i].argmax())]
        for i in range(len(p.time))
    ]


def _longest(limits: Sequence[str], times: np.ndarray) -> str:
    """The limit under which most of the time passes."""
    spent = {limit: 0.0 for limit in limits}
    for limit, time in zip(limits, times, strict=True):
        spent[limit] += float(time)
    return max(spent, key=spent.__getitem__)


def _generation(
    about: Mapping[str, Any], phases: Mapping[str, Any], time: float, energy: float
) -> dict[str, float | None]:
    """Latencies of a generation; rate and energy over the tokens that it makes, over
    the batch in one decode step, else over the tokens read; None without tokens."""
    batch, output_len = about["batch"], about["output_len"]
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
    return dict(zip(names, (ttft, tpot, tokens / time, energy / tokens), strict=True))


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


def static_power(phases: Any) -> np.ndarray:
    """Idle and leakage power of each phase, W."""
    static = np.asarray(phases.components)[:, STATIC].sum(axis=1)
    return static / np.asarray(phases.time)


def _least(points: Sequence[Mapping[str, Any]], key: str) -> int | None:
    live = [i for i, point in enumerate(points) if point["feasible"]]
    return min(live, key=lambda i: points[i][key]) if live else None
