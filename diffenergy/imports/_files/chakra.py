"""Chakra execution traces (protobuf, `.et`): nodes of one rank, shapes in those of the
GPU. Schema: mlcommons/chakra, `et_def.proto`."""

import ast
import gzip
import re
import struct
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from .._launches import Launch, Operator, Trace, to_tuples
from .._request import ImportRequest
from .._rows.names import kernel_class
from .._rows.operators import CONVOLUTIONS, base_name

_ID, _NAME, _TYPE, _CONTROL, _START, _DURATION, _INPUTS, _ATTRIBUTE = (
    1, 2, 3, 4, 6, 7, 8, 10,
)  # fmt: skip
"""Numbers of the fields of a `Node`."""
_COMMUNICATION: Final = (5, 6, 7)
"""Types of nodes that send, receive, or take part in a collective."""
_COLLECTIVES: Final = {
    0: "all_reduce",
    1: "reduce",
    2: "all_gather",
    3: "gather",
    4: "scatter",
    5: "broadcast",
    6: "all_to_all",
    7: "reduce_scatter",
}
"""Names of `comm_type`."""
_CUDNN: Final = "GenericList,GenericList,GenericList,Int,Bool,Bool,Bool"
"""Types of the arguments of `cudnn_convolution` behind images and weights."""


def read(path: str, request: ImportRequest) -> Trace:
    """Launches of the GPU nodes, in the order of the file.

    Raises `ValueError` for a file that is cut off or has no GPU node.
    """
    raw = Path(path).read_bytes()
    hosts: dict[int, _Node] = {}
    nodes, number = [], 0
    try:
        data = gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
        for number, message in enumerate(_messages(data)):
            if number == 0:  # what the trace says of itself
                continue
            node = _Node(message)
            if node.on_cpu:
                hosts[node.id] = node
            else:
                nodes.append(node)
    except (EOFError, OSError):
        raise ValueError(
            f"{path} is cut off: it ends inside a node; copy or convert it again."
        ) from None
    if not nodes:
        raise ValueError(
            f"{path}: none of the {number:,} nodes ran on a GPU; link the host's "
            "trace with the profiler's (chakra_trace_link) before converting it."
        )
    copies: dict[int, float] = defaultdict(float)
    launches, operators = [], {}
    for call, node in enumerate(nodes):
        if node.name.startswith(("Memcpy", "Memset")):
            copies[0] += node.duration
            continue
        launch = _launch(node, call, hosts, operators)
        if launches and _of_one_call(launches[-1], launch):
            launch = launch._replace(call=launches[-1].call)
        launches.append(launch)
    if not launches:
        raise ValueError(f"{path}: the GPU nodes are copies alone, no kernel.")
    notes = ()
    if len(launches) < len(nodes):
        notes = (
            f"{len(launches):,} of the {len(nodes):,} GPU nodes are kernels; the other "
            f"{len(nodes) - len(launches):,} are memory copies and sets.",
        )
    return Trace("chakra", launches, copies=dict(copies), timed=False, notes=notes)


class _Node:
    """The fields of a node that are used."""

    def __init__(self, message: bytes):
        values: dict[int, list[Any]] = defaultdict(list)
        for number, value in _fields(message):
            values[number].append(value)
        first = {number: several[0] for number, several in values.items()}
        self.id = int(first.get(_ID, 0))
        self.name = bytes(first.get(_NAME, b"")).decode("utf-8", errors="replace")
        self.type = int(first.get(_TYPE, 0))
        self.duration = float(first.get(_DURATION, 0.0))
        self.start = float(first.get(_START, 0.0))
        self.inputs = first.get(_INPUTS, b"")
        self.parents = [x for value in values[_CONTROL] for x in _packed(value)]
        self.attributes = dict(map(_attribute, values[_ATTRIBUTE]))

    @property
    def on_cpu(self) -> bool:
        """Whether it is an operator or a call of the host."""
        return bool(self.attributes.get("is_cpu_op", 1))


def _attribute(message: bytes) -> tuple[str, Any]:
    """Name and value of an `AttributeProto`."""
    name, value = "", None
    for number, x in _fields(message):
        if number == 1:
            name = x.decode("utf-8", errors="replace")
        elif number > 2:
            value = x
    return name, value


