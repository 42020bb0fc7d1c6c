"""The typer application: every `NAME_flags` of a room is a command, which the help
lists under the question that it answers.

A command's flags load when it is asked for, so that one command does not pay for the
others.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

from .refusal import parser_sentence

_FLAGS: Final = "_flags"
"""How modules end that declare the flags of a command."""
QUESTIONS: Final[Mapping[str, Mapping[str, str]]] = {
    "What will it cost?": {
        "estimate": "Time, power and energy of a model on one GPU.",
        "serve": "What a served token costs under load: latency, watts, joules.",
        "compare": "Two estimates side by side.",
        "report": "A page with everything about an estimate, to look at.",
        "sweep": "Any number of estimates, on one machine or a cluster.",
    },
    "What does my program cost?": {
        "import": "A trace, graph or report of yours as a kernel listing."
    },
    "At which clock?": {
        "dvfs": "Clocks for every kernel: less energy in the same time."
    },
    "Which hardware?": {
        "codesign": "Hardware, clocks and tiles that a workload costs least on."
    },
    "Many GPUs?": {
        "plan": "The best plan for training, and clocks for its stages.",
        "collective": "Who sends what to whom and when, with its time and energy.",
    },
    "How do I run a fleet?": {
        "fleet": "Which model on which GPUs, at which clock, under my watts."
    },
    "Does it match what was measured?": {
        "evaluate": "Errors against measured runs.",
        "fit": "Fit the model's constants to measured runs.",
        "measure": "Measure kernels on a GPU of this machine.",
    },
    "What is known?": {
        "gpus": "The GPUs, with the source of every number.",
        "models": "The models, with their sizes.",
    },
}
"""Commands by question, in the order of the help, each with its line there."""
_MORE: Final = "More"
"""Heading of commands that no question names; their line begins their own help."""


def names() -> list[str]:
    """The commands."""
    found = Path(__file__).parent.glob(f"commands/*{_FLAGS}.py")
    return sorted(path.stem.removesuffix(_FLAGS) for path in found)


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


class Grouped(TyperGroup):
    """A group of commands whose help lists them by question; each is made when it is
    asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Names of all commands."""
        return names()

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of that name, with its line of the list; None without one."""
        if cmd_name not in self.list_commands(ctx):
            return None
        if cmd_name not in self.commands:
            self.commands[cmd_name] = _command(cmd_name)
        return self.commands[cmd_name]

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that the first of `args` names; a slip is answered with the
        nearest of all commands."""
        known = self.list_commands(ctx)
        if args and args[0] not in known:
            for name in known:
                self.get_command(ctx, name)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Writes the commands, one line each, under their questions."""
        shown = self.list_commands(ctx)
        width = max(map(len, shown), default=0)
        limit = formatter.width - width - 4  # beside the name, indent and gap
        named = [name for lines in QUESTIONS.values() for name in lines]
        more = {name: "" for name in shown if name not in named}
        for question, lines in (*QUESTIONS.items(), (_MORE, more)):
            found = [
                (
                    name.ljust(width),
                    lines[name] or _command(name).get_short_help_str(limit),
                )
                for name in lines
                if name in shown
            ]
            if found:
                formatter.write_paragraph()
                formatter.write_text(question)
                with formatter.indentation():
                    formatter.write_dl(found)


class Once(TyperCommand):
    """A command that takes each flag with a value once, unless it is repeatable: the
    parser alone would keep the last."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Reads `args`; raises `ValueError` for a flag that is given twice."""
        if not ctx.resilient_parsing:
            _, _, order = self.make_parser(ctx).parse_args(args=list(args))
            for number, param in enumerate(order):
                single = not (param.multiple or getattr(param, "is_flag", True))
                if single and param in order[:number]:
                    raise ValueError(f"`{param.opts[0]}` is given twice; give it once.")
        return super().parse_args(ctx, args)


def parsed(name: str, words: Sequence[str]) -> Mapping[str, Any]:
    """What the parser reads from the words behind a command; `ValueError` for words
    that it refuses."""
    try:
        return _command(name).make_context(name, list(words)).params
    except Exception as error:
        sentence = parser_sentence(error, f"diffenergy {name}")
        if sentence is None:
            raise
        raise ValueError(sentence) from None


def _command(name: str) -> Any:
    """One command, as the parser has it."""
    from .run import command

    app = typer.Typer(rich_markup_mode=None, add_completion=False)
    help_names = {"help_option_names": ["-h", "--help"]}
    app.command(name, cls=Once, context_settings=help_names)(command(name))
    found = typer.main.get_command(app)
    for lines in QUESTIONS.values():
        if name in lines:
            found.short_help = lines[name]
    return found
