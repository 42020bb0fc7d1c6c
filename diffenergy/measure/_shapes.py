"""Kernels that are worth measuring, by class, as rows of the listing format."""

import dataclasses
import math
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from ..dtypes import BYTES, code

Kernel = dict[str, Any]
Operand = tuple[tuple[int, ...], str]
"""Shape and dtype of a tensor."""
Heads = tuple[int, int, int]
"""Heads, KV heads, head size."""

_MOST_COPIES: Final = 512
_MOST_FLOP: Final = 2e13
_TRIES: Final = 1000
"""Draws without a new kernel after which a class has no more."""
_HEADS: Final[tuple[Heads, ...]] = (
    (32, 8, 128),
    (32, 32, 128),
    (64, 8, 128),
    (16, 16, 64),
    (40, 8, 128),
)
"""Those of common models."""
_WIDTHS: Final = (
    512, 768, 1024, 1536, 2048, 2560, 3072, 3584, 4096, 5120, 6144, 7168, 8192, 11008,
    13824, 14336, 16384, 28672,
)  # fmt: skip
_MAPS: Final = ("copy", "add", "mul", "scalar_add", "relu", "gelu", "silu", "tanh")


@dataclasses.dataclass(frozen=True)
class Board:
    """What a plan needs to know of a GPU: bytes of its L2, bytes that buffers may take,
    types of its tensor cores; clocks (Hz, ascending) and power limits (W) that can be
    set, empty or None where unknown."""

    name: str
    l2: float
    memory: float
    dtypes: tuple[str, ...]
    clocks: tuple[float, ...] = ()
    limits: tuple[float, float] | None = None

    @property
    def half(self) -> str:
        """The 16-bit type of its models."""
        return "bf16" if "bf16" in self.dtypes else "fp16"


def gemm(m: int, n: int, k: int, dtype: str, batch: int = 1) -> Kernel:
    """A product; fp32 runs on CUDA cores, tf32 on tensor cores."""
    out = {"out_dtype": "bf16"} if dtype == "fp8" else {}
    cores = {"tensor_core": False} if dtype == "fp32" else {}
    shape = {"batch": batch, "m": m, "n": n, "k": k}
    return {"op": "gemm", **shape, "dtype": dtype, **out, **cores}


def stream(fn: str, elements: int, dtype: str) -> Kernel:
    """An element-wise kernel."""
    return {"op": "elementwise", "fn": fn, "elements": elements, "dtype": dtype}


def chain(values: int, depth: int) -> Kernel:
    """`depth` exponentials of each value, in registers: the bytes are shared by all."""
    share = {"reads": 1 / depth, "writes": 1 / depth}
    return {**stream("exp", values * depth, "fp32"), **share}


def attention(batch: int, q: int, kv: int, heads: Heads, dtype: str) -> Kernel:
    """Causal prefill, or one decode step where `q` is 1."""
    op = "generation_attention" if q == 1 else "context_attention"
    names = ("num_heads", "num_kv_heads", "head_dim")
    shape = {"batch": batch, "q_len": q, "kv_len": kv}
    return {"op": op, **shape, **dict(zip(names, heads, strict=True)), "dtype": dtype}


def depth(kernel: Kernel) -> int:
    """Operations in a row on each value of an element-wise kernel."""
    return round(1 / kernel.get("writes", 1))


