"""Rows of integer models: chunks on links in epochs (equations in `milp`)."""

import dataclasses

import numpy as np
from jaxtyping import Float, Int
from scipy import sparse

from .._demand.demand import Demand
from .._demand.orbits import Symmetry
from .._machine.epochs import EpochModel
from .._machine.topology import Topology
from .reach import Reach
from .variables import Columns, links_of, number_columns, ragged


@dataclasses.dataclass(frozen=True)
class Rows:
    """low <= matrix @ x <= high, and what the columns of x stand for."""

    matrix: sparse.csr_array
    low: Float[np.ndarray, " row"]
    high: Float[np.ndarray, " row"]
    columns: Columns


def rows(
    topology: Topology,
    demand: Demand,
    model: EpochModel,
    reached: Reach,
    symmetry: Symmetry,
) -> Rows:
    """All rules of the epochs for the sends that `reached` leaves."""
    columns = number_columns(topology, demand, reached, symmetry)
    built = _Rows()
    _arrive(built, columns, topology, model)
    _hold(built, columns, topology, demand)
    _pass_on(built, columns, topology, model, symmetry)
    _fit(built, columns, model, symmetry)
    low, high = np.concatenate(built.low), np.concatenate(built.high)
    return Rows(built.matrix(columns.count), low, high, columns)


class _Rows:
    """Rows as coordinates, in growing groups."""

    def __init__(self) -> None:
        self.cells: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        self.low: list[np.ndarray] = []
        self.high: list[np.ndarray] = []
        self.count = 0

    def add(
        self,
        cells: list[tuple[np.ndarray, np.ndarray, float]],
        low: np.ndarray,
        high: np.ndarray,
    ) -> None:
        """A group of rows from cells (row in the group, column, value)."""
        for row, column, value in cells:
            values = np.full(len(row), value)
            self.cells.append((row + self.count, column, values))
        self.low.append(low.astype(float))
        self.high.append(high.astype(float))
        self.count += len(low)

    def matrix(self, columns: int) -> sparse.csr_array:
        row, column, value = (
            np.concatenate([cell[part] for cell in self.cells]) for part in range(3)
        )
        shape = (self.count, columns)
        return sparse.csr_array(sparse.coo_array((value, (row, column)), shape=shape))


def _arrive(
    rows: _Rows, columns: Columns, topology: Topology, model: EpochModel
) -> None:
    """B[c, n, k] - B[c, n, k-1] - sum of F[c, l, k - hop_l] = 0."""
    block, node = columns.hold_block, columns.hold_node
    earliest = columns.reached.earliest[block, node]
    span = columns.reached.horizon - earliest + 1
    begin = np.cumsum(span) - span
    place, step = ragged(span)
    column = columns.hold_at[block, node][place] + step
    row = begin[place] + step
    later = step > 0
    into, pair = links_of(topology.targets, node)
    which, epoch, send = columns.sends(block[into], pair)
    arrival = epoch + model.hop[pair[which]] - earliest[into[which]]
    cells = [
        (row, column, 1.0),
        (row[later], column[later] - 1, -1.0),
        (begin[into[which]] + arrival, send, -1.0),
    ]
    rows.add(cells, np.zeros(len(row)), np.zeros(len(row)))


def _hold(rows: _Rows, columns: Columns, topology: Topology, demand: Demand) -> None:
    """F[c, l, k] - B[c, n, k] <= 0 out of nodes that store, but for the block's own."""
    node = topology.sources[columns.send_link]
    ask = topology.stores[node] & (node != demand.source[columns.send_block])
    block, link, node = columns.send_block[ask], columns.send_link[ask], node[ask]
    pair, epoch, send = columns.sends(block, link)
    begin = columns.hold_at[block, node] - columns.reached.earliest[block, node]
    row = np.arange(len(send))
    cells = [(row, send, 1.0), (row, begin[pair] + epoch, -1.0)]
    rows.add(cells, np.full(len(row), -np.inf), np.zeros(len(row)))


def _pass_on(
    rows: _Rows,
    columns: Columns,
    topology: Topology,
    model: EpochModel,
    symmetry: Symmetry,
) -> None:
    """What leaves a switch came in at that moment: once for each link out with copy,
    once in all without."""
    node = topology.sources[columns.send_link]
    many = ~topology.stores[node] & topology.copies[node]
    block, link, node = columns.send_block[many], columns.send_link[many], node[many]
    out = (np.arange(len(block)), block, link)
    _balance(rows, columns, topology, model, block, node, out)
    once = ~topology.stores & ~topology.copies
    lead = symmetry.leads(symmetry.places) & once[None, :]
    block, node = np.nonzero(lead)
    owner, link = links_of(topology.sources, node)
    _balance(rows, columns, topology, model, block, node, (owner, block[owner], link))


def _balance(
    rows: _Rows,
    columns: Columns,
    topology: Topology,
    model: EpochModel,
    block: Int[np.ndarray, " group"],
    node: Int[np.ndarray, " group"],
    out: tuple[np.ndarray, np.ndarray, np.ndarray],
) -> None:
    """Rows (group, epoch): F of the pairs `out` (group, block, link) less all F that
    come in to (block, node) then <= 0."""
    span = columns.reached.horizon + 1
    owner, out_block, out_link = out
    which, epoch, send = columns.sends(out_block, out_link)
    row_out = owner[which] * span + epoch
    into, link = links_of(topology.targets, node)
    which, epoch, come = columns.sends(block[into], link)
    row_in = into[which] * span + epoch + model.hop[link[which]]
    asked, row_out = np.unique(row_out, return_inverse=True)
    place = np.searchsorted(asked, row_in)
    kept = place < len(asked)
    kept[kept] = asked[place[kept]] == row_in[kept]
    cells = [(row_out.reshape(-1), send, 1.0), (place[kept], come[kept], -1.0)]
    rows.add(cells, np.full(len(asked), -np.inf), np.zeros(len(asked)))


def _fit(rows: _Rows, columns: Columns, model: EpochModel, symmetry: Symmetry) -> None:
    """Blocks on a link in any window of epochs <= what it carries."""
    span = columns.reached.horizon + 1
    lead = symmetry.leads(symmetry.links)
    block, link = np.nonzero(columns.reached.useful & lead[None, :])
    which, epoch, send = columns.sends(block, link)
    window = np.minimum(model.window[link[which]], span)
    cell, later = ragged(window)
    end = epoch[cell] + later
    # Windows that begin before epoch 0 or end after the last are parts of others.
    kept = (end >= window[cell] - 1) & (end < span)
    cell, end = cell[kept], end[kept]
    row = link[which[cell]] * span + end
    asked, row, load = np.unique(row, return_inverse=True, return_counts=True)
    most = model.most[asked // span]
    tight = load > most if symmetry.size == 1 else np.ones(len(asked), bool)
    number = np.cumsum(tight) - 1
    row = row.reshape(-1)
    kept = tight[row]
    cells = [(number[row[kept]], send[cell[kept]], 1.0)]
    rows.add(cells, np.full(int(tight.sum()), -np.inf), most[tight])
