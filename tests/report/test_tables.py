"""Tables say what the summary says, and fit a terminal."""

import io

import pytest
from rich.console import Console

from diffenergy.estimator import comparison
from diffenergy.report import Table, comparison_blocks, to_rich
from diffenergy.report._format import change, digits, percent, si
from diffenergy.report._views.estimate import estimate_blocks
from diffenergy.report._views.schedule import schedule_blocks

SUMMARY = {
    "model": "m" * 20, "gpu": "quadro-rtx-8000", "phase": "generate", "batch": 8,
    "input_len": 512, "output_len": 3, "dtype": "bf16",
    "assumed": {"gpu": "quadro-rtx-8000", "sm_clock_mhz": 1770.0},
    "time_s": 0.5, "energy_j": 100.0, "avg_power_w": 200.0, "sm_clock_mhz": 1650.0,
    "mem_clock_mhz": 7001.0, "power_limit_w": 260.0, "limited_by": "dram",
    "temperature_c": 71.6, "grade": "forecast",
    "grades": {"time": "transferred", "power": "forecast", "energy": "forecast"},
    "time_s_p5_p95": None, "energy_j_p5_p95": None,
    "energy_j_by_unit": {"dram": 75.0, "idle": 25.0, "link": 0.0},
    "phases": {
        name: {
            "time_s": time, "energy_j": 200 * time, "avg_power_w": 200.0,
            "sm_clock_mhz": 1650.0, "temperature_c": temperature,
            "gpu_time_s": 0.9 * time, "host_time_s": time, "limited_by": "host",
            "feasible": True,
        }
        for name, time, temperature in (("prefill", 0.2, 71.6), ("decode", 0.3, 48.2))
    },
    "ttft_s": 0.2, "tpot_s": 0.15, "tokens_per_s": 48.0, "energy_j_per_token": 4.1666,
}  # fmt: skip
KERNEL = {
    "op": "gemm", "batch": 128, "m": 128256, "n": 131072, "k": 16384,
    "dtype": "fp8_block", "count": 4064, "time_s": 1e-5, "energy_j": 0.01,
    "utilization": {"dram": 0.88}, "limited_by": "dram", "phase": "prefill",
}  # fmt: skip


def rendered(blocks, width=80):
    console = Console(file=io.StringIO(), width=width, markup=False, highlight=False)
    for part in to_rich(blocks):
        console.print(part, soft_wrap=isinstance(part, str))
    return console.file.getvalue()  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize("width", [40, 60, 80])
def test_a_narrow_terminal_tells_kernels_apart(width):
    """Columns go, names and headings stay whole."""
    kernels = [
        {**KERNEL, "op": "gemm", "batch": 1, "m": 8, "n": n, "phase": phase}
        for n in (28672, 28673)
        for phase in ("prefill", "decode")
    ]
    tables = [x for x in estimate_blocks(SUMMARY, kernels) if isinstance(x, Table)]
    text = rendered(tables, width)
    assert max(map(len, text.splitlines())) <= width and "\u2026" not in text
    assert text.count("1x8x28672x16384") == text.count("1x8x28673x16384") == 2
    for heading in ("phase", "time", "energy", "kernel", "share"):
        assert heading in text
    assert ("limited by" in text) == (width > 40) and ("chip" in text) == (width == 80)


def test_an_estimate():
    text = rendered(estimate_blocks(SUMMARY, [KERNEL] * 12))
    lines = text.splitlines()
    assert lines[0] == "assumed: gpu quadro-rtx-8000; sm-clock 1770 MHz"
    assert all(len(line) <= 80 for line in lines)
    for words in (
        "TTFT 200.0 ms, TPOT 150.0 ms, 48.00 tokens/s, 4.167 J per token",
        "host-bound: 10.0 % of the time", "GPU board only: no host, no cooling.",
        "grade: time transferred, power forecast", "72 C", "48 C", "75.0 %",
        "kernel (and 4 more)", "dram 88 %",
    ):  # fmt: skip
        assert words in text, words
    assert "link" not in text  # it took no energy
    detailed = rendered(estimate_blocks(SUMMARY, [KERNEL] * 12, detail=True))
    assert detailed.count("128x128256x131072x16384") == 12


