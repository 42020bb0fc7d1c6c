"""Schedules by integer search: whole chunks on links in epochs, with copy.

The formulation of TE-CCL (SIGCOMM 2024, section 3), on the epochs of `EpochModel`.
F[c, l, k] = 1 if block c enters link l in epoch k; B[c, n, k] = 1 if node n, which
stores, can send c from epoch k on:

- B[c, n, k] = B[c, n, k-1] + sum over links l into n of F[c, l, k - hop_l];
- F[c, l, k] <= B[c, n, k] out of n, and B[c, m, horizon] = 1 where m wants c;
- out of a switch with copy F[c, l, k] <= sum over links m into it of
  F[c, m, k - hop_m]; without copy the sum of F over links out is at most that;
- sum over blocks and any `window_l` epochs in a row of F[c, l, k] <= `most_l`.

A block comes to a node at most once, which loses no schedule. Only what `reach` leaves
becomes a variable.
"""

import dataclasses
from typing import Any, Final

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import sparse

from ..search import USUAL, LinearModel, Solving, solve
from ._demand import Demand
from ._epoch_schedule import (
    Picked,
    Reach,
    SolverResult,
    distances,
    epoch_schedule,
    least_horizon,
    reach,
)
from ._routes import EpochModel
from ._topology import Topology

# --- Rows of integer models: chunks on links in epochs (equations in `milp`).


@dataclasses.dataclass(frozen=True)
class IntegerRows:
    """low <= matrix @ x <= high, and the column of x that stands for each F and B; -1
    where there is none."""

    matrix: sparse.csr_array
    low: Float[np.ndarray, " row"]
    high: Float[np.ndarray, " row"]
    send: Int[np.ndarray, "block link epoch"]
    hold: Int[np.ndarray, "block node epoch"]
    count: int  # of columns

    @property
    def sends(self) -> Picked:
        """Block, link and epoch of every possible send."""
        block, link, epoch = np.nonzero(self.send >= 0)
        return block, link, epoch

    def model(
        self,
        low: Float[np.ndarray, " column"],
        high: Float[np.ndarray, " column"],
        cost: Float[np.ndarray, " column"],
    ) -> LinearModel:
        """The rows with limits and costs of their columns, all whole."""
        return LinearModel(self.matrix, self.low, self.high, low, high, cost, True)

    def chosen(self, values: Float[np.ndarray, " column"]) -> Picked:
        """Block, link and epoch of the sends in a solution."""
        block, link, epoch = self.sends
        sent = values[self.send[block, link, epoch]] > 0.5
        return block[sent], link[sent], epoch[sent]


def integer_rows(
    topology: Topology,
    demand: Demand,
    model: EpochModel,
    reached: Reach,
) -> IntegerRows:
    """All rules of the epochs for the sends that `reached` leaves: variables for these,
    and for the places that blocks wait at."""
    away = np.arange(len(topology.nodes)) != demand.source[:, None]
    waits = topology.stores & away & (reached.earliest <= reached.latest)
    waiting = waits[:, :, None] & (reached.epochs >= reached.earliest[:, :, None])
    send, hold = _numbered(reached.open), _numbered(waiting)
    sends = int(send.max(initial=-1)) + 1
    hold[hold >= 0] += sends
    built = _Rows(topology, demand, model, send, hold)
    built.arrive()
    built.hold_before_sending()
    built.pass_on()
    built.fit()
    return built.done(max(sends, int(hold.max(initial=-1)) + 1))


def _numbered(
    there: Bool[np.ndarray, "block at epoch"],
) -> Int[np.ndarray, "block at epoch"]:
    """A number for each cell that is there, else -1."""
    number = np.full(there.shape, -1)
    number[there] = np.arange(np.count_nonzero(there))
    return number


