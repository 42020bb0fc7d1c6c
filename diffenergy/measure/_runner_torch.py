"""Kernels from PyTorch: library calls, captured into CUDA graphs."""

import math
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from ._runner import DTYPES, LASTING, Runner, Unsupported
from ._shapes import Kernel, depth, operands

_MOST_NODES: Final = 2000
_CHAIN: Final = """template <typename T> T chain(T x) {
  for (int i = 0; i < DEPTH; ++i) x = __expf(T(-6.2) * x * x) + T(-0.5);
  return x;
}"""
"""The Gauss map, which stays random: a plain exponential would soon repeat itself."""


def torch_on_gpu() -> Runner | None:
    """PyTorch, if it is installed and has a GPU."""
    try:
        import torch  # pyright: ignore[reportMissingImports]
    except ImportError:
        return None
    return TorchRunner(torch, "cuda") if torch.cuda.is_available() else None


class TorchRunner:
    """PyTorch on one device; on a CPU (for tests) without graphs."""

    versions: Mapping[str, str]
    l2: float

    def __init__(self, torch: Any, device: str):
        self._torch, self._device = torch, device
        self.versions = {"torch": torch.__version__}
        self.l2 = math.nan
        if device == "cuda":
            torch.zeros(1, device=device)  # from here on this process is on the board
            properties = torch.cuda.get_device_properties(0)
            self.l2 = float(getattr(properties, "L2_cache_size", 0) or math.nan)
            self.versions |= {
                "cuda": str(torch.version.cuda),
                "cudnn": str(torch.backends.cudnn.version()),
            }

    def prepare(self, kernel: Kernel, copies: int, zeros: bool) -> "TorchRunning":
        torch = self._torch
        if self._device == "cuda":
            torch.cuda.empty_cache()  # the kernel before is gone
        torch.backends.cuda.matmul.allow_tf32 = kernel["dtype"] == "tf32"
        try:
            torch.manual_seed(0)
            tensors = [
                [
                    self._tensor(shape, dtype, zeros)
                    for shape, dtype in operands(kernel)[0]
                ]
                for _ in range(copies)
            ]
            function = _function(torch, kernel, self._device)
            return TorchRunning(torch, function, tensors, self._device == "cuda")
        except Exception as error:  # whatever keeps a library from a kernel
            raise Unsupported.of(error) from None

    def _tensor(self, shape: tuple[int, ...], dtype: str, zeros: bool) -> Any:
        torch, kind = self._torch, getattr(self._torch, DTYPES[dtype])
        if zeros:
            return torch.zeros(shape, device=self._device).to(kind)
        wide = torch.float32 if dtype == "fp8" else kind
        return torch.randn(shape, device=self._device, dtype=wide).to(kind)


class TorchRunning:
    """Launches that take turns with sets of tensors; each set keeps its output."""

    def __init__(
        self,
        torch: Any,
        function: Callable[..., Any],
        sets: list[list[Any]],
        graphs: bool,
    ):
        self._torch, self._function, self._sets = torch, function, sets
        self._outputs: list[Any] = [None] * len(sets)
        self._next = 0
        self._graph, self._nodes = None, 0
        self._wait = torch.cuda.synchronize if graphs else lambda: None
        self._launch(len(sets))  # libraries choose their kernels
        self._wait()
        if graphs:
            self._capture()

    def run(self, launches: int) -> int:
        if self._graph is None:
            self._launch(launches)
            self._wait()
            return launches
        replays = math.ceil(launches / self._nodes)
        for _ in range(replays):
            self._graph.replay()
        self._wait()
        return replays * self._nodes

    def _launch(self, launches: int) -> None:
        with self._torch.inference_mode():
            for _ in range(launches):
                i = self._next
                self._outputs[i] = self._function(*self._sets[i])
                self._next = (i + 1) % len(self._sets)

    def _capture(self) -> None:
        """Puts whole rounds of launches into a graph; what cannot be captured is
        launched one by one."""
        count = len(self._sets)
        begin = time.perf_counter()
        self._launch(count)
        self._wait()
        each = (time.perf_counter() - begin) / count
        nodes = min(LASTING / each, _MOST_NODES)
        nodes = count * max(1, round(nodes / count))
        graph = self._torch.cuda.CUDAGraph()
        try:
            with self._torch.cuda.graph(graph):
                self._launch(nodes)
        except RuntimeError:
            self._wait()
            return
        self._graph, self._nodes = graph, nodes


def _function(torch: Any, kernel: Kernel, device: str) -> Callable[..., Any]:
    """What one launch calls with its operands."""
    match kernel["op"]:
        case "gemm" if kernel["dtype"] == "fp8":
            return _fp8_product(torch, device)
        case "gemm":
            return torch.bmm if kernel["batch"] > 1 else torch.mm
        case "context_attention":
            return _attention(torch, causal=True)
        case "generation_attention":
            return _attention(torch, causal=False)
        case "elementwise":
            return _map(torch, kernel)
        case "softmax":
            return lambda x: torch.softmax(x, -1)
        case "layernorm":
            return lambda x: torch.nn.functional.layer_norm(x, x.shape[-1:])
        case "rmsnorm" if hasattr(torch.ops.aten, "_fused_rms_norm"):
            return lambda x: torch.ops.aten._fused_rms_norm(x, x.shape[-1:], None, 1e-6)
    raise Unsupported(f"this PyTorch has no single kernel for {kernel['op']}")


def _map(torch: Any, kernel: Kernel) -> Callable[..., Any]:
    """Element-wise kernels, a copy too: a plain one may run on a copy engine."""
    if depth(kernel) > 1:
        code = _CHAIN.replace("DEPTH", str(depth(kernel)))
        return torch.cuda.jiterator._create_jit_fn(code)
    functional = torch.nn.functional
    functions = {
        "copy": lambda x: torch.mul(x, 1),
        "scalar_add": lambda x: torch.add(x, 1),
        "relu": functional.relu,
        "gelu": functional.gelu,
        "silu": functional.silu,
    }
    return functions.get(kernel["fn"]) or getattr(torch, kernel["fn"])


def _attention(torch: Any, causal: bool) -> Callable[..., Any]:
    def attend(q: Any, k: Any, v: Any) -> Any:
        heads = (x.transpose(1, 2) for x in (q, k, v))
        grouped = {"enable_gqa": True} if q.shape[2] != k.shape[2] else {}
        return torch.nn.functional.scaled_dot_product_attention(
            *heads, is_causal=causal, **grouped
        )

    return attend


def _fp8_product(torch: Any, device: str) -> Callable[..., Any]:
    one = torch.ones((), device=device)

    def multiply(a: Any, b: Any) -> Any:
        columns = b.view(b.shape[1], b.shape[0]).t()  # the layout it asks for
        return torch._scaled_mm(
            a, columns, scale_a=one, scale_b=one, out_dtype=torch.bfloat16
        )

    return multiply
