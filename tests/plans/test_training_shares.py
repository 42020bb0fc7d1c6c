"""What one of several GPUs launches in training, by hand and against the whole step."""

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from diffenergy.plans import Plan
from diffenergy.workload import Listing, ModelShare, ModelSplit, TrainedModel
from diffenergy.workload.models import model_from_config

from .builders import decoder

WHOLE = ModelShare()


def step(name: str, share: ModelShare = WHOLE, **options: Any) -> list[Listing]:
    """Forward, backward, optimizer of a GPU: by default 2 x 512 tokens."""
    options = dict(batch=2, input_len=512, attention="flash") | options
    return decoder(name).placed(share).listings(phase="train", **options)


def stages(name: str, split: ModelSplit, number: int, **options: Any) -> list[Any]:
    each = range(number) if number > 1 else [None]
    return [step(name, ModelShare(split, number, x), **options) for x in each]


def product_flop(listings: Sequence[Listing]) -> float:
    """FLOP of products, experts and fused attention (masked scores not counted)."""
    total = 0.0
    for k in (k for listing in listings for k in listing.kernels):
        if k["op"] == "gemm":
            flop = 2 * k["batch"] * k["m"] * k["n"] * k["k"]
        elif k["op"] == "moe":
            own = k["topk"] / k.get("moe_tp_size", 1) / k.get("moe_ep_size", 1)
            flop = 6 * k["num_tokens"] * own * k["hidden_size"] * k["inter_size"]
        elif k["op"] in ("context_attention", "attention_backward"):
            forward = k["op"] == "context_attention"
            depths = k["head_dim"] * (1 if forward else 3)
            depths += k["v_head_dim"] * (1 if forward else 2)
            seen = k["kv_len"] / 2 if k["causal"] else k["kv_len"]
            flop = 2 * k["batch"] * k["num_heads"] * k["q_len"] * seen * depths
        else:
            continue
        total += flop * k["count"]
    return total


def exchanges(listing: Listing) -> dict[tuple[str, str, float, int], float]:
    """(axis, kind, bytes, GPUs) -> how often."""
    result: dict[tuple[str, str, float, int], float] = {}
    for k in listing.kernels:
        if k["op"] == "collective":
            key = (k["axis"], k["collective"], k["bytes"], k["num_gpus"])
            result[key] = result.get(key, 0) + k["count"]
    return result


@pytest.mark.parametrize("recompute", ["none", "selective-op", "full"])
@pytest.mark.parametrize(
    ("name", "split", "number"),
    [
        ("llama-3.1-8b", ModelSplit(2), 1),
        ("llama-3.1-8b", ModelSplit(2, cp=4, sequence=True), 3),
        ("opt-6.7b", ModelSplit(4, sequence=True), 2),
        ("mixtral-8x7b", ModelSplit(4, 2, cp=2, sequence=True), 3),
        ("mixtral-8x7b", ModelSplit(4, etp=1, sequence=True), 1),
        ("deepseek-v3", ModelSplit(1, 8), 4),
        ("deepseek-v3", ModelSplit(2, 8, etp=2, cp=2, sequence=True), 1),
        ("glm-4.5-air", ModelSplit(2, 4, sequence=True), 2),
    ],
)
def test_all_gpus_multiply_as_much_as_one(name: str, split, number: int, recompute):
    options: Any = dict(recompute=recompute, accumulation=2)
    one = product_flop(step(name, **options))
    parts = stages(name, split, number, **options)
    all_gpus = split.tp * split.cp * sum(product_flop(part) for part in parts)
    assert all_gpus == pytest.approx(one, rel=1e-12)


def test_unfused_stacks_are_divided_alike():
    options: Any = dict(stack="eager")
    one = product_flop(step("llama-3.1-8b", **options))
    each = step("llama-3.1-8b", ModelShare(ModelSplit(4, sequence=True)), **options)
    # tables of angles are made everywhere
    assert 4 * product_flop(each) == pytest.approx(one, rel=1e-8)
    fused = step("llama-3.1-8b", ModelShare(ModelSplit(4, sequence=True)))
    for a, b in zip(each, fused, strict=True):
        assert exchanges(a) == exchanges(b)


def test_exchanges_of_a_dense_model_by_hand():
    """Two pairs of products a layer of 32, the look-up and the head."""
    size, loss = 2 * 2 * 512 * 4096, ("tp", "all_reduce", 4 * 3 * 1024, 4)
    off, on = (ModelShare(Plan(tp=4, sequence=x).model_split) for x in ("off", "on"))
    forward, backward, optimizer = step("llama-3.1-8b", off)
    summed = ("tp", "all_reduce", size, 4)
    assert exchanges(forward) == {summed: 2 * 32 + 1, loss: 1}
    assert exchanges(backward) == {summed: 2 * 32 + 1}
    assert exchanges(optimizer) == {}
    forward, backward, _ = step("llama-3.1-8b", on)
    whole, parts = (("tp", x, size, 4) for x in ("all_gather", "reduce_scatter"))
    both = {whole: 2 * 32 + 1, parts: 2 * 32 + 1}
    assert exchanges(forward) == both | {loss: 1}
    assert exchanges(backward) == both
    again = exchanges(step("llama-3.1-8b", on, recompute="full")[1])
    assert again == {whole: 4 * 32 + 1, parts: 4 * 32 + 1}


