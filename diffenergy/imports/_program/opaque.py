"""Steps that no rule knows: linear algebra, collectives, kernels of a user."""

import math
from collections.abc import Mapping
from typing import Final

from .._rows.operators import Row
from .._rows.types import carrier
from .flat import Step
from .moving import bytes_of

_COLLECTIVES: Final = {
    "psum": "all_reduce",
    "psum2": "all_reduce",
    "psum_invariant": "all_reduce",
    "unreduced_psum": "all_reduce",
    "pmax": "all_reduce",
    "pmin": "all_reduce",
    "all_gather": "all_gather",
    "all_gather_invariant": "all_gather",
    "all_gather_reduced": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "psum_scatter": "reduce_scatter",
    "unreduced_reduce_scatter": "reduce_scatter",
    "all_to_all": "all_to_all",
    "ragged_all_to_all": "all_to_all",
    "ppermute": "send_recv",
    "psend": "send_recv",
    "pbroadcast": "broadcast",
}
_ALGEBRA: Final[Mapping[str, float]] = {
    "cholesky": 1 / 3,
    "lu": 2 / 3,
    "qr": 4 / 3,
    "geqrf": 4 / 3,
    "householder_product": 4 / 3,
    "eigh": 9.0,
    "eig": 25.0,
    "svd": 22.0,
    "triangular_solve": 1.0,
    "tridiagonal_solve": 0.0,
    "schur": 25.0,
}
"""FLOP / n^3 (Golub and Van Loan, Matrix Computations, 4th ed., tables 8.3.1, 8.6.1 and
sections 3.2, 4.2, 5.2)."""
SILENT: Final[Mapping[str, str]] = {
    **dict.fromkeys(("create_token", "after_all"), "orders other steps"),
    **dict.fromkeys(("debug_callback", "debug_print"), "runs on the host"),
    **dict.fromkeys(("empty", "empty2", "platform_index"), "computes nothing"),
}
"""Primitives that no GPU runs -> why."""


def opaque_row(step: Step, notes: dict[str, None]) -> Row | None:
    """Row of such a step: FLOP and bytes where they are known, else bytes alone, with a
    note."""
    name = step.name
    if name in SILENT:
        return None
    if name.removesuffix("_start") in _COLLECTIVES:
        return _collective(step, notes)
    moved = bytes_of([*step.inputs, *step.outputs])
    dtype = carrier((*step.outputs, *step.inputs)[0].dtype) if moved else "fp32"
    if name == "fft":
        size, last = step.outputs[0].size, max(step.outputs[0].shape[-1:], default=2)
        flop = 5.0 * size * math.log2(max(last, 2))
        return _custom(name, flop, moved, "fp32")
    if name in _ALGEBRA:
        shape = step.inputs[0].shape
        rows, cols = (*shape[-2:], 1, 1)[:2]
        many = step.inputs[0].size / max(rows * cols, 1)
        flop = _ALGEBRA[name] * many * rows * cols * min(rows, cols)
        notes[f"`{name}` is priced by its FLOP and bytes alone"] = None
        return _custom(name, flop, moved, "fp32")
    cost = step.params.get("cost_estimate")
    if cost is not None:
        flop, size = float(cost.flops), float(cost.bytes_accessed)
        notes[f"`{name}` is priced by the FLOP and bytes that it states"] = None
        return _custom(name, flop, size or moved, dtype)
    runs = f" ({step.count:g} runs)" if step.count > 1 else ""
    notes[
        f"`{name}`{runs} is opaque: priced by the bytes of its arguments and results"
    ] = None
    return _custom(name, 0.0, moved, dtype)


def _custom(name: str, flop: float, size: float, dtype: str) -> Row | None:
    if flop + size <= 0:
        return None
    return {"op": "custom", "fn": name, "flop": flop, "bytes": size, "dtype": dtype}


def _collective(step: Step, notes: dict[str, None]) -> Row | None:
    """A collective over named axes of a mesh; None where it has one GPU."""
    named = step.params.get("axes", step.params.get("axis_name", ()))
    axes = [x for x in (named if isinstance(named, tuple) else (named,)) if x != ()]
    groups = step.params.get("axis_index_groups")
    if groups:
        ranks = len(groups[0])
    elif all(isinstance(x, int) or x in step.mesh for x in axes):
        ranks = math.prod(step.mesh.get(x, 1) for x in axes)
    else:
        notes[
            f"`{step.name}` is left out: the program does not say how many GPUs take "
            "part"
        ] = None
        return None
    if ranks < 2:
        return None
    kind = _COLLECTIVES[step.name.removesuffix("_start")]
    parts = step.inputs[:1] if step.name.startswith("ragged") else step.inputs
    size = bytes_of(parts) * (ranks if kind == "all_gather" else 1)
    return {
        "op": "collective",
        "collective": kind,
        "bytes": max(int(size), 1),
        "num_gpus": ranks,
        "dtype": carrier(step.inputs[0].dtype),
    }
