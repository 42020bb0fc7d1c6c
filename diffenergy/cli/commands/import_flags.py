"""Flags of `diffenergy import`."""

from typing import Annotated

from ...imports import ImportRequest
from ...requests import Argument
from .. import arguments
from ..flags import Json, out_file


class Flags(ImportRequest):
    """A trace, graph or report of a program as a kernel listing.

    FILE is a PyTorch profiler (Kineto) or Chrome trace (.json, .json.gz), an ONNX
    graph, an export (.sqlite) or summary (.csv) of Nsight Systems, a table (.csv) of
    Nsight Compute, or a Chakra execution trace (.et); its content decides. `estimate`
    and `evaluate` take the same files.

    \b
    Examples:
      diffenergy import trace.json --out listing.jsonl
      diffenergy import trace.json --gpu a100-sxm-80gb --json
    """

    file: Annotated[
        str, Argument("Trace, graph or report.", "FILE", files=arguments.file)
    ]
    as_json: Json = False
    out: Annotated[
        str | None,
        out_file(
            "Also write the listing (.jsonl), .json, or counters as measurements "
            "(.csv).",
            ".jsonl", ".json", ".csv",
        ),
    ] = None  # fmt: skip
