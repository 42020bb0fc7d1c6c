"""JAX functions: FLOP by hand, loops, branches, attention, fusion, gradients."""

import functools
import gc

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
import pytest
from jax._src.lax import parallel
from jax.experimental import pallas
from jax.extend.core import Primitive

import diffenergy as de
from diffenergy.imports._program import flat
from diffenergy.imports._program.moving import (
    FREE,
    is_elementwise,
    is_reduction,
    moving_row,
)
from diffenergy.imports._program.opaque import SILENT
from diffenergy.imports._program.trace import _rows as rows_of

from .builders import gflop

LAYERS, BATCH, LENGTH, HIDDEN, HEADS, INNER, WORDS = 4, 2, 512, 1024, 16, 4096, 32000


def array(*shape: int, dtype=jnp.bfloat16) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype)


SQUARE = array(64, 64)


def of(kernels, op: str) -> list:
    return [x for x in kernels if x["op"] == op]


def norm(x, scale):
    wide = x.astype(jnp.float32)
    mean = jnp.mean(wide * wide, -1, keepdims=True)
    return (wide * jax.lax.rsqrt(mean + 1e-6)).astype(x.dtype) * scale


def layer(x, p):
    h = norm(x, p["norm1"])
    q, k, v = (
        (h @ p[name]).reshape(*x.shape[:2], HEADS, HIDDEN // HEADS) for name in "qkv"
    )
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k, preferred_element_type=jnp.float32)
    mask = jnp.tril(jnp.ones((LENGTH, LENGTH), bool))
    weights = jax.nn.softmax(jnp.where(mask, scores / 8, -1e30), -1).astype(x.dtype)
    x = x + jnp.einsum("bhqk,bkhd->bqhd", weights, v).reshape(x.shape) @ p["o"]
    h = norm(x, p["norm2"])
    return x + (jax.nn.silu(h @ p["gate"]) * (h @ p["up"])) @ p["down"], None


def forward(p, tokens):
    x, _ = jax.lax.scan(layer, p["words"][tokens], p["layers"])
    return norm(x, p["norm"]) @ p["words"].T


def loss(p, tokens):
    logits = jax.nn.log_softmax(forward(p, tokens).astype(jnp.float32))
    return -jnp.mean(jnp.take_along_axis(logits, tokens[..., None], -1))


def transformer():
    square = {name: array(LAYERS, HIDDEN, HIDDEN) for name in "qkvo"}
    wide = {name: array(LAYERS, HIDDEN, INNER) for name in ("gate", "up")}
    scales = {name: array(LAYERS, HIDDEN) for name in ("norm1", "norm2")}
    layers = {**square, **wide, **scales, "down": array(LAYERS, INNER, HIDDEN)}
    p = {"words": array(WORDS, HIDDEN), "norm": array(HIDDEN), "layers": layers}
    return p, array(BATCH, LENGTH, dtype=jnp.int32)


def by_hand() -> float:
    """GFLOP of the forward pass: products, then both products of attention."""
    rows = BATCH * LENGTH
    weights = LAYERS * (4 * HIDDEN**2 + 3 * HIDDEN * INNER) + HIDDEN * WORDS
    attention = LAYERS * 4 * BATCH * LENGTH**2 * HIDDEN
    return (2 * rows * weights + attention) / 1e9


def test_flop_of_a_transformer():
    """A gradient is three times as many."""
    kernels = de.trace_listing(forward, *transformer(), fuse="attention").kernels
    assert gflop(kernels) == pytest.approx(by_hand(), rel=1e-4)
    assert by_hand() == pytest.approx(213.138, abs=1e-3)
    assert sum(x["count"] for x in of(kernels, "gemm")) == 29
    [attention] = of(kernels, "context_attention")
    assert (attention["count"], attention["causal"]) == (LAYERS, True)
    assert (attention["num_heads"], attention["head_dim"]) == (HEADS, 64)
    [words] = of(kernels, "gather")
    assert (words["rows"], words["cols"]) == (BATCH * LENGTH, HIDDEN)
    kernels = de.trace_listing(jax.grad(loss), *transformer()).kernels
    assert gflop(kernels) == pytest.approx(3 * by_hand(), rel=1e-4)


