"""`diffenergy report`: one page about one estimate."""

from typing import Annotated

import typer

from . import completing, options, output
from .flags import Flags
from .options import option


def add_to(app: typer.Typer):
    """Adds the command."""
    app.command("report")(_report)


def _report(
    model: options.Model,
    gpu: options.Gpu = None,
    versus: Annotated[
        str | None,
        option(
            "--versus",
            "NAME",
            "A second GPU or .toml file beside the first.",
            completing.gpus,
        ),
    ] = None,
    workload: options.Workload = None,
    batch: options.Batch = None,
    input_len: options.InputLen = None,
    output_len: options.OutputLen = None,
    phase: options.Phase = None,
    dtype: options.Dtype = None,
    kv_dtype: options.KvDtype = None,
    attention: options.Attention = None,
    stack: options.Stack = None,
    dispatch: options.Dispatch = None,
    accumulation: options.Accumulation = None,
    checkpointing: options.Checkpointing = False,
    sm_clock: options.SmClock = None,
    mem_clock: options.MemClock = None,
    power_limit: options.PowerLimit = None,
    temperature: options.Temperature = None,
    set_field: options.SetField = None,
    corrections: options.Corrections = None,
    out: Annotated[
        str | None, option("--out", "FILE", "The page, .html (needed).")
    ] = None,
):
    """A page about MODEL on one GPU: one HTML file that needs no network.

    Totals with intervals, energy by unit and kernel class, the roofline, one pass over
    time, curves over clocks and power limits, every kernel, and where each number comes
    from. Clocks, limits and --set hold for --gpu; --versus runs at its defaults.

    \b
    Examples:
      diffenergy report llama-3.1-8b --gpu h100-sxm --batch 8 --out llama.html
      diffenergy report gpt2 --gpu a100-sxm-80gb --versus l40s --out gpt2.html
    """
    given = dict(locals())
    given["set_field"] = tuple(set_field or ())
    other = given.pop("versus")
    run(Flags(**given), other)


def run(flags: Flags, versus: str | None):
    """Evaluates, and writes the page."""
    if flags.out is None:
        raise ValueError("`--out` is missing; name the page, such as report.html.")
    inputs = [*flags.inputs, *([versus] if versus else [])]
    output.writer(flags.out, {".html": str})
    from ..files import check_target

    check_target(flags.out, inputs)
    from .reporting import content

    found = content(flags, versus)
    from ..report._page.build import page_html

    writers = {".html": lambda: page_html(found)}
    output.save(flags.out, writers, inputs=inputs)
    print(f"wrote {flags.out}")
    output.notes(found.notes)
