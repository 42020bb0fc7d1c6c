"""Flags of `diffenergy report`."""

from typing import Annotated

from ...estimator import WorkRequest
from ...hardware import GpuName
from ...power_time import PowerRequest
from ...serving import ENGINE, EngineName, WayRequest
from ..flags import out_file, plot_file


class ServedFlags(WayRequest):
    """Fields of a served model."""

    engine: Annotated[EngineName | None, ENGINE] = None


class Flags(WorkRequest, ServedFlags, PowerRequest):
    """Write one HTML page about MODEL on one GPU or many; it needs no network.

    The page shows totals with intervals, energy by unit and kernel class, the roofline,
    one pass over time, curves over clocks and power limits, every kernel, and the
    source of each number. With --phase train and --plan it shows every stage over time.
    With --rate, --concurrency or --max-batch it adds the results of `serve`. Clocks,
    limits and --set apply to --gpu; the GPU of --versus runs at its defaults.

    \b
    Examples:
      diffenergy report gpt2 --gpu a100-sxm-80gb --versus l40s --out gpt2.html
      diffenergy report gpt2 --phase train --plan pp=4 --out step.html
      diffenergy report qwen3-8b --rate 8 --max-batch 128 --out served.html
    """

    versus: Annotated[GpuName | None, "Second GPU (name or .toml file) to compare."] = (
        None
    )
    out: Annotated[str | None, out_file("HTML page to write (required).", ".html")] = (
        None
    )
    plot: Annotated[str | None, plot_file()] = None
