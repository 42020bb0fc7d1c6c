"""A request as flags: what the parser offers, and how it reads what was typed.

`parameters` gives the flags of a declared `Request` to the parser; `read_flags` makes
the request of what was typed. A flag that was not given keeps its default.
"""

import contextlib
import dataclasses
import functools
import inspect
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Final

import typer

from ..requests import (
    Argument,
    BadRequest,
    Flag,
    Request,
    choices,
    declared,
    is_switch,
)
from ..results import Infeasible
from .completing import starting

PAGE: Final = ".html"
"""Ending of a page, which `--out` of every answer can be."""


def out_file(text: str, *endings: str) -> Flag:
    """Flag `--out`: the ending of the file decides the format; .html is always one."""
    if PAGE not in endings:
        head, _, last = text.removesuffix(".").rpartition(" or ")
        listed = ", ".join(x.removesuffix(",") for x in (head, last) if x)
        text = f"{listed} or {PAGE} (a page)."
    return Flag(text, "FILE", endings=(*endings, PAGE))


def plot_file(
    text: str = "Also draw a chart, .png or .svg; NAME=FILE picks one by name.",
) -> Flag:
    """Flag `--plot`: a picture."""
    return Flag(text, "FILE", endings=(".png", ".svg"))


POWER_STEP: Final = 0.1
"""s of the steps of `--power-trace`."""


def power_file() -> Flag:
    """Flag `--power-trace`: power over time."""
    text = "Write power over time, .csv or .parquet."
    return Flag(text, "FILE", endings=(".csv", ".parquet"))


Json = Annotated[bool, Flag("Print JSON only.", name="--json")]
"""`--json`."""


def parameters(kind: type[Request]) -> Iterator[inspect.Parameter]:
    """The flags of a request as the parser takes them, in the order of the help."""
    for field, flag in declared(kind):
        needed = field.default is dataclasses.MISSING
        words: dict[str, Any] = {"help": flag.help}
        typed = list[str] if flag.many else str
        if is_switch(field):
            typed = bool
        else:
            usual = field.name.upper() if isinstance(flag, Argument) else None
            words |= {
                "metavar": flag.metavar or usual,
                "autocompletion": starting(flag.completed),
            }
            typed = typed if needed else typed | None
        info = (
            typer.Argument(**words)
            if isinstance(flag, Argument)
            else typer.Option(flag_name(field, flag), **words)
        )
        default = False if is_switch(field) else None
        yield inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if needed else default,
            annotation=Annotated[typed, info],
        )  # fmt: skip


def with_bare_values(kind: type[Request], words: Sequence[str]) -> list[str]:
    """The words typed, with the value of each flag that may stand without one."""
    bare = {
        flag_name(field, flag): (flag.bare, choices(field.type))
        for field, flag in declared(kind)
        if flag.bare
    }
    filled = list[str]()
    for word, after in zip(words, [*words[1:], None], strict=False):
        value, allowed = bare.get(word, ("", ()))
        stands_alone = value and after not in ("", *allowed)
        filled += [word, value] if stands_alone else [word]
    return filled


def read_flags(kind: type[Request], typed: Mapping[str, Any]) -> Any:
    """The request of the texts that the parser returns: each value read, then
    checked."""
    values: dict[str, Any] = {}
    for field, flag in declared(kind):
        text = typed[field.name]
        if text in (None, False, [], ()):  # left out
            continue
        if flag.many:
            text = list(text)
        read = flag.read or (_as_tuple if flag.many else None)
        name = flag_name(field, flag)
        value = read(name, text) if read else text
        if value in ("", ("",)) and not isinstance(flag, Argument):
            raise ValueError(f"`{name}` is ''; give it or leave it out.")
        values[field.name] = value
    request = kind(**values)
    object.__setattr__(request, "typed", dict(typed))
    return request


def flag_name(field: Any, flag: Flag) -> str:
    """`--input-len` of the field `input_len`, unless it has a name of its own."""
    return flag.name or "--" + field.name.replace("_", "-")


@functools.cache
def flag_names(kind: type[Request]) -> Mapping[str, str]:
    """Flags by field name, without positional arguments."""
    return {
        field.name: flag_name(field, flag)
        for field, flag in declared(kind)
        if not isinstance(flag, Argument)
    }


def as_flags(error: Exception | str, kind: type[Request]) -> str:
    """The sentence of an error with flags in place of arguments: all arguments that a
    `BadRequest` is about; in other errors `a` and `b` of "`a` + `b` is" and of "...
    keeps 5 W (`a`)". In other places a name may be that of a file."""
    names, text = flag_names(kind), str(error)
    if isinstance(error, BadRequest):
        words = [x.name for x, _ in declared(kind) if x.name not in names]
        return error.spelled({**names, **{name: name.upper() for name in words}})
    return re.sub(
        r"(?:^|(?<=` \+ )|(?<=\())`(\w+)`",
        lambda match: f"`{names.get(match[1], match[1])}`",
        text,
    )


def command_line(
    name: str, kind: type, typed: Mapping[str, Any], left: Sequence[str] = ()
) -> str:
    """`diffenergy NAME` with the flags that were typed, as a shell takes it, but those
    in `left`; `--json` at the end."""
    words, names = ["diffenergy", name], flag_names(kind)
    pairs = [(x, y) for x, y in typed.items() if y and x not in left]
    for field, value in sorted(pairs, key=lambda x: x[0] in names):  # arguments first
        flag = [names[field]] if field in names else []
        if isinstance(value, list):
            words += [word for text in value for word in (*flag, text)]
        else:
            words += flag if value is True else [*flag, value]
    return shlex.join([*words, "--json"])


@contextlib.contextmanager
def naming_flags(
    kind: type[Request], say: Callable[[str], str] = lambda text: text
) -> Iterator[None]:
    """Context in which errors name flags of `kind`; `say` rewrites their sentence."""
    try:
        yield
    except (ValueError, Infeasible) as error:
        raised = Infeasible if isinstance(error, Infeasible) else ValueError
        raise raised(say(as_flags(error, kind))) from error


def file_endings(kind: type[Request]) -> dict[str, tuple[str, ...]]:
    """Endings of the files that flags name, by field."""
    return {field.name: flag.endings for field, flag in declared(kind) if flag.endings}


def inputs(flags: Request) -> list[str]:
    """Files that a run reads according to its flags; no output may replace them."""
    return [
        file
        for field, flag in declared(type(flags))
        if flag.files and isinstance(value := getattr(flags, field.name), str | tuple)
        for text in ([value] if isinstance(value, str) else value)
        if isinstance(text, str)
        for file in flag.files(text)
    ]


def _as_tuple(flag: str, words: list[str]) -> tuple[str, ...]:
    return tuple(words)
