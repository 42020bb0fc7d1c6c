"""Training of BERT and of vision models: published counts, FLOP, kernels, memory."""

import collections
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


def names(kernels):
    return [k.get("fn", k["op"]) for k in kernels]


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_parameters_are_trained_at_the_published_flop(name):
    parameters, gmac = PUBLISHED[name]
    forward, backward, optimizer = step(name)
    assert adamw(optimizer) == parameters == load_model(name).parameters()
    assert flop(forward) / 4e9 == pytest.approx(gmac, rel=0.015)
    assert flop(forward) == flop(load_model(name).listings(batch=2)[0].kernels)


@pytest.mark.parametrize(
    ("name", "attention"),
    [
        ("resnet-50", "eager"),
        ("mobilevit-small", "eager"),
        *itertools.product(("vit-base", "bert-base"), ("eager", "flash")),
    ],
)
def test_backward_has_two_products_for_each_but_of_the_image(name, attention):
    """Of the first convolution the weights' gradient alone."""
    forward, backward, optimizer = step(name, attention=attention)
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
    trained = multiset(step(name, attention=attention)[0])
    inference = multiset(
        load_model(name).listings(batch=2, attention=attention)[0].kernels
    )
    added = collections.Counter(
        dict(x).get("fn", dict(x)["op"]) for x in trained - inference
    )
    missing = [dict(x).get("fn", dict(x)["op"]) for x in inference - trained]
    loss = {"typecast_to_fp32": 1, "softmax": 1, "nll_loss": 1}
    if name == "vit-base":
        assert (added, missing) == (loss, [])
        return
    # the head: two layers, GELU and a norm; the pooler is none
    assert sorted(missing) == ["gemm", "tanh"]
    assert set(added) == {*loss, "gemm", "gelu", "layernorm"}


def test_attention_to_all_tokens_masks_nothing():
    for part in step("vit-base")[:2]:
        assert not any(k.get("zero_share") for k in part)
    forward, backward, _ = step("bert-base", attention="flash", input_len=128)
    for rows, op in ((forward, "context_attention"), (backward, "attention_backward")):
        (kernel,) = [k for k in rows if k["op"] == op]
        assert kernel["causal"] is False and kernel["count"] == 12


def test_kernels_of_a_bottleneck():
    """The second block of ResNet-50's first stage, in order; bf16 converts layouts."""
    forward, backward, _ = step("resnet-50", dtype="fp32")
    inside = ["conv2d", "batch_norm_statistics", "batch_norm"]
    block = [*inside, "relu", *inside, "relu", *inside, "pointwise_add", "relu"]
    runs = [list(g) for _, g in itertools.groupby(forward, key=lambda k: k["count"])]
    (repeated,) = [names(x) for x in runs if x[0]["count"] == 5]  # of the third stage
    assert repeated == block
    norm = ["batch_norm_sums", "batch_norm_backward"]
    back = [*norm, *GRADIENTS]
    runs = [list(g) for _, g in itertools.groupby(backward, key=lambda k: k["count"])]
    (repeated,) = [names(x) for x in runs if x[0]["count"] == 5]
    expected = [*3 * ["relu_backward", *back], "pointwise_add"]
    assert repeated == expected
    assert (
        sum(k["op"] == GRADIENTS[0] for k in backward)
        == sum(k["op"] == GRADIENTS[1] for k in backward) - 1
    )  # none of the image


def test_batch_norm_passes_twice_over_its_values():
    forward, backward, _ = step("resnet-50", dtype="fp32")
    values = 2 * 64 * 112**2
    traffic = {
        k["fn"]: (k["reads"], k["writes"])
        for k in (*forward, *backward)
        if k.get("fn", "").startswith("batch_norm") and k["elements"] == values
    }
    assert traffic == {
        "batch_norm_statistics": (1, 0),
        "batch_norm": (1, 1),
        "batch_norm_sums": (2, 0),
        "batch_norm_backward": (2, 1),
    }


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


@pytest.mark.parametrize("name", ["resnet-50", "vit-base", "bert-base"])
def test_memory_of_a_step(name):
    parameters = adamw(step(name)[2])
    parts = memory(name)
    assert parts["weights"] == parts["gradients"] == 2 * parameters
    assert parts["optimizer"] == 12 * parameters
    again = memory(name, checkpointing=True)
    assert again["activations"] < 0.6 * parts["activations"]
    twice = memory(name, batch=4)
    assert twice["activations"] == 2 * parts["activations"]
    assert twice["optimizer"] == parts["optimizer"]


@pytest.mark.parametrize("name", ["resnet-50", "vit-base", "bert-base"])
def test_checkpointing_runs_the_layers_again(name):
    """All but the stem or look-up, and the head."""
    plain, again = (step(name, checkpointing=x) for x in (False, True))
    assert plain[0] == again[0] and plain[2] == again[2]
    ends = {"resnet-50": 64 * 112**2 * 147 + 2048 * 1000,
            "vit-base": 196 * 768**2 + 768 * 1000,
            "bert-base": 512 * 768 * (768 + 30522)}  # fmt: skip
    layers = flop(plain[0]) - 2 * 2 * ends[name]
    assert flop(again[1]) - flop(plain[1]) == layers
