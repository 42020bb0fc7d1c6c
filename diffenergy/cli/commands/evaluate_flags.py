"""Flags of `diffenergy evaluate`."""

from typing import Annotated

from ... import reading
from ...measurements import TableRequest
from ...requests import File, Flag, Needs
from ...service import ServedRequest
from ..arguments import MEASURED
from ..flags import Json, out_file, plot_file


class Flags(TableRequest, ServedRequest):
    """Errors of time, power and energy against measured runs, or against a trace.

    A profiler's trace is compared kernel by kernel, without launch latency. --service
    compares logs of a running service (power, metrics, benchmarks) window by window;
    with --strict the exit status is 4 where one lies outside its interval.

    \b
    Examples:
      diffenergy evaluate runs.csv --workloads listings.jsonl --by gpu,workload
      diffenergy evaluate gemm=gemm.csv --gpu a10 --out rows.csv
      diffenergy evaluate --service power.csv metrics.json --model qwen3-8b
    """

    measurements: Annotated[tuple[str, ...], MEASURED]
    corrections: Annotated[
        File | None, Flag("Fitted constants [the shipped ones].", "FILE|none")
    ] = None
    by: Annotated[
        tuple[str, ...],
        Flag("Columns to group errors by.", "COL[,COL...]", reading.columns),
    ] = ()
    service: Annotated[bool, Flag("Compare logs of a running service.")] = False
    strict: Annotated[
        bool,
        Flag("Exit with status 4 if a window lies outside its interval."),
        Needs("service"),
    ] = False
    plot: Annotated[str | None, plot_file()] = None
    as_json: Json = False
    out: Annotated[
        str | None, out_file("Also write every row (.csv) or .json.", ".csv", ".json")
    ] = None
