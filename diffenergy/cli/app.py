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

from .flags import with_bare_values
from .refusal import parser_sentence

_FLAGS: Final = "_flags"
"""How modules end that declare the flags of a command."""
QUESTIONS: Final[Mapping[str, Mapping[str, str]]] = {
    "What will it cost?": {
        "estimate": "Time, power and energy of a model on one GPU or many.",
        "serve": "Latency, power and energy of a model served under load.",
        "compare": "Two or more estimates side by side.",
        "report": "An HTML page with charts of an estimate.",
        "sweep": "Any number of estimates, on one machine or a cluster.",
    },
    "What does my program cost?": {
        "import": "Kernel listing of your trace, graph or profiler report."
    },
    "At which clock?": {
        "dvfs": "Clocks for every kernel: less energy in the same time."
    },
    "Which hardware?": {
        "codesign": "Hardware, clocks and tiles optimized for a workload."
    },
    "Many GPUs?": {
        "plan": "Best parallel plan for training, and clocks of its stages.",
        "collective": "Schedule of a collective on a topology: time and energy.",
    },
    "How do I run a fleet?": {
        "fleet": "Models, GPUs and clocks of a fleet under a power budget."
    },
    "Does it match what was measured?": {
        "evaluate": "Errors against measured runs.",
        "fit": "Fit the model's constants to measured runs.",
        "measure": "Measure kernels on a GPU of this machine.",
    },
    "What is known?": {
        "gpus": "GPUs, with the source of every number.",
        "models": "Models, with their sizes.",
    },
    "How do others use it?": {
        "web": "A page in the browser, and an HTTP service.",
        "help": "Help of a command; a skill file for agents.",
    },
}
"""Commands by question, in the order of the help, each with its line there."""
_MORE: Final = "More"
"""Heading of commands that no question names; their line begins their own help."""


def names() -> list[str]:
    """Names of the commands, sorted."""
    files = Path(__file__).parent.glob(f"commands/*{_FLAGS}.py")
    return sorted(path.stem.removesuffix(_FLAGS) for path in files)


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


def _version(requested: bool) -> bool:
    if requested:
        from .. import __version__

        print(f"diffenergy {__version__}")
        raise typer.Exit()
    return requested


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
    """A group of commands whose help lists them by question; a command is built on
    first use."""

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
        commands = self.list_commands(ctx)
        if args and args[0] not in commands:
            for name in commands:
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
            entries = [
                (
                    name.ljust(width),
                    lines[name] or _command(name).get_short_help_str(limit),
                )
                for name in lines
                if name in shown
            ]
            if entries:
                formatter.write_paragraph()
                formatter.write_text(question)
                with formatter.indentation():
                    formatter.write_dl(entries)


class Once(TyperCommand):
    """A command that takes each flag with a value once, unless it is repeatable: the
    parser alone would keep the last."""

    flags: Any = None
    """The request whose flags it takes."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Reads `args`; raises `ValueError` for a flag that is given twice."""
        args = with_bare_values(self.flags, args)
        if not ctx.resilient_parsing:
            _, _, order = self.make_parser(ctx).parse_args(args=list(args))
            for number, param in enumerate(order):
                single = not (param.multiple or getattr(param, "is_flag", True))
                if single and param in order[:number]:
                    raise ValueError(f"`{param.opts[0]}` is given twice; give it once.")
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """MODEL for an argument that is needed, [NAME] for one that may be left out, in
        every version of typer."""
        pieces = [self.options_metavar or ""]
        for param in self.get_params(ctx):
            if param.param_type_name == "argument":
                dots = "..." if param.nargs != 1 else ""
                name = str(param.metavar).strip("[]")
                pieces.append(name + dots if param.required else f"[{name}]{dots}")
        return pieces


def parse_words(name: str, words: Sequence[str]) -> Mapping[str, Any]:
    """Parses the words behind a command; returns texts by field. Raises `ValueError`
    for words that the parser refuses."""
    try:
        return _command(name).make_context(name, list(words)).params
    except Exception as error:
        sentence = parser_sentence(error, f"diffenergy {name}")
        if sentence is None:
            raise
        raise ValueError(sentence) from None


def _command(name: str) -> Any:
    """Builds the parser of one command."""
    from .run import command, flags_of

    app = typer.Typer(rich_markup_mode=None, add_completion=False)
    help_names = {"help_option_names": ["-h", "--help"]}
    app.command(name, cls=Once, context_settings=help_names)(command(name))
    parser: Any = typer.main.get_command(app)
    parser.flags = flags_of(name)
    for param in parser.params:
        if param.param_type_name == "argument":  # all are texts: no type in the help
            param.display_type_rich = lambda ctx: None
    for lines in QUESTIONS.values():
        if name in lines:
            parser.short_help = lines[name]
    return parser
