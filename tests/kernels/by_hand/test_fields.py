"""What a listing row leaves out, of every op, and the least that it may say."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from diffenergy import kernels
from diffenergy.dtypes import DTYPES, stored_bytes
from diffenergy.kernels import Context, moe
from diffenergy.workload import normalise_kernel

ROOT = Path(__file__).parents[3]
HEADS = dict(
    batch=1, num_kv_heads=3, v_head_dim=16, window_size=0, causal=True,
    shared_kv=False, sinks=False, kv_cache_dtype="fp8",
)  # fmt: skip
ROWS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "activity": ({}, dict(sm_active=1, sm_occupancy=1)),
    "context_attention": (
        dict(q_len=5, num_heads=3, head_dim=16, dtype="fp8"), HEADS | dict(kv_len=5)
    ),
    "attention_backward": (
        dict(q_len=5, num_heads=3, head_dim=16, dtype="fp8"), HEADS | dict(kv_len=5)
    ),
    "generation_attention": (
        dict(kv_len=5, num_heads=3, head_dim=16, dtype="fp8"), HEADS | dict(q_len=1)
    ),
    "collective": (
        dict(collective="all_reduce", bytes=9, num_gpus=2),
        dict(dtype="bf16", link_rate=0),
    ),
    **dict.fromkeys(("conv2d", "conv2d_input_grad", "conv2d_weight_grad"), (
        dict(images=2, in_channels=3, out_channels=4, input_hw=7, kernel_size=1,
             dtype="fp8"),
        dict(stride=1, padding=0, groups=1, out_dtype="bf16", tensor_core=True),
    )),
    "elementwise": (
        dict(fn="gelu", elements=9, dtype="fp32"),
        dict(out_dtype="fp32", reads=1, writes=1),
    ),
    "gather": (dict(rows=2, cols=3, dtype="fp32"), {}),
    "gemm": (
        dict(m=2, n=3, k=4, dtype="bf16"),
        dict(batch=1, out_dtype="bf16", tensor_core=True, weights="b", slices=1),
    ),
    "clblast_gemm": (
        dict(m=2, n=3, k=4, mdimc=8, ndimc=8, mdima=8, ndimb=8, vwm=1, vwn=2),
        dict(batch=1, dtype="fp32", sa=0, sb=0),
    ),
    "moe": (
        dict(num_tokens=2, hidden_size=3, inter_size=4, topk=1, num_experts=6,
             dtype="fp8"),
        dict(moe_tp_size=1, moe_ep_size=1, distribution="balanced", gated=True),
    ),
    "custom": (
        dict(flop=3, bytes=4, dtype="bf16"), dict(tensor_core=True, fn="")
    ),
    "traced": ({"traced_us": 7}, {"class": "unknown"}),
    "scan": (
        dict(kind="kda", q_len=9, num_heads=4, head_dim=8, dtype="bf16"),
        dict(batch=1, v_head_dim=8, groups=4, chunk=64, state_dtype="fp32"),
    ),
    **{
        op: (dict(rows=2, cols=3, dtype="bf16"), dict(residual=False))
        for op in ("softmax", "layernorm", "rmsnorm")
    },
}  # fmt: skip
"""What a row must say, and what stands for all else."""


def test_every_op_is_here_or_has_tests_of_its_own():
    """Defaults and work by hand are what a class says of itself nowhere else."""
    folder = Path(__file__).parents[1]
    for op, (_, module) in kernels.ops().items():
        own = folder / f"test_{module.__name__.rpartition('.')[2]}.py"
        assert op in ROWS or own.exists(), (
            f"write {own.relative_to(ROOT)}: defaults, bytes and FLOP of `{op}`"
        )


@pytest.mark.parametrize("op", ROWS)
def test_defaults(op: str):
    required, rest = ROWS[op]
    result = normalise_kernel({"op": op} | required, "row")
    if op == "activity":  # no unit is busy, nothing was read
        result = {name: value for name, value in result.items() if value != 0}
    assert result == {"op": op, "count": 1} | required | rest


@pytest.mark.parametrize("op", ROWS)
def test_what_a_row_must_say(op: str):
    required, _ = ROWS[op]
    for name in required:
        rest = {key: value for key, value in required.items() if key != name}
        with pytest.raises(ValueError, match=f"`{name}`"):
            normalise_kernel({"op": op} | rest, "row")


@pytest.mark.parametrize("op", ROWS)
def test_the_least_of_every_size(op: str):
    """One of what is counted, none of what may be left out."""
    required, rest = ROWS[op]
    none = ("window_size", "padding", "reads", "writes", "count", "tile_m", "split_k",
            "link_rate", "traced_us", "sa", "sb",
            *(required if op == "custom" else ()))  # fmt: skip
    common = {"count": 1, "tile_m": 1, "split_k": 1}
    for name, value in (required | rest | common).items():
        if isinstance(value, bool | str):
            continue
        share = name.startswith("sm_")
        least = 0 if name in none or share else 1
        row = {"op": op} | required
        normalise_kernel(row | {name: least}, "row")
        with pytest.raises(ValueError, match=f"`{name}` is"):
            normalise_kernel(row | {name: least - 0.1}, "row")
        if share:
            with pytest.raises(ValueError, match=f"`{name}` is"):
                normalise_kernel({"op": op} | required | {name: 1.1}, "row")


def lowered(**options: Any) -> list[Any]:
    """Launches of mixtures, one for each value of the lists in `options`."""
    fields = dict(num_tokens=4, hidden_size=3, inter_size=10, topk=2, num_experts=6,
                  moe_tp_size=1, moe_ep_size=1, distribution="balanced", dtype=CODE,
                  zero_share=0.0, tile_m=0.0, tile_n=0.0, gated=1.0, weight_dtype="",
                  weight_group=0.0, dispatched=0.0)  # fmt: skip
    rows = max(len(x) for x in options.values())
    columns = {
        name: np.array(options.get(name, [value] * rows))
        for name, value in fields.items()
    }
    none = np.zeros(rows)
    return moe.lower("moe", columns, Context(pass_bytes=none, eager=none))


CODE = DTYPES.index("fp8")


def test_kernels_of_two_mixtures():
    """4 x 2 rows on 6 experts, and 30 x 3 on 10 over 2 ranks, a third of each expert:
    gate and up, down; sorting, activation, sum of a token's choices."""
    sort, up, activate, down, combine = lowered(
        num_tokens=[4, 30], topk=[2, 3], num_experts=[6, 10], moe_ep_size=[1, 2],
        moe_tp_size=[1, 3], hidden_size=[3, 7], inter_size=[10, 12],
        dtype=[DTYPES.index("bf16"), CODE],
    )  # fmt: skip
    assert [x.host for x in (sort, up, activate, down, combine)] == [
        "matrix", "none", "none", "none", "none"
    ]  # fmt: skip

    def columns(launch: Any, *names: str) -> list[list[float]]:
        return [launch.columns[name].tolist() for name in names]

    assert columns(up, "n", "k", "all_rows", "experts") == [
        [20, 8], [3, 7], [8, 90], [6, 10]
    ]  # fmt: skip
    assert columns(down, "n", "k") == [[3, 7], [10, 4]]
    for launch in (up, down):  # of the experts of one rank
        used = launch.columns["weight"] * launch.columns["tokens"]
        assert launch.columns["weight"].sum(1).tolist() == [6, 5]
        assert used.sum(1) == pytest.approx([8, 45])
    assert up.bytes.tolist() == [2 * 6 * 3 * 10 * 2, 2 * 5 * 7 * 4]
    assert down.bytes.tolist() == [6 * 3 * 10 * 2, 5 * 7 * 4]
    moved = ("read", "write", "quantised", "issue", "sfu", "first", "sorts", "sorted")
    assert columns(sort, *moved) == [
        [0, 420], [0, 210], [0, 630], [0, 0], [0, 0], [1, 1], [1, 1], [8, 90]
    ]  # fmt: skip
    rows = 90 * 4
    assert columns(activate, *moved) == [
        [480, 8 * rows], [320, 5 * rows], [0, 3 * rows], [640, 8 * rows], [80, rows],
        [0, 0], [0, 0], [0, 0],
    ]  # fmt: skip
    assert columns(combine, *moved) == [
        [96, 4 * 630], [48, 4 * 210], [0, 0], [48, 2 * 630], [0, 0], [0, 0], [0, 0],
        [0, 0],
    ]  # fmt: skip


