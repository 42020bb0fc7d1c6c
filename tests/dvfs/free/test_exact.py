"""The integer finish: what time is worth, which settings matter, and its rounds."""

import dataclasses

import numpy as np
import pytest

from diffenergy.dvfs._free import exact
from diffenergy.dvfs._free.exact import price_of_time, prove, worthwhile
from diffenergy.dvfs._free.hulls import Line
from diffenergy.dvfs._problem.plan import Objective
from diffenergy.dvfs._problem.problem import (
    chosen,
    cool_stages,
    default_total,
    listed,
    total,
    within_caps,
)

from ..small import KINDS, all_choices, finite, random_problem

LINE = Line(np.array([1.0, 2.0, 4.0, 5.0]), np.array([10.0, 4.0, 2.0, 3.0]))


@pytest.mark.parametrize(
    ("most", "price"),
    [(0.5, 6), (1.5, 6), (2.0, 6), (2.5, 1), (4.0, 1), (4.5, 0), (9.0, 0), (np.inf, 0)],
)
def test_what_a_second_is_worth(most: float, price: float):
    """The slope of the line at the limit, nothing where it rises."""
    assert price_of_time(LINE, most) == price
    assert price_of_time(Line(LINE.x[:1], LINE.y[:1]), most) == 0
    piece = Line(LINE.x[:2], LINE.y[:2])
    assert price_of_time(piece, most) == (6 if np.isfinite(most) else 0)


def test_settings_of_better_plans_by_hand():
    """At 3 W a second two kernels cost 13, 11, 14 and 26, 22, 21 (times energy + 3 x
    time); the least sum is 32, less 3 x 5.5 of the limit. Of 17.5 J two are left."""
    problem = dataclasses.replace(
        random_problem(0, num_kernels=2, num_settings=3),
        stages=("all",), stage=np.zeros(2, int), count=np.array([1.0, 2.0]),
        time=np.array([[1.0, 2.0, 3.0], [1.0, 1.5, 2.0]]),
        energy=np.array([[10.0, 5.0, 5.0], [10.0, 6.5, 4.5]]),
        power_cap=np.array([np.inf]), host_time=np.zeros(1), wait_power=np.zeros(1),
    )  # fmt: skip
    rows = np.arange(2), np.arange(2), np.array([1.0, 2.0])

    def kept(energy: float) -> list[list[bool]]:
        return worthwhile(problem, rows, energy, 5.5, 3.0).tolist()

    assert kept(17.5) == [[True, True, False], [False, True, True]]
    assert kept(18.5 - 1e-6) == [[True, True, False], [False, True, True]]
    assert kept(18.5) == [[True, True, True], [False, True, True]]
    assert kept(20.6) == [[True, True, True], [True, True, True]]
    assert kept(15.6) == [[False, True, False], [False, False, True]]
    time = np.array([[1.0, np.inf, 3.0], [1.0, 1.5, 2.0]])
    problem = dataclasses.replace(problem, time=time)
    assert not worthwhile(problem, rows, 1e9, 5.5, 3.0)[0, 1]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(4))
def test_better_plans_take_no_other_settings(kind: str, seed: int):
    """Of all choices: those with less energy within the limit, whatever the price."""
    problem = random_problem(seed, kind)
    choice = all_choices(*problem.time.shape)
    choice = choice[problem.usable[np.arange(4), choice].all(1)]
    spent = chosen(problem, choice)
    found = total(problem, spent)
    most = float(np.median(found.time))
    order = np.argsort(np.where(found.time <= most, found.energy, np.inf))
    some = order[20]
    rows = np.arange(4), choice[some], problem.count
    energy = float(found.energy[some])
    for price in (0.0, 50.0, 300.0):
        allowed = worthwhile(problem, rows, energy, most, price)
        for better in order[:20]:
            assert allowed[np.arange(4), choice[better]].all()
    assert not worthwhile(problem, rows, energy, most, 300.0).all()


