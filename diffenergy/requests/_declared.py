"""`Request`: a record of what a user may ask; `accepts`: a function that takes one."""

import dataclasses
import difflib
import functools
import inspect
import re
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import (
    Annotated,
    Any,
    ClassVar,
    Final,
    ForwardRef,
    Literal,
    NamedTuple,
    ParamSpec,
    TypeVar,
    Union,
    dataclass_transform,
    get_args,
    get_origin,
)

import msgspec

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")
Read = Callable[[str, Any], Any]
"""`(flag, text) -> value`, in SI; `ValueError` names the flag."""
Files = Callable[[str], Iterable[str]]
"""Files that are read because of a text, as far as it names any."""


@dataclasses.dataclass(frozen=True)
class Text:
    """Part of a type: how a word of the command line becomes its value."""

    metavar: str
    read: Read | None = None
    files: Files | None = None
    completed: Callable[[], Iterable[str]] | None = None
    take: Read | None = None
    """What a value from Python becomes."""
    unit: str = ""
    """Of a value from Python; texts may carry theirs."""


@dataclasses.dataclass(frozen=True)
class Flag:
    """The flag of a field; what is None follows from the type of the field. A text in
    `Annotated` is a flag with this help.

    `help`: one thought; the default stands in brackets at its end. `name`: where it is
    not that of the field. `many`: it may be repeated, `read` takes all texts.
    `endings`: of a file to write. `files(text)`: files that are read because of it.
    `completed()`: what the shell offers. `bare`: its value where no word of the type
    follows it. `stands_for`: fields that it sets where they are not given, whose
    refusals name it instead.
    """

    help: str
    metavar: str | None = None
    read: Read | None = None
    name: str | None = None
    many: bool = False
    endings: tuple[str, ...] = ()
    files: Files | None = None
    completed: Callable[[], Iterable[str]] | None = None
    bare: str = ""
    stands_for: tuple[str, ...] = ()


class Argument(Flag):
    """A positional argument of the command line."""


@dataclasses.dataclass(frozen=True)
class Note:
    """Text of a field that only Python has, not the command line."""

    text: str


@dataclasses.dataclass(frozen=True)
class Needs:
    """A field needs `field`, if the request has that: any value other than its default,
    or `value`. `why` follows the semicolon of the refusal."""

    field: str
    why: str = "give both or leave it out"
    value: str = ""


@dataclasses.dataclass(frozen=True)
class Excludes:
    """A field excludes each of `fields`. `why` follows the semicolon of the refusal."""

    fields: tuple[str, ...]
    why: str = "leave one of them out"


class BadRequest(ValueError):
    """A refused request; `fields` are the arguments that its sentence names."""

    def __init__(self, message: str, *fields: str):
        super().__init__(message)
        self.fields = fields

    def spelled(self, names: Mapping[str, str]) -> str:
        """The sentence with other names of the arguments, such as those of flags."""
        return re.sub(
            r"`(\w+)`",
            lambda x: f"`{names.get(x[1], x[1]) if x[1] in self.fields else x[1]}`",
            str(self),
        )


@dataclass_transform(
    kw_only_default=True, frozen_default=True, field_specifiers=(dataclasses.field,)
)
class Request:
    """Base of requests: a frozen dataclass whose fields are keywords.

    Creating one checks the names, then each value that differs from its default, then
    `Needs` and `Excludes`. Raises `ValueError` (`TypeError` for a value of a type that
    has no remedy of its own) in one sentence.

    >>> class Greeting(Request):
    ...     times: Annotated[int, msgspec.Meta(ge=1, description="give 1 or more")] = 1
    >>> Greeting(times=0)
    Traceback (most recent call last):
    diffenergy.requests._declared.BadRequest: `times` is 0; give 1 or more.
    >>> Greeting(tmies=2)
    Traceback (most recent call last):
    ValueError: `tmies` is no argument of `Greeting` (did you mean `times`?); allowed \
are times.
    """

    def __init_subclass__(cls, kw_only: bool = True, **more: Any):
        super().__init_subclass__(**more)
        kind = dataclasses.dataclass(frozen=True, kw_only=kw_only)(cls)
        create = kind.__init__

        @functools.wraps(create)
        def __init__(self: Any, *args: Any, **keywords: Any):
            _check_names(kind, keywords)
            _check_missing(kind, args, keywords)
            create(self, *args, **keywords)

        kind.__init__ = __init__

    __no_type_check__: ClassVar[bool] = True
    """A request checks itself, in sentences for users."""
    typed: ClassVar[Mapping[str, Any]] = {}
    """Of a command: what was typed, by field."""

    def __post_init__(self):
        values = vars(self)
        for name, usual, rule in _declarations(type(self)):
            value = values[name]
            if value is usual:
                continue
            if value is None and usual is not dataclasses.MISSING:
                object.__setattr__(self, name, usual)
            else:
                object.__setattr__(self, name, rule.checked(name, value))
        _check_combinations(self)


