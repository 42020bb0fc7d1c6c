"""Fits recover known constants from synthetic readings, and free what they should."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from diffenergy import measurements
from diffenergy.corrections import (
    ACTIVITY_CONSTANTS,
    CONSTANTS,
    PRIOR_FACTORS,
    SENSOR_CONSTANTS,
    CorrectionsFile,
    Levels,
    _constants,
    _levels,
    prior_file,
    write_corrections,
)
from diffenergy.fitting import _calibrate, _fit, _freed, _parameters, _sampled
from diffenergy.fitting._batching.batches import batches
from diffenergy.fitting._batching.facts import by_row
from diffenergy.fitting._calibrate import Settings, blanked, calibrate
from diffenergy.fitting._fit import fit, target
from diffenergy.fitting._freed import free_parameters
from diffenergy.fitting._parameters import Parameter, Parameters
from diffenergy.fitting._predict import predict
from diffenergy.hardware import read_gpu
from diffenergy.measurements import MeasurementTable
from diffenergy.measurements._table import Columns
from diffenergy.workload._listing import Listing

TRUE = {"energy_dram": 6e-11, "dram_efficiency": 0.8, "launch_cycles": 4000.0}
SEEN, UNSEEN = "a100-sxm-80gb", "h100-sxm"
METER = "vllm/0.22.0"
"""A campaign whose power sensor has constants of its own."""
HEAD = "gpu,op,fn,elements,dtype,sm_clock_mhz,time_us,avg_power_w"
ON = {
    "architectures": {SEEN: "architecture:Ampere"},
    "rows": {f"{SEEN}:elementwise": {"time": 32, "power": 32}},
}
"""What rows of one GPU leave in the file that was fitted on them."""


def truth(factors: dict[str, dict[str, float]] | None = None) -> CorrectionsFile:
    """Corrections with the known constants, and factors by level."""
    file = prior_file()
    file.levels["global"].update(TRUE)
    file.levels.update(factors or {})
    return file


def read(table: MeasurementTable, file: CorrectionsFile) -> MeasurementTable:
    """The table with the readings of known constants."""
    made = predict(table, file)
    return dataclasses.replace(table, time_s=made.time_s, avg_power_w=made.avg_power_w)


def noisy(table: MeasurementTable, time: float, power: float) -> MeasurementTable:
    """The table with normal errors of ln time and ln power."""
    noise = np.random.default_rng(0).normal(size=(2, table.num_rows))
    return dataclasses.replace(
        table,
        time_s=table.time_s * np.exp(time * noise[0]),
        avg_power_w=table.avg_power_w * np.exp(power * noise[1]),
    )


def shape(folder, gpu: str, clocks: tuple[int, ...], sizes: range) -> MeasurementTable:
    """Copies of growing size at some clocks, nothing read yet."""
    path = folder / f"{gpu}.csv"
    lines = [
        f"{gpu},elementwise,copy,{2**power},bf16,{clock},1,1"
        for clock in clocks
        for power in sizes
    ]
    path.write_text("\n".join([HEAD, *lines]))
    return measurements.read([str(path)])


@pytest.fixture(scope="module")
def exact(tmp_path_factory):
    """Readings of known constants, without errors."""
    folder = tmp_path_factory.mktemp("fit")
    return read(shape(folder, SEEN, (900, 1410), range(12, 28)), truth())


@pytest.fixture(scope="module")
def table(exact):
    """The same with errors of half a percent."""
    return noisy(exact, 0.005, 0.005)


@pytest.fixture(scope="module")
def fitted_start():
    """Corrections that rows of one GPU were fitted on."""
    return dataclasses.replace(truth(), fitted_on=ON)


def free(levels: Levels, names: tuple[str, ...]) -> Parameters:
    """Global constants `names` free, around `levels`."""
    return Parameters(tuple(Parameter("global", name) for name in names), levels)


@pytest.mark.slow
@pytest.mark.parametrize("time, power", [(0.005, 0.005), (0.05, 0.03)])
def test_known_constants_come_back(exact, time: float, power: float):
    """Within 3 posterior sds; with small errors to 3 % too."""
    start, table = prior_file(), noisy(exact, time, power)
    parameters = free(start.levels, tuple(TRUE))
    targets = [target(table, b, time, power) for b in batches(table, start)]
    result = fit(parameters, targets)
    known = dataclasses.replace(parameters, start=truth().levels).centre()
    assert np.all(np.abs(result.z - known) < 3 * result.sd)
    assert np.all(result.sd < 0.5 * parameters.sd())
    if time < 0.01:
        fitted = parameters.fitted(result.z)["global"]
        assert [fitted[x] for x in TRUE] == pytest.approx([*TRUE.values()], rel=0.03)


def test_posterior_sds_follow_the_errors(exact):
    """Ten times the errors: a hundredth of the information of the rows."""
    parameters = free(truth().levels, tuple(TRUE))
    information = []
    for sd in (0.005, 0.05):
        targets = [target(exact, b, sd, sd) for b in batches(exact, truth())]
        covariance = fit(parameters, targets).covariance
        information.append(np.linalg.inv(covariance) - np.diag(parameters.sd() ** -2))
    assert information[0] == pytest.approx(100 * information[1], rel=1e-3)


@pytest.mark.slow
def test_a_constant_that_no_row_moves_stays_at_its_prior(table):
    start = prior_file()
    parameters = free(start.levels, ("energy_dram", "moe_own"))
    targets = [target(table, b, 0.01, 0.01) for b in batches(table, start)]
    result = fit(parameters, targets)
    fitted = parameters.fitted(result.z)["global"]
    assert fitted["moe_own"] == pytest.approx(start.levels["global"]["moe_own"])
    assert result.sd[1] == pytest.approx(parameters.sd()[1], rel=1e-6)


@pytest.mark.slow
def test_blanked_rows_are_predicted_but_not_fitted(table):
    held = np.arange(table.num_rows) % 2 == 0
    wrong = dataclasses.replace(table, time_s=np.where(held, 1e3, table.time_s))
    settings = Settings(max_steps=3)
    result = calibrate([blanked(wrong, held)], prior_file(), settings)
    made = predict(table, result.corrections)
    assert np.all(np.abs(np.log(made.time_s / table.time_s)) < 0.5)
    half = table.num_rows // 2
    assert result.rows == {f"{SEEN}:elementwise": {"time": half, "power": half}}
    assert result.count == half


def test_nothing_to_fit_is_an_error(table):
    nothing = dataclasses.replace(table, skipped=np.full(table.num_rows, "x", object))
    with pytest.raises(ValueError, match="no measured row"):
        calibrate([nothing], prior_file())


@pytest.mark.slow
@pytest.mark.parametrize("factor", [1.3, 0.8])
def test_activities_tell_the_factor_on_their_gpus_dynamic_energy(programs, factor):
    """Powers of three programs, made with it, that no reference power explains; the
    factor of another GPU and the global number stay."""
    tag, made = f"gpu:{UNSEEN}", truth()
    skipped = np.where(programs.gpu == SEEN, "not read", "").astype(object)
    blank = dataclasses.replace(programs, skipped=skipped)
    table = read(blank, truth({tag: {"dynamic_energy": factor}}))
    names = ("global", f"gpu:{SEEN}", tag)
    parameters = Parameters(
        tuple(Parameter(name, "dynamic_energy") for name in names), made.levels
    )
    targets = [target(table, b, 0.005, 0.005) for b in batches(table, made)]
    result = fit(parameters, targets)
    fitted = parameters.fitted(result.z)
    assert fitted[tag]["dynamic_energy"] == pytest.approx(factor, rel=0.05)
    assert result.z[:2] == pytest.approx(parameters.centre()[:2])


@pytest.fixture
def programs(tmp_path) -> MeasurementTable:
    """Activities of three programs at two clocks of two GPUs."""
    path = tmp_path / "activity.csv"
    shares = ("0.5,0.1,0.2", "0.1,0.7,0.1", "0.8,0.3,0.5")
    lines = [
        f"{gpu},100,{x},{clock}"
        for gpu in (UNSEEN, SEEN)
        for x in shares
        for clock in (1100, 1395)
    ]
    head = "gpu,avg_power_w,util_fp32_fma,util_dram,util_int,sm_clock_mhz"
    path.write_text("\n".join([head, *lines]))
    return measurements.read([f"activity={path}"])


def test_intervals_are_the_half_widths_of_their_kind(exact):
    """p5 and p95 lie as far below as above in ln, by what the corrections trust."""
    file, made = truth(), predict(exact, truth())
    (batch, *_) = batches(exact, file)
    width = file.trust(batch.card, batch.kind).half_width("time", made.time_s)
    for bound, side in ((made.time_s_p95, 1), (made.time_s_p5, -1)):
        assert bound is not None
        np.testing.assert_allclose(bound, made.time_s * np.exp(side * width))
    for name in ("energy_j", "avg_power_w"):
        low, high = (getattr(made, f"{name}_{x}") for x in ("p5", "p95"))
        np.testing.assert_allclose(low * high, getattr(made, name) ** 2)
        assert np.all(high > 1.01 * low)


def test_a_number_of_a_meter_by_dtype_or_family():
    """Looked up with what the row has behind its name, else alone."""
    words = np.array(["bf16", "fp8", "bf16"], object)
    model = {"warm": 1.0, "warm_fp8": 2.0, "cold_wide": 5.0}
    index = np.array([1, 0])
    bare = Columns(np.arange(3), {})
    typed = Columns(np.arange(3), {"dtype": words})
    kinds = Columns(np.arange(3), {"dtype": words, "family": words[::-1] + "x"})
    np.testing.assert_array_equal(by_row(model, "warm", bare, index), [1, 1])
    np.testing.assert_array_equal(by_row(model, "warm", typed, index), [2, 1])
    np.testing.assert_array_equal(by_row(model, "cold", typed, index, 0.5), [0.5, 0.5])
    model["warm_bf16x"] = 7.0
    np.testing.assert_array_equal(by_row(model, "warm", kinds, index), [2, 7])


# --- what is free


def freed(table: MeasurementTable, start: CorrectionsFile) -> set[str]:
    """Names of the numbers that a fit of the table frees."""
    targets = [target(table, b, 0.1, 0.1) for b in batches(table, start)]
    return {str(p) for p in free_parameters(start, targets).free}


def test_from_nothing_every_level_is_free(table):
    free = freed(table, prior_file())
    assert {"global/energy_dram", "memory:HBM2e/dram_efficiency"} <= free
    # what no data can tell from others, and the factors of the reference GPU
    assert free.isdisjoint({"global/core_energy", "global/dynamic_energy"})
    assert not any(name.startswith(f"gpu:{SEEN}") for name in free)


def test_activities_free_the_factors_of_their_gpus_alone(programs):
    """Nothing global, from nothing; from a fitted start those of the GPU that it was
    fitted on, and one factor of the other, which has few readings."""
    own = {f"gpu:{gpu}/{x}" for gpu in (UNSEEN, SEEN) for x in ACTIVITY_CONSTANTS}
    start = prior_file()
    assert freed(programs, start) == own
    fitted = dataclasses.replace(start, fitted_on=ON)
    found = freed(programs, fitted)
    assert {x for x in found if UNSEEN in x} == {f"gpu:{UNSEEN}/dynamic_energy"}
    expected = {x for x in own if SEEN in x}
    assert expected <= found
    assert {x for x in found - expected if SEEN in x} == set()


@pytest.mark.slow
def test_from_a_fitted_start_the_gpu_of_the_rows_is_free(table, fitted_start):
    """Its own factors alone; other levels stay as they are."""
    result = calibrate([table], fitted_start, Settings(max_steps=4))
    free = result.fit.parameters.free
    assert {p.tag for p in free} == {f"gpu:{SEEN}"}
    assert {"energy_dram", "launch_cycles", "l2_share"} <= {p.constant for p in free}
    levels = dict(result.corrections.levels)
    assert set(levels.pop(f"gpu:{SEEN}")) == {p.constant for p in free}
    assert levels == fitted_start.levels
    known = {"architectures": {SEEN: "architecture:Ampere"}, "rows": result.rows}
    assert known.items() <= result.corrections.fitted_on.items()


@pytest.mark.slow
@pytest.mark.parametrize("factor", [1.2, pytest.param(0.85, marks=pytest.mark.slow)])
def test_five_power_readings_of_an_unseen_gpu(tmp_path, fitted_start, factor: float):
    """One factor on all dynamic energy is free, and found: at the least of the squares
    of readings (1 %, since no more is left) and prior (0.2), here by trying factors."""
    tag = f"gpu:{UNSEEN}"
    blank = shape(tmp_path, UNSEEN, (1100, 1695), range(20, 28))
    table = read(blank, truth({tag: {"dynamic_energy": factor}}))
    five = np.isin(np.arange(table.num_rows), [4, 6, 7, 13, 15])
    untimed = dataclasses.replace(
        table,
        time_s=np.full(table.num_rows, np.nan),
        skipped=np.where(five, "", "not read").astype(object),
    )
    result = calibrate([untimed], fitted_start)
    assert [str(p) for p in result.fit.parameters.free] == [f"{tag}/dynamic_energy"]
    assert result.rows == {f"{UNSEEN}:elementwise": {"time": 0, "power": 5}}
    assert result.count == 5
    fitted_on = result.corrections.fitted_on
    assert fitted_on["rows"] == ON["rows"] | result.rows
    assert set(fitted_on["architectures"]) == {SEEN, UNSEEN}

    def misses(x: float) -> np.ndarray:
        made = read(blank, truth({tag: {"dynamic_energy": np.exp(x)}})).avg_power_w
        return np.log(made / table.avg_power_w)

    tried = np.linspace(-0.3, 0.3, 25)
    miss = np.array([misses(x)[five] for x in tried])
    cost = ((miss / 0.01) ** 2).sum(1) + (tried / 0.2) ** 2
    least = np.polynomial.Polynomial.fit(tried, cost, 6)
    fine = np.linspace(-0.3, 0.3, 6001)
    expected = np.exp(fine[least(fine).argmin()])
    found = result.corrections.levels[tag]["dynamic_energy"]
    assert found == pytest.approx(expected, rel=0.002)
    assert found == pytest.approx(factor, rel=0.005)
    before, after = (np.abs(misses(x))[~five].mean() for x in (0.0, np.log(found)))
    assert after < 0.2 * before


def test_twenty_readings_of_an_unseen_gpu_free_all_it_concerns(tmp_path, fitted_start):
    """One below is too few for more than a factor on all dynamic energy."""
    table = shape(tmp_path, UNSEEN, (1100, 1695), range(14, 24))
    assert table.num_rows == 20
    free = freed(table, fitted_start)
    assert {name.partition("/")[0] for name in free} == {f"gpu:{UNSEEN}"}
    assert f"gpu:{UNSEEN}/energy_dram" in free
    assert f"gpu:{UNSEEN}/dynamic_energy" not in free
    less = dataclasses.replace(table, skipped=table.skipped.copy())
    less.skipped[3] = "not read"
    assert freed(less, fitted_start) == {f"gpu:{UNSEEN}/dynamic_energy"}


@pytest.mark.slow
def test_frozen_numbers_keep_their_start(table):
    """A level, a constant and the beginning of others; all else moves."""
    start, freeze = prior_file(), ("memory", "launch_cycles", "energy_")

    def frozen(tag: str, constant: str) -> bool:
        return tag.startswith("memory:") or constant.startswith(freeze[1:])

    result = calibrate([table], start, Settings(max_steps=3, freeze=freeze))
    free = {str(p) for p in result.fit.parameters.free}
    every = freed(table, start)
    assert free == {name for name in every if not frozen(*name.split("/"))} != every
    for tag, values in result.corrections.levels.items():
        for name, value in values.items():
            if frozen(tag, name):
                assert value == start.levels[tag][name], (tag, name)
    moved = result.corrections.levels["global"]["dram_efficiency"]
    assert moved != start.levels["global"]["dram_efficiency"]


@pytest.mark.parametrize(
    ("tag", "constant", "frozen"),
    [
        ("global", "energy_dram", {"global", "energy_dram", "energy_", "e"}),
        ("gpu:a10", "energy_dram", {"gpu", "gpu:a10", "energy_"}),
        (f"sensor:{METER}:gemm", "gap", {"sensor", f"{METER}:gemm", "gap", "ga"}),
    ],
)
def test_what_a_word_freezes(tag: str, constant: str, frozen: set[str]):
    """A level or its kind, whole; a constant by its beginning."""
    others = {"glob", "gpu:a1", "dram", "sens", METER, f"sensor:{METER}:gemm", "l2"}
    for word in frozen:
        assert _freed.frozen(Parameter(tag, constant), (word,)), word
        assert _freed.frozen(Parameter(tag, constant), ("x", word)), word
    assert not _freed.frozen(Parameter(tag, constant), (*others,))


def test_a_fit_with_all_frozen_is_an_error(table, fitted_start):
    with pytest.raises(ValueError, match="`--freeze` holds every"):
        calibrate([table], fitted_start, Settings(freeze=("gpu",)))


def meter(
    folder, rows: int, gpu: str = UNSEEN, power: str = "400", dtype: str = "bf16"
) -> MeasurementTable:
    """GEMMs of that campaign, 1 ms each."""
    head = "gpu,framework,dtype,m,n,k,time_us,avg_power_w"
    lines = [
        f"{gpu},{METER},{dtype},{64 + i},4096,4096,1000,{power}" for i in range(rows)
    ]
    (folder / "meter.csv").write_text("\n".join([head, *lines]))
    return measurements.read([f"gemm={folder / 'meter.csv'}"])


def sensed(names: set[str]) -> set[str]:
    """Constants of the campaign's sensor on that GPU among the names."""
    found = {x for x in names if x.startswith("sensor:")}
    assert all(x.startswith(f"sensor:{METER}:gemm@{UNSEEN}/") for x in found)
    constants = {x.partition("/")[2].partition("/")[2] for x in found}
    return constants