class _Rows:
    """Rows as coordinates, in growing groups. A place is a block at a node in an
    epoch, counted through `hold`."""

    def __init__(
        self,
        topology: Topology,
        demand: Demand,
        model: EpochModel,
        send: Int[np.ndarray, "block link epoch"],
        hold: Int[np.ndarray, "block node epoch"],
    ) -> None:
        self.topology, self.demand, self.model = topology, demand, model
        self.send, self.hold = send, hold
        self.block, self.link, self.epoch = np.nonzero(send >= 0)
        self.column = send[self.block, self.link, self.epoch]
        self.node = topology.sources[self.link]
        _, nodes, span = hold.shape
        self.begin = (self.block * nodes + self.node) * span + self.epoch
        target = topology.targets[self.link]
        arrival = self.epoch + model.hop[self.link]
        self.end = (self.block * nodes + target) * span + arrival
        self.cells: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        self.low: list[np.ndarray] = []
        self.high: list[np.ndarray] = []
        self.count = 0

    def add(
        self,
        cells: list[tuple[np.ndarray, np.ndarray, Any]],
        low: float,
        high: np.ndarray,
    ) -> None:
        """A group of rows from cells (row in the group, column, value)."""
        for row, column, value in cells:
            self.cells.append((row + self.count, column, np.full(len(row), value)))
        self.low.append(np.full(len(high), low))
        self.high.append(high.astype(float))
        self.count += len(high)

    def done(self, columns: int) -> IntegerRows:
        row, column, value = map(np.concatenate, zip(*self.cells, strict=True))
        cells = sparse.coo_array((value, (row, column)), (self.count, columns))
        low, high = np.concatenate(self.low), np.concatenate(self.high)
        matrix = sparse.csr_array(cells)
        return IntegerRows(matrix, low, high, self.send, self.hold, columns)

    def arrive(self) -> None:
        """B[c, n, k] - B[c, n, k-1] - sum of F[c, l, k - hop_l] = 0."""
        mine = self.hold >= 0
        before = np.roll(self.hold, 1, axis=2)
        before[:, :, 0] = -1
        column, earlier = self.hold[mine], before[mine]
        later = np.flatnonzero(earlier >= 0)
        number = np.full(self.hold.shape, -1)
        number[mine] = np.arange(len(column))
        row = number.reshape(-1)[self.end]
        come = row >= 0
        cells = [
            (np.arange(len(column)), column, 1.0),
            (later, earlier[later], -1.0),
            (row[come], self.column[come], -1.0),
        ]
        self.add(cells, 0.0, np.zeros(len(column)))

    def hold_before_sending(self) -> None:
        """F[c, l, k] - B[c, n, k] <= 0 out of nodes that store, but the block's own."""
        home = self.node == self.demand.source[self.block]
        ask = self.topology.stores[self.node] & ~home
        have, row = self.hold.reshape(-1)[self.begin[ask]], np.arange(ask.sum())
        cells = [(row, self.column[ask], 1.0), (row, have, -1.0)]
        self.add(cells, -np.inf, np.zeros(len(row)))

    def pass_on(self) -> None:
        """What leaves a switch came in at that moment: once for each link out with
        copy, once in all without."""
        shape = self.hold.size, int(self.column.max(initial=-1)) + 1
        cells = np.ones(len(self.end)), (self.end, self.column)
        comes = sparse.csr_array(sparse.coo_array(cells, shape))
        relay = ~self.topology.stores[self.node]
        copies = self.topology.copies[self.node]
        many = relay & copies
        self._balance(comes, self.begin[many], np.arange(many.sum()), many)
        once = relay & ~copies
        self._balance(comes, *np.unique(self.begin[once], return_inverse=True), once)

    def _balance(
        self,
        comes: sparse.csr_array,
        places: Int[np.ndarray, " row"],
        row: Int[np.ndarray, " out"],
        out: Bool[np.ndarray, " send"],
    ) -> None:
        """Rows of places: the F that are `out`, less all that come in then, <= 0."""
        into: Any = comes[places].tocoo()
        cells = [
            (row.reshape(-1), self.column[out], 1.0),
            (into.row, into.col, -into.data),
        ]
        self.add(cells, -np.inf, np.zeros(len(places)))

    def fit(self) -> None:
        """Blocks on a link in any window of epochs <= what it carries."""
        span = self.hold.shape[2]
        link, epoch, column = self.link, self.epoch, self.column
        window = np.minimum(self.model.window[link], span)
        # A cell for each window that a send is in, by the epochs from it to their end.
        cell = np.repeat(np.arange(len(window)), window)
        later = np.arange(len(cell)) - (np.cumsum(window) - window)[cell]
        end = epoch[cell] + later
        # Windows that begin before epoch 0 or end after the last are parts of others.
        inside = (end >= window[cell] - 1) & (end < span)
        cell, end = cell[inside], end[inside]
        windows, row, load = np.unique(
            link[cell] * span + end, return_inverse=True, return_counts=True
        )
        most = self.model.most[windows // span]
        tight = load > most
        number, row = np.cumsum(tight) - 1, row.reshape(-1)
        inside = tight[row]
        cells = [(number[row[inside]], column[cell[inside]], 1.0)]
        self.add(cells, -np.inf, most[tight])


# --- Schedules by integer search


def integer_model(
    topology: Topology,
    demand: Demand,
    model: EpochModel,
    horizon: int,
    *,
    link_cost: Float[np.ndarray, " link"] | None = None,
) -> tuple[LinearModel, IntegerRows]:
    """The rows above as one sparse matrix, and what its columns stand for; `link_cost`:
    of every F (None: nothing costs, any answer will do)."""
    reached = reach(topology, demand.source, demand.wanted, model.hop, horizon)
    rows = integer_rows(topology, demand, model, reached)
    low = np.zeros(rows.count)
    met = rows.hold[:, :, -1][demand.wanted]
    low[met[met >= 0]] = 1
    cost = np.zeros(rows.count)
    if link_cost is not None:
        np.add.at(cost, rows.send[rows.sends], link_cost[rows.sends[1]])
    return rows.model(low, np.ones(rows.count), cost), rows


def milp(
    topology: Topology,
    demand: Demand,
    model: EpochModel,
    horizon: int,
    how: Solving = USUAL,
    *,
    link_cost: Float[np.ndarray, " link"] | None = None,
) -> SolverResult:
    """A schedule within `horizon` epochs.

    `link_cost`: the least sum of it over sends is looked for (None: any schedule at
    all).

    Raises:
        ValueError: blocks of unlike size.
    """
    check_epochs(topology, demand, model)
    if horizon < least_horizon(topology, demand, model.hop):
        return SolverResult(None, "infeasible", horizon, 0.0)
    built, rows = integer_model(topology, demand, model, horizon, link_cost=link_cost)
    answer = solve(built, how)
    if answer.values is None:
        too_short = horizon if answer.status == "infeasible" else 0
        ended = answer.seconds, None, answer.bound, answer.work
        return SolverResult(None, answer.status, too_short, *ended)
    schedule = epoch_schedule(topology, demand, model, rows.chosen(answer.values))
    ended = answer.seconds, answer.incumbent, answer.bound, answer.work
    return SolverResult(schedule, answer.status, 0, *ended)


def least_finish(
    topology: Topology,
    demand: Demand,
    model: EpochModel,
    how: Solving = USUAL,
    *,
    low: int = 0,
    high: int | None = None,
) -> SolverResult:
    """The schedule of fewest epochs: horizons from a bound `low` on, one by one, up to
    `high` and within the limits in all."""
    horizon = max(low, least_horizon(topology, demand, model.hop))
    spent, work, infeasible = 0.0, 0.0, 0
    while high is None or horizon <= high:
        result = milp(topology, demand, model, horizon, how.less(spent, work))
        spent, work = spent + result.seconds, work + result.work
        if result.status != "infeasible":
            return dataclasses.replace(
                result, infeasible_at=infeasible, seconds=spent, work=work
            )
        infeasible, horizon = horizon, horizon + 1
    return SolverResult(None, "infeasible", infeasible, spent, work=work)


def check_epochs(topology: Topology, demand: Demand, model: EpochModel) -> None:
    """Raise ValueError for what has no model in whole chunks and epochs."""
    if not np.allclose(demand.size, model.chunk, rtol=1e-9):
        raise ValueError(
            f"`demand` has blocks of {demand.size.min():g} to {demand.size.max():g} B "
            f"where the epochs are for {model.chunk:g} B; split blocks into chunks of "
            "one size, or take method lp or greedy."
        )
    between = ~topology.stores[topology.sources] & ~topology.stores[topology.targets]
    if (model.hop[between] == 0).any():
        raise ValueError(
            f"`{topology.name}` has links between switches that take no epoch; leave "
            "`free_exit` off."
        )


# --- Schedules by time partitioning: one integer search for each stretch of epochs.
#
# The rounds of TE-CCL (SIGCOMM 2024, section 5, after A*): a round decides the sends of
# its epochs, all earlier ones stand. What is in flight at the end of a round is carried
# over, because the next model holds the earlier sends as fixed variables. A round makes
# as much as it can of
#
# - `_WISH` for every epoch that a wanted block is there, and
# - a potential for where blocks end: at a node n, in flight to it included, the sum
#   over the GPUs m that still want it of `_NEAR` / (1 + epochs from n to m over the
#   longest hop).


_WISH: Final = 1000.0
_NEAR: Final = 100.0
_ROUND_GAP: Final = 0.01
"""Relative gap at which a round is good enough."""
_ROUND_WORK: Final = 20.0
"""s of an idle core that a round may take."""


def rounds(
    topology: Topology,
    demand: Demand,
    model: EpochModel,
    how: Solving = USUAL,
    *,
    length: int | None = None,
    high: int | None = None,
) -> SolverResult:
    """A schedule made `length` epochs at a time (by default twice the longest hop),
    each round within 20 s of an idle core; no proof of how good it is.

    `high`: epochs after which to give up.

    Raises:
        ValueError: blocks of unlike size.
    """
    check_epochs(topology, demand, model)
    longest = int(model.hop.max())
    length = length or 2 * longest
    away = distances(topology, model.hop) / longest
    none = np.empty(0, int)
    picked: Picked = none, none, none
    spent, work, done, idle = 0.0, 0.0, 0, 0
    while _unmet(topology, demand, picked).any():
        done += length
        out = spent >= how.time_limit or work >= how.work
        if out or (high is not None and done - length >= high):
            status = "unknown" if out else "infeasible"
            return SolverResult(None, status, 0, spent, work=work)
        reached = _open_sends(topology, demand, model, done, longest)
        rows = integer_rows(topology, demand, model, reached)
        low, up = _column_limits(rows, picked, done - length)
        missing = _unmet(topology, demand, picked)
        cost = _round_cost(rows, topology, demand, model, away, missing, done)
        left = how.less(spent, work)
        brief = dataclasses.replace(
            left, work=min(left.work, _ROUND_WORK), gap=_ROUND_GAP
        )
        answer = solve(rows.model(low, up, cost), brief)
        spent, work = spent + answer.seconds, work + answer.work
        if answer.values is None:
            return SolverResult(None, answer.status, 0, spent, work=work)
        before, picked = picked, rows.chosen(answer.values)
        # Rounds without a send wait for what is under way, no longer.
        idle = idle + length if len(picked[0]) == len(before[0]) else 0
        if idle > longest:
            return SolverResult(None, "unknown", 0, spent, work=work)
    schedule = epoch_schedule(topology, demand, model, picked)
    if high is not None and (schedule.epochs or 0) > high:
        return SolverResult(None, "infeasible", 0, spent, work=work)
    return SolverResult(schedule, "feasible", 0, spent, work=work)


def _unmet(
    topology: Topology, demand: Demand, picked: Picked
) -> Bool[np.ndarray, "block node"]:
    """Which wanted blocks no send so far brings."""
    block, link, _ = picked
    missing = demand.wanted.copy()
    missing[block, topology.targets[link]] = False
    return missing


def _open_sends(
    topology: Topology, demand: Demand, model: EpochModel, end: int, longest: int
) -> Reach:
    """Every send that can begin before `end`, wherever it leads; places are counted
    until all of them have arrived."""
    earliest = distances(topology, model.hop)[demand.source]
    first = earliest[:, topology.sources]
    home = topology.targets[None, :] == demand.source[:, None]
    last = np.where(home, -1, np.full_like(first, end - 1))
    horizon = end + longest
    return Reach(horizon, earliest, np.full_like(earliest, horizon), first, last)


def _column_limits(
    rows: IntegerRows, picked: Picked, begin: int
) -> tuple[Float[np.ndarray, " column"], Float[np.ndarray, " column"]]:
    """Limits of the columns: sends before epoch `begin` are as they were."""
    low, up = np.zeros(rows.count), np.ones(rows.count)
    early = rows.send[:, :, :begin]
    up[early[early >= 0]] = 0
    sent = rows.send[picked]
    low[sent] = up[sent] = 1
    return low, up


def _round_cost(
    rows: IntegerRows,
    topology: Topology,
    demand: Demand,
    model: EpochModel,
    away: Float[np.ndarray, "node node"],
    missing: Bool[np.ndarray, "block node"],
    end: int,
) -> Float[np.ndarray, " column"]:
    """-`_WISH` for each epoch that a wanted block is there, less the potential of where
    blocks are at the end; whole numbers."""
    cost = np.zeros(rows.count)
    near = np.round(_NEAR * missing.astype(float) @ (1 / (1 + away)).T)
    last = rows.hold[:, :, -1]
    cost[last[last >= 0]] -= near[last >= 0]
    cost[rows.hold[(rows.hold >= 0) & demand.wanted[:, :, None]]] -= _WISH
    # A block under way into a switch at the end is near whoever the switch leads to.
    block, link, epoch = rows.sends
    target = topology.targets[link]
    late = ~topology.stores[target] & (epoch + model.hop[link] >= end)
    cost[rows.send[rows.sends][late]] -= near[block, target][late]
    return cost
