"""Flags of `diffenergy models`."""

import dataclasses

from .. import completing
from ..parsing import shared
from ..parsing.field import as_json, out


@dataclasses.dataclass(frozen=True, kw_only=True)
class Flags:
    """Models that are bundled; of one its layers, parameters, bytes by dtype and
    KV-cache bytes per token.

    \b
    Examples:
      diffenergy models
      diffenergy models show llama-3.1-8b
    """

    action: str | None = shared.action("model")
    name: str | None = shared.known(
        "Bundled name, config.json or folder.", completing.models, shared.model_files
    )
    as_json: bool = as_json()
    out: str | None = out("Also write .json.", ".json")
