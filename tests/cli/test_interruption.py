"""Ctrl-C at any moment: status 130, no traceback, no half-written file."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from diffenergy import files

COMMANDS = {
    "estimate": ("estimate", "gpt2", "--phase", "decode", "--out", "e.json"),
    "codesign": ("codesign", "gpt2", "--phase", "decode", "--vary", "num_sms"),
    "collective": ("collective", "dgx1", "--collective", "all_gather")
    + ("--size", "200MB", "--out", "s.json"),
    "fit": ("fit", "gemm.csv", "--out", "f.json"),
    "dvfs": ("dvfs", "gpt2", "--phase", "decode", "--out", "d.csv"),
}
GRID = (50, 200, 400, 600, 800, 1250, 2000)
"""ms until Ctrl-C."""


@pytest.fixture(autouse=True)
def heard():
    """Ctrl-C counts, even where the tests run behind `nohup`: processes inherit that a
    signal is ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupted(folder: Path, words: tuple[str, ...], delay: float):
    """Runs a command as a process and sends Ctrl-C after `delay` ms."""
    rows = [f"a10,gemm,{m},1024,1024,fp16,{m / 4}" for m in range(256, 2560, 256)]
    text = "\n".join(["gpu,op,m,n,k,dtype,time_us", *rows])
    (folder / "gemm.csv").write_text(text + "\n")
    process = subprocess.Popen(
        [sys.executable, "-m", "diffenergy", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env={**os.environ, "XDG_CACHE_HOME": str(folder / "cache")},
    )
    time.sleep(delay / 1000)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    return process.returncode, out, err


def _starting(err: str) -> bool:
    """Whether Python itself was still starting."""
    return "runpy" in err or "init_import_site" in err


def check(folder: Path, words: tuple[str, ...], delay: float):
    """Interrupted, or all done and written before that counted."""
    code, _, err = interrupted(folder, words, delay)
    if delay == GRID[0] and (code == -signal.SIGINT or _starting(err)):
        return
    assert code == 130 and "interrupted" in err or code == 0, (code, err)
    assert "Traceback" not in err and "fault" not in err, err
    assert not list(folder.rglob("*.part"))
    written = [path for path in folder.iterdir() if path.suffix == ".json"]
    assert all(path.read_text().rstrip().endswith("}") for path in written)


# 300 ms: the parser is built; 700: JAX is being imported, in whichever part of it
@pytest.mark.parametrize("name, delay", [("estimate", 300), ("fit", 700)])
def test_ctrl_c_is_one_line(tmp_path: Path, name: str, delay: float):
    code, out, err = interrupted(tmp_path, COMMANDS[name], delay)
    assert (code, out, err) == (130, "", "diffenergy: interrupted\n")
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["gemm.csv"]


def test_ctrl_c_is_json_beside_json(tmp_path: Path):
    code, out, err = interrupted(tmp_path, (*COMMANDS["estimate"], "--json"), 300)
    assert (code, out) == (130, "")
    assert json.loads(err)["error"]["kind"] == "interrupted"


@pytest.mark.slow
@pytest.mark.parametrize("delay", GRID)
@pytest.mark.parametrize("name", COMMANDS)
def test_ctrl_c_at_any_moment(tmp_path: Path, name: str, delay: float):
    check(tmp_path, COMMANDS[name], delay)


SAVING = """
import signal, sys, time
from diffenergy.cli import interruption

interruption.install()


class Late:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)  # raised where nobody can take it


try:
    with interruption.keeping():
        {lost}
        time.sleep(10)
except KeyboardInterrupt:
    print("kept")
{after}
print("not reached")
"""


@pytest.mark.parametrize(
    "lost, after, said",
    [
        ("signal.raise_signal(signal.SIGINT)", "sys.exit()", "kept\n"),
        ("Late()", "sys.exit()", "kept\n"),
        ("import stopped", "sys.exit()", "loaded\nkept\n"),  # told once it is loaded
        ("1 / 1", "signal.raise_signal(signal.SIGINT)", ""),  # nothing to keep
    ],
)
def test_where_there_is_something_to_keep(
    tmp_path: Path, lost: str, after: str, said: str
):
    module = "import signal\nsignal.raise_signal(signal.SIGINT)\nprint('loaded')\n"
    (tmp_path / "stopped.py").write_text(module)
    script = SAVING.format(lost=lost, after=after).replace("sleep(10)", "sleep(0.2)")
    script = script if said else script.replace("time.sleep(0.2)", "pass")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert done.stdout == said
    expected = (0, "") if said else (130, "diffenergy: interrupted\n")
    assert (done.returncode, done.stderr) == expected


def test_a_file_is_written_before_ctrl_c_counts(tmp_path: Path, monkeypatch):
    written = os.fsync

    def stopped(number: int):
        signal.raise_signal(signal.SIGINT)
        written(number)

    monkeypatch.setattr(files.os, "fsync", stopped)
    with pytest.raises(KeyboardInterrupt):
        files.write_text_atomic(tmp_path / "a.txt", "whole")
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]
    assert (tmp_path / "a.txt").read_text() == "whole"
