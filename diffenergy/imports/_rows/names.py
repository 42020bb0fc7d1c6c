"""Facts in the name of a GPU kernel: class, types, layout of a product, and the
elements of an element-wise kernel from its launch."""

import functools
import re
from typing import Final

from ...kernels import UNKNOWN_CLASS
from .._launches import Launch

_DTYPES: Final = tuple(
    (name, re.compile(pattern))
    for name, pattern in (
        ("mxfp4", r"MxE2m1"),
        ("nvfp4", r"[Ee]2[Mm]1|nvfp4|mxf4nvf4"),
        ("fp8", r"[Ee]4[Mm]3|[Ee]5[Mm]2|f8f8|Float8|fp8|nvjet_q"),
        ("int8", r"s8s8|i8i8|int8|imma|_s8_|igemm_int8"),
        ("bf16", r"bf16|BFloat16|bfloat16|_BBS_|_B_BS_|Bfloat16|nvjet_t"),
        ("fp16", r"f16f16|h16816|_h\d+gemm|s16816gemm_f16|hgemm|__half|c10::Half|fp16"
                 r"|float16|s1688gemm_f16|h884|_HHS_|nvjet_h"),
        ("tf32", r"tf32|s1688(?!gemm_(?:bf|f)16)"),
        ("fp32", r"sgemm|f32f32|scudnn|float|fp32|_SB_|double"),
    )
)  # fmt: skip
_LAYOUT: Final = re.compile(
    r"_(nn|nt|tn|tt)(?:_|\b)|nvjet_\w*_([NT][NT])[NT](?:_|\b|$)"
)
_VECTORISED: Final = re.compile(
    r"(?P<kind>vectorized|unrolled)_elementwise_kernel(?:<(?P<width>\d+))?"
)
_STRIDED: Final = re.compile(r"\belementwise_kernel<(?P<threads>\d+), ?(?P<values>\d+)")
_THREAD_VALUES: Final = 4
"""Values of a thread of PyTorch's vectorised kernels: blocks of 128 threads make 512
elements (twice as many in kernels of 8 values)."""
_BINARY: Final = re.compile(
    r"BinaryFunctor|CUDAFunctor_add|AddFunctor|MulFunctor|DivFunctor|threshold|where"
    r"|_backward|compare"
)
_MAPPED: Final = re.compile(r"void at::native::\w*elementwise_kernel(?=<)")
"""Kernels of PyTorch whose templates name the function that they map."""
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
SHOWN: Final = 80
"""Characters of a kernel's name that are kept."""


@functools.cache
def _patterns() -> list[tuple[str, re.Pattern[str]]]:
    """Class and pattern of names, of all kernel classes in the order of the ranks; a
    pattern begins where a word does (`permute_fbgemm` is no gemm)."""
    from ...kernels import trace_classes  # the kernel classes load JAX

    ranked = sorted(
        (rank, name, pattern)
        for name, trace in trace_classes().items()
        for rank, pattern in trace.patterns.items()
    )
    return [(name, re.compile(rf"(?<![a-z])(?:{x})")) for _, name, x in ranked]


@functools.lru_cache(65536)
def kernel_class(name: str) -> str:
    """Class of a kernel by its name.

    >>> kernel_class("ncclDevKernel_AllReduce_Sum_bf16"), kernel_class("my_kernel")
    ('collective', 'unknown')
    """
    mapped = _MAPPED.match(name)
    plain = mapped[0] if mapped else name
    text = f"{plain} {_CAMEL.sub('_', plain)}".lower()  # as written, and word by word
    return next((kind for kind, x in _patterns() if x.search(text)), UNKNOWN_CLASS)


@functools.lru_cache(65536)
def kernel_dtype(name: str) -> str | None:
    """Type of the operands by the name of a kernel, None where it does not say.

    >>> kernel_dtype("cutlass_80_tensorop_s1688gemm_64x64_16x6_nn_align4")
    'tf32'
    """
    return next((kind for kind, pattern in _DTYPES if pattern.search(name)), None)


@functools.lru_cache(65536)
def product_layout(name: str) -> str:
    """Layout of the operands (`nn`, `tn`, ...) by the name of a matrix kernel; ""
    where it does not say.

    >>> product_layout("cutlass_80_tensorop_s1688gemm_64x64_16x6_nn_align4")
    'nn'
    """
    match = _LAYOUT.search(name)
    return "" if not match else str(match[1] or match[2]).lower()


@functools.lru_cache(65536)
def is_strided(name: str) -> bool:
    """Whether an element-wise kernel of PyTorch computes each element's address, as it
    does where an operand is broadcast or transposed."""
    return bool(_STRIDED.search(name))


def launched_elements(launch: Launch) -> int | None:
    """Elements of a PyTorch element-wise kernel from its launch, to one block; None
    for other kernels.

    `elementwise_kernel<t, v>`: blocks x t x v; `vectorized_` and `unrolled_`: blocks x
    threads x 4, or the width of the vectors where it is 8 or 16.
    """
    if not launch.grid:
        return None
    blocks = launch.grid[0]
    strided = _STRIDED.search(launch.name)
    if strided:
        return blocks * int(strided["threads"]) * int(strided["values"])
    packed = _VECTORISED.search(launch.name)
    if packed is None:
        return None
    threads = launch.block[0] if launch.block else 128
    return blocks * threads * max(int(packed["width"] or 0), _THREAD_VALUES)


def launched_reads(name: str) -> int:
    """Inputs of a PyTorch element-wise kernel by its name."""
    if "FillFunctor" in name:
        return 0
    unary = re.search(r"AUnaryFunctor|BUnaryFunctor", name)
    return 2 if _BINARY.search(name) and not unary else 1


def short_name(name: str) -> str:
    """Name of a kernel as outputs show it."""
    return name[:SHOWN]
