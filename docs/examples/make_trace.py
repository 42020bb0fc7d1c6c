"""Write `trace.json`: a made-up profiler trace of a vision transformer's layers.

python docs/examples/make_trace.py        (in the root of the repository)

Operators, kernels and launches are those of an eager PyTorch pass over 8 images of 577
tokens; each kernel lasts as long as this model says, with scatter. Nobody measured it.
"""

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import diffenergy as de

HERE = Path(__file__).parent
GPU = "h100-sxm"
NAME = "NVIDIA H100 80GB HBM3"
BATCH, TOKENS, WIDTH, HEADS, INNER, LAYERS = 8, 577, 768, 12, 3072, 2
ROWS, DEPTH = BATCH * TOKENS, WIDTH // HEADS
GEMM = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_cublas"
ODD = "void cutlass::Kernel2<cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_nn_align1>"
NORM = "void at::native::vectorized_layer_norm_kernel<c10::BFloat16, float>"
SOFT = "void at::native::softmax_warp_forward<c10::BFloat16, c10::BFloat16, float, 10>"
COPY = (
    "void at::native::elementwise_kernel<128, 4, "
    "at::native::direct_copy_kernel_cuda(c10::BFloat16)>"
)
ADD = (
    "void at::native::vectorized_elementwise_kernel<4, "
    "at::native::CUDAFunctor_add<c10::BFloat16>>"
)
GELU = (
    "void at::native::vectorized_elementwise_kernel<4, "
    "at::native::GeluCUDAKernelImpl<c10::BFloat16>>"
)
HEADED = [BATCH, HEADS, TOKENS, DEPTH]
STREAM = [BATCH, TOKENS, WIDTH]


def linear(n: int, k: int) -> tuple[str, list[Any], list[str], str]:
    """`addmm` of all tokens."""
    return "aten::addmm", [[n], [ROWS, k], [k, n], [], []], [], GEMM


def layer() -> list[tuple[str, list[Any], list[str], str]]:
    """Operators of a layer: name, sizes, values, kernel."""
    norm = (
        "aten::native_layer_norm", [STREAM, [], [WIDTH], [WIDTH], []],
        ["", f"[{WIDTH}]", "", "", "1e-06"], NORM,
    )  # fmt: skip
    copy = "aten::copy_", [HEADED, HEADED, []], ["", "", "False"], COPY
    add = "aten::add", [STREAM, STREAM, []], ["", "", "1"], ADD
    many = BATCH * HEADS
    scores, values = [many, TOKENS, DEPTH], [many, TOKENS, TOKENS]
    return [
        norm, *[linear(WIDTH, WIDTH)] * 3, *[copy] * 3,
        ("aten::bmm", [scores, [many, DEPTH, TOKENS]], [], ODD),
        ("aten::_softmax", [[BATCH, HEADS, TOKENS, TOKENS], [], []],
         ["", "-1", "False"], SOFT),
        ("aten::bmm", [values, scores], [], ODD),
        copy, linear(WIDTH, WIDTH), add, norm, linear(INNER, WIDTH),
        ("aten::gelu", [[BATCH, TOKENS, INNER], []], ["", "none"], GELU),
        linear(WIDTH, INNER), add,
    ]  # fmt: skip


def events(lasts: list[float]) -> list[dict[str, Any]]:
    """Events of the calls, each 20 us after the last on the host; `lasts`: us."""
    result: list[dict[str, Any]] = []
    end = 1000.0
    for call, (name, dims, values, kernel) in enumerate(layer() * LAYERS):
        at = 20.0 * call
        types = ["c10::BFloat16" if d else "Scalar" for d in dims]
        threads = {ADD: 512, GELU: 512, COPY: 512}.get(kernel)
        size = int(np.prod(dims[0])) if threads else 0
        grid = [-(-size // threads) if threads else 132, 1, 1]
        end = max(end, 1000.0 + at) + 1.0
        begin, end = end, end + lasts[call]
        about = {"Input Dims": dims, "Input type": types, "Concrete Inputs": values}
        common = {"ph": "X", "pid": 1, "tid": 1}
        placed = {"device": 0, "stream": 7, "grid": grid, "block": [128, 1, 1]}
        result += [
            {**common, "cat": "cpu_op", "name": name, "ts": at, "dur": 15,
             "args": about},
            {**common, "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": at + 8,
             "dur": 4, "args": {"correlation": call}},
            {**common, "cat": "kernel", "name": kernel, "ts": round(begin, 3),
             "dur": lasts[call], "args": {"correlation": call, **placed}},
        ]  # fmt: skip
    return result


def main() -> None:
    """Asks the model for the times and writes the trace."""
    count = len(layer()) * LAYERS
    about = {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": NAME}]}
    with tempfile.TemporaryDirectory() as folder:
        draft = Path(folder) / "draft.json"
        calls = {"traceEvents": events([float(i + 1) for i in range(count)])}
        draft.write_text(json.dumps(about | calls))
        rows = de.measurements.evaluate_trace(str(draft)).kernels
    known = {
        (row["op"], *(row.get(x) for x in ("m", "n", "k", "fn"))): row["predicted_us"]
        for row in rows
    }
    with tempfile.TemporaryDirectory() as folder:
        each = []
        for call in range(len(layer())):
            part = Path(folder) / "one.json"
            one = events([1.0] * count)[3 * call : 3 * call + 3]
            part.write_text(json.dumps(about | {"traceEvents": one}))
            [row] = de.import_listing(str(part))[0].kernels
            each.append(known[row["op"], *(row.get(x) for x in ("m", "n", "k", "fn"))])
    scatter = np.exp(0.06 * np.random.default_rng(0).standard_normal(count))
    lasts = [round(float(x), 2) for x in np.array(each * LAYERS) * scatter]
    text = json.dumps(about | {"traceEvents": events(lasts)})
    (HERE / "trace.json").write_text(text.replace("}, {", "},\n{") + "\n")


if __name__ == "__main__":
    main()
