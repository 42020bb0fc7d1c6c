"""`Load`: the requests that a server gets, and how they arrive."""

import functools
from typing import TYPE_CHECKING, Annotated, Any, Final

from msgspec import Meta

from .. import reading
from ..requests import Excludes, Flag, Needs, Request, Text
from ..schema import MOST

if TYPE_CHECKING:
    from ._lengths import Lengths

_WORDS: Final = ("max_batch", "concurrency", "rate")
_NUMBERS: Final = (
    *_WORDS, "cached_len", "prefix_hit", "pause", "kv_offload", "waves", "slo_ttft",
    "slo_tpot",
)  # fmt: skip
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
_Hits = Annotated[
    float,
    Meta(ge=0, lt=1, description="allowed is a share from 0 to below 1"),
    Text("SHARE", reading.number),
]
_seconds: Final = functools.partial(reading.positive, unit="s")
_gigabytes: Final = functools.partial(reading.positive, unit="GB")
_Seconds = Annotated[float, *_number("above 0", "S", _seconds, "s", gt=0)]
_Bytes = Annotated[float, *_number("above 0", "GB", _gigabytes, "B", gt=0)]


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
            "Prompt tokens to compute (with --prefix-hit: that users send): 512, "
            "lognormal:MEAN:CV, uniform:LOW:HIGH or "
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
    prefix_hit: Annotated[
        _Hits | None,
        "Share of the prompt tokens found in the prefix cache [0].",
        Excludes(("cached_len",), "both are tokens of the prefix cache; give one"),
    ] = None
    pause: Annotated[
        _Seconds | None,
        "Time that a request keeps its KV cache after its last token, such as for the "
        "tools of an agent [0].",
        Excludes(("waves",), "a benchmark has no pauses; leave one of them out"),
    ] = None
    kv_offload: Annotated[
        _Bytes | None,
        "Host memory of a replica for the KV cache of requests that pause [none].",
        Needs("pause", "give the seconds that requests pause"),
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
    `cached_len`: prompt tokens found in the prefix cache, or `prefix_hit`: their share
    of the `input_len` that users send. `pause`: s that a request keeps its KV cache
    after its last token, of which `kv_offload` bytes may be on the host. `waves`:
    requests that each client of a benchmark sends, all clients starting at once.
    `slo_ttft`, `slo_tpot`: s that the first token, and each further one, may take.

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
        least = 1 - (self.prefix_hit or 0.0)
        if least * self.sent.mean < 1:
            raise ValueError(
                f"`prefix_hit` is {self.prefix_hit:g}, but the last token of a prompt "
                f"is always computed; of {self.sent.mean:g} tokens give at most "
                f"{1 - 1 / self.sent.mean:.4g}."
            )
        if self.waves is not None and self.rate is not None:
            raise ValueError(
                f"`waves` is {self.waves:g}, but requests of an open loop come one by "
                "one; leave it out."
            )
        if self.slo_tpot is not None and not self.decodes:
            raise ValueError(
                f"`slo_tpot` is {1e3 * self.slo_tpot:g} ms, but requests of one output "
                "token (`output_len`) have no second one; leave it out."
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
    def decodes(self) -> bool:
        """Whether tokens follow the first one of a request."""
        return self.output.mean > 1

    @property
    def input(self) -> "Lengths":
        """Prompt tokens to compute."""
        return self.sent.times(1 - (self.prefix_hit or 0.0))

    @property
    def sent(self) -> "Lengths":
        """`input_len`: prompt tokens to compute, with `prefix_hit` all of them."""
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
        if self.prefix_hit is not None:
            return self.prefix_hit * self.sent.mean
        return self.cached_len or 0.0
