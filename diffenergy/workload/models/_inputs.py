"""What some models alone are asked: images of a language model, steps of a diffusion
transformer."""

from collections.abc import Collection, Mapping
from typing import Any, Final

NAMES: Final = ("images", "image_tokens", "steps", "guidance")
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
