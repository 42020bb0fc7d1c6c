"""Parts of the page by themselves: axes, escaping, roofs, one listing with traps."""

import pytest

from diffenergy.cli.app import parsed
from diffenergy.cli.cost.report import command_line
from diffenergy.cli.cost.report_flags import Flags
from diffenergy.cli.parsing.field import read_flags
from diffenergy.estimator import (
    estimate_details,
    kernel_class,
    prepare,
    totals_by_class,
)
from diffenergy.estimator._details import num_points
from diffenergy.report import page, page_html
from diffenergy.report._format import longest
from diffenergy.report._page.charts.figures import Panel, linear, logarithmic
from diffenergy.report._page.markup import embedded, number, si, tag
from diffenergy.report._page.parts.tables import plain, quantity, table

HOSTILE = "</script><b>&\"'"
LISTING = """\
{"name": "odd </title><i>&", "dispatch": "graph", "kernels": [
 {"op": "gemm", "m": 4096, "n": 4096, "k": 4096, "dtype": "bf16", "count": 2.5},
 {"op": "gemm", "m": 64, "n": 64, "k": 64, "dtype": "fp32", "count": 0},
 {"op": "elementwise", "fn": "FN", "elements": 1e8, "dtype": "bf16", "count": 1e9}]}
"""


@pytest.mark.parametrize("low", [0.0, 1e-9, 3.7, 120.0, -5.0])
@pytest.mark.parametrize("span", [1e-9, 0.013, 1.0, 77.0, 4e12])
@pytest.mark.parametrize("zero", [False, True])
def test_linear_axes_hold_their_values(low: float, span: float, zero: bool):
    if zero and low < 0:
        return
    axis = linear([low, low + span], "time", "s", 6, zero)
    assert axis.low <= low and axis.high >= low + span
    assert 2 <= len(axis.ticks) <= 8
    labels = [label for _, label in axis.ticks]
    assert len(set(labels)) == len(labels)
    steps = [b[0] - a[0] for a, b in zip(axis.ticks, axis.ticks[1:], strict=False)]
    assert steps == pytest.approx([steps[0]] * len(steps), rel=1e-4)


def test_ticks_say_what_they_are():
    axis = linear([0.0, 0.0878], "time", "s", 8, zero=True)
    assert axis.title == "time, ms"
    assert axis.ticks[1] == (pytest.approx(0.02), "20")
    axis = logarithmic([2e9, 3e14], "FLOP/s", "")
    assert [label for _, label in axis.ticks] == "1G 10G 100G 1T 10T 100T".split()


@pytest.mark.parametrize(
    "values, low, high",
    [([5.0], 4.73, 5.27), ([0.0], -0.002, 0.052), ([3.0, 3.0], 2.838, 3.162)],
)
def test_axes_of_one_value(values: list[float], low: float, high: float):
    """5 % of it (0.05 for 0) to both sides, and 4 % of that span as room."""
    axis = linear(values, "energy", "J")
    assert (axis.low, axis.high) == pytest.approx((low, high))
    assert axis.share(values[0]) == pytest.approx((values[0] - low) / (high - low))
    assert axis.ticks and all(low <= mark <= high for mark, _ in axis.ticks)


def test_places_are_linear_or_logarithmic():
    x, y = linear([0.0, 9.6], "x", "", zero=True), logarithmic([1.0, 100.0], "y", "")
    panel = Panel(10.0, 20.0, 100.0, 200.0, x, y)
    assert panel.at(x.high / 2, 10.0) == pytest.approx((60.0, 120.0))
    assert panel.at(1e9, 1e-9) == pytest.approx((110.0, 220.0))  # cut to the edge


def test_what_is_put_in_stands_for_itself():
    assert tag("p", "", title=HOSTILE) == (
        '<p title="&lt;/script&gt;&lt;b&gt;&amp;&quot;&#x27;"></p>'
    )
    assert "</script><b>" not in embedded("x", {"a": HOSTILE})
    assert number(None, "0 J") == '<span class="none">unavailable</span>'
    assert si(2e-6, "s") == "2.000 µs" and si(None, "J") == "-"


