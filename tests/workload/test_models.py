import collections

import jax
import numpy as np
import pytest

from calibration.listings import complete_listing
from diffenergy.workload import (
    Config,
    TrainingStorage,
    listing_lines,
    load_model,
    read_listings,
)
from diffenergy.workload.models import model_from_config, model_names

from .builders import multiset, one
from .published import BUNDLED

PUBLISHED = {
    "gpt2": 124_439_808,
    "gpt2-medium": 354_823_168,
    "gpt2-large": 774_030_080,
    "gpt2-xl": 1_557_611_200,
    "gpt3-xl": 1_315_819_520,  # with llm.c's vocabulary of 50,304
    "bert-base": 109_482_240,
    "bert-large": 335_141_888,
    "opt-1.3b": 1_315_758_080,
    "opt-6.7b": 6_658_473_984,
    "llama-2-7b": 6_738_415_616,
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.1-70b": 70_553_706_496,
    "mistral-7b": 7_241_732_096,
    "mixtral-8x7b": 46_702_792_704,
    "qwen2-1.5b": 1_543_714_304,
    "qwen2-7b": 7_615_616_512,
    "qwen3-8b": 8_190_735_360,
    "qwen3-30b-a3b": 30_532_122_624,
    "vit-base": 86_567_656,
    "vit-large": 304_326_632,
    "resnet-50": 25_557_032,
    "resnet-101": 44_549_160,
    "mobilevit-small": 5_578_632,
    **{name: known.parameters + known.tower for name, known in BUNDLED.items()},
}
"""Parameter counts of the published checkpoints."""


@pytest.mark.parametrize("name", model_names())
def test_a_model_has_its_published_parameters_and_is_read_back(name, tmp_path):
    assert name in PUBLISHED, f"add what is published of {name} to `PUBLISHED`"
    model = load_model(name)
    assert model.parameters() == PUBLISHED[name]
    listings = model.listings()
    path = tmp_path / "model.jsonl"
    path.write_text(listing_lines(listings))
    assert read_listings(path) == listings


def test_decode_is_one_step_at_the_input_length():
    (listing,) = load_model("llama-3.1-8b").listings(
        batch=4, input_len=2048, phase="decode", kv_dtype="fp8"
    )
    attention = one(listing.kernels, op="generation_attention")
    assert (attention["kv_len"], attention["kv_cache_dtype"]) == (2048, "fp8")
    assert listing.dispatch == "graph" and listing.passes == 1
    rope = one(listing.kernels, fn="rope_kv_write")
    written = 4 * 128 * (32 * 2 + 2 * 8 * 1)  # bytes: q in bf16, k and v in fp8
    assert rope["elements"] * rope["writes"] * 2 == written


@pytest.mark.parametrize("steps", [1, 9, 1000])
def test_parts_of_a_generation_cover_all_steps(steps):
    model = load_model("llama-2-7b")
    prefill, decode = model.listings(input_len=100, output_len=steps + 1)
    assert (prefill.name, decode.name) == ("llama-2-7b/prefill", "llama-2-7b/decode")
    (alone,) = model.listings(input_len=100, output_len=1)
    assert alone.kernels == prefill.kernels and decode.passes == steps
    assert one(decode.kernels, op="gemm", n=32000)["count"] == steps
    calls = [k for k in decode.kernels if k["op"] == "generation_attention"]
    assert sum(k["count"] for k in calls) == 32 * steps
    assert len(calls) <= 8
    tokens = sum(k["kv_len"] * k["count"] for k in calls) / 32
    exact = sum(100 + i for i in range(1, steps + 1))
    assert abs(tokens - exact) <= steps / 2  # rounding of the midpoints


@pytest.mark.parametrize(
    "dtype, values, head",
    [("fp32", "fp32", "fp32"), ("tf32", "fp32", "tf32"), ("fp8_block", "bf16", "bf16")],
)
def test_operand_types(dtype, values, head):
    (listing,) = load_model("llama-3.1-8b").listings(phase="prefill", dtype=dtype)
    down = one(listing.kernels, op="gemm", k=14336)
    assert (down["dtype"], down["tensor_core"]) == (dtype, dtype != "fp32")
    assert one(listing.kernels, op="context_attention")["dtype"] == values
    assert one(listing.kernels, op="gemm", n=128256)["dtype"] == head


