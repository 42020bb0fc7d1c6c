"""A request as JSON, and what a command answers to it.

A field is a flag of the command: a text as it is typed, a number in the unit of the
flag, a list of them, an object of `KEY=VALUE`, or true for a switch.
"""

import contextlib
import dataclasses
import difflib
import functools
import json
import os
import re
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Final

from ...requests import Flag, declared, is_switch
from .. import DONE, app, reason
from ..flags import command_line, flag_name, naming_flags, read_flags
from ..progress import send_to
from ..refusal import to_json
from ..run import Outcome, answer, flags_of

PUT_OUT: Final = ("measure", "web", "help")
"""Commands that are no question: one runs on the server's GPU, two are of a shell."""
HIDDEN: Final = ("as_json", "plot")
"""Flags without a meaning for a service: it answers with JSON and charts."""
FAULT: Final = "this is a fault of diffenergy; the server's log says which."
POSTED: Final = "posted"
"""Field of a request with files by name: text, or an object."""
_POSTED_NAME: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,79}")
_DEFINED: Final = {"gpu": "gpu.toml", "model": "model/config.json"}
"""Files of definitions that stand in a field as objects."""
_BREAKS: Final = re.compile(r"[\s=,:;|@]+")
"""Where a path may begin inside a text."""


@dataclasses.dataclass(frozen=True)
class Job:
    """A request of `command`. `html`: prefix of ids where the answer is shown, too;
    `charts`: with charts."""

    command: str
    fields: Mapping[str, Any]
    html: str = ""
    charts: bool = False


@dataclasses.dataclass(frozen=True)
class Reply:
    """What a command answers: its exit `status`, `json` and the `line` of a shell that
    prints it, `html` of its blocks, or the `error` that its refusal is as JSON."""

    status: int = DONE
    json: str = ""
    line: str = ""
    html: str = ""
    error: Mapping[str, Any] | None = None


def offered(folder: Path | None) -> list[str]:
    """Commands that can be asked; those that must write a file need a folder."""
    return [
        name
        for name in app.names()
        if name not in PUT_OUT
        and any(field.name == "as_json" for field, _ in declared(flags_of(name)))
        and (folder or not any(_must_write(*x) for x in declared(flags_of(name))))
    ]


@functools.cache
def fields_of(name: str, folder: Path | None) -> Mapping[str, tuple[Any, Flag]]:
    """Fields of a command that a request may have, by name, with their flags."""
    return {
        field.name: (field, flag)
        for field, flag in declared(flags_of(name))
        if field.name not in HIDDEN and (folder or not writes(field, flag))
    }


def writes(field: Any, flag: Flag) -> bool:
    """Whether a flag names a file to write."""
    return bool(flag.endings) or flag_name(field, flag) == "--out"


def _must_write(field: Any, flag: Flag) -> bool:
    return writes(field, flag) and field.default is dataclasses.MISSING


def typed_fields(
    name: str, fields: Mapping[str, Any], folder: Path | None
) -> dict[str, Any]:
    """What would be typed for the fields of a request, by field, as the parser gives
    it. Raises `ValueError` for fields that the command lacks and values of no use."""
    known = fields_of(name, folder)
    for field in fields:
        if field not in known:
            near = difflib.get_close_matches(field, known, n=1)
            hint = f" (did you mean `{near[0]}`?)" if near else ""
            raise ValueError(
                f"`{field}` is no field of `{name}`{hint}; allowed are "
                f"{', '.join(known)}."
            )
    typed: dict[str, Any] = {}
    for field, flag in declared(flags_of(name)):
        value = fields.get(field.name)
        if value is None and field.default is not dataclasses.MISSING:
            typed[field.name] = False if is_switch(field) else None
            continue
        called = flag_name(field, flag)
        if is_switch(field):
            if not isinstance(value, bool):
                raise ValueError(
                    f"`{called}` is {value!r}; allowed are true and false."
                )
            typed[field.name] = value
        elif value is None:
            raise ValueError(f"`{field.name}` is missing; give it.")
        else:
            texts = _texts(called, value)
            typed[field.name] = texts if flag.many else ",".join(texts)
    return typed


