"""A solver's own lines kept off stdout, which belongs to the JSON of the command."""

import contextlib
import ctypes
import os
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def silent_stdout() -> Iterator[None]:
    """What compiled code prints inside goes nowhere (HiGHS has lines that no option
    turns off)."""
    try:
        kept = os.dup(1)
    except OSError:  # no stdout at all
        yield
        return
    sys.stdout.flush()
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    try:
        yield
    finally:
        with contextlib.suppress(OSError, AttributeError, TypeError):
            ctypes.CDLL(None).fflush(None)  # before it gets to the real one
        os.dup2(kept, 1)
        os.close(nowhere)
        os.close(kept)
