"""Reverse-mode gradients against central differences, every op and a whole model.

One function maps relative changes of all clocks, GPU fields, corrections and tiles to
ln time, ln energy and ln power of many phases, one op (or model phase) each: one
compilation gives all elasticities and one gives their differences.
"""

import dataclasses
import functools
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from jax.flatten_util import ravel_pytree

from diffenergy import kernels
from diffenergy.corrections import CONSTANTS, Corrections
from diffenergy.estimator import _estimate as estimator
from diffenergy.hardware import GpuSpec, OperatingPoint, load_gpu
from diffenergy.units import GHz
from diffenergy.workload import Dispatch, Listing, Workload, assemble

OUTPUTS = ("time", "energy", "power")
ROUNDED = {
    "num_sms", "smem_per_sm", "registers_per_sm", "max_threads_per_sm",
    "max_ctas_per_sm", "tile_m", "tile_n",
}  # fmt: skip
"""What acts through a straight-through step: compared in the relaxed model only."""
ROUNDING = {"prefill_quantization", "decode_quantization", "moe_quantization"}
"""What waves that are not rounded do not feel."""
STEP = 2e-4
"""Relative step of the differences (fourth order: truncation near 1e-13)."""

# Sizes off all ties (full tiles, CTAs = SMs), where one-sided slopes differ.
TILE = {"tile_m": 96, "tile_n": 112}
STAGED = {
    "tile_m": 96, "tile_n": 64, "mdimc": 16, "ndimc": 16, "mdima": 16, "ndimb": 8,
    "vwm": 2, "vwn": 4, "sa": 1, "sb": 1,
}  # fmt: skip
SPILLED = {
    "tile_m": 128, "tile_n": 128, "mdimc": 8, "ndimc": 8, "mdima": 8, "ndimb": 8,
    "vwm": 1, "vwn": 1,
}  # fmt: skip
LATENT = {"num_kv_heads": 1, "head_dim": 576, "v_head_dim": 512, "shared_kv": True}
PHASES: dict[str, list[dict[str, Any]]] = {  # ops not named here: `sample` as it is
    "gemm": [{"m": 1000, "n": 2056, "k": 1544}],
    "gemm tile": [{"m": 1000, "n": 2056, "k": 1544, **TILE}],
    "gemm capped": [{"m": 7000, "n": 6008, "k": 5000, **TILE}],
    "gemm skinny": [{"m": 12, "n": 4104, "k": 6008}],
    "gemm split": [{"m": 90, "n": 1000, "k": 9000, "split_k": 3, **TILE}],
    "gemm batched": [{"batch": 50, "m": 333, "n": 333, "k": 72, "zero_share": 0.2}],
    "gemm fp32": [{"m": 700, "n": 1500, "k": 1100, "dtype": "fp32", "layout": "tn"}],
    "gemm fp32 tile": [
        {"m": 3000, "n": 2056, "k": 9000, "dtype": "fp32", "threads": 128, **TILE}
    ],
    "clblast_gemm": [{"m": 1000, "n": 2056, "k": 1544, "dtype": "fp32", **STAGED}],
    "clblast_gemm spilled": [
        {"m": 1000, "n": 2056, "k": 1544, "dtype": "fp32", **SPILLED}
    ],
    "gemm tf32": [{"m": 700, "n": 1500, "k": 1100, "dtype": "tf32"}],
    "gemm fp8": [{"m": 700, "n": 1500, "k": 1100, "dtype": "fp8"}],
    "gemm fp8_block": [{"m": 700, "n": 1500, "k": 1100, "dtype": "fp8_block"}],
    "gemm int4": [
        {"m": 90, "n": 4104, "k": 6008, "weight_dtype": "int4", "weight_group": 32}
    ],
    "conv2d": [{"images": 5, "in_channels": 72, "out_channels": 200, "padding": 1}],
    **{
        op: [{"images": 5, "in_channels": 72, "out_channels": 200, "padding": 1}]
        for op in ("conv2d_input_grad", "conv2d_weight_grad")
    },
    "conv2d depthwise": [
        {"images": 5, "in_channels": 72, "out_channels": 72, "groups": 72}
    ],
    "context_attention": [{"batch": 3, **TILE}],
    "context_attention window": [{"batch": 3, "window_size": 300, **TILE}],
    "context_attention fp8": [{"batch": 3, "dtype": "fp8"}],
    "context_attention fp8 wide": [{"batch": 3, "dtype": "fp8", "head_dim": 256}],
    "context_attention latent": [{"batch": 3, "num_heads": 48, **LATENT}],
    "attention_backward": [{"batch": 3, **TILE}],
    "generation_attention": [{"batch": 9, "kv_len": 5000, **TILE}],
    "generation_attention window": [
        {"batch": 9, "kv_len": 5000, "window_size": 300, "head_dim": 64}
    ],
    "generation_attention fp8": [{"batch": 9, "kv_len": 5000, "kv_cache_dtype": "fp8"}],
    "generation_attention latent": [
        {"batch": 9, "kv_len": 5000, "num_heads": 90, **LATENT}
    ],
    "moe": [{"num_tokens": 900, "hidden_size": 1000, "inter_size": 712, **TILE}],
    "moe fp8": [
        {"num_tokens": 700, "hidden_size": 1000, "inter_size": 704, "dtype": "fp8"}
    ],
    "moe fp8_block": [{"num_tokens": 3, "dtype": "fp8_block"}],
    "moe uneven": [{"num_tokens": 90, "distribution": "power_law_1.1"}],
    "moe random": [
        {"num_tokens": 90, "distribution": "random"}
        | {"gated": False, "weight_dtype": "mxfp4"}
    ],
    "scan": [{"q_len": 5000}],
    "scan mamba2": [{"kind": "mamba2", "q_len": 5000, "v_head_dim": 64, "groups": 8}],
    "scan decode": [{"kind": "kda", "batch": 30, "q_len": 3}],
    "scan convolution": [{"kind": "short_conv", "num_heads": 6000, "head_dim": 4}],
    "softmax": [{"rows": 30_000, "cols": 700}],
    "layernorm": [{"rows": 3000, "cols": 5000}],
    "rmsnorm": [{"rows": 30, "cols": 5000, "residual": True}],
    "elementwise": [{"elements": 30_000_000}],
    "elementwise where": [{"fn": "where", "elements": 20_000_000}],
    "gather": [{"rows": 700, "cols": 5000}],
    "collective": [{"bytes": 3e6, "num_gpus": 6}],
    "collective custom": [{"bytes": 3e5, "num_gpus": 4, "family": "custom"}],
    "activity": [
        {"time_ref_us": 500, "util_sfu": 0.2, "util_branch": 0.2, "fp64_active": 0.1}
    ],
    "activity read": [{"sm_clock_ref_mhz": 1200, "avg_power_ref_w": 190}],
    "activity idle": [{"dram_active": 0, "fp32_active": 0}],
}
CAPPED = ("gemm capped", "prefill capped")


