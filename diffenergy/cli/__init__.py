"""The command line `diffenergy`; nothing heavy loads before the arguments are read,
nothing at all that can be helped before Ctrl-C is taken over."""

import gc
import os
import sys
from collections.abc import Sequence

from . import interruption
from .interruption import INTERRUPTED

DONE = 0
FAULT = 1
BAD_INPUT = 2
INFEASIBLE = 3
OUTSIDE = 4
_JSON = "--json"


def main(args: Sequence[str] | None = None) -> int:
    """Runs `args` (those of the process by default) and returns the exit status.

    0 done, 2 bad input, 3 infeasible, 4 outside an interval, 130 interrupted; what went
    wrong is one line on stderr. 1 is a fault of this program.
    """
    words = list(sys.argv[1:] if args is None else args) or ["--help"]
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the caller, as by `>&-`
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
    if args is not None:
        return _guarded(words)
    interruption.install(_JSON in words)  # the process is ours
    # millions of records live until its end: to look through them for garbage again and
    # again took a twelfth of a search for a plan
    gc.set_threshold(100_000)
    _silence_xla()
    code = _guarded(words)
    if code == INTERRUPTED:
        interruption.leave()
    return code


def _silence_xla():
    """Keeps the log of XLA, such as "Very slow compile?", off stderr, which is for our
    own lines; its errors are exceptions all the same. Its level is read once, while JAX
    is imported, and commands import JAX with their modules."""
    if not os.environ.get("DIFFENERGY_DEBUG"):
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


def _guarded(words: Sequence[str]) -> int:
    """Runs `words`; also handles a closed pipe and Ctrl-C. Returns the exit status."""
    try:
        return _run(words)
    except BrokenPipeError:  # whoever read our output has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except KeyboardInterrupt:
        return _fail("interrupted", INTERRUPTED, words)


def _run(words: Sequence[str]) -> int:
    import typer

    from .app import build
    from .completing import answer

    try:
        command = build()
        answer(command)
        with command.make_context("diffenergy", list(words)) as context:
            command.invoke(context)
        sys.stdout.flush()
    except typer.Exit as done:  # help and version
        return done.exit_code
    except SystemExit as done:  # completions of the shell
        return int(done.code or 0)
    except BrokenPipeError:
        raise
    except interruption.Interrupted as kept:
        return _fail(str(kept), INTERRUPTED, words)
    except Exception as error:
        if interruption.raised():
            raise KeyboardInterrupt from None
        if os.environ.get("DIFFENERGY_DEBUG"):
            raise
        return _fail(*reason(error, words), words)
    return DONE


def reason(error: Exception, words: Sequence[str]) -> tuple[str, int]:
    """What went wrong, in a sentence, and the exit status."""
    from ..results import Infeasible
    from .app import names
    from .refusal import parser_sentence
    from .run import Outside

    path = " ".join(["diffenergy", *(x for x in words[:1] if x in names())])
    if sentence := parser_sentence(error, path):
        return sentence, BAD_INPUT
    match error:
        case Infeasible():
            return str(error), INFEASIBLE
        case Outside():
            return str(error), OUTSIDE
        case ValueError():
            return str(error), BAD_INPUT
        case OSError():
            where = f"`{error.filename}`: " if error.filename else ""
            return f"{where}{error.strerror or error}", BAD_INPUT
    text = f"{type(error).__name__}: {error}"
    hint = "set DIFFENERGY_DEBUG=1 to see where"
    return f"this is a fault of diffenergy ({text}); {hint}.", FAULT


def _fail(message: str, status: int, words: Sequence[str]) -> int:
    """Prints why the command ends, as JSON if `words` have --json, even if they cannot
    be parsed. Returns the exit status."""
    from .refusal import fail

    return fail(message, status, _JSON in words)
