"""Training of BERT and of vision models: published counts, FLOP, kernels, memory."""

import dataclasses
import itertools
from typing import Any

import pytest

from diffenergy.workload import load_model
from diffenergy.workload.models import model_from_config

from . import builders
from .builders import adamw, multiset
from .builders import train as step

GRADIENTS = ("conv2d_input_grad", "conv2d_weight_grad")
PUBLISHED = {
    "resnet-50": (25_557_032, 4.09),
    "resnet-101": (44_549_160, 7.80),
    "vit-base": (86_567_656, 17.56),
    "vit-large": (304_326_632, 61.55),
    "mobilevit-small": (5_578_632, 2.0),
}
"""Parameters and forward multiply-adds of an image in 1e9: torchvision (mobilevit:
arXiv 2110.02178, table 4)."""


def output_hw(k):
    return (k["input_hw"] + 2 * k["padding"] - k["kernel_size"]) // k["stride"] + 1


def flop(kernels):
    """FLOP of products and convolutions."""
    total = builders.flop(kernels)
    for k in kernels:
        if k["op"].startswith("conv2d"):
            taps = k["in_channels"] // k["groups"] * k["kernel_size"] ** 2
            pixels = k["images"] * output_hw(k) ** 2
            total += 2 * pixels * k["out_channels"] * taps * k["count"]
    return total


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_parameters_are_trained_at_the_published_flop(name):
    """Backward two products for each, but of the image the weights' gradient alone."""
    parameters, gmac = PUBLISHED[name]
    model = load_model(name)
    forward, backward, optimizer = step(model)
    assert adamw(optimizer) == parameters == model.parameters()
    assert flop(forward) / 4e9 == pytest.approx(gmac, rel=0.015)
    assert flop(forward) == flop(model.listings(batch=2)[0].kernels)
    first = [k for k in forward if k["op"] == "conv2d"][:1]
    assert flop(backward) == 2 * flop(forward) - flop(first)
    assert flop(optimizer) == 0


@pytest.mark.parametrize(
    ("architecture", "parameters"),
    [
        ("BertModel", 109_514_298),
        ("BertForMaskedLM", 109_514_298),
        ("BertForPreTraining", 110_106_428),
        ("BertForSequenceClassification", 109_483_778),
        ("BertForTokenClassification", 108_893_186),
        ("BertModel and BertForTokenClassification", 108_893_186),
    ],
)
def test_the_head_of_a_bert_is_that_of_its_class(architecture, parameters):
    """Parameters of Hugging Face's classes for bert-base-uncased, two labels."""
    config = load_model("bert-base").config
    values = {**config.values, "architectures": architecture.split(" and ")}
    model = model_from_config(dataclasses.replace(config, values=values))
    forward, backward, optimizer = step(model, input_len=128)
    assert adamw(optimizer) == parameters
    assert flop(backward) == 2 * flop(forward)
    words = [k for k in forward if k["op"] == "gemm" and k["m"] == 30522]
    masked = architecture in ("BertModel", "BertForMaskedLM", "BertForPreTraining")
    assert [k["n"] for k in words] == ([256] if masked else [])


@pytest.mark.parametrize("name", ["bert-base", "vit-base"])
@pytest.mark.parametrize("attention", ["eager", "flash"])
def test_the_forward_pass_is_that_of_inference_with_head_and_loss(name, attention):
    model = load_model(name)
    forward, backward, _ = step(model, attention=attention)
    first = [k for k in forward if k["op"] == "conv2d"][:1]
    assert flop(backward) == 2 * flop(forward) - flop(first)
    trained = multiset(forward)
    inference = multiset(model.listings(batch=2, attention=attention)[0].kernels)
    added, missing = (
        sorted(dict(x).get("fn", dict(x)["op"]) for x in rows)
        for rows in (trained - inference, inference - trained)
    )
    loss = ["nll_loss", "softmax", "typecast_to_fp32"]
    if name == "vit-base":
        assert (added, missing) == (loss, [])
        assert not any(k.get("zero_share") for k in (*forward, *backward))
        return
    # the head: two layers, GELU and a norm; the pooler is none
    assert missing == ["gemm", "tanh"]
    assert {*added} == {*loss, "gemm", "gelu", "layernorm"}
    if attention == "flash":
        for rows, op in (
            (forward, "context_attention"), (backward, "attention_backward")
        ):  # fmt: skip
            (kernel,) = [k for k in rows if k["op"] == op]
            assert kernel["causal"] is False and kernel["count"] == 12