def test_sortable_tables_have_buttons_and_say_their_order():
    rows = [[plain("a"), quantity(2, "2 J")], [plain("b"), quantity(None, "")]]
    made = table("t", "Words", ["name", "energy"], rows, sortable=True, sorted_by=1)
    assert made.count("<button") == 2
    assert 'aria-sort="none"' in made and 'aria-sort="descending"' in made
    assert 'data-value="2.0"' in made and "unavailable" in made
    assert 'tabindex="0"' in made and 'aria-label="Words"' in made


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory):
    path = tmp_path_factory.mktemp("odd") / "odd.jsonl"
    text = LISTING.replace("\n", " ").replace("FN", HOSTILE.replace('"', '\\"'))
    path.write_text(text + "\n")
    task = prepare(str(path), "k40c", sm_clock=[745e6], corrections="none")
    return page(estimate_details(task, task.run()), None, "")


@pytest.mark.slow
def test_flop_and_bytes_are_those_of_the_shapes(odd):
    product, never, stream = odd.kernels
    assert product["flop"] == pytest.approx(2 * 4096**3, rel=1e-3)
    assert never["flop"] is never["dram_bytes"] is None
    assert stream["flop"] == 0.0
    assert stream["dram_bytes"] == pytest.approx(2 * 2 * 1e8, rel=0.05)
    assert kernel_class("gemm") == "matrix products" == product["class"]


@pytest.mark.slow
def test_roofs_are_those_of_the_clock(odd):
    # K40c: 15 SMs, 192 lanes of 2 FLOP, 745 MHz, no tensor cores
    assert [roof.name for roof in odd.roofs] == ["CUDA cores"]
    assert odd.roofs[0].flop_per_s == pytest.approx(15 * 384 * 745e6, rel=1e-3)
    assert odd.dram_bandwidth == pytest.approx(288e9, rel=0.01)


@pytest.mark.slow
def test_classes_and_waiting_are_the_whole(odd):
    parts = totals_by_class(odd.kernels, odd.summary)
    time = sum(part[0] for part in parts.values())
    energy = sum(part[1] for part in parts.values())
    assert time == pytest.approx(odd.summary["time_s"], rel=1e-6)
    assert energy == pytest.approx(odd.summary["energy_j"], rel=1e-6)


def test_a_page_shows_the_longest_kernels_and_counts_the_rest():
    kernels = [{"count": 2, "time_s": float(i) or None} for i in range(1004)]
    shown, rest = longest(kernels)
    assert [k["time_s"] for k in shown] == [float(i) for i in range(1003, 3, -1)]
    assert rest == " 3 shorter ones are not shown."
    assert longest(kernels[:5]) == (kernels[4:0:-1], "")


def test_large_workloads_have_fewer_points():
    assert num_points(1000) == 32 and num_points(1001) == 8


@pytest.mark.slow
def test_a_page_with_traps_is_still_a_page(odd):
    text = page_html(odd)
    assert "</script><b>" not in text and "</title><i>" not in text
    assert text.count("<script") == text.count("</script>")
    assert "a slice is all launches of a kernel" in text.lower()
    assert "nothing was fitted" in text.lower()


@pytest.mark.slow
def test_curves_pass_the_estimate_and_keep_their_limits(odd):
    (side,) = odd.sides
    clocks = [point["sm_clock_set_mhz"] for point in side.clocks]
    assert clocks == sorted(clocks) and len(clocks) == 32
    limits = [point["power_limit_w"] for point in side.limits]
    assert limits == sorted(limits)
    assert all(p["avg_power_w"] <= 1.01 * p["power_limit_w"] for p in side.limits)
    top = side.clocks[-1]
    near = [p for p in side.clocks if p["sm_clock_set_mhz"] >= 745.0]
    assert near and near[0]["time_s"] <= odd.summary["time_s"] * (1 + 1e-9)
    assert top["time_s"] == min(point["time_s"] for point in side.clocks)


def test_the_command_is_the_one_of_the_same_figures():
    words = ["a model", "--gpu", "l4", "--checkpointing", "--set", "tdp=70"]
    flags = read_flags(Flags, parsed("report", words))
    text = "diffenergy estimate 'a model' --gpu l4 --checkpointing --set tdp=70 --json"
    assert command_line(flags) == text
