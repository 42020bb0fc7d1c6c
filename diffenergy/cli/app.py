"""The typer application: every module `cmd_*.py` of this package adds its command."""

import importlib
import pkgutil
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from .groups import Grouped

_FOLDER: Final = [str(Path(__file__).parent)]


def build() -> Any:
    """The command `diffenergy` with all its subcommands."""
    app = typer.Typer(
        name="diffenergy",
        cls=Grouped,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    for name in sorted(found.name for found in pkgutil.iter_modules(_FOLDER)):
        if name.startswith("cmd_"):
            importlib.import_module(f"diffenergy.cli.{name}").add_to(app)
    return typer.main.get_command(app)


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