def test_how_readings_were_taken_is_free_where_there_are_many(tmp_path, fitted_start):
    """From twenty powers of a campaign with a sensor of its own on, one missing or
    not; a few say nothing about how they were read, and times alone neither."""
    known = {x for x in fitted_start.instrument(METER, "gemm") if x in SENSOR_CONSTANTS}
    assert "warm_share" in known and len(known) > 5
    many = meter(tmp_path, 21)
    many.avg_power_w[3] = np.nan
    found = freed(many, fitted_start)
    assert sensed(found) == known
    assert f"gpu:{UNSEEN}/dynamic_energy" not in found
    few = freed(meter(tmp_path, 5), fitted_start)
    assert few == {f"gpu:{UNSEEN}/dynamic_energy"}
    assert sensed(freed(meter(tmp_path, 5), prior_file())) == known
    assert not sensed(freed(meter(tmp_path, 21, power=""), fitted_start))


def test_contents_and_sensor_are_those_of_a_campaign_on_a_gpu(tmp_path, fitted_start):
    """What was left in the memory of one board says nothing of another's."""
    tables = []
    for gpu in (UNSEEN, "h200-sxm"):
        (tmp_path / gpu).mkdir()
        tables.append(meter(tmp_path / gpu, 24, gpu))
    targets = [target(t, b, 0.1, 0.1) for t in tables for b in batches(t, fitted_start)]
    made = free_parameters(fitted_start, targets)
    known = {x for x in fitted_start.instrument(METER, "gemm") if x in SENSOR_CONSTANTS}
    assert {"weight_saving", "math_saving"} < known
    whole = f"sensor:{METER}:gemm"
    found = {str(p) for p in made.free if p.tag.startswith("sensor:")}
    boards = (UNSEEN, "h200-sxm")
    assert found == {f"{whole}@{gpu}/{x}" for gpu in boards for x in known}
    moved = [_fit._movers(made, item) for item in targets]
    own = [{str(made.free[i]) for i in mine} & found for mine in moved]
    assert not own[0] & own[1]
    assert _fit.sensor_tag(targets[1].batch) == f"{whole}@h200-sxm"


