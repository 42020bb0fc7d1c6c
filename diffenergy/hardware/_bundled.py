"""The bundled GPU files as they stand, before any check."""

import functools
from pathlib import Path
from typing import Any, Final

from ..files import read_toml

FOLDER: Final = Path(__file__).parent.parent / "data" / "gpus"


def gpu_names() -> list[str]:
    """Names of the bundled GPUs, sorted."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


@functools.cache
def bundled(name: str) -> dict[str, Any]:
    """Keys of the file of a bundled GPU."""
    return read_toml(FOLDER / f"{name}.toml", "gpu", "h100-sxm")
