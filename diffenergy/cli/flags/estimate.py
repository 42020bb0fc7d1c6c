"""Flags of `diffenergy estimate`, also in one quoted string."""

import dataclasses
import shlex

from ..app import parsed
from ..parsing import shared
from ..parsing.field import as_json, group, option, out, plot, read_flags, switch
from ..parsing.shared import PointFlags, RequestFlags


@dataclasses.dataclass(frozen=True, kw_only=True)
class Flags:
    """Time, power and energy of MODEL on one GPU.

    Lists of clocks or power limits give a table with the best row for energy and for
    energy-delay product.

    \b
    Examples:
      diffenergy estimate llama-3.1-8b --gpu h200-sxm --batch 8 --input-len 1024
      diffenergy estimate gpt2 --gpu a100-sxm-80gb --sm-clock 900,1410 --json
    """

    model: str = shared.model()
    gpu: str | None = shared.gpu()
    workload: str | None = shared.picked()
    request: RequestFlags = group(RequestFlags)
    point: PointFlags = group(PointFlags)
    detail: bool = switch("Show every kernel.")
    trace: str | None = option(
        "FILE", "Write a timeline for Perfetto, .json.", endings=(".json",)
    )
    plot: str | None = plot()
    as_json: bool = as_json()
    out: str | None = out(
        "Also write .json, .jsonl (the listing) or .csv.", ".json", ".jsonl", ".csv"
    )


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
