"""The command line `diffenergy`; nothing heavy loads before the arguments are read,
nothing at all that can be helped before Ctrl-C is taken over."""

import os
import sys
from collections.abc import Sequence

from . import interruption
from .interruption import INTERRUPTED

DONE = 0
FAULT = 1
BAD_INPUT = 2
INFEASIBLE = 3


def main(args: Sequence[str] | None = None) -> int:
    """Runs `args` (those of the process by default) and returns the exit status.

    0 done, 2 bad input, 3 infeasible, 130 interrupted; what went wrong is one line on
    stderr. 1 is a fault of this program.
    """
    if args is not None:
        return _guarded(args)
    interruption.install()  # the process is ours
    _silence_xla()
    code = _guarded(args)
    if code == INTERRUPTED:
        interruption.leave()
    return code


def _silence_xla():
    """Keeps the log of XLA, such as "Very slow compile?", off stderr, which is for our
    own lines; its errors are exceptions all the same. Its level is read once, while JAX
    is imported, and commands import JAX with their modules."""
    if not os.environ.get("DIFFENERGY_DEBUG"):
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


def _guarded(args: Sequence[str] | None) -> int:
    """The same, with what is no exception of ours."""
    try:
        return _run(args)
    except BrokenPipeError:  # whoever read our output has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except KeyboardInterrupt:
        return _fail("interrupted", INTERRUPTED)


def _run(args: Sequence[str] | None) -> int:
    import typer

    from .app import build
    from .completing import answer

    words = list(sys.argv[1:] if args is None else args) or ["--help"]
    try:
        command = build()
        answer(command)
        with command.make_context("diffenergy", words) as context:
            command.invoke(context)
        sys.stdout.flush()
    except typer.Exit as done:  # help and version
        return done.exit_code
    except SystemExit as done:  # completions of the shell
        return int(done.code or 0)
    except BrokenPipeError:
        raise
    except Exception as error:
        if interruption.raised():
            raise KeyboardInterrupt from None
        if os.environ.get("DIFFENERGY_DEBUG"):
            raise
        return _report(error)
    return DONE


def _report(error: Exception) -> int:
    """Says in one line what went wrong."""
    from ..results import Infeasible

    spoken = getattr(error, "format_message", None)
    if spoken is not None:  # the parser's own, whichever click it is built on
        asked = getattr(getattr(error, "ctx", None), "command_path", "diffenergy")
        hint = f"`{asked} --help` shows what is allowed."
        return _fail(f"{spoken().rstrip('.')}; {hint}", BAD_INPUT)
    match error:
        case Infeasible():
            return _fail(str(error), INFEASIBLE)
        case ValueError():
            return _fail(str(error), BAD_INPUT)
        case OSError():
            where = f"`{error.filename}`: " if error.filename else ""
            return _fail(f"{where}{error.strerror or error}", BAD_INPUT)
    text = f"{type(error).__name__}: {error}"
    hint = "set DIFFENERGY_DEBUG=1 to see where"
    return _fail(f"this is a fault of diffenergy ({text}); {hint}.", FAULT)


def _fail(message: str, code: int) -> int:
    from .output import one_line

    print(f"diffenergy: {one_line(message)}", file=sys.stderr)
    return code