def accepts(
    kind: Callable[P, R], name: str = ""
) -> Callable[[Callable[[R], T]], Callable[P, T]]:
    """Makes a function of a request one of the request's fields: the signature is that
    of `kind`, and the arguments stand in its docstring. `name`: of the function in
    refusals [its own]."""

    def decorate(answer: Callable[[R], T]) -> Callable[P, T]:
        called = name or answer.__name__

        @functools.wraps(answer)
        def public(*args: P.args, **keywords: P.kwargs) -> T:
            _check_names(kind, keywords, called)
            request = kind(*args, **keywords)
            try:
                return answer(request)
            except ValueError as error:
                error.args = (_as_given(request, str(error)), *error.args[1:])
                raise

        del public.__wrapped__  # pyright: ignore[reportAttributeAccessIssue]
        public.__signature__ = inspect.signature(kind).replace(  # pyright: ignore[reportAttributeAccessIssue, reportFunctionMemberAccess]
            return_annotation=answer.__annotations__.get("return", Any)
        )
        public.__doc__ = f"{answer.__doc__ or ''}\n\n{arguments(kind)}"
        return public

    return decorate


def _as_given(request: Any, sentence: str) -> str:
    """A refusal that begins with a field which `request` leaves out, about the field
    that stands for it: "`tp` is 3" as "`num_gpus` is 3" or "`plan` has tp=3"."""
    refused = re.match(r"`(\w+)` is ([^\s,;]+)", sentence)
    explicit = {*explicit_fields(request)}
    if refused is None or refused[1] in explicit:
        return sentence
    name, value = refused.groups()
    for field, flag in declared(type(request)):
        if field.name in explicit and name in flag.stands_for:
            takes_pairs = (flag.metavar or "").startswith("KEY=")
            statement = f"has {name}={value}" if takes_pairs else f"is {value}"
            return f"`{field.name}` {statement}{sentence[refused.end() :]}"
    return sentence


def arguments(kind: Any) -> str:
    """The section "Args" of a docstring: a line for each field that has a text."""
    texts, units = {x.name: flag.help for x, flag in declared(kind)}, dict[str, str]()
    for field in _fields(kind):
        text = _text(field.type)
        units[field.name] = f" ({text.unit})" if text and text.unit else ""
        for remark in _remarks(field.type):
            if isinstance(remark, Note):
                texts[field.name] = remark.text
    lines = [
        f"    {name}{units[name]}: {re.sub(r'--([a-z][a-z-]+)', _as_name, text)}"
        for name, text in texts.items()
    ]
    return "\n".join(["Args:", *lines])


def _as_name(flag: re.Match[str]) -> str:
    return f"`{flag[1].replace('-', '_')}`"


@functools.cache
def declared(kind: Any) -> tuple[tuple[dataclasses.Field[Any], Flag], ...]:
    """Fields with their complete flags, in the order of the help (`_fields`)."""
    flags = ((field, _flag(kind, field.name)) for field in _fields(kind))
    return tuple((field, _whole(flag, field)) for field, flag in flags if flag)


def _flag(kind: Any, name: str) -> Flag | None:
    """Flag of a field, from the nearest class that declares one."""
    for one in kind.__mro__:
        remarks = _remarks(vars(one).get("__annotations__", {}).get(name))
        for remark in reversed(remarks):
            if isinstance(remark, Flag | str):
                return Flag(remark) if isinstance(remark, str) else remark
    return None


def part(kind: Any, request: Any, /, **changes: Any) -> dict[str, Any]:
    """The fields that `kind` declares, as far as `request` has them, with `changes`."""
    names = _names(kind)
    fields = {name: getattr(request, name) for name in names if hasattr(request, name)}
    return fields | changes


def explicit_fields(request: Any) -> Iterator[str]:
    """Names of the fields that differ from their default."""
    for field in _fields(type(request)):
        if is_explicit(field, getattr(request, field.name)):
            yield field.name


def is_explicit(field: dataclasses.Field[Any], value: Any) -> bool:
    """Whether a value differs from the default of its field."""
    if value is None or value is False or value is field.default:
        return False
    if isinstance(value, str | int | float):  # a word of the shell equals its default
        return value not in ("", field.default)
    return not (isinstance(value, tuple | list | dict) and not value)


_FIRST: Final = ("model", "gpu")
"""Fields that come first in every help."""


