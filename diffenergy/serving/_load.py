"""`Load`: the requests that a server gets, and how they arrive."""

import functools
from typing import TYPE_CHECKING, Annotated, Any, Final

from msgspec import Meta

from .. import reading
from ..requests import Flag, Request, Text
from ..schema import MOST

if TYPE_CHECKING:
    from ._lengths import Lengths

_WORDS: Final = ("max_batch", "concurrency", "rate")
_NUMBERS: Final = (*_WORDS, "cached_len", "waves", "slo_ttft", "slo_tpot")
DEFAULT_INPUT, DEFAULT_OUTPUT = 512, 128
"""Tokens."""


def _number(
    description: str, metavar: str, read: Any, unit: str = "", **limits: Any
) -> Any:
    """The remarks of a number: its range with the words of it, and how it is read."""
    words = f"allowed is a number {description}"
    return Meta(le=MOST, description=words, **limits), Text(metavar, read, unit=unit)


def _tokens(flag: str, text: str) -> float:
    value = reading.number(flag, text)
    if not 0 <= value <= reading.MOST or value != int(value):
        raise ValueError(f"`{flag}` is '{text}'; allowed is a whole number from 0 on.")
    return value


def _clients(flag: str, text: str) -> float:
    return float(reading.whole(flag, text))


_milliseconds: Final = functools.partial(reading.positive, unit="ms")
_Clients = Annotated[float, *_number("from 1 on", "N", _clients, ge=1)]
_Rate = Annotated[float, *_number("above 0", "R", reading.positive, gt=0)]
_Limit = Annotated[float, *_number("above 0", "MS", _milliseconds, "s", gt=0)]
_Tokens = Annotated[float, *_number("from 0 on", "N", _tokens, ge=0)]


class WayRequest(Request):
    """How requests arrive, and the limits of their latencies."""

    max_batch: Annotated[
        _Clients | None,
        Flag(
            "Maximum number of running requests [limited by memory]; without another "
            "load option the server is saturated.",
            "B",
        ),
    ] = None
    concurrency: Annotated[
        _Clients | None,
        Flag("Clients that send the next request when the last one ends.", "C"),
    ] = None
    rate: Annotated[_Rate | None, "Requests a second, at random times."] = None
    slo_ttft: Annotated[_Limit | None, "Limit of the time to the first token."] = None
    slo_tpot: Annotated[_Limit | None, "Limit of the time per output token."] = None


class LoadRequest(WayRequest):
    """Requests that come to a server."""

    input_len: Annotated[
        Any,
        Flag(
            "Prompt tokens to compute: 512, lognormal:MEAN:CV, uniform:LOW:HIGH or "
            f"exponential:MEAN [{DEFAULT_INPUT}].",
            "DIST",
        ),
    ] = None
    output_len: Annotated[
        Any, Flag(f"Output tokens; distributions as above [{DEFAULT_OUTPUT}].", "DIST")
    ] = None
    cached_len: Annotated[
        _Tokens | None, "Prompt tokens found in the prefix cache [0]."
    ] = None
    waves: Annotated[
        _Clients | None,
        Flag(
            "Requests that each client of a benchmark sends, all starting at once "
            "[steady state].",
            "W",
            reading.positive,
        ),
    ] = None


class Load(LoadRequest):
    """Load of a server: how requests arrive, and their lengths.

    Exactly one of `rate` (requests per second, open loop, Poisson), `concurrency`
    (clients that each send the next request when the last one ends, closed loop), or
    `max_batch` alone (saturated). Beside the others `max_batch` limits the running
    requests.

    `input_len`, `output_len`: tokens of prompts to compute and of outputs [512, 128],
    numbers or "lognormal:MEAN:CV", "uniform:LOW:HIGH", "exponential:MEAN";
    `cached_len`: prompt tokens found in the prefix cache. `waves`: requests that each
    client of a benchmark sends, all clients starting at once. `slo_ttft`, `slo_tpot`:
    s that the first token, and each further one, may take.

    Raises `ValueError` in one sentence for what cannot be.
    """

    def __post_init__(self):
        super().__post_init__()
        _ = self.input, self.output  # raises
        if self.concurrency is not None and self.rate is not None:
            raise ValueError(
                "`rate` is given beside `concurrency`; give one way in which requests "
                "come."
            )
        if all(getattr(self, name) is None for name in _WORDS):
            raise ValueError(
                "`rate` is missing, and so are `concurrency` and `max_batch`; give one "
                "of them, such as `rate` 8 requests a second."
            )
        if self.waves is not None and self.rate is not None:
            raise ValueError(
                f"`waves` is {self.waves:g}, but requests of an open loop come one by "
                "one; leave it out."
            )
        for name in _NUMBERS:
            value = getattr(self, name)
            object.__setattr__(self, name, None if value is None else float(value))

    @property
    def mode(self) -> str:
        """saturated, closed or open."""
        if self.rate is not None:
            return "open"
        return "saturated" if self.concurrency is None else "closed"

    @property
    def input(self) -> "Lengths":
        """Prompt tokens to compute."""
        from ._lengths import read_lengths

        length = DEFAULT_INPUT if self.input_len is None else self.input_len
        return read_lengths("input_len", length)

    @property
    def output(self) -> "Lengths":
        """Output tokens of a request."""
        from ._lengths import read_lengths

        length = DEFAULT_OUTPUT if self.output_len is None else self.output_len
        return read_lengths("output_len", length)

    @property
    def cached(self) -> float:
        """Prompt tokens found in the prefix cache."""
        return self.cached_len or 0.0
