"""A server of `diffenergy web` in a process of its own."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="starlette is not installed")
pytest.importorskip("uvicorn", reason="uvicorn is not installed")


class Server:
    """The process, and what it answers."""

    def __init__(self, *words: str, cwd: Path | None = None):
        command = [sys.executable, "-m", "diffenergy", "web", "--port", "0", *words]
        root = str(Path(__file__).parents[3])
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            cwd=cwd, env=os.environ | {"PYTHONPATH": root},
        )  # fmt: skip
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        self.url = line.split()[1] if line else ""
        self.error = "" if line else self.process.communicate()[1]

    def get(self, path: str, **headers: str) -> tuple[int, str]:
        """Status and body."""
        return self._send(urllib.request.Request(self.url + path, headers=headers))

    def post(self, path: str, body: Any, **headers: str) -> tuple[int, str]:
        """Status and body; `body` is sent as JSON unless it is bytes."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", **headers}
        address = self.url + path
        return self._send(urllib.request.Request(address, content, headers))

    def ask(self, command: str, **fields: Any) -> tuple[int, Any]:
        """Status and JSON of a command."""
        status, text = self.post(f"/api/v1/{command}", fields)
        return status, json.loads(text)

    def _send(self, request: urllib.request.Request) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def children(self) -> list[int]:
        """Process ids of the workers."""
        task = f"/proc/{self.process.pid}/task"
        text = " ".join(
            Path(task, thread, "children").read_text() for thread in os.listdir(task)
        )
        children = [int(x) for x in text.split()]
        return [x for x in children if b"spawn_main" in _line(x)]

    def stop(self) -> int:
        """Exit status after SIGTERM."""
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGTERM)
        self.process.communicate(timeout=60)
        return self.process.returncode


def _line(process: int) -> bytes:
    return Path(f"/proc/{process}/cmdline").read_bytes()


@contextlib.contextmanager
def serving(*words: str, cwd: Path | None = None) -> Iterator[Server]:
    """Context of a server."""
    server = Server(*words, cwd=cwd)
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """One server with two processes, for tests that leave it as it is."""
    with serving() as started:
        yield started
