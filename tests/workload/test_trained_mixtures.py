"""Training of layers that differ: DeepSeek-V3 by hand."""

import dataclasses
from typing import Any

import pytest

from diffenergy import measurements
from diffenergy.plans._passes import model_flop
from diffenergy.workload import TrainedModel, load_model, without_mtp

from .builders import flop, of_config

HIDDEN, HEADS, VOCAB = 7168, 128, 129280
ATTENTION = (
    HIDDEN * (1536 + 512 + 64)  # down, and the one rotated key
    + 1536 * HEADS * (128 + 64)
    + 512 * HEADS * (128 + 128)
    + HEADS * 128 * HIDDEN
)
DENSE, EXPERT, ROUTER = 3 * HIDDEN * 18432, 3 * HIDDEN * 2048, HIDDEN * 256
PUBLISHED = 671_026_404_352
"""Parameters, "671B total"; those of the module behind are "11.5B unique"."""


def model_of(name: str) -> TrainedModel:
    model = load_model(name)
    assert isinstance(model, TrainedModel)
    return model


def step(name: str, **choices: Any) -> list[Any]:
    return load_model(name).listings(phase="train", **choices)


def weights_of_a_token(mtp: int) -> int:
    """Multiplied weights: 3 dense layers, 58 with 8 + 1 experts, the head; behind them
    a joint projection, a layer and the head again."""
    sparse = ATTENTION + 9 * EXPERT + ROUTER
    stack = 3 * (ATTENTION + DENSE) + 58 * sparse + VOCAB * HIDDEN
    return stack + mtp * (2 * HIDDEN**2 + sparse + VOCAB * HIDDEN)


def test_parameters_with_and_without_the_module_behind():
    model = model_of("deepseek-v3")
    assert model.parameters() == PUBLISHED
    # look-up and head are those of the model; five norms
    norms = 5 * HIDDEN + 1536 + 512
    layer = ATTENTION + 257 * EXPERT + ROUTER + norms
    assert model.step_parameters() - PUBLISHED == layer + 2 * HIDDEN**2
    assert layer + 2 * HIDDEN**2 == pytest.approx(11.5e9, rel=0.015)
    assert model.expert_parameters() == 59 * 256 * EXPERT


def test_flop_of_a_token_by_hand():
    """6 a multiplied weight, and attention over half of 4,096 keys: 3 x 2 products of
    widths 192 and 128. Megatron-Bridge's counts are 1,640 TFLOP/s at 6,304 tokens/s
    with the module behind and 961 at 3,848 without. A row that was measured "w/o MTP"
    has the published parameters alone."""
    model = model_of("deepseek-v3")
    plain = dataclasses.replace(model, config=without_mtp(model.config))
    assert plain.further_layers == 0
    assert plain.step_parameters() == plain.parameters() == PUBLISHED
    request: Any = dict(phase="train", batch=1, input_len=4096, dtype="fp8")
    for network, mtp, published in (
        (model, 1, 1640e12 / 6304), (plain, 0, 961e12 / 3848)
    ):  # fmt: skip
        forward, backward, _ = network.listings(**request)
        per_token = model_flop(forward, backward) / 4096
        pairs = (61 + mtp) * HEADS * (192 + 128) * 4097 / 2
        expected = 6 * weights_of_a_token(mtp) + 6 * pairs
        assert per_token == pytest.approx(expected, rel=1e-9)
        assert per_token == pytest.approx(published, rel=0.005)
        routed = 6 * HIDDEN * 2048 * 8 * 4096 * (58 + mtp)  # one fused op forward
        assert flop(backward.kernels) == 2 * (flop(forward.kernels) + routed)
    assert weights_of_a_token(0) == pytest.approx(37e9, rel=0.015)  # "37B activated"


@pytest.mark.parametrize("name", ["deepseek-v3", "glm-4.5-air", "gpt-oss-20b"])
def test_every_layer_runs_forward_and_backward(name: str):
    model = model_of(name)
    layers = len(model.stack()) + model.further_layers
    forward, backward, _ = model.listings(
        phase="train", batch=1, input_len=256, dtype="bf16"
    )
    for part, op in ((forward, "context_attention"), (backward, "attention_backward")):
        assert sum(k["count"] for k in part.kernels if k["op"] == op) == layers
    again = step(name, batch=1, input_len=256, dtype="bf16", checkpointing=True)[1]
    repeated = [k for k in again.kernels if k["op"] == "context_attention"]
    assert sum(k["count"] for k in repeated) == layers
    routed = layers - sum(not any(w.used < 1 for w, _ in x.all_weights())
                          for x in model.stack())  # fmt: skip
    assert sum(k["count"] for k in forward.kernels if k["op"] == "moe") == routed


