"""Kernels that pass over memory, and a collective."""

import dataclasses

import jax.numpy as jnp
import pytest

from diffenergy.hardware import load_gpu
from diffenergy.kernels import activity, collective, stream

from .demands import A100, A100_SMS, COLD, WARM, check, demand_of, shape_of


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
    shape = shape_of(phases, stream.Stream, row)
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
    shape = shape_of(phases, stream.Stream, row)
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
        activity=1 - 0.4 * 0.5**2.7,
    )


def test_activations_of_8_bit_products_are_quantised(sample, phases):
    """Reads 2 B and writes 1 B an element, one CTA a token, which looks twice."""
    row = sample("gemm", m=300, n=512, k=2048, dtype="fp8")
    shape = shape_of(phases, stream.Stream, row)
    elements = 300 * 2048
    check(
        demand_of(stream, shape, load_gpu("h200-sxm"), reduction_reads=0.5),
        issue=8 * elements,
        l2=3 * elements + 0.5 * 2 * elements,
        ctas=300,
    )


def test_a_gather_and_a_depthwise_layer(sample, phases):
    shape = shape_of(phases, stream.Stream, sample("gather", rows=8, cols=512))
    check(demand_of(stream, shape, A100, **WARM), issue=4 * 8 * 512, dram=4 * 8 * 512)
    row = sample(
        "conv2d", images=4, in_channels=96, out_channels=96, groups=96, input_hw=56,
        kernel_size=3, padding=1, zero_share=0.5,
    )  # fmt: skip
    shape = shape_of(phases, stream.Stream, row)
    c = dict(depthwise_efficiency=0.3, zero_saving=0.4)
    check(
        demand_of(stream, shape, A100, **c),
        fma_efficiency=0.3,
        activity=1 - 0.4 * 0.5**2.7,
    )


def test_a_collective(sample, phases):
    """A ring of 8 sends 7/8 of what is gathered; memory reads and writes as much."""
    row = sample("collective", collective="all_gather", bytes=1e9, num_gpus=8)
    shape = shape_of(phases, collective.Collective, row)
    got = demand_of(collective, shape, load_gpu("a100-sxm-80gb"))
    best = int((got.path_seconds + 1e9 * got.illegal)[0].argmin())
    sent = 7 / 8 * 1e9
    link, dram, l2, ctas = (
        float(getattr(got, name)[0, best]) for name in ("link", "dram", "l2", "ctas")
    )
    assert (link, dram, l2, ctas) == pytest.approx((sent, 2 * sent, 2 * sent, 24))


@pytest.mark.parametrize("clocks", [(0.0, 0.0), (900.0, 800.0)])
def test_an_activity(clocks):
    """Shares of the rates over the reference time; half of DRAM's, at full clocks."""
    sm, mem = (
        x * 1e6 or float(y)
        for x, y in zip(clocks, (A100.sm_clock_max, A100.mem_clock), strict=True)
    )
    shares = dict(fma=0.1, fp64=0.2, issue=0.3, branch=0.4, sfu=0.05, smem=0.15)
    shares["l2"] = 0.25
    shape = activity.Activity(
        sm_active=[0.5], dram=[0.0], time=[2.0], power=[0.0],
        sm_clock=[clocks[0] * 1e6], mem_clock=[clocks[1] * 1e6],
        **{name: [value] for name, value in shares.items()},
    )  # fmt: skip
    c = dict(activity_fp64=2.0, activity_branch=3.0, dram_efficiency=0.9)
    c |= dict(memory_knee=0.7, activity_dram=1.1, activity_sharpness=2.5)
    cycles = 2 * sm
    check(
        demand_of(activity, shape, A100, **c),
        fma=(0.1 + 2 * 0.2) * float(A100.fma_flop_per_cycle_fp32) * A100_SMS * cycles,
        issue=(0.3 + 3 * 0.4) * float(A100.issue_slots_per_cycle) * A100_SMS * cycles,
        sfu=0.05 * float(A100.sfu_ops_per_cycle) * A100_SMS * cycles,
        smem=0.15 * float(A100.smem_bytes_per_cycle) * A100_SMS * cycles,
        l2=0.25 * float(A100.l2_bytes_per_cycle) * cycles,
        dram=0,
        ctas=A100_SMS / 2,
        path_cycles=cycles,
        launches=0,
        other_energy=0,
    )
    busy = dataclasses.replace(shape, dram=jnp.asarray([0.5]))
    got = demand_of(activity, busy, A100, **c)
    follows = 0.7 * float(A100.sm_clock_max)
    relative = mem / float(A100.mem_clock)
    share = ((1 / relative) ** 3 + (follows / sm) ** (1.5 * 3)) ** (-1 / 3)
    load = 0.5 * relative / (1.1 * share)
    bound, p = load * (1 + load**12) ** (-1 / 12), 2.5
    reached = 0.9 * float(A100.dram_bandwidth)
    check(
        got,
        dram=bound * share * reached * 2,
        path_cycles=(1 - bound**p) ** (1 / p) * cycles,
        flow=reached / (A100_SMS / 2 * follows**1.5),
        flow_rise=0.5,
        sharpness_memory=p,
    )


@pytest.mark.parametrize(
    ("op", "fields", "issue", "sfu", "read", "written"),
    [
        ("gather", dict(rows=5, cols=32, dtype="fp32"), 4, 0, 4, 4),
        ("softmax", dict(rows=5, cols=32, dtype="fp32"), 12, 1, 4, 4),
        ("layernorm", dict(rows=5, cols=32, dtype="fp16"), 12, 0, 2, 2),
        ("layernorm", dict(rows=5, cols=32, dtype="fp16", residual=True), 12, 0, 4, 4),
        ("rmsnorm", dict(rows=5, cols=32, dtype="bf16", residual=True), 8, 0, 4, 4),
        *(
            ("elementwise", dict(fn=fn, elements=160, dtype="bf16"), 4, 1, 2, 2)
            for fn in ("gelu", "tanh", "exp", "pow")
        ),
        ("elementwise", dict(fn="scalar_mul", elements=160, dtype="bf16"), 4, 0, 2, 2),
        ("elementwise", dict(fn="nobody knows", elements=160, dtype="fp16"),
         4, 0, 2, 2),
        ("elementwise", dict(fn="pointwise_add", elements=160, dtype="bf16"),
         4, 0, 4, 2),
        ("elementwise", dict(fn="silu_mul", elements=160, dtype="bf16"), 4, 1, 4, 2),
        ("elementwise", dict(fn="cast", elements=160, dtype="bf16", out_dtype="fp8"),
         4, 0, 2, 1),
        ("elementwise", dict(fn="typecast_to_fp32", elements=160, dtype="bf16"),
         4, 0, 2, 4),
        ("elementwise",
         dict(fn="adam", elements=160, dtype="fp32", reads=4, writes=3), 4, 0, 16, 12),
        ("elementwise", dict(fn="gelu_mul", elements=160, dtype="fp32"), 4, 1, 8, 4),
        ("elementwise", dict(fn="typecast_to_fp16", elements=160, dtype="fp32"),
         4, 0, 4, 2),
    ],
)  # fmt: skip
def test_bytes_and_instructions_of_160_elements(
    sample, phases, op, fields, issue, sfu, read, written
):
    shape = shape_of(phases, stream.Stream, sample(op, **fields))
    got = {name: float(getattr(shape, name)[0]) for name in ("read", "write", "issue")}
    assert got == {"read": 160 * read, "write": 160 * written, "issue": 160 * issue}
    assert float(shape.sfu[0]) == 160 * sfu
