"""The one way of every command: flags are read, files checked, work done, told.

`ROOM/NAME_flags.py` declares what may be typed; `ROOM/NAME.py` has `run(flags)`, which
gives an `Outcome`, and loads when the flags are read, so that it may import what it
needs at its top. Everything else is here: which files can be written is found out
before any work, and a file is written whole or not at all, never over an input.
"""

import dataclasses
import importlib
import inspect
import json
import keyword
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from ..results import Result
from . import output
from .interruption import Interrupted
from .parsing.field import (
    file_endings,
    flag_names,
    inputs,
    parameters,
    read_flags,
    told,
)

if TYPE_CHECKING:
    from rich.console import RenderableType


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a command found.

    `content`: the JSON. `parts`: what people read. `texts`: of `--out` (bytes where it
    is no text), by ending; `.json` is the content unless it stands here. `beside`:
    texts of more files, by path. `figure`: of `--plot`. `stale`: files that are done
    with when all is written. `said`: a text to print as it is instead. `warnings`:
    remarks that `parts` and `content` have already; beside JSON they are told too, as
    `notes` always are.
    `interrupted`: says what was kept when Ctrl-C ended the work.
    """

    content: Any = None
    parts: "Callable[[], Iterable[RenderableType]]" = tuple
    texts: Mapping[str, Callable[[], str | bytes]] = dataclasses.field(
        default_factory=dict
    )
    beside: Mapping[str, Callable[[], str]] = dataclasses.field(default_factory=dict)
    figure: Callable[[], Any] | None = None
    notes: Sequence[str] = ()
    warnings: Sequence[str] = ()
    stale: Sequence[Path] = ()
    said: str = ""
    interrupted: str = ""


def outcome(result: Result, **more: Any) -> Outcome:
    """What the answer of a room comes to; `more`: fields that are otherwise."""
    found = {
        "content": result.summary,
        "parts": result.parts,
        "figure": result.figure,
        "notes": getattr(result, "notes", ()),
        "warnings": getattr(result, "warnings", ()),
    }
    return Outcome(**(found | more))


def command(name: str) -> Callable[..., None]:
    """The function behind `diffenergy NAME`, with its flags as signature."""
    kind = importlib.import_module(f"{_room(name)}.{name}_flags").Flags

    def entry(**given: Any):
        given.pop(_SCHEMA.name, None)
        with told(kind):
            _run(name, read_flags(kind, given))

    entry.__doc__ = kind.__doc__
    flags = list(parameters(kind))
    if "as_json" in flag_names(kind):
        flags.append(_SCHEMA)
    signature = inspect.Signature(flags)
    entry.__signature__ = signature  # pyright: ignore[reportFunctionMemberAccess]
    entry.__annotations__ = {
        x.name: x.annotation for x in signature.parameters.values()
    }
    return entry


def _print_schema(ctx: typer.Context, wanted: bool):
    """Prints the JSON Schema of a command's answer, and ends it: before anything else
    of its line is looked at."""
    if wanted:
        from ..keys import schema

        print(json.dumps(schema(ctx.info_name or ""), indent=1))
        raise typer.Exit()


_SCHEMA: Final = inspect.Parameter(
    "schema",
    inspect.Parameter.KEYWORD_ONLY,
    default=False,
    annotation=Annotated[
        bool,
        typer.Option(
            "--schema",
            is_eager=True,
            expose_value=False,
            callback=_print_schema,
            help="Print the JSON Schema of what --json prints.",
        ),
    ],
)
"""`--schema`, which every command with `--json` has."""


def _room(name: str) -> str:
    """The package that a command is in."""
    (found,) = Path(__file__).parent.glob(f"*/{name}_flags.py")
    return f"diffenergy.cli.{found.parent.name}"


def _run(name: str, flags: Any):
    """Checks the files, does the work, and tells what came of it."""
    read = inputs(flags)
    _check_files(flags, read)
    file = f"{name}_" if keyword.iskeyword(name) else name
    found = importlib.import_module(f"{_room(name)}.{file}").run(flags)
    _write(flags, found, read)
    if found.said:
        print(found.said)
    elif found.content is not None:
        output.show(found.content, getattr(flags, "as_json", False), found.parts)
    output.notes(found.notes)
    if getattr(flags, "as_json", False):
        output.notes(found.warnings)
    if found.interrupted:
        raise Interrupted(found.interrupted)


def _check_files(flags: Any, read: Sequence[str]):
    """Finds what cannot be written before time is spent."""
    from ..files import check_target

    names: dict[str, str] = {}
    flag = flag_names(type(flags))
    for field, endings in file_endings(type(flags)).items():
        path = getattr(flags, field)
        if path is None:
            continue
        allowed = getattr(flags, f"{field}_endings", endings)
        output.check_ending(path, allowed, flag[field])
        for other, taken in names.items():
            if Path(taken).resolve() == Path(path).resolve():
                raise ValueError(
                    f"`{flag[other]}` and `{flag[field]}` are both '{path}'; give each "
                    "a file of its own."
                )
        names[field] = path
        check_target(path, read)
    for path in getattr(flags, "beside", ()):
        check_target(path, read)


def _write(flags: Any, outcome: Outcome, read: Sequence[str]):
    """Writes every file; those beside `--out` first."""
    from ..files import write_bytes_atomic, write_text_atomic
    from ..keys import json_text

    for path, text in outcome.beside.items():
        write_text_atomic(path, text(), inputs=read)
    out, plot = getattr(flags, "out", None), getattr(flags, "plot", None)
    if out is not None and (outcome.content is not None or outcome.texts):
        texts = {".json": lambda: json_text(outcome.content), **outcome.texts}
        text = texts[next(end for end in texts if out.lower().endswith(end))]
        made = text()
        content = made if isinstance(made, bytes) else made.encode()
        write_bytes_atomic(out, content, inputs=read)
    if plot is not None and outcome.figure is not None:
        from ..report import save_figure

        save_figure(plot, outcome.figure, read)
    for path in outcome.stale:
        Path(path).unlink(missing_ok=True)
