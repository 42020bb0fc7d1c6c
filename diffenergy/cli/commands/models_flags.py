"""Flags of `diffenergy models`."""

from typing import Annotated

from ...requests import Request
from ...workload import model_names
from .. import arguments
from ..flags import Json, out_file


class Flags(Request):
    """List the bundled models; `show NAME` prints layers, parameters, weight bytes by
    type and KV-cache bytes per token of one.

    \b
    Examples:
      diffenergy models
      diffenergy models show llama-3.1-8b
    """

    action: Annotated[str | None, arguments.action("model")] = None
    name: Annotated[
        str | None,
        arguments.name_argument(
            "Bundled name, config.json or folder.", model_names, arguments.model_files
        ),
    ] = None
    as_json: Json = False
    out: Annotated[str | None, out_file("Also write .json.", ".json")] = None
