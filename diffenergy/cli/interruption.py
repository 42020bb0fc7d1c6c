"""What Ctrl-C does to the command: the process ends at once with status 130, wherever
it is; only where something would be lost is `KeyboardInterrupt` raised instead.

An exception can come out of any line: out of half an import (of JAX: a segmentation
fault) or of a call from C. Ending the process cannot go wrong, files being replaced
whole or not at all (`files`).
"""

import atexit
import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from types import FrameType

INTERRUPTED = 130
"""Exit status."""
_PAUSE = 0.05
"""s until a Ctrl-C that came where it cannot be told is told again."""
_LINE = b"diffenergy: interrupted\n"
_JSON_LINE = (
    b'{"error": {"kind": "interrupted", "field": null, "value": null, '
    b'"message": "interrupted", "remedy": null}}\n'
)
"""What `refusal` makes of it; a signal handler loads nothing."""
_line = _LINE
_activations = 0
_raised = False


class Interrupted(Exception):
    """Ctrl-C ended the work of a command; the message says what it keeps."""


def install(as_json: bool = False):
    """Handles Ctrl-C, unless the process was started to ignore it; `as_json`: the
    reason on stderr is JSON."""
    global _line
    _line = _JSON_LINE if as_json else _LINE
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return
    signal.signal(signal.SIGINT, _stop)
    if hasattr(signal, "SIGALRM"):
        signal.signal(signal.SIGALRM, _stop)
        sys.unraisablehook = _lost
    # then all is done, and Python would take its handlers away: killed, not status 130
    atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)


@contextlib.contextmanager
def keeping() -> Iterator[None]:
    """Context of work that can be kept: Ctrl-C raises `KeyboardInterrupt`."""
    global _activations
    _activations += 1
    try:
        yield
    finally:
        _activations -= 1


def raised() -> bool:
    """Whether a Ctrl-C was raised; what came of it may be any exception."""
    return _raised


def _stop(number: int, frame: FrameType | None):
    global _raised
    if not _activations:
        _cut()
    elif hasattr(signal, "setitimer") and _importing(frame):
        signal.setitimer(signal.ITIMER_REAL, _PAUSE)
    else:
        _raised = True
        raise KeyboardInterrupt


def leave():
    """Ends the process now that all is said: threads may still be compiling what nobody
    waits for, and Python's own end would pull the ground from under them."""
    with contextlib.suppress(OSError):  # whoever read our output has had enough
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(INTERRUPTED)


def _cut():
    """Ends the process at once, after one line on stderr."""
    shown = b"\x1b[?25h" if os.isatty(2) else b""  # a bar hides the cursor
    try:
        os.write(2, shown + _line)
    finally:
        os._exit(INTERRUPTED)


def _importing(frame: FrameType | None) -> bool:
    """Whether a module is being loaded, which an exception would leave half done."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def _lost(unraisable: "sys.UnraisableHookArgs"):
    """Repeats a Ctrl-C that was raised where no code could handle it."""
    if unraisable.exc_type is KeyboardInterrupt:
        signal.setitimer(signal.ITIMER_REAL, _PAUSE)
    else:
        sys.__unraisablehook__(unraisable)
