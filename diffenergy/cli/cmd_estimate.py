"""`diffenergy estimate`: time, power and energy of a model or a kernel listing."""

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from . import options, output, plotting, tracing
from .estimation import Result, prepare
from .flags import Flags
from .options import option


def add_to(app: typer.Typer):
    """Adds the command."""
    app.command("estimate")(_estimate)


def _estimate(
    model: options.Model,
    gpu: options.Gpu = None,
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
    detail: Annotated[
        bool, typer.Option("--detail", help="Show every kernel.")
    ] = False,
    trace: Annotated[
        str | None,
        option("--trace", "FILE", "Write a timeline for Perfetto, .json."),
    ] = None,
    plot: plotting.Plot = None,
    as_json: options.AsJson = False,
    out: Annotated[
        str | None,
        option("--out", "FILE", "Also write .json, .jsonl (the listing) or .csv."),
    ] = None,
):
    """Time, power and energy of MODEL on one GPU.

    Lists of clocks or power limits give a table with the best row for energy and for
    energy-delay product.

    \b
    Examples:
      diffenergy estimate llama-3.1-8b --gpu h200-sxm --batch 8 --input-len 1024
      diffenergy estimate gpt2 --gpu a100-sxm-80gb --sm-clock 900,1410 --json
    """
    given = dict(locals())
    given["set_field"] = tuple(set_field or ())
    timeline, picture = given.pop("trace"), given.pop("plot")
    run(Flags(**given), timeline, picture)


def run(flags: Flags, trace: str | None = None, plot: str | None = None):
    """Evaluates, prints and writes what the flags ask for."""
    output.writer(flags.out, _writers(None))
    tracing.check(trace, flags)
    plotting.check(plot, flags.inputs)
    task = prepare(flags)
    tracing.check_task(trace, task)
    result = task.run()
    output.save(flags.out, _writers(result), inputs=flags.inputs)
    tracing.save(trace, task, result)
    _draw(plot, flags, result)

    def tables():
        from ..report._tables.estimates import estimate_parts

        return estimate_parts(result.summary, result.kernels, flags.detail)

    output.show(result.summary, flags.as_json, tables)
    output.notes(result.notes)


def _draw(plot: str | None, flags: Flags, result: Result):
    """Writes the picture of one estimate or of a sweep."""
    if plot is None:
        return
    from ..report._charts import style
    from ..report._charts.plot_estimate import estimate_figure
    from ..report._charts.plot_sweep import sweep_figure

    summary, kernels = result.summary, result.kernels
    if kernels is None:
        style.save_figure(plot, lambda: sweep_figure(summary), flags.inputs)
    else:
        style.save_figure(plot, lambda: estimate_figure(summary, kernels), flags.inputs)


def _writers(result: Result | None) -> output.Writers:
    """Texts by ending; `result` None only lists the endings."""

    def done() -> Result:
        assert result is not None
        return result

    def lines() -> str:
        from ..workload._listing import listing_lines

        return listing_lines(done().listings)

    def rows() -> str:
        found = done()
        return _csv(found.kernels or found.summary["points"])

    return {
        ".json": lambda: output.json_text(done().summary),
        ".jsonl": lines,
        ".csv": rows,
    }


def _csv(entries: Sequence[Mapping[str, Any]]) -> str:
    """Entries as CSV: nested figures become columns `key_unit`, None an empty cell."""
    flat = [_flat(entry) for entry in entries]
    columns = list(dict.fromkeys(key for row in flat for key in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(flat)
    return text.getvalue()


def _flat(entry: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in entry.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{key}_")
        else:
            flat[f"{prefix}{key}"] = value
    return flat
