"""Random requests from the declarations, half of them malformed: no fault, no leak."""

import dataclasses
import os
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import pytest

from diffenergy.cli.web.jobs import fields_of, offered
from diffenergy.hardware._files import gpu_names
from diffenergy.requests import choices, is_switch
from diffenergy.workload.models import model_names

from .conftest import Server, serving

_WRONG: Final[list[Any]] = [
    "", " ", "x", "-1", -1, 0, 1e308, 10**400, "nan", "inf", "1e999", [], [[]], {},
    {"": ""}, {"a": {"b": 1}}, [None], True, "\0", "\ud800", "/etc/passwd", "../x",
    "a" * 5000, "1:2:0", "1:1e9:1e-9", "=", ",", "gpt2 --", '"', "lognormal:1:1", "🜂",
    "0x10", "show", "none",
]  # fmt: skip
_PLAIN: Final[list[Any]] = [
    1, 8, 0.5, "8", "1GB", "1.2GHz", "2:4:1", "1s", ["1", 2], {"tp": 2}, "tp=2", "none",
]  # fmt: skip
"""Values that some fields take."""


def request(dice: random.Random) -> tuple[str, Any]:
    """A command and its request: sound in half of the cases, of a light command."""
    if dice.random() < 0.5:
        return _sound(dice)
    command = dice.choice(offered(None))
    fields = [*fields_of(command, None).values()]
    some = dice.sample(fields, min(len(fields), dice.randint(1, 5)))
    body: Any = {x.name: _value(dice, x) for x, _ in some}
    # what is needed names nothing: it ends a search, but after the flags are read
    for field, _ in fields:
        if field.default is dataclasses.MISSING:
            body[field.name] = dice.choice(["no-such", "no-such", *_WRONG])
    others = [[body], None, "x", body | {"no_such": 1}, {"posted": body}]
    return command, body if dice.random() < 0.8 else dice.choice(others)


def _value(dice: random.Random, field: Any) -> Any:
    """A value of a field, sound or not."""
    usual = choices(field.type) or ((True,) if is_switch(field) else _PLAIN)
    return dice.choice([*usual] if dice.random() < 0.4 else _WRONG)


def _sound(dice: random.Random) -> tuple[str, Any]:
    """A light command and a request that it answers."""
    match dice.randrange(4):
        case 0:
            return "gpus", {"action": "show", "name": dice.choice(gpu_names())}
        case 1:
            return "models", {"action": "show", "name": dice.choice(model_names())}
    gpu = dice.choice(["a100-sxm-80gb", "h100-sxm", "l40s"])
    batch, clock = dice.randint(1, 4), dice.randint(600, 1400)
    fields = {"model": "gpt2", "gpu": gpu, "batch": batch, "sm_clock": clock}
    return "estimate", fields


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
            answers = statuses(server, 1000, seed)
            for status, text in answers:
                assert status in (200, 400, 409, 413, 429), text
            assert sum(status == 200 for status, _ in answers) > 400
        assert [server.process.pid, *server.children()] == processes
        grown = sum(map(_memory, processes)) - sum(before)
        assert grown < 100e6


def _memory(process: int) -> float:
    pages = Path(f"/proc/{process}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")
