"""The JSON of two pools: that of the decode pool, with figures of both."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, Final

from ...corrections import least_grade
from ...units import MHz
from .. import _result as result
from .._engine import spread_of
from .._wall import Idle, wall_figures
from .pools import Pools
from .sizes import Side, Transfer

NOTE: Final = (
    "pools apart are checked on three servers alone (one model, GPU and engine): power "
    "within 13 %, but a token takes 0.7 to 2.1 times the measured time."
)
_GRADE: Final = "forecast"
_SETUP_SD: Final = 0.2
"""s: standard deviation of the constant `apart`, one row."""


def to_json(
    prefill: Side,
    decode: Side,
    figures: Pools,
    transfer: Transfer,
    assumed: Mapping[str, Any],
) -> dict[str, Any]:
    """The JSON; powers and energies are of the GPUs of both pools. Keys of one server
    (GPU, tp, clocks, steps, cache) are of the decode pool."""
    of, reading = decode.deployment, prefill.deployment
    steady = figures.steady
    summary = result.to_json(dataclasses.replace(of, site=None), steady)
    gpus = reading.plan.gpus + of.plan.gpus
    powers = reading.plan.gpus * float(figures.power), summary["avg_power_w"]
    power = sum(powers)
    requests = summary["request_throughput_per_s"]
    most = [float(x) for x in figures.most]
    waiting = float(figures.waiting) + (summary["waiting_requests"] or 0.0)
    sd = spread(prefill, decode, summary["ttft_s"]["mean"])
    limited = summary["limited_by"]
    if of.load.rate is None and most[0] < most[1] and requests > 0.95 * most[0]:
        limited = "prefill"
    token = power / summary["output_token_throughput_per_s"]
    whole = summary | {
        "num_gpus": gpus,
        "schedule": "apart",
        "saturation_request_rate_per_s": min(most),
        "utilization": requests / min(most),
        "limited_by": limited,
        "waiting_requests": waiting,
        "avg_power_w": power,
        "avg_power_per_gpu_w": power / gpus,
        "energy_j_per_output_token": token,
        "energy_j_per_token": power / summary["total_token_throughput_per_s"],
        "energy_j_per_request": power / requests,
        "energy_j_per_output_token_p5_p95": result.interval(token, sd["energy"]),
        "tpot_s_p5_p95": summary["tpot_s"]
        and result.interval(summary["tpot_s"]["mean"], sd["tpot"]),
        "ttft_s_p5_p95": result.interval(summary["ttft_s"]["mean"], sd["ttft"]),
        "grade": least_grade([summary["grade"], _GRADE]),
        "assumed": dict(assumed),
        "pools": {
            "prefill": _pool(reading, figures.load, figures.clock, powers[0]),
            "decode": _pool(of, requests / most[1], steady.clock, powers[1]),
        },
        "kv_transfer_s": transfer.time,
        "kv_transfer_j": transfer.energy,
    }
    busy = float(figures.load)
    idle = Idle(max(1 - busy, 0.0), float(figures.rest))
    idles = idle, Idle(float(steady.empty), float(steady.rest))
    return whole | _wall((reading, of), whole, powers, idles, sd)


def _pool(of: Any, load: Any, clock: Any, power: float) -> dict[str, Any]:
    return {
        "gpu": of.card.name,
        "num_gpus": of.plan.gpus,
        "workers": of.replicas,
        "tp": of.plan.tp,
        "sm_clock_mhz": float(clock) / MHz,
        "utilization": float(load),
        "avg_power_w": power,
    }


def spread(prefill: Side, decode: Side, ttft: float) -> dict[str, float]:
    """Standard deviations of ln of energy and latencies: those of both pools' engines,
    and beside them those of a forecast, since next to nothing was measured of pools;
    of the first token (s) also that of the set-up between them."""
    rows = [
        spread_of(x.engine_name, x.card, x.file.engines, hard)[1]
        for x, hard in (
            *((side.deployment, False) for side in (prefill, decode)),
            (decode.deployment, True),  # a forecast
        )
    ]
    sd = {
        name: math.hypot(max(x[name] for x in rows[:2]), rows[2][name])
        for name in rows[0]
    }
    return sd | {"ttft": math.hypot(sd["ttft"], min(_SETUP_SD / ttft, 1.0))}


_NAMES: Final = ("node_power_w", "wall_power_w", "site_power_w")
_TOKENS: Final = (
    "wall_energy_j_per_output_token", "wall_energy_j_per_token",
    "wall_energy_j_per_request", "carbon_g_per_request", "cost_per_request", "sci_g",
    "site_energy_kwh_per_day", "carbon_g_per_day", "cost_per_day",
)  # fmt: skip
_INTERVALS: Final = (
    "wall_power_w_p5_p95",
    "wall_energy_j_per_output_token_p5_p95",
)


def _wall(
    pools: tuple[Any, Any],
    whole: Mapping[str, Any],
    powers: tuple[float, float],
    idles: tuple[Idle, Idle],
    sd: Mapping[str, float],
) -> dict[str, Any]:
    """Keys of the wall, each pool on nodes of its own: sums over both; intervals add
    up as those of errors that both share."""
    if pools[0].site is None:
        return {}
    first, second = (
        wall_figures(of, {**whole, "avg_power_w": power}, idle, sd)
        for of, power, idle in zip(pools, powers, idles, strict=True)
    )
    names = dict.fromkeys(x["node"]["name"] for x in (first, second))
    sums = {
        key: None if first[key] is None or second[key] is None
        else first[key] + second[key]
        for key in (*_NAMES, *_TOKENS)
    }  # fmt: skip
    return {
        "node": {
            "name": " + ".join(names),
            "gpus": second["node"]["gpus"],
            "nodes": first["node"]["nodes"] + second["node"]["nodes"],
            "grade": least_grade([x["node"]["grade"] for x in (first, second)]),
        },
        **sums,
        **{
            key: [x + y for x, y in zip(first[key], second[key], strict=True)]
            for key in _INTERVALS
        },
        "wall_energy_j_by_part": {
            name: value + second["wall_energy_j_by_part"][name]
            for name, value in first["wall_energy_j_by_part"].items()
        },
    }
