import json
import re

import pytest

from diffenergy import kernels
from diffenergy.kernels import Field, Op
from diffenergy.workload import (
    kernel_name,
    listing_lines,
    merge_kernels,
    normalise_kernel,
    read_listings,
    select_listing,
)

GEMM = dict(op="gemm", m=64, n=32, k=16, dtype="bf16")


def write(folder, *workloads):
    path = folder / "work.jsonl"
    path.write_text("".join(json.dumps(w) + "\n" for w in workloads))
    return path


def workload(name="one", **kernel):
    return dict(name=name, kernels=[{**GEMM, **kernel}])


@pytest.mark.parametrize(
    "raw, expected",
    [
        (GEMM, dict(batch=1, out_dtype="bf16", tensor_core=True, weights="b", count=1)),
        (GEMM | dict(batch=8), dict(weights="none")),
        (GEMM | dict(dtype="float32"), dict(dtype="fp32", tensor_core=False)),
        (GEMM | dict(dtype="fp8"), dict(out_dtype="bf16")),
        (GEMM | dict(dtype="half", m=64.0), dict(dtype="fp16", m=64)),
        (GEMM | dict(kernel_source="cublas", gemm_m=9), dict(family="cublas")),
        (
            dict(op="elementwise", fn="pointwise_add", elements=4, dtype="bf16"),
            dict(reads=2, writes=1, out_dtype="bf16"),
        ),
        (
            dict(op="elementwise", fn="typecast_to_fp32", elements=4, dtype="bf16"),
            dict(reads=1, out_dtype="fp32"),
        ),
        (
            dict(
                op="context_attention", q_len=8, num_heads=4, head_dim=64, dtype="bf16"
            ),
            dict(kv_len=8, num_kv_heads=4, causal=True, kv_cache_dtype="bf16"),
        ),
    ],
)
def test_defaults_are_filled_and_synonyms_resolved(raw, expected):
    kernel = normalise_kernel(raw, "here")
    assert {key: kernel[key] for key in expected} == expected


def test_fields_at_their_default_and_unknown_fields_are_left_out():
    kernel = normalise_kernel(GEMM | dict(tile_m=0, zero_share=0, gemm_m=1), "here")
    assert not {"tile_m", "zero_share", "layout", "gemm_m", "listed"} & kernel.keys()
    assert normalise_kernel(GEMM | dict(tile_m=128), "here")["tile_m"] == 128
    assert normalise_kernel(GEMM | dict(listed=True), "here")["listed"] is True


def test_means_need_not_be_whole():
    row = dict(op="elementwise", fn="add", elements=8.0, dtype="fp32")
    found = normalise_kernel(row | dict(reads=1.5, count=2.5), "here")
    assert (found["reads"], found["count"], found["elements"]) == (1.5, 2.5, 8)


CONV = dict(
    op="conv2d", images=1, in_channels=6, out_channels=4, input_hw=5, kernel_size=3
)


@pytest.mark.parametrize(
    "kernel, words",
    [
        (dict(m=0), ["`m` is 0", "at least 1"]),
        (dict(m=-1), ["`m` is -1"]),
        (dict(m=float("nan")), ["`m` is NaN", "finite"]),
        (dict(m=float("inf")), ["`m` is Infinity", "finite"]),
        (dict(m=10**400), ["`m`", "finite"]),
        (dict(m=128.5), ["`m` is 128.5", "whole number of at least 1"]),
        (dict(tile_m=64.5), ["`tile_m` is 64.5", "whole"]),
        (dict(m="64"), ['`m` is "64"']),
        (dict(m=True), ["`m` is true"]),
        (dict(m=None), ["`m` of gemm is missing"]),
        (dict(dtype="fp7"), ['`dtype` is "fp7"', "bf16"]),
        (dict(dtype=16), ["`dtype` is 16"]),
        (dict(count=-1), ["`count` is -1", "at least 0"]),
        (dict(tensor_core=1), ["`tensor_core` is 1", "true"]),
        (dict(zero_share=1.5), ["`zero_share` is 1.5", "0 to 1"]),
        (dict(layout="xy"), ['`layout` is "xy"', "tn"]),
        (dict(weights="c"), ['`weights` is "c"', "none"]),
        (dict(op="gem"), ['`op` is "gem"', "'gemm'"]),
        (dict(op=None), ["`op` is missing", "gemm"]),
        (CONV | dict(groups=4), ["`in_channels` is 6", "`groups` 4"]),
        (CONV | dict(kernel_size=6), ["`kernel_size` is 6", "= 5"]),
        (
            dict(op="context_attention", q_len=8, num_heads=6, num_kv_heads=4)
            | dict(head_dim=64),
            ["`num_heads` is 6", "`num_kv_heads` 4"],
        ),
        (
            dict(op="moe", num_tokens=1, hidden_size=8, inter_size=8, topk=9)
            | dict(num_experts=8),
            ["`topk` is 9", "= 8"],
        ),
        (
            dict(op="moe", num_tokens=1, hidden_size=8, inter_size=8, topk=1)
            | dict(num_experts=8, distribution="uniform"),
            ['`distribution` is "uniform"', "balanced"],
        ),
    ],
)
def test_a_bad_kernel_is_named_with_file_and_line(tmp_path, kernel, words):
    path = write(tmp_path, workload("good"), workload("bad", **kernel))
    with pytest.raises(ValueError) as error:
        read_listings(path)
    message = str(error.value)
    assert message.startswith(f"{path}, line 2, kernel 1:")
    assert "\n" not in message and message.endswith(".")
    assert all(word in message for word in words), message


