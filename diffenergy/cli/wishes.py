"""`Wish` and `Answer`: what the flags of `dvfs` ask for beside the workload, and what
comes of it."""

import dataclasses
import math
from typing import TYPE_CHECKING, Any, Final

from . import parse

if TYPE_CHECKING:
    from ..dvfs._problem.plan import Objective, Plan
    from ..dvfs._problem.problem import Problem
    from ..dvfs._solving.solve import Rules

_CHOICES: Final = {
    "objective": ("energy", "edp", "ed2p", "time"),
    "granularity": ("kernel", "phase", "iteration"),
    "aggregation": ("global", "local"),
    "solver": ("exact", "descent"),
    "switch_kind": ("stall", "lookahead"),
}
_NONE: Final = "none"
_PUBLISHED: Final = "published"


@dataclasses.dataclass(frozen=True)
class Wish:
    """The flags of `dvfs` beside those of the workload, as typed."""

    table: str | None = None
    default_clock: str | None = None
    objective: str = "energy"
    max_slowdown: str | None = None
    granularity: str = "kernel"
    aggregation: str = "global"
    per_launch: bool = False
    switch_latency: str | None = None
    switch_energy: str | None = None
    switch_kind: str = "stall"
    solver: str = "exact"
    seed: str | None = None
    starts: str | None = None
    power_curve: bool = False
    smooth: bool = False

    def check(self):
        """Raises `ValueError` for a word that is none of those allowed."""
        for name, allowed in _CHOICES.items():
            value = getattr(self, name)
            if value not in allowed:
                flag = "--" + name.replace("_", "-")
                raise ValueError(
                    f"`{flag}` is '{value}'; allowed are {', '.join(allowed)}."
                )


@dataclasses.dataclass(frozen=True)
class Answer:
    """A schedule: its problem, the JSON, and what a person should know beside it."""

    problem: "Problem"
    plan: "Plan"
    summary: dict[str, Any]
    latency: float  # s, of a change of clocks
    default_clock: tuple[float, float]  # Hz; NaN: auto
    notes: list[str]
    inputs: list[str]


def objective_of(wish: Wish, power: float = math.inf) -> "Objective":
    """Objective with its limits; without a flag only energy has one of slowdown."""
    from ..dvfs._problem.plan import Objective

    slowdown = 0.0 if wish.objective == "energy" else math.inf
    if wish.max_slowdown == _NONE:
        slowdown = math.inf
    elif wish.max_slowdown is not None:
        slowdown = parse.number("--max-slowdown", wish.max_slowdown, "%")
        if slowdown <= -100:
            raise ValueError(
                f"`--max-slowdown` is {slowdown:g}; allowed are percentages above -100 "
                "(negative asks for a speed-up), or none."
            )
    return Objective(wish.objective, slowdown, power)  # pyright: ignore[reportArgumentType]


def rules_of(wish: Wish, gpu: str | None) -> tuple["Rules", list[str]]:
    """What a schedule may do, and what was taken for it."""
    from ..dvfs._problem.plan import Switching
    from ..dvfs._solving.solve import Rules

    notes: list[str] = []
    latency, energy = 0.0, 0.0
    if wish.switch_latency == _PUBLISHED:
        latency, note = _published(gpu)
        notes.append(note)
    elif wish.switch_latency is not None:
        latency = _at_least_0("--switch-latency", wish.switch_latency, "s")
    if wish.switch_energy is not None:
        energy = _at_least_0("--switch-energy", wish.switch_energy, "J")
    switching = Switching(wish.switch_kind, latency, energy)  # pyright: ignore[reportArgumentType]
    rules = Rules(
        aggregation=wish.aggregation,  # pyright: ignore[reportArgumentType]
        granularity=wish.granularity,  # pyright: ignore[reportArgumentType]
        per_launch=wish.per_launch,
        switching=None if switching.free else switching,
    )
    return rules, notes


def _published(gpu: str | None) -> tuple[float, str]:
    from ..hardware._switching import switch_latency

    if gpu is None:
        raise ValueError(
            "`--switch-latency` is published, but no GPU is given; give `--gpu`, or "
            "the latency in seconds."
        )
    fact = switch_latency(gpu)
    whose = "GPUs in general" if fact.typical else gpu
    said = f"switch latency {fact.latency:g} s of {whose} ({fact.quality}; "
    return fact.latency, f"{said}{fact.source})"


def _at_least_0(flag: str, text: str, unit: str) -> float:
    if text.strip().lower() in ("inf", "infinite"):
        return math.inf
    value = parse.number(flag, text, unit)
    if value < 0:
        raise ValueError(f"`{flag}` is {value:g}; allowed is 0 or more, or inf.")
    return value
