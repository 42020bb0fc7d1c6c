"""`ImportRequest`: how a trace, graph or report is read."""

import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

from .. import reading
from ..requests import Flag, Note, Request
from ..units import quantity, us
from ..workload import ModelName


def _window(flag: str, text: str) -> tuple[float, float] | str:
    """FROM:TO in us, or the name of a step."""
    ends = text.split(":")
    if len(ends) != 2 or not all(re.match(r"\s*[\d.]", end) for end in ends):
        return text.strip()
    start, stop = (_us(flag, end) for end in ends)
    if not 0 <= start < stop:
        raise ValueError(
            f"`{flag}` is '{text}'; allowed is FROM:TO with FROM below TO, in us."
        )
    return start, stop


def _us(flag: str, text: str) -> float:
    """A time in us, bare or with its unit."""
    bare = re.fullmatch(r"\s*[\d.]+\s*", text)
    return float(text) if bare else quantity(flag, text, "s") / us


def _dims(flag: str, words: list[str]) -> dict[str, int]:
    """NAME=N, several."""
    sizes: dict[str, int] = {}
    for word in words:
        name, equals, number = word.partition("=")
        if not (name and equals):
            raise ValueError(f"`{flag}` is '{word}'; allowed is NAME=N, as batch=8.")
        sizes[name] = reading.whole(f"{flag} {name}", number)
    return sizes


class ImportRequest(Request):
    """How a file is read."""

    gpu: Annotated[
        str | None,
        Flag(
            "GPU of the kernels, where the file names none or another one.",
            "NAME",
            files=lambda name: (name,),
        ),
    ] = None
    model: Annotated[
        ModelName | None,
        Flag(
            "Model with the sizes that a serving engine's trace or graph replay lacks.",
            "NAME|FILE",
        ),
    ] = None
    phase: Annotated[str | None, Flag("Name of the phase [forward].", "NAME")] = None
    window: Annotated[
        tuple[float, float] | str | None,
        Flag(
            "Window of start times, us after the first kernel, or a step of the "
            "profiler.",
            "FROM:TO|STEP",
            _window,
        ),
    ] = None
    dims: Annotated[
        Mapping[str, int] | None,
        Flag(
            "Size of a symbolic dimension of a graph [1], or of a replayed pass with "
            "--model (tokens, context, tp); repeatable.",
            "NAME=N",
            _dims,
            name="--dim",
            many=True,
        ),
    ] = None
    stack: Annotated[
        Literal["serving", "eager"] | None,
        Flag(
            "Operators: serving (fused into convolutions) or eager [serving]; ONNX.",
            "KIND",
        ),
    ] = None
    progress: Annotated[
        Callable[[int, int], Any] | None,
        Note("Called with the bytes read and their number."),
    ] = None
