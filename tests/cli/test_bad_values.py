"""Bad values of every flag of every command, made from the type that it is declared
with: one line that names the flag or the value, exit 2 or 3, before anything is priced.
"""

import functools
import importlib
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import msgspec
import pytest
from msgspec import Meta

from diffenergy.cli import app
from diffenergy.cli.commands import web
from diffenergy.cli.flags import flag_name
from diffenergy.compiling import _programs
from diffenergy.requests import Argument, declared, is_switch
from tests.imports import builders

from .conftest import Outcome

Run = Callable[..., Outcome]
LINES = {
    "codesign": "gpt2 --vary num_sms",
    "collective": "ring-4 --collective all_gather --size 1MB", "compare": "gpt2 gpt2",
    "dvfs": "gpt2", "estimate": "gpt2", "evaluate": "runs.csv",
    "fit": "runs.csv --out fitted.json",
    "fleet": f"{Path('docs/examples/fleet/fleet.toml').resolve()}", "gpus": "show t4",
    "import": "t.json", "measure": "--dry-run --out measured.csv",
    "models": "show gpt2", "plan": "gpt2 --num-gpus 2 --global-batch 4",
    "report": "gpt2 --out page.html", "serve": "gpt2 --rate 1",
    "sweep": "spec.toml --out out.csv", "web": "--port 0",
}  # fmt: skip
"""What stands beside the flag, so that only its value is wrong."""
NUMBERS = ("x", "-1", "0", "nan", "inf", "1.5", "1e30")
"""Texts for numbers. Those that the range of the declared type has are left out; a type
without a range is taken to have numbers above 0."""
MEANT = {
    "collective --latency": {"0"},
    "dvfs --switch-energy": {"0", "inf"},
    "dvfs --switch-latency": {"0", "inf"},
    "fleet --carbon": {"0"},
    "fleet --price": {"-1", "0"},  # exchanges pay below zero
}
"""Values that a flag has beyond that."""
FREE = {("import", "--phase"), ("sweep", "--out"), ("codesign", "--workload")}
"""Flags with any text (`sweep` writes parts into a folder), and with a command line
that another command reads."""


def flags(command: str) -> Iterator[tuple[str, Any]]:
    """Flags of a command that take a value, and their types."""
    kind = importlib.import_module(f"diffenergy.cli.commands.{command}_flags").Flags
    for field, flag in declared(kind):
        if not is_switch(field) and not isinstance(flag, Argument):
            yield flag_name(field, flag), field.type


def arms(hint: Any) -> Iterator[tuple[Any, Meta | None]]:
    """The plain types in a type, each with its range."""
    if get_origin(hint) is Annotated:
        ranges = [x for x in hint.__metadata__ if isinstance(x, Meta)]
        for bare, inner in arms(hint.__origin__):
            yield bare, inner or next(iter(ranges), None)
    elif get_origin(hint) is None or get_origin(hint) is Literal:
        yield hint, None
    else:
        yield from (arm for part in get_args(hint) for arm in arms(part))


def is_allowed(text: str, bare: Any, limits: Meta | None) -> bool:
    """Whether a type of numbers has the number in `text`."""
    try:
        value = bare(text)
        if limits is None:
            return 0 < value < math.inf
        msgspec.convert(value, Annotated[bare, limits])
    except ValueError:
        return False
    return True


def beyond(limits: Meta | None) -> Iterator[str]:
    """Numbers outside a range, in whatever unit a flag is read."""
    if limits is not None and (limits.ge or 0) > 0:
        yield f"{limits.ge - 1:g}"  # pyright: ignore[reportOptionalOperand]
    for high in (getattr(limits, "le", None), getattr(limits, "lt", None)):
        if high is not None and high < 1e100:
            yield f"{1000 * (high + 1):g}"


def bad_values(command: str, flag: str, hint: Any) -> list[str]:
    """Values that the declared type of a flag does not have."""
    result = [*arms(hint)]
    kinds = [x for x in result if x[0] in (int, float)]
    texts = ["", "no such"]
    if kinds:
        texts += NUMBERS
    elif any(bare is Any for bare, _ in result):  # a room's own type, with a unit
        texts += ("x", "-1", "0", "nan", "inf")
    texts += [text for _, limits in kinds for text in beyond(limits)]
    meant = MEANT.get(f"{command} {flag}", set())
    return [
        text
        for text in dict.fromkeys(texts)
        if text not in meant and not any(is_allowed(text, *kind) for kind in kinds)
    ]


def line_without(command: str, flag: str) -> list[str]:
    words = LINES.get(command, "").split()
    if flag in words:
        del words[words.index(flag) : words.index(flag) + 2]
    return words


def complaint(outcome: Outcome, flag: str, value: str) -> str:
    """What is wrong with a refusal; nothing."""
    said = outcome.err
    if outcome.code not in (2, 3):
        return f"exit {outcome.code} {said}"
    if outcome.out or said.count("\n") != 1:
        return f"prints {outcome.out or said}"
    named = flag in said or f"`{flag[2:]}`" in said or (value and value in said)
    return "" if named and "Traceback" not in said else f"says {said}"


class Priced(BaseException):
    """Beyond what an `except` of ours catches."""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Where the lines find their files; nothing is priced."""

    def priced(*_: Any):
        raise Priced

    rows = "".join(f"a10,gemm,{m},64,64,bf16,10\n" for m in (64, 128, 256))
    (tmp_path / "runs.csv").write_text(f"gpu,op,m,n,k,dtype,time_us\n{rows}")
    (tmp_path / "spec.toml").write_text('[axes]\nbatch = [1]\n[fixed]\nmodel = "gpt2"')
    builders.trace(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(_programs, "_answer", priced)
    monkeypatch.setattr(_programs, "_LOADED", {})
    monkeypatch.setattr(web, "_listen", priced)
    monkeypatch.setattr(app, "build", functools.cache(app.build))


@pytest.mark.parametrize("command", app.names())
def test_bad_values_are_one_line(run: Run, command: str):
    complaints = []
    for flag, hint in flags(command):
        for value in bad_values(command, flag, hint):
            if (command, flag) in FREE:
                continue
            try:
                outcome = run(command, *line_without(command, flag), flag, value)
            except Priced:
                complaints.append(f"{flag} {value!r} is priced")
                continue
            if wrong := complaint(outcome, flag, value):
                complaints.append(f"{flag} {value!r} {wrong}")
    assert not complaints, "\n".join(complaints)
