"""Scripts that apply a schedule, run against a GPU that only takes notes."""

import dataclasses
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from diffenergy.dvfs import Plan, Problem, launches
from diffenergy.workload import Loop

from .builders import apply_script

AUTO, LOW, BOTH, MEMORY = range(4)
SETTINGS = np.array([[np.nan, np.nan], [9e8, np.nan], [1.5e9, 5.001e9], [np.nan, 4e8]])
KERNELS = ("gemm", "norm", "head")
SMI = """#!/bin/sh
echo "smi $*" >> "$LOG"
case "$*" in *"${FAIL_ON:-nothing}"*) echo "no permission"; exit 4 ;; esac
exit 0
"""
PYNVML = """
import os, time
def _note(name):
    def call(*args):
        with open(os.environ["LOG"], "a") as log:
            log.write(f"{time.monotonic():.6f} {name} {args}\\n")
        return "board" if name == "nvmlDeviceGetHandleByIndex" else None
    return call
for name in (
    "nvmlInit", "nvmlShutdown", "nvmlDeviceGetHandleByIndex",
    "nvmlDeviceSetGpuLockedClocks", "nvmlDeviceSetMemoryLockedClocks",
    "nvmlDeviceResetGpuLockedClocks", "nvmlDeviceResetMemoryLockedClocks",
):
    globals()[name] = _note(name)
"""


def problem(time: float = 0.1) -> Problem:
    """Twice gemm and norm, then head in a stage of its own; `time` s each."""
    shape = (len(KERNELS), len(SETTINGS))
    return Problem(
        kernels=KERNELS, stages=("forward", "backward"), stage=np.array([0, 0, 1]),
        count=np.array([2.0, 2.0, 1.0]), settings=SETTINGS, time=np.full(shape, time),
        energy=np.full(shape, 10.0), default_time=np.full(3, time),
        default_energy=np.full(3, 11.0), loops=(Loop((0, 1), 2), Loop((2,), 1)),
        power_cap=np.full(2, np.inf), host_time=np.zeros(2), wait_power=np.zeros(2),
    )  # fmt: skip


def plan(*setting: int, time: float = 0.1) -> Plan:
    """One setting a kernel."""
    rows = np.arange(3), np.array(setting), np.array([2.0, 2.0, 1.0])
    return Plan(*rows, 5 * time, 50.0, 50.0, 50.0, 50.0, "by hand", np.nan)


