"""`diffenergy help`: help of a command, and the skill file."""

from ...requests import BadRequest
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
        return Outcome(
            text=root.get_help(root.context_class(root, info_name="diffenergy"))
        )
    if flags.command not in names():
        allowed = ", ".join(names())
        text = f"`command` is '{flags.command}'; allowed are {allowed}."
        raise BadRequest(text, "command")
    command = root.get_command(None, flags.command)
    path = f"diffenergy {flags.command}"
    context = command.context_class(command, info_name=path, **command.context_settings)
    return Outcome(text=command.get_help(context))
