"""Flags of `diffenergy fit`."""

import dataclasses
from pathlib import Path

from ..parsing import read, shared
from ..parsing.field import as_json, group, number, option, repeated, switch
from ..parsing.shared import TableFlags


@dataclasses.dataclass(frozen=True, kw_only=True)
class Flags:
    """Fit the model's constants to measured runs.

    Rows that cannot be true are left out and named. The values in the start file are
    the prior. Ctrl-C leaves FILE.partial.json, which --start continues. A table of
    servers (columns engine, output_len, ...) gives the constants of their engines.

    \b
    Examples:
      diffenergy fit runs.csv --workloads listings.jsonl --out corrections.json
      diffenergy fit gemm=gemm.csv --gpu a10 --holdout n:0.2 --out a10.json
    """

    data: tuple[str, ...] = shared.measured()
    out: str = option(
        "FILE",
        "Corrections to write (.json).",
        default=dataclasses.MISSING,
        endings=(".json",),
    )
    table: TableFlags = group(TableFlags)
    start: str | None = option(
        "FILE|none",
        "Corrections to start from [the shipped ones].",
        files=shared.file,
    )
    freeze: tuple[str, ...] = repeated(
        "GROUP",
        "Keep a level (mma, gpu:a10), a constant or all that begin so (energy_); "
        "repeatable.",
    )
    holdout: tuple[str, ...] = repeated(
        "COLUMN=VALUE|COLUMN:FRACTION",
        "Rows to leave out and report apart; repeatable.",
    )
    seed: int = number("Of all draws.", 0, 0)
    max_rows: int | None = option("N", "Kernel rows to draw [20000].", read.whole)
    max_steps: int | None = option("N", "Evaluations of all rows [30].", read.whole)
    strict: bool = switch("Refuse rows that cannot be true.")
    as_json: bool = as_json()

    @property
    def partial(self) -> Path:
        """Where an interrupted fit is kept."""
        return Path(self.out).with_suffix(".partial.json")
