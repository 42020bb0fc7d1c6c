"""ONNX graphs, with shapes inferred by the package `onnx` (extra `importers`)."""

import importlib.util
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from ...workload import Kernel, Listing, merge
from .._launches import Graph, Options
from .._rows.operators import valid
from . import onnx_ops
from .onnx_ops import Node

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


def read(path: str, options: Options) -> Graph:
    """Rows of a graph.

    Raises `ValueError` where the package `onnx` is missing, for a file that it cannot
    read, and for a graph in which nothing has a shape.
    """
    if importlib.util.find_spec("onnx") is None:
        raise ValueError(
            f"{path} is an ONNX graph, which needs the package onnx; install it by "
            "`pip install 'diffenergy[importers]'`."
        )
    model, notes = _inferred(path, options.dims)
    kernels = _rows(_nodes(model.graph), options.stack == "eager", notes)
    if not kernels:
        raise ValueError(
            f"{path}: no operator of the graph has a known shape; name its symbolic "
            "dimensions with `--dim NAME=N`."
        )
    listing = Listing(
        Path(path).name.removesuffix(".onnx"), mode=options.phase or "forward",
        kernels=merge(kernels), dispatch="graph", notes=tuple(notes),
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
        known = ", ".join(sorted(named | set(assumed))) or "none"
        raise ValueError(
            f"`dim` names '{min(unused)}', which is no symbolic dimension of {path}; "
            f"those that it has: {known}."
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
    for given in graph.input:
        if given.name in weights:
            continue
        for place, dim in enumerate(given.type.tensor_type.shape.dim):
            if dim.HasField("dim_value") and dim.dim_value > 0:
                continue
            name = dim.dim_param or f"{given.name}_{place}"
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
    lacking: dict[str, int] = {}
    for node in nodes:
        if node.op in ("If", "Loop", "Scan"):
            notes[f"the body of {node.op} is left out"] = None
        if node.op in _FREE or _is_index_arithmetic(node):
            continue
        if not eager and node.op in _FUSED and fused.intersection(node.reads):
            fused.update(node.makes)
            continue
        if node.op in onnx_ops.CONVOLUTIONS:
            fused.update(node.makes)
        row = valid(onnx_ops.row(node))
        if row is None:
            lacking[node.op] = lacking.get(node.op, 0) + 1
        else:
            kernels.append(row)
    if lacking:
        told = ", ".join(f"{n} {op}" for op, n in lacking.items())
        notes[f"without a row, as sizes or rules are lacking: {told}"] = None
    return kernels


def _is_index_arithmetic(node: Node) -> bool:
    """Whether a node computes sizes on the host: whole numbers, on one axis."""
    whole = all(x in ("int64", "int32", "bool", "") for x in node.out_types)
    sizes = [x for x in node.outputs if x is not None]
    return whole and bool(sizes) and all(len(x) <= 1 for x in sizes)