def test_convolutions():
    conv = functools.partial(
        jax.lax.conv_general_dilated, window_strides=(2, 2), padding="SAME"
    )
    x, w = array(8, 64, 56, 56), array(128, 64, 3, 3)
    [row] = de.trace_listing(conv, x, w).kernels
    assert row["op"] == "conv2d" and gflop([row]) == pytest.approx(0.924844, abs=1e-6)
    step = jax.grad(lambda x, w: conv(x, w).astype(jnp.float32).sum(), (0, 1))
    kernels = de.trace_listing(step, x, w).kernels
    rows = [x for x in kernels if x["op"] in ("gemm", "conv2d")]
    assert len(rows) == 2  # nobody needs the output
    assert gflop(rows) == pytest.approx(2 * 0.924844, rel=0.1)  # edges of the padding


@pytest.mark.parametrize("trips, count", [(None, 1), (9, 9), ([7], 7)])
def test_loops_run_as_often_as_one_says(trips, count):
    def loop(x, w):
        step = lambda state: (state[0] + 1, state[1] @ w)  # noqa: E731
        return jax.lax.while_loop(lambda state: state[0] < 9, step, (0, x))[1]

    listing = de.trace_listing(loop, SQUARE, SQUARE, trips=trips)
    assert listing.kernels[0]["count"] == count
    assert any("trips" in note for note in listing.notes) == (trips is None)


def products(fun):
    """Number of products of a function of two squares."""
    kernels = de.trace_listing(fun, SQUARE, SQUARE).kernels
    return sum(x["count"] for x in of(kernels, "gemm"))


def test_branches_are_those_with_most_work():
    def either(x, w):
        return jax.lax.cond(x[0, 0] > 0, lambda: x @ w @ w, lambda: x + w)

    assert products(either) == 2


def test_recomputation_counts():
    def twice(w, x):
        return jax.checkpoint(lambda x: jnp.sin(jnp.sin(x @ w) @ w))(x).sum()

    def once(w, x):
        return jnp.sin(jnp.sin(x @ w) @ w).sum()

    # the last product is not needed again
    assert [products(jax.grad(fun, 1)) for fun in (once, twice)] == [4, 4]


@pytest.mark.parametrize(
    "heads, q_len, op, causal",
    [
        (8, 1024, "context_attention", True),
        (2, 1024, "context_attention", False),
        (2, 1, "generation_attention", False),
    ],
)
def test_attention_by_name(heads, q_len, op, causal):
    q, k = array(2, q_len, 8, 128), array(2, 1024, heads, 128)
    fun = functools.partial(jax.nn.dot_product_attention, is_causal=causal)
    kernels = de.trace_listing(fun, q, k, k, fuse="attention").kernels
    [row] = [x for x in kernels if x["op"] != "elementwise"]
    assert (row["op"], row["q_len"], row["kv_len"]) == (op, q_len, 1024)
    assert (row["num_heads"], row["num_kv_heads"]) == (8, heads)
    assert row["causal"] is causal


def test_attention_writes_its_scores_as_xla_does():
    """Two products of 2 n^2 d FLOP, 16 heads of them; the scores are written in fp32
    and read by at least the maximum, the sum and the quotient; a note says so."""

    def attend(q, k, v):
        weights = jax.nn.softmax(jnp.einsum("bqd,bkd->bqk", q, k), -1)
        return jnp.einsum("bqk,bkd->bqd", weights, v)

    heads = array(16, 512, 64, dtype=jnp.float32)
    listing = de.trace_listing(attend, *[heads] * 3)
    products, maps = of(listing.kernels, "gemm"), of(listing.kernels, "elementwise")
    assert gflop(products) == pytest.approx(2 * 2 * 16 * 512**2 * 64 / 1e9)
    read = sum(x["elements"] * x["reads"] * x["count"] for x in maps)
    assert 3 * 16 * 512**2 <= read <= 3.1 * 16 * 512**2
    assert any("fuse='attention'" in note for note in listing.notes)
    fused = de.trace_listing(attend, *[heads] * 3, fuse="attention")
    assert [x["op"] for x in fused.kernels] == ["context_attention"]
    assert any("as `fuse` says" in note for note in fused.notes)


