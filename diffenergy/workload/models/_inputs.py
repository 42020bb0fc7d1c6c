"""What some models alone are asked (images of a language model, steps of a diffusion
transformer), and the lengths that a request means."""

from collections.abc import Collection, Mapping
from typing import Any, Final

NAMES: Final = ("images", "image_tokens", "steps", "guidance")
_SEGMENTS: Final = 8
"""Decode steps are integrated over at most so many KV lengths."""
_WHY: Final = {
    "images": "reads no images",
    "image_tokens": "neither reads nor makes images of a size that can be chosen",
    "steps": "makes nothing in denoising steps",
    "guidance": "makes nothing in denoising steps",
}


def check_inputs(name: str, given: Mapping[str, Any], known: Collection[str]):
    """Raises `ValueError` for what is `given` and the model `name` has not, and for
    numbers below 1."""
    for key in NAMES:
        if key not in given:
            continue
        value = given[key]
        if key not in known:
            raise ValueError(
                f"`{key}` is {value}, but {name} {_WHY[key]}; leave it out."
            )
        kind = bool if key == "guidance" else int
        if type(value) is not kind or value < (kind is int):
            allowed = "a whole number of at least 1" if kind is int else "true or false"
            raise ValueError(f"`{key}` is {value!r}; allowed is {allowed}.")


def image_length(request: Any) -> int:
    """Tokens of the images of a sequence."""
    return (request.images or 0) * (request.image_tokens or 0)


def length_of(request: Any) -> int:
    """Tokens of the input: of text and of images."""
    return (request.input_len or 1) + image_length(request)


def decode_segments(input_len: int, steps: int) -> list[tuple[int, int]]:
    """(KV length, steps) of at most eight equal parts of a generation.

    Step i of `steps` attends to `input_len` + i tokens (i from 1); a part stands at its
    midpoint, so a cost linear in the KV length is integrated exactly (up to rounding).

    Example:

    >>> decode_segments(100, 3)
    [(101, 1), (102, 1), (103, 1)]
    """
    parts = min(_SEGMENTS, steps)
    edges = [steps * i // parts for i in range(parts + 1)]
    return [
        (round(input_len + (low + 1 + high) / 2), high - low)
        for low, high in zip(edges, edges[1:], strict=False)
    ]