def model(sample, tokens: int, attention: dict[str, Any]) -> list[dict[str, Any]]:
    """Two layers of a small Llama on `tokens` rows."""
    hidden, inner, layers = 1000, 2700, 2

    def linear(n: int, k: int, **more: Any) -> dict[str, Any]:
        return sample("gemm", m=tokens, n=n, k=k, count=layers, **more)

    heads = {"num_heads": 8, "num_kv_heads": 2, "head_dim": 125, "count": layers}
    return [
        sample("gather", rows=tokens, cols=hidden),
        sample("rmsnorm", rows=tokens, cols=hidden, count=2 * layers, residual=True),
        linear(1500, hidden),
        sample(**attention, **heads),
        linear(hidden, 1000, **TILE),
        linear(2 * inner, hidden),
        sample("elementwise", fn="silu_mul", elements=tokens * inner, count=layers),
        linear(hidden, inner),
        sample("gemm", m=tokens, n=9000, k=hidden),
    ]


def listings(sample) -> list[Listing]:
    """One listing a phase; models end with an eager decode."""
    named = {name.split()[0] for name in PHASES}
    others: dict[str, list[dict[str, Any]]] = {
        op: [{}] for op in kernels.ops() if op not in named
    }
    result = [
        Listing(
            name, dispatch="graph",
            kernels=tuple(sample(name.split()[0], **row) for row in rows),
        )
        for name, rows in (PHASES | others).items()
    ]  # fmt: skip
    prefill = dict(op="context_attention", batch=3, q_len=700, kv_len=700)
    decode = dict(op="generation_attention", batch=30, kv_len=900)
    for name, attention, tokens in (
        ("prefill", prefill, 2100),
        ("prefill capped", prefill, 2100),
        ("decode", decode, 30),
        ("decode eager", decode, 30),
    ):
        dispatch: Dispatch = "eager" if "eager" in name else "graph"
        rows = tuple(model(sample, tokens, attention))
        result.append(
            Listing(name, kernels=rows, dispatch=dispatch, passes=3, module_calls=80)
        )
    return result


