"""Flags of `estimate` in one quoted string."""

import shlex

from .flags import Flags


def estimate_flags(text: str, command: str) -> Flags:
    """Flags in `text`, for one estimate; `command` is what takes the string.

    Raises `ValueError` for what belongs behind the command, and for lists.
    """
    from .app import build

    try:
        words = shlex.split(text)
    except ValueError as error:
        raise ValueError(f"'{text}' cannot be split into flags ({error}).") from None
    given = build().commands["estimate"].make_context("estimate", words).params
    known = Flags.__dataclass_fields__
    files = {name: value for name, value in given.items() if name not in known}
    rest = {name: value for name, value in given.items() if name in known}
    flags = Flags(**{**rest, "set_field": tuple(rest["set_field"] or ())})
    for name, value in (
        ("detail", flags.detail),
        ("json", flags.as_json),
        ("out", flags.out),
        *files.items(),
    ):
        if value:
            raise ValueError(
                f"`--{name}` goes behind `{command}`, not into the quotes."
            )
    lists = (flags.sm_clock, flags.mem_clock, flags.power_limit)
    if any("," in value for value in lists if value):
        raise ValueError(
            f"`{command}` takes no lists of clocks or limits; give one each."
        )
    return flags
