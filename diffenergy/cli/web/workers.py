"""Processes that answer requests, one at a time each, with programs compiled before.

A process that takes too long, too much memory, or does not stop when it is cancelled is
killed; another takes its place.
"""

import asyncio
import contextlib
import dataclasses
import math
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from ..interruption import install, keeping
from ..refusal import to_json
from .jobs import Job, Reply, guard_files, reply_to

LOOK: Final = 0.1
"""s between two looks at what is working, and at who waits for it."""
_OFTEN: Final = ("estimate", "serve")
"""Commands that answer the like many times, so that it pays to optimise programs."""
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
    from ...compiling import expect_many_calls
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
        expect_many_calls(job.command in _OFTEN)
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
    """A process and the pipe to it. Its requests come one at a time."""

    def __init__(self, scratch: Path, folder: Path | None, budget: Budget):
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._budget = budget
        self.process = context.Process(
            target=_serve, args=(theirs, scratch, folder), daemon=True
        )
        self.process.start()
        theirs.close()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._pipe.fileno(), self._read)
        self._answer: asyncio.Future[Reply] | None = None
        self._deadline, self._is_cancelled = math.inf, False
        self.compiled = 0

    def ask(self, job: Job, tell: Callable[[str], None]) -> asyncio.Future[Reply]:
        """Answer to `job`, or `Refused`; `tell` takes lines of progress. The process
        may have ended then."""
        self._answer, self._job, self._tell = self._loop.create_future(), job, tell
        self._deadline, self._is_cancelled = (
            time.monotonic() + self._budget.seconds,
            False,
        )
        answer = self._answer
        try:
            self._pipe.send(job)
        except OSError:
            self._lose()
        return answer

    def cancel(self):
        """Interrupts the work; a process that does not stop is ended by `look`."""
        self._deadline, self._is_cancelled = time.monotonic() + _GRACE, True
        if self.process.pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.process.pid, signal.SIGINT)

    def look(self):
        """Ends a process that has taken more than its budget."""
        if self._answer is None:
            return
        name, budget = self._job.command, self._budget
        if time.monotonic() > self._deadline and self._is_cancelled:
            self._refuse(Refused(*CANCELLED))
        elif time.monotonic() > self._deadline:
            text = (
                f"`{name}` took longer than {budget.seconds:g} s; ask for less, or "
                "start the server with a longer `--timeout`."
            )
            self._refuse(_unavailable(text))
        elif self.is_fat():
            text = (
                f"`{name}` took more than {budget.memory / 1e9:g} GB; ask for less, or "
                "start the server with more `--memory`."
            )
            self._refuse(_unavailable(text))

    def is_fat(self) -> bool:
        """Whether the process has more memory than its budget."""
        return resident(self.process.pid) > self._budget.memory

    def end(self):
        """Ends the process, whatever it does."""
        if not self._pipe.closed:
            self._loop.remove_reader(self._pipe.fileno())
            self._pipe.close()
        self.process.kill()
        self.process.join()

    def _read(self):
        """Takes a message of the process."""
        try:
            kind, content, *rest = self._pipe.recv()
        except (EOFError, OSError):
            return self._lose()
        if kind == "progress":
            return self._tell(content)
        self.compiled += rest[0]
        answer, self._answer = self._answer, None
        if answer is None:
            return
        if content is None or self._is_cancelled:
            answer.set_exception(Refused(*CANCELLED))
        else:
            answer.set_result(content)

    def _lose(self):
        """The process has ended by itself."""
        command = self._job.command if self._answer else ""
        text = f"the process that answered `{command}` ended; ask again."
        self._refuse(_unavailable(text))

    def _refuse(self, refused: Refused):
        """Ends the process, and refuses what it was asked."""
        self.end()
        answer, self._answer = self._answer, None
        if answer is not None:
            answer.set_exception(refused)


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
        self.all = [self._new() for _ in range(number)]
        for worker in self.all:
            self._idle.put_nowait(worker)
        self.waiting = self.replaced = self._compiled = 0
        self._looking = asyncio.ensure_future(self._look())

    @property
    def compiled(self) -> int:
        """Programs that all processes have compiled so far."""
        return self._compiled + sum(x.compiled for x in self.all)

    async def ask(self, job: Job, tell: Callable[[str], None]) -> Reply:
        """Answer of the first process that is free. Raises `Refused`."""
        if self.waiting >= self._queue:
            text = f"{self.waiting} requests wait already; ask again later."
            raise Refused(429, "busy", text)
        self.waiting += 1
        try:
            worker = await self._idle.get()
        finally:
            self.waiting -= 1
        if not worker.process.is_alive():
            worker = self._replace(worker)
        answer = worker.ask(job, tell)
        answer.add_done_callback(lambda _: self._free(worker))
        try:
            return await asyncio.shield(answer)
        except asyncio.CancelledError:
            worker.cancel()
            raise

    def _free(self, worker: Worker):
        """Takes a process back that has answered, or another one for it."""
        fit = worker.process.is_alive() and not worker.is_fat()
        self._idle.put_nowait(worker if fit else self._replace(worker))

    async def _look(self):
        """Looks at processes that are working, now and then."""
        while True:
            await asyncio.sleep(LOOK)
            for worker in self.all:
                worker.look()

    def _replace(self, worker: Worker) -> Worker:
        worker.end()
        self._compiled += worker.compiled
        self.replaced += 1
        fresh = self._new()
        self.all = [fresh if x is worker else x for x in self.all]
        return fresh

    def close(self):
        """Ends all processes."""
        self._looking.cancel()
        for worker in self.all:
            worker.end()
        self._scratch.cleanup()