def test_maps_fuse_and_reductions_end_a_kernel():
    """The sum of a skip connection is no part of the kernel before the product."""
    x = array(1000, 1000, dtype=jnp.float32)
    total = lambda x: jnp.tanh(x * 2 + 1).sum(-1)  # noqa: E731
    [row] = de.trace_listing(total, x).kernels
    assert (row["elements"], row["reads"], row["writes"]) == (10**6, 1, 1e-3)
    apart = de.trace_listing(total, x, fuse=False).kernels
    assert sum(x["count"] for x in apart) == 4
    diamond = de.trace_listing(lambda x, y: (x + y) * (x - y), x, x).kernels
    assert [(x["reads"], x["writes"]) for x in diamond] == [(2, 1)]

    def block(x, w):
        x = jnp.tanh(x)
        return x + jnp.tanh(x @ w)

    kernels = de.trace_listing(block, SQUARE, SQUARE).kernels
    assert [x["op"] for x in kernels] == ["elementwise", "gemm", "elementwise"]
    assert [x["reads"] for x in of(kernels, "elementwise")] == [1, 2]


def test_updates_move_what_is_new():
    def put(cache, new):
        return jax.lax.dynamic_update_slice(cache, new, (0, 0))

    [row] = de.trace_listing(put, array(100_000, 64), array(4, 64)).kernels
    assert (row["op"], row["rows"], row["cols"]) == ("gather", 4, 64)


def test_types_of_products():
    wide = array(64, 64, dtype=jnp.float32)
    listing = de.trace_listing(jnp.matmul, wide, wide)
    assert listing.kernels[0]["dtype"] == "fp32" and "tf32" in listing.notes[0]
    with jax.default_matmul_precision("tensorfloat32"):
        listing = de.trace_listing(jnp.matmul, wide, wide)
    assert listing.kernels[0]["dtype"] == "tf32" and not listing.notes


def test_opaque_calls_are_noted():
    listing = de.trace_listing(jnp.linalg.cholesky, array(64, 64, dtype=jnp.float32))
    [row] = of(listing.kernels, "custom")
    assert row["flop"] == pytest.approx(64**3 / 3)
    assert any("cholesky" in note for note in listing.notes)


@pytest.mark.slow
def test_a_training_step_of_equinox_goes_in_unchanged():
    model = eqx.nn.MLP(64, 10, 256, 2, key=jax.random.key(0))
    optimizer = optax.adam(1e-3)
    state = optimizer.init(eqx.filter(model, eqx.is_array))

    @eqx.filter_jit
    def step(model, state, x, y):
        def cost(model):
            logits = jax.vmap(model)(x)
            return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()

        value, slopes = eqx.filter_value_and_grad(cost)(model)
        updates, state = optimizer.update(slopes, state, model)
        return eqx.apply_updates(model, updates), state, value

    batch = array(512, 64, dtype=jnp.float32), array(512, dtype=jnp.int32)
    listing = de.trace_listing(step, model, state, *batch)
    once = 2 * 512 * (64 * 256 + 256 * 256 + 256 * 10)
    last = 2 * 512 * 64 * 256  # nobody needs the gradient of the input
    assert gflop(listing.kernels) == pytest.approx((3 * once - last) / 1e9)


@pytest.mark.slow
def test_it_composes_with_gradients():
    """The slope of energy by bandwidth is that of a finite difference."""
    work = de.trace(lambda x: jnp.tanh(x) * 2, array(1 << 26))
    gpu = de.load_gpu("h100-sxm")
    energy = lambda gpu: de.estimate(work, gpu).energy  # noqa: E731
    slope = jax.grad(energy)(gpu).dram_bandwidth
    more = eqx.tree_at(lambda g: g.dram_bandwidth, gpu, gpu.dram_bandwidth * 1.001)
    expected = (energy(more) - energy(gpu)) / (gpu.dram_bandwidth * 1e-3)
    assert float(slope) == pytest.approx(float(expected), rel=0.02)


MESH = jax.sharding.AbstractMesh((4, 2), ("x", "y"))
ROWS, WHOLE = jax.sharding.PartitionSpec("x"), jax.sharding.PartitionSpec()


def test_one_gpu_of_a_sharded_program():
    """4 GPUs with a quarter of the rows each: a product of 16 rows, then a gather of
    the bytes of the whole."""
    product = jax.shard_map(
        lambda x, w: jax.lax.all_gather(x @ w, "x", tiled=True),
        mesh=MESH, in_specs=(ROWS, WHOLE), out_specs=WHOLE, check_vma=False,
    )  # fmt: skip
    gemm, gather = de.trace_listing(product, array(64, 32), array(32, 8)).kernels
    assert (gemm["m"], gemm["n"], gemm["k"]) == (16, 8, 32)
    assert (gather["collective"], gather["num_gpus"]) == ("all_gather", 4)
    assert gather["bytes"] == 64 * 8 * 2


