"""`FitRequest`: how constants are fitted."""

from collections.abc import Callable, Sequence
from typing import Annotated, Any

from ..requests import File, Flag, Note, Request, Seed, Whole


def _texts(flag: str, words: list[str]) -> tuple[str, ...]:
    return tuple(words)


class FitRequest(Request):
    """What a fit starts from, keeps and leaves out."""

    start: Annotated[
        File | Any | None,
        Flag("Corrections to start from [the shipped ones].", "FILE|none"),
    ] = None
    freeze: Annotated[
        Sequence[str] | str,
        Flag(
            "Keep a level (mma, gpu:a10), a constant or all that begin so (energy_); "
            "repeatable.",
            "GROUP",
            _texts,
            many=True,
        ),
    ] = ()
    holdout: Annotated[
        Sequence[str] | str,
        Flag(
            "Rows to leave out and report apart; repeatable.",
            "COLUMN=VALUE|COLUMN:FRACTION",
            _texts,
            many=True,
        ),
    ] = ()
    seed: Annotated[Seed, "Of all draws"] = 0
    max_rows: Annotated[Whole, "Kernel rows to draw"] = 20_000
    max_steps: Annotated[Whole, "Evaluations of all rows"] = 30
    strict: Annotated[bool, "Refuse rows that cannot be true."] = False
    progress: Annotated[
        Callable[..., Any] | None,
        Note("Called with the evaluations done and the cost so far."),
    ] = None
