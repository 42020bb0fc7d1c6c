import csv
import math
from typing import Any

import pytest

from diffenergy.workload import listing_lines, load_model, read_listings, select_listing

from .builders import flop, one

PARTS = ("forward", "backward", "optimizer")


def step(name, batch=2, input_len=64, **choices):
    """Kernels of the three phases."""
    listings = load_model(name).listings(
        batch=batch, input_len=input_len, phase="train", **choices
    )
    assert tuple(x.mode for x in listings) == PARTS
    assert [x.name for x in listings] == [f"{listings[0].model}/{x}" for x in PARTS]
    return [x.kernels for x in listings]


def products(kernels):
    """FLOP of matrix products; the experts of a token are gate, up and down."""
    sizes = ("num_tokens", "topk", "hidden_size", "inter_size", "count")
    experts = (math.prod(k[x] for x in sizes) for k in kernels if k["op"] == "moe")
    return flop(kernels) + 6 * sum(experts)


def moved(kernel):
    """Bytes per launch of an elementwise, row or look-up kernel in 2-byte types."""
    if kernel["op"] == "elementwise":
        return 2 * kernel["elements"] * (kernel["reads"] + kernel["writes"])
    tensors = 4 if kernel.get("residual") else 2
    return 2 * tensors * kernel["rows"] * kernel["cols"]


MULTIPLIED = {
    "llama-3.1-8b": 8_030_261_248 - 128256 * 4096,
    "qwen2-1.5b": 1_543_714_304,  # one table looks up and multiplies
    "gpt3-xl": 1_315_819_520 - 2048 * 2048,
    "mixtral-8x7b": 46_702_792_704 - 32000 * 4096 - 32 * 6 * 3 * 4096 * 14336,
}
"""Parameters but for look-ups and, of a mixture, the experts that a token skips."""


@pytest.mark.parametrize("name", MULTIPLIED)
def test_a_step_takes_six_flop_per_weight_and_token(name):
    """Checkpointed layers take eight, the head six."""
    forward, backward, rest = step(name, 2, 512)
    tokens = 2 * 512
    assert products(forward) == pytest.approx(2 * MULTIPLIED[name] * tokens, rel=0.01)
    assert products(backward) == 2 * products(forward)
    assert products(rest) == 0
    head = {"gpt3-xl": 50304 * 2048, "qwen2-1.5b": 151936 * 1536}.get(name)
    head = head or {"llama-3.1-8b": 128256, "mixtral-8x7b": 32000}[name] * 4096
    rows = [row for part in step(name, checkpointing=True) for row in part]
    expected = (8 * (MULTIPLIED[name] - head) + 6 * head) * 2 * 64
    assert products(rows) == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize("stack", ["serving", "eager"])
def test_micro_batches_run_again_but_the_optimizer_once(stack):
    model = load_model("gpt2")
    choices: dict[str, Any] = dict(batch=2, input_len=64, stack=stack)
    whole = model.listings(phase="train", accumulation=5, **choices)
    single = model.listings(phase="train", **choices)
    assert [x.passes for x in whole] == [5, 5, 1]
    assert [x.passes for x in single] == [1, 1, 1]
    for five, once, times in zip(whole, single, (5, 5, 1), strict=True):
        added = [k for k in five.kernels if k.get("fn") == "accumulate"]
        rest = [k for k in five.kernels if k not in added]
        assert rest == [{**k, "count": times * k["count"]} for k in once.kernels]
        assert five.module_calls == times * once.module_calls
        assert len(added) == (1 if once.mode == "backward" else 0)
    (added,) = [k for k in whole[1].kernels if k.get("fn") == "accumulate"]
    assert (added["elements"], added["count"]) == (124_439_808, 4)
    reads, writes = (1, 0) if stack == "serving" else (2, 1)
    assert (added["reads"], added["writes"]) == (reads, writes)


@pytest.mark.parametrize(
    "dtype, read, written",
    [("fp8", 2 + 4 + 4 + 4, 4 + 4 + 4 + 2), ("tf32", 4 + 4 + 4 + 4, 4 + 4 + 4)],
)
def test_adamw_reads_and_writes_the_state_of_every_parameter(dtype, read, written):
    """Gradient, master weight, two moments -> the latter three and the weight."""
    adamw = one(step("gpt2", dtype=dtype)[2], fn="adamw")
    assert adamw["elements"] == 124_439_808 and adamw["dtype"] == "fp32"
    assert 4 * adamw["reads"] == read and 4 * adamw["writes"] == written


def names(kernels):
    return [k.get("fn", k["op"]) for k in kernels if k["count"] > 1]


