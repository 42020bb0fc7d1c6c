"""What holds for any kernel on any hardware: finite, bounded by peaks, monotone.

Batches have one fixed structure (as many rows of every op, the same types and given
tiles by position), so that nothing recompiles between examples.
"""

import dataclasses
import functools
from collections.abc import Iterator
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from jax import Array

from diffenergy import kernels
from diffenergy.corrections import Corrections
from diffenergy.estimator import _estimate as estimator
from diffenergy.hardware import GpuSpec, OperatingPoint, load_gpu
from diffenergy.kernels import REQUIRED
from diffenergy.kernels.activity import Activity
from diffenergy.kernels.traced import Traced
from diffenergy.physics import COMPONENTS, LINK_KINDS, timing
from diffenergy.workload import Listing, Workload, assemble, normalise_kernel


def constants(**values: Any) -> Corrections:
    """Corrections with these values, the rest at their priors."""
    return Corrections(**values)


GPUS = ("a100-pcie-40gb", "a10", "v100-sxm-32gb", "l40s", "h100-sxm", "b200-sxm")
VARIED = (
    "num_sms", "tensor_flop_per_cycle_bf16", "fma_flop_per_cycle_fp32",
    "smem_bytes_per_cycle", "smem_per_sm", "l2_capacity", "l2_bytes_per_cycle",
    "dram_bandwidth", "dram_latency", "sm_clock_max", "tdp", "thermal_resistance",
)  # fmt: skip
C = constants(decode_exp=1.0)  # at least one exponential for each score
DTYPES = ("bf16", "fp16", "fp32", "tf32", "fp8", "fp8_block", "int8", "nvfp4", "mxfp8")
STORED = ("int4", "mxfp4", "fp8", "bf16")
TILES = (16, 32, 64, 128, 256)
ONCE = estimator.compiler_options(once=True)

CONVOLUTIONS = ("conv2d", "conv2d_input_grad", "conv2d_weight_grad")

# largest value of each size; smallest is 1
LARGEST = {
    "batch": 64, "m": 16384, "n": 16384, "k": 16384, "images": 64, "in_channels": 1024,
    "out_channels": 1024, "input_hw": 224, "elements": 10**9, "rows": 10**5,
    "cols": 10**5, "num_tokens": 8192, "hidden_size": 8192, "inter_size": 8192,
    "q_len": 8192, "kv_len": 100_000, "time_ref_us": 10**6, "bytes": 10**9,
    "num_gpus": 16,
}  # fmt: skip
GROWN = {
    **dict.fromkeys(("gemm", "clblast_gemm"), ("batch", "m", "n", "k")),
    **dict.fromkeys(CONVOLUTIONS, ("images", "out_channels", "in_channels")),
    "context_attention": ("batch", "length", "heads"),
    "attention_backward": ("batch", "length", "heads"),
    "generation_attention": ("batch", "kv_len", "heads"),
    "moe": ("num_tokens", "hidden_size", "inter_size"),
    "activity": ("time_ref_us",),
    "collective": (),  # libraries change to what they believe in, not to what is faster
}
"""What more work means for each op, `count` for all of them; of ops that are not named
every size that a row must say."""


def size(rng: np.random.Generator, largest: float) -> int:
    """Log-uniform integer from 1."""
    return int(np.exp(rng.uniform(0, np.log(largest + 1))))


def hand_made_tile(rng: np.random.Generator) -> dict[str, int | str]:
    """A tile that CLBlast can compile: powers of two that divide each other."""
    mdimc, ndimc = (int(x) for x in rng.choice((8, 16, 32), 2))
    least = mdimc * ndimc // 32  # `tile_k` is 32
    mdima, ndimb = (
        int(x) for x in rng.choice([x for x in (8, 16, 32) if x >= least], 2)
    )
    vwm, vwn = (int(x) for x in rng.choice((1, 2, 4), 2))
    return {
        "dtype": "fp32", "mdimc": mdimc, "ndimc": ndimc, "mdima": mdima, "ndimb": ndimb,
        "vwm": vwm, "vwn": vwn, "sa": int(rng.integers(2)), "sb": int(rng.integers(2)),
        "tile_m": max(mdimc, mdima) * vwm * int(rng.choice((1, 2))),
        "tile_n": max(ndimc, ndimb) * vwn * int(rng.choice((1, 2))),
    }  # fmt: skip


