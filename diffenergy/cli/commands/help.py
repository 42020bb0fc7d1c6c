"""`diffenergy help`: help of a command, and the skill file."""

import click

from ..app import build, names
from ..run import Outcome
from ..skill import skill_text
from .help_flags import Flags


def run(flags: Flags) -> Outcome:
    """Returns the text to print."""
    if flags.skill:
        return Outcome(text=skill_text())
    root = build()
    if flags.command is None:
        return Outcome(text=root.get_help(click.Context(root, info_name="diffenergy")))
    if flags.command not in names():
        raise ValueError(
            f"`command` is '{flags.command}'; allowed are {', '.join(names())}."
        )
    command = root.get_command(None, flags.command)
    path = f"diffenergy {flags.command}"
    return Outcome(text=command.get_help(command.context_class(command, info_name=path)))
