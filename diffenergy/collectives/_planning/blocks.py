"""What `plan` was asked for: blocks and their bytes, said once."""

import os
from typing import Any, Final

from .._demand.demand import Demand
from .._demand.demand_files import read_demand_file, read_matrix_file
from .._demand.demands import collective_name, parse_size
from .._demand.demands import demand as collective_demand
from .._machine.topology import Topology

_ROOTED: Final = ("broadcast", "reduce", "scatter", "gather")


def check_size(size: Any, matrix: Any, demand: Any):
    """Bytes are said once."""
    if matrix is None and demand is None:
        if size is None:
            raise ValueError(
                "`size` is missing; give the output buffer of a GPU, such as 1GB."
            )
    elif size is not None:
        which = "matrix" if matrix is not None else "demand"
        raise ValueError(
            f"`size` is '{size}', but `{which}` says all bytes; leave one out."
        )


def bytes_of(size: Any) -> float | None:
    """B of a number or text; None where another argument says them."""
    if size is None:
        return None
    return parse_size(size) if isinstance(size, str) else float(size)


def blocks_of(
    machine: Topology,
    collective: str | None,
    size: Any,
    chunks: int | None,
    root: int | str | None,
    groups: Any,
    matrix: Any,
    demand: Any,
) -> Demand:
    """The blocks, from whichever argument says them."""
    said = {"collective": collective, "chunks": chunks, "root": root,
            "matrix": matrix, "groups": groups}  # fmt: skip
    if demand is not None:
        _refuse(said, "demand")
        if isinstance(demand, Demand):
            return demand
        return read_demand_file(os.fspath(demand), machine)
    if matrix is not None:
        _refuse({name: said[name] for name in ("root", "groups")}, "matrix")
        if isinstance(matrix, str | os.PathLike):
            matrix = read_matrix_file(os.fspath(matrix))
        kind = collective or "all_to_all"
        return collective_demand(kind, machine, None, chunks or 1, matrix=matrix)
    if collective is None:
        raise ValueError(
            "`collective` is missing; give all_gather, all_to_all, reduce_scatter, "
            "all_reduce, broadcast, reduce, scatter or gather."
        )
    kind = collective_name(collective)
    if root is not None and kind not in _ROOTED:
        raise ValueError(f"`root` is '{root}', but {kind} has none; leave it out.")
    place = 0 if root is None else root
    return collective_demand(
        collective, machine, size, chunks or 1, place, groups=groups
    )


def _refuse(said: dict[str, Any], which: str):
    """Arguments that say what another says already."""
    for name, value in said.items():
        if value is not None:
            raise ValueError(
                f"`{name}` is '{value}', but `{which}` says that; leave one out."
            )