def test_kernels_of_a_llama_layer():
    """In their order; a layer that runs again does so before its gradients."""
    forward, backward, _ = step("llama-3.1-8b")
    layer = [
        "gemm", "rope", "context_attention", "gemm", "rmsnorm",
        "gemm", "silu_mul", "gemm", "rmsnorm",
    ]  # fmt: skip
    assert names(forward) == layer
    two = ["gemm", "gemm"]
    gradients = [
        *two, "silu_mul_backward", *two, "rmsnorm_backward",
        *two, "attention_backward", "rope", *two, "rmsnorm_backward",
    ]  # fmt: skip
    assert names(backward) == gradients
    loss = one(forward, op="softmax")
    assert (loss["rows"], loss["cols"], loss["dtype"]) == (2 * 64, 128256, "bf16")
    _, again, _ = step("llama-3.1-8b", checkpointing=True)
    assert names(again)[:9] == ["rmsnorm", *layer[:-1]]


def test_a_mixture_has_two_products_for_each_of_its_experts():
    """512 tokens, two of eight experts: 128 rows an expert."""
    forward, backward, _ = step("mixtral-8x7b", 2, 256)
    assert one(forward, op="moe")["count"] == 32
    batched = [k for k in backward if k["op"] == "gemm" and k["batch"] == 8]
    assert [(k["m"], k["n"], k["k"], k["weights"]) for k in batched] == [
        (128, 14336, 4096, "b"),
        (4096, 14336, 128, "none"),
        (128, 4096, 2 * 14336, "b"),
        (2 * 14336, 4096, 128, "none"),
    ]
    few = step("mixtral-8x7b", 1, 2)[1]  # two tokens choose four experts
    assert {k["batch"] for k in few if k["op"] == "gemm"} == {1, 4}


def test_eight_bit_layers_keep_head_gradients_and_loss_in_16_bit():
    forward, backward, _ = step("llama-3.1-8b", dtype="fp8")
    for rows in (forward, backward):
        kinds = {k["dtype"] for k in rows if k["op"] == "gemm" and k["count"] > 1}
        assert kinds == {"fp8"}
        head = [k for k in rows if k["op"] == "gemm" and 128256 in (k["m"], k["n"])]
        assert {k["dtype"] for k in head} == {"bf16"}
    weight = [k for k in backward if k["op"] == "gemm" and k["k"] == 2 * 64]
    assert {k["out_dtype"] for k in weight} == {"bf16"}


@pytest.fixture(scope="module")
def inferred(shared):
    """The 46 kernels of one iteration of GPT-3 XL, with their repeats."""
    folder = shared / "data" / "kernel_dvfs"
    with (folder / "kernel_shapes_inferred.csv").open() as file:
        kernels = list(csv.DictReader(file))
    with (folder / "table1_best_clocks.csv").open() as file:
        repeats = {
            x["kernel_id"]: x["repeats_per_iteration"] for x in csv.DictReader(file)
        }
    return [(kernel, int(repeats[kernel["kernel_id"]])) for kernel in kernels]


@pytest.mark.shared_data
def test_a_step_of_gpt3_xl_launches_the_kernels_of_llm_c(inferred):
    """In the same order: forward from the embedding, backward to it (the last norm
    stands at the loop's end forward). GEMM in m, n, k up to a transposition, other
    kernels by bytes within 3 % (the list leaves out what is written to the table of
    positions); what sums a bias's partial sums is not counted."""
    forward, backward, _ = step("gpt3-xl", 40, 1024, attention="eager")
    rows = [*forward, *backward]
    assert sum(k["count"] for k in rows) == sum(n for _, n in inferred) == 897
    assert len(rows) == len(inferred) == 46
    for row, (kernel, repeats) in zip(rows, inferred, strict=True):
        role = kernel["role_inferred"]
        assert row["count"] == repeats, role
        if kernel["gemm_mnk_inferred"]:
            assert row["op"] == "gemm", role
            outer, _, inner = kernel["gemm_mnk_inferred"].rpartition("x[")
            m, n, k = map(int, inner.strip("[]").split("x"))
            assert row["batch"] == int(outer or 1), role
            assert (sorted((row["m"], row["n"])), row["k"]) == (sorted((m, n)), k), role
            assert flop([row]) / row["count"] == pytest.approx(
                float(kernel["flops"]), rel=1e-5
            ), role
        elif float(kernel["min_dram_bytes"]):
            expected = float(kernel["min_dram_bytes"])
            assert moved(row) == pytest.approx(expected, rel=0.03), role
        else:
            assert row["fn"] == "bias_reduce", role


def test_the_three_parts_are_read_back_as_one(tmp_path):
    listings = load_model("gpt2").listings(phase="train", accumulation=3)
    other = load_model("gpt2").listings(output_len=4)
    path = tmp_path / "step.jsonl"
    path.write_text(listing_lines(listings))
    back = read_listings(path)
    assert back == listings
    assert select_listing(back, None) == select_listing(back, "gpt2") == listings
    assert select_listing(back[::-1], None) == listings
    assert select_listing(back, "gpt2/backward") == listings[1:2]
    with pytest.raises(ValueError, match="--workload"):
        select_listing(back[:2], None)
    with pytest.raises(ValueError, match="no such workload"):
        select_listing(back[:2], "gpt2")
    path.write_text(listing_lines([*listings, *other]))
    with pytest.raises(ValueError, match="generation and of a training step"):
        select_listing(read_listings(path), "gpt2")