def test_kernels_of_a_bottleneck():
    """The second block of ResNet-50's first stage, in order; bf16 converts layouts.
    BatchNorm passes twice over its values."""
    forward, backward, _ = step("resnet-50", dtype="fp32")
    inside = ["conv2d", "batch_norm_statistics", "batch_norm"]
    block = [*inside, "relu", *inside, "relu", *inside, "pointwise_add", "relu"]
    back = ["relu_backward", "batch_norm_sums", "batch_norm_backward", *GRADIENTS]
    for rows, expected in ((forward, block), (backward, [*3 * back, "pointwise_add"])):
        runs = [list(g) for _, g in itertools.groupby(rows, key=lambda k: k["count"])]
        (repeated,) = [x for x in runs if x[0]["count"] == 5]  # of the third stage
        assert [k.get("fn", k["op"]) for k in repeated] == expected
    inputs, weights = (sum(k["op"] == op for k in backward) for op in GRADIENTS)
    assert inputs == weights - 1  # none of the image
    traffic = {
        k["fn"]: (k["reads"], k["writes"])
        for k in (*forward, *backward)
        if k.get("fn", "").startswith("batch_norm") and k["elements"] == 2 * 64 * 112**2
    }
    assert traffic == {
        "batch_norm_statistics": (1, 0), "batch_norm": (1, 1),
        "batch_norm_sums": (2, 0), "batch_norm_backward": (2, 1),
    }  # fmt: skip


def test_layouts_are_converted_for_what_cudnn_reads():
    """x and y forward; dy and dx, then x and dy: six of a convolution, four of the
    first, none in fp32."""
    for dtype, each in (("bf16", 6), ("fp32", 0)):
        forward, backward, _ = step("resnet-50", dtype=dtype)
        rows = [k for k in (*forward, *backward) if "nhwc" in k.get("fn", "")]
        assert sum(k["count"] for k in rows) == each * 53 - (2 if each else 0)
        moved = sum(k["elements"] * k["count"] for k in rows)
        sizes = [
            (2 * k["in_channels"] * k["input_hw"] ** 2,
             2 * k["out_channels"] * output_hw(k) ** 2, k["count"])
            for k in forward if k["op"] == "conv2d"
        ]  # fmt: skip
        assert moved == (
            3 * sum((x + y) * n for x, y, n in sizes) - sum(sizes[0][:2]) if each else 0
        )


def memory(name, **choices):
    model = load_model(name)
    return model.memory(model.request(**{"phase": "train", "batch": 2, **choices}))


@pytest.mark.parametrize(
    ("name", "tokens", "scores"), [("vit-large", 197, 6), ("bert-large", 256, 2)]
)
def test_a_layer_keeps_what_is_published(name, tokens, scores):
    """arXiv 2205.05198: 34 s b h and 5 a s^2 b bytes with dropout masks (2 s b h and
    a s^2 b, with a softmax that keeps its output twice): 32 s b h, and of each score
    its probability (2 bytes), that of ViT also in fp32."""
    more: dict[str, Any] = {} if name == "vit-large" else {"input_len": tokens}

    def each(attention):
        """Of the second layer: the first goes with what is before it."""
        choices = {"attention": attention, **more}
        one, two = (
            memory(name, frozen_layers=n, **choices)["activations"] for n in (1, 2)
        )
        return one - two

    assert each("eager") == 32 * 2 * tokens * 1024 + scores * 16 * 2 * tokens**2
    assert each("flash") == 32 * 2 * tokens * 1024 + 4 * 16 * 2 * tokens


def test_a_resnet_keeps_inputs_of_convolutions_and_of_norms():
    """Every map that a convolution or a BatchNorm reads, once (shortcuts read what the
    first convolution of their block does); 11.1 million of the latter an image, as
    timm counts ResNet-50; the pools' inputs and places, the classifier's input."""
    forward, *_ = step("resnet-50")
    convs = [k for k in forward if k["op"] == "conv2d"]
    outputs = sum(2 * k["out_channels"] * output_hw(k) ** 2 * k["count"] for k in convs)
    assert outputs / 2 == pytest.approx(11.1e6, rel=0.005)
    inputs = sum(2 * k["in_channels"] * k["input_hw"] ** 2 * k["count"] for k in convs)
    shortcuts = 2 * (64 * 56**2 + 256 * 56**2 + 512 * 28**2 + 1024 * 14**2)
    pools = 2 * 2 * (64 * 112**2 + 2048 * 7**2) + 8 * 2 * 64 * 56**2
    expected = 2 * (inputs - shortcuts + outputs) + pools + 2 * 2 * 2048
    assert memory("resnet-50")["activations"] == expected


ENDS = {
    "resnet-50": 64 * 112**2 * 147 + 2048 * 1000,
    "vit-base": 196 * 768**2 + 768 * 1000,
    "bert-base": 512 * 768 * (768 + 30522),
}
"""Multiply-adds of the stem or look-up, and of the head."""


@pytest.mark.parametrize("name", ENDS)
def test_checkpointing_runs_the_layers_again(name):
    plain, again = (step(name, checkpointing=x) for x in (False, True))
    assert plain[0] == again[0] and plain[2] == again[2]
    layers = flop(plain[0]) - 2 * 2 * ENDS[name]
    assert flop(again[1]) - flop(plain[1]) == layers
    parts, parameters = memory(name), adamw(plain[2])
    assert parts["weights"] == parts["gradients"] == 2 * parameters
    assert parts["optimizer"] == 12 * parameters
    less, twice = memory(name, checkpointing=True), memory(name, batch=4)
    assert less["activations"] < 0.6 * parts["activations"]
    assert twice["activations"] == 2 * parts["activations"]
    assert twice["optimizer"] == parts["optimizer"]
