"""Adapters and frozen layers on the GPUs of a plan, by hand."""

import functools
from typing import Any

import numpy as np
import pytest

from diffenergy.hardware import read_gpu
from diffenergy.plans import Plan, Training, host_of, training_of
from diffenergy.workload import Listing, load_model
from diffenergy.workload.models import Request

from .builders import decoder

H, LAYERS, WORDS = 768, 12, 50257
"""GPT-2: its layer is 12 h x h of weights, biases of 9 h and norms of 4 h; the head is
the embedding's table."""
LAYER = 12 * H * H + 13 * H
RANK = 8
ADAPTERS = LAYERS * RANK * ((H + 3 * H) + 2 * H + 2 * (H + 4 * H))


def trained(plan: Plan, sequences: int = 8, **options: Any) -> tuple[Training, Request]:
    host = host_of(read_gpu("h100-sxm"))
    frozen = options.get("frozen_layers") or 0
    result = training_of(load_model("gpt2"), plan, host, sequences, frozen=frozen)
    return result, result.request(phase="train", input_len=512, **options)


@functools.cache
def listings(plan: Plan, **options: Any) -> dict[str, Listing]:
    placed, request = trained(plan, **options)
    return {str(x.mode): x for x in placed.work(request)[0]}


def moved(plan: Plan, part: str, **options: Any) -> list[float]:
    result = listings(plan, **options).get(part)
    return [k["bytes"] for k in result.kernels] if result else []


def adamw(plan: Plan, **options: Any) -> list[float]:
    rows = (k for x in listings(plan, **options).values() for k in x.kernels)
    return [k["elements"] for k in rows if k.get("fn") == "adamw"]


def test_replicas_exchange_what_is_trained():
    """fp32 sums reduced, 16-bit weights gathered; AdamW over a half of them. FSDP
    gathers no frozen layer backward."""
    of_all = LAYERS * LAYER + (WORDS + 1024) * H + 2 * H
    rest = 7 * LAYER + 2 * H  # the head is the embedding's table, and frozen
    sharded = Plan(dp=2, zero=3)
    for options, number, backward in (
        ({}, of_all, 1.0), ({"lora": RANK}, ADAPTERS, 1.0),
        ({"frozen_layers": 5}, rest, 1 - 5 * LAYER / of_all),
    ):  # fmt: skip
        assert moved(Plan(dp=2), "reduce@0", **options) == [4 * number]
        assert moved(Plan(dp=2), "gather@0", **options) == [2 * number]
        assert adamw(Plan(dp=2), **options) == [number / 2]
        placed, request = trained(sharded, **options)
        _, steps = placed.work(request)
        assert float(steps.gathers) == pytest.approx(1 + backward)
        assert float(steps.reduces) == 1
    assert moved(sharded, "gather@0", lora=RANK) == [2 * (of_all + ADAPTERS)]
    assert moved(sharded, "reduce@0", lora=RANK) == [4 * ADAPTERS]


def test_gpus_of_a_layer_share_its_adapters():
    """Divided by outputs A is everywhere and B divided, by inputs the reverse."""
    (number,) = adamw(Plan(tp=2), lora=RANK)
    columns = (H + 3 * H / 2) + (H + 4 * H / 2)
    rows = (H / 2 + H) + (4 * H / 2 + H)
    assert number == LAYERS * RANK * (columns + rows)
    result = listings(Plan(tp=2), lora=RANK)["forward@0"]
    sizes = [(k["n"], k["k"]) for k in result.kernels if k["op"] == "gemm"]
    assert [x for x in sizes if RANK in x] == [
        (RANK, H), (3 * H / 2, RANK), (RANK, H / 2), (H, RANK),
        (RANK, H), (4 * H / 2, RANK), (RANK, 4 * H / 2), (H, RANK),
    ]  # fmt: skip
    forward = moved(Plan(tp=2), "forward_tp@0", lora=RANK)
    assert forward == moved(Plan(tp=2), "forward_tp@0")
    plain = moved(Plan(tp=2), "backward_tp@0")
    assert plain[-1] == 2 * 512 * H  # of the look-up, which is frozen
    assert moved(Plan(tp=2), "backward_tp@0", lora=RANK) == plain[:-1]


def test_frozen_stages_run_forward_alone():
    """Seven of twelve layers on four stages."""
    options: Any = dict(frozen_layers=7)
    plan = Plan(pp=4)
    result = listings(plan, **options)
    kinds = [sorted(x.partition("@")[0] for x in result if x[-1] == i) for i in "0123"]
    assert kinds[:2] == 2 * [["forward", "send"]]
    assert kinds[2] == kinds[3] == ["backward", "forward", "optimizer", "send"]
    products = [k for k in result["backward@2"].kernels if k["op"] == "gemm"]
    assert {k["count"] for k in products} == {2 * 8}
    assert adamw(plan, **options) == [2 * LAYER, 3 * LAYER + 2 * H]
    placed, request = trained(plan, **options)
    _, steps = placed.work(request)
    assert np.asarray(steps.ways).tolist() == [[1, 0], [1, 0], [1, 1], [1, 1]]
    whole = listings(Plan(), **options)["backward@0"].kernels
    parts = [k for i in "23" for k in result[f"backward@{i}"].kernels]

    def flop(kernels: Any) -> float:
        rows = (k for k in kernels if k["op"] == "gemm")
        return sum(k["count"] * k["batch"] * k["m"] * k["n"] * k["k"] for k in rows)

    assert flop(parts) == pytest.approx(flop(whole), rel=1e-12)


