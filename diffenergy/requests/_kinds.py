"""Types of fields that several requests have: range, remedy and how texts are read."""

import sys
from collections.abc import Sequence
from typing import Annotated, Any, Final, TypeVar

from msgspec import Meta

from .. import reading
from ._declared import Text

T = TypeVar("T")


def several(name: str, value: Any) -> tuple[float, ...]:
    """One number or several as a tuple, each once."""
    jax = sys.modules.get("jax")
    if jax is not None and isinstance(value, jax.core.Tracer):
        raise TypeError(
            f"`{name}` is differentiated (or traced), which an estimate by name cannot "
            "be; give a `Workload`, and the clocks in an `OperatingPoint`."
        )
    if hasattr(value, "tolist"):  # of numpy or jax
        value = value.tolist()
    values = value if isinstance(value, Sequence) else [value]
    for x in values:
        if isinstance(x, bool) or not isinstance(x, int | float):
            raise TypeError(
                f"`{name}` is a {type(x).__name__}; allowed is int or float."
            )
    return tuple(dict.fromkeys(float(x) for x in values))


def each(name: str, value: Any) -> tuple[Any, ...]:
    """One value or several as a tuple, each once."""
    single = isinstance(value, str) or not hasattr(value, "__iter__")
    return (value,) if single else tuple(dict.fromkeys(value))


def values_of(value: Sequence[T] | T | None) -> tuple[T, ...] | None:
    """A field as the tuple that `several` or `each` stores, for the type checker."""
    return value  # pyright: ignore[reportReturnType]


def _one_file(name: str) -> tuple[str, ...]:
    return (name,)


_WHOLE: Final = f"allowed is a whole number from 1 to {reading.MOST:,}"
Whole = Annotated[
    int, Meta(ge=1, le=reading.MOST, description=_WHOLE), Text("N", reading.whole)
]
"""A count from 1 on."""
Wholes = Annotated[Sequence[Whole] | Whole, Text("N[,N...]", reading.wholes, take=each)]
"""One or several of those."""
_SEED: Final = f"allowed is a whole number from 0 to {reading.MOST:,}"
Seed = Annotated[
    int, Meta(ge=0, le=reading.MOST, description=_SEED), Text("N", reading.seed)
]
"""A count from 0 on."""
Clocks = Annotated[
    Sequence[float] | float,
    Text("MHZ[,MHZ...]", reading.clocks, take=several, unit="Hz"),
]
"""Clocks in Hz, one or several; bare ones of a text in MHz."""
Limits = Annotated[
    Sequence[float] | float, Text("W[,W...]", reading.watts, take=several, unit="W")
]
"""Powers in W, one or several."""
Celsius = Annotated[float, Text("C", reading.celsius, unit="C")]
"""A temperature in C."""
Dtype = Annotated[str, Text("TYPE", reading.dtype, take=reading.dtype)]
"""A number format."""
Dtypes = Annotated[Sequence[str] | str, Text("TYPE[,...]", reading.dtypes, take=each)]
"""One or several of those."""
File = Annotated[str, Text("FILE", files=_one_file)]
"""A file that is read."""
