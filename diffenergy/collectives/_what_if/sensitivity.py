"""What to buy: how the finish answers to each link's rate and latency.

With T the finish of a schedule whose links keep their orders (`replay.finish_time`),
r a rate and a a latency:

- `rate` = d ln T / d ln r: -0.3 says that 1 % more rate takes 0.3 % off the finish;
- `latency` = d ln T / d ln a, and `rise` = dT/da, s per s: how often the last byte to
  arrive has waited for that latency.

T is the longest of many paths. The gradient is that of *one* longest path: where
several are equally long, it shares the finish out as if that path were the only one.
The one-sided derivatives are exact there: a link that is faster helps as far as every
longest path passes it, one that is slower harms if any does. (`rate` above 0: a faster
link brings data too soon to a switch, which cannot hold it; sent slower it would do.)
Scaling all rates one way and all latencies the other scales T, so that over all links
sum(latency) - sum(rate) = 1.
"""

import dataclasses
from typing import Any, Final, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from ...units import us
from .._machine.topology import Topology
from .._schedule.finish_time import finish_time, order_of
from .._schedule.schedule import Schedule

BY: Final = ("link", "medium")
"""What changes at once: a direction, or all links of a medium."""
_FASTER: Final = 1e-7
"""Step in s per byte that prefers some of the longest paths to others: paths whose
lengths differ by less than that share of a part's time count as equal."""
_LATER: Final = 1e-9
"""The same for latencies, as a share of the finish."""
_SMALL: Final = 1e6
"""Sends times cases below which compiling takes longer than running."""
_MOST: Final = 1e8
"""Sends times cases beyond which derivatives to one side take minutes."""


@dataclasses.dataclass(frozen=True)
class Parts:
    """Links that change at once: `names` of the parts, and which links they have."""

    topology: Topology
    by: str
    names: tuple[tuple[str, ...], ...]
    members: Bool[np.ndarray, "part link"]


@dataclasses.dataclass(frozen=True)
class OneSided:
    """Exact derivatives to one side, also where longest paths tie; as `rate` and `rise`
    of `Sensitivities`, of a rate that grows or shrinks, a latency that does."""

    faster: Float[np.ndarray, " part"]
    slower: Float[np.ndarray, " part"]
    longer: Float[np.ndarray, " part"]
    shorter: Float[np.ndarray, " part"]


@dataclasses.dataclass(frozen=True)
class Sensitivities:
    """How the `finish` (s, each send as early as the order allows) answers to the links
    of a part, on one longest path; `exact` to one side if asked for."""

    parts: Parts
    finish: float
    rate: Float[np.ndarray, " part"]
    latency: Float[np.ndarray, " part"]
    rise: Float[np.ndarray, " part"]
    exact: OneSided | None


def parts_of(topology: Topology, by: str = "link") -> Parts:
    """The parts of a machine, in order of their first link; links with the same two
    ends are one.

    Raises `ValueError` for an unknown `by`.
    """
    if by not in BY:
        raise ValueError(f"`by` is {by!r}; allowed are {', '.join(BY)}.")
    number: dict[tuple[str, ...], int] = {}
    which = []
    for link in topology.links:
        ends = topology.names[link.source], topology.names[link.target]
        part = (link.medium,) if by == "medium" else ends
        which.append(number.setdefault(part, len(number)))
    members = np.arange(len(number))[:, None] == np.array(which, int)
    return Parts(topology, by, tuple(number), members)


def sensitivities(
    schedule: Schedule, by: str = "link", one_sided: bool | None = None
) -> Sensitivities:
    """How the finish answers to rates and latencies, the order of sends kept.

    `one_sided`: also the exact derivatives to either side, at four finishes a part;
    None: unless that takes minutes (100 million sends times finishes). Raises
    `ValueError` for a schedule without sends.
    """
    topology, parts = schedule.topology, parts_of(schedule.topology, by)
    if one_sided is None:
        one_sided = 4 * len(parts.names) * len(schedule.sends) <= _MOST
    used = np.zeros(len(topology.links), bool)
    used[schedule.sends.link] = True
    some = np.flatnonzero(parts.members[:, used].any(1) & one_sided)
    late = _LATER * float(schedule.sends.end.max(initial=0.0))
    slowness = np.repeat([1 - _FASTER, 1 + _FASTER, 1.0, 1.0], len(some))
    wait = np.repeat([0.0, 0.0, late, -late], len(some))
    base, found = _slopes(schedule, parts, np.tile(some, 4), slowness, wait)
    finish = float(base.finish)
    exact = None
    if one_sided:
        # The paths that a small step prefers are the longest ones there, and T is
        # piecewise linear in latencies and in s per byte: the gradient after the step
        # is the derivative at its beginning.
        kept = np.where(np.isfinite(found.finish), 1.0, np.nan)
        rate = (kept * found.by_rate / slowness / finish).reshape(4, -1)
        rise = (kept * found.by_latency).reshape(4, -1)
        table = np.zeros((4, len(parts.names)))  # links that nothing passes: 0
        table[:, some] = [rate[0], rate[1], rise[2], rise[3]]
        exact = OneSided(*table)
    return Sensitivities(
        parts,
        finish,
        parts.members @ base.by_rate / finish,
        parts.members @ (base.by_latency * topology.latencies) / finish,
        parts.members @ base.by_latency,
        exact,
    )


