"""Tables of schedules: what they say, within 80 characters."""

import io

import pytest
from rich.console import Console

from diffenergy.report import to_rich
from diffenergy.report._format import change
from diffenergy.report._views.schedule import schedule_blocks


def outcome(time: float, energy: float, **more) -> dict:
    """Changes in %, against 2 s and 500 J."""
    return {
        "time_s": 2.0 * (1 + time / 100),
        "energy_j": 500.0 * (1 + energy / 100),
        "time_change_pct": time,
        "energy_change_pct": energy,
        **more,
    }


SUMMARY = {
    **outcome(0.5, -15.638),
    "bound_energy_change_pct": -15.7,
    "gap_pct": 0.0731,
    "solver": "integer programme",
    "default": {"time_s": 2.0, "energy_j": 500.0},
    "baselines": {
        "iteration": outcome(0.5, -3.0, sm_clock_mhz=1890.0, mem_clock_mhz=9251.0),
        "phase": outcome(
            0.4,
            -4.0,
            stages={
                "forward": {"sm_clock_mhz": 1470.0, "mem_clock_mhz": None},
                "backward": {"sm_clock_mhz": None, "mem_clock_mhz": 5001.0},
            },
        ),
        "power_limit": None,
    },
}


def row(number: int, **changes) -> dict:
    return {
        "stage": "forward",
        "kernel": f"gemm 1x128256x131072x16384 bf16 {number}",
        "count": 24,
        "sm_clock_mhz": 1470.0,
        "mem_clock_mhz": None,
        "time_s": 1e-3 * number,
        "energy_j": 0.2,
        "time_change_pct": 0.5,
        "energy_change_pct": -20.0,
        **changes,
    }


def rendered(summary, rows) -> str:
    console = Console(file=io.StringIO(), width=80, markup=False, highlight=False)
    for part in to_rich(schedule_blocks(summary, rows)):
        console.print(part, soft_wrap=isinstance(part, str))
    return console.file.getvalue()  # pyright: ignore[reportAttributeAccessIssue]


def test_a_schedule():
    rows = [row(1), row(2, stage="backward", sm_clock_mhz=None, mem_clock_mhz=5001.0)]
    text = rendered(SUMMARY, rows)
    lines = text.splitlines()
    assert all(len(line) <= 80 for line in lines if not line.startswith("bound"))
    joined = " ".join(text.split())
    for words in (
        "default clocks 2.000 s 0 % 500.0 J 0 %",
        "one pair of clocks 2.010 s +0.50 % 485.0 J -3.00 % 1890/9251 MHz",
        "power limit alone - - - -",
        "this schedule 2.010 s +0.50 % 421.8 J -15.64 %",
        "bound: -15.70 % of energy; gap to the optimum at most 0.073 %; solver:",
        "SM/mem MHz",
        "24 1470/auto 1.000 ms +0.50 % 200.0 mJ -20.00 %",
        "24 auto/5001 2.000 ms",
    ):
        assert words in joined, words
    assert {"forward", "backward"} <= {line.strip() for line in lines}  # titles
    assert "forward 1470" in joined and "auto/5001 MHz" in joined


def test_many_rows():
    """The longest 40 in the order of the schedule, and how many there are."""
    rows = [row(number) for number in range(1, 101)]
    text = rendered(SUMMARY, rows)
    assert "40 of 100 rows are shown" in text and "--out FILE" in text
    assert "60.00 ms" not in text
    assert text.index("61.00 ms") < text.index("100.0 ms")


@pytest.mark.parametrize(
    "percent, text",
    [(-15.638, "-15.64 %"), (0.5, "+0.50 %"), (1e-9, "0 %"), (None, "-")],
)
def test_change(percent, text):
    assert change(percent) == text
