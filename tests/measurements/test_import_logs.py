"""Logs of Zeus, CodeCarbon, nvidia-smi and the DCGM exporter."""

import numpy as np
import pytest

from diffenergy.measurements.importers import importers, notes_of

from .builders import MONITOR, SHARES, SMI, carbon, run, sample, scrape


def only(name, path):
    """The one table that an importer makes of a log."""
    (table,) = importers()[name].read(path).values()
    return table


def noted(table, words: str) -> bool:
    return any(words in note for note in notes_of(table))


def test_zeus_log_has_a_row_for_every_gpu(write, read_back):
    tables = importers()["zeus"].read(write(MONITOR, "run.csv"))
    table = tables["zeus_run"]
    energy = table.set_index(["workload", "gpu_index"])["energy_j"]
    assert energy.to_dict() == {
        ("epoch", 0): 3000.0, ("step", 0): 300.0, ("epoch", 1): 1000.0,
    }  # fmt: skip
    assert noted(table, "1 of 4 rows left out: no energy was read")
    assert noted(table, "1 windows lie inside another one")
    back = read_back(tables, gpu="a10")["zeus_run"]
    np.testing.assert_allclose(back.avg_power_w, [300.0, 300.0, 100.0])
    np.testing.assert_allclose(back.window_s, [10.0, 1.0, 10.0])


def test_codecarbon_counts_the_gpu_alone_and_one_board(write, read_back):
    path = write(carbon(run()), "emissions.csv")
    tables = importers()["codecarbon"].read(path.parent)
    back = read_back(tables)["codecarbon"]
    assert back.gpu.tolist() == ["a10"]
    np.testing.assert_allclose(back.energy_j, 0.02 * 3.6e6 / 2)
    np.testing.assert_allclose(back.avg_power_w, 360.0)
    assert noted(tables["codecarbon"], "several GPUs")


LATER = run(stamp="2024-05-01T10:05:00", seconds=200.0, energy=0.04)
AGAIN = "1 of 2 rows left out: a later row of the same run"


@pytest.mark.parametrize(
    ("rows", "column", "values", "note"),
    [
        ((run(), LATER), "time_s", [200.0], AGAIN),
        ((LATER, run()), "time_s", [200.0], AGAIN),
        ((run(), run(run_id="r2", energy=0.0), run(run_id="r3", gpus="4,A10")),
         "run_id", ["r1", "r3"], "no GPU was measured"),
        ((run(), run(run_id="r2", power=100.0)), "run_id", ["r1", "r2"],
         "line 3: `gpu_energy` is 7.2 x `gpu_power`"),
        ((run(), run(run_id="r2", gpus="4,2 x NVIDIA A10")), "run_id", ["r1"],
         "do not agree"),
    ],
)  # fmt: skip
def test_rows_of_codecarbon(write, rows, column: str, values: list, note: str):
    table = only("codecarbon", write(carbon(*rows), "emissions.csv"))
    assert table[column].tolist() == values and noted(table, note)


def test_nvidia_smi_integrates_power_over_busy_windows(write, read_back):
    busy = {1: 100, 2: 140, 3: 140, 5: 60, 6: 80}
    lines = [sample(s, busy.get(s, 20), use=100 * (s in busy)) for s in range(7)]
    tables = importers()["nvidia_smi"].read(write(SMI + "".join(lines), "bert.csv"))
    back = read_back(tables)["nvidia_smi_bert"]
    np.testing.assert_allclose(back.energy_j, [120.0 + 140.0, 70.0])
    np.testing.assert_allclose(back.time_s, [2.0, 1.0])
    np.testing.assert_allclose(back.avg_power_w, [130.0, 70.0])
    np.testing.assert_allclose(back.sm_clock_avg, 1.5e9)
    np.testing.assert_allclose(back.mem_clock, 6.251e9)
    np.testing.assert_allclose(back.temperature, 60.0)
    np.testing.assert_allclose(back.power_limit, 150.0)
    assert back.workload.tolist() == ["bert", "bert"]


FOUR = "".join(sample(s, 100) for s in range(4))
BARE = "".join(sample(s, 100, unit=False) for s in range(4))
TWO_GPUS = "".join(
    sample(s + 0.004 * i, 100 + 20 * i, i) for s in range(4) for i in (0, 1)
)


