"""`Load`: what requests come to a server, and in which way."""

import dataclasses
import math
from typing import Any, Final

from ._lengths import Lengths, read_lengths
from ._options import refuse_unknown

_WORDS: Final = ("max_batch", "concurrency", "rate")
_NUMBERS: Final = (*_WORDS, "cached_len", "waves", "slo_ttft", "slo_tpot")
DEFAULT_INPUT, DEFAULT_OUTPUT = 512, 128
"""Tokens."""


@refuse_unknown("a load")
@dataclasses.dataclass(frozen=True)
class Load:
    """Requests that come to a server.

    Exactly one way: `rate` requests a second at random (open loop, Poisson);
    `concurrency` clients that each send the next request when the last one ends
    (closed loop); or `max_batch` alone: always as many as may run (saturated). Beside
    the others `max_batch` is the most that run at once.

    `input_len`, `output_len`: tokens of prompts to compute and of outputs [512, 128],
    numbers or "lognormal:MEAN:CV", "uniform:LOW:HIGH", "exponential:MEAN";
    `cached_len`: prompt tokens found in the prefix cache. `waves`: requests that each
    client of a benchmark sends, all clients starting at once. `slo_ttft`, `slo_tpot`:
    s that the first token, and each further one, may take.

    Raises `ValueError` in one sentence for what cannot be.
    """

    max_batch: int | float | None = None
    concurrency: int | float | None = None
    rate: int | float | None = None
    input_len: Any = None
    output_len: Any = None
    cached_len: int | float | None = None
    waves: int | float | None = None
    slo_ttft: int | float | None = None
    slo_tpot: int | float | None = None

    def __post_init__(self):
        for name in ("max_batch", "concurrency", "waves"):
            _check(name, getattr(self, name), 1.0, "from 1 on")
        for name in ("rate", "slo_ttft", "slo_tpot"):
            _check(name, getattr(self, name), 0.0, "above 0", above=True)
        _check("cached_len", self.cached_len, 0.0, "from 0 on")
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
    def input(self) -> Lengths:
        """Prompt tokens to compute."""
        given = DEFAULT_INPUT if self.input_len is None else self.input_len
        return read_lengths("input_len", given)

    @property
    def output(self) -> Lengths:
        """Tokens made."""
        given = DEFAULT_OUTPUT if self.output_len is None else self.output_len
        return read_lengths("output_len", given)

    @property
    def cached(self) -> float:
        """Prompt tokens found in the prefix cache."""
        return self.cached_len or 0.0


def _check(
    name: str, value: Any, least: float, allowed: str, above: bool = False
) -> None:
    if value is None:
        return
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if number and math.isfinite(value) and (value > least if above else value >= least):
        return
    raise ValueError(f"`{name}` is {value!r}; allowed is a number {allowed}.")