def _texts(called: str, value: Any) -> list[str]:
    """Texts of one value, or of each in a list or object."""
    match value:
        case str():
            return [value]
        case bool():
            pass
        case int() | float():
            return [str(value)]
        case list():
            return [x for part in value for x in _plain(called, part)]
        case dict():
            parts = ((k, _plain(called, x)) for k, x in value.items())
            return [f"{key}={text}" for key, texts in parts for text in texts]
    raise ValueError(
        f"`{called}` is {json.dumps(value)}; give a text, a number, or a list of them."
    )


def _plain(called: str, value: Any) -> list[str]:
    if isinstance(value, list | dict):
        raise ValueError(
            f"`{called}` has a list or an object inside another; give texts or numbers."
        )
    return _texts(called, value)


def check_paths(typed: Mapping[str, Any], folder: Path | None):
    """Raises `ValueError` for a text with a path that leaves the folder."""
    for name, value in typed.items():
        for text in value if isinstance(value, list) else [value]:
            if isinstance(text, str) and not _stays(text, folder):
                raise ValueError(
                    f"`{name}` is '{text}', a path that leaves the server's folder; "
                    "give the name of a posted file, or one below the folder."
                )


def _stays(text: str, folder: Path | None) -> bool:
    """Whether every word of a text stays in the folder, quoted or not."""
    bare = text.replace('"', "").replace("'", "")
    return "\\" not in text and all(
        _is_below(word, folder) for word in _BREAKS.split(bare)
    )


def _is_below(word: str, folder: Path | None) -> bool:
    if word.startswith(("/", "~")) or ".." in PurePosixPath(word).parts:
        return False
    if folder is None or "\0" in word:
        return True
    if "/" not in word and not os.path.islink(f"{folder}/{word}"[:4000]):
        return True  # as most words are: no path
    return (folder / word[:4000]).resolve().is_relative_to(folder.resolve())


