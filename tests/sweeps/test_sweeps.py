"""Sweeps: every configuration a row as `estimate` answers it, parts, resume, Ray."""

import contextlib
import dataclasses
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import diffenergy as de
from diffenergy.estimator import prepare
from diffenergy.sweeps import _block
from diffenergy.sweeps._block import FIGURES
from diffenergy.sweeps._parts import part_path

pytestmark = pytest.mark.slow

SPEC = """
block = 8
[axes]
gpu = ["a10", "l4"]
batch = [1, 4, 100000]
power_limit = [72, 60]
sm_clock = "600:1200:200"
[fixed]
model = "gpt2"
phase = "decode"
input_len = 64
"""
ROWS = 2 * 3 * 2 * 4


@pytest.fixture
def spec(tmp_path: Path) -> str:
    path = tmp_path / "spec.toml"
    path.write_text(SPEC)
    return str(path)


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, pd.DataFrame]:
    folder = tmp_path_factory.mktemp("sweep")
    (folder / "spec.toml").write_text(SPEC)
    out = folder / "out.parquet"
    result = de.sweeps.run(str(folder / "spec.toml"), str(out))
    assert (result["rows"], result["blocks"], result["computed"]) == (ROWS, 6, 6)
    assert not (folder / "out.parquet.parts").exists()
    return out, pd.read_parquet(out)


