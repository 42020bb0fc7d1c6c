"""Memory of training plans: published figures, hand arithmetic, what must not grow."""

import csv
import dataclasses
from typing import Any

import pytest

from diffenergy.plans import (
    FORWARD_PASS,
    Plan,
    micro_batches_in_flight,
    read_plan,
    training_memory,
)
from diffenergy.plans._pipeline import BACKWARD, order
from diffenergy.workload import Config, TrainedModel
from diffenergy.workload.models import model_from_config

from .builders import decoder

GIB = 2**30
LLAMA = 8_030_261_248
"""Parameters of Llama 3.1 8B."""


def llama_2_70b() -> TrainedModel:
    """Llama-3.1-70B with the vocabulary of its predecessor."""
    values = {**decoder("llama-3.1-70b").config.values, "vocab_size": 32_000}
    model = model_from_config(Config("llama-2-70b", "llama-2-70b", values))
    assert isinstance(model, TrainedModel)
    return model


def stages(name: str, plan: Plan, **options: Any) -> list[dict[str, float]]:
    model = llama_2_70b() if name == "llama-2-70b" else decoder(name)
    options = dict(batch=2, input_len=512, accumulation=8) | options
    return training_memory(model, plan, model.request(phase="train", **options))


def fullest(name: str, plan: Plan, **options: Any) -> float:
    return max(sum(parts.values()) for parts in stages(name, plan, **options))


# One GPU ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["gpt2-xl", "mixtral-8x7b"])
@pytest.mark.parametrize("recompute", ["none", "selective", "selective-op", "full"])
def test_one_gpu_keeps_what_it_did(name: str, recompute: Any):
    model = decoder(name)
    options: Any = dict(batch=2, input_len=512, phase="train", accumulation=3)
    for zero in (0, 3):
        plan = Plan(zero=zero, recompute=recompute)
        (result,) = training_memory(model, plan, model.request(**options))
        assert result == model.memory(model.request(**options, recompute=recompute))
    if recompute == "full":
        assert result == model.memory(model.request(**options, checkpointing=True))


# arXiv 2205.05198 ---------------------------------------------------------------------

PAPER = {  # table 3: heads, hidden, layers, t, p, v, micro-batch; s 2,048, V 51,200
    "gpt-22b": (64, 6144, 48, 8, 1, 1, 4),
    "gpt3-175b": (96, 12288, 96, 8, 8, 3, 1),
    "gpt-530b": (128, 20480, 105, 8, 35, 3, 1),
    "megatron-1t": (160, 25600, 128, 8, 64, 1, 1),
}
MODES: dict[str, tuple[bool, Any]] = {  # sequence parallelism, recomputation
    "none": (False, "none"),
    "sequence_parallel": (True, "none"),
    "selective": (False, "selective"),
    "sequence_parallel+selective": (True, "selective"),
    "full": (False, "full"),
}


def first_stage(name: str, mode: str) -> dict[str, float]:
    """Bytes of the paper's first stage without look-up, head and final norm."""
    heads, hidden, layers, t, p, v, batch = PAPER[name]
    values = dict(
        model_type="mpt", d_model=hidden, n_heads=heads, n_layers=layers,
        vocab_size=51200, max_seq_len=2048,
    )  # fmt: skip
    model = model_from_config(Config(name, name, values))
    assert isinstance(model, TrainedModel)
    sequence, recompute = MODES[mode]
    request = model.request(
        phase="train", batch=batch, attention="eager", accumulation=4 * p
    )
    request = dataclasses.replace(request, input_len=2048)
    along: Any = "on" if sequence else "off"
    plan = Plan(tp=t, pp=p, vp=v, zero=0, recompute=recompute, sequence=along)
    more: dict[str, Any] = dict(dropout=True, restores=False)
    result, *_ = training_memory(model, plan, request, **more)
    if p == 1:  # inputs of final norm and head
        result["activations"] -= 4 * batch * 2048 * hidden / (t if sequence else 1)
    state = result["weights"] + result["gradients"] + result["optimizer"]
    norms = 2 * layers // p + (p == 1)
    result["state"] = state - 18 * hidden * (51200 / t + norms)
    return result


@pytest.mark.parametrize("name", PAPER)
@pytest.mark.parametrize("mode", ["none", "sequence_parallel", "selective",
                                  "sequence_parallel+selective"])  # fmt: skip
