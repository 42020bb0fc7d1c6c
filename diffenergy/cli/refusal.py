"""The one line on stderr that says why a command ends without its answer: a sentence,
or with `--json` a JSON object that is made of the same sentence."""

import json
import re
import sys
from collections.abc import Mapping
from typing import Any, Final

from .output import one_line

KINDS: Final[Mapping[int, str]] = {
    1: "fault",
    2: "bad_input",
    3: "infeasible",
    4: "outside",
    130: "interrupted",
}
"""Kind of refusal by exit status."""
_QUOTED: Final = r"(?<!\w)'(?P<{}>.*?)'(?=[\s,;.:?)\]]|$)"
_PARTS: Final = re.compile(
    rf"{_QUOTED.format('text')}|`[^`]*`"
    r"|(?P<end>; |\.? (?=Did you mean )| (?=\(Possible options))"
)
"""Quoted text, in which nothing ends, and what ends the statement before the remedy."""
_REMEDY: Final = re.compile(r"[:,] (?=(?:give|take|use|leave|name) )")
"""How the remedy begins in a sentence without a semicolon."""
_FIELD: Final = re.compile(
    r"`(?P<ours>[^`]+)`|^(?:Missing \w+|Invalid value for|Option) '(?P<quoted>[^']+)'"
    r"|^No such option: (?P<unknown>\S+)"
    r"|^(?P<argument>[A-Z][A-Z.|]+) is (?:missing|given)"
)
"""What is wrong: in our own sentences, and in those of the parser."""
_QUOTE: Final = re.compile(_QUOTED.format("text"))
_VALUE: Final = re.compile(
    r"\b(?:is|has|of) (?P<text>(?:[^\s,;'`]|,(?=\d))*[\d=](?:[^\s,;:'`]|,(?=\d))*"
    r"(?: [A-Za-z%][\w%/]*(?=[,;.:]|$))?|nan|inf)(?=[,;:\s]|$)"
)
"""A number with its unit, or KEY=VALUE."""
_EXTRA: Final = re.compile(r"^Got unexpected extra argument\S* \((?P<text>.*)\)")


def fail(message: str, status: int, as_json: bool = False) -> int:
    """Prints why a command ends with `status`, and returns that."""
    line = one_line(message)
    shown = json.dumps(to_json(line, status)) if as_json else f"diffenergy: {line}"
    print(shown, file=sys.stderr)
    return status


def parser_sentence(error: Exception, path: str) -> str | None:
    """Sentence of a parser error of the command `path`, with a hint to its help; None
    for other errors. Works with every click that typer is built on."""
    text = getattr(error, "format_message", None)
    if text is None:
        return None
    return f"{text().rstrip('.')}; `{path} --help` shows what is allowed."


def to_json(message: str, status: int) -> dict[str, Any]:
    """JSON object of a refusal; parts that its sentence lacks are None.

    >>> refusal = to_json("`--batch` is '0'; allowed is 1 or more.", 2)["error"]
    >>> refusal["field"], refusal["value"], refusal["remedy"]
    ('--batch', '0', 'allowed is 1 or more.')
    """
    field = value = remedy = None
    if KINDS[status] in ("bad_input", "infeasible"):
        statement, remedy = _split(message)
        field, value = _subject(statement)
    parts = {"field": field, "value": value, "message": message, "remedy": remedy}
    return {"error": {"kind": KINDS[status], **parts}}


def _split(message: str) -> tuple[str, str | None]:
    """What is wrong, and the remedy, if the sentence has one."""
    for part in _PARTS.finditer(message):
        if part["end"] is not None:
            return message[: part.start()], message[part.end() :]
    if remedy := _REMEDY.search(message):
        return message[: remedy.start()], message[remedy.end() :]
    return message, None


def _subject(statement: str) -> tuple[str | None, str | None]:
    """Field and value of a statement."""
    field = _FIELD.search(statement)
    rest = statement[field.end() :] if field else statement
    value = _EXTRA.search(statement) or _first(_QUOTE.search(rest), _VALUE.search(rest))
    name = next(filter(None, field.groups())) if field else None
    return name, value["text"] if value else None


def _first(*matches: re.Match[str] | None) -> re.Match[str] | None:
    """The match that begins first."""
    return min(filter(None, matches), key=lambda x: x.start(), default=None)
