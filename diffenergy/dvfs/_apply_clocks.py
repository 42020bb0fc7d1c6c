#!/usr/bin/env python3
"""Applies a frequency schedule to a GPU; the default clocks come back on any exit.

Inside a program of yours (as root, or whoever may set clocks):

    from apply_clocks import Clocks      # the name of this file

    with Clocks(gpu=0) as clocks:
        for batch in batches:
            clocks.apply("forward")      # a schedule of stages: where a stage begins
            clocks.begin()               # a schedule of kernels: where a batch begins

Beside a program that need not be root, with a line on stdin where it would make such a
call: the name of a stage, or `begin`.

    my_program | sudo python3 apply_clocks.py

Around a program, if one pair of clocks serves the whole iteration:

    sudo python3 apply_clocks.py -- my_program its arguments

`--dry-run` shows what would be done. Stages go through `nvidia-smi`, kernels through
NVML (Python package nvidia-ml-py), whose requests are sent `latency_s` ahead of the
planned time. What ends this process without asking it (SIGKILL, a lost machine) leaves
the clocks locked: `nvidia-smi -i GPU -rgc` and `-rmc` reset them.
"""

import argparse
import atexit
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from types import FrameType
from typing import Any, Protocol

SCHEDULE: dict[str, Any] = {}

SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")
WHICH = ("sm", "mem")


class Board(Protocol):
    """A GPU whose clocks "sm" and "mem" can be locked (MHz) or reset (None)."""

    def set(self, which: str, mhz: int | None) -> None: ...

    def close(self) -> None: ...


class Smi:
    """Clocks of GPU number `gpu` through the command nvidia-smi."""

    FLAGS = {"sm": ("-lgc", "-rgc"), "mem": ("-lmc", "-rmc")}

    def __init__(self, gpu: int):
        self.gpu = gpu
        if shutil.which("nvidia-smi") is None:
            raise RuntimeError("nvidia-smi is not on the PATH; try --dry-run")

    @classmethod
    def command(cls, gpu: int, which: str, mhz: int | None) -> list[str]:
        """What locks the clock `which`, or resets it (None)."""
        lock, reset = cls.FLAGS[which]
        return ["nvidia-smi", "-i", str(gpu)] + (
            [reset] if mhz is None else [lock, f"{mhz},{mhz}"]
        )

    def set(self, which: str, mhz: int | None) -> None:
        command = self.command(self.gpu, which, mhz)
        # a session of its own: Ctrl-C in the terminal does not reach it
        done = subprocess.run(
            command, capture_output=True, text=True, start_new_session=True
        )
        if done.returncode:
            output = " ".join((done.stdout + done.stderr).split())
            raise RuntimeError(f"`{' '.join(command)}` failed: {output}")

    def close(self) -> None:
        pass


class Nvml:
    """Clocks of GPU number `gpu` through NVML: milliseconds instead of a process."""

    def __init__(self, gpu: int):
        try:
            import pynvml  # pyright: ignore[reportMissingImports]
        except ImportError:
            raise RuntimeError(
                "the Python package nvidia-ml-py is missing; install it or try "
                "--dry-run"
            ) from None
        self.nvml = pynvml
        pynvml.nvmlInit()
        self.handle = pynvml.nvmlDeviceGetHandleByIndex(gpu)

    def set(self, which: str, mhz: int | None) -> None:
        kind = {"sm": "Gpu", "mem": "Memory"}[which]
        if mhz is None:
            getattr(self.nvml, f"nvmlDeviceReset{kind}LockedClocks")(self.handle)
        else:
            lock = getattr(self.nvml, f"nvmlDeviceSet{kind}LockedClocks")
            lock(self.handle, mhz, mhz)

    def close(self) -> None:
        self.nvml.nvmlShutdown()