TRACED = {
    "bertmodel": "bert-large", "gpt2model": "gpt2", "optmodel": "opt-1.3b",
    "qwen2model": "qwen2-1.5b", "vitmodel": "vit-large", "resnet101": "resnet-101",
    "mobilevitmodel": "mobilevit-small",
}  # fmt: skip
"""Model of each traced module."""
LOOKUPS = {
    "bertmodel": {"gather": 3, "pointwise_add": 1},
    "gpt2model": {"gather": 2},
    "optmodel": {"gather": 2},
    "qwen2model": {"gather": 1},
}
"""What traces do not name of a module's look-ups."""
LONG = dict(
    max_position_embeddings=8192,  # some traces exceed the trained positions
    n_positions=4096,
    pooler_output_size=768,  # of the traced ViT
)


@pytest.fixture(scope="module")
def traces(shared):
    """Traced and derived listings by module."""
    listings = collections.defaultdict(list)
    for file in ("workloads.jsonl", "workloads_derived.jsonl"):
        for listing in read_listings(shared / "data" / "energaizer" / file):
            listings[listing.model].append(listing)
    return listings


@pytest.mark.shared_data
@pytest.mark.parametrize("traced", TRACED)
def test_eager_stack_reproduces_traces(traces, traced):
    """Every kernel of every trace, all that is added to both, and what no trace names
    of the look-ups: a gather from each table, and BERT's first sum of them."""
    config = load_model(TRACED[traced]).config
    values = {**config.values, **LONG}
    model = model_from_config(Config(config.name, config.where, values))
    assert traces[traced]
    for listing in traces[traced]:
        (built,) = model.listings(
            batch=int(listing.batch or 1),
            input_len=int(listing.seq_len) if listing.seq_len else None,
            phase=listing.mode or "forward",
            dtype=listing.precision,
            stack="eager",
            base=True,
        )
        expected = complete_listing(listing)
        launches, named = multiset(built.kernels), multiset(expected.kernels)
        more = collections.Counter()
        for key, number in (launches - named).items():
            more[dict(key).get("fn", dict(key)["op"])] += number
        assert not named - launches, listing.name
        assert dict(more) == LOOKUPS.get(traced, {}), listing.name
        assert built.module_calls == expected.module_calls


def test_choices_have_defaults():
    request = load_model("gpt2").request(batch=4, stack="eager")
    stated = {key: x for key, x in vars(request).items() if x is not None}
    assert stated.pop("storage") == TrainingStorage("bf16", "fp32", results=False)
    assert stated.pop("bf16_layers") == 0
    assert stated == dict(
        batch=4, input_len=512, output_len=128, phase="generate", dtype="bf16",
        kv_dtype="bf16", attention="eager", stack="eager", base=False,
    )  # fmt: skip
    request = load_model("vit-large").request()
    assert request.phase == "forward" and request.input_len is None
    request = load_model("gpt2").request(phase="train", batch=4)
    assert (request.input_len, request.dtype) == (512, "bf16")
    assert (request.attention, request.stack) == ("flash", "serving")
    assert (request.accumulation, request.checkpointing) == (1, False)
    assert request.output_len is None and not request.base


def test_models_of_a_kind_share_their_program():
    """Trees and shapes of arrays are alike, whatever the number of rows."""

    def key(name: str):
        work = load_model(name).workload(batch=8, input_len=512, output_len=128)
        return work.num_rows, jax.tree.map(lambda x: (x.shape, x.dtype), work)

    (few, llama), (more, qwen) = key("llama-3.1-8b"), key("qwen3-8b")
    assert few < more and llama == qwen
    work = load_model("gpt2").workload(input_len=8)
    rows = np.concatenate([group.row for group in work.groups])
    assert set(rows) == set(range(work.num_rows))
    assert len(rows) == work.num_launches
