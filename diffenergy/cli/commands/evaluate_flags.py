"""Flags of `diffenergy evaluate`."""

from typing import Annotated

from ... import reading
from ...measurements import TableRequest
from ...requests import File, Flag
from ..arguments import MEASURED
from ..flags import Json, out_file, plot_file


class Flags(TableRequest):
    """Errors of time, power and energy against measured runs, or against a trace.

    A profiler's trace is compared kernel by kernel, without launch latency.

    \b
    Examples:
      diffenergy evaluate runs.csv --workloads listings.jsonl --by gpu,workload
      diffenergy evaluate gemm=gemm.csv --gpu a10 --out rows.csv
      diffenergy evaluate trace.json --by op
    """

    measurements: Annotated[tuple[str, ...], MEASURED]
    corrections: Annotated[
        File | None, Flag("Fitted constants [the shipped ones].", "FILE|none")
    ] = None
    by: Annotated[
        tuple[str, ...],
        Flag("Columns to group errors by.", "COL[,COL...]", reading.columns),
    ] = ()
    plot: Annotated[str | None, plot_file()] = None
    as_json: Json = False
    out: Annotated[
        str | None, out_file("Also write every row (.csv) or .json.", ".csv", ".json")
    ] = None