@pytest.mark.parametrize("checked", [True, False])
@pytest.mark.parametrize(
    "send, kind, gpus",
    [
        (lambda x: jax.lax.psum(x, "x"), "all_reduce", 4),
        (lambda x: jax.lax.psum(x, ("x", "y")), "all_reduce", 8),
        (lambda x: jax.lax.pmean(x, "x"), "all_reduce", 4),
        (lambda x: jax.lax.pmax(x, "x"), "all_reduce", 4),
        (lambda x: jax.lax.psum_scatter(x, "x", tiled=True), "reduce_scatter", 4),
        (lambda x: jax.lax.all_to_all(x, "x", 0, 0, tiled=True), "all_to_all", 4),
        (lambda x: jax.lax.ppermute(x, "x", [(0, 1), (1, 0)]), "send_recv", 4),
        (lambda x: jax.lax.pbroadcast(x, "x", 0), "broadcast", 4),
    ],
)
def test_collectives_of_a_mesh(send, kind, gpus, checked):
    """Each GPU sends its quarter, 16 x 32 elements of 2 B."""
    both = jax.sharding.PartitionSpec(("x", "y")) if gpus == 8 else ROWS
    fun = jax.shard_map(
        send, mesh=MESH, in_specs=both, check_vma=checked,
        out_specs=WHOLE if kind == "all_reduce" else ROWS,
    )  # fmt: skip
    listing = de.trace_listing(fun, array(16 * gpus, 32))
    [row] = of(listing.kernels, "collective")
    assert (row["collective"], row["num_gpus"], row["bytes"]) == (kind, gpus, 1024)
    assert not listing.notes


def test_a_gradient_is_summed_over_the_gpus_that_share_a_weight():
    fun = jax.shard_map(jnp.matmul, mesh=MESH, in_specs=(ROWS, WHOLE), out_specs=ROWS)
    step = jax.grad(lambda w, x: fun(x, w).astype(jnp.float32).sum())
    kernels = de.trace_listing(step, array(32, 8), array(64, 32)).kernels
    [row] = of(kernels, "collective")
    assert (row["collective"], row["bytes"]) == ("all_reduce", 32 * 8 * 2)


def test_a_scan_by_doubling():
    """Of n = 1024: n - 1 sums of pairs, n - 1 less one a level of those and what stands
    between, and 2 (n - 1) to interleave both; a pair is two reads."""
    scan = functools.partial(jax.lax.associative_scan, jnp.add)
    sums = of(de.trace_listing(scan, array(1024)).kernels, "elementwise")
    assert (sums[0]["elements"], sums[0]["reads"]) == (512, 2)
    built = sum(x["elements"] * x["count"] for x in sums)
    assert built == pytest.approx(1023 + 1013 + 2046, abs=4)  # single numbers are free


def test_products_of_groups_of_rows():
    """Every row meets the weights of one group, whatever the groups' sizes; both
    gradients have as many FLOP."""
    operands = array(1001, 64), array(8, 64, 128), array(8, dtype=jnp.int32)
    once = 2 * 1001 * 64 * 128 / 1e9
    assert gflop(de.trace_listing(jax.lax.ragged_dot, *operands).kernels) == once
    total = lambda *x: jax.lax.ragged_dot(*x).astype(jnp.float32).sum()  # noqa: E731
    kernels = de.trace_listing(jax.grad(total, (0, 1)), *operands).kernels
    assert gflop(kernels) == pytest.approx(2 * once)


def test_kernels_of_pallas_are_their_body_times_their_grid():
    """A product in blocks of 128 x 128, then its tanh: 2 m n k and a FLOP an element;
    each operand is in memory once."""

    def kernel(x, w, out):
        out[...] = jnp.tanh(x[...] @ w[...])

    product = pallas.pallas_call(
        kernel,
        out_shape=array(512, 256), grid=(4, 2),
        in_specs=[
            pallas.BlockSpec((128, 1024), lambda i, j: (i, 0)),
            pallas.BlockSpec((1024, 128), lambda i, j: (0, j)),
        ],
        out_specs=pallas.BlockSpec((128, 128), lambda i, j: (i, j)),
    )  # fmt: skip
    listing = de.trace_listing(product, array(512, 1024), array(1024, 256))
    [row] = listing.kernels
    assert row["flop"] == 2 * 512 * 1024 * 256 + 512 * 256
    assert row["bytes"] == 2 * (512 * 1024 + 1024 * 256 + 512 * 256)
    assert row["dtype"] == "bf16" and "body times its grid" in listing.notes[0]