def test_tags_whose_power_was_not_read(tmp_path, table, fitted_start):
    """Those of GPUs that were timed alone, but not what they share with others."""
    tables = [table, meter(tmp_path, 24, power="")]
    targets = [target(t, b, 0.1, 0.1) for t in tables for b in batches(t, fitted_start)]
    unread = set(free_parameters(fitted_start, targets).unread)
    own, others = (set(item.batch.card.tags) for item in targets[::-1])
    assert unread == own - others
    assert {f"gpu:{UNSEEN}", "architecture:Hopper"} <= unread


def test_twenty_times_with_few_powers_are_many_readings(tmp_path, fitted_start):
    """Of an unseen GPU: enough for the constants that its rows concern, but of one
    that has been fitted few are."""
    table = meter(tmp_path, 20)
    table.avg_power_w[4:] = np.nan
    found = freed(table, fitted_start)
    assert f"gpu:{UNSEEN}/tensor_efficiency" in found
    seen = freed(meter(tmp_path, 3, SEEN), fitted_start)
    assert f"gpu:{SEEN}/tensor_efficiency" in seen
    assert f"gpu:{SEEN}/dynamic_energy" not in seen


def test_rows_of_several_ops_free_what_any_of_them_concerns(
    tmp_path, programs, fitted_start
):
    tables = [
        meter(tmp_path, 24, SEEN),
        shape(tmp_path, SEEN, (1410,), range(12, 28)),
        programs,
    ]
    each = [freed(x, fitted_start) for x in tables]
    targets = [target(t, b, 0.1, 0.1) for t in tables for b in batches(t, fitted_start)]
    together = {str(p) for p in free_parameters(fitted_start, targets).free}
    assert together == each[0] | each[1] | each[2]
    assert f"gpu:{SEEN}/core_energy" in each[0] - each[1]
    assert each[2] - each[0] - each[1]