class Clocks:
    """Context in which the schedule is applied, from the clocks of its first stage on.

    Leaving it resets every clock that the schedule locks, and so do the end of the
    program, Ctrl-C, `kill` and a closed terminal. After that nothing is set any more.
    """

    def __init__(self, gpu: int = 0):
        self.by_kernel = SCHEDULE["granularity"] == "kernel"
        self.board: Board = Nvml(gpu) if self.by_kernel else Smi(gpu)
        self.now: dict[str, int | None] = dict.fromkeys(WHICH)
        self.changed: set[str] = set()
        self.wake = threading.Condition()  # with a lock that a thread may take twice
        self.began: float | None = None  # of the iteration that is not yet played
        self.trouble: Exception | None = None
        self.closed = False
        self.setting = False  # the main thread is at it: signals wait
        self.signal: int | None = None
        self.handlers: dict[int, Any] = {}

    def __enter__(self) -> "Clocks":
        atexit.register(self.restore)
        self._catch_signals()
        try:
            if self.by_kernel:
                self._set(*SCHEDULE["changes"][0][1:3])
                threading.Thread(target=self._play, daemon=True).start()
            else:
                self._set(*next(iter(SCHEDULE["stages"].values())))
        except BaseException:
            self.restore()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.restore()

    def apply(self, stage: str) -> None:
        """Sets the clocks of `stage`."""
        stages = SCHEDULE.get("stages", {})
        if stage not in stages:
            known = ", ".join(stages) or "none: mark iterations with begin()"
            raise ValueError(f"the schedule has no stage {stage!r} (there are {known})")
        self._set(*stages[stage])

    def begin(self) -> None:
        """Says that an iteration begins now; a thread sets its clocks in time."""
        if not self.by_kernel:
            raise ValueError("the schedule has stages; mark them with apply(stage)")
        with self.wake:
            if self.trouble is not None:
                raise self.trouble
            self.began = time.monotonic()
            self.wake.notify_all()

    def restore(self) -> None:
        """Resets what was locked; tries all of it, and says on stderr what failed."""
        with self.wake:
            if self.closed:
                return
            self.closed = True
            self.wake.notify_all()
            self.setting = True
            for which in sorted(self.changed):
                try:
                    self.board.set(which, None)
                except Exception as error:
                    print(f"the clocks are still locked: {error}", file=sys.stderr)
                    self.trouble = error
            self.board.close()
            self.setting = False
        # Python lets only the main thread set handlers
        if threading.current_thread() is threading.main_thread():
            for number, old in self.handlers.items():
                signal.signal(number, old)
        self._answer_signal()

    def _set(self, sm: int | None, mem: int | None) -> None:
        """Sends what differs from the clocks that are set."""
        with self.wake:
            main = threading.current_thread() is threading.main_thread()
            self.setting = self.setting or main
            try:
                for which, mhz in zip(WHICH, (sm, mem), strict=True):
                    if self.closed or self.now[which] == mhz:
                        continue
                    self.changed.add(which)
                    self.board.set(which, mhz)
                    self.now[which] = mhz
            finally:
                self.setting = self.setting and not main
        if main:
            self._answer_signal()

    def _play(self) -> None:
        """Sets the clocks of every iteration at their planned times, ahead by latency.

        Ends each with the first clocks, for the iteration that is likely to follow.
        """
        changes = SCHEDULE["changes"]
        steps = [*changes, [SCHEDULE["duration_s"], *changes[0][1:]]]
        with self.wake:
            while not self.closed:
                if self.began is None:
                    self.wake.wait()
                    continue
                began, self.began = self.began, None
                try:
                    for start, sm, mem, *_ in steps:
                        if not self._reached(began + start - SCHEDULE["latency_s"]):
                            break
                        self._set(sm, mem)
                except Exception as error:
                    self.trouble = error
                    print(f"the schedule has stopped: {error}", file=sys.stderr)
                    return

    def _reached(self, due: float) -> bool:
        """Waits for the time `due`; False if something else comes first."""
        while not self.closed and self.began is None:
            left = due - time.monotonic()
            if left <= 0:
                return True
            self.wake.wait(left)
        return False

    def _catch_signals(self) -> None:
        """Lets signals restore the clocks first; only the main thread may."""
        if threading.current_thread() is not threading.main_thread():
            return
        for name in SIGNALS:
            if not hasattr(signal, name):  # no SIGHUP on Windows
                continue
            number = getattr(signal, name)
            old = signal.getsignal(number)
            if old is not None and old != signal.SIG_IGN:
                self.handlers[number] = old
                signal.signal(number, self._interrupted)

    def _interrupted(self, number: int, frame: FrameType | None) -> None:
        self.signal = number
        if not self.setting:
            self.restore()

    def _answer_signal(self) -> None:
        """Does what the last signal asks for, once the clocks are back."""
        if self.signal is None:
            return
        if not self.closed:
            self.restore()
            return
        number, self.signal = self.signal, None
        old = self.handlers[number]
        if callable(old):
            old(number, None)
        else:
            raise SystemExit(128 + number)


