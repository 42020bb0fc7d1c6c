"""What holds for every importer, and `calibration/datasets.py`."""

from pathlib import Path

import pytest

from calibration import datasets
from calibration.importers import importers
from diffenergy import measurements

LOG = (
    "start_time,window_name,elapsed_time,gpu0_energy\n"
    "1.0,bert,10.0,3000.0\n"
    "20.0,bert,10.0,0\n"
)


@pytest.mark.parametrize("name", list(importers()))
def test_contract(name: str):
    module = importers()[name]
    assert module.NAME == name and module.__name__.endswith(f".{name}")
    assert "\n" not in module.ABOUT and 20 < len(module.ABOUT) <= 80


@pytest.mark.parametrize("name", list(importers()))
def test_nothing_to_read_is_an_error(name: str, tmp_path: Path):
    for path in (tmp_path, tmp_path / "absent", tmp_path / "absent.csv"):
        with pytest.raises(ValueError) as error:
            importers()[name].read(path)
        assert str(tmp_path) in str(error.value)


@pytest.mark.parametrize(
    "name, file",
    [
        ("gpmtool", "microbenchmark_power.csv.gz"),
        ("neusight", "gemm_fp32.csv.gz"),
        ("vidur", "transformer_ops.csv.gz"),
        ("nv_dvfs", "older_gpus_nvprof.csv.gz"),
        ("kernel_tuner_tiles", "gemm_fp32_4096.csv.gz"),
    ],
)
def test_cut_archive_is_an_error(name: str, file: str, write):
    path = write("gpu,op\n" + "a100,gemm\n" * 99, file)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(ValueError, match="cut short"):
        importers()[name].read(path.parent)


def test_script_writes_tables_and_says_what_it_dropped(write, tmp_path: Path, capsys):
    log, out = write(LOG, "run.csv"), tmp_path / "new" / "tables"
    assert datasets.main(["zeus", str(log), "--out", str(out)]) == 0
    reported = capsys.readouterr()
    assert f"{out / 'zeus_run.csv'}: 1 rows" in reported.out
    assert "1 of 2 rows left out: no energy was read" in reported.out
    assert reported.err == ""
    table = measurements.read(
        [str(out / "zeus_run.csv")], workloads={"bert": []}, gpu="a10"
    )
    assert table.energy_j.tolist() == [3000.0]


def test_script_lists_formats(capsys):
    assert datasets.main(["--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(importers())


@pytest.mark.parametrize(
    "arguments, words",
    [
        ("excel {log} --out {out}", "`FORMAT` is 'excel'; allowed are aiconf"),
        ("zeus {out}/absent.csv --out {out}", "no such file"),
        ("zeus {binary} --out {out}", "not UTF-8"),
        ("zeus {cut} --out {out}", "line 4: the row has 2 cells"),
        ("zeus {log}", "`--out FOLDER`"),
        ("zeus --out {out}", "`PATH`"),
        ("zeus {log} --out {log}", "a file; give a folder"),
        ("zeus {log} --other 3", "--other"),
        ("", "`FORMAT` is ''"),
    ],
)
def test_script_bad_input_is_one_line(
    arguments: str, words: str, write, tmp_path: Path, capsys
):
    binary = write("", "run.bin")
    binary.write_bytes(b"\xff\xfe\x00")
    out = tmp_path / "out"
    files = {
        "log": write(LOG, "run.csv"),
        "cut": write(LOG + "30.0,b", "cut.csv"),
        "binary": binary,
        "out": out,
    }
    assert datasets.main(arguments.format(**files).split()) == 2
    reported = capsys.readouterr()
    assert len(reported.err.splitlines()) == 1 and words in reported.err
    assert reported.out == "" and not out.exists()


def test_script_never_overwrites_its_input(write, capsys):
    log = write(LOG, "zeus_run.csv").rename(write(LOG, "run.csv"))
    before = log.read_bytes()
    (log.parent / "zeus_run.csv").hardlink_to(log)
    assert datasets.main(["zeus", str(log), "--out", str(log.parent)]) == 2
    assert "never overwritten" in capsys.readouterr().err
    assert log.read_bytes() == before
