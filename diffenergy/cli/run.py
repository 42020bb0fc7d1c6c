"""The one way of every command: read flags, check files, work, write and print.

`commands/NAME_flags.py` declares what may be typed; `commands/NAME.py` has
`run(flags)`, which gives an `Outcome`, and loads when the flags are read, so that it
may import what it needs at its top. Everything else is here: which files can be written
is found out before any work, and a file is written whole or not at all, never over an
input.
"""

import dataclasses
import functools
import importlib
import importlib.util
import inspect
import json
import keyword
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from ..results import Result, pick
from . import output
from .flags import (
    PAGE,
    command_line,
    file_endings,
    flag_names,
    inputs,
    naming_flags,
    parameters,
    read_flags,
)
from .interruption import Interrupted

if TYPE_CHECKING:
    from ..charts import Chart
    from ..power_time import PowerCurve
    from ..report import Block


class Outside(Exception):
    """Measurements lie outside their interval; the message names them."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outcome:
    """Result of a command: what it prints and writes.

    `content`: the JSON. `blocks`: what people read. `charts_too`: blocks with charts, for
    a page in a browser [`blocks`]. `texts`: of `--out` (bytes where it
    is no text), by ending; `.json` is the content unless it stands here. `page`: the
    HTML of `--out`, of the line that gives the JSON. `beside`: texts of more files, by
    path. `charts`: of `--plot`. `stale`: files that are done with when all is written.
    `text`: to print as it is, instead of blocks. `warnings`: remarks that `blocks` and
    `content` have already; beside JSON they are told too, as `notes` always are.
    `interrupted`: says what was kept when Ctrl-C ended the work. `outside`: names
    what lies outside its interval, where that ends a command with status `OUTSIDE`.
    """

    content: Any = None
    blocks: "Callable[[], Iterable[Block]]" = tuple
    charts_too: "Callable[[], Iterable[Block]] | None" = None
    texts: Mapping[str, Callable[[], str | bytes]] = dataclasses.field(
        default_factory=dict
    )
    page: Callable[[str], str] | None = None
    beside: Mapping[str, Callable[[], str | bytes]] = dataclasses.field(
        default_factory=dict
    )
    charts: "Callable[[], Mapping[str, Chart]] | None" = None
    notes: Sequence[str] = ()
    warnings: Sequence[str] = ()
    stale: Sequence[Path] = ()
    text: str = ""
    interrupted: str = ""
    outside: str = ""


def outcome(result: Result, **more: Any) -> Outcome:
    """Outcome of the result of a room; `more` replaces fields."""
    fields = {
        "content": result.summary,
        "blocks": lambda: result.blocks(charts=False),
        "charts_too": result.blocks,
        "page": lambda command: result.to_html(command=command),
        "charts": result.charts,
        "notes": getattr(result, "notes", ()),
        "warnings": getattr(result, "warnings", ()),
    }
    return Outcome(**(fields | more))


def need_pyarrow(key: str):
    """Raises `ValueError` if the file of `key` cannot be written as .parquet."""
    if importlib.util.find_spec("pyarrow") is None:
        raise ValueError(
            f"`{key}` is a .parquet file, which needs pyarrow; install it by `pip "
            "install 'diffenergy[datasets]'`, or write .csv."
        )


def power_table(
    path: str | None, curves: "Mapping[str, PowerCurve]", step: float | None
) -> dict[str, Callable[[], str | bytes]]:
    """The file of `--power-trace`, if there is one: rows of `step` s."""
    from ..files import csv_text
    from ..power_time import power_rows

    if path is None or step is None:
        return {}
    rows = power_rows(curves, step)
    if path.lower().endswith(".csv"):
        return {path: lambda: csv_text(rows)}
    import pandas as pd

    return {path: lambda: pd.DataFrame(rows).to_parquet()}


def listing(line: str, content: Any, blocks: "Sequence[Block]", **more: Any) -> Outcome:
    """Outcome of JSON and blocks that are no result of a room; `line` describes it."""
    from ..report import build_page

    def page(command: str) -> str:
        return build_page(line, blocks, content, command)

    return Outcome(content=content, blocks=lambda: blocks, page=page, **more)


def flags_of(name: str) -> Any:
    """The request of `diffenergy NAME`."""
    return importlib.import_module(f"{_COMMANDS}.{name}_flags").Flags


def command(name: str) -> Callable[..., None]:
    """The function behind `diffenergy NAME`, with its flags as signature."""
    kind = flags_of(name)

    def entry(**typed: Any):
        typed.pop(_SCHEMA.name, None)
        with naming_flags(kind):
            _run(name, read_flags(kind, typed))

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


def _print_schema(ctx: typer.Context, requested: bool):
    """Prints the JSON Schema of a command and exits, before other words are checked."""
    if requested:
        from ..keys import schema

        print(json.dumps(schema(ctx.info_name or ""), indent=1))
        raise typer.Exit()


_COMMANDS: Final = "diffenergy.cli.commands"
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
            help="Print the JSON Schema of the --json output.",
        ),
    ],
)
"""`--schema`, which every command with `--json` has."""


def answer(name: str, flags: Any) -> Outcome:
    """Checks the files, runs the command and writes; returns what there is to print."""
    read = inputs(flags)
    _check_files(flags, read)
    file = f"{name}_" if keyword.iskeyword(name) else name
    outcome = importlib.import_module(f"{_COMMANDS}.{file}").run(flags)
    _write(flags, outcome, read)
    return outcome


def _run(name: str, flags: Any):
    """Runs the command and prints its outcome."""
    outcome = answer(name, flags)
    if outcome.text:
        print(outcome.text)
    elif outcome.content is not None:
        output.show(outcome.content, getattr(flags, "as_json", False), outcome.blocks)
    output.notes(outcome.notes)
    if getattr(flags, "as_json", False):
        output.notes(outcome.warnings)
    if outcome.interrupted:
        raise Interrupted(outcome.interrupted)
    if outcome.outside:
        raise Outside(outcome.outside)


def _check_files(flags: Any, read: Sequence[str]):
    """Raises `ValueError` for files that cannot be written, before the work starts."""
    from ..files import check_target

    names: dict[str, str] = {}
    flag = flag_names(type(flags))
    for field, endings in file_endings(type(flags)).items():
        path = getattr(flags, field)
        if path is None:
            continue
        if field == "plot":
            path = _plot_target(path)[1]
        allowed = getattr(flags, f"{field}_endings", endings)
        if PAGE in endings and PAGE not in allowed:
            allowed = (*allowed, PAGE)
        output.check_ending(path, allowed, flag[field])
        for other, earlier in names.items():
            if Path(earlier).resolve() == Path(path).resolve():
                raise ValueError(
                    f"`{flag[other]}` and `{flag[field]}` are both '{path}'; give each "
                    "a file of its own."
                )
        names[field] = path
        check_target(path, read)
    for path in getattr(flags, "beside", ()):
        check_target(path, read)


def _command_line(flags: Any) -> str:
    """Command line that prints the same figures as JSON and writes no files."""
    kind = type(flags)
    name = kind.__module__.rpartition(".")[2].removesuffix("_flags")
    return command_line(name, kind, flags.typed, ["as_json", *file_endings(kind)])


def _plot_target(typed: str) -> tuple[str, str]:
    """Chart and file of `--plot`: `NAME=FILE`, or a file and "" for the first chart."""
    name, equals, path = typed.partition("=")
    return (name, path) if equals and re.fullmatch(r"[\w.-]+", name) else ("", typed)


def _write(flags: Any, outcome: Outcome, read: Sequence[str]):
    """Writes every file; those beside `--out` first."""
    from ..files import write_bytes_atomic
    from ..keys import json_text

    out, plot = getattr(flags, "out", None), getattr(flags, "plot", None)
    chart, path = None, ""
    if plot is not None and outcome.charts is not None:
        name, path = _plot_target(plot)
        chart = pick(outcome.charts(), name, "plot")  # before anything is written
    for file, text in outcome.beside.items():
        written = text()
        content = written if isinstance(written, bytes) else written.encode()
        write_bytes_atomic(file, content, inputs=read)
    if out is not None and (outcome.content is not None or outcome.texts):
        texts = {".json": lambda: json_text(outcome.content), **outcome.texts}
        if outcome.page is not None:
            texts[PAGE] = functools.partial(outcome.page, _command_line(flags))
        text = texts[next(end for end in texts if out.lower().endswith(end))]
        output_text = text()
        content = (
            output_text if isinstance(output_text, bytes) else output_text.encode()
        )
        write_bytes_atomic(out, content, inputs=read)
    if chart is not None:
        from ..charts import save_figure, to_figure

        save_figure(path, lambda: to_figure(chart), read)
    for old in outcome.stale:
        Path(old).unlink(missing_ok=True)