def sensitivity_rows(found: Sensitivities) -> list[dict[str, Any]]:
    """Rows for JSON and tables, those with most of the finish first.

    `rate_sensitivity` and `latency_sensitivity` are relative (% of finish per %);
    `latency_sensitivity_s_per_us` is the rise of the finish per us of latency. Rate and
    latency are null where the links of a part differ in them. To one side, null is what
    was not worked out, and a change by which the order could not be kept.
    """
    topology, parts = found.parts.topology, found.parts
    exact = found.exact
    share = found.latency - found.rate
    spare = np.zeros(len(share)) if exact is None else exact.slower
    order = np.lexsort((spare.round(6), -share.round(9)))
    columns: dict[str, Any] = {
        "rate_sensitivity": found.rate,
        "rate_sensitivity_if_faster": exact and exact.faster,
        "rate_sensitivity_if_slower": exact and exact.slower,
        "latency_sensitivity": found.latency,
        "latency_sensitivity_s_per_us": found.rise * us,
        "latency_sensitivity_if_longer_s_per_us": exact and exact.longer * us,
        "latency_sensitivity_if_shorter_s_per_us": exact and exact.shorter * us,
    }
    return [
        _label(parts, n)
        | {
            "rate_bytes_per_s": _common(topology.rates[parts.members[n]]),
            "latency_s": _common(topology.latencies[parts.members[n]]),
        }
        | {
            key: None if values is None or np.isnan(values[n]) else float(values[n])
            for key, values in columns.items()
        }
        for n in order.tolist()
    ]


def _label(parts: Parts, n: int) -> dict[str, Any]:
    """What the row of a part is called."""
    if parts.by == "medium":
        return {"medium": parts.names[n][0], "links": int(parts.members[n].sum())}
    return {"link": list(parts.names[n])}


def _common(values: Float[np.ndarray, " link"]) -> float | None:
    """The value that all have."""
    return float(values[0]) if np.ptp(values) == 0 else None


class _Slopes(NamedTuple):
    """Finish in s, r dT/dr and dT/da: one finish and axes (link,), or all (case,)."""

    finish: np.ndarray
    by_rate: np.ndarray
    by_latency: np.ndarray


def _slopes(
    schedule: Schedule,
    parts: Parts,
    part: Int[np.ndarray, " case"],
    slowness: Float[np.ndarray, " case"],
    late: Float[np.ndarray, " case"],
) -> tuple[_Slopes, _Slopes]:
    """Gradients with nothing changed, and in each case summed over its part, whose
    links are `slowness` times as slow and `late` s later: one program, small enough for
    any schedule (on processors no slower than cases side by side)."""
    import jax
    import jax.numpy as jnp

    from ...compiling import compiler_options

    if not len(schedule.sends):
        raise ValueError(
            "`schedule` has no sends, so no link matters; give one that moves data."
        )
    topology, order = schedule.topology, order_of(schedule)
    slope = jax.value_and_grad(finish_time, (1, 2))
    with jax.enable_x64(True):
        members = jnp.asarray(parts.members)
        rates, latencies = jnp.asarray(topology.rates), jnp.asarray(topology.latencies)

        def one(_: Any, case: tuple[jax.Array, jax.Array, jax.Array]) -> Any:
            mine = members[case[0]]
            rate = rates / jnp.where(mine, case[1], 1.0)
            latency = latencies + jnp.where(mine, case[2], 0.0)
            value, (by_rate, by_latency) = slope(order, rate, latency)
            by_link = by_rate * rate, by_latency
            return by_link, (value, *((mine * column).sum() for column in by_link))

        nothing = jnp.zeros_like(rates), jnp.zeros_like(rates)
        # The last case changes nothing, and its slopes are carried to the end.
        tried = np.append(part, 0), np.append(slowness, 1.0), np.append(late, 0.0)
        options = compiler_options(once=len(tried[0]) * len(schedule.sends) < _SMALL)
        every = jax.jit(
            lambda rows: jax.lax.scan(one, nothing, rows), compiler_options=options
        )
        last, columns = every(tried)
    finishes, *sums = (np.asarray(column) for column in columns)
    base = _Slopes(finishes[-1], *(np.asarray(column) for column in last))
    return base, _Slopes(finishes[:-1], *(column[:-1] for column in sums))