class Bench:
    """A folder with a fake nvidia-smi and pynvml, and the script."""

    def __init__(self, folder: Path):
        self.folder, self.log = folder, folder / "log"
        smi = folder / "nvidia-smi"
        smi.write_text(SMI)
        smi.chmod(smi.stat().st_mode | stat.S_IXUSR)
        (folder / "pynvml.py").write_text(PYNVML)
        self.environment = dict(PYTHONPATH=str(folder), LOG=str(self.log), FAIL_ON="")
        self.environment["PATH"] = f"{folder}:/usr/bin:/bin"

    def start(self, text: str, *args: str, **environment: str) -> subprocess.Popen:
        """Runs the script."""
        (self.folder / "apply_clocks.py").write_text(text)
        return self.python("apply_clocks.py", *args, **environment)

    def python(self, *args: str, **environment: str) -> subprocess.Popen:
        """Runs a program beside it."""
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        return subprocess.Popen(
            [sys.executable, *args], cwd=self.folder, text=True,
            env=self.environment | environment, **pipes,
        )  # fmt: skip

    def lines(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []

    def wait_for(self, word: str) -> None:
        end = time.monotonic() + 10
        while not any(word in line for line in self.lines()):
            assert time.monotonic() < end, f"no {word} in {self.lines()}"
            time.sleep(0.01)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


BY_STAGE = apply_script(problem(), plan(BOTH, BOTH, LOW), "phase")  # forward first
FORWARD = ["smi -i 0 -lgc 1500,1500", "smi -i 0 -lmc 5001,5001"]
RESET = ["smi -i 0 -rmc", "smi -i 0 -rgc"]


def test_stages_from_stdin(bench):
    process = bench.start(BY_STAGE, "--dry-run", PATH="/nowhere")
    reported, _ = process.communicate()
    assert process.returncode == 0 and bench.lines() == []
    first, *rest = reported.splitlines()
    assert first == "forward: SM 1500 MHz, memory 5001 MHz"
    assert rest[:2] == [x.replace("smi", "  nvidia-smi") for x in FORWARD]
    assert "at the end: nvidia-smi -i 0 -rmc" in reported
    process = bench.start(BY_STAGE)
    _, errors = process.communicate("backward\n\nforward\n")
    assert (process.returncode, errors) == (0, "")
    backward = ["smi -i 0 -lgc 900,900", "smi -i 0 -rmc"]
    assert bench.lines() == [*FORWARD, *backward, *FORWARD, *RESET]


@pytest.mark.parametrize("word", ["-lmc", "-lgc"])
@pytest.mark.parametrize(
    "number, inherited, status",
    [
        (signal.SIGTERM, signal.SIG_DFL, 143),
        (signal.SIGINT, signal.SIG_IGN, 130),  # under nohup, behind a script
        (signal.SIGHUP, signal.SIG_DFL, 129),
    ],
)
def test_signals_restore(bench, number, inherited, status, word):
    """One that comes while clocks are set waits until the command is through."""
    slow = SMI.replace("exit 0", 'case "$*" in *-lgc*) sleep 0.5 ;; esac; exit 0')
    if word == "-lgc":
        (bench.folder / "nvidia-smi").write_text(slow)
    mine = signal.signal(number, inherited)
    try:
        process = bench.start(BY_STAGE)
    finally:
        signal.signal(number, mine)
    bench.wait_for(word)
    process.send_signal(number)
    process.communicate(timeout=10)
    assert process.returncode == status
    assert bench.lines() == [*FORWARD, *RESET]


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("clocks = Clocks(gpu=3).__enter__()\nclocks.apply('backward')\n"
         "raise KeyError('mine')", "KeyError: 'mine'"),
        ("with Clocks(gpu=3) as clocks:\n    clocks.apply('sideways')",
         "ValueError: the schedule has no stage 'sideways' (there are "),
        ("with Clocks(gpu=3) as clocks:\n    clocks.begin()",
         "ValueError: the schedule has stages; mark them with apply(stage)"),
    ],
)  # fmt: skip
def test_an_exception_restores(bench, words: str, error: str):
    """With and without `with`; markers that the schedule does not have raise one."""
    (bench.folder / "mine.py").write_text(f"from apply_clocks import Clocks\n{words}\n")
    (bench.folder / "apply_clocks.py").write_text(BY_STAGE)
    process = bench.python("mine.py")
    _, errors = process.communicate()
    assert process.returncode == 1 and error in errors
    assert bench.lines()[-2:] == ["smi -i 3 -rmc", "smi -i 3 -rgc"]


@pytest.mark.parametrize(
    ("stage", "environment", "error"),
    [
        ("sideways\n", {}, "no stage 'sideways'"),
        ("", {"FAIL_ON": "-lmc"}, "failed: no permission"),
        ("", {"FAIL_ON": "-rmc"}, "the clocks are still locked"),
        ("", {"PATH": "/nowhere"}, "error: nvidia-smi is not on the PATH; try --dry-"),
    ],
)
def test_a_failure_restores(bench, stage: str, environment: dict, error: str):
    """The second clock in spite of whatever the first one does."""
    process = bench.start(BY_STAGE, **environment)
    _, errors = process.communicate(stage)
    assert process.returncode == 2 and error in errors
    assert bench.lines()[-2:] == ([] if "PATH" in environment else RESET)


def test_one_pair_around_a_program(bench):
    text = apply_script(problem(), plan(LOW, LOW, LOW), "iteration")
    program = [sys.executable, "-c", "import os; os.system('nvidia-smi x'); exit(7)"]
    process = bench.start(text, "--gpu", "1", "--", *program)
    process.communicate()
    assert process.returncode == 7
    assert bench.lines() == ["smi -i 1 -lgc 900,900", "smi x", "smi -i 1 -rgc"]