def test_attention_of_cudnn_needs_no_cudnn():
    q, k = array(2, 1024, 8, 128), array(2, 1024, 2, 128)
    attend = functools.partial(
        jax.nn.dot_product_attention, implementation="cudnn", is_causal=True
    )
    [row] = de.trace_listing(attend, q, k, k).kernels
    assert (row["op"], row["causal"]) == ("context_attention", True)
    sizes = [row[x] for x in ("head_dim", "num_heads", "num_kv_heads", "kv_len")]
    assert sizes == [128, 8, 2, 1024]
    slopes = jax.grad(lambda *x: attend(*x).astype(jnp.float32).sum(), (0, 1, 2))
    ops = [x["op"] for x in de.trace_listing(slopes, q, k, k).kernels]
    assert ops.count("attention_backward") == 1


SPLIT = jax.sharding.NamedSharding(MESH, jax.sharding.PartitionSpec("x"))


@pytest.mark.parametrize(
    "fun, sharding",
    [
        (jnp.matmul, SPLIT), (jax.jit(jnp.matmul, in_shardings=(SPLIT, None)), None),
        (lambda x, w: jax.lax.with_sharding_constraint(x, SPLIT) @ w, None),
    ],
)  # fmt: skip
def test_what_xla_would_split_is_refused(fun, sharding):
    x = jax.ShapeDtypeStruct((64, 32), jnp.bfloat16, sharding=sharding)
    words = r"`fun` .* 4 GPUs \(axis x\).*`jax.shard_map`"
    with pytest.raises(ValueError, match=words):
        de.trace_listing(fun, x, array(32, 8))
    inside = jax.shard_map(jnp.dot, mesh=MESH, in_specs=(ROWS, WHOLE), out_specs=ROWS)
    [row] = de.trace_listing(inside, x, array(32, 8)).kernels
    assert row["m"] == 16


def test_axes_left_to_xla_are_noted():
    fun = jax.shard_map(
        jnp.dot, mesh=MESH, in_specs=(ROWS, WHOLE), out_specs=ROWS, axis_names={"x"}
    )
    [note] = de.trace_listing(fun, array(64, 32), array(32, 8)).notes
    assert "axis y" in note


PRICED = set(
    """
    add_any argmax argmin conv_general_dilated cumlogsumexp cummax cummin cumprod cumsum
    dot_general dynamic_update_slice fft transpose ragged_dot_general reduce pallas_call
    select_and_gather_add
    select_and_scatter_add sort stack top_k gather concatenate pad approx_top_k
    """.split()
)
CALLS = "jit closed_call scan while cond shard_map remat2 custom_jvp_call".split()


def test_every_primitive_is_priced_free_or_noted():
    """Of JAX's own register: a step of each, outside of a function, is a kernel, free
    for a reason, or noted by its name; all that moves between GPUs is priced."""
    names = {x.name for x in gc.get_objects() if isinstance(x, Primitive)}
    assert len(names) > 250
    moving = {x.name for x in vars(parallel).values() if hasattr(x, "bind")}
    x, y = (flat.Value((8, 8, 8, 8), "float32") for _ in range(2))
    for name in sorted(names - set(CALLS) - PRICED):
        params = {"axis_name": "x", "axes": ("x",), "layout": 0}
        step = flat.Step(name, (x, x, x), (y,), params, 1.0, {"x": 4})
        program, notes = flat.Program([step], {y}, {}), {}
        rows = rows_of(program, True, notes)
        reason = FREE.get(name) or SILENT.get(name)
        assert bool(rows) != bool(reason), name
        known = moving_row(step) or is_elementwise(step) or is_reduction(step)
        if name in moving and not reason:
            assert [x["op"] for x in rows] == ["collective"], name
        elif not reason and not known and not name.startswith("dot_product_attention"):
            assert any(name in note for note in notes), name
