"""Flags of `diffenergy fit`."""

import functools
from pathlib import Path
from typing import Annotated

from ...fitting import FitRequest
from ...measurements import TableRequest
from ...nodes import node_names
from ...requests import Flag
from ...service import WindowsRequest
from ..arguments import MEASURED, file
from ..flags import Json


class Flags(FitRequest, TableRequest, WindowsRequest):
    """Fit the model's constants to measured runs.

    Rows that cannot be true are left out and named. The values in the start file are
    the prior. Ctrl-C writes FILE.partial.json, which --start continues. A table of
    servers (columns engine, output_len, ...) fits the constants of their engines, and
    so do logs of a service (--model).
    Readings of a server's meter (column wall_w) fit a node file.

    \b
    Examples:
      diffenergy fit runs.csv --workloads listings.jsonl --out corrections.json
      diffenergy fit gemm=gemm.csv --gpu a10 --holdout n:0.2 --out a10.json
      diffenergy fit meter.csv --node dgx-h100 --out mine.toml
    """

    data: Annotated[tuple[str, ...], MEASURED]
    out: Annotated[
        str,
        Flag(
            "Corrections (.json) or node (.toml) to write.",
            "FILE",
            endings=(".json", ".toml"),
        ),
    ]
    node: Annotated[
        str | None,
        Flag(
            "Node nearest to a metered server [the usual one of its GPU].",
            "NAME|FILE",
            files=file,
            completed=node_names,
        ),
    ] = None
    as_json: Json = False

    @property
    def partial(self) -> Path:
        """Path of an interrupted fit."""
        return Path(self.out).with_suffix(".partial.json")

    @functools.cached_property
    def metered(self) -> bool:
        """Whether the rows are readings of a server's meter."""
        from ...fitting import (
            is_node_table,
        )  # loads numpy, which the help has no time for

        return any(is_node_table(file) for file in self.data)

    @property
    def out_endings(self) -> tuple[str, ...]:
        """What can be written."""
        return (".toml",) if self.metered else (".json",)
