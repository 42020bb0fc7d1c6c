"""Charts in plain text, and what they show of a summary."""

import numpy as np
import pytest

from diffenergy.report.chart import Axis, Mark, chart
from diffenergy.report.curves import front_charts, schedule_charts, sweep_charts

from .test_pictures_design import summary as design
from .test_pictures_estimate import MANY, sweep

X, Y = Axis("time", "s"), Axis("energy", "J")


def line(*points: tuple[float, float]) -> np.ndarray:
    return np.array(points, float)


def test_size_and_names():
    lines = chart([line((0.0, 1.0), (2.0, 3.0))], [], X, Y).splitlines()
    assert len(lines) == 15 and max(map(len, lines)) == 60
    assert lines[0] == "energy" and lines[-1].split() == ["time"]
    assert "1 s" in lines[-2] and any("2 J ┤" in x for x in lines)
    small = chart([line((0.0, 1.0), (2.0, 3.0))], [], X, Y, 40, 9).splitlines()
    assert len(small) == 9 and max(map(len, small)) == 40


def test_a_rising_line_rises():
    """One dot or more in every column, never falling."""
    lines = chart([line((0.0, 0.0), (1.0, 1.0))], [], X, Y).splitlines()[1:12]
    cells = [x.split("┤")[-1].split("│")[-1].ljust(60) for x in lines]
    tops = [
        next((i for i, row in enumerate(cells) if row[column] > "⠀"), None)
        for column in range(50)
    ]
    known = [top for top in tops if top is not None]
    assert len(known) >= 45 and known == sorted(known, reverse=True)


def test_a_flat_line_and_a_single_point():
    flat = chart([line((0.0, 5.0), (1.0, 5.0))], [], X, Y).splitlines()
    assert sum(any("⠀" < cell <= "⣿" for cell in row) for row in flat) == 1
    assert "5 J" in "\n".join(flat)
    point = chart([line((1.0, 5.0))], [], X, Y)
    assert sum("⠀" < cell <= "⣿" for cell in point) == 1


def test_marks():
    marks = [Mark("a", 0.0, 0.0, "low"), Mark("b", 1.0, 1.0, "high")]
    lines = chart([], [*marks, Mark("c", 1.0, 1.0, "also high")], X, Y).splitlines()
    assert lines[-3:] == ["a low", "b high (at c)", "c also high"]
    rows = {s: i for i, row in enumerate(lines[1:12]) for s in "abc" if s in row}
    assert set(rows) == {"a", "c"} and rows["c"] < rows["a"]


@pytest.mark.parametrize(
    ("values", "unit", "ticks"),
    [
        ((0.0, 0.0125), "s", ("5 ms", "10 ms")),
        ((-0.2, 14.0), "%", ("0 %", "10 %")),
        ((1e3, 2.2e3), "MHz", ("1500 MHz", "2000 MHz")),
        ((3e-6, 4e-6), "J", ("3 uJ", "4 uJ")),
        ((0.0, 3e12), "B/s", ("1 TB/s", "2 TB/s")),
    ],
)
def test_ticks(values: tuple[float, float], unit: str, ticks: tuple[str, ...]):
    curve = line((values[0], 0.0), (values[1], 1.0))
    row = chart([curve], [], Axis("x", unit), Y).splitlines()[-2]
    assert all(tick in row for tick in ticks), row


def test_gaps_and_nothing():
    gap = line((0.0, 0.0), (np.nan, 1.0), (1.0, 1.0))
    assert "energy" in chart([gap], [], X, Y)
    with pytest.raises(ValueError, match="no points"):
        chart([line((np.nan, 1.0))], [], X, Y)


def schedule(**given) -> dict:
    frontier = [[-1.0, 5.0], [0.0, -3.0], [20.0, -16.0], [80.0, -30.0]]
    baselines = {
        "iteration": {"time_change_pct": 5.0, "energy_change_pct": -4.0},
        "phase": None,
    }
    return {
        "time_change_pct": 20.0, "energy_change_pct": -16.0, "frontier": frontier,
        "baselines": baselines, **given,
    }  # fmt: skip


def test_of_a_schedule():
    (found,) = schedule_charts(schedule())
    assert "A one pair of clocks" in found and "X this schedule" in found
    assert "energy against default clocks" in found and "80 %" not in found
    assert schedule_charts(schedule(frontier=[])) == []
    curve = [{"power_limit_w": 100.0 + i, "energy_j": 2.0 - i / 50} for i in range(9)]
    assert "power limit" in schedule_charts(schedule(power_curve=curve))[1]


@pytest.mark.parametrize("goals", ["energy,time", "energy,time,area"])
def test_of_a_front(goals: str):
    (found,) = front_charts(design(goals))
    assert "o base" in found and "X best for energy" in found
    assert found.count("*") == (5 if goals.endswith("area") else 0)


def test_of_what_is_no_front():
    assert front_charts(design()) == [] and front_charts({"goal": "time"}) == []


def test_of_a_sweep():
    (found,) = sweep_charts(sweep([200.0]))
    assert "SM clock" in found and "least energy: " in found
    (several,) = sweep_charts(sweep([200.0, 300.0]))
    assert "A power limit 200 W" in several and "B power limit 300 W" in several
    assert sweep_charts({"time_s": 1.0}) == []
    many = sweep_charts(sweep(MANY, [300.0, 600.0]))
    assert "power limit" in many[0]
