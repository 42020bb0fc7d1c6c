"""What a shell offers behind the tab key; nothing heavy loads for it."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

_DATA: Final = Path(__file__).parents[1] / "data"


def gpus(incomplete: str) -> list[str]:
    """Bundled GPUs whose names begin so."""
    return _begin(incomplete, (path.stem for path in _DATA.glob("gpus/*.toml")))


def models(incomplete: str) -> list[str]:
    """Bundled models whose names begin so."""
    found = _DATA.glob("models/*/config.json")
    return _begin(incomplete, (path.parent.name for path in found))


def topologies(incomplete: str) -> list[str]:
    """Bundled machines, and the word verify, that begin so."""
    from ..collectives import MACHINE_PARTS

    stems = {path.stem for path in _DATA.glob("topologies/*.toml")}
    return _begin(incomplete, {"verify", *stems.difference(MACHINE_PARTS, ["media"])})


def show(incomplete: str) -> list[str]:
    """The word behind `gpus` and `models`."""
    return _begin(incomplete, ("show",))


def answer(command: Any) -> None:
    """Answers a shell that asks what may follow, and exits; else does nothing."""
    if "_DIFFENERGY_COMPLETE" in os.environ:
        command._main_shell_completion(ctx_args={}, prog_name="diffenergy")


def _begin(incomplete: str, names: Iterable[str]) -> list[str]:
    return sorted(name for name in names if name.startswith(incomplete))
