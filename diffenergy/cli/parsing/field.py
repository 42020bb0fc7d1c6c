"""A flag is one field of a dataclass: how it is typed, read and told in the help.

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Flags:
        '''Help of the command.'''

        batch: int | None = option("N", "Sequences [1].", read.whole)
        point: PointFlags = group(PointFlags)

`parameters` gives the flags to the parser, groups flat where they stand; `read_flags`
makes the dataclass of what was typed. A flag that was not given stays None.
"""

import contextlib
import dataclasses
import functools
import inspect
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Final, NamedTuple

import typer

from ...results import Infeasible

Read = Callable[[str, Any], Any]
"""`(flag, text) -> value`, in SI; `ValueError` names the flag."""
Files = Callable[[str], Iterable[str]]
"""Files that are read because of a text, as far as it names any."""

_FLAG: Final = "flag"
_GROUP: Final = "group"
_TYPED: Final = "typed"


class _Flag(NamedTuple):
    """`words`: what the parser says of it; `typed`: what it hands over; `name`: where
    it is not that of the field; `endings`: of a file to write; `files`: read for it."""

    words: Mapping[str, Any]
    typed: Any
    read: Read | None = None
    name: str | None = None
    endings: tuple[str, ...] = ()
    files: Files | None = None
    is_argument: bool = False


def option(
    metavar: str,
    text: str,
    read: Read | None = None,
    *,
    default: Any = None,
    many: bool = False,
    completed: Callable[[str], list[str]] | None = None,
    endings: tuple[str, ...] = (),
    name: str | None = None,
    files: Files | None = None,
) -> Any:
    """A flag with a value. `default`: as typed, `dataclasses.MISSING` of a flag that
    has to be given; `many`: it may be given several times; `completed(start)`: what the
    shell offers; `endings`: of a file to write; `files(text)`: those that are read."""
    words = {"metavar": metavar, "help": text, "autocompletion": completed}
    typed = str if default is not None else str | None
    if many:
        typed, read = list[str] | None, read or _as_tuple
    return _field(default, _Flag(words, typed, read, name, endings, files))


def number(text: str, default: int, least: int) -> Any:
    """A flag with a whole number that the parser itself reads."""
    return _field(default, _Flag({"min": least, "help": text}, int))


repeated: Final = functools.partial(option, many=True, default=())
"""A flag that may be given several times; `default`, where it was not."""


def switch(text: str, *, name: str | None = None) -> Any:
    """A flag without a value."""
    return _field(False, _Flag({"help": text}, bool, name=name))


def argument(
    text: str,
    *,
    metavar: str | None = None,
    needed: bool = True,
    many: bool = False,
    completed: Callable[[str], list[str]] | None = None,
    files: Files | None = None,
) -> Any:
    """A word without a flag; None where it is not `needed` and not given."""
    words = {"metavar": metavar, "help": text, "autocompletion": completed}
    typed = list[str] if many else str if needed else str | None
    read = _as_tuple if many else None
    flag = _Flag(words, typed, read, files=files, is_argument=True)
    return _field(dataclasses.MISSING if needed else None, flag)


def group(kind: type) -> Any:
    """Flags of another dataclass, told at this place."""
    return dataclasses.field(metadata={_GROUP: kind})


def typed() -> Any:
    """No flag: all flags as they were typed, by field."""
    return dataclasses.field(metadata={_TYPED: True})


def as_json() -> Any:
    """`--json`."""
    return switch("Print JSON alone.", name="--json")


def out(text: str, *endings: str) -> Any:
    """`--out`: a file whose ending decides what is written."""
    return option("FILE", text, endings=endings)


def plot(text: str = "Also draw the result, .png or .svg.") -> Any:
    """`--plot`: a picture."""
    return option("FILE", text, endings=(".png", ".svg"))


def parameters(kind: type) -> Iterator[inspect.Parameter]:
    """The flags of a dataclass as the parser takes them, in the order of the help."""
    for field, flag in _declared(kind):
        needed = field.default is dataclasses.MISSING
        default = inspect.Parameter.empty if needed else field.default
        default = None if default == () else default
        info = (
            typer.Argument(**flag.words)
            if flag.is_argument
            else typer.Option(flag_name(field), **flag.words)
        )
        annotation = Annotated[flag.typed, info]
        yield inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=default,
            annotation=annotation,
        )  # fmt: skip


