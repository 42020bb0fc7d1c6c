"""Flags of `diffenergy report`."""

from typing import Annotated

from ...estimator import WorkRequest
from ...hardware import GpuName
from ...serving import ENGINE, EngineName, WayRequest
from ..flags import out_file, plot_file


class ServedFlags(WayRequest):
    """The model behind an engine as well."""

    engine: Annotated[EngineName | None, ENGINE] = None


class Flags(WorkRequest, ServedFlags):
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

    versus: Annotated[
        GpuName | None, "A second GPU or .toml file beside the first."
    ] = None
    out: Annotated[str | None, out_file("The page, .html (needed).", ".html")] = None
    plot: Annotated[
        str | None, plot_file("Also draw a chart of the page; NAME=FILE picks one.")
    ] = None
