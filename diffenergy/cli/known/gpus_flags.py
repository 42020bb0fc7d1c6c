"""Flags of `diffenergy gpus`."""

import dataclasses

from .. import completing
from ..parsing import shared
from ..parsing.field import as_json, out, switch


@dataclasses.dataclass(frozen=True, kw_only=True)
class Flags:
    """GPUs that are known; of one every value, its unit and source, and whose
    corrections serve it.

    \b
    Examples:
      diffenergy gpus
      diffenergy gpus show h100-sxm --toml > mine.toml
    """

    action: str | None = shared.action("GPU")
    name: str | None = shared.known(
        "Name, another spelling or .toml file.", completing.gpus, shared.file
    )
    toml: bool = switch("Print a GPU file to start from.")
    as_json: bool = as_json()
    out: str | None = out("Also write .json or .toml.", ".json", ".toml")

    @property
    def out_endings(self) -> tuple[str, ...]:
        """What can be written: a list is no GPU file."""
        return (".json", ".toml") if self.name else (".json",)