def operands(kernel: Kernel) -> tuple[list[Operand], Operand]:
    """Tensors that a launch reads, and the one that it writes."""
    k, dtype = kernel, kernel["dtype"]
    out = k.get("out_dtype", dtype)
    match k["op"]:
        case "gemm":
            batch = (k["batch"],) if k["batch"] > 1 else ()
            m, n, inner = k["m"], k["n"], k["k"]
            read = [((*batch, m, inner), dtype), ((*batch, inner, n), dtype)]
            return read, ((*batch, m, n), out)
        case "context_attention" | "generation_attention":
            q = (k["batch"], k["q_len"], k["num_heads"], k["head_dim"])
            kv = (k["batch"], k["kv_len"], k["num_kv_heads"], k["head_dim"])
            return [(q, dtype), (kv, dtype), (kv, dtype)], (q, dtype)
        case "elementwise":
            values = ((k["elements"] // depth(k),), dtype)
            return [values] * (2 if k["fn"] in ("add", "mul") else 1), values
        case _:
            shape = ((k["rows"], k["cols"]), dtype)
            return [shape], shape


def footprint(kernel: Kernel) -> float:
    """Bytes of all tensors of a launch."""
    read, written = operands(kernel)
    return sum(
        math.prod(shape) * BYTES[code(dtype)] for shape, dtype in [*read, written]
    )


def copies(kernel: Kernel, board: Board, resident: bool) -> int:
    """Sets of tensors that launches take turns with: one where they shall stay in the
    L2, else as many as fill it twice."""
    fill = math.ceil(2 * board.l2 / footprint(kernel))
    return 1 if resident else max(1, min(fill, _MOST_COPIES))


def kernels(kind: str, board: Board, seed: int) -> Iterator[Kernel]:
    """Kernels of a class that fit the board, each once: listed ones, then draws."""
    listed, draw = _LISTED.get(kind), _DRAWN.get(kind)
    rng = random.Random(f"{seed} {kind}")
    yielded: list[Kernel] = []
    for kernel in listed(board) if listed else ():
        if _fits(kernel, kind, board) and kernel not in yielded:
            yielded.append(kernel)
            yield kernel
    tries = 0
    while draw and tries < _TRIES:
        kernel = draw(rng, board)
        tries += 1
        if _fits(kernel, kind, board) and kernel not in yielded:
            tries = 0
            yielded.append(kernel)
            yield kernel


def check_classes(only: Sequence[str]) -> tuple[str, ...]:
    """Classes of kernels, once known; raises `ValueError` for others."""
    for word in only:
        if word not in CLASSES:
            raise ValueError(
                f"`only` is '{word}'; allowed are {', '.join(CLASSES)}, separated by "
                "commas."
            )
    return tuple(only)


def is_resident(kind: str) -> bool:
    """Whether the tensors of a class are meant to stay in the L2."""
    return kind in ("l2", "launch")


def _fits(kernel: Kernel, kind: str, board: Board) -> bool:
    """Whether the tensors fit the memory, few sets of them overflow the L2 where they
    shall, and a launch is short."""
    size = footprint(kernel)
    away = is_resident(kind) or size * _MOST_COPIES >= 2 * board.l2
    return size <= board.memory and away and _flop(kernel) <= _MOST_FLOP


def _flop(k: Kernel) -> float:
    match k["op"]:
        case "gemm":
            return 2.0 * k["batch"] * k["m"] * k["n"] * k["k"]
        case "context_attention":
            size = k["batch"] * k["num_heads"] * k["head_dim"]
            return 4.0 * size * k["q_len"] * k["kv_len"]
    return 0.0


def _tensor(b: Board) -> list[Kernel]:
    if not b.dtypes:
        return []
    large = [gemm(8192, 8192, 8192, b.half)]
    large += [gemm(8192, 8192, 8192, x) for x in b.dtypes if x != b.half]
    sizes = ((4096, 4096, 4096), (16384, 8192, 4096), (8192, 8192, 1024))
    return large + [gemm(*size, x) for size in sizes for x in b.dtypes]


def _fma(b: Board) -> list[Kernel]:
    sizes = (
        (4096, 4096, 4096),
        (2048, 2048, 2048),
        (8192, 4096, 1024),
        (1024, 8192, 512),
    )
    return [gemm(*size, "fp32") for size in sizes]


def _sfu(b: Board) -> list[Kernel]:
    return [chain(2**values, count) for values in (24, 22) for count in (64, 256, 16)]


def _l2(b: Board) -> list[Kernel]:
    """Copies that read and write a share of the L2."""
    shares = (0.25, 0.125, 0.4, 0.0625, 0.6)
    whole = [int(share * b.l2) // 4 // 4096 * 4096 for share in shares]  # 2 B each way
    return [
        stream(fn, max(size, 4096), b.half) for fn in ("copy", "add") for size in whole
    ]


def _dram(b: Board) -> list[Kernel]:
    """Copies of 2 GiB, read and written together, and less."""
    return [
        *(stream("copy", 2**power, b.half) for power in (29, 27, 28, 25)),
        *(stream("add", 2**power, "fp32") for power in (28, 26)),
        stream("copy", 2**28, "fp32"),
    ]


def _launch(b: Board) -> list[Kernel]:
    return [
        stream("copy", 256, "fp32"),
        stream("copy", 65536, "fp32"),
        gemm(16, 16, 16, b.half),
        {"op": "softmax", "rows": 8, "cols": 128, "dtype": "fp32"},
    ]


def _power(rng: random.Random, low: int, high: int) -> int:
    """A power of two, or in between, from 2^low to 2^high."""
    return int(2 ** rng.randint(low, high - 1) * rng.choice((1, 1, 1.5)))


def _draw_gemm(rng: random.Random, b: Board) -> Kernel:
    types = [b.half] * 3 + [x for x in (*b.dtypes, "fp32") if x != b.half]
    dtype = rng.choice(types)
    if rng.random() < 0.15:
        m, k = rng.choice((128, 256, 512, 1024, 2048)), rng.choice((64, 128, 256))
        wide = dtype if dtype != "fp8" else b.half
        return gemm(m, rng.choice((m, 64, 128)), k, wide, _power(rng, 3, 8))
    m = _power(rng, 4 if dtype == "fp8" else 0, 14)
    m -= m % 16 if m > 16 else 0
    return gemm(m, rng.choice(_WIDTHS), rng.choice(_WIDTHS), dtype)


def _draw_prefill(rng: random.Random, b: Board) -> Kernel:
    length = _power(rng, 7, 14)
    batch = 2 ** rng.randint(0, 5)
    return attention(batch, length, length, rng.choice(_HEADS), b.half)


def _draw_decode(rng: random.Random, b: Board) -> Kernel:
    batch = 2 ** rng.randint(0, 8)
    return attention(batch, 1, _power(rng, 7, 15), rng.choice(_HEADS), b.half)


def _draw_reduction(rng: random.Random, b: Board) -> Kernel:
    op = rng.choice(("softmax", "layernorm", "rmsnorm"))
    shape = {"rows": _power(rng, 6, 17), "cols": _power(rng, 7, 16)}
    return {"op": op, **shape, "dtype": rng.choice((b.half, "fp32"))}


def _draw_map(rng: random.Random, b: Board) -> Kernel:
    return stream(rng.choice(_MAPS), _power(rng, 18, 29), rng.choice((b.half, "fp32")))


_LISTED: Final[dict[str, Callable[[Board], list[Kernel]]]] = {
    "tensor": _tensor,
    "dram": _dram,
    "l2": _l2,
    "fma": _fma,
    "sfu": _sfu,
    "launch": _launch,
}
_DRAWN: Final[dict[str, Callable[[random.Random, Board], Kernel]]] = {
    "gemm": _draw_gemm,
    "prefill": _draw_prefill,
    "decode": _draw_decode,
    "reduction": _draw_reduction,
    "elementwise": _draw_map,
}
CLASSES: Final = (*_LISTED, *_DRAWN)
"""Units one at a time, then the spread of shapes; most telling first."""
