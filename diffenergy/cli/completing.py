"""What a shell offers behind the tab key; nothing heavy loads for it."""

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

_DATA: Final = Path(__file__).parents[1] / "data"


def topologies() -> list[str]:
    """Bundled machines, and the word verify; a grid is a part of machines."""
    files = [x for x in _DATA.glob("topologies/*.toml") if x.stem != "media"]
    return ["verify", *(x.stem for x in files if "[grid]" not in x.read_text())]


def starting(names: Callable[[], Iterable[str]] | None) -> Any:
    """Completion function: of `names`, those that begin with the typed text."""
    if names is None:
        return None
    return lambda incomplete: sorted(x for x in names() if x.startswith(incomplete))


def answer(command: Any) -> None:
    """Answers a shell that asks what may follow, and exits; else does nothing."""
    if "_DIFFENERGY_COMPLETE" in os.environ:
        command._main_shell_completion(ctx_args={}, prog_name="diffenergy")
