"""Input files by schema: what a table holds is a `Table`, and what does not fit it is
told in one sentence, which ends with the `description` in the `Meta` of the type (every
type has one but tables, lists and `Literal`)."""

import difflib
import re
import sys
from collections.abc import Callable
from typing import Annotated, Any, Final, Literal, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

MOST: Final = sys.float_info.max
"""The greatest number: infinity and NaN are none of a file."""

Text = Annotated[str, Meta(pattern=r"\S", description="give text in quotes")]
Flag = Annotated[bool, Meta(description="allowed are true and false")]
Count = Annotated[int, Meta(ge=1, description="give a whole number from 1 on")]
Finite = Annotated[float, Meta(ge=-MOST, le=MOST, description="give a finite number")]
Positive = Annotated[float, Meta(gt=0, le=MOST, description="give a number above 0")]
NotNegative = Annotated[
    float, Meta(ge=0, le=MOST, description="give a number of at least 0")
]


class Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A table with no keys but its fields; those with a default may be absent."""


def fitted(
    raw: Any,
    kind: Any,
    where: str = "",
    key: str = "",
    shown: Callable[[Any], str] = repr,
) -> Any:
    """The parsed value `raw` as a `kind`: a `Table` or another type of msgspec.

    `where`: what a sentence begins with, such as the file; `key`: what `raw` is called
    where it is no whole file; `shown`: text of a wrong value. Raises `ValueError` with
    the key that is wrong, its value and what to give.

    >>> fitted({"rate": "x"}, dict[str, Finite], key="links")
    Traceback (most recent call last):
    ValueError: `links.rate` is 'x'; give a finite number.
    """
    try:
        return msgspec.convert(raw, kind)
    except msgspec.ValidationError as error:
        said = _sentence(str(error), raw, kind, key, shown)
    raise ValueError(f"{where}{said}")


def _sentence(
    error: str, raw: Any, kind: Any, key: str, shown: Callable[[Any], str]
) -> str:
    """The sentence for an error such as "Expected `str` - at `$.pools[0].gpu`"."""
    said, _, path = error.partition(" - at `$")
    place = ""
    for field, index in re.findall(r"\.(\w+)|\[(\d+|\.\.\.)\]", path):
        if field:
            place, key = _place(key, raw), field
            raw, kind = raw[field], _fields(kind)[field]
            continue
        *_, inner = (x for x in get_args(_bare(kind)) if x is not ...)
        if index == "...":  # msgspec does not say which entry
            index = next(x for x, y in raw.items() if not _fits(y, inner))
            raw, kind, key = raw[index], inner, f"{key}.{index}"
        else:
            raw, kind, key = raw[int(index)], inner, f"{key}[{index}]"
    if lacking := re.fullmatch("(?s)Object missing required field `(.*)`", said):
        remedy = _remedy(_fields(kind)[lacking[1]], lacking[1])
        return f"{_place(key, raw)}`{lacking[1]}` is missing; {remedy}."
    if odd := re.fullmatch("(?s)Object contains unknown field `(.*)`", said):
        known = list(_fields(kind))
        near = difflib.get_close_matches(odd[1], known, n=1)
        hint = f" (did you mean `{near[0]}`?)" if near else ""
        return (
            f"{_place(key, raw)}`{odd[1]}` is not a key{hint}; allowed are "
            f"{', '.join(known)}."
        )
    what = f"{place}`{key}`" if key else "the whole"
    return f"{what} is {shown(raw)}; {_remedy(kind, key)}."


def _place(key: str, raw: Any) -> str:
    """Where a key stands: the table `raw`, with its name if it has one."""
    name = raw.get("name")
    return f"`{key}`{f' ({name})' if name else ''}: " if key else ""


def _bare(kind: Any) -> Any:
    """A type without remarks; of several the first."""
    if isinstance(kind, type) or get_origin(kind) in (list, tuple, dict, Literal):
        return kind
    return _bare(get_args(kind)[0])


def _fields(kind: Any) -> dict[str, Any]:
    """Types of the fields of a `Table`."""
    return get_type_hints(_bare(kind), include_extras=True)


def _fits(raw: Any, kind: Any) -> bool:
    try:
        msgspec.convert(raw, kind)
    except msgspec.ValidationError:
        return False
    return True


def _remedy(kind: Any, key: str) -> str:
    """What to give for `key`."""
    remarks = [x for x in getattr(kind, "__metadata__", ()) if x.description]
    if remarks:
        return remarks[-1].description
    if _bare(kind) is not kind:
        return _remedy(get_args(kind)[0], key)
    if get_origin(kind) is Literal:
        return f"allowed are {', '.join(map(str, get_args(kind)))}"
    if get_origin(kind) in (list, tuple):
        item = _bare(get_args(kind)[0])
        tables = isinstance(item, type) and issubclass(item, Table)
        return f"give tables, `[[{key}]]`" if tables else "give a list in brackets"
    return "give a table"
