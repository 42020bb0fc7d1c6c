"""ONNX graphs, with shapes inferred by the package `onnx` (extra `importers`)."""

import dataclasses
import importlib.util
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from ...workload import Kernel, Listing, merge_kernels
from .._launches import Graph
from .._request import ImportRequest
from .._rows.operators import Row, padded_convolution, valid
from .._rows.types import (
    carrier,
    element_bytes,
    elementwise_row,
    gather_row,
    listing_type,
)

# --- ONNX operators -> rows, by the sizes that shape inference found.


@dataclasses.dataclass(frozen=True)
class Node:
    """A node with its attributes; sizes and types of what goes in and out (None: not
    inferred), and the names of these."""

    op: str
    domain: str
    inputs: tuple[tuple[int, ...] | None, ...]
    types: tuple[str, ...]
    outputs: tuple[tuple[int, ...] | None, ...]
    out_types: tuple[str, ...]
    attributes: Mapping[str, Any]
    reads: tuple[str, ...]
    makes: tuple[str, ...]


Rule = Callable[[Node], Row | None]
CONVOLUTIONS: Final = (
    "Conv", "ConvTranspose", "QLinearConv", "ConvInteger", "FusedConv",
)  # fmt: skip


def row_of_node(node: Node) -> Row | None:
    """Row of a node; None where its sizes or a rule are lacking."""
    if not node.outputs or node.outputs[0] is None:
        return None
    sizes = [x for x in (*node.inputs, *node.outputs) if x is not None]
    if node.op not in ("Resize", "Upsample") and not all(math.prod(x) for x in sizes):
        return None
    return _RULES.get(node.op, _mapped)(node)


def _type(node: Node) -> str:
    """Type of a product: that of the first input; whole numbers as int8."""
    name = node.types[0] if node.types else ""
    return listing_type(name) or ("int8" if "int" in name else "fp32")


def _product(node: Node, batch: int, m: int, n: int, k: int) -> Row:
    sizes = {"batch": batch, "m": m, "n": n, "k": k}
    return {"op": "gemm", **sizes, "dtype": _type(node)}


