"""Logs of Zeus, CodeCarbon, nvidia-smi and the DCGM exporter."""

from pathlib import Path

import numpy as np
import pytest

from diffenergy.measurements.importers import importers, notes_of

from .builders import MONITOR, SHARES, SMI, carbon, run, sample, scrape


def read(name: str, path: Path):
    return importers()[name].read(path)


def test_logs_need_no_checkout():
    assert {"codecarbon", "dcgm", "nvidia_smi", "zeus"} <= set(importers())


def noted(table, words: str) -> bool:
    return any(words in note for note in notes_of(table))


# --- Zeus


def test_zeus_log_has_a_row_for_every_gpu(write, read_back):
    tables = read("zeus", write(MONITOR, "run.csv"))
    table = tables["zeus_run"]
    energy = table.set_index(["workload", "gpu_index"])["energy_j"]
    assert energy.to_dict() == {
        ("epoch", 0): 3000.0,
        ("step", 0): 300.0,
        ("epoch", 1): 1000.0,
    }
    assert noted(table, "1 of 4 rows left out: no energy was read")
    assert noted(table, "1 windows lie inside another one")
    back = read_back(tables, gpu="a10")["zeus_run"]
    np.testing.assert_allclose(back.avg_power_w, [300.0, 300.0, 100.0])
    np.testing.assert_allclose(back.window_s, [10.0, 1.0, 10.0])


# --- CodeCarbon


def test_codecarbon_counts_the_gpu_alone_and_one_board(write, read_back):
    tables = read("codecarbon", write(carbon(run()), "emissions.csv").parent)
    back = read_back(tables)["codecarbon"]
    assert back.gpu.tolist() == ["a10"]
    np.testing.assert_allclose(back.energy_j, 0.02 * 3.6e6 / 2)
    np.testing.assert_allclose(back.avg_power_w, 360.0)
    assert noted(tables["codecarbon"], "several GPUs")


def test_codecarbon_last_row_of_a_run_counts(write):
    later = run(stamp="2024-05-01T10:05:00", seconds=200.0, energy=0.04)
    for rows in ((run(), later), (later, run())):
        table = read("codecarbon", write(carbon(*rows), "emissions.csv"))["codecarbon"]
        assert table["time_s"].tolist() == [200.0]
        assert noted(table, "1 of 2 rows left out: a later row of the same run")


def test_codecarbon_without_gpu_energy_is_not_measured(write):
    rows = carbon(run(), run(run_id="r2", energy=0.0), run(run_id="r3", gpus="4,A10"))
    table = read("codecarbon", write(rows, "emissions.csv"))["codecarbon"]
    assert table["run_id"].tolist() == ["r1", "r3"]
    assert noted(table, "no GPU was measured")


def test_codecarbon_names_rows_whose_power_and_energy_differ(write):
    rows = carbon(run(), run(run_id="r2", power=100.0))
    table = read("codecarbon", write(rows, "emissions.csv"))["codecarbon"]
    assert len(table) == 2
    assert noted(table, "row 1: `gpu_energy` is 7.2 x `gpu_power`")


def test_codecarbon_count_and_model_must_agree(write):
    rows = carbon(run(), run(run_id="r2", gpus="4,2 x NVIDIA A10"))
    table = read("codecarbon", write(rows, "emissions.csv"))["codecarbon"]
    assert noted(table, "do not agree")


# --- nvidia-smi


def test_nvidia_smi_integrates_power_over_busy_windows(write, read_back):
    lines = [
        sample(0, 20, use=0),
        sample(1, 100),
        sample(2, 140),
        sample(3, 140),
        sample(4, 20, use=0),
        sample(5, 60),
        sample(6, 80),
    ]
    tables = read("nvidia_smi", write(SMI + "".join(lines), "bert.csv"))
    back = read_back(tables)["nvidia_smi_bert"]
    np.testing.assert_allclose(back.energy_j, [120.0 + 140.0, 70.0])
    np.testing.assert_allclose(back.time_s, [2.0, 1.0])
    np.testing.assert_allclose(back.avg_power_w, [130.0, 70.0])
    np.testing.assert_allclose(back.sm_clock_avg, 1.5e9)
    np.testing.assert_allclose(back.mem_clock, 6.251e9)
    np.testing.assert_allclose(back.temperature, 60.0)
    np.testing.assert_allclose(back.power_limit, 150.0)
    assert back.workload.tolist() == ["bert", "bert"]


@pytest.mark.parametrize("unit", [True, False])
def test_nvidia_smi_without_header(write, unit: bool):
    lines = "".join(sample(s, 100, unit=unit) for s in range(4))
    (table,) = read("nvidia_smi", write(lines, "log.csv")).values()
    assert table["energy_j"].tolist() == [300.0]


def test_nvidia_smi_keeps_interleaved_gpus_apart(write):
    lines = [sample(s + 0.004 * i, 100 + 20 * i, i) for s in range(4) for i in (0, 1)]
    (table,) = read("nvidia_smi", write(SMI + "".join(lines), "log.csv")).values()
    np.testing.assert_allclose(table["avg_power_w"], [100.0, 120.0])
    np.testing.assert_allclose(table["time_s"], 3.0)