def test_sequence_parallelism_divides_what_lies_between_pairs():
    """Norms on a quarter of 1,024 tokens; products and rotations on all of them."""
    share = ModelShare(ModelSplit(4, sequence=True))
    forward, backward, _ = step("llama-3.1-8b", share)
    rows = {k["rows"] for k in forward.kernels if k["op"] == "rmsnorm"}
    assert rows == {1024 // 4}
    assert {k["m"] for k in forward.kernels if k["op"] == "gemm"} == {1024}
    gradients = [k for k in backward.kernels if k.get("fn") == "rmsnorm_backward"]
    assert {k["elements"] for k in gradients} == {1024 // 4 * 4096}
    # biases behind partial sums: GPT-2 XL, 1,600 wide, 25 heads on 5 GPUs; 1,000
    # tokens: output and down of 200, queries, keys and values and up of all, a fifth
    # of their features
    share = ModelShare(ModelSplit(5, sequence=True))
    _, backward, _ = step("gpt2-xl", share, input_len=500)
    sums = [k["elements"] for k in backward.kernels if k.get("fn") == "bias_grad"]
    assert sums == [200 * 1600, 1000 * 6400 // 5, 200 * 1600, 1000 * 4800 // 5]


def test_gpus_that_share_a_sequence_see_half_of_its_keys():
    """8 of 32 heads of keys of 128; four GPUs, 128 of 512 tokens each, two sequences:
    keys and values of all tokens forward and backward, and their gradients."""
    forward, backward, _ = step("llama-3.1-8b", ModelShare(ModelSplit(cp=4)))
    (row,) = [k for k in forward.kernels if k["op"] == "context_attention"]
    assert (row["q_len"], row["kv_len"], row["causal"]) == (128, 256, False)
    size = 2 * 512 * 2 * 8 * 128 * 2
    gathered = ("cp", "all_gather", size, 4)
    assert exchanges(forward) == {gathered: 32}
    assert exchanges(backward) == {gathered: 32, ("cp", "reduce_scatter", size, 4): 32}


def test_windows_of_shared_sequences_keep_their_work():
    """A window of 4,096 tokens: of 16,384, seven eighths of that in the mean."""
    config = decoder("mistral-7b").config
    values = {**config.values, "sliding_window": 4096}
    model = model_from_config(dataclasses.replace(config, values=values))
    assert isinstance(model, TrainedModel)
    placed = model.placed(ModelShare(ModelSplit(cp=2)))
    forward, *_ = placed.listings(phase="train", batch=1, input_len=16_384)
    (row,) = [k for k in forward.kernels if k["op"] == "context_attention"]
    assert (row["kv_len"], row["window_size"]) == (4096 * 7 // 8, 0)


def test_rows_of_experts_by_hand():
    """Mixtral: 2 of 8 experts of 14,336. Two GPUs a layer, experts among four: each
    brings 512 of the 1,024 tokens; what four bring goes to two experts each."""
    share = ModelShare(ModelSplit(2, 4, sequence=True))
    forward, backward, _ = step("mixtral-8x7b", share)
    (row,) = [k for k in forward.kernels if k["op"] == "moe"]
    assert (row["num_tokens"], row["moe_ep_size"]) == (4 * 512, 4)
    assert row["dispatched"] and row["moe_tp_size"] == 1
    sent = ("ep", "all_to_all", 512 * 2 * 4096 * 2, 4)
    for listing in (forward, backward):
        assert exchanges(listing)[sent] == 2 * 32
    batched = [k for k in backward.kernels if k["op"] == "gemm" and k["batch"] == 2]
    sizes = {(k["m"], k["k"]) for k in batched if k["weights"] == "b"}
    assert sizes == {(512, 4096), (512, 2 * 14336)}
    # etp 2 of tp 2: each half of 14,336 features, rows of both GPUs
    split = ModelSplit(2, 4, etp=2, sequence=True)
    forward, _, _ = step("mixtral-8x7b", ModelShare(split))
    result = exchanges(forward)
    size = 2 * 512 * 2 * 4096 * 2
    for kind in ("all_gather", "reduce_scatter"):
        assert result["tp", kind, size, 2] == 32
    whole = ("tp", "all_reduce", 1024 * 4096 * 2, 2)
    result = exchanges(step("mixtral-8x7b", ModelShare(ModelSplit(2)))[0])
    assert result[whole] == 2 * 32 + 1  # experts like any pair of layers


def test_stages_begin_and_end_where_they_should():
    """The first norm of a stage has no skip connection to add."""
    parts = stages("llama-3.1-8b", ModelSplit(), 3)
    ops = [[k.get("fn", k["op"]) for k in x[0].kernels] for x in parts]
    assert [x.count("gather") for x in ops] == [1, 0, 0]
    assert [x.count("softmax") for x in ops] == [0, 0, 1]
    assert [x.count("pointwise_add") for x in ops] == [1, 1, 0]
    for forward, layers in zip((x[0] for x in parts), (11, 11, 10), strict=True):
        norms = [k for k in forward.kernels if k["op"] == "rmsnorm"]
        plain = sum(k["count"] for k in norms if not k["residual"])
        added = sum(k["count"] for k in norms if k["residual"])
        last = forward is parts[2][0]
        assert (plain, added) == (1, 2 * layers - (0 if last else 1))
        (attention,) = [k for k in forward.kernels if k["op"] == "context_attention"]
        assert attention["count"] == layers


def test_stages_without_layers_have_the_ends():
    """126 layers and two ends on 8 x 16 virtual stages leave the first none."""
    first = step("llama-3.1-405b", ModelShare(stages=128, stage=0, spans=((0, 0),)))
    assert [k["op"] for k in first[0].kernels] == ["gather"]
    share = ModelShare(stages=128, stage=127, spans=((126, 126),))
    last = step("llama-3.1-405b", share)
    assert [k["op"] for k in last[0].kernels] == ["rmsnorm", "gemm", "softmax"]


@pytest.mark.parametrize("name", ["mixtral-8x7b", "gpt2-xl"])
def test_optimizers_divide_their_state(name: str):
    """AdamW over an eighth of the parameters, of experts over half of a quarter."""
    model, split = decoder(name), ModelSplit(ep=4 if name == "mixtral-8x7b" else 1)
    share = ModelShare(split, shards=8, expert_shards=2)
    (row,) = [k for k in step(name, share)[2].kernels if k["fn"] == "adamw"]
    experts = model.expert_parameters()
    expected = (model.parameters() - experts) / 8 + experts / 4 / 2
    assert row["elements"] == pytest.approx(expected, abs=1)


def test_recomputation():
    """Selective: attention again; by operator half of the products."""
    options: Any = dict(attention="eager")
    plain, again = (
        product_flop(step("gpt3-xl", recompute=x, **options))
        for x in ("none", "selective")
    )
    scores = 2 * 2 * 2 * 16 * 512**2 * 128 * 24  # two products, 2 x 16 heads, 24 layers
    assert again - plain == scores
    flash = [step("gpt3-xl", recompute=x)[1] for x in ("none", "selective")]
    assert flash[0] == flash[1]
    name = "llama-3.1-8b"
    plain, half, full = (
        product_flop([step(name, recompute=x)[1]])
        for x in ("none", "selective-op", "full")
    )
    (attention,) = [k for k in step(name)[0].kernels if k["op"] == "context_attention"]
    forward = dataclasses.replace(step(name)[0], kernels=(attention,))
    assert full - plain - product_flop([forward]) == 2 * (half - plain)


def test_eight_bit_steps_cast_what_they_multiply():
    """Inputs forward, gradients backward, each written twice."""
    forward, backward, _ = step("llama-3.1-8b", dtype="fp8")
    widths = [[], []]
    for listing, result in zip((forward, backward), widths, strict=True):
        for k in listing.kernels:
            if k.get("fn") == "quantize":
                assert (k["reads"], k["writes"], k["out_dtype"]) == (1, 2, "fp8")
                assert k["count"] == 32
                result.append(k["elements"] / 1024)
    assert widths[0] == [4096, 4096, 4096, 14336]
    assert widths[1] == [4096, 2 * 14336, 4096, (32 + 2 * 8) * 128]
    for listing in step("llama-3.1-8b", dtype="nvfp4")[:2]:
        kinds = {k["dtype"] for k in listing.kernels if k["op"] == "gemm"}
        assert kinds == {"nvfp4", "bf16"}


@pytest.mark.parametrize(("number", "stage", "wide"), [(1, 0, 1), (6, 0, 6), (9, 1, 1)])
def test_first_and_last_layers_stay_in_16_bit(number: int, stage: int, wide: int):
    """Of 32 layers in four stages, experts too, as in a step of bf16."""
    model = decoder("mixtral-8x7b")
    placed = model.placed(ModelShare(stages=4, stage=stage))
    assert isinstance(placed, TrainedModel)
    request = model.request(batch=1, input_len=512, phase="train", dtype="fp8")
    ends = dataclasses.replace(request, bf16_layers=number)
    requests = request, ends, dataclasses.replace(request, dtype="bf16")
    listings = [placed.listings_of(x) for x in requests]

    def launches(op: str, dtype: str, mode: int) -> np.ndarray:
        """Launches of an operator in a type, of each request."""
        rows = ([k for k in x[mode].kernels if k["op"] == op] for x in listings)
        return np.array([sum(k["count"] * (k["dtype"] == dtype) for k in x)
                         for x in rows])  # fmt: skip

    for op, mode in itertools.product(("gemm", "moe"), (0, 1)):
        narrow, mixed, _ = launches(op, "fp8", mode)
        assert mixed == pytest.approx(narrow * (8 - wide) / 8)
        assert narrow > 0 or (op, mode) == ("moe", 1)  # gradients are products
        narrow, mixed, whole = launches(op, "bf16", mode)
        assert mixed - narrow == pytest.approx((whole - narrow) * wide / 8)