def shown(sm: int | None, mem: int | None) -> str:
    """A setting in words."""
    words = ["auto" if mhz is None else f"{mhz} MHz" for mhz in (sm, mem)]
    return f"SM {words[0]}, memory {words[1]}"


def dry_run(gpu: int) -> None:
    """Prints what would be done."""
    by_kernel = SCHEDULE["granularity"] == "kernel"
    changes = SCHEDULE["changes"] if by_kernel else []
    stages = {} if by_kernel else SCHEDULE["stages"]
    pairs = [*stages.values(), *(change[1:3] for change in changes)]
    locked = [any(pair[i] is not None for pair in pairs) for i in range(len(WHICH))]
    for start, sm, mem, kernel in changes:
        print(f"{start - SCHEDULE['latency_s']:+.6f} s: {shown(sm, mem)} for {kernel}")
    for stage, pair in stages.items():
        print(f"{stage}: {shown(*pair)}")
        for which, mhz, used in zip(WHICH, pair, locked, strict=True):
            if used:
                print(f"  {' '.join(Smi.command(gpu, which, mhz))}")
    for which, used in zip(WHICH, locked, strict=True):
        if used:
            print(f"at the end: {' '.join(Smi.command(gpu, which, None))}")


def follow(clocks: Clocks, lines: Iterable[str]) -> None:
    """Takes markers from `lines` until they end."""
    for line in lines:
        marker = line.strip()
        if marker == "begin" and clocks.by_kernel:
            clocks.begin()
        elif marker:
            clocks.apply(marker)
    if clocks.by_kernel:
        time.sleep(SCHEDULE["duration_s"])  # of the last iteration


def run(command: list[str]) -> int:
    """Exit status of `command`; it ends with this process."""
    process = subprocess.Popen(command)
    try:
        return process.wait()
    finally:
        if process.poll() is None:
            process.terminate()


def main() -> int:
    parser = argparse.ArgumentParser(
        description=f"Applies clocks: {SCHEDULE['title']}. Without a command, markers "
        "are read from stdin. The default clocks come back on any exit."
    )
    parser.add_argument("--gpu", type=int, default=0, help="number in nvidia-smi")
    parser.add_argument("--dry-run", action="store_true", help="only show what to do")
    parser.add_argument("command", nargs="*", help="program to run meanwhile")
    arguments = parser.parse_args()
    if arguments.dry_run:
        dry_run(arguments.gpu)
        return 0
    # nohup and shells in the background hand it down ignored: it is to restore
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if arguments.command and SCHEDULE["granularity"] != "iteration":
        parser.error("a command cannot mark its stages or kernels; use stdin or import")
    status = 0
    try:
        with Clocks(arguments.gpu) as clocks:
            if arguments.command:
                status = run(arguments.command)
            else:
                follow(clocks, sys.stdin)
    except KeyboardInterrupt:
        return 130
    except (OSError, RuntimeError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 2 if clocks.trouble else status


if __name__ == "__main__":
    sys.exit(main())