class Slopes(NamedTuple):
    """Elasticities d ln output / d ln parameter."""

    parameters: list[str]
    phases: list[str]
    gradient: np.ndarray  # [output, phase, parameter]
    difference: np.ndarray
    value: np.ndarray  # [output, phase]
    clock: np.ndarray  # [phase]


def scaled_tiles(workload: Workload, scale: dict[str, Array]) -> Workload:
    """Workload with all given tiles scaled."""
    for name, factor in scale.items():
        where = [i for i, shape in enumerate(workload.shapes) if hasattr(shape, name)]
        workload = eqx.tree_at(
            lambda w, name=name, where=where: [
                getattr(w.shapes[i], name) for i in where
            ],
            workload,
            [getattr(workload.shapes[i], name) * factor for i in where],
        )
    return workload


def slopes(everything: list[Listing], relaxed: bool) -> Slopes:
    """Gradients by reverse mode and fourth-order central differences, a phase each."""
    from diffenergy import smooth

    workload = assemble(everything)
    names = [listing.name for listing in everything]
    # doubled fp32 lanes, so that their constant has something to act on; wavefronts of
    # shared memory that take a little longer than the cycle at which more is no use; a
    # voltage that the memory clock left alone raises
    gpu = eqx.tree_at(
        lambda g: (g.fp32_doubled, g.smem_bytes_per_cycle, g.vf_unlocked_slope),
        load_gpu("h100-sxm"),
        (jnp.ones(()), jnp.asarray(120.0), jnp.asarray(0.1 / GHz)),
    )
    point = {
        "sm_clock": jnp.asarray(1.61 * GHz),
        "mem_clock": gpu.mem_clock * 0.97,
        "power_cap": jnp.asarray([320.0 if n in CAPPED else 1e6 for n in names]),
        # half of the phases find their temperature themselves
        "temperature": jnp.asarray(
            [60.0 if i % 2 else jnp.nan for i in range(len(names))]
        ),
    }
    numbers = [
        name
        for name in GpuSpec.__dataclass_fields__
        if isinstance(value := getattr(gpu, name), Array) and value.ndim == 0
    ]
    flat, unravel = ravel_pytree(([getattr(gpu, x) for x in numbers], Corrections()))
    fields = [*numbers, *CONSTANTS]
    point_fields = [f"point.{x}" for x in ("sm_clock", "mem_clock", "power_cap")]
    parameters = [*fields, *point_fields, "tile_m", "tile_n"]
    assert len(fields) == flat.size

    def outputs(u: Array) -> tuple[Array, Array]:
        values, c = unravel(flat * (1 + u[: flat.size]))
        case = dict(zip(numbers, values, strict=True))
        g = dataclasses.replace(gpu, **case, corrections=c)
        clock, mem, cap, tile_m, tile_n = 1 + u[flat.size :]
        where = OperatingPoint(
            jnp.full(len(names), point["sm_clock"] * clock),
            jnp.full(len(names), point["mem_clock"] * mem),
            point["power_cap"] * cap,
            point["temperature"],
        )
        tiles = scaled_tiles(workload, {"tile_m": tile_m, "tile_n": tile_n})
        got = estimator.estimate_workload(tiles, g, where).phases
        figures = jnp.stack([getattr(got, name) for name in OUTPUTS])
        return jnp.log(figures), got.sm_clock

    once = estimator.compiler_options(once=True)

    @functools.partial(jax.jit, compiler_options=once)
    def backward(u: Array, weight: Array) -> tuple[tuple[Array, Array], Array]:
        (value, clock), pull = jax.vjp(outputs, u)
        return (value, clock), pull((weight, jnp.zeros_like(clock)))[0]

    @functools.partial(jax.jit, compiler_options=once)
    def forward(u: Array) -> Array:
        return jax.vmap(lambda x: outputs(x)[0])(u)

    at, steps = jnp.zeros(len(parameters)), jnp.asarray([-2, -1, 1, 2]) * STEP
    with smooth.relaxed(relaxed):
        around = jnp.stack([forward(step * jnp.eye(at.size)) for step in steps])
        one_hot = jnp.eye(len(OUTPUTS) * len(names)).reshape(
            -1, len(OUTPUTS), len(names)
        )
        gradient = np.stack([backward(at, weight)[1] for weight in one_hot])
        value, clock = backward(at, one_hot[0])[0]
    weights = jnp.asarray([1, -8, 8, -1]) / (12 * STEP)
    return Slopes(
        parameters,
        names,
        gradient.reshape(len(OUTPUTS), len(names), at.size),
        np.einsum("s,spoi->oip", weights, around),
        np.asarray(value),
        np.asarray(clock),
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "relaxed",
    [
        pytest.param(False, id="exact"),
        pytest.param(True, id="relaxed", marks=pytest.mark.long),
    ],
)
def test_gradients(sample, relaxed: bool):
    s = slopes(listings(sample), relaxed)
    check_finite(s)
    check_differences(s, set() if relaxed else ROUNDED)
    check_signs(s)
    check_caps(s)
    check_reach(s, ROUNDING if relaxed else set())


