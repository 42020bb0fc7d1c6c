"""Gradients of fused attention against its forward kernel."""

import jax
import pytest

from diffenergy.corrections import Corrections
from diffenergy.estimator import _estimate as estimator
from diffenergy.hardware import load_gpu
from diffenergy.hardware._spec import OperatingPoint
from diffenergy.kernels import attention
from diffenergy.kernels.attention import attention_backward
from diffenergy.kernels.stream import Stream

ONCE = estimator.compiler_options(once=True)
SHAPE = dict(
    batch=4, q_len=8192, kv_len=8192, num_heads=32, num_kv_heads=8, head_dim=128
)


@pytest.fixture(scope="module")
def work(phases, sample):
    """Forward kernel and backward kernel, a phase each."""
    ops = ("context_attention", "attention_backward")
    return phases(*([sample(op, **SHAPE)] for op in ops))


def shape_of(work, kind):
    (found,) = [shape for shape in work.shapes if type(shape) is kind]
    return found


@pytest.mark.slow
def test_five_products_where_the_forward_kernel_has_two(work):
    gpu, c = load_gpu("h100-sxm"), Corrections()
    there = attention.demand(shape_of(work, attention.Prefill), gpu, c)
    back = attention_backward.demand(
        shape_of(work, attention_backward.Backward), gpu, c
    )
    assert float(back.tensor[0, 0] / there.tensor[0, 0]) == pytest.approx(2.5)
    assert float(back.sfu[0, 0]) == float(there.sfu[0, 0])  # the scores' exp again
    queries, keys = 4 * 32 * 8192 * 128, 2 * 4 * 8 * 8192 * 128
    # q, dO, k and v read, dQ in fp32, dK and dV written: more than L2 holds
    assert float(back.dram[0, 0]) == pytest.approx(2 * (2 * queries + keys), rel=0.05)
    stored = 4 * queries + 2 * keys
    assert float(back.store_dram[0, 0]) == pytest.approx(stored, rel=0.05)


def test_what_runs_around_it(work):
    """O and dO read, a row's sum kept; zeros of dQ written, dQ read and rounded."""
    around = shape_of(work, Stream)
    queries = 4 * 32 * 8192 * 128
    assert float(around.read[0]) == queries * (2 + 2 + 4)
    assert float(around.write[0]) == queries * (4 + 2)


@pytest.mark.parametrize(
    "name", ["h100-sxm", pytest.param("a100-sxm-80gb", marks=pytest.mark.slow)]
)
@pytest.mark.slow
def test_long_sequences_take_as_long_as_the_rates_say(work, name):
    """2.5 times the products at 63 / 73 of the rate, plus a stream of some percent."""
    gpu = load_gpu(name)
    point = OperatingPoint(gpu.sm_clock_max, gpu.mem_clock, 1e9, 50.0)
    run = jax.jit(estimator.estimate_workload, compiler_options=ONCE)
    there, back = run(work, gpu, point, Corrections()).phases.time
    assert 2.6 < float(back / there) < 3.2


def test_no_framework_writes_a_cache_of_gradients(sample, phases):
    row = sample("attention_backward", framework="vllm/0.24.0", **SHAPE)
    plain = sample("attention_backward", **SHAPE)
    there, here = phases([plain]), phases([row])
    assert [type(x) for x in there.shapes] == [type(x) for x in here.shapes]
    assert shape_of(here, Stream).read[0] == shape_of(there, Stream).read[0]
