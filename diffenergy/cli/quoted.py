"""Flags of `estimate` in one quoted string."""

import shlex

from .app import parsed
from .flags.estimate import Flags
from .parsing.field import read_flags


def estimate_flags(text: str, command: str) -> Flags:
    """Flags in `text`, for one estimate; `command` is what takes the string.

    Raises `ValueError` for what belongs behind the command, and for lists.
    """
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise ValueError(f"'{text}' cannot be split into flags ({error}).") from None
    flags: Flags = read_flags(Flags, parsed("estimate", words))
    for name, value in (
        ("detail", flags.detail),
        ("json", flags.as_json),
        ("out", flags.out),
        ("trace", flags.trace),
        ("plot", flags.plot),
    ):
        if value:
            raise ValueError(
                f"`--{name}` goes behind `{command}`, not into the quotes."
            )
    point = flags.point
    lists = (point.sm_clock, point.mem_clock, point.power_limit)
    if any(len(values) > 1 for values in lists if values):
        raise ValueError(
            f"`{command}` takes no lists of clocks or limits; give one each."
        )
    return flags
