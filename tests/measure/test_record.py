"""The measuring loop on a simulated board: truth, gaps, failures, going on."""

import contextlib
import json

import numpy as np
import pytest

from diffenergy import measurements
from diffenergy.hardware import read_gpu
from diffenergy.measure._plan import PlanOptions, board_of, make_plan
from diffenergy.measure._record import Timing, campaign
from diffenergy.measure._sensor import SensorError
from diffenergy.measure._table import finished, key, series_path, state_path

from .simulated import LIMIT, QUICK, World, measured, points


@pytest.fixture
def file(tmp_path):
    return tmp_path / "mine.csv"


@pytest.fixture
def world():
    return World()


@pytest.mark.parametrize("silent", [(), ("energy",)])
@pytest.mark.parametrize("start", ["warm", "cold"])
@pytest.mark.parametrize("update", [0.02, 0.1])
def test_power_is_the_steady_one(world, file, silent, start, update):
    """Mean power of the window of each row, which ended just now."""
    world.silent, world.update = set(silent), update
    for point in points({"start": start}):
        table, _ = measured(world, [point], file)
        row = table.rows[-1]
        begin = world.t - float(row["window_s"])
        energy = world.energy_at(world.t) - world.energy_at(begin)
        truth = energy / (world.t - begin)
        assert float(row["avg_power_w"]) == pytest.approx(truth, rel=0.01)
        assert row["power_source"] == ("samples" if silent else "counter")


def test_a_row_says_everything(world, file):
    table, _ = measured(world, points({"start": "cold"}, {}), file)
    first, second, *_, last = table.rows
    assert (first["gap_s"], first["previous"], first["start"]) == ("", "", "cold")
    assert float(second["gap_s"]) > 5 and float(last["gap_s"]) < 1
    assert float(last["window_s"]) >= 2 and float(last["run_s"]) >= 3.5
    expected = {
        "gpu": "h100-sxm", "device": world.about.name, "start": "warm",
        "previous": "elementwise copy 268435456 bf16", "sm_clock_mhz_avg": "1980",
        "sm_clock_mhz_set": "", "power_limit_w": "700", "power_limit_w_set": "",
        "throttle": "", "shared_gpu": "false", "campaign": campaign(world),
        "runner": "torch 9.9 cuda 12.8", "driver": "570.1",
    }  # fmt: skip
    assert {name: last[name] for name in expected} == expected
    assert "2026-05-01" in last["campaign"]
    launched = float(last["iterations"]) * float(last["time_us"]) * 1e-6
    assert launched == pytest.approx(float(last["window_s"]), rel=1e-6)
    lines = [json.loads(x) for x in series_path(file).read_text().splitlines()]
    assert [line["row"] for line in lines] == [*range(6)]
    one = lines[0]
    end = pytest.approx(one["window_s"][1], abs=0.05)
    assert one["t_s"][0] < -4.9 and one["t_s"][-1] == end
    assert max(np.diff(one["t_s"])) < 0.05
    for name in ("power_w", "sm_clock_mhz", "mem_clock_mhz", "temperature_c"):
        assert len(one[name]) == len(one["t_s"])
    assert one["temperature_c"][-1] > one["temperature_c"][0]


def test_measurements_are_read_as_they_are(world, file):
    plan = make_plan(board_of(read_gpu("h100-sxm")), PlanOptions(points=40))
    measured(world, plan, file, QUICK)
    table = measurements.read([str(file)])
    assert table.num_rows == 40 and not (table.skipped != "").any()
    assert np.all(table.power_limit == LIMIT) and np.all(table.sm_clock_avg == 1.98e9)
    assert np.isnan(table.sm_clock_set).all()
    power = table.energy_j / table.time_s
    np.testing.assert_allclose(power, table.avg_power_w, rtol=1e-6)
    assert {"gap_s", "power_source"} <= set(table.ignored_columns)
    assert set(table.campaign) == {campaign(world)}


@pytest.mark.parametrize(
    "name, column",
    [
        ("sm_clock", "sm_clock_mhz_avg"),
        ("mem_clock", "mem_clock_mhz"),
        ("temperature", "temperature_c"),
        ("power", "sampled_power_w"),
        ("energy", ""),
    ],
)
@pytest.mark.parametrize("how", ["silent", "zero"])
def test_what_is_not_told_is_never_zero(world, file, name, column, how):
    setattr(world, how, {name})
    (row,) = measured(world, points()[:1], file)[0].rows
    assert not column or row[column] == ""
    assert row["power_source"] == ("samples" if name == "energy" else "counter")
    assert not {"0", "nan", "0.0"} & set(row.values())
    (line,) = series_path(file).read_text().splitlines()
    assert "NaN" not in line


def test_a_board_without_any_meter_gives_times(world, file):
    world.silent = {"energy", "power", "processes", "power_limit"}
    (row,) = measured(world, points()[:1], file)[0].rows
    for name in ("avg_power_w", "energy_j", "power_source", "shared_gpu"):
        assert row[name] == ""
    assert float(row["time_us"]) > 0