def test_every_configuration_has_its_row(swept: tuple[Path, pd.DataFrame]):
    frame = swept[1]
    axes = ["gpu", "batch", "power_limit", "sm_clock"]
    assert list(frame) == [*axes, *FIGURES, "error"]
    assert len(frame) == ROWS == len(frame[axes].drop_duplicates())
    assert frame[axes].iloc[:3].values.tolist() == [
        ["a10", 1, 72.0, 600.0], ["a10", 1, 72.0, 800.0], ["a10", 1, 72.0, 1000.0],
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("phase", ["generate", "decode"])
def test_rows_are_what_estimate_answers(tmp_path: Path, phase: Any):
    more: dict[str, Any] = {"output_len": 5} if phase == "generate" else {}
    lines = "".join(f"\n{name} = {value}" for name, value in more.items())
    text = SPEC.replace('"decode"', f'"{phase}"{lines}', 1)
    for old, new in (('"a10", ', ""), ("4, 100000", "256"), (":1200:", ":2000:")):
        assert old in text
        text = text.replace(old, new)  # an L4 that its limit holds
    (tmp_path / "spec.toml").write_text(text)
    out = tmp_path / "out.parquet"
    de.sweeps.run(str(tmp_path / "spec.toml"), str(out))
    frame: Any = pd.read_parquet(out)
    good = frame[frame["error"].isna()]
    limited = good[good["sm_clock_held_mhz"] < 0.999 * good["sm_clock"]]
    free = good[good["sm_clock_held_mhz"] > 0.999 * good["sm_clock"]]
    assert len(limited) > 1 and len(free) > 1  # the limit binds in some rows
    rows = pd.concat([x.iloc[:: max(1, len(x) // 2)] for x in (limited, free)])
    every: Any = rows.itertuples()
    for row in every:
        result = de.estimate(
            "gpt2", row.gpu, phase=phase, batch=int(row.batch), input_len=64,
            sm_clock=row.sm_clock * 1e6, power_limit=row.power_limit, **more,
        ).summary  # fmt: skip
        for mine, theirs in PAIRS.items():
            if result[theirs] is None:
                assert pd.isna(getattr(row, mine))
            else:
                assert getattr(row, mine) == pytest.approx(result[theirs], rel=1e-6)


PAIRS = {x: x for x in FIGURES} | {"sm_clock_held_mhz": "sm_clock_mhz"}


def test_what_has_no_answer_says_why(swept: tuple[Path, pd.DataFrame]):
    """A limit that an A10 has not, a batch that no memory holds: a text each, and
    nulls; the others keep their answers."""
    frame: Any = swept[1]
    large = frame[frame["batch"] == 100_000]
    assert large["error"].notna().all() and large["time_s"].isna().all()
    assert large[large["gpu"] == "l4"]["error"].str.contains("memory|GiB|fit").all()
    below = frame[(frame["gpu"] == "a10") & (frame["batch"] == 1)]
    assert below["error"].notna().tolist() == [
        limit < 100 for limit in below["power_limit"]
    ]
    assert below["error"].str.contains("power_limit").all()
    fine = frame[(frame["gpu"] == "l4") & (frame["batch"] < 100_000)]
    assert (fine["error"].notna() == fine["time_s"].isna()).all()
    assert fine["time_s"].notna().any()


def test_points_that_a_board_lacks_cost_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """2,400 MHz is beyond an L4 (2,040), 20 W below what it accepts: each workload is
    prepared once, its other points are as without these, and what no memory holds says
    so at every clock of the board."""
    prepared: list[str] = []

    def counted(model: str, **request: Any):
        prepared.append(model)
        return prepare(model, **request)

    monkeypatch.setattr(_block, "prepare", counted)
    axes = 'gpu = ["l4"]\nbatch = [1, 2, 100000]\n'
    fixed = '[fixed]\nmodel = "gpt2"\nphase = "decode"\ninput_len = 64\n'

    def rows(clocks: list[int], limits: list[int]) -> Any:
        points = f"sm_clock = {clocks}\npower_limit = {limits}\n"
        (tmp_path / "spec.toml").write_text(f"[axes]\n{axes}{points}{fixed}")
        de.sweeps.run(str(tmp_path / "spec.toml"), str(tmp_path / "out.parquet"))
        return pd.read_parquet(tmp_path / "out.parquet")

    every = rows([2400, 600, 900], [72, 20, 60])
    assert len(prepared) == 3
    lacking = (every["sm_clock"] > 2040) | (every["power_limit"] < 40)
    small = every["batch"] < 100_000
    assert every["error"].notna().tolist() == (lacking | ~small).tolist()
    assert every["error"][every["sm_clock"] > 2040].str.startswith("`sm_clock`").all()
    large = every["error"][~small & ~lacking]
    assert len(large) == 4 and not large.str.contains("sm_clock").any()
    had = rows([600, 900], [72, 60])
    pd.testing.assert_frame_equal(
        every[~lacking][list(FIGURES)].reset_index(drop=True), had[list(FIGURES)]
    )


@pytest.mark.slow
def test_resume_does_what_is_missing(spec: str, swept: Any, tmp_path: Path):
    folder = tmp_path / "parts"
    first = de.sweeps.run(spec, str(folder))
    assert sorted(x.name for x in folder.glob("part-*")) == [
        f"part-{i:06d}.parquet" for i in range(6)
    ]
    gone = part_path(folder, 2)
    content = pd.read_parquet(gone)
    gone.unlink()
    written = part_path(folder, 3).stat().st_mtime_ns
    again = de.sweeps.run(spec, str(folder), resume=True)
    assert (first["computed"], again["computed"]) == (6, 1)
    pd.testing.assert_frame_equal(pd.read_parquet(gone), content)
    assert part_path(folder, 3).stat().st_mtime_ns == written
    none = de.sweeps.run(spec, str(folder), resume=True)
    assert none["computed"] == 0 and none["rows_per_s"] is None


def test_resume_refuses_another_sweep(spec: str, swept: Any):
    other = de.sweeps.read_spec(spec)
    other = dataclasses.replace(other, fixed={**other.fixed, "input_len": 65})
    with pytest.raises(ValueError, match="is of another sweep"):
        de.sweeps.run(other, str(swept[0]), resume=True)
    before = swept[0].stat().st_mtime_ns
    assert de.sweeps.run(spec, str(swept[0]), resume=True)["computed"] == 0
    assert swept[0].stat().st_mtime_ns == before


@pytest.mark.slow
def test_an_old_file_stays_until_the_new_one_is_whole(
    spec: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    out = tmp_path / "out.csv"
    out.write_text("old")
    calls = []

    def progress(done: int, total: int):
        calls.append(done)
        assert out.read_text() == "old"
        if done >= 16:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        de.sweeps.run(spec, str(out), progress=progress)
    assert calls == [0, 8, 16]
    result = de.sweeps.run(spec, str(out), resume=False)
    assert result["computed"] == 6
    frame = pd.read_csv(out)
    assert len(frame) == ROWS
    assert (tmp_path / "out.csv.spec.json").exists()


def test_words_of_the_gpu_are_axes(tmp_path: Path):
    """Rows are what `estimate` answers of the same what-if."""
    (tmp_path / "spec.toml").write_text(
        '[axes]\n"gpu.process_node" = ["4N", "N2"]\n"gpu.memory" = ["HBM3", "HBM4"]\n'
        '[fixed]\nmodel = "gpt2"\ngpu = "h100-sxm"\nphase = "decode"\n'
    )
    out = tmp_path / "out.parquet"
    de.sweeps.run(str(tmp_path / "spec.toml"), str(out))
    frame: Any = pd.read_parquet(out)
    assert len(frame) == 4 and frame["error"].isna().all()
    for _, row in frame.iterrows():
        words = {"process_node": row["gpu.process_node"], "memory": row["gpu.memory"]}
        same = de.estimate("gpt2", "h100-sxm", phase="decode", changes=words)
        assert row["energy_j"] == pytest.approx(same.energy, rel=1e-6)
    assert frame["energy_j"].is_monotonic_decreasing


HAS_RAY = importlib.util.find_spec("ray") is not None
needs_ray = pytest.mark.skipif(not HAS_RAY, reason="Ray is not installed (sweep).")
LONG = """
block = 4
[axes]
batch = "1:16:1"
sm_clock = "600:1200:200"
[fixed]
model = "gpt2"
gpu = "l4"
phase = "decode"
input_len = 64
"""


@pytest.mark.slow
@needs_ray
def test_a_killed_worker_loses_nothing(tmp_path: Path):
    """`ray start --head` with two CPUs; a worker is killed by its id while blocks are
    computed; all rows are there, once, and the cluster stays."""
    (tmp_path / "spec.toml").write_text(LONG)
    ray = [sys.executable, "-m", "ray.scripts.scripts"]
    port = "63791"
    head = [*ray, "start", "--head", f"--port={port}", "--num-cpus=2", "--block",
            "--include-dashboard=false", "--disable-usage-stats"]  # fmt: skip
    cluster = subprocess.Popen(
        head, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        _wait_for(int(port), cluster)
        parts = tmp_path / "parts.parts"
        command = [sys.executable, "-m", "diffenergy", "sweep", "spec.toml", "--out",
                   "parts", "--ray", f"127.0.0.1:{port}", "--json"]  # fmt: skip
        paths = os.pathsep.join([os.getcwd(), os.environ.get("PYTHONPATH", "")])
        environment = {**os.environ, "PYTHONPATH": paths}
        run = subprocess.Popen(
            command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        killed = None
        while run.poll() is None:
            if killed is None and len(list(parts.glob("part-*"))) >= 2:
                killed = _worker()
                os.kill(killed, signal.SIGKILL)
            time.sleep(0.05)
        _, error = run.communicate()
        assert run.returncode == 0, error
        assert killed is not None
        frame: Any = pd.concat(
            map(pd.read_parquet, sorted((tmp_path / "parts").glob("part-*")))
        )
        assert len(frame) == 16 * 4 == len(frame.drop_duplicates(["batch", "sm_clock"]))
        assert frame["error"].isna().all()
        assert cluster.poll() is None  # what was not started by the sweep goes on
    finally:
        cluster.terminate()
        cluster.wait(60)


def _wait_for(port: int, cluster: "subprocess.Popen[bytes]") -> None:
    """Returns when somebody listens at a port."""
    import socket

    for _ in range(600):
        assert cluster.poll() is None
        with (
            contextlib.suppress(OSError),
            socket.create_connection(("127.0.0.1", port), 1),
        ):
            return
        time.sleep(0.1)
    raise AssertionError("the cluster did not start")


def _worker() -> int:
    """Process of a worker that computes a block."""
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                words = (folder / "cmdline").read_text().replace("\0", " ")
            except OSError:
                continue
            if words.startswith("ray::one_block"):
                return int(folder.name)
    raise AssertionError("no worker was at work")


@pytest.mark.slow
@pytest.mark.parametrize(
    "fixed",
    [
        {"model": "gpt2", "phase": "train", "lora": 8, "lora_layers": "attention"},
        {
            "model": "qwen3-8b", "speculative": "eagle", "accept": 0.7,
            "draft_tokens": 2, "output_len": 64,
        },
        {"model": "gpt2", "phase": "prefill", "corrections": "none"},
    ],
)  # fmt: skip
def test_what_is_fixed_is_any_flag_of_an_estimate(fixed: dict[str, Any], tmp_path):
    """A row is the estimate with the same keywords."""
    lines = [f"{key} = {json.dumps(value)}" for key, value in fixed.items()]
    spec = tmp_path / "spec.toml"
    spec.write_text("\n".join(["[axes]", "sm_clock = [1200]", "[fixed]", *lines]))
    de.sweeps.run(str(spec), str(tmp_path / "rows.csv"))
    row = pd.read_csv(tmp_path / "rows.csv").iloc[0]
    alone = de.estimate(**fixed, sm_clock=1.2e9).summary
    for key in ("time_s", "energy_j", "energy_j_per_token"):
        assert row[key] == pytest.approx(alone[key], rel=1e-9)
