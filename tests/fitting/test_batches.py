"""Measured rows as batches of phases: which rows go together, and what they hold."""

from pathlib import Path

import numpy as np
import pytest

from diffenergy import measurements
from diffenergy.corrections import ANY, prior_file
from diffenergy.fitting import _batches
from diffenergy.fitting._batches import Batch, batches
from diffenergy.fitting._fit import _holds, _movers, target
from diffenergy.fitting._parameters import Parameter, Parameters
from diffenergy.measurements import MeasurementTable

KERNELS = "gpu,op,m,n,k,dtype,campaign,time_us,avg_power_w,sm_clock_mhz_avg"


def kernels(folder: Path, *rows: str) -> MeasurementTable:
    (folder / "kernels.csv").write_text("\n".join([KERNELS, *rows]))
    return measurements.read([str(folder / "kernels.csv")])


def passes(folder: Path, number: int) -> MeasurementTable:
    """Forward passes of GPT-2 with batches of 1, 2, ... on an A10."""
    rows = [f"a10,gpt2,bf16,{i + 1},64,forward,0.1,100" for i in range(number)]
    head = "gpu,model,precision,batch,seq_len,mode,time_s,avg_power_w"
    (folder / "passes.csv").write_text("\n".join([head, *rows]))
    return measurements.read([str(folder / "passes.csv")])


def shares(found: list[Batch]) -> list[list[int]]:
    """Table rows of each batch, without those that fill up the shape."""
    return [x.rows[x.rows >= 0].tolist() for x in found]


def test_rows_by_gpu_campaign_and_number(tmp_path: Path, monkeypatch):
    """Four at most in one batch; what is skipped is in none."""
    monkeypatch.setattr(_batches, "CHUNK", 4)
    names = ["x"] * 9 + ["y"]
    rows = [f"a10,gemm,64,64,{64 * (i + 1)},bf16,{x},9,,"
            for i, x in enumerate(names)]  # fmt: skip
    table = kernels(tmp_path, *rows, "t4,gemm,64,64,64,bf16,x,9,,")
    table.skipped[2] = "not read"
    found = list(batches(table, prior_file()))
    assert shares(found) == [[0, 1, 3, 4], [5, 6, 7, 8], [9], [10]]
    assert [x.campaign for x in found] == ["x", "x", "y", "x"]
    assert [x.card.name for x in found] == ["a10", "a10", "a10", "t4"]
    assert {x.kind for x in found} == {"gemm"}
    whole = passes(tmp_path, 5)
    assert shares(list(batches(whole, prior_file()))) == [
        [0, 0, 1, 1, 2, 2, 3, 3], [4, 4],
    ]  # fmt: skip  # prefill and decode


def test_phases_of_a_row_add_up(tmp_path: Path):
    (batch,) = batches(passes(tmp_path, 3), prior_file())
    assert batch.kind == "workload" and batch.campaign == ""
    phase = np.arange(1.0, len(batch.rows) + 1)
    assert batch.per_row(5, phase).tolist() == [1 + 2, 3 + 4, 5 + 6, 0, 0]
    assert len(batch.rows) > 6  # the rest fill up the shape


def test_what_is_capped_and_how_rows_are_read(tmp_path: Path):
    """Rows with a measured clock are past the limiter: one without makes a batch that
    may be over its cap."""
    clock = "a10,gemm,64,64,64,bf16,neusight,9,100,1000"
    none = "a10,gemm,64,64,64,bf16,neusight,9,100,"
    for rows, capped in (([clock] * 2, False), ([clock, none], True)):
        (batch,) = batches(kernels(tmp_path, *rows), prior_file())
        assert batch.how.capped is capped
        assert batch.how.bursts and batch.how.sampling == ""  # 1 s, by its file
        caps = np.asarray(batch.point.power_cap)[:2].tolist()
        assert caps == [1e9, 150.0 if capped else 1e9]
    (batch,) = batches(kernels(tmp_path, clock.replace("neusight", "x")), prior_file())
    assert not batch.how.bursts
    meter = clock.replace("neusight", "vllm/0.22.0")
    (batch,) = batches(kernels(tmp_path, meter), prior_file())
    assert batch.how.sampling == "series"


def test_what_a_batch_is_of(tmp_path: Path):
    (whole,) = batches(passes(tmp_path, 1), prior_file())
    (alone,) = batches(kernels(tmp_path, "a10,gemm,64,64,64,bf16,x,9,,"), prior_file())
    record = next(iter(alone.records))
    for rows, of_whole, of_alone in (
        (ANY, True, True), (("workload",), True, False), (("gemm",), True, True),
        (("moe",), False, False), (("moe", "gemm"), True, True),
        (("workload", "moe"), True, False), ((record,), record in whole.records, True),
    ):  # fmt: skip
        assert _holds(whole, rows) is of_whole, rows
        assert _holds(alone, rows) is of_alone, rows
    assert whole.holds("gemm") and not whole.holds("moe")
    assert alone.holds("gemm") and alone.holds(record) and not alone.holds("Nothing")


def test_what_only_power_shows_moves_no_times(tmp_path: Path):
    """Energies of a kernel without a power and past its limiter; one power, or a row
    that may be over its cap, is enough."""
    free = [Parameter("global", x) for x in ("energy_dram", "dram_efficiency")]
    free += [Parameter("gpu:t4", "dram_efficiency")]
    parameters = Parameters(tuple(free), prior_file().levels)
    row = "a10,gemm,64,64,64,bf16,x,9,"
    for cells, movers in (
        ([",1000"] * 2, [1]), ([",1000", "90,1000"], [0, 1]), ([",1000", ","], [0, 1]),
    ):  # fmt: skip
        table = kernels(tmp_path, *(row + x for x in cells))
        (batch,) = batches(table, prior_file())
        assert _movers(parameters, target(table, batch, 0.1, 0.1)) == movers, cells


@pytest.mark.parametrize("timed", [True, False])
def test_a_target_holds_what_was_read(tmp_path: Path, timed: bool):
    table = kernels(tmp_path, *["a10,gemm,64,64,64,bf16,x,9,90,"] * 3)
    if not timed:
        table.time_s[1] = np.nan
    (batch,) = batches(table, prior_file())
    found = target(table, batch, 0.1, 0.2)
    nan = np.nan
    rest = [nan] * (len(batch.rows) - 3)
    expected = np.array([9e-6, 9e-6 if timed else nan, 9e-6, *rest])
    assert found.time == pytest.approx(expected, nan_ok=True)
    assert found.power == pytest.approx(np.array([90.0] * 3 + rest), nan_ok=True)
    assert (found.time_sd, found.power_sd) == (0.1, 0.2)
