"""Adapters and frozen layers: published counts, products, memory."""

import pytest

from diffenergy.workload.models import load_model

from .. import kernels
from ..kernels import adamw, flop


def given(**choices):
    return {"batch": 2, "input_len": 128, "phase": "train", **choices}


def step(name, **choices):
    return kernels.step(name, **given(**choices))


def memory(name, **choices):
    model = load_model(name)
    return model.memory(model.request(**given(**choices)))


ADAPTED = {
    ("llama-3.1-8b", 16): 41_943_040,
    ("mistral-7b", 16): 41_943_040,
    ("llama-2-7b", 16): 39_976_960,
    ("qwen2-1.5b", 16): 18_464_768,
    ("gpt2", 8): 12 * 8 * ((768 + 2304) + 2 * 768 + 2 * (768 + 3072)),
    ("opt-1.3b", 8): 24 * 8 * (4 * 2 * 2048 + 2 * (2048 + 8192)),
}
"""Trainable parameters with adapters on all linear layers of the layers, as PEFT and
Unsloth print them; of the latter two by hand (GPT-2's queries, keys and values are one
layer)."""


@pytest.mark.parametrize(("name", "rank"), ADAPTED)
@pytest.mark.parametrize("stack", ["serving", "eager"])
def test_published_numbers_of_trainable_parameters(name, rank, stack):
    number, total = ADAPTED[name, rank], load_model(name).parameters()
    assert adamw(step(name, lora=rank, stack=stack)[2]) == number
    found = memory(name, lora=rank, stack=stack)
    assert found["weights"] == 2 * (total + number)
    assert (found["gradients"], found["optimizer"]) == (2 * number, 12 * number)


@pytest.mark.parametrize("name", ["llama-3.1-8b", "gpt2", "opt-1.3b"])
@pytest.mark.parametrize("stack", ["serving", "eager"])
def test_products_of_adapters(name, stack):
    """Forward 2 FLOP a parameter and token more; backward the gradients of inputs, as
    many as forward, and of adapters those of both."""
    tokens, choices = 2 * 128, {"stack": stack, "attention": "flash"}
    plain, some = step(name, **choices), step(name, lora=16, **choices)
    own = 2 * tokens * adamw(some[2])
    assert flop(some[0]) == flop(plain[0]) + own
    angles = [k for k in plain[0] if k["op"] == "gemm" and k["k"] == 1]
    assert flop(some[1]) == flop(plain[0]) - flop(angles) + 2 * own


def test_kernels_of_an_adapted_layer():
    """A of queries, keys and values is one product of a fused stack, B three; in torch
    every layer has its own, scaled and added."""
    forward, backward, _ = step("llama-3.1-8b", lora=16)
    shapes = [(k["m"], k["n"], k["k"]) for k in forward if k["op"] == "gemm"]
    t = 2 * 128
    assert shapes[:5] == [
        (t, 6144, 4096), (t, 48, 4096), (t, 4096, 16), (t, 1024, 16), (t, 1024, 16)
    ]  # fmt: skip
    shapes = [(k["m"], k["n"], k["k"]) for k in backward if k["op"] == "gemm"]
    assert shapes[0] == (t, 4096, 128256)  # the head is frozen
    assert shapes[1:6] == [
        (t, 14336, 4096), (t, 16, 4096), (4096, 16, t), (16, 14336, t), (t, 14336, 16)
    ]  # fmt: skip
    eager = step("llama-3.1-8b", lora=16, stack="eager")[0]
    narrow = [k for k in eager if k["op"] == "gemm" and 16 in (k["m"], k["k"])]
    assert sum(k["count"] for k in narrow) == 32 * 2 * 7
    for rows in (backward, step("gpt2", lora=8, stack="eager")[1]):
        fns = {k.get("fn") for k in rows}
        assert not fns & {"bias_grad", "layernorm_weight_grad", "position_grad", "zero"}
        assert not any(k["op"] == "gather" for k in rows)


@pytest.mark.parametrize("stack", ["serving", "eager"])
@pytest.mark.parametrize("name", ["llama-3.1-8b", "gpt2", "mixtral-8x7b"])
def test_backward_stops_at_the_frozen_layers(name, stack):
    if name == "mixtral-8x7b" and stack == "eager":
        return
    model = load_model(name)
    layers = model.config.size("num_hidden_layers", "n_layer")
    whole, some = step(name, stack=stack), step(name, stack=stack, frozen_layers=5)
    assert some[0] == whole[0]
    inside = [k for k in whole[1] if k["count"] == layers]
    own = [k for k in some[1] if k["count"] == layers - 5]
    assert [{**k, "count": layers - 5} for k in inside] == own
    assert some[1][-1] == own[-1]  # nothing of the embedding
    each = {
        "llama-3.1-8b": 218_112_000,
        "gpt2": 7_087_872,
        "mixtral-8x7b": 1_451_270_144,
    }[name]
    ends = {
        "llama-3.1-8b": 128256 * 4096 + 4096,
        "gpt2": 2 * 768,  # the head is the embedding
        "mixtral-8x7b": 32000 * 4096 + 4096,
    }[name]
    assert adamw(some[2]) == (layers - 5) * each + ends
    found = memory(name, stack=stack, frozen_layers=5)
    assert found["weights"] == 2 * model.parameters()
    assert found["gradients"] == 2 * adamw(some[2])
    assert found["activations"] < memory(name, stack=stack)["activations"]


def test_all_layers_frozen_leave_the_last_norm_and_the_head():
    _, backward, optimizer = step("llama-3.1-8b", frozen_layers=32)
    assert all(k["count"] <= 1 for k in backward)
    assert sum(k["op"] == "gemm" for k in backward) == 2
    assert adamw(optimizer) == 128256 * 4096 + 4096


def encoder(name, **choices):
    model = load_model(name)
    listings = model.listings(batch=2, phase="train", **choices)
    return [x.kernels for x in listings]


def test_a_classifier_is_trained_with_its_adapters():
    """ViT-B/16 with rank 8: 12 layers of four h x h and two h x 4 h; the last norm and
    the classifier are trained, patches and positions are not."""
    _, backward, optimizer = encoder("vit-base", lora=8)
    adapters = 12 * 8 * (4 * 2 * 768 + 2 * 5 * 768)
    assert adamw(optimizer) == adapters + 2 * 768 + 769 * 1000
    assert not any(k["op"].startswith("conv2d") for k in backward)
    model = load_model("vit-base")
    found = model.memory(model.request(phase="train", lora=8))
    assert found["weights"] == 2 * (86_567_656 + adapters)


def test_the_first_blocks_of_a_resnet_are_frozen():
    """Three of sixteen: the first stage. What is left begins with its stem and stage's
    parameters less."""
    whole, some = encoder("resnet-50"), encoder("resnet-50", frozen_layers=3)
    convs = [k for k in some[1] if k["op"] == "conv2d_weight_grad"]
    assert sum(k["count"] for k in convs) == 53 - 1 - 10
    first = (64 * 64 + 9 * 64 * 64 + 64 * 256 + 64 * 256) + 2 * (64 + 64 + 256 + 256)
    rest = (256 * 64 + 9 * 64 * 64 + 64 * 256) + 2 * (64 + 64 + 256)
    stem = 3 * 64 * 49 + 2 * 64
    assert adamw(some[2]) == adamw(whole[2]) - stem - first - 2 * rest
    counts = [
        sum(k["count"] for k in rows if k["op"] == "conv2d")
        for rows in (whole[0], some[0])
    ]
    assert counts == [53, 53]