def _conv(w: int) -> Rule:
    """A convolution whose weights stand at `w`."""

    def rule(node: Node) -> Row | None:
        image, weights, out = node.inputs[0], node.inputs[w], node.outputs[0]
        if image is None or weights is None or out is None:
            return None
        space, a = len(weights) - 2, node.attributes
        groups = int(a.get("group", 1))
        if node.op == "ConvTranspose":
            pixels = image[0] * math.prod(image[2:])
            taps = weights[1] * math.prod(weights[2:])
            return _product(node, groups, pixels, taps, weights[0] // groups)
        pads = a.get("pads", [0] * 2 * space)
        padding = [(pads[i], pads[i + space]) for i in range(space)]
        if a.get("auto_pad", b"NOTSET") in (b"SAME_UPPER", b"SAME_LOWER"):
            padding = [((k - 1) // 2, (k - 1) // 2) for k in weights[2:]]
        return padded_convolution(
            image, weights, out, padding, stride=tuple(a.get("strides", [1] * space)),
            dilation=tuple(a.get("dilations", [1] * space)), groups=groups,
            dtype=_type(node),
        )  # fmt: skip

    return rule


def _gemm(node: Node) -> Row | None:
    a, b = node.inputs[0], node.inputs[1]
    if a is None or b is None or len(a) != 2 or len(b) != 2:
        return None
    m, k = reversed(a) if node.attributes.get("transA") else a
    n = b[0] if node.attributes.get("transB") else b[1]
    layout = {"layout": "tn"} if node.attributes.get("transB") else {}
    return _product(node, 1, m, n, k) | layout


def _matmul(b: int) -> Rule:
    """[.., m, k] x [.., k, n], the second at `b`."""

    def rule(node: Node) -> Row | None:
        x, y, out = node.inputs[0], node.inputs[b], node.outputs[0]
        if not x or not y or out is None:
            return None
        n, k = (y[-1] if len(y) > 1 else 1), x[-1]
        if len(y) <= 2:
            return _product(node, 1, math.prod(x[:-1]), n, k)
        m = x[-2] if len(x) > 1 else 1
        return _product(node, math.prod(out) // (m * n), m, n, k)

    return rule


def _packed_matmul(node: Node) -> Row | None:
    """`MatMulNBits`: weights of a few bits with a scale a block."""
    x, out, a = node.inputs[0], node.outputs[0], node.attributes
    if x is None or out is None:
        return None
    n, k = int(a.get("N", out[-1])), int(a.get("K", x[-1]))
    stored = {4: "int4", 8: "int8"}.get(int(a.get("bits", 4)), "int4")
    group = int(a.get("block_size", 32))
    rows = math.prod(x[:-1])
    packed = {"weight_dtype": stored, "weight_group": group}
    return _product(node, 1, rows, n, k) | packed


def _reduction(op: str, residual: bool = False) -> Rule:
    """A reduction over the last axes."""

    def rule(node: Node) -> Row | None:
        x = node.inputs[0]
        if not x:
            return None
        axis = int(node.attributes.get("axis", -1)) % len(x)
        cols = x[axis] if op == "softmax" else math.prod(x[axis:])
        sizes = {"op": op, "rows": math.prod(x) // cols, "cols": cols}
        more = {"residual": True} if residual else {}
        return {**sizes, "dtype": carrier(node.types[0]), **more}

    return rule


def _gather(node: Node) -> Row | None:
    table, out = node.inputs[0], node.outputs[0]
    if not table or out is None:
        return None
    axis = int(node.attributes.get("axis", 0)) % len(table)
    return _copied(math.prod(out), math.prod(table[axis + 1 :]), node.out_types[0])


def _moved(node: Node) -> Row | None:
    """What is copied to another place."""
    outs = [x for x in node.outputs if x is not None]
    last = outs[0][-1] if outs and outs[0] else 1
    return _copied(sum(map(math.prod, outs)), last, node.out_types[0])


def _copied(elements: int, cols: int, kind: str) -> Row:
    cols = min(max(cols, 1), elements)
    return gather_row(max(elements // cols, 1), cols, kind)


def _mapped(node: Node) -> Row | None:
    """A map or a pooling: activations in, what comes out."""
    out = node.outputs[0]
    reads = [
        (math.prod(x), kind)
        for x, kind in zip(node.inputs, node.types, strict=True)
        if x is not None and element_bytes(kind) and math.prod(x)
    ]
    if not reads or out is None:
        return None
    elements = max(math.prod(out), *(n for n, _ in reads))
    fn = _FNS.get(node.op, node.op.lower())
    return elementwise_row(fn, elements, reads, [(math.prod(out), node.out_types[0])])


_FNS: Final = {
    "Add": "add", "Sub": "sub", "Mul": "mul", "Div": "div", "Relu": "relu",
    "Gelu": "gelu", "FastGelu": "gelu", "BiasGelu": "gelu", "QuickGelu": "gelu",
    "Tanh": "tanh", "Exp": "exp", "Pow": "pow", "Sigmoid": "silu", "Erf": "gelu",
    "Cast": "cast", "Where": "where",
}  # fmt: skip


def _attention(node: Node) -> Row | None:
    """Queries [B, S, hidden] with heads by attribute, or [B, H, S, D]."""
    x, a = node.inputs[0], node.attributes
    keys = node.inputs[1] if len(node.inputs) > 1 else None
    heads = int(a.get("num_heads", a.get("q_num_heads", 0)))
    packed = node.op == "Attention" and node.domain == "com.microsoft"
    if x is not None and len(x) == 4:
        batch, heads, q_len, head_dim = x
        whole = keys is not None and len(keys) == 4
        kv_heads, kv_len = (keys[1], keys[2]) if whole and keys else (heads, q_len)
    elif x is not None and len(x) == 3 and heads:
        batch, q_len, hidden = x
        head_dim = hidden // heads
        kv_heads = int(a.get("kv_num_heads", heads)) or heads
        apart = keys is not None and len(keys) == 3 and not packed
        kv_len = keys[1] if apart and keys else q_len
    else:
        return None
    # a cache that goes in: an input of four axes behind q, k and v
    past = (y[2] for y in node.inputs[3:] if y is not None and len(y) == 4)
    kv_len += next(past, 0)
    causal = bool(a.get("unidirectional") or a.get("is_causal"))
    causal |= node.op == "GroupQueryAttention"
    decoding = q_len == 1 and kv_len > 1
    return {
        "op": "generation_attention" if decoding else "context_attention",
        "batch": batch, "q_len": q_len, "kv_len": kv_len, "num_heads": heads,
        "num_kv_heads": kv_heads, "head_dim": head_dim, "causal": causal,
        "dtype": _type(node),
    }  # fmt: skip


def _experts(node: Node) -> Row | None:
    """`MoE`, `QMoE`: tokens, router, weights [experts, inner, hidden] (of `QMoE` with
    packed columns)."""
    x, first = node.inputs[0], node.inputs[2] if len(node.inputs) > 2 else None
    if x is None or first is None or len(first) != 3:
        return None
    gated = b"swiglu" in node.attributes.get("activation_type", b"")
    stored = {"weight_dtype": "int4"} if node.op == "QMoE" else {}
    return {
        "op": "moe", "num_tokens": math.prod(x[:-1]), "hidden_size": x[-1],
        "inter_size": max(first[1] // (2 if gated else 1), 1), "gated": gated,
        "topk": int(node.attributes.get("k", 1)), "num_experts": first[0],
        "distribution": "random", "dtype": _type(node), **stored,
    }  # fmt: skip


_RULES: Final[dict[str, Rule]] = {
    **dict.fromkeys(("Conv", "FusedConv", "ConvTranspose", "ConvInteger"), _conv(1)),
    "QLinearConv": _conv(3),
    "Gemm": _gemm,
    **dict.fromkeys(
        ("MatMul", "FusedMatMul", "MatMulInteger", "DynamicQuantizeMatMul"), _matmul(1)
    ),
    "QLinearMatMul": _matmul(3),
    "MatMulNBits": _packed_matmul,
    **dict.fromkeys(("Softmax", "LogSoftmax"), _reduction("softmax")),
    "LayerNormalization": _reduction("layernorm"),
    "SkipLayerNormalization": _reduction("layernorm", True),
    **dict.fromkeys(
        ("SimplifiedLayerNormalization", "RMSNormalization"), _reduction("rmsnorm")
    ),
    "SkipSimplifiedLayerNormalization": _reduction("rmsnorm", True),
    "Gather": _gather,
    **dict.fromkeys(
        ("GatherElements", "GatherND", "Concat", "Transpose", "Slice", "Split", "Pad",
         "Expand", "Tile", "DepthToSpace", "SpaceToDepth"), _moved
    ),
    **dict.fromkeys(
        ("Attention", "MultiHeadAttention", "GroupQueryAttention"), _attention
    ),
    **dict.fromkeys(("MoE", "QMoE"), _experts),
}  # fmt: skip


# --- ONNX graphs

_FREE: Final = frozenset(
    """
    Constant ConstantOfShape Shape Size Reshape Flatten Squeeze Unsqueeze Identity
    Dropout NonZero Range Loop If Scan SequenceAt SequenceConstruct Optional
    """.split()
)
"""No kernel of their own."""
_FUSED: Final = frozenset(
    """
    BatchNormalization Relu Clip Add Sum Sigmoid HardSwish HardSigmoid LeakyRelu PRelu
    Mul Elu Mish Swish
    """.split()
)
"""What every runtime fuses into the convolution before it."""
_MOST_VALUES: Final = 64
"""Values of an attribute that are kept: strides, never weights."""


def read(path: str, request: ImportRequest) -> Graph:
    """Rows of a graph.

    Raises `ValueError` where the package `onnx` is missing, for a file that it cannot
    read, and for a graph in which nothing has a shape.
    """
    if importlib.util.find_spec("onnx") is None:
        raise ValueError(
            f"{path} is an ONNX graph, which needs the package onnx; install it by "
            "`pip install 'diffenergy[importers]'`."
        )
    model, notes = _inferred(path, request.dims or {})
    kernels = _rows(_nodes(model.graph), request.stack == "eager", notes)
    if not kernels:
        raise ValueError(
            f"{path}: no operator of the graph has a known shape; name its symbolic "
            "dimensions with `--dim NAME=N`."
        )
    listing = Listing(
        Path(path).name.removesuffix(".onnx"), mode=request.phase or "forward",
        kernels=merge_kernels(kernels), dispatch="graph", notes=tuple(notes),
    )  # fmt: skip
    return Graph("onnx", listing)


def _inferred(path: str, dims: Mapping[str, int]) -> tuple[Any, dict[str, None]]:
    """The model with shapes; symbolic dimensions become those of `dims`, else 1."""
    import onnx
    from onnx import shape_inference

    notes: dict[str, None] = {}
    try:
        model = onnx.load(path, load_external_data=False)
    except Exception:  # whatever its protobuf raises
        raise ValueError(f"{path} is no whole ONNX model; export it again.") from None
    named, assumed = _sized(model.graph, dims)
    if unused := set(dims) - named:
        dimensions = ", ".join(sorted(named | set(assumed))) or "none"
        raise ValueError(
            f"`dim` names '{min(unused)}', which is no symbolic dimension of {path}; "
            f"those that it has: {dimensions}."
        )
    if assumed:
        notes[f"symbolic dimensions taken as 1: {', '.join(sorted(assumed))}"] = None
    if dims or assumed:  # shapes stored for other sizes would win over inferred ones
        del model.graph.value_info[:]
        for out in model.graph.output:
            out.type.tensor_type.ClearField("shape")
    try:
        return shape_inference.infer_shapes(model, data_prop=True), notes
    except Exception as error:
        reason = str(error).splitlines()[0][:80] if str(error) else "unknown"
        raise ValueError(
            f"{path}: its shapes cannot be inferred ({reason}); check the sizes of "
            "`--dim`."
        ) from None


def _sized(graph: Any, dims: Mapping[str, int]) -> tuple[set[str], list[str]]:
    """Sets symbolic dimensions of the inputs; (those that were named, the others)."""
    named, assumed = set(), []
    weights = {x.name for x in graph.initializer}
    for tensor in graph.input:
        if tensor.name in weights:
            continue
        for place, dim in enumerate(tensor.type.tensor_type.shape.dim):
            if dim.HasField("dim_value") and dim.dim_value > 0:
                continue
            name = dim.dim_param or f"{tensor.name}_{place}"
            if name in dims:
                named.add(name)
            elif name not in assumed:
                assumed.append(name)
            dim.dim_value = dims.get(name, 1)
    return named, assumed


def _nodes(graph: Any) -> Iterator[Node]:
    """Nodes with sizes and types."""
    from onnx import TensorProto, helper

    shapes: dict[str, tuple[int, ...]] = {}
    types: dict[str, str] = {}
    for x in (*graph.input, *graph.value_info, *graph.output):
        tensor = x.type.tensor_type
        types[x.name] = TensorProto.DataType.Name(tensor.elem_type).lower()
        dims = tensor.shape.dim
        if tensor.HasField("shape") and all(d.HasField("dim_value") for d in dims):
            shapes[x.name] = tuple(d.dim_value for d in dims)
    for x in graph.initializer:
        shapes[x.name] = tuple(x.dims)
        types[x.name] = TensorProto.DataType.Name(x.data_type).lower()
    for node in graph.node:
        attributes = {}
        for attribute in node.attribute:
            value = helper.get_attribute_value(attribute)
            long = isinstance(value, list) and len(value) > _MOST_VALUES
            if isinstance(value, int | float | bytes | list) and not long:
                attributes[attribute.name] = value
        yield Node(
            node.op_type,
            node.domain,
            tuple(shapes.get(x) for x in node.input),
            tuple(types.get(x, "") for x in node.input),
            tuple(shapes.get(x) for x in node.output),
            tuple(types.get(x, "") for x in node.output),
            attributes,
            tuple(node.input),
            tuple(node.output),
        )


def _rows(nodes: Iterator[Node], eager: bool, notes: dict[str, None]) -> list[Kernel]:
    """Rows in the order of the graph; `eager`: without fusion."""
    fused: set[str] = set()
    kernels: list[Kernel] = []
    missing: dict[str, int] = {}
    for node in nodes:
        if node.op in ("If", "Loop", "Scan"):
            notes[f"the body of {node.op} is left out"] = None
        if node.op in _FREE or _is_index_arithmetic(node):
            continue
        if not eager and node.op in _FUSED and fused.intersection(node.reads):
            fused.update(node.makes)
            continue
        if node.op in CONVOLUTIONS:
            fused.update(node.makes)
        row = valid(row_of_node(node))
        if row is None:
            missing[node.op] = missing.get(node.op, 0) + 1
        else:
            kernels.append(row)
    if missing:
        counts = ", ".join(f"{n} {op}" for op, n in missing.items())
        notes[f"without a row, as sizes or rules are lacking: {counts}"] = None
    return kernels


def _is_index_arithmetic(node: Node) -> bool:
    """Whether a node computes sizes on the host: whole numbers, on one axis."""
    whole = all(x in ("int64", "int32", "bool", "") for x in node.out_types)
    sizes = [x for x in node.outputs if x is not None]
    return whole and bool(sizes) and all(len(x) <= 1 for x in sizes)
