"""Mixture of experts: sorting, two grouped GEMM, activation, combination, with a token
distribution over experts (`_routing`).

Triton's fused experts, five launches a layer, with R = tokens x top-k rows (on this
rank or not), x = tokens x hidden, inner = inter_size/moe_tp_size and q8 = 1 for types
below 16 bits, else 0. Of a row that is `dispatched` R are the rows that were sent to
this rank, x = R hidden, and experts below are its own:

| launch | work |
|---|---|
| sorting, quantisation of the input | 3 q8 x B; pays the launch and what is paid once |
| gate-and-up GEMM | [n_e, hidden] x [hidden, 2 inner] per expert e |
| .. not gated (`gated` false) | [n_e, hidden] x [hidden, inner] |
| activation, quantisation of its result | (10 + 3 q8) R inner B |
| .. an element | 8 lane instructions, 1 special function |
| .. not gated | 2 B and 2 instructions less |
| down GEMM | [n_e, inner] x [inner, hidden] |
| sum over the top-k rows | 4 R hidden + 4 x B |
| .. an element of R hidden | 2 lane instructions |

Fitted by this project on the public AIConfigurator MoE tables (H200).
"""

from typing import Any, Final

import numpy as np

from ...corrections import Corrections
from ...dtypes import BYTES, DTYPES, stored_bytes
from ...hardware import GpuSpec
from ...physics import Demand
from .._launch import Context, Fields, Host, Launches, as_floats, with_candidates
from .._ops import Field, Op, Row, TraceClass, weight_bytes
from . import _routing
from ._experts import Experts, experts_demand
from ._rows import Rows, rows_demand


def _wrong(kernel: Row) -> str:
    """Why a token cannot have its experts."""
    if kernel["topk"] <= kernel["num_experts"]:
        return ""
    return (
        f"`topk` is {kernel['topk']}; allowed is at most `num_experts` = "
        f"{kernel['num_experts']}"
    )


def _flop(k: Row) -> float:
    matrices = 3 if k["gated"] else 2
    rows = k["num_tokens"] * k["topk"]
    return 2.0 * matrices * rows * k["hidden_size"] * k["inter_size"]


def _activation_bytes(k: Row) -> float:
    """Rows of every choice: dispatched, gate and up, their result."""
    h, inner = k["hidden_size"], k["inter_size"] / k["moe_tp_size"]
    sides = 2 if k["gated"] else 1
    widest = max(h + sides * inner, (sides + 1) * inner)
    choices = k["topk"] / k["moe_ep_size"]  # of the choices of all tokens
    return k["num_tokens"] * (2 * h + choices * widest) * stored_bytes(k["dtype"])


OPS: Final = (
    Op(
        "moe",
        (
            Field("num_tokens"),
            Field("hidden_size"),
            Field("inter_size"),
            Field("topk"),
            Field("num_experts"),
            Field("moe_tp_size", default=1.0),
            Field("moe_ep_size", default=1.0, divides=("num_experts",)),
            Field("distribution", "text", "balanced", choices=_routing.DISTRIBUTIONS),
            Field("gated", "bool", True),
            Field("dispatched", "bool", False, quiet=True),
            Field("dtype", "dtype"),
        ),
        named=("num_tokens", "hidden_size", "inter_size", "num_experts", "topk"),
        products=True,
        wrong=_wrong,
        part="experts",
        model_flop=_flop,
        activation_bytes=_activation_bytes,
    ),
)
TRACE: Final = TraceClass(
    "moe",
    {40: r"moe|mo_e|bmm_\w*e2m1|permute_(?:rows|tokens|copy)|topk_?gating|expert"},
    shares=(0.3, 0.1, 0.5, 0.5),
    matrix=True,
)

_BLOCKS: Final = {"mxfp4": 32, "mxfp8": 32, "nvfp4": 16}
"""Elements that share a scale."""
_SPARSE: Final = 4
"""Where this many times the rows are no more than the experts, and all experts are
here, every row gets a tile of its own and nothing is sorted (vLLM fused_moe.py)."""


def lower(op: str, fields: Fields, context: Context) -> list[Launches]:
    """Sorting, gate and up together, activation, down, sum over the top-k rows; not
    gated: up alone, and an activation that has no product."""
    f = fields
    tokens, weight = _loads(f)
    # ranks that see the same tokens have rows for all of their choices (measured:
    # vLLM's fused op), those that are sent theirs have no others
    sent, here = as_floats(f["dispatched"]) > 0, (weight * tokens).sum(1)
    rows = np.where(sent, here, f["num_tokens"] * f["topk"])
    hidden = np.where(sent, here, f["num_tokens"]) * f["hidden_size"]
    experts = f["num_experts"] / np.where(sent, f["moe_ep_size"], 1.0)
    up, down = _products(f, context, tokens, weight, rows, experts)
    before, between, after = _over_rows(f, rows, hidden, experts)
    return [before, up, between, down, after]


