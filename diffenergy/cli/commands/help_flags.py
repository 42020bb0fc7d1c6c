"""Flags of `diffenergy help`."""

from typing import Annotated

from ...requests import Argument, Excludes, Request


class Flags(Request):
    """Print the help of a command; with --skill a SKILL.md of this version for agents.

    \b
    Examples:
      diffenergy help estimate
      diffenergy help --skill > SKILL.md
    """

    command: Annotated[str | None, Argument("Command [all].")] = None
    skill: Annotated[
        bool,
        "Print a skill file: commands, units, exit codes, schema, worked questions.",
        Excludes(("command",)),
    ] = False