def test_kernels_ahead_of_their_time(bench):
    """gemm and norm of 50 ms take turns; requests are sent 45 ms ahead."""
    each, ahead = 0.05, 0.045
    text = apply_script(problem(each), plan(LOW, BOTH, AUTO, time=each), latency=ahead)
    (bench.folder / "apply_clocks.py").write_text(text)
    (bench.folder / "mine.py").write_text(
        "import time\n"
        "from apply_clocks import Clocks\n"
        "with Clocks() as clocks:\n"
        "    for _ in range(2):\n"
        "        print(time.monotonic(), flush=True)\n"
        "        clocks.begin()\n"
        f"        time.sleep({5 * each})\n"
    )
    process = bench.python("mine.py")
    reported, errors = process.communicate()
    assert (process.returncode, errors) == (0, "")
    began = float(reported.splitlines()[0])
    calls = [line.split(maxsplit=1) for line in bench.lines()]
    calls = [(float(at) - began, what) for at, what in calls if "Clocks" in what]
    sets = [what.removeprefix("nvmlDevice").split("Locked")[0] for _, what in calls]
    low, both, auto = ["SetGpu"], ["SetGpu", "SetMemory"], ["ResetGpu", "ResetMemory"]
    again = ["SetGpu", "ResetMemory"]  # low once memory was locked
    turn = [*both, *again, *both, *auto]
    end = ["ResetMemory", "ResetGpu"]
    assert sets == [*low, *turn, *low, *turn, *low, *end]
    due = each * np.array([1, 1, 2, 2, 3, 3, 4, 4, 5]) - ahead
    late = np.array([at for at, _ in calls[1 : 1 + len(due)]]) - due
    assert late.min() > -2e-3 and np.median(late) < 0.03
    assert "norm" in bench.start(text, "--dry-run").communicate()[0]
    (bench.folder / "pynvml.py").write_text("raise ImportError")
    process = bench.start(text)
    _, errors = process.communicate("")
    assert process.returncode == 2 and "nvidia-ml-py is missing" in errors


@pytest.mark.parametrize("each", [0.01, 10.0])
def test_kernels_restore(bench, each: float):
    """At their end, or at a signal within the first of them."""
    process = bench.start(apply_script(problem(each), plan(BOTH, LOW, AUTO, time=each)))
    if each < 1:
        _, errors = process.communicate("begin\n")
        assert errors == ""
    else:
        bench.wait_for("SetMemory")
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=10)
    assert process.returncode == (0 if each < 1 else 143)
    names = [line.split()[1].removeprefix("nvml") for line in bench.lines()]
    sets = ["DeviceSetGpuLockedClocks", "DeviceSetMemoryLockedClocks"]
    resets = ["DeviceResetMemoryLockedClocks", "DeviceResetGpuLockedClocks"]
    assert names[:4] == ["Init", "DeviceGetHandleByIndex", *sets]
    assert names[-3:] == [*resets, "Shutdown"]
    assert (len(names) == 7) == (each > 1)


def test_names_stay_text():
    """Nothing in a name or title becomes code."""
    odd = 'x\'"\n"""; import os #'
    kernels = (odd, "norm", "head")
    changed = dataclasses.replace(problem(), kernels=kernels, stages=(odd, "b"))
    for granularity in ("kernel", "phase"):
        text = apply_script(changed, plan(LOW, LOW, AUTO), granularity, title=odd)
        space: dict = {"__name__": "applied"}
        exec(compile(text, "applied", "exec"), space)
        schedule = space["SCHEDULE"]
        assert schedule["title"] == " ".join(odd.split())
        kernels = [change[3] for change in schedule.get("changes", ())]
        assert odd in kernels or odd in schedule["stages"]


def test_launches_of_loops_and_parts():
    order = launches(problem(), plan(LOW, BOTH, AUTO))
    assert order.kernel.tolist() == [0, 1, 0, 1, 2]
    assert order.setting.tolist() == [LOW, BOTH, LOW, BOTH, AUTO]
    np.testing.assert_allclose(order.start, [0.0, 0.1, 0.2, 0.3, 0.4])
    np.testing.assert_allclose(order.time.sum(), 0.5)
    assert order.changes().tolist() == [0, 1, 2, 3, 4]
    parts = dataclasses.replace(
        plan(LOW, BOTH, AUTO),
        kernel=np.array([0, 1, 0, 2]),
        setting=np.array([LOW, BOTH, MEMORY, AUTO]),
        count=np.array([1.0, 2.0, 1.0, 1.0]),
        time=1.0,
    )
    order = launches(problem(), parts)
    assert order.setting.tolist() == [LOW, BOTH, MEMORY, BOTH, AUTO]
    np.testing.assert_allclose(order.time.sum(), 1.0)
    # rows that list the bodies in order repeat with every turn
    loops = (Loop((0, 1, 0), 2), Loop((2,), 1))
    twice = dataclasses.replace(problem(), loops=loops, count=np.array([4.0, 2, 1]))
    rows = dataclasses.replace(parts, count=np.array([2.0, 2.0, 2.0, 1.0]))
    body = [LOW, BOTH, MEMORY]
    assert launches(twice, rows).setting.tolist() == [*body, *body, AUTO]