def _loads(f: Fields) -> tuple[np.ndarray, np.ndarray]:
    """(tokens, experts) of the load bins of each row. Raises `ValueError` for ranks and
    choices that the experts do not allow."""
    names = ("num_tokens", "num_experts", "topk", "moe_ep_size")
    whole = [f[name].astype(int).tolist() for name in names]
    for experts, ranks, topk in zip(whole[1], whole[3], whole[2], strict=True):
        if experts % ranks:
            raise ValueError(
                f"`moe_ep_size` is {ranks}; it must divide `num_experts` = {experts}."
            )
        if topk > experts:
            raise ValueError(
                f"`topk` is {topk}; at most `num_experts` = {experts} are allowed."
            )
    loads = [
        _routing.loads(*numbers, str(name))
        for *numbers, name in zip(*whole, f["distribution"], strict=True)
    ]
    return np.array([load for load, _ in loads]), np.array([w for _, w in loads])


def _inner(f: Fields) -> np.ndarray:
    """Features of an expert's inner layer on a rank, in whole blocks of scales of
    narrow weights (MX: 32 elements): engines pad them. A trace of gpt-oss-120b on eight
    ranks has 384 of 2880 / 8 = 360."""
    inner = f["inter_size"] / f["moe_tp_size"]
    names = zip(f["weight_dtype"], f["dtype"], strict=True)
    blocks = np.array([_BLOCKS.get(str(x) or DTYPES[y], 1) for x, y in names])
    return np.where(blocks > 1, np.ceil(inner / blocks) * blocks, inner)


def _products(
    f: Fields,
    context: Context,
    tokens: np.ndarray,
    weight: np.ndarray,
    rows: np.ndarray,
    experts: np.ndarray,
) -> tuple[Launches, Launches]:
    """The grouped GEMM up (with the gate) and down."""
    sides, stored = 1 + as_floats(f["gated"]), weight_bytes(f)
    inner = _inner(f)
    shared: dict[str, Any] = {
        name: f[name] for name in ("dtype", "zero_share", "tile_m", "tile_n")
    }
    shared |= {
        "stored": stored,
        "tokens": tokens,
        "weight": weight,
        "all_rows": rows,
        "experts": experts,
        "distance": context.pass_bytes,
    }
    up = shared | {"n": sides * inner, "k": f["hidden_size"]}
    down = shared | {"n": f["hidden_size"], "k": inner}
    touched = weight.sum(1) * f["hidden_size"] * inner * stored
    return (
        Launches(Experts, up, touched * sides, host="none"),
        Launches(Experts, down, touched, host="none"),
    )


def _over_rows(
    f: Fields, rows: np.ndarray, hidden: np.ndarray, experts: np.ndarray
) -> tuple[Launches, Launches, Launches]:
    """Before the products, between them, and after; `hidden`: elements of the input."""

    def launches(read: np.ndarray, write: np.ndarray, host: Host, **others: np.ndarray):
        names = ("quantised", "sfu", "issue", "first", "sorts", "sorted", "experts")
        columns = dict.fromkeys(names, np.zeros_like(rows)) | others
        columns |= {"dtype": f["dtype"], "zero_share": f["zero_share"]}
        columns |= {"read": read, "write": write}
        return Launches(Rows, columns, read + write, host=host)

    quantises = np.where(np.asarray(BYTES)[f["dtype"]] < 2, 1.0, 0.0)
    gated, inner = as_floats(f["gated"]), _inner(f)
    few = (_SPARSE * rows <= f["num_experts"]) & (f["moe_ep_size"] == 1)
    sorting = launches(  # sorting by expert, quantisation of the input
        2 * hidden * quantises,
        hidden * quantises,
        "matrix",
        quantised=3 * hidden * quantises,
        first=np.ones_like(rows),
        sorts=np.where(few, 0.0, 1.0),
        sorted=rows,
        experts=experts,
    )
    activation = launches(  # and the quantisation of its result
        (4 + 2 * gated + 2 * quantises) * rows * inner,
        (4 + quantises) * rows * inner,
        "none",
        quantised=3 * rows * inner * quantises,
        issue=(6 + 2 * gated) * rows * inner,  # a load and a product less
        sfu=rows * inner,
    )
    combination = launches(  # sum over the choices of a token
        4 * rows * f["hidden_size"],
        4 * hidden,
        "none",
        issue=2 * rows * f["hidden_size"],
    )
    return sorting, activation, combination


def demand(shape: Experts | Rows, gpu: GpuSpec, c: Corrections) -> Demand:
    """Demand of a grouped GEMM or of a kernel over the rows."""
    if isinstance(shape, Rows):
        return rows_demand(with_candidates(shape), gpu, c)
    return experts_demand(shape, gpu, c)
