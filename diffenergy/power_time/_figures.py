"""What a grid and a breaker see of a curve: `power_profile` of an answer."""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from ._curve import PowerCurve, series

SUPPLY_LAG: Final = 0.02
"""s: power supplies bridge some 20 ms (hold-up time), within a factor of two; shorter
peaks, such as the overshoot of a board's limiter, do not reach the wall."""
RAMP_WINDOW: Final = 1.0
"""s over which ramps are taken, as meters of servers read."""
BANDS: Final[Mapping[str, tuple[float, float]]] = {
    "0.01-0.1hz": (0.01, 0.1),
    "0.1-2hz": (0.1, 2.0),
    "3-30hz": (3.0, 30.0),
}
"""Bands (Hz) in which generators and grids resonate; supplies filter what is faster."""
_MOST_TERMS: Final = 5_000_000
"""Harmonics times slices of a series; above, lines are those of bins."""
_BIN: Final = 1 / 240
"""s of these bins: short enough that their means hide little of the fastest band."""
_MOST_BINS: Final = 1 << 22
_FLAT: Final = 1e-9
"""Share of the mean below which what changes is rounding."""


def power_profile(
    curve: PowerCurve, of: str, paused: float | None = None
) -> dict[str, Any]:
    """`power_profile` of an answer about a curve of `of` (boards, wall or site), behind
    power supplies; `paused`: share of the time in which its boards pause.

    `rms_share` of a periodic curve is exact; of others that of bins of a step.
    """
    behind = curve.filtered(SUPPLY_LAG)
    peak, trough = float(behind.values.max()), float(behind.values.min())
    up, down = (x if x > _FLAT * curve.mean else 0.0 for x in ramps(curve))
    frequency, power = lines(curve)
    power = power / (1 + (2 * np.pi * frequency * SUPPLY_LAG) ** 2)
    shares = {
        name: float(np.sqrt(power[(low <= frequency) & (frequency < high)].sum()))
        / curve.mean
        for name, (low, high) in BANDS.items()
    }
    strongest = int(power.argmax()) if len(power) else None
    return {
        "of": of,
        "mean_w": curve.mean,
        "peak_w": peak,
        "trough_w": trough,
        "swing_w": peak - trough,
        "crest": peak / curve.mean,
        "ramp_up_w_per_s": up,
        "ramp_down_w_per_s": down,
        "window_s": SUPPLY_LAG,
        "rms_share": {"total": behind.variance**0.5 / curve.mean, **shares},
        "strongest": None
        if strongest is None or power[strongest] <= (_FLAT * curve.mean) ** 2
        else {
            "hz": float(frequency[strongest]),
            "share": float(np.sqrt(power[strongest])) / curve.mean,
        },
        "period_s": curve.time if curve.periodic else None,
        **({} if paused is None else {"paused_share": paused}),
    }


def power_rows(curves: Mapping[str, PowerCurve], step: float) -> list[dict[str, float]]:
    """Rows of `--power-trace`: mean power of every `step` s, of a period where it
    repeats."""
    columns = {f"{name}_w": curve.bins(step).tolist() for name, curve in curves.items()}
    return [
        {"t_s": i * step, **{name: column[i] for name, column in columns.items()}}
        for i in range(len(columns["boards_w"]))
    ]


def ramps(curve: PowerCurve, window: float = RAMP_WINDOW) -> tuple[float, float]:
    """Largest rise and fall (W/s, both positive) of the mean of `window` s from one
    window to the next."""
    if not curve.periodic and curve.time < 2 * window:
        return 0.0, 0.0
    # the difference of two means is linear between the moments at which one of the
    # three ends of the windows meets an edge
    shifts = np.array([0.0, window, 2 * window])
    moments = np.unique((curve.edges[:, None] - shifts).ravel())
    if curve.periodic:
        moments = curve.edges[0] + np.mod(moments - curve.edges[0], curve.time)
    else:
        last = curve.edges[-1] - 2 * window
        moments = moments[(curve.edges[0] <= moments) & (moments <= last)]
    first = curve.means(moments, window)
    change = (curve.means(moments + window, window) - first) / window
    return max(0.0, float(change.max())), max(0.0, float(-change.min()))


def lines(curve: PowerCurve) -> tuple[np.ndarray, np.ndarray]:
    """Frequencies (Hz) and mean squares (W^2) of what a curve consists of: its Fourier
    series, or where it has too many terms, that of bins."""
    highest = BANDS["3-30hz"][1]
    count = max(1, int(np.ceil(highest * curve.time)))
    if curve.periodic and count * len(curve.watts) <= _MOST_TERMS:
        numbers = np.arange(1.0, count + 1)
        c = np.asarray(series(curve.edges, curve.watts, numbers))
        return numbers / curve.time, 2 * np.abs(c) ** 2
    number = int(np.clip(curve.time / _BIN, 1, _MOST_BINS))
    step = curve.time / number
    watts = curve.means(curve.edges[0] + step * np.arange(number), step)
    c = np.fft.rfft(watts - watts.mean())[1:] / len(watts)
    frequency = np.fft.rfftfreq(len(watts), step)[1:]
    # means of bins are the curve behind a filter sinc(f step)
    square = 2 * np.abs(c / np.sinc(frequency * step)) ** 2
    if len(watts) % 2 == 0 and len(square):
        square[-1] /= 2  # the last line of an even number stands once
    return frequency, square
