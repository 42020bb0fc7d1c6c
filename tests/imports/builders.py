"""Traces made by hand, of every format: few kernels whose sums are known."""

import gzip
import json
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest


def shared(name: str) -> str:
    """Path of a shared trace; the test is skipped without it."""
    path = Path(__file__).parents[2] / "../shared/data/traces" / name
    if not path.exists():
        pytest.skip("the shared traces are not here")
    return str(path)


H100 = "NVIDIA H100 80GB HBM3"
GEMM = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_execute"
SOFTMAX = "void (anonymous namespace)::softmax_warp_forward<c10::BFloat16>"
ADD = (
    "void at::native::vectorized_elementwise_kernel<4, "
    "at::native::CUDAFunctor_add<c10::BFloat16>, std::array<char*, 3ul> >"
)
FLASH = "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64> >"
BF16 = "c10::BFloat16"


def operator(
    name: str,
    start: float,
    duration: float,
    dims: list[Any],
    values: list[str] | None = None,
    kind: str = BF16,
) -> dict[str, Any]:
    """A call on thread 1; every tensor has the type `kind`."""
    types = [kind if d else "Scalar" for d in dims]
    concrete = {"Concrete Inputs": values} if values else {}
    return {
        "ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": start,
        "dur": duration,
        "args": {"Input Dims": dims, "Input type": types, **concrete},
    }  # fmt: skip


def launch(correlation: int, when: float) -> dict[str, Any]:
    """The host's launch of a kernel."""
    return {
        "ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1,
        "tid": 1, "ts": when, "dur": 1, "args": {"correlation": correlation},
    }  # fmt: skip


def kernel(
    name: str,
    correlation: int,
    start: float,
    duration: float,
    grid: tuple[int, ...] = (1, 1, 1),
    block: tuple[int, ...] = (128, 1, 1),
    stream: int = 7,
    device: int = 0,
    **more: Any,
) -> dict[str, Any]:
    """A kernel on the GPU."""
    return {
        "ph": "X", "cat": "kernel", "name": name, "pid": device, "tid": stream,
        "ts": start, "dur": duration,
        "args": {
            "device": device, "stream": stream, "correlation": correlation,
            "grid": list(grid), "block": list(block), "shared memory": 0, **more,
        },
    }  # fmt: skip


def launched(*calls: tuple[Any, ...]) -> list[dict[str, Any]]:
    """Launches and their kernels: (when, name, duration, blocks [1]) of each."""
    events = []
    for i, (when, name, duration, *grid) in enumerate(calls):
        start = 1000.0 + 200 * i
        events += [
            launch(i, when), kernel(name, i, start, duration, (*grid, 1, 1, 1)[:3])
        ]  # fmt: skip
    return events


EVENTS = [
    operator("aten::linear", 0, 40, [[4, 32, 64], [128, 64], [128]]),
    operator("aten::addmm", 5, 30, [[128], [128, 64], [64, 128], [], []]),
    launch(1, 10), kernel(GEMM, 1, 100, 10.0),
    operator("aten::_softmax", 50, 10, [[4, 8, 32, 32], [], []], ["", "-1", "False"]),
    launch(2, 55), kernel(SOFTMAX, 2, 112, 5.0, (512, 1, 1)),
    operator("aten::add", 70, 10, [[16384], [16384], []]), launch(3, 75),
    kernel(ADD, 3, 118, 2.0, (32, 1, 1)), kernel(ADD, 99, 121, 4.0, (32, 1, 1)),
    kernel("my_own_kernel", 98, 124, 3.0, stream=9),
]  # fmt: skip
"""gemm 128 x 128 x 64, softmax of 1,024 rows of 32, add of 16,384; the fourth is a twin
of the third, on the fifth's time for 1 us: 24 us together, 23 of them busy."""
ABOUT = {"deviceProperties": [{"id": 0, "name": H100}]}


def trace(folder: Path, events: list[Any] = EVENTS, name: str = "t.json", **more: Any):
    """A Kineto trace, packed if its name says so."""
    text = json.dumps({**ABOUT, **more, "traceEvents": events}).encode()
    path = folder / name
    path.write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    return str(path)


def nsys(folder: Path, rows: list[tuple[str, int, int]] | None = None) -> str:
    """An SQLite export: kernels as (name, start, end) in ns."""
    path = folder / "report.sqlite"
    base = sqlite3.connect(path)
    base.execute("create table StringIds(id integer primary key, value text)")
    base.execute(
        "create table CUPTI_ACTIVITY_KIND_KERNEL(start integer, end integer, deviceId "
        "integer, streamId integer, demangledName integer, gridX integer, gridY "
        "integer, gridZ integer, blockX integer, blockY integer, blockZ integer)"
    )
    base.execute("create table TARGET_INFO_GPU(id integer, name text)")
    base.execute("insert into TARGET_INFO_GPU values (0, ?)", (H100,))
    kernels = rows if rows is not None else [(GEMM, 0, 10_000), (ADD, 11_000, 13_000)]
    for number, (name, start, end) in enumerate(kernels):
        base.execute("insert into StringIds values (?, ?)", (number, name))
        base.execute(
            "insert into CUPTI_ACTIVITY_KIND_KERNEL values (?,?,0,7,?,32,1,1,128,1,1)",
            (start, end, number),
        )
    base.commit()
    base.close()
    return str(path)