@pytest.mark.parametrize(
    "text, words",
    [
        (b"", ["is empty", "`kernels`"]),
        (b"\n \n", ["is empty"]),
        (b'{"name": "x", ', ["line 1", "broken JSON"]),
        (b"[" * 100_000, ["line 1", "broken JSON"]),
        (b"[1, 2]", ["line 1", "[1, 2]", "JSON object"]),
        (b'{"name": "x"}', ["line 1", "`kernels` is missing"]),
        (b'{"kernels": []}', ["`kernels` is []"]),
        (b'{"kernels": {"op": "gemm"}}', ["`kernels`", "list"]),
        (b'{"kernels": [3]}', ["kernel 1", "3", "object"]),
        (b'{"name": 3, "kernels": [{}]}', ["`op` is missing"]),
        (b'{"name": "\xff"}', ["not UTF-8"]),
    ],
)
def test_a_file_that_is_no_listing_is_refused(tmp_path, text, words):
    path = tmp_path / "work.jsonl"
    path.write_bytes(text)
    with pytest.raises(ValueError) as error:
        read_listings(path)
    assert all(word in str(error.value) for word in words), error.value


def test_a_folder_a_missing_file_and_a_repeated_name_are_refused(tmp_path):
    with pytest.raises(ValueError, match="is a folder"):
        read_listings(tmp_path)
    with pytest.raises(ValueError, match="does not exist"):
        read_listings(tmp_path / "none.jsonl")
    with pytest.raises(ValueError, match="line 2: `name` is 'one' like on line 1"):
        read_listings(write(tmp_path, workload(), workload()))


def test_written_listings_are_read_back_identically(tmp_path):
    rows = [
        GEMM | dict(listed=False, layout="tn", tile_m=128),
        dict(op="elementwise", fn="swizzle", elements=9, dtype="bf16"),
    ]
    extra = dict(module_calls=7, passes=3, dispatch="graph", batch=2, seq_len=None)
    first = read_listings(write(tmp_path, dict(name="x", kernels=rows, **extra)))
    assert "swizzle" in first[0].notes[0] and first[0].passes == 3
    again = tmp_path / "again.jsonl"
    again.write_text(listing_lines(first))
    assert read_listings(again) == first


def test_a_workload_is_selected_by_name(tmp_path):
    names = ["llama/prefill", "llama/decode", "bert"]
    listings = read_listings(write(tmp_path, *map(workload, names)))

    def selected(listings, name):
        return [x.name for x in select_listing(listings, name)]

    assert selected(listings, "bert") == ["bert"]
    assert selected(listings, "llama") == names[:2]
    assert selected(listings[:2], None) == names[:2]
    assert selected(listings[2:], None) == ["bert"]
    with pytest.raises(ValueError, match="3 workloads .*--workload"):
        select_listing(listings, None)
    with pytest.raises(ValueError, match="'bart'.*'bert'"):
        select_listing(listings, "bart")


def test_equal_rows_are_merged_in_order():
    one = normalise_kernel(GEMM | dict(count=2), "here")
    other = normalise_kernel(GEMM | dict(m=8), "here")
    assert merge_kernels([one, other, one]) == ({**one, "count": 4}, other)


@pytest.mark.parametrize(
    ("op", "fields", "name"),
    [
        ("gemm", dict(batch=2, m=8, n=16, k=32), "gemm 2x8x16x32 bf16"),
        ("softmax", dict(rows=8, cols=128), "softmax 8x128 bf16"),
        ("elementwise", dict(fn="gelu", elements=1e6), "gelu 1e+06 bf16"),
        ("collective", dict(bytes=4096, num_gpus=8), "collective 4096x8 bf16"),
        (
            "conv2d",
            dict(images=1, in_channels=3, out_channels=64, input_hw=224, kernel_size=7),
            "conv2d 1x3x224x64x7 bf16",
        ),
        (
            "moe",
            dict(num_tokens=5, hidden_size=6, inter_size=7, topk=2, num_experts=8),
            "moe 5x6x7x8x2 bf16",
        ),
        (
            "attention_backward",
            dict(batch=3, q_len=9, kv_len=9, num_heads=16, head_dim=64),
            "attention_backward 3x9x9x16x64 bf16",
        ),
        ("activity", {}, "activity"),
    ],
)
def test_what_tables_call_a_kernel(sample, op: str, fields: dict, name: str):
    assert kernel_name(sample(op, **fields)) == name


def test_a_class_says_itself_what_its_fields_allow(monkeypatch):
    """An op that no other file knows: its words, sizes that divide, what cannot be, and
    what tables call it."""
    op = Op(
        "sweep",
        (
            Field("kind", "text", choices=("even", "power_X")),
            Field("heads"),
            Field("groups", default=1.0, divides=("heads",)),
            Field("dtype", "dtype"),
        ),
        wrong=lambda row: "one head is too few" if row["heads"] == 1 else "",
    )
    known = {**kernels.ops(), "sweep": (op, kernels)}
    monkeypatch.setattr(kernels, "ops", lambda: known)
    row = dict(op="sweep", kind="power_1.5", heads=8, groups=4, dtype="bf16")
    assert kernel_name(normalise_kernel(row, "here")) == "sweep 8 bf16"
    for change, words in (
        ({"kind": "odd"}, '`kind` is "odd"; allowed: even, power_X.'),
        ({"kind": "power_X"}, '`kind` is "power_X"; allowed'),
        ({"kind": "power_1.5 "}, "`kind` is"),
        ({"kind": 3}, "`kind` is 3; allowed"),
        ({"groups": 3}, "`heads` is 8, which `groups` 3 does not divide"),
        ({"heads": 1, "groups": 1}, "here: one head is too few."),
    ):
        with pytest.raises(ValueError, match=re.escape(words)):
            normalise_kernel(row | change, "here")
