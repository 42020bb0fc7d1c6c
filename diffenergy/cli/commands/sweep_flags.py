"""Flags of `diffenergy sweep`."""

from typing import Annotated

from ...requests import Argument, Flag
from ...sweeps import RunRequest
from ..flags import Json


class Flags(RunRequest):
    """Estimates of any number of configurations, in blocks, on one machine or many.

    SPEC.toml has a table [axes] of lists or ranges over flags of `estimate`, all of
    which are crossed, and [fixed] for the rest. Every configuration has a row; one
    without an answer says why in its column `error`.

    \b
    Examples:
      diffenergy sweep sweep.toml --out results.parquet
      diffenergy sweep sweep.toml --out parts --resume
    """

    spec: Annotated[
        str,
        Argument(
            "TOML file of the sweep.", metavar="SPEC.toml", files=lambda text: [text]
        ),
    ]
    target: Annotated[
        str,
        Flag(
            "Write .parquet, .csv, or parts into a folder.", "FILE|FOLDER", name="--out"
        ),
    ]
    as_json: Json = False
