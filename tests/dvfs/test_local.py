"""Every kernel keeps the limits itself: against trying all settings."""

import dataclasses

import numpy as np
import pytest

from diffenergy.dvfs import Objective
from diffenergy.dvfs._local import keeping, leanest
from diffenergy.dvfs._problem import chosen, default_total, total, within_caps
from diffenergy.results import Infeasible

from .builders import KINDS, all_choices, random_problem

SLOWDOWNS = np.array([-40.0, -2.0, 0.0, 3.0, 10.0, 30.0, 80.0, np.inf])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(5))
def test_the_leanest_of_each_kernel(kind: str, seed: int):
    """The bound lies below all choices whose kernels keep the limit; the plan is one of
    them, keeps the caps, and is the best without host time and caps."""
    problem = random_problem(seed, kind)
    choice = all_choices(*problem.time.shape)
    choice = choice[problem.usable[np.arange(4), choice].all(1)]
    spent = chosen(problem, choice)
    every, default = total(problem, spent), default_total(problem)
    took = problem.time[np.arange(4), choice] / problem.default_time
    time, energy, bound = leanest(problem, SLOWDOWNS)
    found = 0
    for i, slowdown in enumerate(SLOWDOWNS):
        ratio = 1 + slowdown / 100
        kept = (took <= ratio).all(1)
        if not kept.any():
            assert np.isnan(time[i]) and np.isnan(energy[i]) and np.isinf(bound[i])
            continue
        kept &= within_caps(problem, spent)
        assert bound[i] <= every.energy[kept].min(initial=np.inf) * (1 + 1e-9)
        if kind == "table":
            assert energy[i] == pytest.approx(every.energy[kept].min())
            assert bound[i] == pytest.approx(energy[i])
        if np.isnan(time[i]):
            assert kind != "table"
            continue
        found += 1
        same = (
            kept & np.isclose(every.time, time[i]) & np.isclose(every.energy, energy[i])
        )
        assert same.any()
        assert time[i] <= default.time * ratio * (1 + 2e-9)
        if slowdown <= 10:  # far from it the tangents say less
            assert energy[i] <= 1.01 * every.energy[kept].min()
    assert found >= 3 or kind in ("caps", "both")


def test_settings_that_keep_limits_by_hand():
    """Kernels of 100, 90 and 66 or 68 W in 1, 1.1 and 1.25 times the default time."""
    problem = dataclasses.replace(
        random_problem(0, num_kernels=2, num_settings=3),
        time=np.array([[1.0, 1.1, 1.25], [2.0, 2.2, 2.5]]),
        energy=np.array([[100.0, 99.0, 82.5], [200.0, 198.0, 170.0]]),
        default_time=np.array([1.0, 2.0]),
    )

    def usable(objective: Objective) -> list[list[bool]]:
        return keeping(problem, objective).usable.tolist()

    yes, no = True, False
    assert usable(Objective(max_slowdown=10.0)) == [[yes, yes, no]] * 2
    assert usable(Objective(max_slowdown=9.99)) == [[yes, no, no]] * 2
    assert usable(Objective(power_cap=90.0)) == [[no, yes, yes]] * 2
    assert usable(Objective(power_cap=89.9)) == [[no, no, yes]] * 2
    assert usable(Objective("time", 25.0, 90.0)) == [[no, yes, yes]] * 2
    assert usable(Objective("edp")) == [[yes, no, no]] * 2  # 100, 108.9, 103.1
    assert usable(Objective("edp", power_cap=95.0)) == [[no, no, yes]] * 2
    assert usable(Objective("ed2p", power_cap=95.0)) == [[no, yes, no]] * 2
    both = Objective(max_slowdown=10.0, power_cap=70.0)
    with pytest.raises(Infeasible, match="least that every kernel reaches is 25.00 %"):
        keeping(problem, both)
    with pytest.raises(Infeasible, match="all kernels can keep 68.00 W") as raised:
        keeping(problem, Objective(power_cap=67.0))
    assert raised.value.least["power_limit"] == 68
    slow = dataclasses.replace(problem, default_time=np.array([1.0, 1.9]))
    with pytest.raises(
        Infeasible, match="`kernel 1` cannot keep .*is 5.27 %"
    ) as raised:
        keeping(slow, Objective(max_slowdown=3.0))
    assert raised.value.least == {
        "max_slowdown": pytest.approx(100 * (2 / 1.9 - 1)), "power_limit": 68,
    }  # fmt: skip
