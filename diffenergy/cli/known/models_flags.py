"""Flags of `diffenergy models`."""

from typing import Annotated

from ...requests import Request
from ...workload import model_names
from ..parsing import shared
from ..parsing.field import Json, out_file


class Flags(Request):
    """Models that are bundled; of one its layers, parameters, bytes by dtype and
    KV-cache bytes per token.

    \b
    Examples:
      diffenergy models
      diffenergy models show llama-3.1-8b
    """

    action: Annotated[str | None, shared.action("model")] = None
    name: Annotated[
        str | None,
        shared.known(
            "Bundled name, config.json or folder.", model_names, shared.model_files
        ),
    ] = None
    as_json: Json = False
    out: Annotated[str | None, out_file("Also write .json.", ".json")] = None
