"""Flags of `diffenergy import`."""

import dataclasses
import re

from ...units import quantity, us
from ..parsing import read, shared
from ..parsing.field import argument, as_json, option, out, repeated


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
    found: dict[str, int] = {}
    for word in words:
        name, equals, number = word.partition("=")
        if not (name and equals):
            raise ValueError(f"`{flag}` is '{word}'; allowed is NAME=N, as batch=8.")
        found[name] = read.whole(f"{flag} {name}", number)
    return found


@dataclasses.dataclass(frozen=True, kw_only=True)
class Flags:
    """A trace, graph or report of a program as a kernel listing.

    FILE is a PyTorch profiler (Kineto) or Chrome trace (.json, .json.gz), an ONNX
    graph, an export (.sqlite) or summary (.csv) of Nsight Systems, a table (.csv) of
    Nsight Compute, or a Chakra execution trace (.et); its content decides. `estimate`
    and `evaluate` take the same files.

    \b
    Examples:
      diffenergy import trace.json --out listing.jsonl
      diffenergy import trace.json --gpu a100-sxm-80gb --json
    """

    file: str = argument("Trace, graph or report.", metavar="FILE", files=shared.file)
    gpu: str | None = shared.gpu("GPU where the file names none, or another is meant.")
    model: str | None = option(
        "NAME|FILE",
        "Model whose config has the sizes that a serving engine's trace lacks.",
        files=shared.model_files,
    )
    phase: str | None = option("NAME", "Name of the phase [forward].")
    window: tuple[float, float] | str | None = option(
        "FROM:TO|STEP",
        "Kernels that start in it, us from the first one, or a step of the profiler.",
        _window,
    )
    dims: dict[str, int] | None = repeated(
        "NAME=N",
        "Size of a symbolic dimension of a graph [1]; repeatable.",
        _dims,
        default=None,
        name="--dim",
    )
    stack: str | None = option(
        "KIND", "eager keeps what runtimes fuse into a convolution [serving]; ONNX."
    )
    as_json: bool = as_json()
    out: str | None = out(
        "Also write the listing (.jsonl), .json, or counters as measurements (.csv).",
        ".jsonl", ".json", ".csv",
    )  # fmt: skip
