"""Loads of windows, as the model of a server takes them."""

from collections.abc import Sequence
from typing import Any, Final

from ..results import Infeasible
from ..serving import Load, ServerRequest, ServingResult, steady_states
from ._request import Arrivals
from ._windows import SERVING, Window

FEW: Final = 10
"""Requests below which the means of a window say little."""
_OPEN: Final = 8.0
"""Mean running requests below which arrivals at random decide how many run, and whether
any does: at 8 a server is empty in 0.03 % of the time."""
_QUEUE: Final = 0.5
"""Waiting requests from which the running ones are as many as may run."""
_DIGITS: Final = 3
"""Significant digits of loads: equal ones are computed once."""


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")


def loads_of(window: Window, arrivals: Arrivals = "auto") -> list[Load]:
    """Loads that describe a window, the best first: an open loop of its rate, a closed
    loop of the requests that were there, or as its benchmark sent them."""
    x = window
    if x.state != SERVING or not (x.flow and x.input_len and x.output_len):
        return []
    lengths: dict[str, Any] = {
        "input_len": max(_rounded(x.input_len), 1.0),
        "output_len": max(_rounded(x.output_len), 1.0),
    }
    if x.hits:
        most = 1 - 1 / lengths["input_len"]
        lengths["prefix_hit"] = min(_rounded(min(x.hits, 0.99)), most)
    flow = Load(rate=_rounded(x.rate or x.flow), **lengths)
    there, limit = x.clients, None
    if there is None and x.running is not None:
        there = x.running + (x.waiting or 0.0)
        limit = x.running if (x.waiting or 0.0) >= _QUEUE else None
    if there is None or there < 1:
        return [flow]
    closed = Load(
        concurrency=_rounded(there),
        max_batch=None if limit is None else max(_rounded(limit), 1.0),
        waves=None if x.waves is None else _rounded(x.waves),
        **lengths,
    )
    if arrivals == "auto":
        arrivals = "closed" if x.rate is None else "open"
    return [flow, closed] if arrivals == "open" else [closed, flow]


def _usual(windows: Sequence[Window], arrivals: Arrivals) -> Arrivals:
    """How requests of a service arrive, all of its windows alike: at random where few
    run at once in the mean."""
    pairs = [(x.running, x.seconds or 0.0) for x in windows if x.running is not None]
    time = sum(seconds for _, seconds in pairs)
    if arrivals != "auto" or not time:
        return arrivals
    mean = sum(running * seconds for running, seconds in pairs) / time
    return "open" if mean < _OPEN else "closed"


def priced(
    windows: Sequence[Window], server: ServerRequest, arrivals: Arrivals, **fields: Any
) -> list[ServingResult | str | None]:
    """Prediction of every window, why there is none, or None of one that has no load.

    Loads that the model cannot sustain are tried the other way: the service did.
    """
    options = [loads_of(x, _usual(windows, arrivals)) for x in windows]
    results: list[ServingResult | str | None] = [None] * len(windows)
    for turn in range(2):
        todo = [
            n for n, x in enumerate(options)
            if len(x) > turn and not isinstance(results[n], ServingResult)
        ]  # fmt: skip
        answers = steady_states([options[n][turn] for n in todo], server, **fields)
        for n, result in zip(todo, answers, strict=True):
            failed = isinstance(result, Infeasible)
            results[n] = (results[n] or str(result)) if failed else result
    return results
