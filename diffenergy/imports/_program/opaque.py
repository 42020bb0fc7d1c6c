"""Steps that no rule knows: linear algebra, collectives, kernels of a user."""

import math
from collections.abc import Mapping
from typing import Final

from .._rows.operators import Row, attention_row
from .._rows.types import carrier
from .flat import Step, walk
from .moving import bytes_of, is_elementwise, is_reduction
from .products import MATRIX, matrix_flop, product_type

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
    if name.startswith("dot_product_attention"):
        return _cudnn_attention(step, notes)
    cost = step.params.get("cost_estimate")
    if cost is not None:
        flop, size = float(cost.flops), float(cost.bytes_accessed)
        notes[f"`{name}` is priced by the FLOP and bytes that it states"] = None
        return _custom(name, flop, size or moved, dtype)
    if name == "pallas_call":
        row = _pallas(step, moved, notes)
        if row is not None:
            return row
    runs = f" ({step.count:g} runs)" if step.count > 1 else ""
    notes[
        f"`{name}`{runs} is opaque: priced by the bytes of its arguments and results"
    ] = None
    return _custom(name, 0.0, moved, dtype)


def _pallas(step: Step, moved: float, notes: dict[str, None]) -> Row | None:
    """A kernel in Pallas: its body on every point of its grid; bytes are those of its
    blocks, or of the whole arrays where that is less (blocks met again come from L2).
    None where the grid is not known before it runs."""
    grid = step.params["grid_mapping"]
    if not all(isinstance(x, int) for x in grid.grid):
        return None
    body = step.params["jaxpr"]
    points = math.prod(grid.grid)
    program = walk(body, points, matrix_flop)
    notes |= dict.fromkeys(program.notes)
    flop = sum(matrix_flop(x) + _mapped_flop(x) for x in program.steps)
    refs = body.invars[grid.num_index_operands :]
    blocks = [
        (math.prod(ref.aval.shape) * points, math.prod(block.array_aval.shape), ref)
        for block, ref in zip(grid.block_mappings, refs, strict=False)
    ]
    size = sum(min(x, y) * ref.aval.dtype.itemsize for x, y, ref in blocks)
    products = [x for x in program.steps if x.name in MATRIX]
    kinds = {product_type(x, notes) for x in products}
    notes[
        f"`{step.name}` states no cost: priced by its body times its grid, every block "
        "in memory once"
    ] = None
    return _custom(step.name, flop, size or moved, min(kinds, default="fp32"))


def _mapped_flop(step: Step) -> float:
    """FLOP of a map or reduction: one an element."""
    size = 0
    if is_elementwise(step) or is_reduction(step):
        size = max(x.size for x in (*step.inputs, *step.outputs))
    return float(size) * step.count


def _cudnn_attention(step: Step, notes: dict[str, None]) -> Row | None:
    """Attention by cuDNN, forward or backward."""
    q, k, v = (x.shape for x in step.inputs[:3])
    masked = str(step.params.get("mask_type", ""))
    return {
        **attention_row(q, k, v, bool(step.params["layout"]), "_bwd" in step.name),
        "window_size": step.params.get("sliding_window_length") or 0,
        "causal": "CAUSAL" in masked or bool(step.params.get("use_causal_mask")),
        "dtype": product_type(step, notes),
    }


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
