"""Windows of a service: power and tokens joined by time and GPU, with idle times and
times of loading apart."""

import dataclasses
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import numpy as np

from ..measurements import Series
from ._benchmarks import Run
from ._logs import Logs
from ._spans import Spans, Total, spans_of, total

SERVING, IDLE, LOADING, UNKNOWN = "serving", "idle", "loading", "unknown"
WINDOW: Final = 300.0
"""s of a window, the least by default."""
_MOST: Final = 200
"""Windows of a log by default."""
_PAUSE: Final = 60.0
"""s without a request that are no idle window: requests of a quiet server pause."""
_COVERED: Final = 0.8
"""Share of a window that readings cover at least."""
_RISE: Final = 0.1
"""Share of the range of memory in use (else of power) above its lowest at which loading
begins."""
_LATENCIES: Final = {
    "ttft": ("ttft",),
    "tpot": ("itl", "tpot", "request_tpot"),  # per token, as the model's mean
}


@dataclasses.dataclass(frozen=True)
class Window:
    """A time of one state of a service, all of its GPUs together.

    `start`, `end`: s since 1970, None where a benchmark did not log them; `seconds`;
    `power`: W; `tokens`: output tokens; `requests` that completed and their `flow`
    (1/s); mean `input_len` and `output_len`, `hits`: share of input tokens in the
    prefix cache; `running`, `waiting`: mean requests; `clients`, `rate`, `waves`: load
    of a benchmark; `ttft`, `tpot`: s. None is unknown, and `why` says why by figure.
    """

    state: str
    start: float | None
    end: float | None
    seconds: float | None
    power: float | None = None
    tokens: float | None = None
    requests: float | None = None
    flow: float | None = None
    input_len: float | None = None
    output_len: float | None = None
    hits: float | None = None
    running: float | None = None
    waiting: float | None = None
    clients: float | None = None
    rate: float | None = None
    waves: float | None = None
    ttft: float | None = None
    tpot: float | None = None
    engine: str | None = None
    why: dict[str, str] = dataclasses.field(default_factory=dict)

    @property
    def energy(self) -> float | None:
        """Energy of the GPUs (J)."""
        if self.power is None or self.seconds is None:
            return None
        return self.power * self.seconds

    @property
    def energy_per_token(self) -> float | None:
        """Energy of the GPUs for an output token (J)."""
        if self.power is None or not self.flow or not self.output_len:
            return None
        if self.tokens is not None and self.seconds:
            return self.power * self.seconds / self.tokens
        return self.power / (self.flow * self.output_len)


def build_windows(logs: Logs, gpus: int, length: float | None = None) -> list[Window]:
    """Windows of a service on so many `gpus`, in order of time; `length`: s of those in
    which it serves [`WINDOW`, more for long logs].

    Raises `ValueError` in one sentence for logs without tokens, of fewer GPUs, or whose
    times do not meet.
    """
    if logs.runs and logs.server:
        raise ValueError(
            "there are results of a benchmark and metrics of a server, which count the "
            "same tokens; give one of them."
        )
    if not logs.runs and not logs.server:
        raise ValueError(
            "no log has tokens; give the metrics of the server (a range export of "
            "Prometheus) or the result of a benchmark beside the power."
        )
    runs = sorted(logs.runs, key=lambda x: np.inf if x.start is None else x.start)
    windows = [*map(_of_run, runs)] or _of_server(logs, length)
    return _with_power(windows, logs, gpus)


def _of_run(run: Run) -> Window:
    """The window of a benchmark."""
    start, n = run.start, run.requests
    end = None if start is None or run.seconds is None else start + run.seconds
    clients, waves = run.clients, None
    if clients is None and run.rate is None:  # all come at once
        clients = n
    if clients and n and run.rate is None:
        waves = max(n / clients, 1.0)
    why = {} if clients or run.rate else {"load": "the result has no load"}
    why |= {
        f"{x}_s": f"the result has no {x.upper()}"
        for x in ("ttft", "tpot")
        if getattr(run, x) is None
    }
    return Window(
        SERVING, start, end, run.seconds, None, n and n * run.output_len, n, run.flow,
        run.input_len, run.output_len, None, None, None, clients, run.rate, waves,
        run.ttft, run.tpot, run.engine, why,
    )  # fmt: skip