@pytest.mark.parametrize(("timed", "share"), [(16, 1.0), (100, 1.0), (512, 2.0)])
def test_expected_errors_of_a_table(tmp_path, timed: int, share: float):
    """10 and 8 % of kernels, from 128 rows on times the root of their number over
    128."""
    table = meter(tmp_path, 512)
    table.time_s[timed:] = np.nan
    (batch,) = batches(table, prior_file())
    found = _calibrate._target(table, batch, Settings().table_weight)
    assert found.time_sd == pytest.approx(0.1 * share)
    assert found.power_sd == pytest.approx(0.08 * share)


def test_expected_errors_of_programs(programs):
    for batch in batches(programs, prior_file()):
        found = _calibrate._target(programs, batch, 128.0)
        assert (found.time_sd, found.power_sd) == (0.05, 0.03)


@pytest.mark.parametrize(
    ("max_rows", "each"), [(1, 1), (5, 2), (7, 2), (8, 4), (20_000, 8192)]
)
def test_rows_are_shared_among_tables_in_powers_of_two(tmp_path, max_rows, each):
    """Two tables: half of them each, rounded down, at least one."""
    tables = [
        shape(tmp_path, SEEN, (900,), range(12, 16)),
        shape(tmp_path, UNSEEN, (900,), range(12, 16)),
    ]
    assert _sampled.per_table(tables, max_rows) == each
    assert _sampled.per_table([], 8) == 8


