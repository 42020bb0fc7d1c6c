"""`FitRequest`: how constants are fitted."""

from collections.abc import Callable, Sequence
from typing import Annotated, Any

from ..requests import File, Flag, Note, Request, Seed, Whole


def _texts(flag: str, words: list[str]) -> tuple[str, ...]:
    return tuple(words)


class FitRequest(Request):
    """Start, frozen constants, held-out rows and limits of a fit."""

    start: Annotated[
        File | Any | None,
        Flag("Corrections to start from [the shipped ones].", "FILE|none"),
    ] = None
    freeze: Annotated[
        Sequence[str] | str,
        Flag(
            "Constants to keep: a level (mma, gpu:a10), a name or its beginning "
            "(energy_); repeatable.",
            "GROUP",
            _texts,
            many=True,
        ),
    ] = ()
    holdout: Annotated[
        Sequence[str] | str,
        Flag(
            "Rows to hold out and report separately; repeatable.",
            "COLUMN=VALUE|COLUMN:FRACTION",
            _texts,
            many=True,
        ),
    ] = ()
    seed: Annotated[Seed, "Seed of all draws"] = 0
    max_rows: Annotated[Whole, "Maximum number of kernel rows"] = 20_000
    max_steps: Annotated[Whole, "Maximum number of evaluations"] = 30
    strict: Annotated[bool, "Refuse rows that cannot be true."] = False
    progress: Annotated[
        Callable[..., Any] | None,
        Note("Called with the evaluations done and the cost so far."),
    ] = None
