"""Bad values of every flag of every command, made from what the flag takes: one line
that names the flag or the value, exit 2 or 3, before anything is priced."""

import functools
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from diffenergy.cli import app
from diffenergy.compiling import _programs
from tests.imports import made

from .conftest import Outcome

Run = Callable[..., Outcome]
LINES = {
    "codesign": "gpt2 --vary num_sms",
    "collective": "ring-4 --collective all_gather --size 1MB",
    "compare": "gpt2 gpt2",
    "dvfs": "gpt2",
    "estimate": "gpt2",
    "evaluate": "runs.csv",
    "fit": "runs.csv --out fitted.json",
    "fleet": f"{Path('docs/examples/fleet/fleet.toml').resolve()}",
    "gpus": "show t4",
    "import": "t.json",
    "measure": "--dry-run --out measured.csv",
    "models": "show gpt2",
    "plan": "gpt2 --num-gpus 2 --global-batch 4",
    "report": "gpt2 --out page.html",
    "serve": "gpt2 --rate 1",
    "sweep": "spec.toml --out out.csv",
}
"""What stands beside the flag, so that only its value is wrong."""
WORDS = ("", "no such")
NUMBERS = ("", "x", "-1", "0", "nan", "inf")
WHOLE = (*NUMBERS, "1.5", "1e30")
KINDS = {
    **dict.fromkeys(("N", "B", "T", "RANK", "EPOCHS", "TOKENS"), WHOLE),
    **dict.fromkeys(
        ("C", "GB", "J", "JOULES", "MHZ", "MIN", "MM2", "MS", "PERCENT", "PER_MM2", "R",
         "RATE", "S", "SECONDS", "SHARE", "W"),
        NUMBERS,
    ),
}  # fmt: skip
"""Bad values by what stands for a value in the help; of others `WORDS`."""
MEANT = {
    "--cached-len": {"0"},
    "--gap": {"0"},
    "--gpu-index": {"0"},
    "--latency": {"0"},
    "--max-gap": {"0"},
    "--max-slowdown": {"0"},
    "dvfs --max-slowdown": {"-1"},
    "--seed": {"0"},
    "--switch-energy": {"0", "inf"},
    "--switch-latency": {"0", "inf"},
}
"""Of these, values that a flag may have, of every command or of one."""
FREE = {("import", "--phase"), ("sweep", "--out"), ("codesign", "--workload")}
"""Flags with any text (`sweep` writes parts into a folder), and with a command line
that another command reads."""


def flags(command: str) -> Iterator[tuple[str, str]]:
    """Flags of a command that take a value, and what stands for it in the help."""
    for flag in app.build().get_command(None, command).params:
        if flag.param_type_name == "option" and not flag.is_flag:
            yield flag.opts[0], flag.metavar or ""


def bad_values(command: str, flag: str, metavar: str) -> list[str]:
    word = re.match(r"\w*", metavar)
    values = KINDS.get(word[0] if word else "", WORDS)
    meant = MEANT.get(flag, set()) | MEANT.get(f"{command} {flag}", set())
    return [x for x in values if x not in meant]


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
    made.trace(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(_programs, "_answer", priced)
    monkeypatch.setattr(_programs, "_LOADED", {})
    monkeypatch.setattr(app, "build", functools.cache(app.build))


@pytest.mark.parametrize("command", app.names())
def test_bad_values_are_one_line(run: Run, command: str):
    complaints = []
    for flag, metavar in flags(command):
        for value in bad_values(command, flag, metavar):
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
