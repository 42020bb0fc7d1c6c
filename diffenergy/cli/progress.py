"""How far a long run is: a bar on a terminal, else a line now and then; on stderr."""

import contextlib
import math
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

_PAUSE: Final = 10.0
"""s between two lines."""
_MB: Final = 1e6
"""Bytes."""
_listener: Callable[[str], None] | None = None


def send_to(listener: Callable[[str], None] | None):
    """Sends every line to `listener` from now on, instead of stderr."""
    global _listener
    _listener = listener


@contextlib.contextmanager
def progress(
    word: str, total: int, steps: str = "evaluations", value: str = "cost"
) -> Iterator[Callable[[int, float], None]]:
    """Gives the function to call with the steps done and the cost so far (infinite:
    none yet); `steps` and `value`: what these are called."""

    def cost_text(cost: float) -> str:
        return f", {value} {cost:.6g}" if math.isfinite(cost) else ""

    with _shown(word, total) as show:
        yield lambda done, cost: show(
            f"{word}: {done} of at most {total} {steps}{cost_text(cost)}",
            completed=done,
            description=f"{word}{cost_text(cost)}",
        )


@contextlib.contextmanager
def points(word: str) -> Iterator[Callable[[int, int, str], None]]:
    """Gives the function to call with the points done, their number, what is next
    (empty where nothing tells the points apart)."""
    with _shown(word, None) as show:
        yield lambda done, total, what: show(
            f"{done} of {total} points" + (f", now {what}" if what else ""),
            completed=done,
            total=total,
            description=what or word,
        )


@contextlib.contextmanager
def phases() -> Iterator[Callable[[str, int, int], None]]:
    """Gives the function to call with what is being done, how much of it is done, and
    of how much."""
    with _shown("starting", None) as show:
        yield lambda what, done, total: show(
            f"{what} ({done} of {total} done)",
            completed=done,
            total=total,
            description=what,
        )


@contextlib.contextmanager
def rows() -> Iterator[Callable[[int, int], None]]:
    """Gives the function to call with the rows done and their number; shows the rate
    since the first call, and the time left."""
    first: list[float] = []

    def rate_text(done: int, total: int) -> str:
        now = time.monotonic()
        if not first:
            first.extend((now, done))
        begun, before = first
        if done <= before or now <= begun:
            return f"{done:,} of {total:,} rows"
        rate = (done - before) / (now - begun)
        left = (total - done) / rate
        speed = f"{rate:,.0f}" if rate >= 10 else f"{rate:.2g}"
        return f"{done:,} of {total:,} rows, {speed} a second, {left:,.0f} s left"

    with _shown("rows", None) as show:
        yield lambda done, total: show(
            text := rate_text(done, total),
            completed=done,
            total=total,
            description=text,
        )


@contextlib.contextmanager
def megabytes(word: str) -> Iterator[Callable[[int, int], None]]:
    """Gives the function to call with the bytes done and their number."""
    with _shown(word, None) as show:
        yield lambda done, total: show(
            f"{word}: {done / _MB:.0f} of {total / _MB:.0f} MB",
            completed=round(done / _MB),
            total=max(round(total / _MB), 1),
            description=f"{word}, MB",
        )


@contextlib.contextmanager
def stages() -> Iterator[Callable[[str, Any], None]]:
    """Gives the function to call with what is being tried and where its solver stands
    (None, or a record with `incumbent`, `bound` and `gap`)."""
    if _listener or not sys.stderr.isatty():
        tell = _listener or _now_and_then()
        yield lambda stage, standing: tell(_standing(stage, standing))
        return
    from rich.console import Console

    with Console(stderr=True).status("starting") as status:
        yield lambda stage, standing: status.update(_standing(stage, standing))


def _standing(stage: str, standing: Any) -> str:
    """What is being tried, with incumbent, bound and gap once there are any."""
    if standing is None or standing.incumbent is None:
        return stage
    gap = f" (gap {100 * standing.gap:.1f} %)" if standing.gap is not None else ""
    return f"{stage}: {standing.incumbent:.6g} at {standing.seconds:.1f} s{gap}"


@contextlib.contextmanager
def _shown(word: str, total: int | None) -> Iterator[Callable[..., None]]:
    """Gives the function to call with a line, and what a bar shows instead."""
    if _listener or not sys.stderr.isatty():
        tell = _listener or _now_and_then()
        yield lambda line, **_: tell(line)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.progress import TimeElapsedColumn as Elapsed

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    console = Console(stderr=True)
    with Progress(*columns, Elapsed(), console=console, transient=True) as bar:
        task = bar.add_task(word, total=total)
        yield lambda _, **shown: bar.update(task, **shown)


def _now_and_then() -> Callable[[str], None]:
    """Prints a line unless the last one is too fresh."""
    last = time.monotonic()

    def tell(line: str):
        nonlocal last
        if time.monotonic() - last >= _PAUSE:
            last = time.monotonic()
            print(f"diffenergy: {line}", file=sys.stderr)

    return tell