def place_files(fields: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Writes the posted files and definitions of a request into an empty folder;
    returns its fields with their names in place of definitions."""
    rest = dict(fields)
    posted = rest.pop(POSTED, None) or {}
    if not isinstance(posted, dict):
        raise ValueError(f"`{POSTED}` is no object; give contents by name of the file.")
    for name, content in posted.items():
        if not _POSTED_NAME.fullmatch(name):
            raise ValueError(
                f"`{POSTED}` has the name '{name}'; allowed are letters, digits, dots, "
                "dashes and underscores."
            )
        _place(folder / name, content)
    for field, name in _DEFINED.items():
        if isinstance(rest.get(field), dict):
            _place(folder / name, rest[field])
            rest[field] = name
    return rest


def _place(path: Path, content: Any):
    """Writes a posted file; refuses definitions that name files of the server."""
    if not isinstance(content, str | dict):
        what = json.dumps(content)
        raise ValueError(f"`{path.name}` is {what}; give text or an object.")
    toml, tables, text = path.suffix == ".toml", content, content
    if isinstance(content, dict):
        text = "\n".join(_pairs(content)) if toml else json.dumps(content)
    elif toml:
        with contextlib.suppress(tomllib.TOMLDecodeError):  # told by who reads it
            tables = tomllib.loads(content)
    for word in () if isinstance(tables, str) else _strings(tables):
        if word.startswith(("/", "~")) or ".." in PurePosixPath(word).parts:
            raise ValueError(
                f"`{path.name}` names '{word}', a file of the server; post the file "
                "beside it and give its name."
            )
    path.parent.mkdir(exist_ok=True)
    path.write_text(str(text), encoding="utf-8")


def _strings(content: Any) -> Iterator[str]:
    if isinstance(content, str):
        yield content
    elif isinstance(content, dict | list):
        for part in content.values() if isinstance(content, dict) else content:
            yield from _strings(part)


def _toml(name: str, value: Any) -> str:
    """Value of the key `name` as TOML; objects are inline tables."""
    if value is None:
        raise ValueError(f"`{name}` is null; give a value or leave it out.")
    if isinstance(value, list):
        return f"[{', '.join(_toml(name, x) for x in value)}]"
    if isinstance(value, dict):
        return f"{{{', '.join(_pairs(value))}}}"
    return json.dumps(value, ensure_ascii=False)


def _pairs(table: Mapping[str, Any]) -> Iterator[str]:
    for key, value in table.items():
        yield f"{json.dumps(key, ensure_ascii=False)} = {_toml(key, value)}"


def reply_to(
    job: Job, scratch: Path, folder: Path | None, progress: Callable[[str], None]
) -> Reply:
    """What the command answers. It runs in a folder of its own in `scratch` where files
    are posted, else in the open `folder` of files, else in an empty one."""
    try:
        with _room(job.fields, scratch, folder) as inside:
            fields = place_files(job.fields, inside)
            typed = typed_fields(job.command, fields, folder)
            check_paths(typed, inside)
            send_to(progress)
            with contextlib.chdir(inside), _only_reading(inside):
                return _answered(job, typed)
    except Exception as error:
        message, status = reason(error, [job.command])
        if status == 1:  # what went wrong inside is for the log of the server
            print(f"diffenergy: {message}", file=sys.stderr)
            message = FAULT
        return Reply(status, error=to_json(message, status)["error"])
    finally:
        send_to(None)


@contextlib.contextmanager
def _room(
    fields: Mapping[str, Any], scratch: Path, folder: Path | None
) -> Iterator[Path]:
    """Context of the folder in which a command runs."""
    if fields.get(POSTED) or any(isinstance(fields.get(x), dict) for x in _DEFINED):
        with tempfile.TemporaryDirectory(dir=scratch) as own:
            yield Path(own)
    else:
        empty = scratch / "empty"
        empty.mkdir(exist_ok=True)
        yield folder or empty


def _answered(job: Job, typed: Mapping[str, Any]) -> Reply:
    from ...keys import json_text

    kind = flags_of(job.command)
    with naming_flags(kind):
        flags = read_flags(kind, typed)
        outcome = answer(job.command, flags)
    text = json_text(outcome.content) if outcome.content is not None else outcome.text
    html = _shown(job, outcome) if job.html else ""
    return Reply(DONE, text, command_line(job.command, kind, typed, ["as_json"]), html)


def _shown(job: Job, outcome: Outcome) -> str:
    from ...report import to_html

    charts = outcome.charts_too if job.charts else None
    blocks = list((charts or outcome.blocks)()) or [outcome.text]
    notes = [f"note: {x}" for x in outcome.notes]
    return to_html([*blocks, *notes], job.html)


@contextlib.contextmanager
def _only_reading(inside: Path) -> Iterator[None]:
    """Context in which Python opens no file but those of programs, of the cache of
    compiled programs and below `inside`."""
    _OPEN.append(str(inside.resolve()))
    try:
        yield
    finally:
        _OPEN.clear()


_OPEN: Final[list[str]] = []
"""The folder of the request that is being answered."""


def guard_files():
    """Takes effect for this process, for good: see `_only_reading`."""
    from ...compiling import cache_folder

    places = [sys.prefix, sys.base_prefix, str(Path(__file__).parents[3])]
    places += ["/proc", "/sys", "/dev", "/usr", "/lib", "/lib64"]
    roots = [os.path.realpath(x) for x in (*places, cache_folder()) if x]

    def check(event: str, args: tuple[Any, ...]):
        if event != "open" or not _OPEN or not isinstance(args[0], str | bytes):
            return
        path = os.path.realpath(os.fsdecode(args[0]))
        if not any(path == x or path.startswith(x + os.sep) for x in (*_OPEN, *roots)):
            raise PermissionError(13, "outside the server's folder", "file")

    sys.addaudithook(check)
