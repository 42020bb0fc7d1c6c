"""JSON keys as `docs/reference/json.md` declares them: JSON Schema, version, text.

The page is the only declaration. A wheel holds a copy of it beside the data (see
`force-include` in pyproject.toml); a checkout reads the page itself.
"""

import functools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

_PACKAGE: Final = Path(__file__).parent
_PLACES: Final = (
    _PACKAGE / "data" / "json.md",
    _PACKAGE.parent / "docs" / "reference" / "json.md",
)
_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_HEADING: Final = re.compile(r"^##+ (.+)$", re.MULTILINE)
_PRINTS: Final = re.compile(r"^Prints (.+)\.$", re.MULTILINE)
_BASES: Final = re.compile(r"It also has the keys of (.+)\.$", re.MULTILINE)
_LINK: Final = re.compile(r"\]\(#([\w-]+)\)")
_ROW: Final = re.compile(
    r"^\| (`(?P<key>\w+)`(?P<optional>\??)|other keys) \|(?P<rest>.*)\|$"
)
_OTHERS: Final = "other keys"
"""First cell of the row of a record that may have keys beside those declared."""
_TOKEN: Final = re.compile(
    r"\s*(\[[^]]+\]\(#[\w-]+\)|true or false|list of|, by name|or|\w+|[()])"
)
_WORDS: Final[dict[str, dict[str, Any]]] = {
    "text": {"type": "string"},
    "number": {"type": "number"},
    "integer": {"type": "integer"},
    "true or false": {"type": "boolean"},
    "null": {"type": "null"},
    "anything": {},
}
"""Types of the page as JSON Schema has them."""


@functools.cache
def page() -> str:
    """The text of the page."""
    place = next((x for x in _PLACES if x.is_file()), _PLACES[0])
    return place.read_text(encoding="utf-8")


@functools.cache
def version() -> int:
    """Version of the keys, which every JSON names under `schema`."""
    match = re.search(r"^Version: (\d+)$", page(), re.MULTILINE)
    if match is None:
        raise ValueError(f"{_PLACES[0].name} has no line `Version: NUMBER`.")
    return int(match[1])


def json_text(content: Any) -> str:
    """JSON text of an answer, or of a list of them, each with the version of its keys
    in front; NaN and infinities raise `ValueError`."""
    if isinstance(content, list):
        named = [{"schema": version(), **entry} for entry in content]
    else:
        named = {"schema": version(), **content}
    text = json.dumps(named, allow_nan=False)  # by C, which cannot indent
    return msgspec.json.format(text, indent=1) + "\n"


def schema(command: str) -> dict[str, Any]:
    """JSON Schema of what `diffenergy COMMAND --json` prints."""
    sections = _sections()
    printed = _printed(sections[command])
    outermost = set(_references([_printed(text) for text in sections.values()]))
    records: dict[str, Any] = {}
    waiting = list(_references(printed))
    while waiting:
        name = waiting.pop()
        if name not in records:
            records[name] = _record(name, sections)
            waiting += _references(records[name])
    for name in outermost & set(records):
        key = {"const": version(), "description": "version of these keys"}
        records[name]["properties"] = {"schema": key, **records[name]["properties"]}
    return {
        "$schema": _DIALECT,
        "title": f"diffenergy {command} --json",
        **_outermost(printed),
        "$defs": records,
    }


def commands() -> tuple[str, ...]:
    """Commands whose JSON the page declares, in its order."""
    return tuple(name for name, text in _sections().items() if _PRINTS.search(text))


@functools.cache
def _sections() -> dict[str, str]:
    """Text below each heading, by the anchor of the heading."""
    _, *parts = _HEADING.split(page())
    names = [name.lower().replace(" ", "-") for name in parts[::2]]
    return dict(zip(names, parts[1::2], strict=True))


def _printed(text: str) -> dict[str, Any]:
    """Type of what a command prints, from its section."""
    match = _PRINTS.search(text)
    return parse_type(match[1]) if match else {}


def _outermost(kind: dict[str, Any]) -> dict[str, Any]:
    """The type of a whole answer: each of its objects names the version."""
    if "anyOf" in kind:
        return {"anyOf": [_outermost(x) for x in kind["anyOf"]]}
    if "items" in kind:
        return {**kind, "items": _outermost(kind["items"])}
    return {**kind, "required": ["schema"]}


def _record(name: str, sections: dict[str, str]) -> dict[str, Any]:
    """JSON Schema of the objects of a section; the keys of its bases come first."""
    text = sections[name]
    properties: dict[str, Any] = {}
    required: list[str] = []
    others: Any = False
    bases = _BASES.search(text)
    for base in _LINK.findall(bases[1]) if bases else ():
        more = _record(base, sections)
        properties |= more["properties"]
        required += more["required"]
        others = others or more["additionalProperties"]
    for line in text.splitlines():
        if row := _ROW.match(line):
            kind, unit, meaning = (x.strip() for x in row["rest"].split("|", 2))
            declared = {**parse_type(kind), "description": meaning}
            if row["key"] is None:
                others = declared
                continue
            properties[row["key"]] = {**declared, "unit": unit} if unit else declared
            required = [x for x in required if x != row["key"]]
            required += [] if row["optional"] else [row["key"]]
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": others,
    }


def _references(kind: Any) -> Iterator[str]:
    """Names of the records that a schema refers to."""
    if isinstance(kind, dict):
        if "$ref" in kind:
            yield kind["$ref"].rpartition("/")[2]
        for part in kind.values():
            yield from _references(part)
    elif isinstance(kind, list):
        for part in kind:
            yield from _references(part)


def parse_type(text: str) -> dict[str, Any]:
    """JSON Schema of a type as the page writes it; `, by name` binds closest, then
    `list of`, then `or`.

    >>> parse_type("list of number or null")["anyOf"][1]
    {'type': 'null'}
    >>> parse_type("(integer or null), by name")["additionalProperties"]["anyOf"][0]
    {'type': 'integer'}
    """
    tokens = _TOKEN.findall(text)
    if "".join("".join(tokens).split()) != "".join(text.split()):
        raise ValueError(f"'{text}' is no type; allowed words are {', '.join(_WORDS)}.")
    kind = _either(tokens)
    if tokens:
        raise ValueError(f"'{text}' is no type; '{' '.join(tokens)}' is left over.")
    return kind


def _either(tokens: list[str]) -> dict[str, Any]:
    options = [_option(tokens)]
    while tokens[:1] == ["or"]:
        del tokens[0]
        options.append(_option(tokens))
    return options[0] if len(options) == 1 else {"anyOf": options}


def _option(tokens: list[str]) -> dict[str, Any]:
    if tokens[:1] == ["list of"]:
        del tokens[0]
        return {"type": "array", "items": _option(tokens)}
    word = tokens.pop(0) if tokens else ""
    if word == "(":
        kind = _either(tokens)
        if tokens[:1] != [")"]:
            raise ValueError("a type lacks `)`.")
        del tokens[0]
    elif link := _LINK.search(word):
        kind = {"$ref": f"#/$defs/{link[1]}"}
    elif word in _WORDS:
        kind = _WORDS[word]
    else:
        raise ValueError(f"'{word}' is no type; allowed are {', '.join(_WORDS)}.")
    while tokens[:1] == [", by name"]:
        del tokens[0]
        kind = {"type": "object", "additionalProperties": kind}
    return kind