def _launch(
    node: _Node, call: int, hosts: "dict[int, _Node]", operators: dict[Any, Operator]
) -> Launch:
    """A GPU node with the operator that launched it.

    Converters renumber nodes, so that a dependence may point to another operator: one
    with other arguments. A convolution is then known by those of cuDNN's function.
    """
    dims, types, values = _arguments(node.inputs)
    parents = (hosts[x] for x in node.parents if x in hosts)
    parent = next((x.name for x in parents if x.inputs == node.inputs), "")
    parent = re.sub(r"\(\d+\)$", "", parent)  # a suffix of the converter
    plain = ",".join(str(x).partition("[")[0] for x in types[2:])
    if not parent and plain == _CUDNN and kernel_class(node.name) in ("conv", "gemm"):
        parent = "aten::cudnn_convolution"
    key = (parent, dims, types, values)
    operator = operators.setdefault(key, Operator(parent, dims, types, values))
    collective = None
    if node.type in _COMMUNICATION or "comm_size" in node.attributes:
        kind = node.attributes.get("comm_type")
        collective = {
            "name": _COLLECTIVES.get(kind or 0, ""),
            "in": node.attributes.get("comm_size"),
            "dtype": "int8",  # the size is in bytes
            "ranks": None,
        }
    stream = node.attributes.get("tid")
    return Launch(
        node.name, node.duration, node.start, stream if isinstance(stream, int) else 0,
        operator=operator, call=call, collective=collective,
    )  # fmt: skip


def _of_one_call(last: Launch, launch: Launch) -> bool:
    """Whether two kernels in a row are of one convolution: its parts have equal
    arguments, and other operators stand between two convolutions."""
    operator = launch.operator
    is_convolution = operator and base_name(operator.name) in CONVOLUTIONS
    return bool(is_convolution) and last.operator is operator


def _arguments(message: bytes) -> tuple[Any, Any, Any]:
    """(sizes, types, values) of the inputs, written as Python lists."""
    inputs = {number: x for number, x in _fields(message) if isinstance(x, bytes)}
    values, dims, types = (_literal(inputs.get(i, b"")) for i in (1, 2, 3))
    plain = tuple(str(x).removeprefix("Tensor(").removesuffix(")") for x in types)
    texts = tuple(
        "" if _is_tensor(x) else str(list(x) if isinstance(x, tuple) else x)
        for x in values
    )
    return dims, plain, texts


def _is_tensor(value: Any) -> bool:
    """Whether a value is a reference to a tensor."""
    return isinstance(value, tuple) and any(isinstance(x, str) for x in value)


def _literal(text: bytes) -> tuple[Any, ...]:
    try:
        value = ast.literal_eval(text.decode("utf-8", errors="replace"))
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return ()
    return to_tuples(value) if isinstance(value, list) else ()


# --- The part of the protobuf wire format that these traces need


def varint(data: bytes, place: int) -> tuple[int, int]:
    """(number, place behind it). Raises `EOFError` where the data end inside it."""
    value = shift = 0
    while True:
        if place >= len(data) or shift > 63:
            raise EOFError
        byte = data[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place
        shift += 7


def _messages(data: bytes) -> Iterator[bytes]:
    """Messages that are each preceded by their length."""
    place = 0
    while place < len(data):
        length, place = varint(data, place)
        if place + length > len(data):
            raise EOFError
        yield data[place : place + length]
        place += length


def _fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """Fields of a message: whole numbers, floats, or bytes (texts, messages)."""
    place = 0
    while place < len(message):
        key, place = varint(message, place)
        kind = key & 7
        if kind == 0:
            value, place = varint(message, place)
        elif kind == 2:
            length, place = varint(message, place)
            value, place = message[place : place + length], place + length
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
            if place + size > len(message):
                raise EOFError
            value = struct.unpack(
                "<d" if kind == 1 else "<f", message[place : place + size]
            )[0]
            place += size
        else:
            raise EOFError
        yield key >> 3, value


def _packed(value: Any) -> list[int]:
    """Whole numbers of a repeated field, packed or single."""
    if isinstance(value, int):
        return [value]
    numbers, place = [], 0
    while place < len(value):
        number, place = varint(value, place)
        numbers.append(number)
    return numbers
