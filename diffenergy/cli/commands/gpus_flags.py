"""Flags of `diffenergy gpus`."""

from typing import Annotated

from ...hardware import gpu_names
from ...requests import Request
from .. import arguments
from ..flags import Json, out_file


class Flags(Request):
    """List the GPUs; `show NAME` prints every value of one with its unit and source,
    and which fitted constants it uses.

    \b
    Examples:
      diffenergy gpus
      diffenergy gpus show h100-sxm --toml > mine.toml
    """

    action: Annotated[str | None, arguments.action("GPU")] = None
    name: Annotated[
        str | None,
        arguments.name_argument(
            "Name, another spelling or .toml file.", gpu_names, arguments.file
        ),
    ] = None
    toml: Annotated[bool, "Print a GPU file to start from."] = False
    as_json: Json = False
    out: Annotated[
        str | None, out_file("Also write .json or .toml.", ".json", ".toml")
    ] = None

    @property
    def out_endings(self) -> tuple[str, ...]:
        """What can be written: a list is no GPU file."""
        return (".json", ".toml") if self.name else (".json",)