# --- metrics of a server


def _of_server(logs: Logs, length: float | None) -> list[Window]:
    """Windows of metrics over time."""
    tokens = total(logs.server, "output_tokens")
    if tokens is None:
        raise ValueError(
            "the metrics have no output tokens; export vllm:generation_tokens_total "
            "(sglang:generation_tokens_total) too."
        )
    times = [x.times for x in logs.server if x.quantity == "output_tokens"]
    grid = np.unique(np.concatenate(times))
    if len(grid) < 2:
        raise ValueError(
            "the metrics have a single time; export a range of at least two."
        )
    spans = _states(logs, tokens, grid)
    if length is None:
        served = sum(b - a for state, a, b in spans if state == SERVING)
        length = max(WINDOW, served / _MOST)
    cut = [x for span in spans for x in _cut(*span, length)]
    return _figures(logs, tokens, cut)


Span = tuple[str, float, float]
"""State, start and end."""


def _states(logs: Logs, tokens: Total, grid: np.ndarray) -> list[Span]:
    """Stretches of one state, from the first reading of tokens or power to the last."""
    a, b = grid[:-1], grid[1:]
    gained, covered = tokens.over(a, b)
    running = [x for x in logs.server if x.quantity == "running"]
    at = sum((np.interp(grid, x.times, x.values) for x in running), np.zeros(len(grid)))
    busy = (gained > 0) | (
        np.minimum(at[:-1], at[1:]) > 0
    )  # requests without tokens too
    state = np.where(covered <= 0, UNKNOWN, np.where(busy, SERVING, IDLE))
    breaks = np.flatnonzero(state[1:] != state[:-1]) + 1
    first, last = np.append(0, breaks), np.append(breaks, len(state)) - 1
    spans = [
        (str(state[i]), float(a[i]), float(b[j]))
        for i, j in zip(first, last, strict=True)
    ]
    power = [x for x in logs.power if x.quantity != "memory"]
    if power:
        begin = min(float(x.times[0]) for x in power)
        end = max(float((x.times if x.ends is None else x.ends)[-1]) for x in power)
        if begin < grid[0]:
            spans.insert(0, (UNKNOWN, begin, float(grid[0])))
        if end > grid[-1]:
            spans.append((UNKNOWN, float(grid[-1]), end))
    resets = _resets(logs.server)
    named = list[Span]()
    for n, (state, begin, end) in enumerate(spans):
        starts = n == 0 or bool(np.any((resets > begin) & (resets <= end)))
        followed = n + 1 < len(spans)
        if state == UNKNOWN and starts and followed:
            named += _loading(logs.power, begin, end)
        else:
            named.append((state, begin, end))
    long = [x for x in named if x[0] != UNKNOWN or x[2] - x[1] >= _PAUSE]
    return _without_pauses(long)


def _resets(series: Sequence[Series]) -> np.ndarray:
    """Times at which counters of tokens began anew, or first, after the others."""
    counters = [x for x in series if x.quantity == "output_tokens"]
    begin = min(x.times[0] for x in counters)
    fell = [x.times[1:][np.diff(x.values) < 0] for x in counters]
    new = [x.times[:1] for x in counters if x.times[0] > begin]
    return np.concatenate([*fell, *new])


