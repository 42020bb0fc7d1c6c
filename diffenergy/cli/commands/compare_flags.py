"""Flags of `diffenergy compare`."""

from typing import Annotated

from ...requests import Argument, Request
from ..flags import Json, out_file


class Flags(Request):
    """Compare time, energy and power of two or more estimates, with ratios.

    \b
    Examples:
      diffenergy compare "gpt2 --gpu l40s" "gpt2 --gpu h100-sxm --batch 2"
      diffenergy compare before.json "gpt2 --gpu a10 --dtype fp16" --json
      diffenergy compare "gpt2 --gpu a10" "gpt2 --gpu l4" "gpt2 --gpu l40s"
    """

    a: Annotated[
        str, Argument("JSON file of `estimate --json`, or quoted flags of `estimate`.")
    ]
    b: Annotated[str, Argument("Second estimate, like A; ratios are B / A.")]
    others: Annotated[
        tuple[str, ...] | None,
        Argument("Further estimates, with ratios to A.", metavar="C", many=True),
    ] = None
    as_json: Json = False
    out: Annotated[str | None, out_file("Also write .json.", ".json")] = None
