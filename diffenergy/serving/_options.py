"""Keyword arguments that do not exist are refused with the name that was meant."""

import dataclasses
import difflib
import functools
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

_T = TypeVar("_T")


def refuse_unknown(what: str) -> Callable[[type[_T]], type[_T]]:
    """Decorator of a dataclass, fields of `what` ("a load"): keywords of its
    constructor that are no field raise the `ValueError` of `check_names`."""

    def decorate(kind: type[_T]) -> type[_T]:
        construct: Any = kind.__init__
        fields = [field.name for field in dataclasses.fields(kind)]  # pyright: ignore

        @functools.wraps(construct)
        def checked(self: _T, *values: Any, **given: Any) -> None:
            check_names(what, given, fields)
            construct(self, *values, **given)

        kind.__init__ = checked
        return kind

    return decorate


def check_names(what: str, given: Iterable[str], allowed: Iterable[str]):
    """Raises `ValueError` for the first name in `given` that is not `allowed`."""
    allowed = sorted(allowed)
    for name in given:
        if name not in allowed:
            near = difflib.get_close_matches(name, allowed, n=1)
            hint = f" (did you mean `{near[0]}`?)" if near else ""
            raise ValueError(
                f"`{name}` is no field of {what}{hint}; allowed are "
                f"{', '.join(allowed)}."
            )