def read_flags(kind: type, given: Mapping[str, Any]) -> Any:
    """The dataclass of what the parser handed over, every value read."""
    values: dict[str, Any] = {}
    for field in dataclasses.fields(kind):
        if _GROUP in field.metadata:
            values[field.name] = read_flags(field.metadata[_GROUP], given)
            continue
        if _TYPED in field.metadata:
            values[field.name] = dict(given)
            continue
        flag: _Flag = field.metadata[_FLAG]
        text = given[field.name]
        if isinstance(text, tuple):  # of a flag that may be given several times
            text = list(text)
        if text is None or text == []:
            values[field.name] = field.default
        else:
            value = flag.read(flag_name(field), text) if flag.read else text
            if value in ("", ("",)) and not flag.is_argument:
                raise ValueError(
                    f"`{flag_name(field)}` is ''; give it or leave it out."
                )
            values[field.name] = value
    return kind(**values)


def flag_name(field: Any) -> str:
    """`--input-len` of the field `input_len`, unless it has a name of its own."""
    return field.metadata[_FLAG].name or "--" + field.name.replace("_", "-")


def flag_names(kind: type) -> dict[str, str]:
    """Flags by the names of their fields, those of groups too; no arguments."""
    return {
        field.name: flag_name(field)
        for field, flag in _declared(kind)
        if not flag.is_argument
    }


def as_flags(text: str, kind: type) -> str:
    """What a room says of its arguments, for who typed flags: `a` and `b` of "`a` + `b`
    is" and of "... keeps 5 W (`a`)". In other places a name may be a file's."""
    names = flag_names(kind)
    return re.sub(
        r"(?:^|(?<=` \+ )|(?<=\())`(\w+)`",
        lambda found: f"`{names.get(found[1], found[1])}`",
        text,
    )


def command_line(
    name: str, kind: type, typed: Mapping[str, Any], left: Sequence[str] = ()
) -> str:
    """`diffenergy NAME` with the flags that were typed, as a shell takes it, but those
    in `left`; `--json` at the end."""
    words, names = ["diffenergy", name], flag_names(kind)
    given = [(x, y) for x, y in typed.items() if y and x not in left]
    for field, value in sorted(given, key=lambda x: x[0] in names):  # arguments first
        flag = [names[field]] if field in names else []
        if isinstance(value, list):
            words += [word for text in value for word in (*flag, text)]
        else:
            words += flag if value is True else [*flag, value]
    return shlex.join([*words, "--json"])


@contextlib.contextmanager
def told(say: Callable[[str], str]) -> Iterator[None]:
    """Within it, errors for the user are put as `say` puts them."""
    try:
        yield
    except (ValueError, Infeasible) as error:
        kind = Infeasible if isinstance(error, Infeasible) else ValueError
        raise kind(say(str(error))) from error


def file_endings(kind: type) -> dict[str, tuple[str, ...]]:
    """Endings of the files that flags name, by field."""
    return {field.name: flag.endings for field, flag in _declared(kind) if flag.endings}


def given_names(flags: Any) -> Iterator[str]:
    """Fields, those of groups too, that are not what they are when left out."""
    for field, value in _given(flags):
        if value not in (field.default, None, {}):
            yield field.name


def inputs(flags: Any) -> list[str]:
    """Files that a run reads, as far as its flags name any; outputs keep away."""
    return [
        file
        for field, value in _given(flags)
        if value and (files := field.metadata[_FLAG].files)
        for text in ([value] if isinstance(value, str) else value)
        for file in files(text)
    ]


def _declared(kind: type) -> Iterator[tuple[Any, _Flag]]:
    """The fields that are flags, those of groups where they stand."""
    for field in dataclasses.fields(kind):
        if _GROUP in field.metadata:
            yield from _declared(field.metadata[_GROUP])
        elif _FLAG in field.metadata:
            yield field, field.metadata[_FLAG]


def _given(flags: Any) -> Iterator[tuple[Any, Any]]:
    """The same fields with their values."""
    for field in dataclasses.fields(flags):
        if _GROUP in field.metadata:
            yield from _given(getattr(flags, field.name))
        elif _FLAG in field.metadata:
            yield field, getattr(flags, field.name)


def _field(default: Any, flag: _Flag) -> Any:
    return dataclasses.field(default=default, metadata={_FLAG: flag})


def _as_tuple(flag: str, words: list[str]) -> tuple[str, ...]:
    return tuple(words)
