"""What a plan truly takes: joules at the meter, their cost and carbon."""

import dataclasses

import numpy as np
from jaxtyping import Float, Shaped

from .._problem.problem import Problem, site_power, starts_of, summed


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
    first = problem.firsts
    site = problem.row_site[first]
    each = problem.pue[site] * problem.start[first]
    return energy + summed(starts_of(problem, counts) * each, site, energy.shape[1])


def totals(
    energy: Float[np.ndarray, "slot site"], series: Series
) -> dict[str, float | None]:
    """J, currency and g; None without the series."""
    cost, carbon = (
        None if each is None else float((energy * each).sum()) / joules_
        for each, joules_ in ((series.price, 3.6e9), (series.carbon, 3.6e6))
    )
    return {"energy_j": float(energy.sum()), "cost": cost, "carbon_g": carbon}
