"""Flags of `diffenergy fit`."""

from pathlib import Path
from typing import Annotated

from ...fitting import FitRequest
from ...measurements import TableRequest
from ...requests import Flag
from ..arguments import MEASURED
from ..flags import Json


class Flags(FitRequest, TableRequest):
    """Fit the model's constants to measured runs.

    Rows that cannot be true are left out and named. The values in the start file are
    the prior. Ctrl-C writes FILE.partial.json, which --start continues. A table of
    servers (columns engine, output_len, ...) fits the constants of their engines.

    \b
    Examples:
      diffenergy fit runs.csv --workloads listings.jsonl --out corrections.json
      diffenergy fit gemm=gemm.csv --gpu a10 --holdout n:0.2 --out a10.json
    """

    data: Annotated[tuple[str, ...], MEASURED]
    out: Annotated[
        str, Flag("Corrections to write (.json).", "FILE", endings=(".json",))
    ]
    as_json: Json = False

    @property
    def partial(self) -> Path:
        """Path of an interrupted fit."""
        return Path(self.out).with_suffix(".partial.json")
