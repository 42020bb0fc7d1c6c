"""Rows of operators that pass over memory: norms, gathers, element-wise maps."""

import re
from collections.abc import Callable, Sequence
from typing import Any, Final

from .._launches import Launch, Operator
from . import names
from .operators import Row, base_name
from .types import carrier, element_bytes, elementwise_row, gather_row, numel

Tensor = tuple[int, str]
"""Elements and type of a tensor."""
Rule = Callable[[Operator, Launch], Row | None]
_TWO_OF: Final = ("add", "sub", "mul", "div")
_FNS: Final = {
    "copy_": "copy", "_to_copy": "copy", "clone": "copy", "contiguous": "copy",
    "gelu": "gelu", "silu": "silu", "tanh": "tanh", "exp": "exp", "pow": "pow",
    "relu": "relu", "where": "where", "silu_and_mul": "silu_mul",
    "gelu_and_mul": "gelu_mul",
}  # fmt: skip
"""Names of operators -> `fn` of element-wise rows, whose special functions and
addresses the model knows."""
_TO_BOOL: Final = re.compile(r"^(eq|ne|lt|le|gt|ge|isnan|isinf|logical_\w+)_?$")
_OUT_FIRST: Final = re.compile(r"^(_C|vllm|_C_cache_ops|sgl_kernel)::")
"""Operators of serving engines: the output is the first argument."""
_ARGUMENTS: Final = {
    name: number
    for number, names in (
        (1, "abs neg exp log sqrt rsqrt sin cos erf floor ceil round reciprocal relu "
            "sigmoid tanh silu sum mean amax amin prod norm argmax argmin any all"),
        (2, "mul div eq ne lt le gt ge pow maximum minimum remainder fmod logical_and "
            "logical_or bitwise_and bitwise_or clamp_min clamp_max gelu leaky_relu "
            "sigmoid_backward tanh_backward silu_backward cat stack cumsum"),
        (3, "add sub clamp lerp threshold softplus hardtanh threshold_backward "
            "gelu_backward"),
        (4, "addcmul addcdiv nan_to_num elu"),
    )
    for name in names.split()
}  # fmt: skip
"""Arguments before `out=`, whose tensor is written and not read."""
_POINTERS: Final = re.compile(r"[Aa]rray<char ?\*, ?(\d+)")
"""Tensors of an element-wise kernel of PyTorch, the output among them."""


def is_region(operator: Operator, kernel: str) -> bool:
    """Whether an operator is a node of autograd, a compiled region or a Python
    function: its tensors are those of all its kernels, and say nothing of one.

    >>> is_region(Operator("CompiledFunction"), "a_kernel")
    True
    """
    name = operator.name
    if name.startswith(("torch::autograd", "autograd::")):
        return True
    return bool(name) and "::" not in name and not kernel.startswith(name)


def is_foreign(operator: Operator) -> bool:
    """Whether an operator is an extension's without a rule of its own: which of its
    tensors each of several kernels passes over is not known."""
    own = operator.name.startswith("aten::") or not operator.name
    return not own and base_name(operator.name) not in RULES


def _inputs(operator: Operator, launch: Launch) -> Operator:
    """The operator without the tensors that it writes alone (`out=`)."""
    base = base_name(operator.name).removesuffix("_")
    dims: Sequence[Any] = operator.dims or ()
    number = _ARGUMENTS.get(base, len(dims))
    pointers = _POINTERS.search(launch.name)
    if pointers and not base.startswith("_foreach"):
        places = [i for i in range(len(dims)) if operator.sizes(i) is not None]
        inputs = int(pointers[1]) - 1
        if 0 < inputs < len(places):
            number = min(number, places[inputs])
    return operator if number >= len(dims) else operator._replace(dims=dims[:number])


def tensors(operator: Operator) -> list[Tensor]:
    """Elements and types of all inputs that are tensors, those of lists too."""
    inputs: list[Tensor] = []
    dims: Sequence[Any] = operator.dims or ()
    for index, sizes in enumerate(dims):
        kind = operator.type(index)
        if sizes and all(isinstance(x, (list, tuple)) for x in sizes):
            inputs += [(numel(part), kind) for part in sizes if part]
        elif sizes and all(isinstance(x, int) for x in sizes):
            if not kind or element_bytes(kind) is not None:
                inputs.append((numel(sizes), kind))
    return inputs


