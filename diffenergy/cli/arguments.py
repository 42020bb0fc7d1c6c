"""Flags that several commands have."""

from collections.abc import Callable, Iterable
from pathlib import Path

from ..hardware import gpu_names
from ..requests import Argument, Flag
from ..workload import model_names


def file(name: str) -> tuple[str, ...]:
    """Paths that a name may stand for: the name itself."""
    return (name,)


def model_files(name: str) -> tuple[str, ...]:
    """Paths that a model may stand for: a file, or the folder of a config.json."""
    return name, str(Path(name) / "config.json")


MODEL = Argument(
    "Bundled name, Hugging Face config.json or its folder.",
    completed=model_names,
    files=model_files,
)
"""The word MODEL where it is no listing."""
GPU = Flag(
    "GPU name or .toml file [h100-sxm].", "NAME", files=file, completed=gpu_names
)
"""`--gpu`."""
MEASURED = Argument(
    "Measured runs: files .csv or .csv.gz, or OP=FILE; or one trace.",
    many=True,
    files=lambda spec: (spec, spec.partition("=")[2] or spec),
)
"""Files of measured runs."""


def action(what: str) -> Argument:
    """Argument for the word show."""
    return Argument(
        f"Print everything about one {what}.", "show", completed=lambda: ["show"]
    )


def name_argument(
    text: str,
    completed: Callable[[], Iterable[str]],
    files: Callable[[str], Iterable[str]],
) -> Argument:
    """Argument for the name behind show."""
    return Argument(text, "NAME", completed=completed, files=files)


def check_action(command: str, action: str | None, name: str | None):
    """Checks the words behind a command that takes `show NAME` or nothing."""
    if action not in (None, "show"):
        raise ValueError(
            f"`{command}` is followed by '{action}'; allowed is `{command} show NAME`."
        )
    if action and not name:
        raise ValueError(
            f"`{command} show` lacks a name; `diffenergy {command}` lists those known."
        )
