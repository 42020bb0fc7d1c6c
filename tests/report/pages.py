"""A report page for tests, made once, and what `estimate --json` says of it."""

import contextlib
import functools
import io
import json
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from diffenergy.cli import main

FLAGS = ("gpt2", "--gpu", "a100-sxm-80gb", "--input-len", "64", "--output-len", "5",
         "--batch", "2")  # fmt: skip
VERSUS = "h100-pcie"


class BuiltPage(NamedTuple):
    """A page and the estimates that it shows."""

    html: str
    printed: str
    estimate: dict[str, Any]
    versus: dict[str, Any]


@functools.cache
def built() -> BuiltPage:
    """The page of `FLAGS`, beside `VERSUS`."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.html"
        printed = run("report", *FLAGS, "--versus", VERSUS, "--out", str(path))
        html = path.read_text(encoding="utf-8")
    others = [VERSUS if x == "a100-sxm-80gb" else x for x in FLAGS]
    first = json.loads(run("estimate", *FLAGS, "--json", "--detail"))
    second = json.loads(run("estimate", *others, "--json"))
    return BuiltPage(html, printed, first, second)


def run(*words: str) -> str:
    """What a command prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert main(words) == 0
    return out.getvalue()
