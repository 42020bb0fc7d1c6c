"""Adapters and frozen layers: published counts, products, memory."""

import pytest

from diffenergy.workload import load_model

from .builders import adamw, flop, small_model, train
from .published import of


def request_of(**choices):
    return {"batch": 2, "input_len": 128, "phase": "train", **choices}


def step(name, **choices):
    return train(name, **request_of(**choices))


def memory(name, **choices):
    model = load_model(name)
    return model.memory(model.request(**request_of(**choices)))


ADAPTED = {
    ("llama-3.1-8b", 16, "all"): 41_943_040,
    ("llama-3.1-8b", 16, "attention"): 32 * 16 * (2 * (2 * 4096) + 2 * (4096 + 1024)),
    ("llama-2-7b", 16, "all"): 39_976_960,
    ("qwen2-1.5b", 16, "all"): 18_464_768,
    ("gpt2", 8, "all"): 12 * 8 * ((768 + 2304) + 2 * 768 + 2 * (768 + 3072)),
    ("opt-1.3b", 8, "all"): 24 * 8 * (4 * 2 * 2048 + 2 * (2048 + 8192)),
}
"""Trainable parameters with adapters on linear layers, of all as PEFT and Unsloth print
them; of the latter two and of `attention` by hand (GPT-2's queries, keys and values are
one layer)."""


@pytest.mark.parametrize("stack", ["serving", "eager"])
@pytest.mark.parametrize(("name", "rank", "layers"), ADAPTED)
def test_adapters(name, rank, layers, stack):
    """Forward 2 FLOP a parameter and token more; backward the gradients of inputs, as
    many as forward, and of adapters those of both."""
    number, total = ADAPTED[name, rank, layers], load_model(name).parameters()
    choices: dict = {"stack": stack, "attention": "flash"}
    plain = step(name, **choices)
    choices |= {"lora": rank, "lora_layers": layers}
    some = step(name, **choices)
    assert adamw(some[2]) == number
    parts = memory(name, **choices)
    assert parts["weights"] == 2 * (total + number)
    assert (parts["gradients"], parts["optimizer"]) == (2 * number, 12 * number)
    adapters = 2 * 2 * 128 * number
    assert flop(some[0]) == flop(plain[0]) + adapters
    angles = [k for k in plain[0] if k["op"] == "gemm" and k["k"] == 1]
    assert flop(some[1]) == flop(plain[0]) - flop(angles) + 2 * adapters
    fns = {k.get("fn", k["op"]) for k in some[1]}
    assert fns.isdisjoint(
        ("bias_grad", "layernorm_weight_grad", "position_grad", "zero", "gather")
    )


FROZEN = {
    "llama-3.1-8b": (218_112_000, 128256 * 4096 + 4096),
    "gpt2": (7_087_872, 2 * 768),  # the head is the embedding
    "mixtral-8x7b": (1_451_270_144, 32000 * 4096 + 4096),
}
"""Parameters of a layer, and behind the last one."""


@pytest.mark.parametrize(
    ("name", "stack"),
    [("llama-3.1-8b", "serving"), ("gpt2", "eager"), ("mixtral-8x7b", "serving")],
)
def test_backward_stops_at_the_frozen_layers(name, stack):
    model = load_model(name)
    layers = model.config.size("num_hidden_layers", "n_layer")
    whole, some = step(name, stack=stack), step(name, stack=stack, frozen_layers=5)
    assert some[0] == whole[0]
    inside = [k for k in whole[1] if k["count"] == layers]
    trained = [k for k in some[1] if k["count"] == layers - 5]
    assert [{**k, "count": layers - 5} for k in inside] == trained
    assert some[1][-1] == trained[-1]  # nothing of the embedding
    each, ends = FROZEN[name]
    assert adamw(some[2]) == (layers - 5) * each + ends
    parts = memory(name, stack=stack, frozen_layers=5)
    assert parts["weights"] == 2 * model.parameters()
    assert parts["gradients"] == 2 * adamw(some[2])
    assert parts["activations"] < memory(name, stack=stack)["activations"]


def test_all_layers_frozen_leave_the_last_norm_and_the_head():
    _, backward, optimizer = step("llama-3.1-8b", frozen_layers=32)
    assert all(k["count"] <= 1 for k in backward)
    assert sum(k["op"] == "gemm" for k in backward) == 2
    assert adamw(optimizer) == 128256 * 4096 + 4096


