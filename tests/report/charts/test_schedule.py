"""Charts of schedules: all that is known is on them."""

import numpy as np
import pytest
from chart_checks import check, only, words

from diffenergy.charts import Chart, Label, Line, Points
from diffenergy.dvfs import Objective, Plan, Problem, Rules, launches
from diffenergy.dvfs._problem import default_total
from diffenergy.dvfs._result import outcome, schedule_summary
from diffenergy.report._charts.schedule import schedule_charts, visible_launches
from diffenergy.workload import Loop

LAYERS, BODY = 24, 4


def problem(layers: int = LAYERS) -> Problem:
    """Embedding, `layers` times four kernels, and a head in a stage of its own."""
    kernels = ("embed", "qkv", "norm", "up", "down", "head")
    settings = np.array(
        [[np.nan, np.nan], [9e8, np.nan], [1.4e9, 5e9], [np.nan, 5e9], [1.2e9, np.nan]]
    )
    num = len(kernels)
    count = np.array([1.0, *[float(layers)] * BODY, 1.0])
    time = np.tile(np.array([1.0, 1.3, 1.0, 1.1, 1.15]) * 1e-3, (num, 1))
    energy = np.tile(np.array([0.3, 0.2, 0.25, 0.26, 0.22]), (num, 1))
    return Problem(
        kernels=kernels,
        stages=("forward", "backward"),
        stage=np.array([0, 0, 0, 0, 0, 1]),
        count=count,
        settings=settings,
        time=time,
        energy=energy,
        default_time=time[:, 0],
        default_energy=energy[:, 0],
        loops=(Loop((0,), 1), Loop((1, 2, 3, 4), layers), Loop((5,), 1)),
        power_cap=np.full(2, np.inf),
        host_time=np.zeros(2),
        wait_power=np.zeros(2),
    )


def plan(problem: Problem, setting: list[int]) -> Plan:
    chosen = np.arange(len(setting)), np.array(setting)
    time = float(problem.count @ problem.time[chosen])
    energy = float(problem.count @ problem.energy[chosen])
    return Plan(
        *chosen, problem.count, time, energy, energy, energy, energy, "by hand", np.nan
    )


MIXED = [0, 1, 2, 3, 4, 0]


def charts(problem: Problem, setting: list[int], **more) -> dict[str, Chart]:
    result = plan(problem, setting)
    default = default_total(problem)
    baselines = {
        "iteration": outcome(plan(problem, [1] * len(setting)).total, default),
        "phase": None,
        "power_limit": outcome(default, default, power_limit_w=300.0),
    }
    frontier = np.array([[-1.0, 5.0], [0.0, -3.0], [20.0, -16.0], [80.0, -30.0]])
    summary = schedule_summary(
        problem, result, None, baselines, frontier, Objective(), Rules()
    )
    return schedule_charts(problem, result, {**summary, **more}, "gpt on a gpu")


def test_a_schedule():
    result = charts(problem(), MIXED, time_change_pct_p95=20.0)
    check(result)
    plane, sm, memory = result["schedule"].panels
    for name, points in (
        ("default clocks: 98.00 ms, 29.40 J", [(0.0, 0.0)]),
        ("one pair of clocks: time +30.00 %, energy -33.33 %", [(30.0, -100 / 3)]),
        ("power limit alone: time 0 %, energy 0 %", [(0.0, 0.0)]),
        # as far as anybody would go; its end is told
        ("frontier, leanest plan: time +80.00 %, energy -30.00 %",
         [(-1.0, 5.0), (0.0, -3.0), (20.0, -16.0)]),
    ):  # fmt: skip
        mark = only(plane, name)
        assert isinstance(mark, Line | Points)
        assert list(zip(mark.x, mark.y, strict=True)) == [
            pytest.approx(point) for point in points
        ]
    late = only(plane, "95 % of its re-measured times: at most +20.00 %")
    assert isinstance(late, Line) and max(late.x) == 20.0
    assert "one pair a stage" not in words(result["plane"])  # there is none
    ticks = dict(sm.y.ticks or ())
    assert ticks[1400.0] == "1400" and "auto" in ticks.values()
    texts = [mark.text for mark in sm.marks if isinstance(mark, Label)]
    assert "forward" in texts and "x24" in texts
    assert "repeated layers drawn once" in sm.x.title
    line, loop = (mark for mark in memory.marks if isinstance(mark, Line))
    assert (min(loop.x), max(loop.x)) == pytest.approx((1e-3, 5.55e-3), rel=0.02)
    assert line.step and max(line.x) == pytest.approx(6.55e-3)


@pytest.mark.parametrize("setting", [MIXED, [0] * 6, [1] * 6, [3] * 6])
@pytest.mark.parametrize("layers", [1, LAYERS])
def test_schedules_of_all_kinds(setting, layers):
    check(charts(problem(layers), setting))


def test_without_memory_clocks():
    result = charts(problem(2), [1, 4, 1, 4, 1, 4])
    assert list(result) == ["schedule", "plane", "sm-clock"]
    assert result["sm-clock"].panels[0].x.title == "time in the iteration"  # all drawn


def test_what_is_drawn():
    """Loops once where there is much to see, all of it else."""
    whole = problem()
    shown = visible_launches(whole, launches(whole, plan(whole, MIXED)))
    assert shown.setting.tolist() == MIXED
    np.testing.assert_allclose(
        np.diff(shown.edges), 1e-3 * np.array([1.0, 1.3, 1.0, 1.1, 1.15, 1.0])
    )
    ((start, end, turns),) = shown.loops
    np.testing.assert_allclose([start, end], [1e-3, 5.55e-3])
    assert turns == LAYERS and shown.stage.tolist() == [0, 0, 0, 0, 0, 1]
    few = visible_launches(whole, launches(whole, plan(whole, [0, 1, 1, 1, 1, 0])))
    assert len(few.setting) == 2 + BODY * LAYERS and few.loops == ()
    rows = {  # turns that differ
        "kernel": np.array([0, 1, 1, 2, 3, 4, 5]),
        "setting": np.array([0, 1, 2, 2, 3, 4, 0]),
        "count": np.array([1.0, 12.0, 12.0, 24.0, 24.0, 24.0, 1.0]),
    }
    result = Plan(**{**vars(plan(whole, MIXED)), **rows})
    shown = visible_launches(whole, launches(whole, result))
    assert len(shown.setting) == 2 + BODY * LAYERS and shown.loops == ()