def test_zeros_draw_less_and_are_rows_of_their_own(world, file):
    table, done = measured(world, [*points(), *points({"zeros": True})], file)
    assert done.measured == 6
    for random, zero in zip(table.rows[:3], table.rows[3:], strict=True):
        assert (random["contents"], zero["contents"]) == ("random", "zeros")
        assert (random["zero_share"], zero["zero_share"]) == ("", "1")
        assert float(zero["avg_power_w"]) < 0.95 * float(random["avg_power_w"])


def test_clocks_and_limits_are_set_seen_and_put_back(world, file):
    plan = [*points({"clock": 9e8}, {"limit": 250.0}), *points()]
    table, _ = measured(world, plan, file)
    slow, capped, free = table.rows[0], table.rows[3], table.rows[6]
    assert (slow["sm_clock_mhz_set"], slow["sm_clock_mhz_avg"]) == ("900", "900")
    assert (capped["power_limit_w"], capped["power_limit_w_set"]) == ("250", "250")
    assert capped["throttle"] == "power_cap"
    assert float(capped["sm_clock_mhz_avg"]) < 1900
    assert (free["power_limit_w"], free["throttle"]) == ("700", "")
    assert world.locked is None and world.limit == LIMIT
    assert not state_path(file).exists()


def test_others_on_the_board_are_recorded(world, file):
    """Not those that were there before the watch began: a newcomer shows."""
    world.others = {12345}
    assert not measured(world, points()[1:2], file)[1].shared
    world.unsupported = lambda kernel: bool(world.others.add(777))
    table, done = measured(world, points()[2:], file)
    assert done.shared and table.rows[-1]["shared_gpu"] == "true"


def test_kernels_that_cannot_run_are_left_out(world, file):
    world.unsupported = lambda kernel: kernel["op"] == "elementwise"
    table, done = measured(world, points(kernels=4), file)
    assert (done.measured, len(table.rows)) == (3, 3)
    assert [x["reason"] for x in done.failed] == ["out of memory"]
    world.unsupported = lambda kernel: False
    assert measured(world, points(kernels=4), file)[1].measured == 1
    world.unsupported = lambda kernel: True
    with pytest.raises(ValueError, match="5 kernels failed"):
        measured(world, points({"zeros": True}, kernels=7), file)


def test_a_broken_library_ends_it_with_a_line(world, file):
    world.error, world.fail_at = RuntimeError, 60
    with pytest.raises(ValueError, match="the library failed at"):
        measured(world, points(), file, QUICK)


def test_the_time_is_kept(world, file):
    begin = world.now()
    plan = points(*({"repeat": i} for i in range(1, 9)))
    _, done = measured(world, plan, file, seconds=30.0)
    assert done.stopped == "the time is up" and 4 < done.measured < 9
    assert world.now() - begin < 30.5


def test_the_default_plan_fits_into_twenty_minutes(world, file):
    options = PlanOptions(clocks=(1.98e9, 9e8))
    plan = make_plan(board_of(read_gpu("h100-sxm")), options)
    _, done = measured(world, plan, file, Timing(period=0.1), seconds=1200.0)
    assert (done.measured, done.stopped) == (200, "")


def test_going_on_repeats_nothing(file):
    plan = points({"start": "cold"}, {}, {"clock": 9e8}, {"zeros": True})
    ran = []
    while sum(ran) < len(plan):
        world = World()
        measured(world, plan, file, QUICK, seconds=12.0)
        ran.append(len(world.ran))
    assert sum(ran) == 12 and len(ran) > 2 and 0 not in ran
    assert len(finished(file)) == len({key(row) for row in finished(file)}) == 12


@pytest.mark.parametrize("error", [SensorError, KeyboardInterrupt])
def test_failing_at_any_call_keeps_rows_and_puts_the_board_back(
    world, tmp_path, monkeypatch, error
):
    monkeypatch.setattr("os.fsync", lambda number: None)  # hundreds of files
    plan = points({"clock": 9e8, "start": "cold"}, {"limit": 300.0}, kernels=2)
    measured(world, plan, tmp_path / "whole.csv", QUICK)
    assert world.calls > 100
    counts = []
    for k in range(1, world.calls + 1):
        failing, file, said = World(), tmp_path / f"{k}.csv", []
        failing.fail_at, failing.error = k, error
        with contextlib.suppress(error):
            measured(failing, plan, file, QUICK, said=said)
        assert failing.locked is None and failing.limit == LIMIT, k
        assert not state_path(file).exists() and said == [], k
        counts.append(len(finished(file)))
        series = series_path(file)
        lines = series.read_text().splitlines() if counts[-1] else []
        assert len(lines) == counts[-1]
    assert counts == sorted(counts) and set(counts) >= {0, 1, 2, 3}
