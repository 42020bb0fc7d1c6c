"""Charts of searches and tiles, from summaries made by hand."""

import pytest
from chart_checks import bars, check, only, words

from diffenergy.charts import Boxes, Line, Points
from diffenergy.report._charts.design import design_charts
from diffenergy.report._charts.tiles import tiles_chart

from .test_estimate import ABOUT


def score(time: float, energy: float, area: float | None, sms: float) -> dict:
    return {
        "objective": energy, "time_s": time, "energy_j": energy,
        "avg_power_w": energy / time, "area_mm2": area, "fields": {"num_sms": sms},
    }  # fmt: skip


def summary(goals: str = "energy", area: float | None = 800.0, **more) -> dict:
    front = [score(1.0 + i, 9.0 - i, 400.0 + i, 40.0 + 9 * i) for i in range(5)]
    return {
        **ABOUT,
        "objective": goals,
        "start": score(1.0, 10.0, area, 80.0),
        "best": score(2.0, 5.0, area and area / 2, 40.0),
        "vary": {"num_sms": {"low": 20.0, "high": 160.0, "base": 80.0}},
        "time_s_p5_p95": [1.5, 2.6],
        "energy_j_p5_p95": [4.0, 7.0],
        "pareto": front if "," in goals else [],
        **more,
    }


def path() -> list[dict]:
    values = ((9.0, 0.2), (8.0, 0.0), (9.0, 0.0), (5.0, 0.0))
    return [
        {"evaluations": 10 * i, "objective": value, "violation": violation}
        for i, (value, violation) in enumerate(values, 1)
    ]


def test_base_against_best():
    result = design_charts(summary(), path())
    check(result)
    fields, metrics, search = result["design"].panels
    assert fields.y.names == ["num_sms\n80 → 40"]
    (bounds,) = (mark for mark in fields.marks if isinstance(mark, Boxes))
    assert (list(bounds.left), list(bounds.right)) == ([0.25], [2.0])
    marks = [list(x.x) for x in fields.marks if isinstance(x, Points)]
    assert marks == [[1.0], [0.5]]  # base, best
    assert metrics.y.names == [
        "time (+100.00 %)\n1.000 s → 2.000 s", "energy (-50.00 %)\n10.00 J → 5.000 J",
        "mean power (-75.00 %)\n10 W → 2 W", "area (-50.00 %)\n800 mm2 → 400 mm2",
    ]  # fmt: skip
    assert bars(metrics) == pytest.approx([200.0, 50.0, 25.0, 50.0])
    so_far = only(search, "least so far")
    assert isinstance(so_far, Line) and list(so_far.y) == [8.0, 8.0, 5.0]
    beyond = only(search, "round that passes a limit")
    assert isinstance(beyond, Points) and list(beyond.y) == [9.0]


def test_what_is_not_there_is_not_drawn():
    """An area, fields beside tiles, the single request of a mix."""
    result = design_charts(summary(area=None, vary={"tiles": {"products": 3}}), path())
    check(result)
    assert "fields" not in result and "area" not in words(result["design"])
    mixed = summary(workloads=[], model="tiny + small", batch=None)
    chart = design_charts(mixed, path())["design"]
    assert chart.title == "tiny + small on a10 (calibrated)"


@pytest.mark.parametrize("goals", ["energy,time", "energy,time,area"])
def test_a_front(goals: str):
    result = design_charts(summary(goals), path())
    check(result)
    front, fields = result["design"].panels
    best = only(front, "best for energy")
    assert isinstance(best, Points) and (list(best.x), list(best.y)) == ([5.0], [2.0])
    scale = front.scale
    assert (scale is not None and scale.title == "area, mm2") == goals.endswith("area")
    shares = only(fields, "num_sms")
    assert isinstance(shares, Line)
    assert sorted(shares.y) == pytest.approx([(40 + 9 * i) / 80 for i in range(5)])


def gemm(count: float, time: float, before: float) -> dict:
    return {
        "op": "gemm", "batch": 1, "m": 512, "n": 50257, "k": 768, "dtype": "bf16",
        "count": count, "time_s": time, "default_time_s": before,
        "energy_j": 2.0, "default_energy_j": 1.0,
    }  # fmt: skip


def test_tiles():
    """The product of most time is first; time -20 % and energy +100 %."""
    gemms = [gemm(1.0, 1e-3, 1e-3), gemm(10.0, 0.8e-3, 1e-3)]
    whole = {"time_s": 9e-3, "default_time_s": 11e-3, "energy_j": 4.0}
    result = {**ABOUT, **whole, "default_energy_j": 2.0, "goal": "time", "gemms": gemms}
    chart = tiles_chart(result)
    check({"tiles": chart})
    (panel,) = chart.panels
    changes = [-20.0, 0.0, -100 * 2 / 11, 100.0, 100.0, 100.0]
    assert bars(panel) == pytest.approx(changes)
    assert panel.y.names[0] == "512x50257x768 bf16\n10 x 800.0 µs"
    many = {"gemms": [gemm(float(i), 1e-3, 2e-3) for i in range(1, 21)]}
    assert "(4 more products are not shown)" in words(tiles_chart(result | many))
