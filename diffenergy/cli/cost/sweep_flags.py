"""Flags of `diffenergy sweep`."""

import dataclasses
from typing import Any

from ..parsing.field import argument, as_json, option, switch


@dataclasses.dataclass(frozen=True, kw_only=True)
class Flags:
    """Estimates of any number of configurations, in blocks, on one machine or many.

    SPEC.toml has a table [axes] of lists or ranges over flags of `estimate`, all of
    which are crossed, and [fixed] for the rest. Every configuration has a row; one
    without an answer says why in its column `error`.

    \b
    Examples:
      diffenergy sweep sweep.toml --out results.parquet
      diffenergy sweep sweep.toml --out parts --resume
    """

    spec: str = argument(
        "TOML file of the sweep.", metavar="SPEC.toml", files=lambda text: [text]
    )
    target: Any = option(
        "FILE|FOLDER",
        "Write .parquet, .csv, or parts into a folder.",
        default=dataclasses.MISSING,
        name="--out",
    )
    ray: str | None = option(
        "ADDRESS|local[:N]", "Ray cluster to work on, or N workers here [none]."
    )
    resume: bool = switch("Do only what an earlier run left undone.")
    as_json: bool = as_json()