def test_a_comparison():
    slower = {**SUMMARY, "time_s": 1.0, "avg_power_w": 100.0}
    both = comparison(SUMMARY, slower)
    assert both["ratio"] == {"time_s": 2.0, "energy_j": 1.0, "avg_power_w": 0.5}
    text = rendered(comparison_blocks(both))
    assert "2.000" in text and "0.5000" in text


@pytest.mark.parametrize(
    "value, unit, text",
    [
        (0.01973, "s", "19.73 ms"), (1234.5, "J", "1.234 kJ"), (0, "J", "0 J"),
        (None, "s", "-"), (2.5e-6, "s", "2.500 us"), (-0.5, "J", "-500.0 mJ"),
        (1e-20, "J", "1.000e-08 pJ"), (999.97e-6, "s", "1.000 ms"),
        (0.99997, "J", "1.000 J"), (999.94, "W", "999.9 W"),
    ],
)  # fmt: skip
def test_si(value, unit, text):
    assert si(value, unit) == text


def test_digits_percent_and_change():
    shown = [digits(x) for x in (1234.56, 0.05, 9999.96, 0.99997, None)]
    assert shown == ["1235", "0.05000", "10000", "1.000", "-"]
    assert percent(0.1234) == "12.3 %"
    shown = [change(x) for x in (-15.638, 0.5, 1e-9, None)]
    assert shown == ["-15.64 %", "+0.50 %", "0 %", "-"]


@pytest.mark.parametrize("width", [24, 30, 44])
def test_a_narrow_terminal_splits_what_does_not_fit(width):
    """Every number is whole, below its heading, beside the name of its row."""
    rows = [(f"server-{n}", *(f"{n}.{k}00 ms" for k in range(5))) for n in (1, 2)]
    heads = ("server", *(f"latency {k}" for k in range(5)))
    lines = rendered([Table(heads, rows)], width).splitlines()
    assert all(len(line) <= width for line in lines)
    shown = "\n".join(lines)
    assert all(shown.count(text) == 1 for text in (*rows[0][1:], *rows[1][1:]))
    assert all(text in shown for text in heads) and "\u2026" not in shown
    assert all("server-" in line for line in lines if " ms" in line)


# --- schedules


def outcome(time: float, energy: float, **more) -> dict:
    """Changes in %, against 2 s and 500 J."""
    figures = {"time_s": 2.0 * (1 + time / 100), "energy_j": 500 * (1 + energy / 100)}
    return {**figures, "time_change_pct": time, "energy_change_pct": energy, **more}


def clocks(sm: float | None, memory: float | None) -> dict:
    return {"sm_clock_mhz": sm, "mem_clock_mhz": memory}


STAGES = {"forward": clocks(1470.0, None), "backward": clocks(None, 5001.0)}
SCHEDULE = {
    **outcome(0.5, -15.638),
    "bound_energy_change_pct": -15.7,
    "gap_pct": 0.0731,
    "solver": "integer programme",
    "default": {"time_s": 2.0, "energy_j": 500.0},
    "baselines": {
        "iteration": outcome(0.5, -3.0, **clocks(1890.0, 9251.0)),
        "phase": outcome(0.4, -4.0, stages=STAGES),
        "power_limit": None,
    },
}


def row(number: int, stage: str = "forward") -> dict:
    return {
        "stage": stage, "kernel": f"gemm 1x128256x131072x16384 bf16 {number}",
        "count": 24, "time_s": 1e-3 * number, "energy_j": 0.2, "time_change_pct": 0.5,
        "energy_change_pct": -20.0, **STAGES[stage],
    }  # fmt: skip


def test_a_schedule():
    text = rendered(schedule_blocks(SCHEDULE, [row(1), row(2, "backward")]))
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
    text = rendered(schedule_blocks(SCHEDULE, [row(n) for n in range(1, 101)]))
    assert "40 of 100 rows are shown" in text and "--out FILE" in text
    assert "60.00 ms" not in text
    assert text.index("61.00 ms") < text.index("100.0 ms")
