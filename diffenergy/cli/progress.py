"""How far a long run is: a bar on a terminal, else a line now and then; on stderr."""

import contextlib
import math
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

_PAUSE: Final = 10.0
"""s between two lines."""


@contextlib.contextmanager
def progress(
    word: str, total: int, steps: str = "evaluations", value: str = "cost"
) -> Iterator[Callable[[int, float], None]]:
    """Gives the function to call with the steps done and the cost so far (infinite:
    none yet); `steps` and `value`: what these are called."""
    if not sys.stderr.isatty():
        yield _lines(word, total, steps, value)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.progress import TimeElapsedColumn as Elapsed

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    console = Console(stderr=True)
    with Progress(*columns, Elapsed(), console=console, transient=True) as bar:
        task = bar.add_task(word, total=total)
        yield lambda done, cost: bar.update(
            task, completed=done, description=f"{word}{_said(value, cost)}"
        )


@contextlib.contextmanager
def stages() -> Iterator[Callable[[str, Any], None]]:
    """Gives the function to call with what is being tried and where its solver stands
    (None, or a record with `incumbent`, `bound` and `gap`)."""
    if not sys.stderr.isatty():
        yield _stage_lines()
        return
    from rich.console import Console

    with Console(stderr=True).status("starting") as status:
        yield lambda stage, standing: status.update(_standing(stage, standing))


def _stage_lines() -> Callable[[str, Any], None]:
    said = time.monotonic()

    def tell(stage: str, standing: Any):
        nonlocal said
        if time.monotonic() - said < _PAUSE:
            return
        said = time.monotonic()
        print(f"diffenergy: {_standing(stage, standing)}", file=sys.stderr)

    return tell


def _standing(stage: str, standing: Any) -> str:
    """What is being tried, with incumbent, bound and gap once there are any."""
    if standing is None or standing.incumbent is None:
        return stage
    gap = f" (gap {100 * standing.gap:.1f} %)" if standing.gap is not None else ""
    return f"{stage}: {standing.incumbent:.6g} at {standing.seconds:.1f} s{gap}"


@contextlib.contextmanager
def points(word: str) -> Iterator[Callable[[int, int, str], None]]:
    """Gives the function to call with the points done, their number, what is next."""
    if not sys.stderr.isatty():
        yield _point_lines()
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.progress import TimeElapsedColumn as Elapsed

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    console = Console(stderr=True)
    with Progress(*columns, Elapsed(), console=console, transient=True) as bar:
        task = bar.add_task(word, total=None)
        yield lambda done, total, what: bar.update(
            task, completed=done, total=total, description=what
        )


def _point_lines() -> Callable[[int, int, str], None]:
    said = time.monotonic()

    def tell(done: int, total: int, what: str):
        nonlocal said
        if time.monotonic() - said < _PAUSE:
            return
        said = time.monotonic()
        line = f"{done} of {total} points, now {what}"
        print(f"diffenergy: {line}", file=sys.stderr)

    return tell


def _lines(
    word: str, total: int, steps: str, value: str
) -> Callable[[int, float], None]:
    said = time.monotonic()

    def tell(done: int, cost: float):
        nonlocal said
        if time.monotonic() - said < _PAUSE:
            return
        said = time.monotonic()
        line = f"{word}: {done} of at most {total} {steps}{_said(value, cost)}"
        print(f"diffenergy: {line}", file=sys.stderr)

    return tell


def _said(value: str, cost: float) -> str:
    return f", {value} {cost:.6g}" if math.isfinite(cost) else ""