@functools.cache
def _fields(kind: Any) -> tuple[dataclasses.Field[Any], ...]:
    """Fields in order: model and GPU, then those of a request's own class, then those
    of its bases, each group where it is listed first; those of a command (`Flags`)
    last."""
    fields = {x.name: x for x in dataclasses.fields(kind)}
    order = [x for x in kind.__mro__ if "__annotations__" in vars(x)]
    if order and kind.__name__ == "Flags" and order[0] is kind:
        order = [*order[1:], kind]
    listed = (x for one in order for x in vars(one)["__annotations__"])
    names = dict.fromkeys([*_FIRST, *listed])
    return tuple(fields[name] for name in names if name in fields)


@functools.cache
def _by_name(kind: Any) -> dict[str, dataclasses.Field[Any]]:
    return {x.name: x for x in _fields(kind)}


@functools.cache
def _declarations(kind: Any) -> tuple[tuple[str, Any, "_Rule"], ...]:
    """(name, default, rule) of each field."""
    return tuple((x.name, x.default, _rule(x.type)) for x in _fields(kind))


@functools.cache
def _remarks(hint: Any) -> tuple[Any, ...]:
    """Annotations of a type, inner types first."""
    if get_origin(hint) is Annotated:
        return (*_remarks(hint.__origin__), *hint.__metadata__)
    if get_origin(hint) in (Union, types.UnionType):
        return tuple(x for arm in get_args(hint) for x in _remarks(arm))
    return ()


def _text(hint: Any) -> Text | None:
    """Outermost `Text` of a type, if any."""
    texts = [x for x in _remarks(hint) if isinstance(x, Text)]
    return texts[-1] if texts else None


def _whole(flag: Flag, field: dataclasses.Field[Any]) -> Flag:
    """A flag completed from the type and the default of its field."""
    text = _text(field.type) or Text("")
    words = choices(field.type)
    default = field.default
    shown = flag.help
    plain = isinstance(default, str | int | float) and not isinstance(default, bool)
    if plain and not shown.endswith("]."):
        value = f"{default:g}" if isinstance(default, float) else default
        shown = f"{shown.removesuffix('.')} [{value}]."
    metavar = "WHAT" if words else None
    return dataclasses.replace(
        flag,
        help=shown,
        metavar=flag.metavar or text.metavar or metavar,
        read=flag.read or text.read,
        files=flag.files or text.files,
        completed=flag.completed or text.completed,
    )


def accepts_type(hint: Any, kind: Any) -> bool:
    """Whether a field takes a type of `_kinds` or a plain one, alone or with None."""
    if get_origin(hint) is Annotated and hint != kind:
        return accepts_type(hint.__origin__, kind)
    if get_origin(hint) in (Union, types.UnionType) and hint != kind:
        return any(accepts_type(arm, kind) for arm in get_args(hint))
    return hint == kind


def is_switch(field: dataclasses.Field[Any]) -> bool:
    """Whether a flag takes no value."""
    return field.default is False


def choices(hint: Any) -> tuple[Any, ...]:
    """Words of a `Literal`."""
    bare = _arms(hint)
    return tuple(x for arm in bare if get_origin(arm) is Literal for x in get_args(arm))


@functools.cache
def _arms(hint: Any) -> tuple[Any, ...]:
    """The types that a value may have, `None` left out, each with its `Meta`."""
    if get_origin(hint) is Annotated:
        meta = [x for x in hint.__metadata__ if isinstance(x, msgspec.Meta)]
        arms = _arms(hint.__origin__)
        return tuple(Annotated[x, *meta] for x in arms) if meta else arms
    if get_origin(hint) in (Union, types.UnionType):
        return tuple(x for arm in get_args(hint) for x in _arms(arm))
    return () if hint is types.NoneType else (hint,)


def _bare(hint: Any) -> Any:
    return hint.__origin__ if get_origin(hint) is Annotated else hint


_PLAIN: Final = (int, float, str, bool, tuple, list, dict)


def _is_data(hint: Any) -> bool:
    """Whether values of a type are checked by what they hold."""
    bare = _bare(hint)
    return bare in _PLAIN or get_origin(bare) is not None


class _Rule(NamedTuple):
    """How values of a type are checked."""

    hint: Any
    take: Read | None
    """What a value from Python becomes."""
    allows_none: bool
    objects: tuple[Any, ...]
    """Classes; their values are not looked into."""
    data: tuple[tuple[Any, bool], ...]
    """Types that are checked by what values hold, and whether each is a float."""

    def checked(self, name: str, value: Any) -> Any:
        """`value`, if the type allows it; refused with the remedy of its `Meta`."""
        if self.take is not None:
            value = self.take(name, value)
        if not (self.objects or self.data):
            return value  # of a type that loads late: its room checks it
        if type(value).__module__ == "numpy" and getattr(value, "ndim", 1) == 0:
            value = value.item()
        if value is None and self.allows_none:
            return value
        if self.objects and isinstance(value, self.objects):
            return value
        for kind, is_float in self.data:
            if _fits(value, kind):
                return float(value) if is_float else value  # pyright: ignore
        raise _refusal(name, value, self.hint, _arms(self.hint))


