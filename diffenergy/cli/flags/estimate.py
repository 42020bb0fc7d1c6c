"""Flags of `diffenergy estimate`."""

import dataclasses

from ..parsing import shared
from ..parsing.field import as_json, group, option, out, plot, switch
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
