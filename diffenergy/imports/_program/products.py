"""Rows of steps that multiply matrices, and of attention: two products around a
softmax."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from .._rows.operators import Row, convolution_product, output_hw, padded_convolution
from .._rows.types import listing_type
from .flat import Program, Step, Value
from .moving import FREE, bytes_of, is_elementwise, is_reduction

DOT: Final = "dot_general"
RAGGED: Final = "ragged_dot_general"
CONV: Final = "conv_general_dilated"
MATRIX: Final = (DOT, RAGGED, CONV)
_TF32: Final = ("tensorfloat32", "tf32", "high", "fastest")


def dot_sizes(step: Step) -> tuple[int, int, int, int]:
    """(batch, m, n, k) of a `dot_general`."""
    (left, right), (left_batch, right_batch) = step.params["dimension_numbers"]
    a, b = step.inputs[0].shape, step.inputs[1].shape
    batch = math.prod(a[i] for i in left_batch)
    k = math.prod(a[i] for i in left)
    m = math.prod(x for i, x in enumerate(a) if i not in (*left, *left_batch))
    n = math.prod(x for i, x in enumerate(b) if i not in (*right, *right_batch))
    return batch, m, n, k


def matrix_flop(step: Step) -> float:
    """FLOP of a product or convolution, over all its runs; 0 of other steps."""
    row = matrix_row(step, {}) if step.name in MATRIX else None
    return 0.0 if row is None else row_flop(row) * step.count


def row_flop(row: Mapping[str, Any]) -> float:
    """FLOP of one run of a matrix row; attention without a mask's saving."""
    if row["op"] == "gemm":
        return 2.0 * row.get("batch", 1) * row["m"] * row["n"] * row["k"]
    if row["op"] == "conv2d":
        taps = row["kernel_size"] ** 2 * row["in_channels"] // row["groups"]
        return 2.0 * row["images"] * output_hw(row) ** 2 * row["out_channels"] * taps
    if row["op"].endswith("_attention"):
        scores = row["batch"] * row["num_heads"] * row["q_len"] * row["kv_len"]
        return 2.0 * scores * (row["head_dim"] + row["v_head_dim"])
    if row["op"] == "custom":
        return row["flop"]
    return 0.0


def matrix_row(step: Step, notes: dict[str, None]) -> Row | None:
    """Row of a product or convolution."""
    dtype = product_type(step, notes)
    if step.name == CONV:
        return _convolution(step, dtype)
    if step.name == RAGGED:
        row = _ragged(step, dtype)
    else:
        sizes = zip(("batch", "m", "n", "k"), dot_sizes(step), strict=True)
        row = {"op": "gemm", **dict(sizes), "dtype": dtype}
    if row["op"] == "custom":
        return row
    out = listing_type(step.outputs[0].dtype)
    if out is not None and out != dtype and dtype != "tf32":
        row["out_dtype"] = out
    return row


