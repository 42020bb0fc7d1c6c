"""A search counts its work: the machine's load does not change its answer."""

import threading
import time
from types import SimpleNamespace

import pytest

from diffenergy.fleet import _work as counting
from diffenergy.fleet._problem import keeps_limits
from diffenergy.fleet._solve import Solved, solve
from diffenergy.fleet._work import Work

from .builders import quiet, random_fleet


def planned(work: Work) -> Solved:
    problem = random_fleet(21, models=4, pools=6, gpus=60, clocks=12, used=0.5)
    result = solve(problem, 0.0, work, quiet)
    assert isinstance(result, Solved)
    return result


def slowed(monkeypatch: pytest.MonkeyPatch, factor: float) -> None:
    """Wall time as on a machine that is slower by `factor`."""
    begun = time.monotonic()

    def clock() -> float:
        return begun + factor * (time.monotonic() - begun)

    monkeypatch.setattr(counting, "time", SimpleNamespace(monotonic=clock))


@pytest.mark.slow
def test_a_busy_machine_gives_the_same_plan(monkeypatch: pytest.MonkeyPatch):
    """With a budget that ends the search before its proof: alone, then beside a thread
    that takes the interpreter, on a clock of 20 s a second."""
    idle = planned(Work(0.5, 600.0))
    assert idle.gap > 1e-6  # it was cut short
    slowed(monkeypatch, 20.0)
    stop = threading.Event()

    def burn() -> None:
        while not stop.is_set():
            sum(range(1000))

    thread = threading.Thread(target=burn)
    thread.start()
    try:
        busy = planned(Work(0.5, 600.0))
    finally:
        stop.set()
        thread.join()
    assert (busy.counts == idle.counts).all()
    assert (busy.value, busy.bound) == (idle.value, idle.bound)
    assert not busy.late and not idle.late


def test_the_end_of_wall_time_is_told(monkeypatch: pytest.MonkeyPatch):
    slowed(monkeypatch, 1e6)
    result = planned(Work(0.5, 10.0))
    assert result.late and result.gap > 1e-6


def test_ctrl_c_keeps_the_best_plan():
    """Pressed while plans are improved; before there is one it ends everything."""
    problem = random_fleet(21, models=4, pools=6, gpus=60, used=0.5)

    def press(at: str) -> Solved:
        def progress(what: str, done: int, of: int) -> None:
            if what == at:
                raise KeyboardInterrupt

        result = solve(problem, 0.0, Work(2.0), progress)
        assert isinstance(result, Solved)
        return result

    result = press("improving")
    assert result.interrupted and keeps_limits(result.problem, result.counts).all()
    assert result.bound < result.value
    with pytest.raises(KeyboardInterrupt):
        press("bounding slots")