@pytest.mark.parametrize("host", [(1.0, 1.0), (1.0, 0.0), (0.0, 1.0)])
@pytest.mark.parametrize("seed", range(3))
def test_rounds_of_tangents_close_the_gap(
    monkeypatch, seed: int, host: tuple[float, float]
):
    """From two tangents of each stage time, touched anew at the last answer, until one
    comes again."""
    monkeypatch.setattr(exact, "_TANGENTS", 2)
    problem = random_problem(seed, "host")
    problem = dataclasses.replace(problem, host_time=problem.host_time * host)
    objective = Objective(max_slowdown=6.0)
    bounds = []
    for rounds in (1, 2, 4, 8):
        monkeypatch.setattr(exact, "_ROUNDS", rounds)
        proof = prove(problem, objective, problem.usable, True)
        assert len(proof.launches) <= rounds
        bounds.append(proof.bound)
        different = {tuple(x.ravel()) for x in proof.launches}
        assert len(different) >= len(proof.launches) - 1
        for launches in proof.launches:
            assert launches.sum(1).tolist() == problem.count.tolist()
    assert bounds == sorted(bounds)
    spent = finite(chosen(problem, all_choices(*problem.time.shape)))
    found = total(problem, spent)
    kept = objective.keeps(found, default_total(problem))
    optimum = found.energy[kept].min()
    assert bounds[0] < bounds[-1] <= optimum * (1 + 1e-6)
    assert bounds[-1] == pytest.approx(optimum, rel=1e-3)


@pytest.mark.parametrize("seed", range(3))
def test_split_launches_and_a_power_limit(seed: int):
    """Launches of a kernel may differ: every split tried, in least time under a cap."""
    problem = random_problem(seed, num_kernels=2, num_settings=3)
    default = default_total(problem)
    cap = float(0.93 * default.energy / default.time)
    launches = [
        np.array([[a, b, 2 - a - b], [c, d, 4 - c - d]], float)
        for a in range(3) for b in range(3 - a)
        for c in range(5) for d in range(5 - c)
    ]  # fmt: skip
    best = np.inf
    for x in launches:
        if np.any(x[~problem.usable]):
            continue
        kernel, setting = np.nonzero(x)
        took = total(problem, listed(problem, kernel, setting, x[kernel, setting]))
        if took.energy <= cap * took.time:
            best = min(best, float(took.time))
    assert problem.count.tolist() == [2, 4] and np.isfinite(best)
    objective = Objective("time", power_cap=cap)
    proof = prove(problem, objective, problem.usable, False)
    assert proof.bound == pytest.approx(best, rel=1e-5)
    whole = prove(problem, objective, problem.usable, True)
    spent = finite(chosen(problem, all_choices(2, 3)))
    found = total(problem, spent)
    kept = (found.energy <= cap * found.time) & within_caps(problem, spent)
    assert whole.bound == pytest.approx(found.time[kept].min(), rel=1e-5)


def test_only_what_is_allowed_is_taken():
    """At each setting of the first kernel alone; where nothing fits there is no
    answer."""
    problem, objective = random_problem(1), Objective(max_slowdown=30.0)
    for setting in range(3):
        allowed = np.ones(problem.time.shape, bool)
        allowed[0] = np.arange(4) == setting
        (launches,) = prove(problem, objective, allowed, True).launches
        assert launches[0].tolist() == [2.0 * (i == setting) for i in range(4)]
    late = prove(problem, Objective(max_slowdown=-90.0), problem.usable, True)
    assert late.launches == []


def model(kind: str, seed: int = 0) -> exact._Model:
    """The programme of a small problem whose settings are all allowed."""
    problem = random_problem(seed, kind)
    return exact._Model(problem, Objective(max_slowdown=9.0), problem.usable, True)


def test_tangents_reach_from_the_fastest_to_the_slowest():
    found = model("host")
    problem = found.problem
    fast = problem.count * problem.time.min(1)
    slow = problem.count * np.where(problem.usable, problem.time, 0.0).max(1)
    for stage, points in enumerate(found.points):
        here = problem.stage == stage
        ends = fast[here].sum(), slow[here].sum()
        assert points == pytest.approx(np.linspace(*ends, 12))
        assert found.centre[stage] == points[6]
    assert found.bounds and found.bent.all()
    assert not model("both").bounds and model("caps").bounds
    assert not model("caps").bent.any()


@pytest.mark.parametrize("kind", ["caps", "both"])
def test_a_row_of_a_cap_is_the_cap_where_it_touches(kind: str):
    """Any choice, at its own GPU times: the row holds where the stage keeps its cap."""
    found = model(kind)
    problem = found.problem
    choice = all_choices(*problem.time.shape)[::5]
    choice = choice[problem.usable[np.arange(4), choice].all(1)]
    spent = chosen(problem, choice)
    kept = cool_stages(problem, spent)
    assert kept.any(0).all() and not kept.all(0).any()
    for plan, gpu, cool in zip(choice, spent.time, kept, strict=True):
        found.centre = gpu
        x = (found.setting == plan[found.kernel]).astype(float)
        for stage, host in enumerate(problem.host_time.tolist()):
            row, low, most = found._cap(stage, host)
            assert np.isinf(low).all() and row.shape == (1, len(x) + 2)
            assert (row[0, :-2] @ x <= most[0] * (1 + 1e-9)) == cool[stage]
