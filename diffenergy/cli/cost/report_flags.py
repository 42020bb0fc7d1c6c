"""Flags of `diffenergy report`."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from .. import completing
from ..parsing import shared
from ..parsing.field import group, option, out, plot, typed
from ..parsing.shared import PlanFlags, PointFlags, RequestFlags
from .serve_flags import WayFlags, engine


@dataclasses.dataclass(frozen=True, kw_only=True)
class ServedFlags(WayFlags):
    """The model behind an engine as well; None where a flag was not given."""

    engine: Any = engine()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Flags:
    """A page about MODEL on one GPU or many: one HTML file that needs no network.

    Totals with intervals, energy by unit and kernel class, the roofline, one pass over
    time, curves over clocks and power limits, every kernel, and where each number comes
    from; of training with --plan every stage over time. With --rate, --concurrency or
    --max-batch also the model served under load, as `serve` answers it. Clocks, limits
    and --set hold for --gpu; --versus runs at its defaults.

    \b
    Examples:
      diffenergy report gpt2 --gpu a100-sxm-80gb --versus l40s --out gpt2.html
      diffenergy report gpt2 --phase train --plan pp=4 --out step.html
      diffenergy report qwen3-8b --rate 8 --max-batch 128 --out served.html
    """

    model: str = shared.model()
    gpu: str | None = shared.gpu()
    versus: str | None = option(
        "NAME",
        "A second GPU or .toml file beside the first.",
        completed=completing.gpus,
        files=shared.file,
    )
    workload: str | None = shared.picked()
    request: RequestFlags = group(RequestFlags)
    sharing: PlanFlags = group(PlanFlags)
    served: ServedFlags = group(ServedFlags)
    point: PointFlags = group(PointFlags)
    typed: Mapping[str, Any] = typed()
    out: str | None = out("The page, .html (needed).", ".html")
    plot: str | None = plot("Also draw a chart of the page; NAME=FILE picks one.")
