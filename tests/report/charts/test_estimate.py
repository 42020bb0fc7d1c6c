"""Charts of estimates and sweeps, from summaries made by hand."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from chart_checks import bars, check, drawn, words

from diffenergy.charts import Band, Label, Line, Points, to_figure
from diffenergy.physics import COMPONENTS
from diffenergy.report import KINDS
from diffenergy.report._charts.estimate import (
    estimate_chart,
    kernel_classes,
    parts_chart,
    settings_chart,
)
from diffenergy.report._views.sweep import charts as crossed_charts

ABOUT = {
    "model": "tiny", "gpu": "a10", "phase": "generate", "batch": 2, "input_len": 8,
    "output_len": 4, "dtype": "bf16", "grade": "calibrated",
}  # fmt: skip


def summary(phases: int = 2) -> dict:
    share = 1 / phases
    names = ("prefill", "decode")[:phases]
    return {
        **ABOUT,
        "time_s": 0.010,
        "energy_j": 2.0,
        "time_s_p5_p95": [0.008, 0.013],
        "energy_j_p5_p95": [1.5, 2.6],
        "energy_j_by_unit": {
            "tensor": 0.8, "dram": 0.5, "clock_tree": 0.1, "idle": 0.6, "sfu": 0.0,
        },
        "phases": {
            name: {"time_s": 0.010 * share, "energy_j": 2.0 * share} for name in names
        },
    }  # fmt: skip


def kernel(op: str, count: float, time: float, energy: float) -> dict:
    return {"op": op, "count": count, "time_s": time, "energy_j": energy}


KERNELS = [
    kernel("gemm", 4.0, 1e-3, 0.3),
    kernel("gemm", 2.0, 1e-3, 0.1),
    kernel("softmax", 1.0, 2e-3, 0.2),
    {"op": "rmsnorm", "count": 0.0, "time_s": None, "energy_j": None},
]


TENS = [kernel(f"op{i}", 1.0, 1e-3, 0.2) for i in range(10)]
PLAN = {"plan": {"tp": 2, "pp": 4, "ep": 2, "dp": 3}, "energy_j": 12.0}


@pytest.mark.parametrize(
    ("more", "kernels", "count", "classes"),
    [
        # the rest nobody runs
        ({}, KERNELS, 3, {"gemm": (6e-3, 1.4), "softmax": (2e-3, 0.2),
                          "no kernel runs": (2e-3, 0.4)}),
        ({}, TENS, 8, {"3 others": (3e-3, 0.6)}),
        # at once on the 2 x 3 GPUs of a stage: 6 x 1.4 J and 6 x 0.2 J
        (PLAN, KERNELS, 3, {"gemm": (6e-3, 8.4), "softmax": (2e-3, 1.2),
                            "no kernel runs": (2e-3, 2.4)}),
    ],
)  # fmt: skip
def test_classes_add_up(more, kernels, count: int, classes):
    result = kernel_classes(summary() | more, kernels)
    assert len(result) == count
    for name, figures in classes.items():
        assert result[name] == pytest.approx(figures)


def test_every_unit_has_a_kind():
    members = [unit for _, units in KINDS.values() for unit in units]
    assert sorted(members) == sorted(COMPONENTS)


@pytest.mark.parametrize("phases", [1, 2])
def test_an_estimate(phases: int):
    chart = estimate_chart(summary(phases), KERNELS)
    check({"estimate": chart})
    request = "generate, batch 2, 8 in, 4 out, bf16"
    assert chart.title == f"tiny on a10: {request} (calibrated)"
    totals, units, classes = chart.panels
    assert totals.y.names == [
        "time: 10.00 ms\n8.000 ms to 13.00 ms", "energy: 2.000 J\n1.500 J to 2.600 J",
    ]  # fmt: skip
    assert bars(totals) == pytest.approx([100 / phases] * 2 * phases)
    spans = [sorted(set(x.x)) for x in totals.marks if isinstance(x, Line)]
    assert spans == [pytest.approx([80.0, 130.0]), pytest.approx([75.0, 130.0])]
    assert units.y.names == ["tensor cores", "idle power", "DRAM", "clock tree"]
    assert sorted(bars(units)) == pytest.approx([0.1, 0.5, 0.6, 0.8])
    assert "40.0 %" in words(chart)
    # 6 ms and 1.4 J of 10 ms and 2 J
    assert bars(classes)[::3] == pytest.approx([60.0, 70.0])


def test_a_long_title_is_broken():
    long = {**summary(), "model": "a-model-with-quite-a-long-name-of-its-own-instruct"}
    drawn(to_figure(estimate_chart(long, KERNELS)))


@pytest.mark.parametrize("beside", [None, {"dram": 4.0, "link": 1.0}])
def test_parts_of_a_whole(beside):
    """The largest first, value and share behind each; nothing is named below."""
    parts = {"tensor": 1.0, "dram": 3.0, "link": 0.0, "other": 0.0}
    chart = parts_chart("By unit", parts, "J", None, beside, ("a10", "l4"))
    check({"parts": chart})
    (panel,) = chart.panels
    assert "DRAM" not in panel.y.names and "dram" in panel.y.names
    if beside is None:
        assert panel.y.names == ["dram", "tensor"] and bars(panel) == [3.0, 1.0]
        assert chart.caption == "Without a share: link, other."
        assert "3.000 J, 75.0 %" in words(chart)
    else:
        assert panel.y.names == ["dram", "tensor", "link"]
        assert bars(panel) == [3.0, 1.0, 0.0, 4.0, 0.0, 1.0]
        assert "dram, l4: 4.000 J, 80.0 %" in words(chart)


def point(clock: float, limit: float, feasible: bool = True) -> dict:
    known = {
        "time_s": 1.0 / clock, "energy_j": 0.001 * clock + 100 / clock,
        "avg_power_w": 100.0, "time_s_p5_p95": [0.5 / clock, 2.0 / clock],
    }  # fmt: skip
    unknown = dict.fromkeys(known)
    return {
        "sm_clock_set_mhz": clock, "mem_clock_mhz": 5000.0, "power_limit_w": limit,
        "feasible": feasible, **(known if feasible else unknown),
    }  # fmt: skip


CLOCKS = (900.0, 300.0, 600.0)
MANY = [200.0 + i for i in range(9)]


def sweep(limits: list[float], clocks: Sequence[float] = CLOCKS) -> dict:
    points = [point(clock, limit) for clock in clocks for limit in limits]
    points.append(point(100.0, limits[0], feasible=False))
    return {**ABOUT, "points": points, "best_energy": 1, "best_edp": 0}


@pytest.mark.parametrize("limits", [[200.0], [200.0, 300.0], MANY])
def test_a_sweep(limits: list[float]):
    clocks = [300.0 + 30 * i for i in range(20)] if len(limits) > 3 else sorted(CLOCKS)
    chart = settings_chart(sweep(limits, clocks))
    check({"points": chart})
    time, energy, _ = chart.panels
    assert (time.x.title, time.x.unit) == ("SM clock", "MHz")
    lines = [mark for mark in time.marks if isinstance(mark, Line)]
    assert len(lines) == len(limits)
    for line in lines:  # what is not feasible is left out
        assert list(line.x) == clocks
        assert line.y == pytest.approx([1.0 / clock for clock in clocks])
    assert any(isinstance(x, Band) for x in time.marks) == (len(limits) == 1)
    assert ("power limit 200 W" in words(chart)) == (len(limits) > 1)
    (best,) = (x for x in energy.marks if isinstance(x, Points) and x.shape == 7)
    second = sweep(limits, clocks)["points"][1]
    assert list(best.x) == [second["sm_clock_set_mhz"]]
    assert best.name.startswith("least energy: ")


def test_a_crossed_sweep():
    """Two types on each of four GPUs: eight lines, batch along each."""
    points = [
        {
            "gpu": f"gpu-{gpu}", "dtype": dtype, "batch": batch,
            "energy_j_per_token": (1.0 + gpu) * size / batch,
            "tpot_s": 0.01 * (1.0 + gpu) * size * batch**0.2,
        }
        for gpu in range(4)
        for dtype, size in (("bf16", 1.0), ("fp8", 0.6))
        for batch in (32, 1, 8)
    ]  # fmt: skip
    axes = ["gpu", "batch", "dtype"]
    result: Any = SimpleNamespace(summary={**ABOUT, "axes": axes, "points": points})
    actual = crossed_charts(result)
    check(actual)
    (panel,) = actual["sweep"].panels
    lines = [mark for mark in panel.marks if isinstance(mark, Line)]
    assert len(lines) == 8 and lines[0].name == "gpu-0, bf16"
    assert lines[0].y == pytest.approx([1.0, 1 / 8, 1 / 32])  # in rising batch
    labels = [mark.text for mark in panel.marks if isinstance(mark, Label)]
    assert labels == ["1", "8", "32"]