def test_activations_of_the_paper(name: str, mode: str):
    """Its equations 1 to 6: s b h (10 + 24/t + 5 a s/(h t)) a layer, all over t with
    sequence parallelism, without the scores where they run again; of the first stage
    p (1 + (p - 1)/(p v)) micro-batches where it interleaves, else p."""
    a, h, layers, t, p, v, b = PAPER[name]
    sequence, recompute = MODES[mode]
    scores = 0 if recompute == "selective" else 5 * a * 2048 / h
    each = (34 + scores) / t if sequence else 10 + (24 + scores) / t
    flying = p * (1 + (p - 1) / (p * v)) if v > 1 else p
    expected = 2048 * b * h * each * layers / p * flying
    assert first_stage(name, mode)["activations"] == pytest.approx(expected, rel=1e-9)


def test_shares_of_the_paper():
    """Figure 7's bars of GPT-3: sequence parallelism and selective recomputation
    leave 18.5 % of the activations, each alone 62 and 56.5 %."""
    none = first_stage("gpt3-175b", "none")["activations"]
    shares = [100 * first_stage("gpt3-175b", m)["activations"] / none for m in MODES]
    assert shares[:4] == pytest.approx([100, 62.0, 56.5, 18.5], abs=0.05)


@pytest.mark.shared_data
def test_the_twelve_figures_of_the_paper(shared):
    with (shared / "data" / "parallel" / "activation_memory.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 12
    for row in rows:
        mode = "none" if row["mode"] == "any" else row["mode"]
        result = first_stage(row["model"], mode)
        part = result["activations" if row["part"] == "activations" else "state"]
        assert part / GIB == pytest.approx(float(row["gib"]), rel=5e-5), row


@pytest.mark.parametrize(("dtype", "stored"), [("bf16", 2), ("fp8", 1)])
@pytest.mark.parametrize(("t", "cp"), [(1, 1), (4, 1), (2, 4)])
def test_activations_without_dropout(dtype: str, stored: int, t: int, cp: int):
    """A layer of Llama 3.1 8B, T tokens of a GPU: inputs of the norms and of QKV and
    gate and up, what flash attention reads and its sums, its output, gate, up and their
    product, all over t. Of Mixtral the rows of two experts among t GPUs, with those
    that are sent, and before 2025 those that come back."""
    h, q, kv, i, tokens = 4096, 4096, 1024, 14336, 2 * 512 // cp
    around = 4 * h + 2 * stored * h + 2 * (q + 2 * kv) + stored * q + 4 * 32
    gated = 2 * (3 * i - i) + stored * i
    mixed = dict(ep=t, etp=1)
    for name, more, inside in (
        ("llama-3.1-8b", {}, gated),
        ("mixtral-8x7b", mixed, 2 * gated + 2 * 2 * h),
        ("mixtral-8x7b", mixed | {"software": 2024.5}, 2 * gated + 2 * 2 * 2 * h),
    ):
        moe: Any = more
        plan = Plan(tp=t, cp=cp, pp=4, **moe)
        one = stages(name, plan, dtype=dtype, accumulation=1)[1]
        expected = 8 * tokens * (around + inside) / t
        assert one["activations"] == pytest.approx(expected, rel=1e-12), name


# Recomputation by module --------------------------------------------------------------

WIDE, INNER = 4096, 14336  # Llama 3.1 8B, Mixtral 8x7B
BLOCK = 1 + 4 / 128  # bytes of an operand in 8 bits with its scales, DeepSeek-V3


@pytest.mark.parametrize(
    ("name", "recompute", "dropped"),
    [
        ("llama-3.1-8b", "norm+act", 2 * (2 * WIDE + INNER)),  # inputs of QKV, gate, up
        ("llama-3.1-8b", "mlp", 2 * (WIDE + 3 * INNER)),
        ("llama-3.1-8b", "norm+mlp", 2 * (2 * WIDE + 3 * INNER)),  # its norm once
        ("mixtral-8x7b", "norm", 2 * 2 * WIDE),
        ("mixtral-8x7b", "act", 2 * 2 * INNER),
        ("mixtral-8x7b", "act+experts", 2 * 2 * (WIDE + 3 * INNER)),
        # the second norm is read by routed and shared experts, each with its own cast
        ("deepseek-v3", "norm", 3 * 7168 * BLOCK),
        ("deepseek-v3", "up", 2 * 128 * (2 * 192 + 128)),
        ("deepseek-v3", "act", (8 + 1) * 2048 * BLOCK),
    ],
)
def test_modules_that_run_again_are_not_kept(name: str, recompute: str, dropped: float):
    """Bytes a token and layer; those of the layer that runs again are there once."""
    every, left = (
        stages(name, Plan(pp=4, recompute=x), accumulation=1)[1]["activations"]
        for x in ("none", recompute)
    )
    layers = 16 if name == "deepseek-v3" else 8
    expected = (layers - 1) * 2 * 512 * dropped
    assert every - left == pytest.approx(expected, rel=1e-9)


def test_products_of_experts_run_again():
    """Of Mixtral: gate times up of the rows of both choices, or all of the experts."""
    model = decoder("mixtral-8x7b")
    request: Any = dict(phase="train", batch=2, input_len=512, attention="flash")
    before, act, experts = (
        model.listings_of(model.request(**request, recompute=x))[1].kernels
        for x in ("none", "act", "experts")
    )
    (row,) = (x for x in act if x not in before)
    result = row["op"], row["elements"], row["count"]
    assert result == ("elementwise", 2 * 1024 * INNER, 32)
    rows = [x["op"] for x in experts if x not in before and x["op"] != "gemm"]
    assert rows[-1] == "moe"


# Published runs: GB by hand, or of what fits ------------------------------------------

ATTENTION: dict[str, Any] = dict(
    batch=1, input_len=8192, accumulation=1, lora=16, dtype="fp8",
    lora_layers="attention",
)  # fmt: skip
LLAMA_405B = "tp=8,pp=16,vp=8,dp=64,recompute="
DEEPSEEK = (
    "pp=16,dp=128,ep=64,schedule=dualpipe,overlap=ep+dp,dispatch=fp8,software=2025,"
    "moments=bf16,store=fp8,recompute=norm+up"
)
LONG: dict[str, Any] = dict(batch=1, input_len=8192, accumulation=64)
TRACE: dict[str, Any] = dict(batch=1, input_len=4096, accumulation=120)
BY_HAND = ("weights", "gradients", "optimizer", "activations")


@pytest.mark.parametrize(
    ("name", "plan", "request_", "parts", "expected"),
    [
        ("llama-3.1-70b", "dp=8,store=fp8", ATTENTION, None, 163.4),  # fits 180 GB
        ("llama-2-70b", "dp=8", ATTENTION, BY_HAND, 195.3),
        ("llama-2-70b", "dp=8,store=fp8", ATTENTION, BY_HAND, 157.7),
        ("llama-3.1-405b", LLAMA_405B + "norm+act", LONG, None, 71.9),  # fits 80 GB
        ("deepseek-v3", DEEPSEEK, TRACE, BY_HAND, 71.4),
    ],
)
def test_published_runs_fit(name: str, plan: str, request_, parts, expected: float):
    parsed = read_plan(plan, training=True)
    assert parsed
    result = stages(name, parsed, **request_)
    totals = [sum(x[part] for part in parts or x) for x in result]
    assert max(totals) / 1e9 == pytest.approx(expected, rel=0.03)


@pytest.mark.parametrize(("exchange", "parts"), [("gather", 1), ("ring", 16)])
def test_context_has_one_layers_keys_and_values(exchange: Any, parts: int):
    """Llama 3.1 8B, 8 heads of 128 wide, 131,072 tokens in bf16: 537 MB, beside what a
    GPU with a sixteenth of the tokens for itself has."""
    plan, tokens = Plan(cp=16, pp=8, cp_exchange=exchange), 2**17
    options = dict(batch=1, accumulation=8)
    result = stages("llama-3.1-8b", plan, input_len=tokens, **options)
    alone = stages("llama-3.1-8b", Plan(pp=8), input_len=tokens // 16, **options)
    more = result[1]["workspace"] - alone[1]["workspace"]
    assert more == pytest.approx(2 * 1024 * 2 * tokens / parts, rel=1e-9)


# State --------------------------------------------------------------------------------


def test_state_by_hand():
    """Llama 3.1 8B on eight replicas in bf16, gradients in fp32; FSDP has fp32 weights,
    two gathered layers and a table, and one layer's gradients as they are made."""
    layer = 4096 * (4096 + 2 * 1024) + 4096**2 + 3 * 4096 * 14336 + 2 * 4096
    names = ("weights", "gradients", "optimizer", "gathered")
    expected = [
        (2 * LLAMA, 4 * LLAMA, 12 * LLAMA, 0),
        (2 * LLAMA, 4 * LLAMA, 12 * LLAMA / 8, 0),
        (2 * LLAMA, 4 * (LLAMA / 8 + layer), 12 * LLAMA / 8, 0),
        (4 * LLAMA / 8, 4 * (LLAMA / 8 + layer), 8 * LLAMA / 8,
         2 * (2 * layer + 128256 * 4096)),
    ]  # fmt: skip
    for zero, wanted in enumerate(expected):
        (result,) = stages("llama-3.1-8b", Plan(dp=8, zero=zero))
        assert tuple(result[x] for x in names) == pytest.approx(wanted, rel=1e-12)
    (narrow,) = stages("llama-3.1-8b", Plan(dp=8, zero=0, sums="bf16"))
    assert narrow["gradients"] == 2 * LLAMA


def test_experts_have_a_group_of_their_own():
    """Mixtral on 2 x 8 GPUs, experts among four (176,160,768 each): of the 16 GPUs four
    have the same two experts, eight the same rest of a half."""
    model = decoder("mixtral-8x7b")
    experts = 32 * 8 * 3 * 4096 * 14336
    assert model.expert_parameters() == experts
    (one,) = stages("mixtral-8x7b", Plan(tp=2, dp=8, ep=4, etp=1, zero=1))
    routers = 32 * 8 * 4096
    norms = (2 * 32 + 1) * 4096
    rest = (model.parameters() - experts - routers - norms) / 2 + routers + norms
    expected = 12 * (rest / 8 + experts / 4 / 4)
    assert one["optimizer"] == pytest.approx(expected, rel=1e-9)


def test_parameters_of_all_stages_add_up():
    for name in ("gpt2-xl", "mixtral-8x7b"):
        model, parts = decoder(name), stages(name, Plan(pp=4, zero=0))
        table = 0 if model.untied else model.vocab * model.hidden
        assert sum(x["weights"] for x in parts) == 2 * (model.parameters() + table)


# What must not grow -------------------------------------------------------------------


@pytest.mark.parametrize(
    "plan",
    [Plan(tp=2, cp=2, dp=4), Plan(tp=4, pp=4, vp=2, dp=8), Plan(pp=2, dp=64)],
)
def test_twice_the_gpus_never_take_more(plan: Plan):
    """Of a kind, the sequences of a micro-batch being the same."""
    keys = ["tp", "cp", "dp"] + ["pp"] * (plan.pp == 1)  # longer ones have more going
    for name in ("gpt2-medium", "mixtral-8x7b"):
        most = fullest(name, plan, attention="flash")
        for key in keys:
            twice = dataclasses.replace(plan, **{key: 2 * getattr(plan, key)})
            assert fullest(name, twice, attention="flash") <= most


@pytest.mark.parametrize("name", ["opt-1.3b", "mixtral-8x7b"])
@pytest.mark.parametrize("attention", ["flash", "eager"])
def test_recomputation_keeps_less(name: str, attention: str):
    options = dict(batch=8, input_len=1024, attention=attention)
    kinds: list[Any] = ["none", "selective", "selective-op", "full"]
    none, selective, by_operator, full = (
        stages(name, Plan(dp=2, recompute=x), **options)[0]["activations"]
        for x in kinds
    )
    assert full < by_operator < none
    assert selective < none if attention == "eager" else selective == none


@pytest.mark.parametrize(
    ("schedule", "p", "v", "m"),
    [
        ("gpipe", 4, 1, 8), ("1f1b", 4, 1, 8), ("1f1b", 8, 1, 3), ("zb-h1", 4, 1, 8),
        ("interleaved", 4, 2, 8), ("interleaved", 8, 3, 8), ("zb-h1", 4, 1, 3),
    ],
)  # fmt: skip
def test_micro_batches_in_flight_are_those_of_the_order(schedule, p, v, m):
    """Forward ones less those whose last gradients are made."""
    plan = Plan(pp=p, vp=v, schedule=schedule)
    for stage, own in enumerate(order(schedule, p, m, v)):
        last = max(x.kind for x in own)
        assert last >= BACKWARD
        flying = most = 0
        for x in own:
            flying += (x.kind == FORWARD_PASS) - (x.kind == last)
            most = max(most, flying)
        assert micro_batches_in_flight(plan, stage, m) == pytest.approx(most / v)
