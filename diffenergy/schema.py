"""Input files by schema: what a table holds is a `Table`, and what does not fit it is
told in one sentence, which ends with the `description` in the `Meta` of the type (every
type has one but tables, lists and `Literal`)."""

import difflib
import sys
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


def fitted(raw: Any, kind: Any, where: str = "", key: str = "") -> Any:
    """The parsed value `raw` as a `kind`: a `Table` or another type of msgspec.

    `where`: what a sentence begins with, such as the file; `key`: what `raw` is called
    where it is no whole file. Raises `ValueError` with the first key that is wrong, its
    value and what to give.

    >>> fitted({"rate": "x"}, dict[str, Finite], key="links")
    Traceback (most recent call last):
    ValueError: `links.rate` is 'x'; give a finite number.
    """
    try:
        return msgspec.convert(raw, kind)
    except msgspec.ValidationError:
        raise ValueError(f"{where}{_misfit(raw, kind, '', key)}") from None


def _misfit(raw: Any, kind: Any, place: str, key: str) -> str:
    """The sentence for the first thing that does not fit, `raw` or something in it;
    `place`: the table in which `key` stands."""
    bare = _bare(kind)
    fields, inner = _fields(bare), get_args(bare)
    parts: list[tuple[str, Any, Any]] = []
    within = place
    if isinstance(raw, dict) and get_origin(bare) is dict:
        parts = [(f"{key}.{name}", x, inner[1]) for name, x in raw.items()]
    elif isinstance(raw, list) and get_origin(bare) in (list, tuple):
        parts = [(f"{key}[{n}]", x, inner[0]) for n, x in enumerate(raw)]
    elif isinstance(raw, dict) and fields:
        parts = [(name, x, fields.get(name)) for name, x in raw.items()]
        called = f" ({raw['name']})" if raw.get("name") else ""
        within = f"`{key}`{called}: " if key else ""
    for name, value, part in parts:
        if part is None and issubclass(bare, Table):
            near = difflib.get_close_matches(name, fields, n=1)
            hint = f" (did you mean `{near[0]}`?)" if near else ""
            allowed = ", ".join(fields)
            return f"{within}`{name}` is not a key{hint}; allowed are {allowed}."
        if part is not None and not _fits(value, part):
            return _misfit(value, part, within, name)
    if isinstance(raw, dict) and fields:
        kinds = msgspec.inspect.type_info(bare).fields  # pyright: ignore
        missing = next(x.name for x in kinds if x.required and x.name not in raw)
        remedy = _remedy(fields[missing], missing)
        return f"{within}`{missing}` is missing; {remedy}."
    what = f"{place}`{key}`" if key else "the whole"
    return f"{what} is {raw!r}; {_remedy(kind, key)}."


def _fits(raw: Any, kind: Any) -> bool:
    try:
        msgspec.convert(raw, kind)
    except msgspec.ValidationError:
        return False
    return True


def _bare(kind: Any) -> Any:
    """A type without remarks; of several the first."""
    if isinstance(kind, type) or get_origin(kind) in (list, tuple, dict, Literal):
        return kind
    return _bare(get_args(kind)[0])


def _fields(bare: Any) -> dict[str, Any]:
    """Types of the fields of a `Table` or a dataclass; none of other types."""
    return get_type_hints(bare, include_extras=True) if isinstance(bare, type) else {}


def _remedy(kind: Any, key: str) -> str:
    """Remedy for `key`: what to give."""
    remarks = [x for x in getattr(kind, "__metadata__", ()) if x.description]
    if remarks:
        return remarks[-1].description
    bare = _bare(kind)
    if bare is not kind:
        return _remedy(get_args(kind)[0], key)
    if get_origin(kind) is Literal:
        return f"allowed are {', '.join(get_args(kind))}"
    if kind is list or get_origin(kind) in (list, tuple):
        tables = _fields(_bare((*get_args(kind), str)[0]))
        return f"give tables, `[[{key}]]`" if tables else "give a list in brackets"
    return "give a table"