SUMS = f"""Generating SQLite file report.sqlite
Time (%),Total Time (ns),Instances,Avg (ns),Name
83.3,20000,2,10000.0,{GEMM}
16.7,4000,2,2000.0,"{ADD}"
"""
COUNTERS = f'''==PROF== Connected to process 1
"ID","Process ID","Host Name","Kernel Name","Stream","Block Size","Grid Size","Metric Name","Metric Unit","Metric Value"
"0","1","secret-host","{GEMM}","7","(384, 1, 1)","(30, 4, 1)","Duration","usecond","1,010.5"
"0","1","secret-host","{GEMM}","7","(384, 1, 1)","(30, 4, 1)","DRAM Throughput","%","40"
"0","1","secret-host","{GEMM}","7","(384, 1, 1)","(30, 4, 1)","SM Frequency","cycle/nsecond","1.5"
"1","1","secret-host","{SOFTMAX}","7","(128, 1, 1)","(512, 1, 1)","Duration","nsecond","5000"
'''  # noqa: E501


def varint(value: int) -> bytes:
    """A number as protobuf writes it."""
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def field(number: int, value: int | bytes) -> bytes:
    """A field of a message."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def chakra(folder: Path) -> str:
    """A Chakra trace: an operator, its kernel of 10 us, an all-reduce of 20 us, a copy
    of 4 us, a convolution in two kernels of 3 and 30 us that points to the addition."""
    cpu = field(10, field(1, b"is_cpu_op") + field(27, 1))
    gpu = field(10, field(1, b"is_cpu_op") + field(27, 0))
    shapes = field(2, b"[[128], [128, 64], [64, 128], [], []]")
    types = field(3, b"['Tensor(float)', 'Tensor(float)', 'Tensor(float)', 'Int']")
    lists = b"'GenericList[Int,Int]', " * 3
    images = (
        field(1, b"[(1, 2), (3, 4), [1, 1], [2, 2], [1, 1], 1, True, False, True]")
        + field(2, b"[[8, 64, 56, 56], [128, 64, 3, 3], [[], []], [[], []], [[], []], "
                b"[], [], [], []]")
        + field(3, b"['Tensor(float)', 'Tensor(float)', " + lists
                + b"'Int', 'Bool', 'Bool', 'Bool']")
    )  # fmt: skip
    size = field(10, field(1, b"comm_size") + field(9, 4096))
    kind = field(10, field(1, b"comm_type") + field(9, 0))
    nodes = [
        field(2, field(1, b"schema") + field(29, b"1.0.1")),
        field(1, 1) + field(2, b"aten::addmm(0)") + field(3, 4) + cpu
        + field(8, shapes + types),
        field(1, 2) + field(2, b"ampere_sgemm_128x64_tn") + field(3, 4)
        + field(4, varint(1)) + field(7, 10) + field(8, shapes + types) + gpu,
        field(1, 3) + field(2, b"ncclKernel_AllReduce_RING_LL_Sum_float") + field(3, 7)
        + field(7, 20) + gpu + size + kind,
        field(1, 4) + field(2, b"Memcpy DtoD (Device -> Device)") + field(7, 4) + gpu,
        *(
            field(1, number) + field(2, name) + field(4, varint(1)) + field(7, time)
            + field(8, images) + gpu
            for number, name, time in ((5, b"winogradForwardData4x4", 3),
                                       (6, b"volta_sgemm_128x64_nn", 30))
        ),
    ]  # fmt: skip
    path = folder / "rank.et"
    path.write_bytes(b"".join(varint(len(x)) + x for x in nodes))
    return str(path)


def gflop(kernels: Sequence[Mapping[str, Any]]) -> float:
    """GFLOP of products, convolutions, attention without a mask's saving, and rows
    that state theirs."""
    return sum(_flop(k) * k["count"] for k in kernels) / 1e9


def _flop(k: Mapping[str, Any]) -> float:
    match k["op"]:
        case "gemm":
            return 2 * k["batch"] * k["m"] * k["n"] * k["k"]
        case "conv2d":
            span = k["input_hw"] + 2 * k["padding"] - k["kernel_size"]
            out = span // k["stride"] + 1
            taps = k["in_channels"] // k["groups"] * k["kernel_size"] ** 2
            return 2 * k["images"] * out**2 * k["out_channels"] * taps
        case "context_attention" | "generation_attention":
            pairs = k["batch"] * k["num_heads"] * k["q_len"] * k["kv_len"]
            return 2 * pairs * (k["head_dim"] + k["v_head_dim"])
    return k.get("flop", 0.0)