def _loading(power: Sequence[Series], begin: float, end: float) -> Iterator[Span]:
    """The time before a server answers: from where memory in use (else power) rises it
    loads."""
    rise = end
    signals = [x for x in power if x.quantity == "memory"] or [
        x for x in power if x.quantity == "power"
    ]
    for signal in signals:
        inside = (signal.times >= begin) & (signal.times <= end)
        times, values = signal.times[inside], signal.values[inside]
        if len(values) < 2 or values.max() < 1.1 * values.min():  # it does not rise
            continue
        low = values.min()
        above = values > low + _RISE * (values.max() - low)
        above[: (~above).argmax()] = False  # it served before, until it went down
        rise = min(rise, float(times[above.argmax()])) if above.any() else rise
    if rise > begin:
        yield UNKNOWN, begin, rise
    if rise < end:
        yield LOADING, rise, end


def _without_pauses(spans: Sequence[Span]) -> list[Span]:
    """Stretches with short times without a request joined to those around them."""
    joined = list[Span]()
    for n, (state, begin, end) in enumerate(spans):
        inner = 0 < n < len(spans) - 1
        short = state == IDLE and end - begin < _PAUSE and inner
        if short and spans[n - 1][0] == SERVING == spans[n + 1][0]:
            state = SERVING
        if joined and state == SERVING == joined[-1][0]:
            joined[-1] = (state, joined[-1][1], end)
        else:
            joined.append((state, begin, end))
    return joined


def _cut(state: str, begin: float, end: float, length: float) -> Iterator[Span]:
    """Equal parts of a stretch in which the server serves, about `length` s each."""
    parts = max(round((end - begin) / length), 1) if state == SERVING else 1
    edges = np.linspace(begin, end, parts + 1).tolist()
    yield from ((state, *x) for x in zip(edges, edges[1:], strict=False))


def _figures(logs: Logs, tokens: Total, spans: Sequence[Span]) -> list[Window]:
    """Windows of these spans, with what their metrics say."""
    a, b = (np.array([x[i] for x in spans]) for i in (1, 2))
    none = np.full(len(spans), np.nan)

    def gained(name: str) -> np.ndarray:
        of = total(logs.server, name)
        return none if of is None else _known(*of.over(a, b), b - a)

    def mean(name: str) -> np.ndarray:
        of = total(logs.server, name)
        if of is None:
            return none
        amount, covered = of.over(a, b)
        return _known(amount, covered, b - a) / (b - a)

    out, read = _known(*tokens.over(a, b), b - a), gained("input_tokens")
    prompts, requests = gained("ttft_count"), gained("requests")
    prompts = np.where(np.isfinite(prompts), prompts, requests)
    requests = np.where(np.isfinite(requests), requests, prompts)
    running, waiting, hits = mean("running"), mean("waiting"), gained("hits")
    with np.errstate(divide="ignore", invalid="ignore"):
        latency = {
            name: _first([gained(f"{x}_sum") / gained(f"{x}_count") for x in words])
            for name, words in _LATENCIES.items()
        }
        columns = {
            "tokens": out,
            "requests": requests,
            "flow": requests / (b - a),
            "input_len": read / prompts,
            "output_len": out / requests,
            "hits": hits / read,
            "running": running,
            "waiting": waiting,
            **latency,
        }
    windows, engine = [], logs.server[0].key.partition(" ")[0]
    for n, (state, begin, end) in enumerate(spans):
        values: dict[str, Any] = {x: _finite(y[n]) for x, y in columns.items()}
        if state != SERVING:
            values = {name: None for name in values}
        why = {
            f"{x}_s": f"the metrics have no {x.upper()} here"
            for x in _LATENCIES
            if state == SERVING and values[x] is None
        }
        if state == SERVING and not (values["input_len"] and values["output_len"]):
            why["load"] = (
                "lengths of requests are unknown: export prompt_tokens_total and "
                "request_success_total or time_to_first_token_seconds_count"
            )
        values |= {"engine": engine, "why": why}
        windows.append(Window(state, begin, end, end - begin, **values))
    return windows