def _rows_of(op: str, **more: Any) -> Rule:
    """A reduction over the last axis of the first input."""

    def rule(operator: Operator, launch: Launch) -> Row | None:
        sizes = operator.sizes(0)
        if sizes is None:
            return None
        cols = sizes[-1]
        if op == "softmax" and re.fullmatch(r"-?\d+", operator.value(1)):
            cols = sizes[int(operator.value(1)) % len(sizes)]
        if op == "layernorm" and re.fullmatch(r"\[[\d, ]+\]", operator.value(1)):
            cols = numel([int(x) for x in re.findall(r"\d+", operator.value(1))])
        row = {"op": op, "rows": numel(sizes) // max(cols, 1), "cols": cols}
        return {**row, "dtype": carrier(operator.type(0)), **more}

    return rule


def _gather(indices: int, cols: int = 1) -> Rule:
    """Rows of the first input by index: as many as there are indices, never all."""

    def rule(operator: Operator, launch: Launch) -> Row | None:
        index, source = operator.sizes(indices), operator.sizes(0)
        if index is None or source is None:
            return None
        width = numel(source[cols:]) or 1
        return gather_row(numel(index), width, operator.type(0))

    return rule


def _gather_elements(operator: Operator, launch: Launch) -> Row | None:
    """`gather`, `take_along_dim`: an element an index."""
    index = operator.sizes(2)
    if index is None:
        return None
    return gather_row(numel(index[:-1]), index[-1], operator.type(0))


def _indexed(operator: Operator, launch: Launch) -> Row | None:
    """`index`, whose indices a trace does not show: elements from the launch, at most
    those of the table's rows."""
    source, elements = operator.sizes(0), names.launched_elements(launch)
    if source is None or elements is None:
        return None
    return gather_row(
        max(elements // max(source[-1], 1), 1), source[-1], operator.type(0)
    )


def _joined(operator: Operator, launch: Launch) -> Row | None:
    """`cat`, `stack`: all inputs move once."""
    parts = tensors(operator)
    if not parts:
        return None
    whole, kind = sum(n for n, _ in parts), operator.type(0)
    kind = "" if element_bytes(kind) is None else kind
    kind = kind or {8: "long", 2: "bf16", 1: "bool"}.get(_opaque(launch.name), "float")
    return elementwise_row("strided_cat", whole, [(whole, kind)], [(whole, kind)])


def _opaque(kernel: str) -> int:
    """Bytes of an element by PyTorch's `OpaqueType<2u>`, 0 where it does not say."""
    match = re.search(r"OpaqueType<(\d+)u>", kernel)
    return int(match[1]) if match else 2 if "BFloat16" in kernel else 0


def _cache(operator: Operator, launch: Launch) -> Row | None:
    """New keys and values into the pages of a cache."""
    key, value = operator.sizes(0), operator.sizes(1)
    if key is None or value is None:
        return None
    return gather_row(key[0], numel(key[1:]) + numel(value[1:]), operator.type(0))


def _rotated(operator: Operator, launch: Launch) -> Row | None:
    """Rotary embedding of queries and keys, in place; its table is small."""
    q, k = operator.sizes(1), operator.sizes(2)
    if q is None or k is None:
        return None
    n, kind = numel(q) + numel(k), operator.type(1)
    return elementwise_row("rotary", n, [(n, kind)], [(n, kind)])


def _passes(fn: str, reads: int) -> Rule:
    """A map that reads its first input several times."""

    def rule(operator: Operator, launch: Launch) -> Row | None:
        sizes, kind = operator.sizes(0), operator.type(0)
        if sizes is None:
            return None
        n = numel(sizes)
        return elementwise_row(fn, n, [(n * reads, kind)], [(n, kind)])

    return rule


RULES: Final[dict[str, Rule]] = {
    **dict.fromkeys(("_softmax", "_log_softmax"), _rows_of("softmax")),
    **dict.fromkeys(("native_layer_norm", "native_group_norm"), _rows_of("layernorm")),
    **dict.fromkeys(("rms_norm", "_fused_rms_norm"), _rows_of("rmsnorm")),
    "fused_add_rms_norm": _rows_of("rmsnorm", residual=True),
    **dict.fromkeys(
        ("_softmax_backward_data", "_log_softmax_backward_data"),
        _passes("softmax_backward", 2),
    ),
    "native_layer_norm_backward": _passes("layernorm_backward", 2),
    "_fused_rms_norm_backward": _passes("rmsnorm_backward", 2),
    **dict.fromkeys(
        ("cudnn_batch_norm", "native_batch_norm", "miopen_batch_norm"),
        _passes("batch_norm", 2),
    ),
    **dict.fromkeys(
        ("cudnn_batch_norm_backward", "native_batch_norm_backward"),
        _passes("batch_norm_backward", 4),
    ),
    "embedding": _gather(1),
    "embedding_dense_backward": _gather(1, -1),
    "index_select": _gather(2),
    **dict.fromkeys(("gather", "take_along_dim"), _gather_elements),
    **dict.fromkeys(("index", "_index_put_impl_", "index_put_"), _indexed),
    **dict.fromkeys(("cat", "stack"), _joined),
    **dict.fromkeys(("reshape_and_cache_flash", "reshape_and_cache"), _cache),
    "rotary_embedding": _rotated,
}
_NO_SIZES: Final = re.compile(
    r"index|gather|scatter|embedding|nonzero|sort|unique|topk"
)
"""Operators whose inputs do not say what moves."""


def stream_row(operator: Operator, launch: Launch) -> Row | None:
    """Row of a kernel that passes over memory; None where the sizes do not say it."""
    base = base_name(operator.name)
    if base in RULES:
        return RULES[base](_inputs(operator, launch), launch)
    if _NO_SIZES.search(base):
        return None
    return mapped(operator, launch)


def mapped(operator: Operator, launch: Launch) -> Row | None:
    """Element-wise row: elements from the launch where it tells them, to one block,
    else those of the largest input; every input counts its own size, once written."""
    base = base_name(operator.name)
    if base not in ("copy_", "fill_", "zero_"):  # the tensor they write decides
        operator = _inputs(operator, launch)
    inputs = tensors(operator)
    if not inputs:
        return None
    if base.startswith("triton_") or _OUT_FIRST.match(operator.name):
        return _fused(base, inputs, bool(_OUT_FIRST.match(operator.name)))
    largest = max(n for n, _ in inputs)
    elements, launched = (
        _broadcast(operator) or largest,
        names.launched_elements(launch),
    )
    if launched is not None:  # the sizes, where they are within a block of it
        elements = min(elements, launched)
    kind = inputs[0][1] or names.kernel_dtype(launch.name) or "float"
    inputs = [(n, x or kind) for n, x in inputs]
    if base == "copy_" and len(inputs) > 1:
        (_, out), source = inputs[0], inputs[1]
        return elementwise_row(_fn(base, launch), elements, [source], [(elements, out)])
    if base in ("fill_", "zero_"):
        return elementwise_row("fill", elements, [], [(elements, kind)])
    if names.kernel_class(launch.name) == "norm":
        return elementwise_row(base or "map", largest, inputs, [])
    out = "bool" if _TO_BOOL.match(base) else kind
    return elementwise_row(_fn(base, launch), elements, inputs, [(elements, out)])


def _fn(base: str, launch: Launch) -> str:
    """Name of a map: `strided_` where the kernel computes each element's address,
    `scalar_` of a sum or product with a number."""
    plain = base.removesuffix("_")
    fn = _FNS.get(base) or _FNS.get(plain) or plain
    if names.is_strided(launch.name):
        return f"strided_{fn}"
    unary = re.search(r"[AB]UnaryFunctor|FunctorOnSelf", launch.name)
    return f"scalar_{fn}" if unary and fn in _TWO_OF else fn or "map"


def _broadcast(operator: Operator) -> int:
    """Number of elements of the broadcast of all inputs; 0 where they do not
    broadcast."""
    shapes = [
        sizes
        for i in range(len(operator.dims or ()))
        if (sizes := operator.sizes(i)) is not None
    ]
    if not shapes:
        return 0
    out: list[int] = []
    for axis in range(1, max(map(len, shapes)) + 1):
        extents = {s[-axis] for s in shapes if len(s) >= axis} - {1}
        if len(extents) > 1:
            return 0
        out.append(extents.pop() if extents else 1)
    return numel(out)


def _fused(fn: str, inputs: Sequence[Tensor], first: bool) -> Row:
    """A kernel whose arguments hold its output: the first, else the last tensor."""
    out = inputs[0] if first else inputs[-1]
    rest = list(inputs[1:] if first else inputs[:-1]) or [out]
    return elementwise_row(_FNS.get(fn, fn), max(n for n, _ in inputs), rest, [out])


def launched_row(launch: Launch) -> Row | None:
    """Element-wise row from a launch alone: elements and types by the kernel."""
    elements = names.launched_elements(launch)
    if not elements:
        return None
    kind = names.kernel_dtype(launch.name) or "float"
    reads = names.launched_reads(launch.name)
    fn = _fn("add" if reads == 2 else "fill" if reads == 0 else "copy", launch)
    return elementwise_row(fn, elements, [(elements * reads, kind)], [(elements, kind)])