def test_tables_of_one_op_gpu_and_campaign(tmp_path):
    """Rows that are skipped belong to none; a campaign of another name is another."""
    table = meter(tmp_path, 6)
    table.skipped[4] = "not read"
    table.campaign[[0, 2]] = "other"
    found = {key: x.tolist() for key, x in _sampled._groups(table).items()}
    assert found == {
        (UNSEEN, "gemm", "other"): [0, 2], (UNSEEN, "gemm", METER): [1, 3, 5],
    }  # fmt: skip
    whole = dataclasses.replace(table, kind=np.full(6, "workload", object))
    assert _sampled._groups(whole) == {}


def test_draws_keep_to_strata_of_time(tmp_path):
    """Of 16 rows by rising time, one of each four; those below the launch loop of the
    campaign (3 us) or without a time are left out."""
    table = shape(tmp_path, SEEN, (900,), range(12, 30))
    time = 1e-6 * np.array([2.9, np.nan, *np.random.default_rng(0).permutation(16) + 4])
    table = dataclasses.replace(
        table, time_s=time, campaign=np.full(18, "sglang/0.5.10", object)
    )
    rng = np.random.default_rng(1)
    for _ in range(5):
        skipped = _sampled.sampled(table, prior_file(), rng, 4)
        kept = np.flatnonzero(skipped == "")
        assert set(skipped) == {"", "not sampled"}
        assert sorted(time[kept] * 1e6 // 4) == pytest.approx([1, 2, 3, 4])
    nothing = dataclasses.replace(table, time_s=np.full(18, np.nan))
    nothing.avg_power_w[5:] = np.nan
    kept = np.flatnonzero(_sampled.sampled(nothing, prior_file(), rng, 8) == "")
    assert kept.tolist() == [0, 1, 2, 3, 4]


# --- what a fit rests on


@pytest.fixture(scope="module")
def rests_on(table, fitted_start):
    """`rests_on(table)`: a calibration by the rows of a table, but for its fit."""
    made = calibrate([table], fitted_start, Settings(max_steps=1))

    def rests_on(other: MeasurementTable) -> _calibrate.Calibration:
        found = [target(other, b, 0.1, 0.1) for b in batches(other, fitted_start)]
        return dataclasses.replace(made, targets=tuple(found))

    return rests_on


def test_powers_of_left_over_weights_teach_no_power(tmp_path, rests_on, fitted_start):
    """They tell what weights hold; a GPU whose power was read so alone is not known."""
    left, filled = meter(tmp_path, 5), meter(tmp_path, 6, dtype="fp8_block")
    for table, power in ((left, 0), (filled, 6)):
        made = rests_on(table)
        rows = {f"{UNSEEN}:gemm": {"time": table.num_rows, "power": power}}
        assert made.rows == rows and made.count == table.num_rows
        file = dataclasses.replace(fitted_start, fitted_on={"rows": rows})
        grades = [file.grade(read_gpu(UNSEEN), "gemm", x) for x in ("time", "power")]
        assert grades == ["calibrated", "calibrated" if power else "forecast"]


def test_passes_tell_their_ops_clocks_and_lengths(tmp_path, sample, rests_on):
    """Ops of one formula with them; of clocks the lowest whose power was read, of
    tokens the most that were timed, here or before."""
    kernels = (sample("gemm"), sample("softmax"))
    work = {"work": [Listing("work", kernels=kernels, dispatch="graph")]}
    lines = [
        f"{SEEN},work,{clock},{tokens},2000,200"
        for clock, tokens in ((900, 512), (1200, 1024), (600, 256), (1410, 4096))
    ]
    head = "gpu,workload,sm_clock_mhz,seq_len,time_us,avg_power_w"
    (tmp_path / "passes.csv").write_text("\n".join([head, *lines]))
    table = measurements.read([str(tmp_path / "passes.csv")], workloads=work)
    table.avg_power_w[2] = np.nan
    table.time_s[3] = np.nan
    made = rests_on(table)
    ops = ["elementwise", "gather", "gemm", "layernorm", "rmsnorm", "softmax"]
    assert made.rows == {f"{SEEN}:workload": {"time": 3, "power": 3, "ops": ops}}
    assert made.count == 4
    assert _calibrate._lowest(made.targets, {}) == {SEEN: 900e6}
    assert _calibrate._longest([table], {}) == {SEEN: 1024.0}
    lower = {SEEN: 800e6, "a10": 900e6}
    assert _calibrate._lowest(made.targets, lower) == lower
    longer = _calibrate._longest([table], {SEEN: 512.0, "a10": 64.0})
    assert longer == {SEEN: 1024.0, "a10": 64.0}


def test_powers_that_settle_too_late_are_not_fitted(tmp_path):
    """20 us of bf16 and 100 us of fp8 products in one campaign; without a time they
    stay."""
    head = "gpu,framework,dtype,m,n,k,time_us,avg_power_w"
    times = [("bf16", 19), ("bf16", 21), ("fp8_block", 99), ("fp8_block", 101)]
    lines = [f"h200-sxm,{METER},{x},64,4096,4096,{t},400" for x, t in times]
    lines.append(lines[0])
    (tmp_path / "short.csv").write_text("\n".join([head, *lines]))
    table = measurements.read([f"gemm={tmp_path / 'short.csv'}"])
    table.time_s[4] = np.nan
    left = _sampled.without_unsettled(table, prior_file()).avg_power_w
    assert np.isfinite(left).tolist() == [False, True, False, True, True]


# --- residuals and slopes


def test_programs_move_factors_of_their_gpu_alone(programs):
    own = [(f"gpu:{SEEN}", x) for x in (*ACTIVITY_CONSTANTS, "dynamic_energy")]
    others = [("global", "energy_dram"), (f"gpu:{SEEN}", "launch_cycles")]
    others += [(f"gpu:{UNSEEN}", "dynamic_energy"), ("global", "dynamic_energy")]
    parameters = Parameters(
        tuple(Parameter(*x) for x in (*others, *own)), prior_file().levels
    )
    moved = {
        batch.card.name: _fit._movers(parameters, target(programs, batch, 0.1, 0.1))
        for batch in batches(programs, prior_file())
    }
    last = len(others) + len(own)
    assert moved == {SEEN: [*range(len(others), last)], UNSEEN: [2]}


def problem(table: MeasurementTable, start: CorrectionsFile) -> _fit._Problem:
    """The least squares of all that a fit of the table frees."""
    targets = [target(table, b, 0.1, 0.05) for b in batches(table, start)]
    return _fit._Problem(free_parameters(start, targets), targets, None)


@pytest.mark.slow
def test_slopes_are_those_of_differences(table):
    """Along every free number, at a point off the priors: what the Jacobian leaves out
    moves nothing."""
    made = problem(table, prior_file())
    z = made.centre + 0.2 * made.width * np.random.default_rng(0).normal(
        size=len(made.centre)
    )
    found, rows = made.slopes(z), 2 * table.num_rows
    assert found.shape == (rows + len(z), len(z))
    assert np.array_equal(found[rows:], np.diag(1 / made.width))
    here = made.values(z)
    for i, width in enumerate(made.width):
        step = 1e-5 * width
        expected = (made.values(z + step * np.eye(len(z))[i]) - here) / step
        scale = np.abs(expected).max()
        assert found[:, i] == pytest.approx(expected, abs=1e-3 * scale), i
    assert (np.abs(found[:rows]).max(0) > 0).sum() > 10


def test_residuals_by_hand(exact):
    """Twice the time and half of the power: robust ln 2 over the expected errors, then
    how far each number is from its prior centre."""
    doubled = dataclasses.replace(
        exact, time_s=exact.time_s / 2, avg_power_w=2 * exact.avg_power_w
    )
    doubled.time_s[0] = np.nan
    doubled.avg_power_w[1] = 0.0
    file = truth()
    made = problem(doubled, file)
    found = made.values(made.centre)
    rows = exact.num_rows

    def robust(r: float) -> float:
        return np.sqrt(2 * 4 * (np.sqrt(1 + (r / 2) ** 2) - 1))

    late, hot = robust(np.log(2) / 0.1), -robust(np.log(2) / 0.05)
    assert found[1:rows] == pytest.approx(np.full(rows - 1, late))
    assert found[[0, rows + 1]].tolist() == [0, 0]
    powers = np.delete(found[rows : 2 * rows], 1)
    assert powers == pytest.approx(np.full(rows - 1, hot))
    assert not found[2 * rows :].any()
    away = made.values(made.centre + 2 * made.width)[2 * rows :]
    assert away == pytest.approx(np.full(len(away), 2.0))
    assert made.evaluations == 2 and made.best.tolist() == made.centre.tolist()
    assert made.cost == pytest.approx(0.5 * float(found @ found))


def test_an_interrupt_keeps_the_best_point_and_the_priors_width(table):
    """At once: where the search begins; later: the best of what was tried."""
    start = prior_file()
    parameters = free(start.levels, tuple(TRUE))
    targets = [target(table, b, 0.05, 0.05) for b in batches(table, start)]
    for last in (1, 3):
        costs: list[float] = []

        def stop(steps: int, cost: float, last: int = last) -> None:
            costs.append(cost)  # noqa: B023
            assert steps == len(costs)  # noqa: B023
            if steps == last:
                raise KeyboardInterrupt

        begin = parameters.centre() + 0.5 * parameters.sd()
        found = fit(parameters, targets, begin=begin, progress=stop)
        assert found.interrupted and found.evaluations == last
        assert found.cost == min(costs)
        assert found.covariance == pytest.approx(np.diag(parameters.sd() ** 2))
        if last == 1:
            assert found.z == pytest.approx(begin)
        else:
            assert costs[-1] < costs[0] and not np.allclose(found.z, begin)


# --- errors that a fit left


def test_errors_that_are_left_by_hand(exact):
    """Half of normal errors lie below 0.6745 sd: of |ln| 0.02, 0.04 and 0.06 the middle
    one, robust; never below a hundredth, never above what was expected."""
    away = np.array([0.02, 0.04, 0.06])[np.arange(exact.num_rows) % 3]
    side = np.where(np.arange(exact.num_rows) % 2, 1, -1)
    off = dataclasses.replace(
        exact,
        time_s=exact.time_s * np.exp(side * away),
        avg_power_w=exact.avg_power_w * np.exp(0.001 * side),
    )
    off.time_s[[2, 3]] = np.nan  # one of 0.06, one of 0.02
    parameters = free(truth().levels, tuple(TRUE))
    (batch,) = batches(off, truth())

    def left(time_sd: float, power_sd: float) -> tuple[float, float]:
        item = target(off, batch, time_sd, power_sd)
        found = _fit.sharpened(parameters, item, parameters.centre())
        assert found.batch is item.batch and found.time is item.time
        return found.time_sd, found.power_sd

    robust = np.sqrt(2 * 4 * (np.sqrt(1 + (0.04 / 0.1 / 2) ** 2) - 1))
    assert left(0.1, 0.08) == pytest.approx((0.1 * robust / 0.6745, 0.01), rel=1e-4)
    assert left(0.02, 0.01) == pytest.approx((0.02, 0.01))
    nothing = dataclasses.replace(off, avg_power_w=np.full(off.num_rows, np.nan))
    item = target(nothing, batch, 0.1, 0.08)
    assert _fit.sharpened(parameters, item, parameters.centre()).power_sd == 0.08


@pytest.mark.parametrize("start", ["priors", "fitted"])
def test_clear_data_of_a_gpu_are_fitted_with_their_own_errors(
    table, fitted_start, start: str
):
    """From fitted corrections; all rows together from priors are fitted once, with the
    errors that were expected."""
    steps: list[int] = []

    def count(step: int, cost: float) -> None:
        steps.append(step)

    file = prior_file() if start == "priors" else fitted_start
    calibrate([table], file, Settings(max_steps=2), progress=count)
    fits = steps.count(1)
    assert fits == 1 if start == "priors" else 2 <= fits <= 4


@pytest.mark.parametrize("fits", [1, 2])
def test_an_interrupt_ends_all_fits(table, fitted_start, monkeypatch, fits: int):
    """In the first, and in one that repeats it, however clear the data are."""
    monkeypatch.setattr(_calibrate, "_CLEAR", 1.0)
    begun: list[int] = []

    def stop(step: int, cost: float) -> None:
        if step == 1:
            begun.append(step)
            if len(begun) == fits:
                raise KeyboardInterrupt

    made = calibrate([table], fitted_start, Settings(max_steps=2), progress=stop)
    assert made.fit.interrupted and len(begun) == fits


# --- names decide nothing


@pytest.mark.slow
def test_a_renamed_constant_stays_in_the_fit(tmp_path, monkeypatch):
    """All constants under names without meaning, in a copy of the tables: a fit of
    three rows frees and moves the same ones to the same values."""
    blank = shape(tmp_path, SEEN, (1395,), range(26, 29))
    made = read(blank, truth())
    settings = Settings(max_steps=3)
    plain = calibrate([made], prior_file(), settings)
    names = {name: f"c{i:03}" for i, name in enumerate(CONSTANTS)}

    def renamed(table: Mapping[str, Any]) -> dict[str, Any]:
        return {names[name]: value for name, value in table.items()}

    constants, activity = renamed(CONSTANTS), renamed(ACTIVITY_CONSTANTS)
    factors = {tag: renamed(own) for tag, own in PRIOR_FACTORS.items()}
    for module in (_constants, _levels, _freed, _parameters):
        monkeypatch.setattr(module, "CONSTANTS", constants)
    for module in (_levels, _parameters):
        monkeypatch.setattr(module, "PRIOR_FACTORS", factors)
    for module in (_fit, _freed):
        monkeypatch.setattr(module, "ACTIVITY_CONSTANTS", activity)
    other = calibrate([made], prior_file(), settings)
    expected = {f"{p.tag}/{names[p.constant]}" for p in plain.fit.parameters.free}
    assert {str(p) for p in other.fit.parameters.free} == expected
    for tag, values in plain.corrections.levels.items():
        found = other.corrections.levels[tag]
        assert found == pytest.approx(renamed(values), rel=1e-6), tag
    moved = other.corrections.levels["global"]
    for name in ("dram_efficiency", "energy_dram", "launch_cycles"):
        centre = CONSTANTS[name].centre
        assert moved[names[name]] != pytest.approx(centre, rel=1e-5), name


# --- draws


@pytest.mark.slow
def test_the_same_seed_gives_the_same_bytes(table):
    """Of eight rows drawn from 32: another seed draws others."""
    made = [
        calibrate([table], prior_file(), Settings(seed, max_rows=8, max_steps=2))
        for seed in (3, 3, 4)
    ]
    texts = [write_corrections(x.corrections) for x in made]
    assert texts[0] == texts[1] != texts[2]
    assert np.array_equal(made[0].fit.covariance, made[1].fit.covariance)
    rows = {f"{SEEN}:elementwise": {"time": 8, "power": 8}}
    assert [x.rows for x in made] == [rows] * 3
    drawn = [np.sort(x.targets[0].batch.rows) for x in made]
    assert not np.array_equal(drawn[0], drawn[2])


def test_rows_of_a_large_table_weigh_less(table):
    """32 rows that count as 8: expected errors twice as large."""
    few, whole = (
        calibrate([table], prior_file(), Settings(max_steps=1, table_weight=weight))
        for weight in (8.0, 1e9)
    )
    assert few.targets[0].time_sd == pytest.approx(2 * whole.targets[0].time_sd)
    assert few.targets[0].power_sd == pytest.approx(2 * whole.targets[0].power_sd)
    wider = few.fit.sd / whole.fit.sd  # 1 where no row says anything
    assert np.all(wider > 1 - 1e-9) and 1.3 < wider.max() < 2