def _known(amount: np.ndarray, covered: np.ndarray, length: np.ndarray) -> np.ndarray:
    """Amounts scaled to the whole window; NaN where too little of it is covered."""
    valid = covered >= _COVERED * length
    return np.where(valid, amount * length / np.where(valid, covered, 1.0), np.nan)


def _first(columns: Sequence[np.ndarray]) -> np.ndarray:
    """The first finite value of each row."""
    value = columns[0]
    for other in columns[1:]:
        value = np.where(np.isfinite(value), value, other)
    return value


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


# --- power


def _with_power(windows: list[Window], logs: Logs, gpus: int) -> list[Window]:
    """Windows with the power of the service's GPUs, those that draw most while it
    serves."""
    boards = _boards(logs.power)
    timed = [x for x in windows if x.start is not None and x.end is not None]
    if not boards:
        return [_without(x, "no log has the power of GPUs") for x in windows]
    if len(boards) < gpus:
        raise ValueError(
            f"`num_gpus` is {gpus}, but the power of {len(boards)} GPUs is logged; log "
            "all of them, or give those of the service."
        )
    if not timed:
        return [_without(x, "the result has no time") for x in windows]
    a, b = (np.array([getattr(x, name) for x in timed]) for name in ("start", "end"))
    each = [x.over(a, b) for x in boards]
    served = np.array([x.state == SERVING for x in timed])
    served = served if served.any() else np.ones(len(timed), bool)
    if not any(np.any(covered[served] > 0) for _, covered in each):
        raise ValueError(_apart(logs, boards, a[served], b[served]))
    drawn = [
        float(amount[served].sum() / max(covered[served].sum(), 1e-9))
        for amount, covered in each
    ]
    busiest = np.argsort(drawn)[::-1][:gpus]
    energy = [_known(amount, s, b - a) for n in busiest for amount, s in [each[n]]]
    powers = iter((np.sum(energy, axis=0) / (b - a)).tolist())
    why = "the log of power has gaps here"
    return [
        _without(x, "the result has no time")
        if x.start is None or x.end is None
        else dataclasses.replace(x, power=power)
        if np.isfinite(power := next(powers))
        else _without(x, why)
        for x in windows
    ]


def _boards(power: Sequence[Series]) -> list[Spans]:
    """Energy over time of every GPU, of its counter where there is one."""
    best: dict[str, Series] = {}
    for x in sorted(power, key=lambda x: x.quantity == "energy"):
        if x.quantity != "memory":
            best[x.key] = x
    spans = [spans_of(x) for x in best.values()]
    return [x for x in spans if len(x.start)]


def _without(window: Window, reason: str) -> Window:
    return dataclasses.replace(window, why=window.why | {"power": reason})


def _apart(logs: Logs, boards: Sequence[Spans], a: np.ndarray, b: np.ndarray) -> str:
    """Why nothing is joined where a service served from `a` to `b`, with the offset
    that would join it."""
    power = (min(x.start[0] for x in boards), max(x.end[-1] for x in boards))
    tokens = (float(a.min()), float(b.max()))
    ahead = round((power[0] - tokens[0]) / 900) * 900
    hint = "give logs of the same time"
    meter = any(x.local for x in logs.power)
    if meter != any(x.local for x in (*logs.server, *logs.runs)):
        ahead = ahead if meter else -ahead
        if 0 < abs(ahead) <= 14 * 3600:
            zone = f"{abs(ahead) // 3600:02d}:{abs(ahead) // 60 % 60:02d}"
            hint = (
                "give the zone of clocks that name none (`time_zone` "
                f"{'+' if ahead > 0 else '-'}{zone} fits)"
            )
    spans = (f"{stamp(x[0])} to {stamp(x[1])}" for x in (power, tokens))
    return "power ({}) and tokens ({}) share no time".format(*spans) + f"; {hint}."


def stamp(time: float) -> str:
    """A time as text, UTC to the second."""
    return datetime.fromtimestamp(round(time), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