def test_a_mixture_without_gates_in_int4():
    """Up alone: 10 wide; its activation reads a value less. 6 x 3 x 10 weights in int4,
    a scale of 2 B for 32."""
    _, up, activate, down, _ = lowered(
        gated=[1, 0], weight_dtype=["int4"] * 2, weight_group=[32, 32]
    )
    assert up.columns["n"].tolist() == [20, 10]
    assert up.bytes.tolist() == [2 * 180 * 0.5625, 180 * 0.5625]
    assert down.bytes.tolist() == [180 * 0.5625] * 2
    assert up.columns["stored"].tolist() == [0.5625] * 2
    rows = 8 * 10
    assert activate.columns["read"].tolist() == [8 * rows, 6 * rows]
    assert activate.columns["write"].tolist() == [5 * rows] * 2
    assert activate.columns["issue"].tolist() == [8 * rows, 6 * rows]


@pytest.mark.parametrize(
    ("name", "group", "size"),
    [
        ("bf16", 0, 2), ("bf16", 64, 2), ("fp8", 0, 1), ("fp8", 4096, 1 + 4 / 4096),
        ("fp8_block", 0, 1 + 4 / 128), ("fp8_block", 128**2, 1 + 4 / 128**2),
        ("int8", 128, 1 + 2 / 128), ("int4", 0, 0.5 + 2 / 128), ("int4", 32, 0.5625),
        ("nvfp4", 0, 0.5625), ("mxfp4", 0, 0.53125), ("mxfp8", 0, 1.03125),
    ],
)  # fmt: skip
def test_bytes_of_stored_weights(name: str, group: float, size: float):
    assert stored_bytes(name, group) == size


def test_what_a_row_says_only_where_it_is_not_usual():
    for op, usual, reported in (
        ("moe", dict(dispatched=False), dict(dispatched=True)),
        ("collective", dict(axis=""), dict(axis="tp")),
        ("gemm", {}, dict(weight_dtype="int4", weight_group=32)),
    ):
        row = {"op": op} | ROWS[op][0]
        plain = normalise_kernel(row, "row")
        assert normalise_kernel(row | usual, "row") == plain
        assert normalise_kernel(row | reported, "row") == plain | reported
