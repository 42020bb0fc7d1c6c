"""`PlanResult`: what `plan` gives, as the command shows it, and its summary: what
`dvfs --json` prints and tables show."""

import dataclasses
import os
from collections.abc import Mapping
from typing import Any, ClassVar, Final

import numpy as np
from jaxtyping import Float

from ..results import Result, finite, written
from ..units import MHz
from ._costs import PowerCurve
from ._export import apply_script, schedule_csv, schedule_rows
from ._plan import Objective, Plan, Rules
from ._problem import AUTO, Problem, Total, default_total

Path = str | os.PathLike[str]
SCHEDULE_KEYS: Final = (
    "kernel",
    "count",
    "sm_clock_mhz",
    "mem_clock_mhz",
    "time_s",
    "energy_j",
)
"""Keys of an entry of `schedule` in the JSON."""


@dataclasses.dataclass(frozen=True, repr=False)
class PlanResult(Result):
    """A schedule with what it is measured against.

    `problem`: every kernel at every pair of clocks (of phases, where phases have clocks
    of their own); `plan`: which kernel runs at which; `summary`: the JSON of
    `diffenergy dvfs --json`; `default_clock`: SM and memory clock (Hz) that the default
    of a measured table stands for, NaN where nothing is said; `notes`: what a person
    should know beside it.
    """

    view: ClassVar[str] = "schedule"
    summary: dict[str, Any]
    problem: Problem
    plan: Plan
    objective: Objective
    rules: Rules
    notes: list[str]
    default_clock: tuple[float, float] = AUTO

    @property
    def time(self) -> float:
        """s of one iteration."""
        return self.plan.time

    @property
    def energy(self) -> float:
        """J of one iteration."""
        return self.plan.energy

    @property
    def default(self) -> Total:
        """Time and energy with every clock left alone."""
        return default_total(self.problem)

    @property
    def bound(self) -> float:
        """What no schedule can go below: J, J s, J s^2 or s, as the objective."""
        return self.plan.bound

    def rows(self) -> list[dict[str, Any]]:
        """Every kernel with its clocks (MHz, None: left alone), its cost in one launch
        (s, J) and its change against default clocks (%)."""
        return schedule_rows(self.problem, self.plan)

    def frontier(self) -> Float[np.ndarray, "point 2"]:
        """Change of time and energy against default clocks (%) of the schedules that
        no other one beats, by rising time."""
        return np.array(self.summary["frontier"]).reshape(-1, 2)

    def to_csv(self, path: Path | None = None) -> str:
        """The schedule as a table that `read_table` reads, MHz, s and J; also written
        to `path`, if given."""
        return written(schedule_csv(self.problem, self.plan, self.default_clock), path)

    def to_script(self, path: Path | None = None) -> str:
        """A Python program that applies the clocks and restores them on any exit; also
        written to `path`, if given. Nothing is applied here."""
        title = self.summary.get("model") or self.summary.get("table") or ""
        rules = self.rules
        text = apply_script(
            self.problem, self.plan, rules.granularity, rules.latency, title
        )
        return written(text, path)


# --- its summary


def schedule_summary(
    problem: Problem,
    plan: Plan,
    free: Plan | None,
    baselines: Mapping[str, Any],
    edge: Float[np.ndarray, "point 2"],
    objective: Objective,
    rules: Rules,
) -> dict[str, Any]:
    """What was asked for, and the fixed keys; None for what is not known.

    **Arguments:**

    - `free`: the schedule if changes of clocks were free, below which none can go.
    - `baselines`: by name (`iteration`, `phase`, `power_limit`), each as `outcome`
      gives it; None where there is none.
    - `edge`: change of time and energy of several plans, %.
    """
    switching, default = rules.switching, default_total(problem)
    least = min(free.bound_energy, plan.energy) if free else np.nan
    bound = change_pct(least, float(default.energy))
    rows = schedule_rows(problem, plan)
    return {
        "objective": objective.goal,
        "max_slowdown_pct": finite(objective.max_slowdown),
        "granularity": rules.granularity,
        "aggregation": rules.aggregation,
        "per_launch": rules.per_launch,
        "switch_kind": switching.kind if switching else None,
        "switch_latency_s": finite(rules.latency),
        "switch_energy_j": finite(switching.energy) if switching else 0.0,
        "switches": finite(plan.switches),
        **outcome(plan.total, default),
        "bound_energy_change_pct": change_pct(plan.bound_energy, float(default.energy)),
        "gap_pct": finite(100 * plan.gap),
        "out_of_time": False,
        "solver": plan.solver,
        "default": {"time_s": float(default.time), "energy_j": float(default.energy)},
        "baselines": baselines,
        "frontier": edge.tolist(),
        "schedule": [{key: row[key] for key in SCHEDULE_KEYS} for row in rows],
        "switch_latency_source": (switching.source if switching else "") or None,
        "free": free and outcome(free.total, default, bound_energy_change_pct=bound),
    }