def test_virtual_stages_differ_by_their_frozen_layers():
    """One layer at each of twelve places, of which a GPU has s, s + 4 and s + 8: the
    last GPU has two behind the seventh, the others one."""
    placed, request = trained(Plan(pp=4, vp=3), frozen_layers=7)
    assert [len(x.frozen) for x in placed.layout.each] == 7 * [1] + 5 * [0]
    number = [parts["gradients"] for parts in placed.stage_memories(request)]
    wanted = [4 * LAYER] * 3 + [4 * (2 * LAYER + 2 * H)]
    assert number == pytest.approx(wanted)


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_memory_of_adapters_by_hand(zero: int):
    """4 replicas: frozen weights 2 B, divided by FSDP alone; of adapters gradients 4 B
    and AdamW 12 B (FSDP: fp32 weights, 8 B)."""
    placed, request = trained(Plan(dp=4, zero=zero), lora=RANK)
    (result,) = placed.stage_memories(request)
    table = WORDS * H
    frozen = LAYERS * LAYER + table + 1024 * H + 2 * H
    layer = ADAPTERS / LAYERS
    remaining = ADAPTERS / 4 + layer if zero > 1 else ADAPTERS
    weights = 2 * (frozen + ADAPTERS)
    state = 12 * ADAPTERS / (4 if zero else 1)
    if zero == 3:
        weights = (2 * frozen + 4 * ADAPTERS) / 4
        state = 8 * ADAPTERS / 4
        assert result["gathered"] == 2 * (2 * (LAYER + layer) + table)
    assert result["weights"] == weights
    assert result["gradients"] == 4 * remaining
    assert result["optimizer"] == state
    alone, request = trained(Plan(), 2, lora=RANK)
    assert result["activations"] == alone.stage_memories(request)[0]["activations"]


def test_frozen_weights_in_fp8_by_hand():
    """A byte in the linear layers, 2 in tables, norms and biases; FSDP divides them so,
    gathers two layers and the table, and exchanges as many bytes."""
    matrices, still = 12 * H * H, 2 * (13 * H)
    table, ends = WORDS * H, 2 * (1024 * H + 2 * H)
    frozen = LAYERS * (matrices + still) + 2 * table + ends
    options: dict[str, Any] = dict(dtype="fp8", lora=RANK)
    placed, request = trained(Plan(dp=4), **options)
    assert placed.stage_memories(request)[0]["weights"] == frozen + 2 * ADAPTERS
    sharded = Plan(dp=4, zero=3)
    placed, request = trained(sharded, **options)
    (result,) = placed.stage_memories(request)
    assert result["weights"] == (frozen + 4 * ADAPTERS) / 4
    layer = matrices + still + 2 * ADAPTERS / LAYERS
    assert result["gathered"] == 2 * layer + 2 * table
    assert moved(sharded, "gather@0", **options) == [frozen + 2 * ADAPTERS]


def test_frozen_layers_in_fp8_by_hand():
    """Five layers of a byte and the table; seven layers of 16 bit."""
    matrices, small = 12 * H * H, 13 * H
    tables = 2 * (WORDS + 1024) * H
    frozen = 5 * (matrices + 2 * small) + tables
    rest = 7 * LAYER + 2 * H
    options: dict[str, Any] = dict(dtype="fp8", frozen_layers=5)
    placed, request = trained(Plan(dp=4, zero=3), **options)
    (result,) = placed.stage_memories(request)
    assert result["weights"] == (frozen + 4 * rest) / 4
    assert result["gathered"] == 2 * (2 * LAYER) + 2 * WORDS * H
    _, steps = placed.work(request)
    again = 1 - 5 * (matrices + 2 * small) / (frozen + 2 * rest)
    assert float(steps.gathers) == pytest.approx(1 + again)
    model = load_model("gpt2")
    alone = model.memory(model.request(phase="train", input_len=512, **options))
    assert alone["weights"] == frozen + 2 * rest


def test_frozen_stages_keep_weights_alone():
    placed, request = trained(Plan(pp=4), frozen_layers=7)
    result = placed.stage_memories(request)
    assert result[0]["weights"] == 2 * (3 * LAYER + (WORDS + 1024) * H)
    for stage in (0, 1):
        for part in ("gradients", "optimizer", "activations", "logits"):
            assert result[stage][part] == 0
    placed, request = trained(Plan(pp=4))
    whole = placed.stage_memories(request)[2]
    expected = {
        "gradients": 4 * 2 * LAYER, "optimizer": 12 * 2 * LAYER,
        "activations": whole["activations"] * 2 / 3, "weights": whole["weights"],
    }  # fmt: skip
    assert {x: result[2][x] for x in expected} == pytest.approx(expected)


def test_flop_of_a_partly_trained_model():
    """4 a frozen weight and token, 2 in front of the lowest gradient, 6 a trained one;
    attention 2 forward and 4 backward."""
    tokens, scores = 8 * 512, 2 * H * 513 / 2 * 2
    layer, head = 12 * H * H, WORDS * H
    placed, request = trained(Plan(dp=2), lora=RANK)
    weights = 4 * (LAYERS * layer + head) + 6 * ADAPTERS + 3 * LAYERS * scores
    assert placed.flop(request) == pytest.approx(tokens * weights)
    placed, request = trained(Plan(dp=2), frozen_layers=5)
    weights = 7 * 6 * layer + 5 * 2 * layer + 4 * head + (3 * 7 + 5) * scores
    assert placed.flop(request) == pytest.approx(tokens * weights)


def test_one_gpu_keeps_what_it_did():
    model = decoder("gpt2")
    for options in ({"lora": RANK}, {"frozen_layers": 5}, {"frozen_layers": 12}):
        placed, request = trained(Plan(zero=3), 3, **options)
        alone = model.request(phase="train", input_len=512, accumulation=3, **options)
        assert placed.memory(request) == model.memory(alone)
