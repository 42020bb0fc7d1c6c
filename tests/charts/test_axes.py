"""Ends and ticks of axes."""

import pytest

from diffenergy.charts import Axis, Label, Line, Panel, Reading, shortened
from diffenergy.charts._layout import ranges, resolve


@pytest.mark.parametrize("low", [0.0, 1e-9, 3.7, -5.0])
@pytest.mark.parametrize("span", [1e-9, 0.013, 77.0, 4e12])
@pytest.mark.parametrize("zero", [False, True])
def test_linear_axes_hold_their_values(low: float, span: float, zero: bool):
    axis = resolve(Axis("time", "s", zero=zero), [low, low + span], 6)
    assert axis.low <= low and axis.high >= low + span
    assert not zero or axis.low <= 0.0 <= axis.high
    assert 2 <= len(axis.ticks) <= 8
    labels = [label for _, label in axis.ticks]
    assert len(set(labels)) == len(labels)
    steps = [b[0] - a[0] for a, b in zip(axis.ticks, axis.ticks[1:], strict=False)]
    assert steps == pytest.approx([steps[0]] * len(steps), rel=1e-4)


@pytest.mark.parametrize(
    ("axis", "values", "title", "labels"),
    [
        (Axis("time", "s", zero=True), [0.0878], "time, ms", "0 20 40 60 80"),
        (Axis("power", "W", zero=True), [1.8], "power, W", "0.0 0.5 1.0 1.5"),
        (Axis("", "W"), [-2e3, 10], "kW", "−2.0 −1.5 −1.0 −0.5 0.0"),
        (Axis("clock", "MHz"), [900, 1500], "clock, MHz", "1000 1200 1400"),
        (Axis("GPUs", zero=True, whole=True), [3], "GPUs", "0 1 2 3"),
        (Axis("rate", "FLOP/s", log=True), [1e9, 2e9], "rate, GFLOP/s", "1 1.5 2"),
        (Axis("t", "s", log=True), [2e-5, 0.8], "t", "100 µs,1 ms,10 ms,100 ms,1 s"),
        (Axis("x", "B", log=True), [1e3, 1e9], "x", "10 kB,1 MB,100 MB"),
        (Axis("of", "%", log=True), [0.02, 3.0], "of, %", "0.03 0.1 0.3 1 3"),
    ],
)
def test_ticks_say_what_they_are(axis, values, title: str, labels: str):
    """One prefix for all ticks stands in the title, else each tick has its own."""
    result = resolve(axis, values, 5)
    assert result.title == title
    split = labels.split(",") if "," in labels else labels.split()
    assert [label for _, label in result.ticks] == split
    assert all(result.low <= value <= result.high for value, _ in result.ticks)


@pytest.mark.parametrize(
    ("values", "low", "high"),
    [([5.0], 4.73, 5.27), ([0.0], -0.002, 0.052), ([3.0, 3.0], 2.838, 3.162)],
)
def test_axes_of_one_value(values: list[float], low: float, high: float):
    """5 % of it (0.05 for 0) to both sides, and 4 % of that span as room."""
    axis = resolve(Axis("energy", "J"), values, 6)
    assert (axis.low, axis.high) == pytest.approx((low, high))
    assert axis.share(values[0]) == pytest.approx((values[0] - low) / (high - low))


def test_places_are_linear_or_logarithmic_or_categories():
    log = resolve(Axis("y", "s", log=True, low=1.0, high=100.0), [], 5)
    assert [log.share(x) for x in (1e-9, 10.0, 1e9)] == pytest.approx([0.0, 0.5, 1.0])
    names = resolve(Axis(names=["a", "b"]), [], 5)
    assert [names.share(x) for x in (0.0, 1.0)] == [0.75, 0.25]  # the first on top


@pytest.mark.parametrize(("value", "side"), [(3.0, "right"), (-3.0, "left")])
def test_words_behind_bars_have_room(value: float, side):
    """Ten letters of 6.8 px and 10 px beside them, of 200 px."""
    marks = [Line([0.0, value], [0.0, 0.0]), Label(value, 0.0, "ten letter", side)]
    readings = [Reading(value, 0.0, "x")]
    panel = Panel(Axis("x", "s", zero=True), Axis(names=["a"]), marks, readings)
    x, _ = ranges(panel, 200.0, 50.0)
    end = x.high if value > 0 else x.low
    assert 78 / 200 <= abs(end - value) / (x.high - x.low) < 0.5


def test_crowded_categories_are_named_here_and_there():
    panel = Panel(Axis("x", "s"), Axis(names=[f"s{i}" for i in range(30)]), [], [])
    _, y = ranges(panel, 100.0, 130.0)  # room for ten names of 13 px
    assert [value for value, _ in y.ticks] == [3.0 * i for i in range(10)]


def test_names_are_cut_in_the_middle():
    assert shortened("short", 8) == "short"
    assert shortened("abcdefghij", 7) == "ab…ghij"
    assert len(shortened("a" * 50, 20)) == 20
