"""One solver process for all tests: to start one takes most of a second."""

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

_USERS = (
    "collectives._exact.lp",
    "collectives._exact.milp",
    "collectives._exact.rounds",
    "search._ortools",
)
"""Modules that start a worker."""


class Pool:
    """Workers that are lent one after the other; one that ended is not lent again."""

    def __init__(self) -> None:
        self.free: list[Any] = []

    @contextlib.contextmanager
    def lend(self) -> Iterator[Any]:
        from diffenergy.search import Worker

        one = self.free.pop() if self.free else Worker()
        try:
            yield one
        except BaseException:
            one.close()  # half an answer may wait in its pipe
            raise
        if one._child.poll() is None:
            self.free.append(one)
        else:
            one.close()


@pytest.fixture(scope="session")
def pool() -> Iterator[Pool]:
    made = Pool()
    yield made
    for one in made.free:
        one.close()


@pytest.fixture
def fresh_child() -> None:
    """For tests of the process itself: each search starts its own."""


@pytest.fixture(autouse=True)
def lent_child(
    request: pytest.FixtureRequest, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Searches borrow a worker, unless a test asks for a `fresh_child`."""
    if "fresh_child" not in request.fixturenames:
        for name in _USERS:
            monkeypatch.setattr(f"diffenergy.{name}.worker", pool.lend)
