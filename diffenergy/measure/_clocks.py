"""Setting clocks and power limits, and putting them back whatever happens."""

import contextlib
import json
import math
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Final

from ..files import write_text_atomic
from ..units import MHz
from ._reading import Clock
from ._sensor import NoPermission, Sensor

_TRIES: Final = 3
_PATIENCE: Final = 2.0
"""s after which a clock that did not move is taken to be locked still."""
_SIGNALS: Final = ("SIGINT", "SIGTERM", "SIGHUP")


class Control:
    """Context in which `apply` sets a board; on leaving, it is as it was.

    What was there is kept in the file `state` from before the first change until the
    board is back, so that a killed process leaves a trace. NVML does not tell whether
    clocks were locked: they are left unlocked. `say` is told of what stays changed.
    """

    def __init__(
        self, sensor: Sensor, clock: Clock, state: Path, say: Callable[[str], None]
    ):
        self._sensor, self._clock, self._state, self._say = sensor, clock, state, say
        self._limit = math.nan
        self._set: dict[str, float | None] = {}
        """What was changed: `clock` (Hz), `limit` (W); None: put back."""
        self._locked = math.nan  # the last clock that was

    def __enter__(self) -> "Control":
        return self

    def prepare(self, clock: float | None, limit: float | None) -> None:
        """Tries, before any work, whether clock and limit may be set.

        Raises `NoPermission` if not.
        """
        self.apply(clock, limit)
        self.apply(None, None)

    def apply(self, clock: float | None, limit: float | None) -> None:
        """Locks the SM clock (Hz) and sets the power limit (W); None: as it was."""
        if clock is not None:
            self._locked = clock
        self._change("clock", clock, self._lock)
        self._change("limit", limit, self._cap)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self._set:
            return
        with _handlers(signal.SIG_IGN):  # no signal until the board is back
            trouble = self._restore_with_retries()
            if trouble is None:
                self._state.unlink(missing_ok=True)
            else:
                command = restore_command(self._state_json())
                self._say(f"{trouble}; put the GPU back with `{command}`")

    def _change(
        self, what: str, value: float | None, change: Callable[[float | None], None]
    ) -> None:
        """Makes one change; writes the state file before the first."""
        if value == self._set.get(what):
            return
        if what == "limit" and math.isnan(self._limit):
            self._limit = self._read_limit()
        first = what not in self._set
        self._set[what] = value
        try:
            if first:
                write_text_atomic(self._state, json.dumps(self._state_json()) + "\n")
            change(value)
        except NoPermission:  # nothing was changed
            if first:
                del self._set[what]
            if not self._set:
                self._state.unlink(missing_ok=True)
            raise

    def _lock(self, clock: float | None) -> None:
        if clock is None:
            self._sensor.unlock_clock()
        else:
            self._sensor.lock_clock(clock)

    def _cap(self, limit: float | None) -> None:
        self._sensor.set_power_limit(self._limit if limit is None else limit)

    def _read_limit(self) -> float:
        limit = self._sensor.power_limit()
        if math.isnan(limit):
            raise ValueError(
                "the board does not tell its power limit, so that it could not be put "
                "back; leave `--set-power-limit` out."
            )
        return limit

    def _state_json(self) -> dict[str, Any]:
        """Former state of the board and the changes, as the state file has them."""
        about = self._sensor.about
        limit = None if math.isnan(self._limit) else self._limit
        return {
            "gpu": about.index,
            "uuid": about.uuid,
            "pid": os.getpid(),
            "changed": sorted(self._set),
            "power_limit_w": limit,
        }

    def _restore_with_retries(self) -> str | None:
        """Restores the board with retries; returns what went wrong, or None."""
        trouble = None
        for _ in range(_TRIES):
            try:
                trouble = self._restore()
            except (Exception, KeyboardInterrupt) as error:
                trouble = f"clocks and power limit may not be as before ({error})"
            if trouble is None:
                break
        return trouble

    def _restore(self) -> str | None:
        if "limit" in self._set:
            self._cap(None)
            now = self._sensor.power_limit()
            if not abs(now - self._limit) < 1:
                return f"the power limit is {now:g} W and was {self._limit:g} W"
        if "clock" in self._set:
            self._lock(None)
            if self._stuck():
                return f"the clock still stands at {self._locked / MHz:g} MHz"
        return None

    def _stuck(self) -> bool:
        """Whether the clock stays at the locked value after unlocking."""
        clocks = self._sensor.clocks()
        if not clocks or not self._locked < max(clocks):
            return False
        end = self._clock.now() + _PATIENCE
        while self._clock.now() < end:
            if not abs(self._sensor.sm_clock() - self._locked) <= MHz:
                return False  # moved, or not told
            self._clock.sleep(0.1)
        return True


def restore_command(state: dict[str, Any]) -> str:
    """Shell command that restores a board by hand."""
    on = f"nvidia-smi -i {state['gpu']}"
    commands = [f"{on} -rgc"] if "clock" in state["changed"] else []
    if "limit" in state["changed"]:
        commands.append(f"{on} -pl {state['power_limit_w']:g}")
    return " && ".join(commands)


def check_state(path: Path) -> None:
    """Raises `ValueError` if a run before this one never put its board back."""
    if not path.exists():
        return
    try:
        state = json.loads(path.read_text())
        command, pid = restore_command(state), int(state["pid"])
    except (ValueError, KeyError, TypeError):
        command, pid = "nvidia-smi -rgc", 0
    if pid != os.getpid() and _alive(pid):
        raise ValueError(
            f"process {pid} is measuring into the same file (`{path}`); wait for it "
            "or give another `--out`."
        )
    raise ValueError(
        "a run before this one was killed while it had set clocks or power limit; "
        f"put the GPU back with `{command}`, then remove `{path}`."
    )


def _alive(pid: int) -> bool:
    if pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # it is another user's
    return True


@contextlib.contextmanager
def interruptible() -> Iterator[Callable[[], None]]:
    """Gives the function to call where a run may end: it raises `KeyboardInterrupt`
    once Ctrl-C, `kill` or a closed terminal asked for that; asked twice, the second
    signal does so itself."""
    requested = False

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal requested
        if requested:
            raise KeyboardInterrupt
        requested = True

    def check() -> None:
        if requested:
            raise KeyboardInterrupt

    with _handlers(stop):
        yield check


@contextlib.contextmanager
def _handlers(handler: Any) -> Iterator[None]:
    """`handler` for all signals that end a process; only the main thread may."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    names = [getattr(signal, name) for name in _SIGNALS if hasattr(signal, name)]
    before = {number: signal.signal(number, handler) for number in names}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)