def test_a_classifier_is_trained_with_its_adapters():
    """ViT-B/16 with rank 8: 12 layers of four h x h and two h x 4 h; the last norm and
    the classifier are trained, patches and positions are not."""
    _, backward, optimizer = train("vit-base", lora=8)
    adapters = 12 * 8 * (4 * 2 * 768 + 2 * 5 * 768)
    assert adamw(optimizer) == adapters + 2 * 768 + 769 * 1000
    assert not any(k["op"].startswith("conv2d") for k in backward)
    model = load_model("vit-base")
    parts = model.memory(model.request(phase="train", lora=8))
    assert parts["weights"] == 2 * (86_567_656 + adapters)


def test_the_first_blocks_of_a_resnet_are_frozen():
    """Three of sixteen: the first stage. What is left begins with its stem and stage's
    parameters less."""
    whole, some = train("resnet-50"), train("resnet-50", frozen_layers=3)
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


# Llama-2-70B with rank 16 in fp8, one sequence of 8,192 tokens ------------------------

H, INNER, KEYS, LAYERS, WORDS, TOKENS, RANK = 8192, 28672, 1024, 80, 32000, 8192, 16
LLAMA_70B = small_model(
    "llama",
    **of(h=H, layers=LAYERS, heads=64, kv=8, inner=INNER, vocab=WORDS, positions=8192),
)
MATRICES = LAYERS * (2 * H * H + 2 * H * KEYS + 3 * H * INNER)
OTHERS = 2 * WORDS * H + (2 * LAYERS + 1) * H
"""Weights of linear layers, and those that stay in 16 bit: table, head, norms."""
ADAPTERS = LAYERS * RANK * (2 * (H + H) + 2 * (H + KEYS) + 3 * (H + INNER))
"""Parameters of adapters."""


def lora_of_70b(**choices):
    request = dict(batch=1, input_len=TOKENS, lora=RANK, phase="train")
    return LLAMA_70B.memory(LLAMA_70B.request(**request, **choices))


@pytest.mark.parametrize(
    ("dtype", "size"), [("fp8", 1), ("bf16", 2), ("fp32", 4), ("mxfp8", 33 / 32)]
)
def test_frozen_weights_are_in_the_type_of_their_products(dtype, size):
    """69 GB in fp8, where 16 bits make 138; MX types have a byte of scale for 32."""
    parts, other = lora_of_70b(dtype=dtype), max(int(size), 2)
    assert parts["weights"] == size * MATRICES + other * (OTHERS + ADAPTERS)
    assert parts["gradients"] == other * ADAPTERS
    assert parts["optimizer"] == (8 if dtype == "fp32" else 12) * ADAPTERS


@pytest.mark.parametrize(
    ("layers", "products", "published"),
    [("all", 7, 150.5e9), ("attention", 4, 126.3e9)],
)
def test_inputs_are_kept_where_a_gradient_needs_them(layers, products, published):
    """A token and layer: inputs of both norms 2 x 2 H bytes; queries, keys and values
    2 (H + 2 KEYS) and row sums 4 x 64; gate and up 2 x 2 INNER; A x 2 B a rank. Inputs
    of linear layers in fp8: of queries, keys and values H, of the output H; of gate and
    up H and of down INNER where these have adapters. Final norm: 2 H a token.

    Of `attention` 24 GB less, as arithmetic on the published run of MLPerf says: 5.4
    more in both, since attention's output is counted in 16 bit.
    """
    inputs = 2 * H + (H + INNER if layers == "all" else 0)
    narrow = 2 * RANK * products
    each = 4 * H + 2 * (H + 2 * KEYS) + 4 * 64 + 4 * INNER + narrow
    parts = lora_of_70b(dtype="fp8", lora_layers=layers)
    assert parts["activations"] == TOKENS * (LAYERS * (each + inputs) + 2 * H)
    less = TOKENS * (2 * H + LAYERS * (narrow - H))
    assert parts["activations"] - less == pytest.approx(published, rel=1e-3)


def test_a_relu_keeps_its_output_for_its_own_gradient():
    """OPT's second MLP layer needs no input without adapter, the ReLU before it does:
    `attention` spares the input of the first, h of 2,048, and what adapters keep."""
    every, some = (
        memory("opt-1.3b", lora=8, lora_layers=x) for x in ("all", "attention")
    )
    less = 2 * 128 * 24 * (2 * 2048 + 2 * 2 * 8)
    assert every["activations"] - some["activations"] == less


@pytest.mark.parametrize(
    ("name", "head"),
    [("bert-base", 768 * 769 + 2 * 768), ("vit-base", 2 * 768 + 769 * 1000)],
)
def test_adapters_on_the_attention_of_an_encoder(name, head):
    """The head is trained, too; BERT's logits are by the frozen table."""
    _, _, optimizer = train(name, lora=8, lora_layers="attention")
    assert adamw(optimizer) == 12 * 8 * 4 * 2 * 768 + head
