"""Whether one clock, or one clock a phase, would do: a schedule in one sentence."""

from collections.abc import Mapping
from typing import Final

from ._plan import Goal, Objective, Plan, Rules
from ._problem import Total

ENOUGH: Final = 0.9
"""Share of the saving that makes clocks of their own not worth it."""
_SOMETHING: Final = 0.05
"""% below which nothing is saved."""
_SAVED: Final[Mapping[Goal, str]] = {
    "energy": "%",
    "edp": "% of energy x time",
    "ed2p": "% of energy x time^2",
    "time": "% of time",
}
_WHO: Final = {
    "iteration": "one clock",
    "phase": "one clock a phase",
    "kernel": "clocks per kernel",
}


def advice(
    objective: Objective,
    rules: Rules,
    default: Total,
    plan: Plan,
    coarser: Mapping[str, Plan | None],
    stages: int,
) -> str | None:
    """What one clock, one a phase and a schedule of the granularity asked for save.

    Args:
        objective: what is to be small; savings (%) are of its value.
        default: s and J at the default clocks.
        plan: the schedule.
        coarser: best plans by granularity, at the same cost of changes; None where
            nothing keeps the limits.
        stages: how many phases there are.

    Returns:
        a sentence, without a full stop; None where the limits ask for more energy than
        the default takes.
    """
    unit, percent = _SAVED[objective.goal], _saved(plan, objective, default)
    if percent < _SOMETHING:
        alone = plan.solver == "default" or percent > -_SOMETHING
        return "no clocks help within the limits: leave them alone" if alone else None
    order = list(_WHO)  # a single phase is the iteration
    names = order[: order.index(rules.granularity) + 1]
    names = [x for x in names if x != "phase" or stages > 1]
    saved = {
        name: 0.0 if other is None else _saved(other, objective, default)
        for name in names[:-1]
        for other in [coarser[name]]
    }
    for name, value in saved.items():
        if value >= ENOUGH * percent:
            finer = " or ".join(names[names.index(name) + 1 :])
            # limits kept by every kernel can cost more than one clock does
            part = (
                f"{value:.1f}"
                if value > percent
                else f"{value:.1f} of the {percent:.1f}"
            )
            sentence = f"{_WHO[name]} saves {part} {unit}"
            return f"{sentence}: clocks per {finer} are not worth it"
    finest = names[-1]
    verb = "save" if finest == "kernel" else "saves"
    others = [f", {_WHO[name]} {value:.1f} %" for name, value in saved.items()]
    sentence = f"{_WHO[finest]} {verb} {percent:.1f} {unit}{''.join(others[::-1])}"
    if not others:
        return sentence
    free = " as long as changes take no time" if rules.free else ""
    return f"{sentence}: clocks per {finest} are worth it{free}"


def _saved(plan: Plan, objective: Objective, default: Total) -> float:
    """% of the objective's value at the default clocks."""
    value = objective.value(default)
    return float(100 * (value - plan.value) / value)
