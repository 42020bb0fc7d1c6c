"""`diffenergy evaluate`: predictions against measured runs."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from . import engine, output, plotting

if TYPE_CHECKING:
    from ..measurements import MeasurementTable
    from ..workload import Listing


def add_to(app: typer.Typer):
    """Adds the command."""
    app.command("evaluate")(_evaluate)


def _evaluate(
    measurements: Annotated[
        list[str],
        typer.Argument(help="Files .csv or .csv.gz of measured runs, or OP=FILE."),
    ],
    workloads: Annotated[
        list[str] | None,
        typer.Option(
            "--workloads", metavar="FILE", help="Listings (.jsonl); repeatable."
        ),
    ] = None,
    gpu: Annotated[
        str | None,
        typer.Option("--gpu", metavar="NAME", help="Replaces the column gpu."),
    ] = None,
    op: Annotated[
        str | None, typer.Option("--op", metavar="OP", help="Replaces the column op.")
    ] = None,
    corrections: Annotated[
        str | None,
        typer.Option(
            "--corrections",
            metavar="FILE|none",
            help="Fitted constants [the shipped ones].",
        ),
    ] = None,
    by: Annotated[
        str | None,
        typer.Option("--by", metavar="COL[,COL...]", help="Errors by group, too."),
    ] = None,
    plot: plotting.Plot = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON alone.")] = False,
    out: Annotated[
        str | None,
        typer.Option(
            "--out", metavar="FILE", help="Also write every row (.csv) or .json."
        ),
    ] = None,
):
    """Errors of time, power and energy against measured runs.

    \b
    Examples:
      diffenergy evaluate runs.csv --workloads listings.jsonl --by gpu,workload
      diffenergy evaluate gemm=gemm.csv --gpu a10 --out rows.csv
    """
    columns = [part.strip() for part in by.split(",")] if by is not None else []
    if "" in columns:
        raise ValueError(f"`--by` is '{by}'; give columns, such as gpu,workload.")
    writers = {
        ".csv": lambda: prediction_frame(table, predictions).to_csv(index=False),
        ".json": lambda: output.json_text(summary),
    }
    inputs = _inputs(measurements, workloads, gpu, corrections)
    output.writer(out, writers)
    plotting.check(plot, inputs)
    engine.start(keep_compilations=True)
    from ..measurements import prediction_frame, read_measurements, summary_json

    listings = read_workloads(workloads or [])
    table = read_measurements(measurements, workloads=listings, gpu=gpu, op=op)
    from ..corrections import prior_file, read_corrections
    from ..fitting._predict import predict

    file = prior_file() if corrections == "none" else read_corrections(corrections)
    _check_columns(table, columns)
    predictions = predict(table, listings, file)
    summary = summary_json(table, predictions, columns)
    if plot is not None:
        from ..report._charts import style
        from ..report._charts.plot_accuracy import accuracy_figure

        style.save_figure(plot, lambda: accuracy_figure(table, predictions), inputs)
    output.save(out, writers, inputs=inputs)
    from ..report._tables.accuracy import accuracy_parts

    output.show(summary, as_json, lambda: accuracy_parts(summary, columns))
    output.notes(table.notes)
    if table.ignored_columns:
        output.notes([f"ignored columns: {', '.join(table.ignored_columns)}"])


def _inputs(
    measurements: Sequence[str],
    workloads: Sequence[str] | None,
    gpu: str | None,
    corrections: str | None,
) -> list[str]:
    """Files that this run reads, as far as the names are files."""
    names = [*measurements, *(name.partition("=")[2] for name in measurements)]
    names += [*(workloads or []), gpu or "", corrections or ""]
    return [name for name in names if name]


def _check_columns(table: "MeasurementTable", columns: Sequence[str]):
    """Finds a column that does not exist before time is spent on predictions."""
    import numpy as np

    from ..measurements import Predictions, grouped

    unknown = np.full(table.num_rows, np.nan)
    empty = np.full(table.num_rows, "", dtype=object)
    nothing = Predictions(unknown, unknown, unknown, empty, empty)
    grouped(table, nothing, columns)


def read_workloads(paths: Sequence[str]) -> dict[str, list["Listing"]]:
    """Listings of all files by name; the parts of a generation or of a training step
    (`X/prefill` and `X/decode`) are also `X`."""
    from ..workload._listing import read_listings, wholes

    found: dict[str, list[Listing]] = {}
    files: dict[str, str] = {}
    for path in paths:
        for listing in read_listings(path):
            if listing.name in found:
                raise ValueError(
                    f"{path}: the workload '{listing.name}' is also in "
                    f"{files[listing.name]}; give each name once."
                )
            found[listing.name], files[listing.name] = [listing], path
    single = [listing for one in found.values() for listing in one]
    stems = dict.fromkeys(name.rpartition("/")[0] for name in found)
    for stem in stems:
        parts = wholes(single, stem)
        if stem not in found and len(parts) == 1:
            found[stem] = parts[0]
    return found