@pytest.mark.parametrize("topk", [8, 1])
def test_activations_of_a_token_by_hand(topk: int):
    """Bytes in 16 bit: inputs of norms and of linear layers, queries, keys and values,
    sums of rows; dense: gate, up, product; experts: rows sent, too. With one expert a
    token the dense layers are the largest."""
    values = model_of("deepseek-v3").config.values
    model = of_config({**values, "num_experts_per_tok": topk}, TrainedModel)
    tokens = 2 * 512
    queries, values = HEADS * 192, HEADS * 128
    latent = 2 * (1536 + 512)  # inputs of their norms, and of what is behind
    mixer = 2 * (2 * HIDDEN + latent + 2 * queries + values + values) + 4 * HEADS
    dense = 2 * (2 * HIDDEN + 3 * 18432)
    shared = 2 * (HIDDEN + 3 * 2048)
    # the last of the router and of what is sent
    sparse = 2 * HIDDEN + shared + topk * 2 * (HIDDEN + 3 * 2048) + 2 * HIDDEN
    ends = 2 * 2 * HIDDEN  # the final norm and the head
    behind = 2 * (2 * HIDDEN + 2 * HIDDEN) + mixer + sparse + ends
    each = 61 * mixer + 3 * dense + 58 * sparse + ends + behind
    request: Any = dict(phase="train", batch=2, input_len=512, dtype="bf16")
    left = model.saved_activations(model.request(**request))
    assert left.each == tokens * each
    assert left.logits == 2 * tokens * VOCAB * 6
    again = model.saved_activations(model.request(**request, checkpointing=True))
    assert again.each == tokens * (62 * 2 * HIDDEN + behind - mixer - sparse + ends)
    assert again.once == tokens * (mixer + max(dense, sparse))


def test_frozen_layers_leave_the_others():
    """The three dense layers frozen: weights of 58 layers, the ends and what is behind
    have gradients."""
    model = model_of("deepseek-v3")
    choices: Any = dict(phase="train", batch=1, input_len=128, dtype="bf16")
    plain, some = (model.request(**choices, frozen_layers=x) for x in (None, 3))
    every, left = (model.memory(x)["gradients"] / 2 for x in (plain, some))
    norms = 2 * HIDDEN + 1536 + 512
    assert every == model.step_parameters()
    assert every - left == 3 * (ATTENTION + DENSE + norms) + VOCAB * HIDDEN


def test_measured_rows_say_whether_it_was_trained(write):
    for mtp, with_mtp in (("false", False), ("true", True), ("", True)):
        rows = (
            "gpu,model,precision,tp,pp,dp,ep,global_batch,seq_len,mtp,time_s\n"
            f"gb200,deepseek-v3,mxfp8,1,2,128,32,4096,4096,{mtp},9\n"
        )
        table = measurements.read(write(rows))
        assert table.kind[0] == "plan" and table.plan[0].mtp is with_mtp


def test_experts_with_biases_are_not_fused():
    """gpt-oss-20b, 2,880 wide and inside, 4 of 32 experts, 1,024 tokens in 16 bit:
    gate and up clamped (2 reads, 2 writes) and joined (2, 2); the last bias times the
    weight of its choice (1 write), added (2, 1), joined (1, 1). Backward the clamps
    (4, 2) and what joins their gradients (2, 2); of bias and weight (1, 1) and sums
    (1) each, of which `bias_grad` is one. 24 layers."""
    rows = 4 * 1024 * 2880
    forward, backward, _ = step("gpt-oss-20b", batch=2, input_len=512)
    expected = [
        (forward, "clamp", (4, 4)), (forward, "bias_add", (3, 3)),
        (backward, "clamp_backward", (6, 4)), (backward, "bias_add_backward", (3, 2)),
    ]  # fmt: skip
    for listing, fn, moved in expected:
        result = [x for x in listing.kernels if x.get("fn") == fn]
        assert {(x["reads"], x["writes"]) for x in result} == {moved}
        assert {x["elements"] for x in result} == {rows}
        assert sum(x["count"] for x in result) == 24
    plain = step("qwen3-30b-a3b", batch=2, input_len=512)
    assert not {"clamp", "bias_add"} & {x.get("fn") for x in plain[0].kernels}


def test_products_are_in_the_type_of_the_request():
    """Not as the checkpoint is stored: fp8 in blocks by default, 16 bit on request;
    gpt-oss is stored in mxfp4, whose products no training step has."""
    for dtype, product in ((None, "fp8_block"), ("fp8", "fp8"), ("bf16", "bf16")):
        forward, backward, _ = step("deepseek-v3", batch=1, input_len=64, dtype=dtype)
        for part in (forward, backward):
            wide = [k for k in part.kernels if k["op"] == "gemm" and k["k"] == 16384]
            assert {k["dtype"] for k in wide} <= {product}
            assert wide or part is backward
    model = model_of("gpt-oss-20b")
    assert model.request(phase="train").dtype == "bf16"
    assert model.request(phase="prefill").dtype == "mxfp4"
    with pytest.raises(ValueError, match="`dtype` is 'mxfp4', but a training step has"):
        model.request(phase="train", dtype="mxfp4")