@pytest.mark.parametrize(
    ("text", "column", "values"),
    [
        (FOUR, "energy_j", [300.0]),  # without a header
        (BARE, "energy_j", [300.0]),
        (SMI + TWO_GPUS, "avg_power_w", [100.0, 120.0]),
        (SMI + TWO_GPUS, "time_s", [3.0, 3.0]),
        (SMI + FOUR + sample(9, 100) + sample(10, 100), "time_s", [3.0, 1.0]),  # a gap
    ],
)
def test_windows_of_nvidia_smi(write, text: str, column: str, values: list[float]):
    table = only("nvidia_smi", write(text, "log.csv"))
    np.testing.assert_allclose(table[column], values)


def test_what_nvidia_smi_does_not_read_is_missing(write):
    """Without a utilization the GPU is busy above twice its least power."""
    watts = (20, 20, 100, 120, 120, 20)
    lines = "".join(sample(s, w, use=0) for s, w in enumerate(watts))
    for value, missing in (
        (" 0 %", " [N/A]"),
        ("150.00 W", "[N/A]"),
        ("60,", "[N/A],"),
    ):
        lines = lines.replace(value, missing)
    table = only("nvidia_smi", write(SMI + lines, "log.csv"))
    assert table["energy_j"].tolist() == [110.0 + 120.0]
    assert noted(table, "busy is above 40 W")
    assert "power_limit_w" not in table and "temperature_c" not in table


def test_dcgm_scrape_is_an_activity(write, read_back):
    tables = importers()["dcgm"].read(write(scrape(), "metrics.prom"))
    back = read_back(tables)["dcgm"]
    assert back.op.tolist() == ["activity"] and back.gpu.tolist() == ["h100-sxm"]
    np.testing.assert_allclose(back.avg_power_w, 300.0)
    np.testing.assert_allclose(back.sm_clock_set, 1.755e9)
    fields = back.fields["activity"].values
    names = ("sm_active", "sm_occupancy", "dram_active")
    assert [fields[name][0] for name in names] == [0.9, 0.5, 0.4]


@pytest.mark.parametrize("folder", [True, False])
def test_dcgm_power_is_the_difference_of_the_counter(write, folder: bool):
    first = scrape(300.0, 2e9, " 1000000")
    second = scrape(300.0, 2e9 + 2.5e6, " 1010000")  # 2500 J in 10 s
    if folder:
        write(first, "scrapes/a.prom")
        path = write(second, "scrapes/b.prom").parent
    else:
        path = write(first + second, "metrics.prom")
    table = only("dcgm", path)
    np.testing.assert_allclose(table["avg_power_w"], [300.0, 250.0])
    assert table["power_from"].tolist() == ["reading", "counter"]


@pytest.mark.parametrize(
    ("first", "second"),
    [((1e6, ""), (2e6, "")), ((1e6, " 1"), (2e6, " 1")), ((2e6, " 1"), (1e6, " 2"))],
)
def test_dcgm_counter_without_times_or_begun_anew_is_not_used(write, first, second):
    text = scrape(300.0, *first) + scrape(300.0, *second)
    table = only("dcgm", write(text, "metrics.prom"))
    assert set(table["power_from"]) == {"reading"}


def test_dcgm_series_repeated_begins_a_scrape_without_help_lines(write):
    text = scrape(300.0, help_lines=False) + scrape(310.0, help_lines=False)
    table = only("dcgm", write(text, "metrics.prom"))
    assert table["avg_power_w"].tolist() == [300.0, 310.0]


def test_dcgm_board_power_counts_once(write):
    """Neither MIG instances nor containers that share a GPU add rows."""
    board = 'gpu="0",UUID="GPU-1",modelName="NVIDIA H100 80GB HBM3"'
    instance = board + ',GPU_I_PROFILE="1g.10gb",GPU_I_ID="{}"'
    labels = (*map(instance.format, (7, 8)), board, board + ',pod="other"')
    text = "".join(scrape(labels=x, help_lines=False) for x in labels)
    table = only("dcgm", write(text, "metrics.prom"))
    assert len(table) == 1 and noted(table, "MIG instances left out")


def test_shares_of_dcgm(write):
    """Blank is missing, a little above one is one, tensor pipes are named."""
    changes = {"SM_OCCUPANCY": 9223372036854775794, "SM_ACTIVE": 1.005}
    text = scrape(shares=SHARES | changes | {"PIPE_TENSOR_ACTIVE": 0.3})
    table = only("dcgm", write(text, "m.prom"))
    assert "sm_occupancy" not in table and table["sm_active"].tolist() == [1.0]
    assert noted(table, "tensor pipes were busy")
