"""Time as the measuring loop sees it: a clock that tests can replace."""

import contextlib
import datetime
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Protocol, runtime_checkable


@runtime_checkable
class Clock(Protocol):
    """Seconds that pass, and something done beside the main work."""

    def now(self) -> float:
        """Seconds since some moment; never goes back."""
        ...

    def sleep(self, seconds: float) -> None:
        """Returns `seconds` later."""
        ...

    def every(
        self, period: float, step: Callable[[], None]
    ) -> AbstractContextManager[None]:
        """Calls `step`, which must not raise, every `period` s in the context."""
        ...

    def date(self) -> datetime.datetime:
        """Time of day, UTC."""
        ...


class Wall:
    """The clock of this machine; `every` is a thread."""

    def now(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    @contextlib.contextmanager
    def every(self, period: float, step: Callable[[], None]) -> Iterator[None]:
        done = threading.Event()

        def work():
            while not done.is_set():
                step()
                done.wait(period)

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def date(self) -> datetime.datetime:
        return datetime.datetime.now(datetime.UTC)