def row(op: str, index: int, rng: np.random.Generator) -> dict[str, Any]:
    """Row `index` of an op: structure follows from the index, sizes are random."""
    known = {field.name: field for field in kernels.ops()[op][0].fields}
    fields: dict[str, Any] = {
        name: size(rng, LARGEST[name]) for name in known if name in LARGEST
    }
    if "dtype" in known:
        fields["dtype"] = DTYPES[index % len(DTYPES)]
    if op not in ("gemm", *CONVOLUTIONS) or index % 2:
        fields |= dict(tile_m=rng.choice(TILES), tile_n=rng.choice(TILES), split_k=1)
    if op == "clblast_gemm":
        fields |= hand_made_tile(rng)
    if op in CONVOLUTIONS:
        depthwise = index % 4 == 0
        kernel = size(rng, 7)
        fields |= dict(kernel_size=kernel, padding=kernel // 2, stride=size(rng, 3))
        if depthwise:
            names = ("in_channels", "out_channels", "groups")
            fields |= dict.fromkeys(names, fields["in_channels"] + 1)
    if "num_kv_heads" in known:
        heads = size(rng, 16)
        fields |= {
            "num_kv_heads": heads,
            "num_heads": heads * size(rng, 16),
            "head_dim": 8 * size(rng, 32),
            "window_size": size(rng, 8192) if index % 3 == 0 else 0,
        }
        if op != "attention_backward" and index % 4 == 1:
            fields |= {"shared_kv": True, "v_head_dim": size(rng, fields["head_dim"])}
        if op in ("context_attention", "attention_backward"):
            fields["kv_len"] = fields["q_len"] + size(rng, 8192) * (index % 2)
        else:
            fields["q_len"] = 1
    if op == "scan":  # even rows step, three times as far too
        fields["q_len"] = 1 + index % 4 // 2 if index % 2 == 0 else 8 + fields["q_len"]
    if op == "moe":
        experts = size(rng, 128)
        fields |= {"num_experts": experts, "topk": 1 + size(rng, min(experts, 8)) // 2}
        fields["topk"] = min(fields["topk"], experts)
        fields["distribution"] = ("balanced", "power_law_1.1", "random")[index % 3]
        fields["gated"] = index % 5 > 0
    if op in ("gemm", "moe") and index % 3 == 2:
        fields |= {"weight_dtype": STORED[index % 4], "weight_group": size(rng, 256)}
    for name, field in known.items():
        if field.kind == "share":
            fields[name] = float(rng.uniform()) / 2
        elif field.kind == "text" and field.default is not None and name == "fn":
            fields[name] = ("add", "gelu", "copy", "typecast_to_fp32")[index % 4]
        elif field.kind == "text" and field.words and field.default is REQUIRED:
            fields[name] = field.words[index % len(field.words)]
        elif field.default is REQUIRED and field.kind == "size" and name not in fields:
            fields[name] = size(rng, 1000)
    if op == "collective":
        kind = list(LINK_KINDS)[index % len(LINK_KINDS)]
        fields["collective"] = kind.removeprefix("custom_")
        fields["family"] = "custom" if kind.startswith("custom") else ""
    fields["zero_share"] = float(rng.uniform())
    fields["count"] = size(rng, 1000)
    for name in {*known} & {*fields}:
        if known[name].kind == "size":
            fields[name] = max(fields[name], int(known[name].minimum))
    plain = {k: int(v) if isinstance(v, np.integer) else v for k, v in fields.items()}
    return normalise_kernel({"op": op, **plain}, f"{op} {index}")


def more(kernel: dict[str, Any], index: int) -> dict[str, Any]:
    """The row with three times the work along one size (three keeps alignment)."""
    required = kernels.ops()[kernel["op"]][0].required
    names = (*GROWN.get(kernel["op"], required), "count")
    grown = {
        "length": ("q_len", "kv_len"),
        "heads": ("num_heads", "num_kv_heads"),
    }.get(names[index % len(names)], (names[index % len(names)],))
    if kernel.get("groups", 1) > 1 and grown[0].endswith("channels"):
        grown = ("in_channels", "out_channels", "groups")
    return kernel | {name: 3 * kernel[name] for name in grown}


def comparable(kernel: dict[str, Any], grown: dict[str, Any], full: bool) -> bool:
    """Whether tile, kernel and alignment stay the same as sizes grow.

    `full`: the launch gives every SM a tile. Where it does not, the model lets more
    tiles pull the same operands faster (bytes in flight), see
    `test_more_tiles_on_idle_sms`.
    """
    op, tiled = kernel["op"], "tile_m" in kernel
    depthwise = kernel.get("groups", 1) > 1
    if op in ("softmax", "layernorm", "rmsnorm"):  # short rows share a CTA
        return (kernel["cols"] <= 1024) == (grown["cols"] <= 1024)
    if kernel.get("window_size"):  # its place among the KV blocks
        return all(kernel[name] == grown[name] for name in ("q_len", "kv_len"))
    if op in ("gemm", "clblast_gemm", *CONVOLUTIONS, "moe"):
        return depthwise or (tiled and full)
    if op in ("context_attention", "attention_backward", "generation_attention"):
        # few row tiles share the KV cache: more tiles can save the combining launch
        tiles = ("batch", "num_heads", "num_kv_heads", "q_len")
        return all(kernel[name] == grown[name] for name in tiles)
    return True


class Audit(NamedTuple):
    """An estimate and the most that any candidate uses of any unit's peak."""

    estimate: estimator.Estimate
    shares: dict[str, Array]  # largest of each group
    full: Array  # of each phase: all its launches have a CTA for every SM


@functools.partial(jax.jit, compiler_options=ONCE)
def audit(work: Workload, gpu: GpuSpec, where: OperatingPoint) -> Audit:
    """Estimate, and work / (peak x time) of every candidate before any clipping."""
    got = estimator.estimate_workload(work, gpu, where, C)
    shares: dict[str, list[Array]] = {}
    full = jnp.ones(len(work.names))
    for shape, group in zip(work.shapes, work.groups, strict=True):
        d = kernels.formulas()[type(shape)](shape, gpu, C)
        clock = got.phases.sm_clock[group.phase][:, None] + 0 * d.ctas
        mem = where.mem_clock[group.phase][:, None] + 0 * d.ctas
        t = timing(d, gpu, C, clock, mem).time
        filled = (d.ctas.min(-1) >= gpu.num_sms) | (group.count == 0)
        full = full.at[group.phase].min(filled.astype(full.dtype))
        cycles = clock * t
        sms = gpu.num_sms * cycles
        used = {
            "tensor": d.tensor / d.tensor_peak / sms,
            "fma": d.fma / d.fma_peak / sms,
            "sfu": d.sfu / gpu.sfu_ops_per_cycle / sms,
            "issue": d.issue / gpu.issue_slots_per_cycle / sms,
            "smem": d.smem / gpu.smem_bytes_per_cycle / sms,
            "l2": d.l2 / d.l2_sharing / gpu.l2_bytes_per_cycle / cycles,
            "dram": (d.dram + d.store_dram)
            / (gpu.dram_bandwidth * mem / gpu.mem_clock)
            / t,
        }
        for unit, share in used.items():
            if not isinstance(shape, Activity | Traced):  # measured, not derived
                shares.setdefault(unit, []).append(jnp.max(share))
    stacked = {unit: jnp.stack(values) for unit, values in shares.items()}
    return Audit(got, stacked, full > 0)


class Case(NamedTuple):
    """Rows, one phase each, on one GPU."""

    rows: list[dict[str, Any]]
    gpu: GpuSpec
    where: OperatingPoint


def workload(rows: list[dict[str, Any]]) -> Workload:
    """One phase a row."""
    listings = [
        Listing(f"{i}", kernels=(kernel,), dispatch="graph", passes=kernel["count"])
        for i, kernel in enumerate(rows)
    ]
    return assemble(listings)


def case(name: str, scales: list[float], seed: int, per_op: int) -> Case:
    """Random rows of every op on a GPU whose numbers are scaled by exp(`scales`)."""
    rng = np.random.default_rng(seed)
    gpu = load_gpu(name)
    for field, scale in zip(VARIED, scales, strict=True):
        value = getattr(gpu, field) * np.exp(scale)
        value = jnp.round(value) if field == "num_sms" else value
        gpu = eqx.tree_at(lambda g, field=field: getattr(g, field), gpu, value)
    rows = [row(op, i, rng) for op in kernels.ops() for i in range(per_op)]
    n = len(rows)
    celsius = np.where(rng.uniform(size=n) < 0.5, np.nan, rng.uniform(40, 95, n))
    caps = np.where(
        rng.uniform(size=n) < 0.3, 1e6, rng.uniform(0.2, 1.2, n) * float(gpu.tdp)
    )
    where = OperatingPoint(
        rng.uniform(0.3, 1.2, n) * float(gpu.sm_clock_max),
        rng.uniform(0.4, 1.0, n) * float(gpu.mem_clock),
        caps,
        celsius,
    )
    return Case(rows, gpu, where)


_structures: set[int] = set()


def check(c: Case):
    """All properties of a batch."""
    work = workload(c.rows)
    compiled = audit._cache_size()  # pyright: ignore[reportAttributeAccessIssue]
    assert compiled <= len(_structures) + 1  # and one of another test
    _structures.add(len(c.rows))
    got, shares, full = audit(work, c.gpu, c.where)
    for leaf in jax.tree.leaves(got):
        assert jnp.all(jnp.isfinite(leaf))
    phases = got.phases
    assert jnp.all(phases.time > 0) and jnp.all(phases.energy > 0)
    # leakage: below 40 C less than the idle table has; other: what a reading leaves
    signed = [COMPONENTS.index(name) for name in ("leakage", "other")]
    parts = np.asarray(phases.components)
    assert np.all(np.delete(parts, signed, axis=1) >= 0)
    assert np.all(np.asarray(got.kernels.utilization) >= 0)
    for unit, share in shares.items():
        assert jnp.all(share <= 1 + 1e-9), (unit, share)

    # useful FLOP over the peak of the machine
    rate = max(c.gpu.tensor_flop_per_cycle_bf16, c.gpu.tensor_flop_per_cycle_fp16)
    peak = float(rate * c.gpu.num_sms)
    for i, kernel in enumerate(c.rows):
        if kernel["op"] == "gemm" and kernel["dtype"] == "bf16":
            flop = 2 * kernel["m"] * kernel["n"] * kernel["k"] * kernel["batch"]
            cycles = float(phases.time[i] * phases.sm_clock[i])
            assert flop * kernel["count"] <= peak * cycles * (1 + 1e-9), kernel

    cap = np.asarray(c.where.power_cap * c.gpu.cap_fraction)
    feasible = np.asarray(phases.feasible)
    assert np.all(np.asarray(phases.power)[feasible] <= cap[feasible] * (1 + 1e-6))
    assert np.all(
        np.asarray(phases.sm_clock) <= np.asarray(c.where.sm_clock) * (1 + 1e-12)
    )
    low = np.asarray(phases.power) > cap * (1 + 1e-6)
    lowest = np.minimum(float(c.gpu.sm_clock_min), np.asarray(c.where.sm_clock))
    assert np.allclose(np.asarray(phases.sm_clock)[low], lowest[low])

    # three times the work at the same tile takes at least as long, without a limit
    free = dataclasses.replace(c.where, power_cap=jnp.full(len(c.rows), 1e9))
    grown = [more(kernel, i) for i, kernel in enumerate(c.rows)]
    before = np.asarray(audit(work, c.gpu, free).estimate.phases.time)
    after = np.asarray(audit(workload(grown), c.gpu, free).estimate.phases.time)
    pairs = zip(c.rows, grown, full.tolist(), strict=True)
    same = np.array([comparable(*pair) for pair in pairs])
    # page tables of decode attention are shared among heads: 0.3 % at most
    bad = np.flatnonzero(same & (after < before * (1 - 3e-3)))
    report = [f"{c.rows[i]}\n-> {grown[i]}\n{before[i]} -> {after[i]}" for i in bad]
    assert not report, f"{len(bad)} faster with more work:\n" + "\n".join(report[:5])


@pytest.mark.slow
@settings(
    max_examples=5, deadline=None, derandomize=True,
    phases=[Phase.explicit, Phase.generate],  # a seed does not shrink
    suppress_health_check=[HealthCheck.too_slow],
)  # fmt: skip
@given(
    name=st.sampled_from(GPUS),
    scales=st.lists(st.floats(-0.7, 0.7), min_size=len(VARIED), max_size=len(VARIED)),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_kernel_on_any_gpu(name: str, scales: list[float], seed: int):
    check(case(name, scales, seed, per_op=8))


def cases(total: int, per_op: int) -> Iterator[Case]:
    """Batches with at least `total` rows together."""
    rng = np.random.default_rng(5)
    done = 0
    while done < total:
        scales = rng.uniform(-0.7, 0.7, len(VARIED)).tolist()
        result = case(
            GPUS[rng.integers(len(GPUS))], scales, int(rng.integers(2**32)), per_op
        )
        done += len(result.rows)
        yield result


@pytest.mark.long
@pytest.mark.slow
def test_a_hundred_thousand_kernels():
    for result in cases(10**5, per_op=256):
        check(result)


@pytest.mark.slow
def test_more_tiles_on_idle_sms():
    # both experts' weights are the same bytes for one and for two tiles of rows: the
    # second tile cannot make them arrive earlier
    fields = dict(
        op="moe", hidden_size=4563, inter_size=352, topk=2, num_experts=2,
        dtype="bf16", tile_m=256, tile_n=256,
    )  # fmt: skip
    rows = [normalise_kernel(fields | {"num_tokens": n}, "moe") for n in (89, 267)]
    gpu = load_gpu("v100-sxm-32gb")
    where = OperatingPoint(
        [1.53e9] * 2, [float(gpu.mem_clock)] * 2, [1e9] * 2, [50.0] * 2
    )
    few, many = estimator.estimate_once(workload(rows), gpu, where, C).phases.time
    assert many >= few
