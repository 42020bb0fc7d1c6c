"""Random requests from the declarations, half of them malformed: no fault, no leak."""

import os
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import pytest

from diffenergy.cli.web.jobs import fields_of, offered
from diffenergy.requests import choices, is_switch

from .conftest import Server, serving

_WRONG: Final[list[Any]] = [
    "", " ", "x", "-1", -1, 0, 1e308, 10**400, "nan", "inf", "1e999", [], [[]], {}, {"": ""},
    {"a": {"b": 1}}, [None], True, "\0", "\ud800", "/etc/passwd", "../x", "a" * 5000, "1:2:0",
    "1:1e9:1e-9", "=", ",", "gpt2 --", '"', "lognormal:1:1", "🜂", "0x10", "show", "none",
]  # fmt: skip
_RIGHT: Final = {"model": "gpt2", "gpu": "a100-sxm-80gb", "action": "show", "name": "l4"}
_LIGHT: Final = ("gpus", "models", "estimate")
"""Commands whose sound requests take little time."""


def request(random: random.Random) -> tuple[str, Any]:
    """A command and its request: sound in half of the cases, of a light command."""
    if random.random() < 0.5:
        return _LIGHT[random.randrange(3)], _sound(random)
    command = random.choice(offered(None))
    fields = fields_of(command, None)
    body: Any = {}
    for field, _ in random.sample(fields, min(len(fields), random.randint(1, 5))):
        words = choices(field.type)
        if words and random.random() < 0.3:
            body[field.name] = random.choice(words)
        elif is_switch(field) and random.random() < 0.3:
            body[field.name] = True
        else:
            body[field.name] = random.choice(_WRONG)
    # never without a wrong value, which ends a long search before it begins
    body[random.choice(fields)[0].name] = [[]]
    return command, random.choice([body, body, body, [body], None, {"posted": body}])


def _sound(random: random.Random) -> dict[str, Any]:
    return {"name": "l4", "action": "show"} | dict(
        random.sample([("model", "gpt2"), ("batch", random.randint(1, 4))], 1)
    )


def statuses(server: Server, number: int, seed: int) -> list[tuple[int, str]]:
    """Status and text of `number` requests, eight at a time."""
    dice = random.Random(seed)
    requests = [request(dice) for _ in range(number)]
    with ThreadPoolExecutor(8) as threads:
        return list(
            threads.map(lambda x: server.post(f"/api/v1/{x[0]}", x[1]), requests)
        )


def test_no_request_is_a_fault(server: Server):
    for status, text in statuses(server, 60, seed=1):
        assert status in (200, 400, 409, 413, 429), text
        assert "Traceback" not in text


@pytest.mark.slow
def test_ten_thousand_requests_leave_no_memory_behind():
    with serving("--workers", "2") as server:
        statuses(server, 1000, seed=2)
        processes = [server.process.pid, *server.children()]
        before = [_memory(x) for x in processes]
        for seed in range(3, 12):
            for status, text in statuses(server, 1000, seed):
                assert status in (200, 400, 409, 413, 429), text
        assert [server.process.pid, *server.children()] == processes
        grown = sum(map(_memory, processes)) - sum(before)
        assert grown < 100e6


def _memory(process: int) -> float:
    pages = Path(f"/proc/{process}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")
