"""Kernels of a plan are built and launched by the libraries, here on a CPU."""

import contextlib
import math
import os
import types

import jax
import numpy as np
import pytest

from diffenergy.measure import _runner_jax as runner_jax
from diffenergy.measure import _runner_torch as runner_torch
from diffenergy.measure._bench import find_runner
from diffenergy.measure._runner import Unsupported
from diffenergy.measure._runner_jax import JaxRunner
from diffenergy.measure._runner_torch import TorchRunner, TorchRunning
from diffenergy.measure._shapes import attention, chain, depth, gemm, operands, stream

NORM = {"rows": 8, "cols": 64, "dtype": "bf16"}
KERNELS = [
    *(gemm(32, 16, 64, dtype) for dtype in ("bf16", "fp16", "fp32", "tf32", "fp8")),
    gemm(16, 16, 32, "bf16", 4),
    stream("copy", 512, "bf16"), stream("add", 512, "fp32"),
    stream("gelu", 512, "bf16"), chain(64, 8),
    attention(2, 16, 16, (4, 2, 32), "bf16"), attention(2, 1, 32, (4, 2, 32), "bf16"),
    *({"op": op, **NORM} for op in ("softmax", "layernorm", "rmsnorm")),
]  # fmt: skip
ONE_OF_EACH = (0, 5, 7, 9, 11, 12)
"""Of products, batched ones, streams, chains, attention and reductions."""


def name(kernel):
    return "-".join(str(kernel.get(x, "")) for x in ("op", "fn", "dtype", "batch"))


@pytest.fixture
def runner():
    return JaxRunner(jax.devices("cpu")[0])


@pytest.mark.parametrize(
    "kernel",
    [
        x if i in ONE_OF_EACH else pytest.param(x, marks=pytest.mark.slow)
        for i, x in enumerate(KERNELS)
    ],
    ids=name,
)
def test_jax_launches_as_often_as_it_says(runner, kernel, monkeypatch):
    monkeypatch.setattr(runner_jax, "_MOST_LAUNCHES", 0)
    shapes = []
    function = runner_jax._function(kernel)

    def counted(*options):
        result = function(*options)
        shapes.append(result.shape)
        return result

    monkeypatch.setattr(runner_jax, "_function", lambda kernel: counted)
    launched = runner.prepare(kernel, 3, False).run(7)
    assert launched >= 7 and launched % 3 == 0
    assert set(shapes) == {operands(kernel)[1][0]}


@pytest.mark.parametrize("kernel", KERNELS, ids=name)
def test_torch_launches_what_it_is_told(kernel):
    runner = TorchRunner(pytest.importorskip("torch"), "cpu")
    if depth(kernel) > 1:
        with pytest.raises(Unsupported):
            runner.prepare(kernel, 1, False)
        return
    assert runner.prepare(kernel, 3, False).run(7) == 7


class Graphs:
    """PyTorch as far as graphs go: what is captured is launched again by `replay`."""

    def __init__(self, works=True):
        self.works, self.launched, self.captured, self.waits = works, [], [], 0
        self.cuda = types.SimpleNamespace(
            synchronize=self.wait, CUDAGraph=lambda: self, graph=self.graph
        )
        self.inference_mode = contextlib.nullcontext

    def wait(self):
        self.waits += 1

    @contextlib.contextmanager
    def graph(self, graph):
        before, self.launched = self.launched, self.captured
        yield
        self.launched = before
        if not self.works:
            raise RuntimeError("operation not permitted when stream is capturing")

    def replay(self):
        self.launched += self.captured

    def running(self, copies):
        sets = [[number] for number in range(copies)]
        result = TorchRunning(self, lambda x: self.launched.append(x), sets, True)
        self.launched.clear()
        return result


@pytest.mark.parametrize("copies, wanted", [(3, 10), (1, 7), (5000, 5001)])
def test_graphs_hold_whole_rounds(copies, wanted, monkeypatch):
    monkeypatch.setattr(runner_torch, "_MOST_NODES", 64)
    torch = Graphs()
    launched = torch.running(copies).run(wanted)
    nodes = len(torch.captured)
    assert nodes % copies == 0 and nodes <= max(64, copies)
    assert launched == len(torch.launched) and wanted <= launched < wanted + nodes
    assert torch.launched[: copies + 1] == [*range(copies), 0]


def test_what_cannot_be_captured_is_launched_one_by_one():
    torch = Graphs(works=False)
    assert torch.running(2).run(5) == len(torch.launched) == 5 and torch.waits > 0


@pytest.mark.parametrize("zeros", [True, False])
def test_operands_are_random_or_zeros(runner, zeros):
    running = runner.prepare(gemm(64, 64, 64, "bf16"), 2, zeros)
    values = np.asarray(running._sets, dtype=float)
    if zeros:
        assert not values.any()
    else:
        assert abs(values.mean()) < 0.05 and abs(values.std() - 1) < 0.05
        assert not np.array_equal(values[0], values[1])


def test_chains_stay_random():
    function = runner_jax._function(chain(4096, 64))
    values = np.asarray(function(jax.random.normal(jax.random.key(0), (4096,))))
    assert values.std() > 0.2 and len(np.unique(values)) > 4000


def test_what_cannot_run_says_why(runner, monkeypatch):
    def broken(kernel):
        raise NotImplementedError("no such kernel\nat all")

    monkeypatch.setattr(runner_jax, "_function", broken)
    with pytest.raises(Unsupported, match="^no such kernel$"):
        runner.prepare(KERNELS[0], 1, False)


def test_the_board_is_chosen_by_its_name(runner, monkeypatch):
    """Without a GPU the packages are named."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setattr(runner_torch, "torch_on_gpu", lambda: None)
    monkeypatch.setattr(runner_jax, "jax_on_gpu", lambda: None)
    with pytest.raises(ValueError, match="pip install torch"):
        find_runner("GPU-1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    monkeypatch.setattr(runner_jax, "jax_on_gpu", lambda: runner)
    assert find_runner("GPU-1") is runner and math.isnan(runner.l2)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "GPU-1"
