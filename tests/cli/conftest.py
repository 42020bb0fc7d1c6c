"""Running commands in this process."""

import contextlib
import io
import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import json_keys
import pytest

from diffenergy.cli import main


class Outcome(NamedTuple):
    """Exit status and what was printed."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The JSON on stdout, of a run that went well."""
        assert self.code == 0, self.err
        return json.loads(self.out)


@pytest.fixture(scope="session", autouse=True)
def surroundings() -> Iterator[None]:
    """Tests print 80 columns without colour.

    pytest loads readline, which puts the width of the terminal into the environment
    that the workers of xdist begin with.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "80")
        patch.delenv("FORCE_COLOR", raising=False)
        yield


@pytest.fixture(scope="session")
def run(surroundings: None) -> Callable[..., Outcome]:
    """`run("estimate", "gpt2", ...)`: the outcome of a command line; JSON that it
    prints, of a refusal too, is as the page of keys has it, unless the answer is
    `made_up`."""

    def run(*args: object, made_up: bool = False) -> Outcome:
        out, err = io.StringIO(), io.StringIO()
        with (
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            pytest.MonkeyPatch.context() as patch,
        ):
            if made_up:
                patch.setattr(json_keys, "check", lambda command, text: None)
            code = main([str(arg) for arg in args])
        result = Outcome(code, out.getvalue(), err.getvalue())
        if "--json" in args and result.out and not made_up:
            json_keys.check(str(args[0]), result.out)
        if "--json" in args and code:
            json_keys.check_refusal(result.err.splitlines()[-1], code)
        return result

    return run


GPT2 = ("estimate", "gpt2", "--gpu", "a100-sxm-80gb", "--input-len", "64")
GPT2 = (*GPT2, "--output-len", "5", "--batch", "2")
"""A small estimate; variants that change numbers alone share its compilation."""


@pytest.fixture(scope="session")
def gpt2(run: Callable[..., Outcome]) -> dict[str, Any]:
    """`--json --detail` of the small estimate."""
    return run(*GPT2, "--json", "--detail").json