def _ragged(step: Step, dtype: str) -> Row:
    """A product whose rows (or sums, or batches) fall into groups of any sizes: one
    product a group of equal sizes, which has the FLOP of all; where the groups do not
    divide evenly the FLOP and bytes themselves."""
    numbers = step.params["ragged_dot_dimension_numbers"]
    (left, _), (batched, _) = numbers.dot_dimension_numbers
    a, b, sizes = (x.shape for x in step.inputs[:3])
    ragged = numbers.lhs_ragged_dimensions[0]
    batch, k = (math.prod(a[i] for i in axes) for axes in (batched, left))
    groups = sizes[-1]
    stacked = math.prod(b[i] for i in numbers.rhs_group_dimensions)
    row = {"batch": batch, "m": math.prod(a) // (batch * k), "k": k,
           "n": math.prod(b) // (batch * k * stacked)}  # fmt: skip
    flop = 2.0 * math.prod(row.values())
    along = "k" if ragged in left else "m"
    if ragged not in batched:
        if row[along] % groups:
            return {"op": "custom", "fn": step.name, "flop": flop, "dtype": dtype,
                    "bytes": bytes_of([*step.inputs, *step.outputs])}  # fmt: skip
        row |= {"batch": batch * groups, along: row[along] // groups}
    return {"op": "gemm", **row, "dtype": dtype}


def product_type(step: Step, notes: dict[str, None]) -> str:
    """Type of a product: the wider operand's; fp32 is tf32 where one says so."""
    kinds = [listing_type(x.dtype) for x in step.inputs[:2]]
    if None in kinds:
        integer = all("int" in x.dtype for x in step.inputs[:2])
        kind = "int8" if integer else "fp32"
        other = next(x.dtype for x in step.inputs[:2] if listing_type(x.dtype) is None)
        notes[f"products of {other} are priced as {kind}"] = None
        return kind
    order = ("fp8", "fp16", "bf16", "fp32")
    kind = max((str(x) for x in kinds), key=order.index)
    if kind != "fp32":
        return kind
    precision = str(step.params.get("precision") or _default_precision()).lower()
    if any(word in precision for word in _TF32) and "highest" not in precision:
        return "tf32"
    notes[
        "products in fp32 are priced as fp32; with `jax_default_matmul_precision` "
        "'tensorfloat32' as tf32"
    ] = None
    return kind


def _default_precision() -> str:
    import jax

    return str(getattr(jax.config, "jax_default_matmul_precision", None) or "")


def _convolution(step: Step, dtype: str) -> Row:
    """A convolution; gradients of strided ones as products of the same FLOP."""
    p = step.params
    x, w = step.inputs[0].shape, step.inputs[1].shape
    numbers = p["dimension_numbers"]
    x = tuple(x[i] for i in numbers.lhs_spec)
    w = tuple(w[i] for i in numbers.rhs_spec)
    out = tuple(step.outputs[0].shape[i] for i in numbers.out_spec)
    groups = p["feature_group_count"] * p["batch_group_count"]
    if set(p["lhs_dilation"]) <= {1} and p["batch_group_count"] == 1:
        return padded_convolution(
            x, w, out, p["padding"], stride=tuple(p["window_strides"]),
            dilation=tuple(p["rhs_dilation"]), groups=groups, dtype=dtype,
        )  # fmt: skip
    holes = math.prod(p["lhs_dilation"])  # zeros between pixels, multiplied by nobody
    return convolution_product(out, groups, math.prod(w[1:]) // holes, dtype)


@dataclasses.dataclass(frozen=True)
class Attention:
    """An attention: its row, the product that carries it, and the steps inside."""

    row: Row
    carrier: Step
    inside: frozenset[Step]


def attentions(program: Program, notes: dict[str, None]) -> list[Attention]:
    """Every exp that stands between two batched products of equal count."""
    makers = {value: step for step in program.steps for value in step.outputs}
    readers: dict[Value, list[Step]] = {}
    for step in program.steps:
        for value in step.inputs:
            readers.setdefault(value, []).append(step)
    calls, carriers = [], set()
    for step in program.steps:
        if step.name not in ("exp", "exp2") or len(step.outputs[0].shape) < 3:
            continue
        before = _reached([step], lambda x: _makers(x, makers), step.count)
        scores = [x for x in before if x.name == DOT]
        after = _reached([step], lambda x: _users(x, readers), step.count)
        values = [x for x in after if x.name == DOT and x not in scores]
        values = [x for x in values if _is_second(x, scores)]
        if len(scores) != 1 or not values or carriers & {scores[0], values[0]}:
            continue
        row = _attention_row(scores[0], values[0], before, makers, notes)
        if row is None:
            continue
        middle = _between(scores[0], values[0], makers, step.count)
        calls.append(Attention(row, values[0], frozenset({*middle, scores[0]})))
        carriers |= {scores[0], values[0]}
    return calls


def _reached(start: list[Step], next_: Any, count: float) -> list[Step]:
    """Steps that lead to or from `start` through maps, reductions and what is free; the
    first product on each way is the last."""
    steps: dict[Step, None] = {}
    todo = list(start)
    while todo:
        step = todo.pop()
        for other in next_(step):
            if other in steps or other.count != count:
                continue
            if other.name == DOT:
                steps[other] = None
            elif other.name in FREE or is_elementwise(other) or is_reduction(other):
                steps[other] = None
                todo.append(other)
    return list(steps)


def _makers(step: Step, makers: Mapping[Value, Step]) -> Sequence[Step]:
    return [makers[x] for x in step.inputs if x in makers]


def _users(step: Step, readers: Mapping[Value, list[Step]]) -> Sequence[Step]:
    return [y for x in step.outputs for y in readers.get(x, ())]


def _is_second(step: Step, scores: Sequence[Step]) -> bool:
    """Whether a product sums over the keys of the scores, as many batches of it."""
    if len(scores) != 1:
        return False
    batch, m, n, _ = dot_sizes(scores[0])
    second = dot_sizes(step)
    total = batch * m * n
    either = second[1] * second[3], second[2] * second[3]
    return second[0] == batch > 1 and total in [batch * x for x in either]


def _between(
    scores: Step, values: Step, makers: Mapping[Value, Step], count: float
) -> set[Step]:
    """Steps on the ways from one product to the other."""
    depends: dict[Step, bool] = {scores: True}
    todo = list(_makers(values, makers))
    while todo:
        step = todo[-1]
        inside = step.count == count and step.name != DOT
        before = _makers(step, makers) if inside else ()
        missing = [x for x in before if x not in depends]
        if step in depends or not missing:
            todo.pop()
            depends.setdefault(step, any(depends[x] for x in before))
        else:
            todo += missing
    return {step for step, yes in depends.items() if yes}


def _attention_row(
    scores: Step,
    values: Step,
    before: Sequence[Step],
    makers: Mapping[Value, Step],
    notes: dict[str, None],
) -> Row | None:
    """Row of attention from its two products: the first operand of the scores whose
    other sizes are the queries'."""
    (left, right), (left_batch, right_batch) = scores.params["dimension_numbers"]
    q, k = scores.inputs[0].shape, scores.inputs[1].shape
    batches = [q[i] for i in left_batch]
    q_free = [x for i, x in enumerate(q) if i not in (*left, *left_batch)]
    k_free = [x for i, x in enumerate(k) if i not in (*right, *right_batch)]
    depth = math.prod(q[i] for i in left)
    keys = scores.inputs[1]
    if len(k_free) > len(q_free):
        q_free, k_free, keys = k_free, q_free, scores.inputs[0]
    if len(k_free) != 1 or not q_free or not batches:
        return None
    kv_len = k_free[0]
    single = 1 in q_free and kv_len not in q_free
    q_len = 1 if single else kv_len if kv_len in q_free else max(q_free)
    grouped = math.prod(q_free) // q_len
    batch = batches[0] if len(batches) > 1 else 1
    kv_heads = math.prod(batches) // batch
    heads = kv_heads * grouped
    stored = _stored(keys, makers) // max(batch * kv_len * depth, 1)
    if 0 < stored < kv_heads and kv_heads % stored == 0:  # broadcast to every head
        kv_heads = stored
    total = dot_sizes(values)
    v_dim = total[0] * total[1] * total[2] // (batch * heads * q_len)
    dtype = product_type(scores, notes)
    decoding = q_len == 1 and kv_len > 1
    return {
        "op": "generation_attention" if decoding else "context_attention",
        "batch": batch,
        "q_len": q_len,
        "kv_len": kv_len,
        "num_heads": heads,
        "num_kv_heads": kv_heads,
        "head_dim": depth,
        "v_head_dim": max(v_dim, 1),
        "causal": q_len > 1 and any(_is_causal(x, makers) for x in before),
        "dtype": dtype,
    }


def _stored(value: Value, makers: Mapping[Value, Step]) -> int:
    """Elements of a value before it was broadcast."""
    least = value.size
    while value in makers and makers[value].name in FREE:
        value = makers[value].inputs[0] if makers[value].inputs else value
        if value.size > least:
            break
        least = value.size
    return least


def _is_causal(step: Step, makers: Mapping[Value, Step]) -> bool:
    """Whether a step masks by order: a select by comparison of positions, or by a
    triangle that the program holds."""
    if step.name != "select_n":
        return False
    todo, visited = [step.inputs[0]], set()
    while todo:
        value = todo.pop()
        if value in visited:
            continue
        visited.add(value)
        if value.constant is not None and _is_triangle(value.constant):
            return True
        maker = makers.get(value)
        if maker is None or maker.name == DOT:
            continue
        if maker.name == "iota":
            return True
        todo += maker.inputs
    return False


def _is_triangle(constant: Any) -> bool:
    """Whether a constant is true on and below its diagonal alone (or above it)."""
    if np.ndim(constant) < 2 or np.size(constant) > 1 << 26:
        return False
    last = np.asarray(constant).reshape(-1, *np.shape(constant)[-2:])[0] != 0
    lower = np.tril(np.ones_like(last))
    return bool((last == lower).all() or (last == ~lower).all())
