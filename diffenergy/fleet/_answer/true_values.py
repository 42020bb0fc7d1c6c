"""What a plan truly takes: joules at the meter, their cost and carbon."""

import dataclasses

import numpy as np
from jaxtyping import Float, Shaped

from .._problem.problem import Problem, site_power, starts_of


@dataclasses.dataclass(frozen=True)
class Series:
    """`demand` as asked for; `times` of slots, None where they are numbered; `budget` W
    (infinite: none), `carbon` g/kWh and `price` per MWh of sites, None where not every
    site has one."""

    demand: Float[np.ndarray, "slot model"]
    times: Shaped[np.ndarray, " slot"] | None
    budget: Float[np.ndarray, "slot site"]
    carbon: Float[np.ndarray, "slot site"] | None
    price: Float[np.ndarray, "slot site"] | None


def joules(
    problem: Problem, counts: Float[np.ndarray, "slot row"]
) -> Float[np.ndarray, "slot site"]:
    """Energy at the meter, starts included."""
    energy = problem.slot * site_power(problem, counts)
    rises, each = starts_of(problem, counts)
    group, site = problem.group, problem.row_site
    of_group = np.zeros(rises.shape[1], int)
    of_group[group] = site
    for place in range(rises.shape[1]):
        at = of_group[place]
        energy[:, at] += problem.pue[at] * rises[:, place] * each[place]
    return energy


def totals(
    energy: Float[np.ndarray, "slot site"], series: Series
) -> dict[str, float | None]:
    """J, currency and g; None without the series."""
    cost = (
        None if series.price is None else float((energy * series.price).sum()) / 3.6e9
    )
    carbon = (
        None if series.carbon is None else float((energy * series.carbon).sum()) / 3.6e6
    )
    return {"energy_j": float(energy.sum()), "cost": cost, "carbon_g": carbon}
