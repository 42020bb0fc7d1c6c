"""Kernels that pass over memory, and a collective."""

import pytest

from diffenergy.hardware import load_gpu
from diffenergy.kernels import collective
from diffenergy.kernels._shared import stream

from .demands import A100, COLD, WARM, check, demand_of, found


@pytest.mark.parametrize(
    ("op", "cols", "issue", "sfu", "ctas", "resident"),
    [
        ("softmax", 1024, 12, 1, 75, 8),  # four rows a CTA of 256 threads
        ("layernorm", 2048, 12, 0, 300, 4),
        ("rmsnorm", 256, 8, 0, 75, 16),  # at least 128 threads
        ("rmsnorm", 16384, 8, 0, 300, 2),  # at most 1,024
    ],
)
def test_reductions(sample, phases, op, cols, issue, sfu, ctas, resident):
    row = sample(op, rows=300, cols=cols, dtype="bf16")
    shape = found(phases, stream.Stream, row)
    c = dict(reduction_reads=0.5, reduction_latency=3.0, stream_feed=70.0)
    size = 300 * cols * 2
    check(
        demand_of(stream, shape, A100, **c, **COLD),
        issue=issue * 300 * cols,
        sfu=sfu * 300 * cols,
        l2=2 * size + 0.5 * size,
        dram=2 * size,
        feed=70,
        ctas=ctas,
        resident=resident,
        path_seconds=3 * float(A100.dram_latency),
        quantization=0,
    )


def test_an_elementwise_kernel(sample, phases):
    row = sample("elementwise", fn="gelu", elements=1e6, dtype="bf16", zero_share=0.5)
    shape = found(phases, stream.Stream, row)
    z = 2.0  # 4 MB over half of that
    c = dict(l2_producer_share=2e6 / float(A100.l2_capacity), l2_sharpness=3.0)
    check(
        demand_of(stream, shape, A100, **c, zero_saving=0.4),
        issue=4e6,
        sfu=1e6,
        l2=4e6,
        dram=4e6 * z**3 / (1 + z**3),
        ctas=4e6 / 16384,
        resident=1,
        path_seconds=0,
        activity=0.6,
    )


def test_a_gather_and_a_depthwise_layer(sample, phases):
    shape = found(phases, stream.Stream, sample("gather", rows=8, cols=512))
    check(demand_of(stream, shape, A100, **WARM), issue=4 * 8 * 512, dram=4 * 8 * 512)
    row = sample(
        "conv2d", images=4, in_channels=96, out_channels=96, groups=96, input_hw=56,
        kernel_size=3, padding=1, zero_share=0.5,
    )  # fmt: skip
    shape = found(phases, stream.Stream, row)
    c = dict(depthwise_efficiency=0.3, zero_saving=0.4)
    check(demand_of(stream, shape, A100, **c), fma_efficiency=0.3, activity=0.6)


def test_a_collective(sample, phases):
    """A ring of 8 sends 7/8 of what is gathered; memory reads and writes as much."""
    row = sample("collective", collective="all_gather", bytes=1e9, num_gpus=8)
    shape = found(phases, collective.Collective, row)
    got = demand_of(collective, shape, load_gpu("a100-sxm-80gb"))
    best = int((got.path_seconds + 1e9 * got.illegal)[0].argmin())
    sent = 7 / 8 * 1e9
    link, dram, l2, ctas = (
        float(getattr(got, name)[0, best]) for name in ("link", "dram", "l2", "ctas")
    )
    assert (link, dram, l2, ctas) == pytest.approx((sent, 2 * sent, 2 * sent, 24))
