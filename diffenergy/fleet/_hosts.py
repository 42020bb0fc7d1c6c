"""Servers of pools: W at the wall of their boards and hosts, as lines.

    wall = B sum P + A / n of each GPU

of the boards' mean power P, n boards of a node. The line joins idle boards and boards
at their rated power: exact there, and above the curve between (by 0.1 to 0.6 % at
most), so that a budget that it keeps is kept.
"""

import dataclasses
from typing import Any, Final

import numpy as np
from jaxtyping import Float

from ._spec import Fleet, Pool

OFF: Final = (
    "hosts of parked GPUs are switched off by shares of a node: exact where replicas "
    "fill nodes, else less than the site draws"
)


@dataclasses.dataclass(frozen=True)
class Hosts:
    """Lines of every pool. `slope`: B; `each`: A / n, W of a GPU in use; `parked`: W at
    the wall of a GPU that serves nobody; `boards`: W of its board then; `idle`: W of
    spare servers a GPU in use; `sites`: node and W of an idle board, None without."""

    slope: Float[np.ndarray, " pool"]
    each: Float[np.ndarray, " pool"]
    parked: Float[np.ndarray, " pool"]
    boards: Float[np.ndarray, " pool"]
    idle: Float[np.ndarray, " pool"]
    sites: tuple[tuple[Any, float] | None, ...]

    def __bool__(self) -> bool:
        """Whether any pool has a node."""
        return any(self.sites)

    def shares(
        self, pool: int, board: Float[np.ndarray, " row"]
    ) -> Float[np.ndarray, " row"]:
        """Share of the boards in the power of their servers, at `board` W each."""
        site = self.sites[pool]
        if site is None:
            return np.ones_like(board)
        at = site[0].power(board, site[1])
        return at.boards / at.dc


def hosts_of(fleet: Fleet) -> Hosts:
    """Servers of all pools. Raises `ValueError` in one sentence for a pool whose node
    or GPU is not known."""
    columns, sites = [], []
    for pool in fleet.pools:
        line, site = _line(pool)
        columns.append(line)
        sites.append(site)
    return Hosts(*np.array(columns, float).T, sites=tuple(sites))


def _line(pool: Pool) -> tuple[tuple[float, ...], tuple[Any, float] | None]:
    """B, A / n, parked at the wall and of the board, spare servers (W a GPU); node."""
    if pool.node in (None, "none"):
        for key in ("spare", "hosts"):
            if getattr(pool, key) is not None:
                raise ValueError(
                    f"pool `{pool.name}` has `{key}` and no `node`; give the node or "
                    "leave it out."
                )
        parked = _parked(pool)
        return (1.0, 0.0, parked, parked, 0.0), None
    from ..hardware import idle_power
    from ..nodes import build_node, read_node

    file, card, where = read_node(pool.node, pool.gpu if _is_known(pool.gpu) else None)
    try:
        node = build_node(file, card)
    except ValueError as error:
        raise ValueError(f"{where}{error}") from None
    idle, top = float(idle_power(card.spec, card.spec.sm_clock_min)), card.values["tdp"]
    low, high = node.power(idle, idle).wall, node.power(top, idle).wall
    slope = (high - low) / (node.gpus * (top - idle))
    share = low / node.gpus - slope * idle
    spare = pool.spare or 0.0
    beside = low / node.gpus * spare / (1 - spare)
    off = pool.hosts == "off"
    if off and pool.parked_w:
        raise ValueError(
            f"pool `{pool.name}` has `hosts` off and `parked_w` {pool.parked_w:g}; a "
            "GPU draws nothing in a server that is off: leave `parked_w` out."
        )
    board = 0.0 if off else idle if pool.parked_w is None else pool.parked_w
    parked = 0.0 if off else slope * board + share + beside
    return (slope, share + beside, parked, board, beside), (node, idle)


def _is_known(gpu: str) -> bool:
    """Whether a word names a GPU; pools of tables of points may have any."""
    from ..hardware import read_gpu

    try:
        read_gpu(gpu)
    except ValueError:
        return False
    return True


def _parked(pool: Pool) -> float:
    """W of a GPU that serves nobody: as given, else idle at its least clock."""
    if pool.parked_w is not None:
        return pool.parked_w
    import jax.numpy as jnp

    from ..hardware import idle_power, read_gpu

    try:
        card = read_gpu(pool.gpu)
    except ValueError:
        raise ValueError(
            f"pool `{pool.name}` has no `parked_w`, and its `gpu` '{pool.gpu}' is no "
            "GPU that is known; give parked_w (0: switched off)."
        ) from None
    clock = jnp.asarray(card.values["sm_clock_min"])
    return float(idle_power(card.spec, clock))
