"""Clocks and limits: set when allowed, put back whatever happens, traces of a kill."""

import contextlib
import json
import os
import signal
import subprocess
import sys

import pytest

from diffenergy.measure._clocks import (
    Control,
    check_state,
    interruptible,
    restore_command,
)
from diffenergy.measure._sensor import NoPermission

from .simulated import LIMIT, World


@pytest.fixture
def state(tmp_path):
    return tmp_path / "mine.restore.json"


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, None])
def test_put_back_however_it_ends(state, error):
    world, reported = World(), []
    with contextlib.suppress(ValueError, KeyboardInterrupt):
        with Control(world, world, state, reported.append) as control:
            control.apply(9e8, 300.0)
            assert (world.locked, world.limit) == (9e8, 300.0)
            saved = json.loads(state.read_text())
            assert saved["power_limit_w"] == LIMIT and saved["pid"] == os.getpid()
            if error is not None:
                raise error
    assert (world.locked, world.limit, reported) == (None, LIMIT, [])
    assert not state.exists()


def test_nothing_is_touched_that_is_not_asked_for(state):
    world = World()
    world.allowed = False
    with Control(world, world, state, print) as control:
        control.prepare(None, None)
        control.apply(None, None)
    assert world.calls == 0 and not state.exists()


@pytest.mark.parametrize("what", [(9e8, None), (None, 300.0), (9e8, 300.0)])
@pytest.mark.parametrize("clocks", [False, True])
def test_no_permission_leaves_no_trace(state, what, clocks: bool):
    """Neither where clocks alone may be set."""
    world, reported = World(), []
    world.allowed = clocks

    def refuse(limit: float) -> None:
        raise NoPermission("this user may not set limits")

    world.set_power_limit = refuse
    expected = NoPermission if what[1] or not clocks else None
    with pytest.raises(expected) if expected else contextlib.nullcontext():
        with Control(world, world, state, reported.append) as control:
            control.prepare(*what)
    assert world.locked is None and not state.exists() and reported == []


@pytest.mark.parametrize(
    ("clock", "limit", "says"),
    [
        (None, 300.0, ("300 W and was 700 W", "`nvidia-smi -i 0 -pl 700`")),
        (9e8, None, ("900 MHz", "`nvidia-smi -i 0 -rgc`")),
    ],
)
def test_what_cannot_be_put_back_is_said(state, clock, limit, says):
    world, lines = World(), []
    world.stubborn = clock is not None
    with Control(world, world, state, lines.append) as control:
        control.apply(clock, limit)
        world.set_power_limit = lambda limit: None
    (line,) = lines
    assert all(words in line for words in says) and state.exists()


def test_an_untold_limit_is_not_changed(state):
    world = World()
    world.silent = {"power_limit"}
    with pytest.raises(ValueError, match="does not tell its power limit"):
        with Control(world, world, state, print) as control:
            control.prepare(None, 300.0)
    assert world.limit == LIMIT and not state.exists()


def test_a_killed_run_leaves_the_command(state):
    check_state(state)  # there was no run
    world = World(index=2)
    control = Control(world, world, state, print).__enter__()
    control.apply(9e8, 300.0)  # and no more: kill -9
    saved = json.loads(state.read_text())
    command = "nvidia-smi -i 2 -rgc && nvidia-smi -i 2 -pl 700"
    assert restore_command(saved) == command
    gone = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"],
                          capture_output=True, text=True, check=True)  # fmt: skip
    state.write_text(json.dumps(saved | {"pid": int(gone.stdout)}))
    with pytest.raises(ValueError, match="was killed") as error:
        check_state(state)
    assert command in str(error.value) and str(state) in str(error.value)
    state.write_text(json.dumps(saved | {"pid": os.getpid()}))
    with pytest.raises(ValueError, match="put the GPU back"):
        check_state(state)
    state.write_text(json.dumps(saved | {"pid": os.getppid()}))
    with pytest.raises(ValueError, match="is measuring into the same file"):
        check_state(state)
    state.write_text("{")
    with pytest.raises(ValueError, match="nvidia-smi -rgc"):
        check_state(state)


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_signals_are_heard_at_safe_places(name):
    number = getattr(signal, name)
    before = signal.getsignal(number)
    with interruptible() as check:
        check()
        os.kill(os.getpid(), number)
        reached = True
        with pytest.raises(KeyboardInterrupt):
            check()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)  # a second one does not wait
            for _ in range(1000):
                abs(0)
    assert reached and signal.getsignal(number) == before


def test_signals_do_not_disturb_the_restoring(state):
    world = World()
    unlock = world.unlock_clock

    def killed() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        unlock()

    with Control(world, world, state, print) as control:
        control.apply(9e8, None)
        world.unlock_clock = killed
    assert world.locked is None and not state.exists()