def check_finite(s: Slopes):
    """Every value and every gradient is a number."""
    assert np.isfinite(s.value).all()
    bad = np.argwhere(~np.isfinite(s.gradient))
    assert not len(bad), {(s.phases[p], s.parameters[i]) for _, p, i in bad}


def check_differences(s: Slopes, skipped: set[str]):
    """Gradients agree with differences to 1e-4."""
    compared = ~np.isin(s.parameters, list(skipped))
    error = np.abs(s.gradient - s.difference)
    # roots of capped phases are found to 1e-10: 1e-6 after division by the step
    floor = np.where(np.isin(s.phases, CAPPED), 2e-6, 1e-9)[:, None]
    bad = np.argwhere((error > 1e-4 * np.abs(s.difference) + floor) & compared)
    report = [
        f"{OUTPUTS[o]} of {s.phases[p]} by {s.parameters[i]}: "
        f"{s.gradient[o, p, i]:.6g}, differences {s.difference[o, p, i]:.6g}"
        for o, p, i in bad
    ]
    assert not report, "\n".join(report)


def slope(s: Slopes, output: str, phase: str, parameter: str) -> float:
    """One elasticity."""
    place = OUTPUTS.index(output), s.phases.index(phase), s.parameters.index(parameter)
    return float(s.gradient[place])


def check_signs(s: Slopes):
    """What makes a kernel faster, and what costs energy."""
    assert slope(s, "time", "gemm", "sm_clock_max") == 0  # above the requested clock
    assert -1 <= slope(s, "time", "gemm tile", "point.sm_clock") < -0.3
    assert -1 <= slope(s, "time", "gemm tile", "num_sms") < -0.3
    assert -1 <= slope(s, "time", "elementwise", "dram_bandwidth") < -0.3
    assert -1 <= slope(s, "time", "elementwise", "point.mem_clock") < -0.3
    assert 0.3 < slope(s, "time", "elementwise", "mem_clock") <= 1  # the nominal one
    assert slope(s, "time", "activity idle", "point.sm_clock") == pytest.approx(-1)
    assert slope(s, "energy", "decode", "l2_capacity") < 0
    assert slope(s, "energy", "gemm", "vf_unlocked_slope") > 0
    # a price that explains more of a reading leaves less for core work
    assert slope(s, "energy", "activity read", "energy_dram") < 0
    for phase in set(s.phases) - {"activity read"}:
        assert slope(s, "time", phase, "launch_seconds") >= 0
        assert slope(s, "energy", phase, "energy_dram") >= 0


def check_caps(s: Slopes):
    """Capped phases follow the limit alone, the others the clock alone."""
    for phase in CAPPED:
        assert s.clock[s.phases.index(phase)] < 1.6 * GHz
        assert slope(s, "power", phase, "point.power_cap") == pytest.approx(1, rel=1e-6)
        assert slope(s, "time", phase, "point.power_cap") < -0.05
        assert slope(s, "time", phase, "point.sm_clock") == 0
    assert s.clock[s.phases.index("gemm tile")] == pytest.approx(1.61 * GHz, rel=1e-12)
    assert slope(s, "time", "gemm tile", "point.power_cap") == 0


def check_reach(s: Slopes, skipped: set[str]):
    """Every correction acts on some phase."""
    strongest = np.abs(s.gradient).max(axis=(0, 1))
    # no op uses links yet; channels are those of AMD; those of plans act on training
    # steps alone (tests/estimator/test_training_plans.py)
    plans = {name for name, c in CONSTANTS.items() if c.rows == ("plan",)}
    names = set(CONSTANTS) - skipped - plans - {"energy_link", "tiled_camping"}
    still = {name for name in names if strongest[s.parameters.index(name)] == 0}
    assert not still
