"""A server at the wall: power of its nodes, energy of a token and of a request."""

import math
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import numpy as np

from ..nodes import spread_interval
from ..units import kWh
from ._deployment import Deployment

_DAY: Final = 86400.0  # s
WALL: Final = (
    "node", "node_power_w", "wall_power_w", "wall_power_w_p5_p95", "site_power_w",
    "wall_energy_j_per_output_token", "wall_energy_j_per_output_token_p5_p95",
    "wall_energy_j_per_token", "wall_energy_j_per_request", "wall_energy_j_by_part",
    "carbon_g_per_request", "cost_per_request", "site_energy_kwh_per_day",
    "carbon_g_per_day", "cost_per_day", "sci_g",
)  # fmt: skip
"""Keys of `wall_figures`."""


class Idle(NamedTuple):
    """The time without a request: its share, and W of a GPU meanwhile."""

    share: float
    power: float


def wall_figures(
    deployment: Deployment,
    summary: Mapping[str, Any],
    idle: Idle | None,
    spread: Mapping[str, float],
) -> dict[str, Any]:
    """Keys of the wall beside those of the boards in `summary`; none without a node.

    `idle`: times without a request, as far as they are known. `spread`: standard
    deviations of ln of energy and time a token. Parts are those of one request. In an
    open loop the load sets how long a token's share of the host lasts, else the server.
    """
    site, gpus = deployment.site, deployment.plan.gpus
    if site is None:
        return {}
    power = summary["avg_power_w"] / gpus
    share, waiting = idle or Idle(0.0, power)
    running = (power - share * waiting) / (1 - share)
    busy = site.energies(np.array([1 - share]), np.array([running]), gpus)
    rest = site.energies(np.array([share]), np.array([waiting]), gpus)
    parts = {
        "accelerator": float(busy.boards),
        "host": float(busy.host),
        "idle": float(busy.idle + rest.wall),
    }
    wall = sum(parts.values())
    requests = summary["request_throughput_per_s"]
    energy = spread["energy"]
    time = 0.0 if summary["mode"] == "open" else min(spread["tpot"], energy)
    boards = math.sqrt(energy**2 - time**2)
    spare = float(busy.idle + rest.idle)
    power_sd, energy_sd = site.spreads(power, gpus, spare, time, boards, energy)
    token = wall / summary["output_token_throughput_per_s"]
    of_site = site.pue * wall / requests
    nodes = site.node.count(gpus, site.whole)
    day = _DAY * site.pue * wall / kWh
    return {
        "node": site.about(gpus, summary["grade"]),
        "node_power_w": float(busy.dc + rest.dc),
        "wall_power_w": wall,
        "wall_power_w_p5_p95": spread_interval(wall, power_sd),
        "site_power_w": site.pue * wall,
        "wall_energy_j_per_output_token": token,
        "wall_energy_j_per_output_token_p5_p95": spread_interval(token, energy_sd),
        "wall_energy_j_per_token": wall / summary["total_token_throughput_per_s"],
        "wall_energy_j_per_request": wall / requests,
        "wall_energy_j_by_part": {
            **{name: value / requests for name, value in parts.items()},
            "overhead": (site.pue - 1) * wall / requests,
        },
        "carbon_g_per_request": None
        if site.carbon is None
        else site.carbon * of_site / kWh,
        "cost_per_request": None
        if site.price is None
        else site.price * of_site / (1e3 * kWh),
        "site_energy_kwh_per_day": day,
        "carbon_g_per_day": None if site.carbon is None else site.carbon * day,
        "cost_per_day": None if site.price is None else site.price * day / 1e3,
        "sci_g": site.sci(of_site, nodes / requests),
    }
