"""Pictures of schedules: written whole, with all that is known on them."""

import re
from pathlib import Path

import numpy as np
import pytest

from diffenergy.dvfs._apply.export import launches
from diffenergy.dvfs._asking.result import outcome, schedule_summary
from diffenergy.dvfs._problem.plan import Objective, Plan, Rules
from diffenergy.dvfs._problem.problem import Loop, Problem, default_total
from diffenergy.report import save_figure
from diffenergy.report._charts.plot_schedule import drawn, schedule_figure

from ..figures import drawn as drawn_figure
from ..figures import points

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


def written(path: Path, problem: Problem, setting: list[int], **options) -> bytes:
    found = plan(problem, setting)
    default = default_total(problem)
    baselines = {
        "iteration": outcome(plan(problem, [1] * len(setting)).total, default),
        "phase": None,
        "power_limit": outcome(default, default, power_limit_w=300.0),
    }
    frontier = np.array([[-1.0, 5.0], [0.0, -3.0], [20.0, -16.0], [80.0, -30.0]])
    summary = schedule_summary(
        problem, found, None, baselines, frontier, Objective(), Rules()
    )
    save_figure(str(path), lambda: schedule_figure(problem, found, summary, **options))
    return path.read_bytes()


def texts(content: bytes) -> str:
    """What is written in an SVG: matplotlib keeps the texts as comments."""
    return " | ".join(re.findall(r"<!-- (.*?) -->", content.decode()))


def test_the_house_style():
    whole = problem()
    found = plan(whole, MIXED)
    edge = np.array([[-1.0, 5.0], [20.0, -16.0]])
    summary = schedule_summary(whole, found, None, {}, edge, Objective(), Rules())
    drawn_figure(schedule_figure(whole, found, summary, "gpt on a gpu"))
    promised = schedule_figure(whole, found, {**summary, "time_change_pct_p95": 12.0})
    plane = drawn_figure(promised).axes[0]
    said = "95 % of its re-measured times: at most +12.00 %"
    (line,) = (line for line in plane.lines if line.get_label() == said)
    assert points(line)[0].tolist() == [summary["time_change_pct"], 12.0]


def test_a_picture_in_svg(tmp_path):
    words = texts(written(tmp_path / "a.svg", problem(), MIXED, title="gpt on a gpu"))
    for text in (
        "gpt on a gpu",
        "time against default clocks, %",
        "energy against default clocks, %",
        "SM clock,",
        "memory clock,",
        "MHz",
        "time in the iteration, ms (repeated layers drawn once)",
        "frontier, leanest plan: time +80.00 %, energy -30.00 %",
        "bound within the schedule's time",
        "default clocks: 98.00 ms, 29.40 J",
        "one pair of clocks: time +30.00 %",
        "power limit alone: time 0 %, energy 0 %",
        "this schedule",
        "forward",
        "x24",
        "auto",
        "1400",
        "5000",
    ):
        assert text in words, text
    assert "one pair a stage" not in words  # there is none


@pytest.mark.parametrize("setting", [MIXED, [0] * 6, [1] * 6, [3] * 6])
@pytest.mark.parametrize("layers", [1, LAYERS])
def test_a_picture_in_png(tmp_path, setting, layers):
    content = written(tmp_path / "a.PNG", problem(layers), setting)
    assert content.startswith(b"\x89PNG")
    assert not list(tmp_path.glob(".*part"))


def test_without_memory_clocks(tmp_path):
    words = texts(written(tmp_path / "a.svg", problem(2), [1, 4, 1, 4, 1, 4]))
    assert "SM clock," in words and "memory clock" not in words
    assert "time in the iteration, ms | " in words + " | "  # all launches are drawn


def test_what_is_drawn():
    """Loops once where there is much to see, all of it else."""
    whole = problem()
    shown = drawn(whole, launches(whole, plan(whole, MIXED)))
    assert shown.setting.tolist() == MIXED
    np.testing.assert_allclose(
        np.diff(shown.edges), 1e-3 * np.array([1.0, 1.3, 1.0, 1.1, 1.15, 1.0])
    )
    ((start, end, turns),) = shown.loops
    np.testing.assert_allclose([start, end], [1e-3, 5.55e-3])
    assert turns == LAYERS and shown.stage.tolist() == [0, 0, 0, 0, 0, 1]
    few = drawn(whole, launches(whole, plan(whole, [0, 1, 1, 1, 1, 0])))
    assert len(few.setting) == 2 + BODY * LAYERS and few.loops == ()


def test_turns_that_differ_are_drawn_in_full():
    whole = problem()
    found = plan(whole, MIXED)
    rows = {
        "kernel": np.array([0, 1, 1, 2, 3, 4, 5]),
        "setting": np.array([0, 1, 2, 2, 3, 4, 0]),
        "count": np.array([1.0, 12.0, 12.0, 24.0, 24.0, 24.0, 1.0]),
    }
    shown = drawn(whole, launches(whole, Plan(**{**vars(found), **rows})))
    assert len(shown.setting) == 2 + BODY * LAYERS and shown.loops == ()
