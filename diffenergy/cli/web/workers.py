"""Processes that answer requests, one at a time each, with programs compiled before.

A process that takes too long, too much memory, or does not stop when it is cancelled is
killed; another takes its place.
"""

import asyncio
import contextlib
import dataclasses
import multiprocessing
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from ..interruption import install, keeping
from ..refusal import to_json
from .jobs import Job, Reply, guard_files, reply_to

_LOOK: Final = 0.1
"""s between two looks at a process that is working."""
_GRACE: Final = 3.0
"""s in which a cancelled process may end its work by itself."""


class Refused(Exception):
    """A request that has no answer; `status` is that of HTTP, `kind` that of JSON."""

    def __init__(self, status: int, kind: str, message: str):
        super().__init__(message)
        self.status, self.kind = status, kind

    def error(self) -> dict[str, Any]:
        """As JSON, with the keys of a command's refusal."""
        return to_json(str(self), 2)["error"] | {"kind": self.kind}


CANCELLED: Final = (499, "cancelled", "the request was cancelled.")


def _unavailable(text: str) -> Refused:
    return Refused(503, "unavailable", text)


@dataclasses.dataclass(frozen=True)
class Budget:
    """Of one process: `seconds` of a request, `memory` in B."""

    seconds: float
    memory: float


def _serve(pipe: Any, scratch: Path, folder: Path | None):
    """Answers what comes through the pipe until it is closed."""
    if hasattr(os, "setsid"):
        os.setsid()  # Ctrl-C in a terminal is for the server, which lets work end
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    install()
    from ...estimator import start_jax

    start_jax()
    import jax

    # a second thread for each program costs a fifth of a warm estimate
    jax.config.update("jax_cpu_enable_async_dispatch", False)

    compiled = [0]

    def count(event: str, duration_secs: float, **kwargs: str | int):
        compiled[0] += event.endswith("backend_compile_duration")

    jax.monitoring.register_event_duration_secs_listener(count)
    guard_files()
    while True:
        try:
            job = pipe.recv()
        except EOFError:
            return
        begin = compiled[0]
        try:
            with keeping():
                reply = reply_to(
                    job, scratch, folder, lambda line: pipe.send(("progress", line))
                )
        except KeyboardInterrupt:
            reply = None
        sys.stdout.flush()
        pipe.send(("done", reply, compiled[0] - begin))


class Worker:
    """A process and the pipe to it."""

    def __init__(self, scratch: Path, folder: Path | None, budget: Budget):
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._budget = budget
        self.process = context.Process(
            target=_serve, args=(theirs, scratch, folder), daemon=True
        )
        self.process.start()
        theirs.close()
        self.compiled = 0

    def ask(
        self, job: Job, tell: Callable[[str], None], cancelled: threading.Event
    ) -> Reply:
        """Answer to `job`; `tell` takes lines of progress. Raises `Refused`;
        the process may have ended then."""
        if cancelled.is_set():
            raise Refused(*CANCELLED)
        try:
            self._pipe.send(job)
            return self._reply(job, tell, cancelled)
        except (EOFError, OSError):
            self.end()
            raise _unavailable(
                f"the process that answered `{job.command}` ended; ask again.",
            ) from None

    def _reply(
        self, job: Job, tell: Callable[[str], None], cancelled: threading.Event
    ) -> Reply:
        begin, limit = time.monotonic(), self._budget.seconds
        interrupted: float | None = None
        while True:
            if self._pipe.poll(_LOOK):
                message = self._pipe.recv()
                if message[0] == "progress":
                    tell(message[1])
                    continue
                self.compiled += message[2]
                if message[1] is None or interrupted is not None:
                    raise Refused(*CANCELLED)
                return message[1]
            now = time.monotonic()
            if cancelled.is_set() and interrupted is None:
                interrupted = now
                if self.process.pid is not None:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(self.process.pid, signal.SIGINT)
            if interrupted is not None and now > interrupted + _GRACE:
                self.end()
                raise Refused(*CANCELLED)
            if now > begin + limit:
                self.end()
                raise _unavailable(
                    f"`{job.command}` took longer than {limit:g} s; ask for less, or "
                    "start the server with a longer `--timeout`.",
                )
            if self.is_fat():
                self.end()
                raise _unavailable(
                    f"`{job.command}` took more than {self._budget.memory / 1e9:g} GB; "
                    "ask for less, or start the server with more `--memory`.",
                )

    def is_fat(self) -> bool:
        """Whether the process has more memory than its budget."""
        return resident(self.process.pid) > self._budget.memory

    def is_fit(self) -> bool:
        """Whether it can take another request."""
        return self.process.is_alive() and not self.is_fat()

    def end(self):
        """Ends the process, whatever it does."""
        self.process.kill()
        self.process.join()
        self._pipe.close()


def resident(process: int | None) -> float:
    """Memory of a process in B; 0 where the system does not say."""
    try:
        pages = Path(f"/proc/{process}/statm").read_text().split()[1]
    except OSError:
        return 0.0
    return float(pages) * os.sysconf("SC_PAGE_SIZE")


class Workers:
    """`number` processes, and a queue of at most `queue` requests before them."""

    def __init__(self, number: int, queue: int, folder: Path | None, budget: Budget):
        self._scratch = tempfile.TemporaryDirectory()
        scratch = Path(self._scratch.name)
        self._new = lambda: Worker(scratch, folder, budget)
        self._queue = queue
        self._idle: asyncio.Queue[Worker] = asyncio.Queue()
        self._threads = ThreadPoolExecutor(number)
        self.all = [self._new() for _ in range(number)]
        for worker in self.all:
            self._idle.put_nowait(worker)
        self.waiting = self.replaced = self._compiled = 0

    @property
    def compiled(self) -> int:
        """Programs that all processes have compiled so far."""
        return self._compiled + sum(x.compiled for x in self.all)

    async def ask(
        self, job: Job, tell: Callable[[str], None], cancelled: threading.Event
    ) -> Reply:
        """Answer of the first process that is free. Raises `Refused`."""
        if self.waiting >= self._queue:
            text = f"{self.waiting} requests wait already; ask again later."
            raise Refused(429, "busy", text)
        self.waiting += 1
        try:
            worker = await self._idle.get()
        finally:
            self.waiting -= 1
        if not worker.is_fit():
            worker = self._replace(worker)
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(
                self._threads, worker.ask, job, tell, cancelled
            )
        finally:
            self._idle.put_nowait(worker if worker.is_fit() else self._replace(worker))

    def _replace(self, worker: Worker) -> Worker:
        worker.end()
        self._compiled += worker.compiled
        self.replaced += 1
        fresh = self._new()
        self.all = [fresh if x is worker else x for x in self.all]
        return fresh

    def close(self):
        """Ends all processes."""
        for worker in self.all:
            worker.end()
        self._threads.shutdown(wait=False)
        self._scratch.cleanup()