def outcome(total: Total, default: Total, **more: Any) -> dict[str, Any]:
    """Time and energy of an iteration and their change against `default`, as JSON.

    `more` are further keys, as those that say which clock or limit a baseline has.
    """
    return {
        "time_s": float(total.time),
        "energy_j": float(total.energy),
        "time_change_pct": change_pct(float(total.time), float(default.time)),
        "energy_change_pct": change_pct(float(total.energy), float(default.energy)),
        **more,
    }


def change_pct(value: float, default: float) -> float | None:
    """Change against `default` in per cent; None if either is not known.

    >>> change_pct(90.0, 100.0)
    -10.0
    """
    return finite(100 * (value - default) / default)


def compared(
    problem: Problem, plans: Mapping[str, Plan | None]
) -> dict[str, dict[str, Any] | None]:
    """Baselines with their clocks, as JSON."""
    default = default_total(problem)
    baselines: dict[str, dict[str, Any] | None] = {}
    for name, plan in plans.items():
        if plan is None:
            baselines[name] = None
            continue
        clocks = {
            row["stage"]: {key: row[key] for key in ("sm_clock_mhz", "mem_clock_mhz")}
            for row in schedule_rows(problem, plan)
        }
        single = next(iter(clocks.values()))
        clocks_json = single if name == "iteration" else {"stages": clocks}
        baselines[name] = outcome(plan.total, default, **clocks_json)
    return baselines


def limited(
    curve: PowerCurve, counted: PowerCurve, objective: Objective, default: Total
) -> dict[str, Any] | None:
    """The power limit that serves the objective best; None if none keeps it. `counted`:
    the curve in the energies that count."""
    total = Total(counted.time, counted.energy)
    allowed = curve.feasible & objective.keeps(total, default)
    if not allowed.any():
        return None
    best = int(np.where(allowed, objective.value(total), np.inf).argmin())
    limit = {"power_limit_w": float(curve.limit[best])}
    if counted is not curve:
        limit["wall_energy_j"] = float(counted.energy[best])
    return outcome(Total(curve.time[best], curve.energy[best]), default, **limit)


def curve_rows(curve: PowerCurve, about: dict[str, Any]) -> list[dict[str, Any]]:
    """Time, energy and tokens per second under every power limit that can be kept."""
    tokens = _tokens(about)
    return [
        {
            "power_limit_w": float(curve.limit[i]),
            "time_s": float(curve.time[i]),
            "energy_j": float(curve.energy[i]),
            "avg_power_w": float(curve.energy[i] / curve.time[i]),
            "sm_clock_mhz": float(curve.sm_clock[i]) / MHz,
            "tokens_per_s": None if tokens is None else tokens / float(curve.time[i]),
        }
        for i in np.flatnonzero(curve.feasible)
    ]


def _tokens(about: dict[str, Any]) -> float | None:
    """Tokens of an iteration: those generated, else those read; None without any."""
    batch, phase = about["batch"], about["phase"]
    if not batch:
        return None
    if phase == "decode":
        return float(batch)
    length = about["output_len"] if phase == "generate" else about["input_len"]
    return float(batch * length * (about.get("accumulation") or 1)) if length else None
