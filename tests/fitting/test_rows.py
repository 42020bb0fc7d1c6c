"""Which rows a fit draws, how much each weighs, and what it knows then."""

import dataclasses

import numpy as np
import pytest

from diffenergy.corrections import CorrectionsFile, prior_file, write_corrections
from diffenergy.fitting import _calibrate
from diffenergy.hardware import read_gpu
from diffenergy.measurements import MeasurementTable
from diffenergy.workload import Listing

from .builders import (
    SEEN,
    UNSEEN,
    Calibration,
    Fit,
    Parameters,
    Settings,
    batches,
    calibrate,
    meter,
    read_rows,
    shape,
    targets_of,
)


@pytest.mark.parametrize(("timed", "share"), [(16, 1.0), (100, 1.0), (512, 2.0)])
def test_expected_errors_of_a_table(tmp_path, timed: int, share: float):
    """10 and 8 % of kernels, from 128 rows on times the root of their number over
    128."""
    table = meter(tmp_path, 512)
    table.time_s[timed:] = np.nan
    (batch,) = batches(table, prior_file())
    result = _calibrate._target(table, batch, Settings().table_weight)
    assert result.time_sd == pytest.approx(0.1 * share)
    assert result.power_sd == pytest.approx(0.08 * share)


def test_expected_errors_of_programs(programs):
    for batch in batches(programs, prior_file()):
        result = _calibrate._target(programs, batch, 128.0)
        assert (result.time_sd, result.power_sd) == (0.05, 0.03)


def test_draws_keep_to_strata_of_time(tmp_path):
    """Of 16 rows by rising time, one of each four."""
    table = shape(tmp_path, SEEN, (900,), range(12, 30))
    time = np.array([np.nan] * 2 + [*np.random.default_rng(0).permutation(16) + 4])
    table = dataclasses.replace(table, time_s=1e-6 * time)
    rng = np.random.default_rng(1)
    for _ in range(5):
        skipped = _calibrate._sampled(table, rng, 4)
        used = np.flatnonzero(skipped == "")
        assert set(skipped) == {"", "not sampled"}
        assert sorted(time[used] // 4) == pytest.approx([1, 2, 3, 4])
    nothing = dataclasses.replace(table, time_s=np.full(18, np.nan))
    nothing.avg_power_w[5:] = np.nan
    used = np.flatnonzero(_calibrate._sampled(nothing, rng, 8) == "")
    assert used.tolist() == [0, 1, 2, 3, 4]


def rests_on(table: MeasurementTable, start: CorrectionsFile) -> Calibration:
    """A calibration by the rows of a table, but for its fit."""
    fit = Fit(Parameters((), {}), np.zeros(0), np.zeros((0, 0)), 0.0, 0, False)
    return Calibration(fit, start, tuple(targets_of(start, table)))


def test_powers_of_left_over_weights_teach_no_power(tmp_path, fitted_start):
    """They tell what weights hold; a GPU whose power was read so alone is not known."""
    left, filled = meter(tmp_path, 5), meter(tmp_path, 6, dtype="fp8_block")
    for table, power in ((left, 0), (filled, 6)):
        answers = rests_on(table, fitted_start)
        rows = {f"{UNSEEN}:gemm": {"time": table.num_rows, "power": power}}
        assert answers.rows == rows and answers.count == table.num_rows
        file = dataclasses.replace(fitted_start, fitted_on={"rows": rows})
        grades = [file.grade(read_gpu(UNSEEN), "gemm", x) for x in ("time", "power")]
        assert grades == ["calibrated", "calibrated" if power else "forecast"]


def test_passes_tell_their_ops_clocks_and_lengths(tmp_path, sample, fitted_start):
    """Clocks whose power was read, tokens that were timed, here or before."""
    kernels = (sample("gemm"), sample("softmax"))
    work = {"work": [Listing("work", kernels=kernels, dispatch="graph")]}
    rows = ("900,512", "1200,1024", "600,256", "1410,4096")
    head = "gpu,workload,sm_clock_mhz,seq_len,time_us,avg_power_w"
    lines = [f"{SEEN},work,{x},2000,200" for x in rows]
    table = read_rows(tmp_path, head, *lines, workloads=work)
    table.avg_power_w[2] = np.nan
    table.time_s[3] = np.nan
    answers = rests_on(table, fitted_start)
    ops = ["elementwise", "gather", "gemm", "layernorm", "rmsnorm", "softmax"]
    assert answers.rows == {f"{SEEN}:workload": {"time": 3, "power": 3, "ops": ops}}
    assert answers.count == 4
    assert _calibrate._lowest(answers.targets, {}) == {SEEN: 900e6}
    assert _calibrate._longest([table], {}) == {SEEN: 1024.0}
    lower = {SEEN: 800e6, "a10": 900e6}
    assert _calibrate._lowest(answers.targets, lower) == lower
    longer = _calibrate._longest([table], {SEEN: 512.0, "a10": 64.0})
    assert longer == {SEEN: 1024.0, "a10": 64.0}


@pytest.mark.slow
def test_the_same_seed_gives_the_same_bytes(table):
    """Of eight rows drawn from 32: another seed draws others."""
    answers = [
        calibrate([table], prior_file(), Settings(seed, max_rows=8, max_steps=2))
        for seed in (3, 3, 4)
    ]
    texts = [write_corrections(x.corrections) for x in answers]
    assert texts[0] == texts[1] != texts[2]
    assert np.array_equal(answers[0].fit.covariance, answers[1].fit.covariance)
    rows = {f"{SEEN}:elementwise": {"time": 8, "power": 8}}
    assert [x.rows for x in answers] == [rows] * 3
    drawn = [np.sort(x.targets[0].batch.rows) for x in answers]
    assert not np.array_equal(drawn[0], drawn[2])