def test_nvidia_smi_gap_ends_a_window(write):
    lines = [sample(s, 100) for s in (0, 1, 2, 3, 9, 10)]
    (table,) = read("nvidia_smi", write(SMI + "".join(lines), "log.csv")).values()
    np.testing.assert_allclose(table["time_s"], [3.0, 1.0])


def test_nvidia_smi_not_available_is_missing(write):
    lines = "".join(sample(s, 100) for s in range(4))
    lines = lines.replace("150.00 W", "[N/A]").replace("60,", "[Not Supported],")
    (table,) = read("nvidia_smi", write(SMI + lines, "log.csv")).values()
    assert "power_limit_w" not in table and "temperature_c" not in table


def test_nvidia_smi_without_utilisation_takes_power_above_idle(write):
    watts = (20, 20, 100, 120, 120, 20)
    lines = "".join(sample(s, w, use=0) for s, w in enumerate(watts))
    lines = lines.replace(" 0 %", " [N/A]")
    (table,) = read("nvidia_smi", write(SMI + lines, "log.csv")).values()
    assert table["energy_j"].tolist() == [110.0 + 120.0]
    assert noted(table, "busy is above 40 W")


# --- DCGM


def test_dcgm_scrape_is_an_activity(write, read_back):
    tables = read("dcgm", write(scrape(), "metrics.prom"))
    back = read_back(tables)["dcgm"]
    assert back.op.tolist() == ["activity"] and back.gpu.tolist() == ["h100-sxm"]
    np.testing.assert_allclose(back.avg_power_w, 300.0)
    np.testing.assert_allclose(back.sm_clock_set, 1.755e9)
    fields = back.fields["activity"].values
    assert [fields[n][0] for n in ("sm_active", "sm_occupancy", "dram_active")] == [
        0.9,
        0.5,
        0.4,
    ]


@pytest.mark.parametrize("folder", [True, False])
def test_dcgm_power_is_the_difference_of_the_counter(write, folder: bool):
    first = scrape(300.0, 2e9, " 1000000")
    second = scrape(300.0, 2e9 + 2.5e6, " 1010000")  # 2500 J in 10 s
    if folder:
        write(first, "scrapes/a.prom")
        path = write(second, "scrapes/b.prom").parent
    else:
        path = write(first + second, "metrics.prom")
    table = read("dcgm", path)["dcgm"]
    np.testing.assert_allclose(table["avg_power_w"], [300.0, 250.0])
    assert table["power_from"].tolist() == ["reading", "counter"]


def test_dcgm_counter_without_times_or_begun_anew_is_not_used(write):
    cases = (
        (("", ""), (1e6, 2e6)),
        ((" 1000", " 1000"), (1e6, 2e6)),
        ((" 1000", " 2000"), (2e6, 1e6)),
    )
    for stamps, counters in cases:
        both = zip(counters, stamps, strict=True)
        text = "".join(scrape(300.0, counter, stamp) for counter, stamp in both)
        table = read("dcgm", write(text, "metrics.prom"))["dcgm"]
        assert set(table["power_from"]) == {"reading"}


def test_dcgm_series_repeated_begins_a_scrape_without_help_lines(write):
    text = scrape(300.0, help_lines=False) + scrape(310.0, help_lines=False)
    table = read("dcgm", write(text, "metrics.prom"))["dcgm"]
    assert table["avg_power_w"].tolist() == [300.0, 310.0]


def test_dcgm_board_power_counts_once(write):
    """Neither MIG instances nor containers that share a GPU add rows."""
    board = 'gpu="0",UUID="GPU-1",modelName="NVIDIA H100 80GB HBM3"'
    instance = board + ',GPU_I_PROFILE="1g.10gb",GPU_I_ID="{}"'
    parts = [scrape(labels=instance.format(i), help_lines=False) for i in (7, 8)]
    parts.append(scrape(labels=board, help_lines=False))
    parts.append(scrape(labels=board + ',pod="other"', help_lines=False))
    table = read("dcgm", write("".join(parts), "metrics.prom"))["dcgm"]
    assert len(table) == 1
    assert noted(table, "MIG instances left out")


def test_dcgm_blank_and_absent_activities_are_missing(write):
    text = scrape(shares=SHARES | {"SM_OCCUPANCY": 9223372036854775794})
    table = read("dcgm", write(text, "metrics.prom"))["dcgm"]
    assert "sm_occupancy" not in table


def test_dcgm_tensor_pipes_are_named(write):
    text = scrape(shares=SHARES | {"PIPE_TENSOR_ACTIVE": 0.3})
    assert noted(read("dcgm", write(text, "m.prom"))["dcgm"], "tensor pipes were busy")


def test_dcgm_shares_a_little_above_one_are_one(write):
    text = scrape(shares=SHARES | {"SM_ACTIVE": 1.005})
    assert read("dcgm", write(text, "m.prom"))["dcgm"]["sm_active"].tolist() == [1.0]
