"""Launch order of listings."""

import collections
import itertools

import pytest

from diffenergy.workload import Loop, listing_order, load_model, loops_of


@pytest.mark.parametrize(
    "counts, loops",
    [
        ([1, 8, 8, 1], [Loop((0,), 1), Loop((1, 2), 8), Loop((3,), 1)]),
        ([4, 4, 8, 1], [Loop((0, 2, 1, 2), 4), Loop((3,), 1)]),
        ([4, 4, 9], [Loop((0, 2, 1, 2), 4), Loop((2,), 1)]),
    ],
)
def test_rows_of_a_layer_are_a_loop_body(counts: list[int], loops: list[Loop]):
    assert loops_of(counts) == loops


def test_rows_of_one_key_follow_each_other():
    loops = loops_of([6, 2, 6, 4], ["a", "b", "c", "b"])
    assert loops == [Loop((0, 1, 2), 2), Loop((0, 3, 2), 4)]


@pytest.mark.parametrize("name", ["llama-3.1-8b", "gpt2", "qwen3-8b"])
def test_every_launch_of_a_model_is_in_the_order_once(name: str):
    for phase, stack in itertools.product(("generate", "train"), ("serving", "eager")):
        request = dict(phase=phase, stack=stack, input_len=64)
        for listing in load_model(name).listings(**request):
            launched = collections.Counter()
            for loop in listing_order(listing.kernels):
                for kernel in loop.kernels:
                    launched[kernel] += loop.turns
            counts = {i: round(k["count"]) for i, k in enumerate(listing.kernels)}
            assert launched == counts, (phase, stack)


def test_a_generation_goes_through_its_kv_lengths_in_order():
    _, decode = load_model("gpt2").listings(input_len=16, output_len=33)
    rows = [decode.kernels[k] for x in listing_order(decode.kernels) for k in x.kernels]
    lengths = [x["kv_len"] for x in rows if x["op"] == "generation_attention"]
    assert len(set(lengths)) == 8 and lengths == sorted(lengths)
