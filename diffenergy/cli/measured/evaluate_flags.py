"""Flags of `diffenergy evaluate`."""

import dataclasses

from ..parsing import read, shared
from ..parsing.field import as_json, group, option, out, plot
from ..parsing.shared import TableFlags


@dataclasses.dataclass(frozen=True, kw_only=True)
class Flags:
    """Errors of time, power and energy against measured runs, or against a trace.

    Of a profiler's trace the time of every kernel is compared, without launch latency.

    \b
    Examples:
      diffenergy evaluate runs.csv --workloads listings.jsonl --by gpu,workload
      diffenergy evaluate gemm=gemm.csv --gpu a10 --out rows.csv
      diffenergy evaluate trace.json --by op
    """

    measurements: tuple[str, ...] = shared.measured()
    table: TableFlags = group(TableFlags)
    corrections: str | None = shared.corrections()
    by: tuple[str, ...] | None = option(
        "COL[,COL...]", "Errors by group, too.", read.columns
    )
    plot: str | None = plot()
    as_json: bool = as_json()
    out: str | None = out("Also write every row (.csv) or .json.", ".csv", ".json")