def _rule(hint: Any) -> _Rule:
    text, arms = _text(hint), () if isinstance(hint, str) else _arms(hint)
    if any(x is Any or isinstance(x, ForwardRef) for x in arms):
        arms = ()
    objects = tuple(_bare(x) for x in arms if not _is_data(x))
    data = tuple((x, _bare(x) is float) for x in arms if _is_data(x))
    allows_none = types.NoneType in (get_args(hint) or (hint,))
    return _Rule(hint, text.take if text else None, allows_none, objects, data)


def _fits(value: Any, kind: Any) -> bool:
    try:
        msgspec.convert(value, kind)
    except (msgspec.ValidationError, TypeError):
        return False
    return True


def _refusal(name: str, value: Any, hint: Any, arms: tuple[Any, ...]) -> Exception:
    """Exception that says why a value is refused."""
    remarks = [
        x.description
        for x in _remarks(hint)
        if isinstance(x, msgspec.Meta) and x.description
    ]
    words = choices(hint)
    if not remarks and words:
        remarks = [f"allowed are {', '.join(words)}"]
    if not remarks and bool in arms:
        remarks = ["allowed are true and false"]
    if remarks:
        return BadRequest(f"`{name}` is {shown(value)}; {remarks[-1]}.", name)
    kinds = [getattr(_bare(x), "__name__", str(_bare(x))) for x in arms]
    allowed = " or ".join(dict.fromkeys([*kinds, *_none(hint)]))
    return TypeError(f"`{name}` is a {type(value).__name__}; allowed is {allowed}.")


def _none(hint: Any) -> list[str]:
    return ["None"] if types.NoneType in get_args(hint) else []


def shown(value: Any) -> str:
    """Text of a value in refusals."""
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, tuple | list) and all(isinstance(x, str) for x in value):
        value = ",".join(value)  # as it is typed
    return f"'{value}'" if isinstance(value, str) else repr(value)


def _check_names(kind: Any, keywords: Mapping[str, Any], called: str = ""):
    allowed = _names(kind)
    for name in keywords:
        if name in allowed:
            continue
        near = difflib.get_close_matches(name, allowed, n=1)
        hint = f" (did you mean `{near[0]}`?)" if near else ""
        raise ValueError(
            f"`{name}` is no argument of `{called or kind.__name__}`{hint}; allowed "
            f"are {', '.join(allowed)}."
        )


@functools.cache
def _names(kind: Any) -> dict[str, bool]:
    """Whether each field needs a value, by name."""
    return {x.name: x.default is dataclasses.MISSING for x in dataclasses.fields(kind)}


def _check_missing(kind: Any, args: tuple[Any, ...], keywords: Mapping[str, Any]):
    there = keywords
    if args:
        positional = [x.name for x in dataclasses.fields(kind) if not x.kw_only]
        there = {*keywords, *positional[: len(args)]}
    for name, needed in _names(kind).items():
        if needed and name not in there:
            raise BadRequest(f"`{name}` is missing; give it.", name)


@functools.cache
def _combinations(kind: Any) -> tuple[tuple[str, Needs | Excludes], ...]:
    """What fields need and exclude, by field."""
    return tuple(
        (field.name, remark)
        for field in _fields(kind)
        if not isinstance(field.type, str)
        for remark in _remarks(field.type)
        if isinstance(remark, Needs | Excludes)
    )


def _check_combinations(request: Any):
    fields = _by_name(type(request))

    def has(name: str) -> bool:
        return name in fields and is_explicit(fields[name], getattr(request, name))

    def meets(need: Needs) -> bool:
        if need.value:
            return getattr(request, need.field) == need.value
        return has(need.field)

    for name, remark in _combinations(type(request)):
        if not has(name):
            continue
        if isinstance(remark, Excludes):
            for other in filter(has, remark.fields):
                text = f"`{name}` is given beside `{other}`; {remark.why}."
                raise BadRequest(text, name, other)
        elif remark.field in fields and not meets(remark):
            other = f"`{remark.field}` {remark.value}".rstrip()
            text = f"`{name}` is given without {other}; {remark.why}."
            raise BadRequest(text, name, remark.field)


def check_type(name: str, value: Any, kinds: Any):
    """Raises `TypeError` with one sentence unless `value` is of these kinds."""
    if not isinstance(value, kinds):
        allowed = [kind.__name__ for kind in get_args(kinds) or (kinds,)]
        words = " or ".join("None" if x == "NoneType" else x for x in allowed)
        raise TypeError(f"`{name}` is a {type(value).__name__}; allowed is {words}.")
