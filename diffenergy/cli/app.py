"""The typer application: every module of `flags` is a command.

A command's flags load when it is asked for, so that one command does not pay for the
others.
"""

import pkgutil
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from .groups import Grouped

_FLAGS: Final = Path(__file__).parent / "flags"


def names() -> list[str]:
    """The commands."""
    return sorted(found.name for found in pkgutil.iter_modules([str(_FLAGS)]))


def build() -> Any:
    """The command `diffenergy` with all its subcommands."""
    root = typer.Typer(
        name="diffenergy",
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        cls=Grouped,
    )
    root.callback()(_root)
    return typer.main.get_command(root)


def _version(wanted: bool) -> bool:
    if wanted:
        from .. import __version__

        print(f"diffenergy {__version__}")
        raise typer.Exit()
    return wanted


def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_version, is_eager=True, help="Print the version."
        ),
    ] = False,
):
    """Time, power and energy of AI workloads on GPUs, without a GPU.

    \b
    Examples:
      diffenergy estimate llama-3.1-8b
      diffenergy estimate gpt2 --gpu a100-sxm-80gb --batch 8 --json
    """
